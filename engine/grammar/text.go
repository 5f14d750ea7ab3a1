package grammar

import "github.com/parley-ai/parley/engine/grammar/regex"

// stringType is strings that a schema allows. A frame on it has i characters, which
// no longer count once nothing depends on them, and is in state j of the automaton.
type stringType struct {
	dfa      *regex.DFA // nil: any text
	min, max int32      // characters; max noLimit: any number
	// dist, by level and state of the automaton, is the fewest tokens that complete
	// the string, its quote included. A level is a number of characters, the last one
	// for all that are as good.
	dist   []int32
	levels int32
}

// noLimit is a count that is never reached.
const noLimit int32 = 1 << 28

// Phases of a string. From strHex1 on, n is the value of the digits so far.
const (
	strText  uint8 = iota
	strMore1       // inside a character: this many bytes are missing
	strMore2
	strMore3
	strE0 // after the lead byte of this value, whose next byte has a narrower range
	strED
	strF0
	strF4
	strEscape // after the backslash
	strHex0   // after \u
	strHex1
	strHex2
	strHex3
	strLow // after the first half of a surrogate pair: n is its code
	strLowU
	strLow0
	strLow1
	strLow2
	strLow3
	strEnd
)

// rune8 takes a byte of UTF-8. In phase strText it begins a character; n collects
// its bits. Back in strText the character n is complete.
func rune8(phase uint8, n int64, b byte) (uint8, int64, bool) {
	if phase == strText {
		switch {
		case b < 0x80:
			return strText, int64(b), true
		case b >= 0xc2 && b <= 0xdf:
			return strMore1, int64(b & 0x1f), true
		case b == 0xe0:
			return strE0, 0, true
		case b == 0xed:
			return strED, 0xd, true
		case b >= 0xe1 && b <= 0xef:
			return strMore2, int64(b & 0xf), true
		case b == 0xf0:
			return strF0, 0, true
		case b == 0xf4:
			return strF4, 4, true
		case b >= 0xf1 && b <= 0xf3:
			return strMore3, int64(b & 7), true
		}
		return phase, 0, false
	}
	lo, hi, next := byte(0x80), byte(0xbf), phase-1
	switch phase {
	case strMore1:
		next = strText
	case strE0:
		lo, next = 0xa0, strMore1
	case strED:
		hi, next = 0x9f, strMore1 // above are the surrogates
	case strF0:
		lo, next = 0x90, strMore2
	case strF4:
		hi, next = 0x8f, strMore2
	}
	return next, n<<6 | int64(b&0x3f), b >= lo && b <= hi
}

// missing is the bytes that a character in the phase still needs.
func missing(phase uint8) int32 {
	switch phase {
	case strText, strMore1, strMore2, strMore3:
		return int32(phase)
	case strE0, strED:
		return 2
	}
	return 3
}

// reach is the characters that may come of one that is begun.
func reach(phase uint8, n int64) (lo, hi rune) {
	bits := 6 * missing(phase)
	lo, hi = rune(n)<<bits, rune(n+1)<<bits-1
	switch phase {
	case strE0:
		lo = 0x800
	case strED:
		hi = 0xd7ff
	case strF0:
		lo = 0x10000
	case strF4:
		hi = 0x10ffff
	}
	return lo, hi
}

// after is own in strText after count characters in state q.
func (t *stringType) after(q, count int32) int32 {
	if count > t.max || q == regex.Dead {
		return infinite
	}
	if t.dfa == nil {
		return max(t.min-count, 0) + 1
	}
	return t.dist[min(count, t.levels-1)*int32(t.dfa.States())+q]
}

// more returns the count after another character, as far as it matters.
func (t *stringType) more(count int32) int32 {
	if t.max == noLimit && count >= t.min {
		return count
	}
	return count + 1
}

// then is own after the character r.
func (t *stringType) then(f *frame, r rune) int32 {
	q := f.j
	if t.dfa != nil {
		q = t.dfa.Step(q, r)
	}
	return t.after(q, t.more(f.i))
}

// take completes the character r.
func (t *stringType) take(f frame, r rune) (frame, bool) {
	if t.dfa != nil {
		f.j = t.dfa.Step(f.j, r)
	}
	f.i = t.more(f.i)
	f.phase, f.n = strText, 0
	return f, t.after(f.j, f.i) < infinite
}

