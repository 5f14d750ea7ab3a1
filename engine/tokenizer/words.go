package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

type class uint8

const (
	other class = iota
	letter
	number
	space
	// edge is the end of the text, or what counts as one.
	edge
)

// classes is a table for the characters below tableSize, which hold all
// letters, numbers and spaces but a few.
type classes []class

const tableSize = 0x33480

func newClasses() classes {
	t := make(classes, tableSize)
	fill := func(r *unicode.RangeTable, c class) {
		for _, x := range r.R16 {
			for i := uint32(x.Lo); i <= uint32(x.Hi); i += uint32(x.Stride) {
				t[i] = c
			}
		}
		for _, x := range r.R32 {
			for i := x.Lo; i <= x.Hi && i < tableSize; i += x.Stride {
				t[i] = c
			}
		}
	}
	fill(unicode.L, letter)
	fill(unicode.N, number)
	fill(unicode.White_Space, space)
	// CJK extension I came with Unicode 15.1; Go's tables are of 15.0.
	for r := 0x2ebf0; r <= 0x2ee5d; r++ {
		t[r] = letter
	}
	return t
}

func (t classes) of(r rune) class {
	switch {
	case r < tableSize:
		return t[r]
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	}
	return other
}

// first returns the class of the first character and its bytes.
func (tk *Tokenizer) first(s string) (class, int) {
	if s == "" {
		return edge, 0
	}
	if s[0] < utf8.RuneSelf {
		return tk.classes[s[0]], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	return tk.classes.of(r), n
}

// word returns the length of the first word of s by GPT-2's rule
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// where "smollm" first makes each \p{N} a text of its own, so that spaces
// before one are at their text's end.
func (tk *Tokenizer) word(s string) int {
	if s[0] == '\'' {
		if n := contraction(s); n > 0 {
			return n
		}
	}
	c, n := tk.first(s)
	if s[0] == ' ' {
		next, w := tk.first(s[1:])
		if next == letter || next == other || next == number && !tk.digitsApart {
			c, n = next, 1+w
		}
	}
	if c == number && tk.digitsApart {
		return n
	}
	last := n
	for {
		next, w := tk.first(s[n:])
		if next == c {
			n, last = n+w, w
			continue
		}
		atEnd := next == edge || next == number && tk.digitsApart
		if c == space && !atEnd && n > last {
			n -= last // the last space belongs to the next word
		}
		return n
	}
}

func contraction(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(s) > 2 && (s[1:3] == "re" || s[1:3] == "ve" || s[1:3] == "ll") {
			return 3
		}
	}
	return 0
}
