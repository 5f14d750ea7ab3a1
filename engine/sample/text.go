package sample

import (
	"strings"
	"unicode/utf8"
)

// Text joins the pieces of tokens to text that may be shown: whole characters,
// and nothing that might turn out to begin a stop string.
//
// Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a
// character, as browsers and most languages do.
type Text struct {
	stops   []stop
	held    []byte
	shown   int
	stopped bool
}

// stop is a stop string with its Knuth-Morris-Pratt automaton.
type stop struct {
	s    string
	back []int // of each prefix, the longest proper prefix that ends it
	at   int   // how much of s the text's end is
}

// NewText returns a Text that ends at the first of the stop strings. Empty ones
// do not count.
func NewText(stops []string) *Text {
	t := &Text{}
	for _, s := range stops {
		if s == "" {
			continue
		}
		back := make([]int, len(s)+1)
		for i, k := 1, 0; i < len(s); i++ {
			for k > 0 && s[i] != s[k] {
				k = back[k]
			}
			if s[i] == s[k] {
				k++
			}
			back[i+1] = k
		}
		t.stops = append(t.stops, stop{s: s, back: back})
	}
	return t
}

// step takes a byte and reports whether the text now ends with the stop string.
func (s *stop) step(b byte) bool {
	for s.at > 0 && s.s[s.at] != b {
		s.at = s.back[s.at]
	}
	if s.s[s.at] == b {
		s.at++
	}
	if s.at == len(s.s) {
		s.at = s.back[s.at]
		return true
	}
	return false
}

// Push adds a token's bytes and returns the text that may be shown now. stopped
// is true once a stop string is complete: out is then the rest of the text before
// it, and every later Push and Flush is empty. Of several stop strings the one
// that is complete first counts, the longer of two that end together.
func (t *Text) Push(piece []byte) (out string, stopped bool) {
	if t.stopped {
		return "", true
	}
	for i, b := range piece {
		longest := 0
		for j := range t.stops {
			if s := &t.stops[j]; s.step(b) {
				longest = max(longest, len(s.s))
			}
		}
		if longest > 0 {
			t.held = append(t.held, piece[:i+1]...)
			t.held = t.held[:len(t.held)-longest]
			t.stopped = true
			return t.take(len(t.held), true), true
		}
	}
	t.held = append(t.held, piece...)
	begun := 0
	for _, s := range t.stops {
		begun = max(begun, s.at)
	}
	return t.take(len(t.held)-begun, false), false
}

// Shown returns how many of the bytes that were pushed have been returned as text.
func (t *Text) Shown() int { return t.shown }

// Flush returns what is still held back, when no more pieces come.
func (t *Text) Flush() string {
	if t.stopped {
		return ""
	}
	t.stopped = true
	return t.take(len(t.held), true)
}

// take removes up to n bytes of whole characters from what is held and returns
// them as text. At the end an unfinished character is a bad one.
func (t *Text) take(n int, end bool) string {
	var out strings.Builder
	i := 0
	for i < n {
		r, size := utf8.DecodeRune(t.held[i:])
		if r == utf8.RuneError && size == 1 {
			var open bool
			if size, open = part(t.held[i:]); open && !end {
				break
			}
		}
		if i+size > n {
			break
		}
		out.WriteRune(r)
		i += size
	}
	t.held = append(t.held[:0], t.held[i:]...)
	t.shown += i
	return out.String()
}

// part returns the length of the maximal part of a character that b, which does
// not begin with a whole one, begins with, and whether more bytes could complete
// it.
func part(b []byte) (n int, open bool) {
	low, high := byte(0x80), byte(0xbf)
	var size int
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		size = 2
	case c >= 0xe0 && c <= 0xef:
		size = 3
		switch c {
		case 0xe0:
			low = 0xa0
		case 0xed:
			// A surrogate: bad from its second byte on, but shown only with the
			// third, as the decoders that made the golden data do.
			if len(b) == 2 && b[1] >= 0xa0 && b[1] <= high {
				return 1, true
			}
			high = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		size = 4
		switch c {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	default:
		return 1, false
	}
	for n = 1; n < size; n++ {
		if n == len(b) {
			return n, true
		}
		if b[n] < low || b[n] > high {
			return n, false
		}
		low, high = 0x80, 0xbf
	}
	return n, false
}
