package cache

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func gistOf(text string) (string, bool) {
	said, _, ok := gist(text)
	return said, ok
}

func TestTextsWithOneGist(t *testing.T) {
	rows := []struct{ name, a, b string }{
		{"space", "what is the  capital of France", " what is the capital\tof France "},
		{"a question mark", "What is the capital of France", "What is the capital of France?"},
		{"a capital at the beginning", "what is the capital of France?", "What is the capital of France?"},
		{"a full stop", "Summarise the report.", "Summarise the report"},
		{"please", "Please summarise this report", "Summarise this report"},
		{"please with a comma", "Please, summarise this report", "summarise this report"},
		{"please inside", "Can you please summarise this report?", "can you summarise this report"},
		{"please at the end", "Summarise this report, please.", "Summarise this report."},
		{"a question with please at the end", "Is it true, please?", "Is it true?"},
		{"thanks at the end", "Summarise this report. Thanks!", "Summarise this report"},
		{"thanks in advance", "Can you summarise this report? Thank you in advance.", "Can you summarise this report"},
		{"a greeting", "Hello, summarise this report", "Summarise this report"},
		{"a greeting on its own line", "Hi\n\nsummarise this report", "Summarise this report"},
		{"a greeting, please and thanks", "Good morning! Could you please summarise this report? Thanks.", "could you summarise this report"},
		{"please before material", "Please translate the following: \"3 cats\"\nThe end.", "translate the following: \"3 cats\"\nThe end."},
		{"Greek", "τι είναι αυτό;", "Τι είναι  αυτό;"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			a, okA := gistOf(row.a)
			b, okB := gistOf(row.b)
			if a != b || !okA || !okB {
				t.Errorf("gist(%q) = %q, %v, want %q, %v as of %q", row.b, b, okB, a, okA, row.a)
			}
		})
	}
}

func TestTextsWithAnotherGist(t *testing.T) {
	rows := []struct{ name, a, b string }{
		{"a digit", "What is 17 times 3?", "What is 18 times 3?"},
		{"a digit at the end", "What happened in 1945?", "What happened in 1946?"},
		{"a decimal point", "Is 1.5 l enough?", "Is 15 l enough?"},
		{"a sign", "What is -3 squared?", "What is 3 squared?"},
		{"an operator", "What is 3 + 4", "What is 3 - 4"},
		{"a negation", "Is this safe to eat", "Is this not safe to eat"},
		{"a short negation", "I can eat nuts", "I can't eat nuts"},
		{"a double negation", "please do not stop", "please do stop"},
		{"a currency", "Is $20 enough?", "Is €20 enough?"},
		{"a unit", "Is 5 mg safe?", "Is 5 g safe?"},
		{"a unit's capital", "Is 5 Mb enough?", "Is 5 MB enough?"},
		{"a name", "Who is Anna Smith", "Who is Anna Smyth"},
		{"a name's capital", "Is Polish food good", "Is polish food good"},
		{"a capital inside the first word", "US exports", "us exports"},
		{"one letter as a name", "X is greater than Y", "x is greater than Y"},
		{"a quoted text", `Translate "yes"`, `Translate "no"`},
		{"space in a quoted text", `Count the spaces in "a b"`, `Count the spaces in "a  b"`},
		{"please in a quoted text", `Translate "please go"`, `Translate "go"`},
		{"code", "What does `a_b` do", "What does `a_c` do"},
		{"an identifier", "What does foo_bar do", "What does foo_baz do"},
		{"space in code", "Fix this:\nif x:\n  y", "Fix this:\nif x:\ny"},
		{"a line's end", "Fix this: a\nb", "Fix this: a b"},
		{"a link", "Read https://a.example/x", "Read https://a.example/y"},
		{"the order of words", "dog bites man", "man bites dog"},
		{"another word", "Is aspirin safe", "Is aspirin dangerous"},
		{"a word more", "Summarise this report", "Summarise this whole report"},
		{"an article", "Give me the summary of the report", "Give me summary of report"},
		{"an article at the beginning", "The few who came were right", "few who came were right"},
		{"an idiom with an article", "Is it out of the question to sell", "Is it out of question to sell"},
		{"few and a few", "Are few people here", "Are a few people here"},
		{"the vitamin", "Is vitamin A good", "Is vitamin good"},
		{"a band", "when did the who split", "when did who split"},
		{"a name with an article", "When did The Police split", "When did Police split"},
		{"an article before a name", "Who led the Police", "Who led Police"},
		{"a title that begins with please", "Please Please Me", "Please Me"},
		{"please after another word than you", "Can cats please be quiet", "Can cats be quiet"},
		{"please as a word asked about", "How do you say please in French", "How do you say in French"},
		{"please at the end as a word asked about", "What is French for please", "What is French for"},
		{"hello world", "Hello, world in Go", "world in Go"},
		{"a greeting without a mark", "hi scores of all time", "scores of all time"},
		{"a greeting as the matter", "Hello, my friends. Translate this to French.", "My friends. Translate this to French."},
		{"please as the matter", "Please open that door. Translate this.", "Open that door. Translate this."},
		{"please as the matter of a second line", "Please open that door\nTranslate this", "Open that door\nTranslate this"},
		{"a question for a statement", "you did it?", "you did it."},
		{"a question among others", "Is it? I do not know. Really?", "Is it? I do not know. Really"},
		{"a cry", "Fire!", "Fire"},
		{"a comma", "Let's eat, grandma", "Let's eat grandma"},
		{"an ellipsis", "Well...", "Well"},
		{"a zero-width space", "no\u200bthing works", "nothing works"},
		{"a composed letter", "what is a re\u0301sume\u0301", "what is a resume"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			a, okA := gistOf(row.a)
			b, okB := gistOf(row.b)
			if okA && okB && a == b {
				t.Errorf("gist(%q) = gist(%q) = %q, want another", row.b, row.a, a)
			}
		})
	}
}

