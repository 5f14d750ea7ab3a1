package openai

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	wordSlots = 1 << 13
	wordBytes = 32 // longer ones are seldom seen again
)

// words remembers pieces of text that were seen lately and how many tokens they are:
// languages repeat themselves, and looking up costs a tenth of counting and no memory.
// A piece displaces another of the same slot, so the memory is bounded, to about
// 1 MB, whatever the text. It is safe for concurrent use.
type words struct {
	seed  maphash.Seed
	slots [wordSlots]atomic.Pointer[word]
}

type word struct {
	text   string
	tokens int // -1 when it was not counted
}

func newWords() *words { return &words{seed: maphash.MakeSeed()} }

// text returns b as a string, without garbage when it was seen lately. A nil words has
// seen nothing.
func (w *words) text(b []byte) string {
	if w == nil || len(b) > wordBytes {
		return string(b)
	}
	slot := &w.slots[maphash.Bytes(w.seed, b)%wordSlots]
	if e := slot.Load(); e != nil && e.text == string(b) {
		return e.text
	}
	e := &word{text: string(b), tokens: -1}
	slot.Store(e)
	return e.text
}

// count returns the tokens of text, by count when it was not seen lately.
func (w *words) count(text string, count func(string) (int, error)) (int, error) {
	if len(text) > wordBytes {
		return count(text)
	}
	slot := &w.slots[maphash.String(w.seed, text)%wordSlots]
	if e := slot.Load(); e != nil && e.tokens >= 0 && e.text == text {
		return e.tokens, nil
	}
	n, err := count(text)
	if err == nil {
		slot.Store(&word{text: text, tokens: n})
	}
	return n, err
}

// cutWord returns how much of text the vocabularies' patterns split off in any case:
// up to a space that follows a visible ASCII character. No token goes across it, for
// spaces are only at the beginning of a token or between other blanks.
func cutWord(text string) int {
	for i := 1; i < len(text); i++ {
		if text[i] == ' ' && text[i-1] > ' ' && text[i-1] < 0x7f {
			return i
		}
	}
	return len(text)
}