// among is the least of then for the characters lo..hi.
func (t *stringType) among(f *frame, lo, hi rune) int32 {
	if t.dfa == nil {
		return t.after(0, t.more(f.i))
	}
	least := infinite
	for c := t.dfa.ClassOf(lo); c < t.dfa.Classes(); c++ {
		from, _ := t.dfa.Class(c)
		if from > hi {
			break
		}
		least = min(least, t.then(f, max(from, lo)))
	}
	return least
}

// escapes are the letters after a backslash and what they mean.
const escapes = "\"\\nrtbf/"

func unescape(b byte) (rune, bool) {
	switch b {
	case '"', '\\', '/':
		return rune(b), true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	}
	return 0, false
}

// escaped is the least own after a backslash and a letter.
func (t *stringType) escaped(f *frame) int32 {
	least := infinite
	for _, b := range []byte(escapes) {
		r, _ := unescape(b)
		if least = min(least, sum(1, t.then(f, r))); t.dfa == nil {
			break // they are all alike
		}
	}
	return least
}

func (t *stringType) own(v *Vocab, f *frame) int32 {
	switch {
	case f.phase == strText:
		return t.after(f.j, f.i)
	case f.phase < strEscape:
		if !v.continues {
			return infinite
		}
		lo, hi := reach(f.phase, f.n)
		return sum(missing(f.phase), t.among(f, lo, hi))
	case f.phase == strEscape:
		return t.escaped(f)
	}
	rest := t.then(f, 0)
	if f.phase >= strLow {
		return sum(int32(strLow3-f.phase)+1, rest)
	}
	left := int32(strHex3-f.phase) + 1
	if isHigh(f.phase, f.n) {
		left += 6
	}
	return sum(left, rest)
}

// isHigh reports whether the digits so far can only be the first half of a
// surrogate pair. After one digit, d, others are still possible.
func isHigh(phase uint8, n int64) bool {
	switch phase {
	case strHex2:
		return n >= 0xd8 && n <= 0xdb
	case strHex3:
		return n >= 0xd80 && n <= 0xdbf
	}
	return false
}

func (t *stringType) step(f frame, b byte) (frame, bool) {
	switch {
	case f.phase == strText && b == '"':
		ok := f.i >= t.min && (t.dfa == nil || t.dfa.Accepts(f.j))
		f.phase = strEnd
		return f, ok
	case f.phase == strText && b == '\\':
		f.phase = strEscape
		return f, t.escaped(&f) < infinite
	case f.phase < strEscape:
		if b < ' ' {
			return f, false
		}
		phase, n, ok := rune8(f.phase, f.n, b)
		if !ok {
			return f, false
		}
		if phase == strText {
			return t.take(f, rune(n))
		}
		f.phase, f.n = phase, n
		if t.dfa == nil {
			f.n = 0 // which character it is does not matter
		}
		lo, hi := reach(phase, n)
		return f, t.among(&f, lo, hi) < infinite
	case f.phase == strEscape:
		if r, ok := unescape(b); ok {
			return t.take(f, r)
		}
		f.phase, f.n = strHex0, 0
		return f, b == 'u' && t.dfa == nil && t.then(&f, 0) < infinite
	case f.phase == strLow:
		f.phase = strLowU
		return f, b == '\\'
	case f.phase == strLowU:
		f.phase = strLow0
		return f, b == 'u'
	}
	return t.hex(f, b)
}

// hex takes a digit of \uXXXX, or of the second half of a pair.
func (t *stringType) hex(f frame, b byte) (frame, bool) {
	d := hexDigit(b)
	if d < 0 {
		return f, false
	}
	if f.phase >= strLow0 {
		switch {
		case f.phase == strLow0 && d != 0xd, f.phase == strLow1 && d < 0xc:
			return f, false
		case f.phase == strLow3:
			return t.take(f, 0x10000)
		}
		f.phase++
		return f, true
	}
	f.n = f.n<<4 | d
	switch {
	case f.phase == strHex1 && f.n >= 0xdc && f.n <= 0xdf:
		return f, false // a second half without the first
	case f.phase < strHex3:
		f.phase++
		return f, true
	case f.n >= 0xd800 && f.n <= 0xdbff:
		f.phase, f.n = strLow, 0
		return f, true
	}
	return t.take(f, rune(f.n))
}

func hexDigit(b byte) int64 {
	switch {
	case b >= '0' && b <= '9':
		return int64(b - '0')
	case b >= 'a' && b <= 'f':
		return int64(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return int64(b-'A') + 10
	}
	return -1
}
