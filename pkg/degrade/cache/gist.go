package cache

import (
	"hash/fnv"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// gistBytes and wordsMost bound a text that is compared with others.
	gistBytes = 16 << 10
	wordsMost = 1024
	// shingle is how many words in a row are compared.
	shingle = 3
)

// gist is what a text asks, without the ways to ask it: texts with the same gist may have the same answer. A word is what
// stands between white space, and all words count, in order and to the letter, but for this:
//
//   - white space between the words of the asking;
//   - a capital at the very beginning;
//   - the last full stop, and the last question mark of what is a question without it;
//   - what lean takes out.
//
// So no number, negation, name, unit, sign, link or code can differ. The asking ends where material may begin, at the
// first word with anything but letters, digits and the marks of prose in it, or at a line's end: from there on, all
// counts. ok is false for a text that is only to be compared as it stands: too long, or in a script without capitals,
// where the rules for words say nothing.
func gist(text string) (said string, shingles []uint64, ok bool) {
	all := strings.Fields(text)
	if len(text) > gistBytes || len(all) > wordsMost || strings.ContainsFunc(text, caseless) {
		return "", nil, false
	}
	text = strings.TrimSpace(text)
	words, material, ok := lean(text)
	if !ok {
		words, material = asking(text)
	}
	if len(words) == 0 {
		return "", nil, false
	}
	words[0] = small(words[0])
	if material == "" {
		words[len(words)-1] = unended(words)
	}
	return strings.Join(words, " ") + "\n" + material, shinglesOf(all), true
}

// lean is the asking without its politeness: a greeting before everything else, please or kindly then or after "can you",
// and thanks or please at the very end. Articles count: the few are not few. That is only for one sentence, alone or with
// a colon before its material: else a greeting may be what the asking is about, as in "Hello, my friends. Translate this."
func lean(text string) (words []string, material string, ok bool) {
	words, material = asking(afterGreeting(text))
	if material == "" {
		words = withoutThanks(words)
	} else if first, _, _ := strings.Cut(strings.TrimLeftFunc(material, unicode.IsSpace), " "); !leads(first) {
		return nil, "", false
	}
	if len(words) == 0 || slices.ContainsFunc(words[:len(words)-1], sentence) {
		return nil, "", false
	}
	return withoutPlease(words), material, true
}

// leads says that the word ends in a colon and is prose else.
func leads(word string) bool {
	word, _, _ = strings.Cut(word, "\n")
	word, colon := strings.CutSuffix(word, ":")
	return colon && prose(word)
}

// caseless says that r is a letter of a script without capitals.
func caseless(r rune) bool {
	return r >= utf8.RuneSelf && unicode.IsLetter(r) && !unicode.IsUpper(r) && !unicode.IsLower(r)
}

// asking cuts a text into the words of its asking and its material.
func asking(text string) (words []string, material string) {
	for text != "" {
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		if !prose(text[:end]) {
			return words, text
		}
		words = append(words, text[:end])
		rest := strings.TrimLeftFunc(text[end:], unicode.IsSpace)
		if gap := text[end : len(text)-len(rest)]; strings.ContainsAny(gap, "\n\r\v\f\u0085\u2028\u2029") {
			return words, gap + rest
		}
		text = rest
	}
	return words, ""
}

// prose says that a word has nothing but letters, digits and marks of prose in it, and begins with a letter or digit.
func prose(word string) bool {
	for i, r := range word {
		letter := unicode.IsLetter(r) || '0' <= r && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune(".,;!?'’-", r)) {
			return false
		}
	}
	return true
}

// afterGreeting cuts a greeting with a mark or line's end behind it from the beginning. "Hello, world" has none.
func afterGreeting(text string) string {
	for _, hello := range greetings {
		if len(text) <= len(hello) || !strings.EqualFold(text[:len(hello)], hello) {
			continue
		}
		rest := text[len(hello):]
		bare := strings.TrimLeft(rest, ",.!")
		after := strings.TrimLeftFunc(bare, unicode.IsSpace)
		marked := len(bare) < len(rest) || strings.ContainsAny(rest[:1], "\r\n")
		if marked && len(after) < len(bare) && !strings.HasPrefix(strings.ToLower(after), "world") {
			return after
		}
	}
	return text
}

