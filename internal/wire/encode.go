package wire

import (
	"strconv"
	"unicode/utf8"
)

// maxDelta bounds the escaped size of one content delta, so that an event
// stays far below the 64 KiB at which naive line readers give up.
const maxDelta = 16 << 10

const hexDigits = "0123456789abcdef"

// escapeLen tells how many bytes appendString makes of s[i:] up to the end of
// its first rune, and how long that rune is.
func escapeLen(s string, i int) (escaped, size int) {
	switch c := s[i]; {
	case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
		return 2, 1
	case c < ' ':
		return 6, 1
	case c < utf8.RuneSelf:
		return 1, 1
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	switch {
	case r == '\u2028' || r == '\u2029':
		return 6, size
	case r == utf8.RuneError && size == 1:
		return 3, 1
	}
	return size, size
}

// AppendString appends s as a JSON string. The characters <, > and & stay as
// they are; U+2028 and U+2029 are escaped, because they end a line in
// JavaScript sources; bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf && c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		escaped, size := escapeLen(s, i)
		if escaped == size && size > 1 {
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, s[i:i+size])
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, s string) []byte {
	if len(s) > 1 {
		// Only U+2028 and U+2029 come here, which differ in the last bit.
		return append(append(dst, `\u202`...), '8'+s[2]&1)
	}
	switch c := s[0]; c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	default:
		if c >= utf8.RuneSelf {
			return utf8.AppendRune(dst, utf8.RuneError)
		}
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}

// SplitDelta cuts text behind the last rune that keeps the escaped head within
// 16 KiB. rest is empty when all of text fits, which is nearly always.
func SplitDelta(text string) (head, rest string) {
	// No byte grows more than sixfold.
	if len(text) <= maxDelta/6 {
		return text, ""
	}
	total := 0
	for i := 0; i < len(text); {
		escaped, size := escapeLen(text, i)
		if total += escaped; total > maxDelta {
			return text[:i], text[i:]
		}
		i += size
	}
	return text, ""
}

// Usage is the token account of one call. CachedTokens are part of
// PromptTokens and ReasoningTokens part of CompletionTokens; with several
// choices CompletionTokens is their sum.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	CachedTokens     int
	ReasoningTokens  int
}

// TotalTokens is the sum of prompt and completion.
func (u Usage) TotalTokens() int { return u.PromptTokens + u.CompletionTokens }

// AppendJSON appends the usage object.
func (u Usage) AppendJSON(dst []byte) []byte {
	dst = appendInt(append(dst, `{"prompt_tokens":`...), u.PromptTokens)
	dst = appendInt(append(dst, `,"completion_tokens":`...), u.CompletionTokens)
	dst = appendInt(append(dst, `,"total_tokens":`...), u.TotalTokens())
	dst = appendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), u.CachedTokens)
	dst = appendInt(append(dst, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":`...), u.ReasoningTokens)
	return append(dst, `,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

func appendInt(dst []byte, v int) []byte { return strconv.AppendInt(dst, int64(v), 10) }

// RuneJoiner makes whole runes of text that arrives in pieces cut anywhere, as
// token by token decoding does. The zero value is ready to use.
type RuneJoiner struct {
	tail [utf8.UTFMax]byte
	n    int
}

// Join returns piece, preceded by what earlier pieces left over, without the
// incomplete rune at its end, which it keeps for the next call.
func (j *RuneJoiner) Join(piece string) string {
	if j.n > 0 {
		piece = string(j.tail[:j.n]) + piece
		j.n = 0
	}
	for i := len(piece) - 1; i >= 0 && i >= len(piece)-utf8.UTFMax+1; i-- {
		if !utf8.RuneStart(piece[i]) {
			continue
		}
		if !utf8.FullRuneInString(piece[i:]) {
			j.n = copy(j.tail[:], piece[i:])
			return piece[:i]
		}
		break
	}
	return piece
}

// Flush returns what is left over at the end: an incomplete rune, or nothing.
func (j *RuneJoiner) Flush() string {
	rest := string(j.tail[:j.n])
	j.n = 0
	return rest
}
