package store

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestALastingOutageIsSaidOnceAndThenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		n := &notices{log: log.logger()}
		n.change(slog.LevelWarn, "down")
		for range 600 {
			time.Sleep(time.Second)
			n.remind(slog.LevelWarn, "still down")
		}
		n.change(slog.LevelInfo, "up")
		if down, still, up := log.count("msg=down"), log.count("still down"), log.count("msg=up"); down != 1 || still != 10 || up != 1 {
			t.Errorf("ten minutes gave %d, %d and %d lines, want 1, 10 and 1:\n%s", down, still, up, log.String())
		}
	})
}

func TestAFlappingStoreFillsNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		n := &notices{log: log.logger()}
		for range 300 {
			n.change(slog.LevelWarn, "down")
			n.change(slog.LevelInfo, "up")
			n.note("noise")
			time.Sleep(time.Second)
		}
		if lines := log.count("\n"); lines != 5*noticesMost {
			t.Errorf("five minutes of flapping gave %d lines, want %d", lines, 5*noticesMost)
		}
		if !strings.Contains(log.String(), "left_out=174") {
			t.Errorf("no line says how many were left out:\n%s", log.String())
		}
	})
}
