package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine says where and when the run is made.
func (s *suite) machine() machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	return machine{
		Date:    time.Now().UTC().Format(time.DateTime) + " UTC",
		CPU:     cpuModel(),
		Cores:   runtime.NumCPU(),
		Kernel:  strings.TrimSpace(string(kernel)),
		Go:      runtime.Version(),
		Envoy:   envoyVersion(s.envoy),
		Service: firstLine(s.extproc, "version"),
		Socket:  s.socket,
		Load:    strings.Join(strings.Fields(string(load))[:3], " "),
	}
}

// busy says that the machine did other work when the run began, so that its times are not the variants' own.
func (m machine) busy() bool {
	one, _, _ := strings.Cut(m.Load, " ")
	load, err := strconv.ParseFloat(one, 64)
	return err != nil || load > float64(m.Cores)/4
}

// Warning is what a page from such a machine has to say.
func (m machine) Warning() string {
	if !m.busy() {
		return ""
	}
	return "**Preliminary: the machine was busy with other work (load " + m.Load + "). Ratios hold roughly, times do not.**\n\n"
}

// envoyVersion is what `envoy --version` says between its slashes: revision/version/….
func envoyVersion(program string) string {
	for part := range strings.SplitSeq(firstLine(program, "--version"), "/") {
		if strings.Count(part, ".") == 2 && part[0] >= '0' && part[0] <= '9' {
			return part
		}
	}
	return "unknown"
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown"
}