func TestTextsThatAreOnlyComparedAsTheyStand(t *testing.T) {
	rows := []struct{ name, text string }{
		{"Chinese", "法国的首都是什么"},
		{"Chinese in English", "What is 首都"},
		{"Japanese", "これは何ですか"},
		{"Arabic", "ما هي عاصمة فرنسا"},
		{"Thai", "เมืองหลวง"},
		{"nothing", ""},
		{"space", " \n"},
		{"code from the beginning on", "{\"a\":1}"},
		{"too many words", strings.Repeat("a ", wordsMost+1)},
		{"too many bytes", strings.Repeat("a", gistBytes+1)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if said, ok := gistOf(row.text); ok {
				t.Errorf("gist(%.40q) = %q, want none", row.text, said)
			}
		})
	}
}

// words that gist has rules for, and such that it has not.
var vocabulary = []string{
	"please", "Please,", "kindly", "hello,", "Hi!", "hey", "the", "The", "thanks", "Thanks!", "thank", "you", "can", "could", "what", "What",
	"is", "not", "no", "a", "few", "of", "who", "France", "US", "x", "3", "17", "4.5", "$5", "mg", "report", "report.", "it?", "so,", "now:", `"hi"`, "a_b", "+",
}

// TestAGistKeepsWhatMatters: whatever politeness comes and goes, the other words stay, in their order.
func TestAGistKeepsWhatMatters(t *testing.T) {
	polite := []string{"please", "kindly", "hello", "hi", "the", "thanks"}
	core := func(text string) []string {
		words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",.!?", r) })
		return slices.DeleteFunc(words, func(w string) bool { return slices.Contains(polite, w) })
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 8).Draw(t, "words"), " ")
		said, ok := gistOf(text)
		if !ok {
			return
		}
		// "thank you" goes as a whole.
		if got, want := core(said), core(text); !slices.Equal(got, want) && !slices.Equal(append(got, "thank", "you"), want) {
			t.Fatalf("gist(%q) = %q, with the words %q, want %q", text, said, got, want)
		}
	})
}

// FuzzGist: one digit more or other is another gist, and politeness is counted the same each time.
func FuzzGist(f *testing.F) {
	for _, s := range []string{"Please, what is 3?", "Hello,\nfix 4 of \"5\". Thanks!", "the 3", "0. the", "hi! 3"} {
		f.Add(s, 0)
	}
	f.Fuzz(func(t *testing.T, text string, at int) {
		was, shingles, ok := gist(text)
		if ok && (alike(shingles, shingles) != 1 && len(shingles) > 0 || !slices.IsSorted(shingles)) {
			t.Fatalf("gist(%q) has the shingles %v, want a sorted set", text, shingles)
		}
		var digits []int
		for i := range len(text) {
			if '0' <= text[i] && text[i] <= '9' {
				digits = append(digits, i)
			}
		}
		if len(digits) == 0 || at < 0 {
			return
		}
		i := digits[at%len(digits)]
		other := text[:i] + string('0'+(text[i]-'0'+1)%10) + text[i+1:]
		if is, otherOK := gistOf(other); ok && otherOK && is == was {
			t.Fatalf("gist(%q) = gist(%q) = %q, want another", other, text, is)
		}
	})
}

func TestSimilarity(t *testing.T) {
	rows := []struct {
		a, b     string
		min, max float64
	}{
		{"What is the capital of France?", "what is the  capital of France", 1, 1},
		{"Please tell me what is the capital of France and why", "Tell me what is the capital of France and why", 0.8, 0.95},
		{"one two", "one two", 1, 1},
		{"one two", "one three", 0, 0},
		{"a b c d e f", "g h i j k l", 0, 0},
	}
	for _, row := range rows {
		got := alike(shinglesOf(strings.Fields(row.a)), shinglesOf(strings.Fields(row.b)))
		if got < row.min || got > row.max {
			t.Errorf("alike(%q, %q) = %v, want %v to %v", row.a, row.b, got, row.min, row.max)
		}
	}
}
