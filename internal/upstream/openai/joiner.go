package openai

import (
	"unicode/utf16"

	"github.com/parley-ai/parley/internal/wire"
)

// lowSurrogate is the first of the second halves of pairs.
const lowSurrogate = 0xdc00

// joiner makes whole runes of text that arrives in pieces. Servers that cut text by bytes
// cut the UTF-8 of a rune, those that cut it as JavaScript does its two surrogates. The
// zero value is ready to use.
type joiner struct {
	runes wire.RuneJoiner
	high  rune // the first half of a pair at the end so far; 0 for none
}

// Join returns piece, preceded by what earlier pieces left over, without an incomplete
// rune at its end, which it keeps for the next call.
func (j *joiner) Join(piece string) string {
	if piece == "" {
		return ""
	}
	low, isHalf := half(piece)
	switch isLow := isHalf && low >= lowSurrogate; {
	case isLow:
		// Without its first half it is U+FFFD.
		piece = string(utf16.DecodeRune(j.high, low)) + piece[halfBytes:]
	case j.high != 0:
		piece = "\ufffd" + piece
	}
	j.high = 0
	if at := len(piece) - halfBytes; at >= 0 {
		if high, isHalf := half(piece[at:]); isHalf && high < lowSurrogate {
			j.high, piece = high, piece[:at]
		}
	}
	return j.runes.Join(piece)
}

// Flush returns what is left over at the end: an incomplete rune, or nothing.
func (j *joiner) Flush() string {
	rest := j.runes.Flush()
	if j.high != 0 {
		rest += "\ufffd"
	}
	j.high = 0
	return rest
}

// halfBytes is how long one surrogate is, written as if it were a rune.
const halfBytes = 3

func appendHalf(dst []byte, r rune) []byte {
	return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
}

// half reads a surrogate at the beginning of s.
func half(s string) (r rune, ok bool) {
	if len(s) < halfBytes || s[0] != 0xed || s[1] < 0xa0 || s[1] > 0xbf || s[2]&0xc0 != 0x80 {
		return 0, false
	}
	return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), true
}
