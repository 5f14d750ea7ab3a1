package prompt

import (
	"crypto/rand"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/parley-ai/parley/engine/tokenizer"
)

// How control tokens are told from text that only looks like them:
//
// 1. The names of control tokens in the template's source are put between marks:
// private characters and a secret of 130 bits, drawn when the template is
// compiled. What the template prints between marks is its own, through
// variables, macros and whatever else; messages are rendered as they are. The
// marks are then taken away again.
//
// 2. A template that does more than join strings might look at the names (remove
// them from a message, test how one begins), which the marks would disturb, and
// it might build a name of parts. If it may do the first, or if the text holds a
// name that step 1 did not find (in a message, most often), the plain template is
// rendered, and once more with each character of the messages replaced by a
// private character. If that gives the same text but for these characters, each
// place is known to be the template's or a message's, and a name counts if every
// character of it is the template's.
//
// 3. If it does not, the template looked into the messages, and the text and the
// names of step 1 are taken. A name that is not found is text: the fault that can
// remain is an ordinary token in place of a control token, never the reverse.

type marks struct{ open, shut string }

func newMarks() *marks {
	secret := rand.Text()
	return &marks{"\U000F5A17" + secret + "\U000F5A18", "\U000F5A19" + secret + "\U000F5A1A"}
}

func (m *marks) in(s string) bool {
	return strings.Contains(s, m.open) || strings.Contains(s, m.shut)
}

func (m *marks) wrap(s string) string {
	if s == "" {
		return ""
	}
	return m.open + s + m.shut
}

// set puts the spans of the source between marks.
func (m *marks) set(source string, spans []tokenizer.Span) string {
	var b strings.Builder
	at := 0
	for _, s := range spans {
		b.WriteString(source[at:s.Start])
		b.WriteString(m.wrap(source[s.Start:s.End]))
		at = s.End
	}
	b.WriteString(source[at:])
	return b.String()
}

// strip takes the marks out and returns what lay between pairs of them.
func (m *marks) strip(s string) (string, []tokenizer.Span) {
	out := make([]byte, 0, len(s))
	var spans []tokenizer.Span
	start := -1
	for {
		// The first character of either mark: U+F5A17 and U+F5A19 share three bytes.
		i := strings.Index(s, "\xf3\xb5\xa8")
		if i < 0 {
			return string(append(out, s...)), spans
		}
		out, s = append(out, s[:i]...), s[i:]
		switch {
		case strings.HasPrefix(s, m.open):
			s, start = s[len(m.open):], len(out)
		case strings.HasPrefix(s, m.shut):
			if s = s[len(m.shut):]; start >= 0 {
				spans = append(spans, tokenizer.Span{Start: start, End: len(out)})
			}
			start = -1
		default:
			out, s = append(out, s[:3]...), s[3:]
		}
	}
}

// clean removes marks from an error's text, so that the secret stays one.
func (m *marks) clean(s string) string {
	return strings.NewReplacer(m.open, "", m.shut, "").Replace(s)
}

// torn reports whether part of a mark is left in s, as an operation that cuts
// strings or changes their case leaves it.
func (m *marks) torn(s string) bool {
	secret := m.open[4 : len(m.open)-4]
	return strings.Contains(strings.ToUpper(s), secret[:12])
}

// onlyJoins reports whether the template does nothing with names of control
// tokens but join them to other strings and print them: then marks around them
// change nothing else.
func onlyJoins(source string, tk *tokenizer.Tokenizer) bool {
	for _, c := range codes(source) {
		words := strings.FieldsFunc(c.code, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
		if c.statement && len(words) > 0 && slices.Contains([]string{"set", "macro", "filter", "call"}, words[0]) {
			return false // what these hold may be looked at elsewhere
		}
		if len(tk.Find(c.strings)) == 0 && !slices.Contains(words, "bos_token") && !slices.Contains(words, "eos_token") {
			continue
		}
		if c.statement || slices.Contains(words, "in") || slices.Contains(words, "is") || !joins(c.code) {
			return false
		}
	}
	return true
}

// joins reports whether an expression is of names, attributes and strings (as
// quotes) with + and ~ between them. Nothing may be taken out of a string.
func joins(code string) bool {
	last := rune(0)
	for _, r := range code {
		switch {
		case unicode.IsSpace(r):
			continue
		case (r == '[' || r == '.') && last == '"':
			return false
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(`_.[]+~"`, r):
			return false
		}
		last = r
	}
	return true
}

// code is a statement or an expression of a template: code with each string
// literal as one quote, strings the literals.
type code struct {
	statement     bool
	code, strings string
}

// codes finds the statements and expressions of a template.
func codes(source string) (out []code) {
	for {
		i := strings.IndexByte(source, '{')
		if i < 0 || i+1 >= len(source) {
			return out
		}
		open := source[i+1]
		source = source[i+1:]
		if open != '{' && open != '%' {
			continue
		}
		c, n := readCode(source[1:])
		c.statement = open == '%'
		out = append(out, c)
		source = source[1+n:]
	}
}

// readCode reads to the closing braces and returns the bytes read.
func readCode(s string) (code, int) {
	var plain, literals strings.Builder
	quote := byte(0)
	i := 0
	for ; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			literals.WriteByte(c)
			if c == '\\' && i+1 < len(s) {
				i++
				literals.WriteByte(s[i])
			}
		case c == '\'' || c == '"':
			quote = c
			plain.WriteByte('"')
		case (c == '}' || c == '%') && i+1 < len(s) && s[i+1] == '}':
			return code{code: strings.Trim(plain.String(), "-+"), strings: literals.String()}, i + 2
		default:
			plain.WriteByte(c)
		}
	}
	return code{code: plain.String(), strings: literals.String()}, i
}

// shadow replaces the characters of messages by private ones, one for one. Space
// stays as it is, since templates trim; no control token's name has any.
type shadow struct {
	to   map[rune]rune
	from map[rune]rune
	used map[rune]bool
	next rune
}

func newShadow(plain string) *shadow {
	s := &shadow{map[rune]rune{}, map[rune]rune{}, map[rune]bool{}, 0xf0000}
	for _, r := range plain {
		if r >= 0xf0000 {
			s.used[r] = true
		}
	}
	return s
}

func (s *shadow) hide(text string) string {
	var b strings.Builder
	b.Grow(4 * len(text))
	for _, r := range text {
		if unicode.IsSpace(r) {
			b.WriteRune(r)
			continue
		}
		x, ok := s.to[r]
		if !ok {
			for s.used[s.next] {
				s.next++
			}
			x = s.next
			s.next++
			s.to[r], s.from[x] = x, r
		}
		b.WriteRune(x)
	}
	return b.String()
}

// align checks that raw is plain but for the hidden characters, and returns
// where in plain the spans of raw lie. A span with a hidden character can not be
// a name.
func (s *shadow) align(raw, plain string, spans []tokenizer.Span) ([]tokenizer.Span, bool) {
	if s.next > utf8.MaxRune {
		return nil, false
	}
	out := make([]tokenizer.Span, 0, len(spans))
	at := 0 // in plain
	for i, r := range raw {
		if len(out) < len(spans) && spans[len(out)].Start == i {
			n := spans[len(out)].End - i
			out = append(out, tokenizer.Span{Start: at, End: at + n})
		}
		if x, ok := s.from[r]; ok {
			r = x
		}
		p, n := utf8.DecodeRuneInString(plain[at:])
		if p != r || n == 0 {
			return nil, false
		}
		at += n
	}
	return out, at == len(plain)
}
