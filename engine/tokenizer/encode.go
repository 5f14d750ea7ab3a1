package tokenizer

import (
	"math"
	"unicode/utf8"
)

// Encode returns the tokens of text. With special, the names of control tokens
// in it become these tokens; without, they are text like any other. Each byte
// that is not UTF-8 counts as U+FFFD.
func (tk *Tokenizer) Encode(text string, special bool) []int32 {
	return tk.AppendEncode(nil, text, special)
}

// AppendEncode is [Tokenizer.Encode] that appends to dst.
func (tk *Tokenizer) AppendEncode(dst []int32, text string, special bool) []int32 {
	dst, _ = tk.EncodeLimit(dst, text, special, 0)
	return dst
}

// EncodeLimit is [Tokenizer.AppendEncode] that gives up once it is certain that
// text has more than limit tokens: then ok is false and the ids appended are
// only a beginning. What follows is at most scanned, not encoded. A limit of 0
// means none.
func (tk *Tokenizer) EncodeLimit(dst []int32, text string, special bool, limit int) (ids []int32, ok bool) {
	e := tk.encoder(dst, limit)
	t := &tk.defined
	if special {
		t = &tk.special
	}
	e.text(text, t)
	return e.out, !e.full
}

// Least returns a number of tokens that text, which is UTF-8, has at least, found much
// sooner than the tokens.
func (tk *Tokenizer) Least(text string) int {
	n := 0
	for i := range len(text) {
		if tk.byteID[text[i]] >= 0 {
			n++
		}
	}
	return n / tk.widest
}

// Span is the bytes [Start, End) of a text.
type Span struct{ Start, End int }

// EncodeSpans is [Tokenizer.EncodeLimit] in which only the given spans become
// control tokens, and only if a span is a control token's name exactly.
// Everything else is text. Spans are in order and do not overlap.
func (tk *Tokenizer) EncodeSpans(dst []int32, text string, spans []Span, limit int) (ids []int32, ok bool) {
	e := tk.encoder(dst, limit)
	at := 0
	for _, s := range spans {
		id, n := tk.control.longest(text[s.Start:s.End])
		if n == 0 || n != s.End-s.Start {
			continue
		}
		e.text(text[at:s.Start], &tk.defined)
		e.push(id)
		at = s.End
	}
	e.text(text[at:], &tk.defined)
	return e.out, !e.full
}

// Find returns the names of control tokens in text from left to right, the
// longest where several begin at one place.
func (tk *Tokenizer) Find(text string) []Span {
	var out []Span
	for at := 0; ; {
		i, n, _ := tk.control.find(text[at:])
		if n == 0 {
			return out
		}
		out = append(out, Span{at + i, at + i + n})
		at += i + n
	}
}

type encoder struct {
	tk   *Tokenizer
	out  []int32
	most int // out may grow to this length
	full bool
	m    merger
}

func (tk *Tokenizer) encoder(dst []int32, limit int) *encoder {
	e := &encoder{tk: tk, out: dst, most: math.MaxInt}
	if limit > 0 && limit < math.MaxInt-len(dst) {
		e.most = len(dst) + limit
	}
	return e
}

func (e *encoder) push(id int32) {
	if len(e.out) >= e.most {
		e.full = true
		return
	}
	e.out = append(e.out, id)
}

// text splits s at the tokens of t and encodes what lies between.
func (e *encoder) text(s string, t *trie) {
	for s != "" && !e.full {
		i, n, id := t.find(s)
		e.words(s[:i])
		if n > 0 && !e.full {
			e.push(id)
		}
		s = s[i+n:]
	}
}

func (e *encoder) words(s string) {
	for s != "" && !e.full {
		n := e.tk.word(s)
		e.word(s[:n])
		s = s[n:]
	}
}

// maxWhole is the longest word that is looked up whole.
const maxWhole = 32

func (e *encoder) word(w string) {
	if len(w) <= maxWhole {
		if id, ok := e.tk.whole[w]; ok {
			e.push(id)
			return
		}
	}
	// Bytes without a token part the word: nothing merges across them. Also
	// ends a stretch that is too long for 32-bit positions.
	const longest = 1 << 30
	if !utf8.ValidString(w) {
		w = repair(w)
	}
	for at := 0; at < len(w) && !e.full; {
		if e.tk.byteID[w[at]] < 0 {
			at++
			continue
		}
		end := at + 1
		for end < len(w) && end-at < longest && e.tk.byteID[w[end]] >= 0 {
			end++
		}
		// No token is longer than this, so the number of tokens is known to
		// exceed the limit before any work.
		if (end-at)/e.tk.longest > e.most-len(e.out) {
			e.full = true
			return
		}
		e.out = e.m.merge(e.tk, e.out, []byte(w[at:end]))
		if len(e.out) > e.most {
			e.out, e.full = e.out[:e.most], true
		}
		at = end
	}
}

// repair makes each byte that is not UTF-8 a U+FFFD, as Go's conversions do.
func repair(w string) string {
	out := make([]byte, 0, len(w)+len(w)/2)
	for _, r := range w {
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}