// withoutPlease takes out "please" and "kindly" at the beginning or after "can you".
func withoutPlease(words []string) []string {
	at := 0
	if len(words) > 2 && slices.Contains(modals, small(words[0])) && words[1] == "you" {
		at = 2
	}
	if at+1 == len(words) || !smallWord(words[at+1]) {
		return words
	}
	word := strings.TrimSuffix(words[at], ",")
	if at == 0 {
		word = small(word)
	}
	if word == "please" || word == "kindly" {
		return slices.Delete(words, at, at+1)
	}
	return words
}

// withoutThanks takes thanks or please from the end, where a mark or comma sets it apart. A question mark stays.
func withoutThanks(words []string) []string {
	for _, end := range thanks {
		from := len(words) - len(end)
		if from < 1 || !ended(words[from-1]) {
			continue
		}
		tail, asks := strings.CutSuffix(strings.ToLower(strings.Join(words[from:], " ")), "?")
		if strings.TrimRight(tail, ".!") != strings.Join(end, " ") {
			continue
		}
		words = words[:from]
		words[from-1] = strings.TrimSuffix(words[from-1], ",")
		if asks {
			words[from-1] += "?"
		}
		return words
	}
	return words
}

var (
	greetings = []string{"hello", "hi", "hey", "good morning", "good afternoon", "good evening"}
	modals    = []string{"can", "could", "would", "will"}
	thanks    = [][]string{{"please"}, {"thanks"}, {"thank", "you"}, {"thanks", "in", "advance"}, {"thank", "you", "in", "advance"}}
	// questions are words that make one sentence a question when they begin it.
	questions = []string{
		"what", "what's", "who", "who's", "whose", "which", "when", "where", "where's", "why", "how",
		"is", "are", "was", "were", "do", "does", "did", "can", "could", "would", "should",
	}
)

// ended says that a mark stands behind the word.
func ended(word string) bool { return strings.ContainsAny(word[len(word)-1:], ",.;!?") }

// unended is the last word without a mark that says nothing.
func unended(words []string) string {
	word := words[len(words)-1]
	bare := strings.TrimRight(word, ".")
	if len(word)-len(bare) == 1 && bare != "" && !strings.ContainsAny(bare, ".!?") {
		return bare
	}
	bare = strings.TrimSuffix(word, "?")
	if slices.Contains(questions, words[0]) && !slices.ContainsFunc(words[:len(words)-1], sentence) && bare != "" && !sentence(bare) {
		return bare
	}
	return word
}

// sentence says that a sentence may end with the word.
func sentence(word string) bool { return word != "" && strings.ContainsAny(word[len(word)-1:], ".!?") }

// small is a word with one capital at its beginning without it. "US", "X" and "iOS" stay.
func small(word string) string {
	r, n := utf8.DecodeRuneInString(word)
	rest := word[n:]
	if !unicode.IsUpper(r) || len(rest) == 0 || !smallWord(rest) {
		return word
	}
	return string(unicode.ToLower(r)) + rest
}

// smallWord says that a word is of small letters, but for marks of prose inside or behind it.
func smallWord(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return unicode.IsLower(r) && !strings.ContainsFunc(word, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsDigit(r) })
}

// shinglesOf are the hashes, sorted, of each three words in a row, without capitals and marks around them.
func shinglesOf(words []string) []uint64 {
	words = slices.Clone(words)
	for i, w := range words {
		words[i] = strings.ToLower(strings.Trim(w, ".,;!?"))
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	n := min(shingle, len(words))
	all := make([]uint64, 0, len(words))
	for i := 0; i+n <= len(words); i++ {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strings.Join(words[i:i+n], " ")))
		all = append(all, h.Sum64())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// alike is the Jaccard similarity of two sorted sets: how much of what is in either is in both, 0 to 1.
func alike(a, b []uint64) float64 {
	both := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			both, i, j = both+1, i+1, j+1
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	if either := len(a) + len(b) - both; either > 0 {
		return float64(both) / float64(either)
	}
	return 0
}
