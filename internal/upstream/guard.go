package upstream

import (
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/wire"
)

// maxNesting is the depth that [CheckJSON] takes, too.
const maxNesting = 10_000

// maxBlanks is more white space in a row than anybody lays values out with: models that
// are held to JSON and have nothing to say go on with it to the end of their bound.
const maxBlanks = 1000

// JSONGuard finds the JSON value in a text that arrives in pieces: words and code fences
// before and behind it are left out, and a value that was cut off can be closed. It takes
// exactly what RFC 8259 calls JSON. It is not safe for concurrent use.
type JSONGuard struct {
	object  bool // nothing but an object will do
	words   bool // something that is no white space came before the value
	begun   bool
	over    bool // the value is whole
	broken  bool
	state   jsonState
	key     bool   // of a string: it is the name of a member
	hex     int    // digits that an escape lacks
	literal string // what is left of true, false or null
	closers []byte // of what is open, the innermost last
	blanks  int    // in a row, outside of strings, at the end so far
	held    []byte // what cannot be shown before the next byte: a comma, a part of an escape
}

type jsonState uint8

const (
	wantValue   jsonState = iota
	wantElement           // behind a comma of an array
	wantFirst             // behind the bracket of an array
	wantKey               // behind a comma of an object
	wantMember            // behind the brace of an object
	wantColon
	inString
	inEscape
	inHex
	inLiteral
	inMinus // of a number, as far as it came
	inZero
	inInteger
	inPoint
	inFraction
	inExponent
	inSign
	inPower
	behindValue
)

// NewJSONGuard returns a guard for the form that a request asks for, which is not text. It
// takes any value of a schema that is not of an object at its root.
func NewJSONGuard(format *wire.ResponseFormat) *JSONGuard {
	return &JSONGuard{object: format.OnlyObject()}
}

// Push takes the next piece and returns what may be shown of it and of what was held back:
// at most a comma with the white space behind it, or five bytes of an escape.
func (g *JSONGuard) Push(piece string) string {
	if g.over || g.broken {
		g.count(piece)
		return ""
	}
	text, at := piece, len(g.held)
	if at > 0 {
		text = string(g.held) + piece
	}
	from := 0
	if !g.begun {
		if from = g.find(text); from < 0 {
			g.count(piece)
			return ""
		}
		at = from
	}
	safe := from
	for ; at < len(text) && !g.over; at++ {
		taken := g.step(text[at])
		if g.state == inString {
			g.blanks = 0
		} else {
			g.count(text[at : at+1])
		}
		if g.broken {
			break
		}
		if taken && !g.holds() {
			safe = at + 1
		}
	}
	g.held = g.held[:0]
	if !g.over && !g.broken {
		g.held = append(g.held, text[safe:]...)
	}
	return text[from:safe]
}

// Open says whether the value has begun and goes on, Whole whether it is complete, and
// Broken whether what came is no JSON.
func (g *JSONGuard) Open() bool { return g.begun && !g.Whole() && !g.broken }

// Whole says whether the value is complete.
func (g *JSONGuard) Whole() bool { return g.over || g.begun && len(g.closers) == 0 && g.state.ends() }

// Broken says whether what came is no JSON.
func (g *JSONGuard) Broken() bool { return g.broken }

// Blank says whether nothing but white space came for so long that no more is to be
// expected.
func (g *JSONGuard) Blank() bool { return g.blanks > maxBlanks }

// count counts the white space at the end of s.
func (g *JSONGuard) count(s string) {
	end := len(strings.TrimRight(s, " \t\r\n"))
	if end > 0 {
		g.blanks = 0
	}
	g.blanks += len(s) - end
}

// Begun says whether anything of a value came.
func (g *JSONGuard) Begun() bool { return g.begun }

// Close returns what makes the text that was shown a value, at the end of a text that was
// cut off: {} where nothing came. Of what is broken ok is false.
func (g *JSONGuard) Close() (rest string, ok bool) {
	if g.broken {
		return "", false
	}
	if !g.begun {
		return "{}", true
	}
	if g.over {
		return "", true
	}
	out := []byte(nil)
	switch g.state {
	case inString, inEscape, inHex:
		if out = append(out, '"'); g.key {
			out = append(out, ":null"...)
		}
	case wantColon:
		out = append(out, ":null"...)
	case wantValue:
		out = append(out, "null"...)
	case inLiteral:
		out = append(out, g.literal...)
	case inMinus, inPoint, inExponent, inSign:
		out = append(out, '0')
	}
	slices.Reverse(g.closers)
	out = append(out, g.closers...)
	g.over = true
	return string(out), true
}

// find returns where the value begins, or -1.
func (g *JSONGuard) find(text string) int {
	if !g.words {
		first := strings.TrimLeft(text, " \t\r\n")
		if first == "" {
			return -1
		}
		g.words = true
		if g.object && first[0] == '[' {
			g.broken = true
			return -1
		}
		if !g.object && strings.IndexByte(`{["-0123456789tfn`, first[0]) >= 0 {
			g.begun = true
			return len(text) - len(first)
		}
	}
	brackets := "{["
	if g.object {
		brackets = "{"
	}
	at := strings.IndexAny(text, brackets)
	g.begun = at >= 0
	return at
}

// holds says whether the last byte may have to be taken back when the text ends here.
func (g *JSONGuard) holds() bool {
	return g.state == wantElement || g.state == wantKey || g.state == inEscape || g.state == inHex
}

// ends says whether a value may end in that state.
func (s jsonState) ends() bool {
	return s == inZero || s == inInteger || s == inFraction || s == inPower || s == behindValue
}

// step takes one byte; taken is false when the value ended before it.
func (g *JSONGuard) step(c byte) (taken bool) {
	switch g.state {
	case inString, inEscape, inHex:
		g.inText(c)
		return true
	case inLiteral:
		if g.literal[0] != c {
			g.broken = true
		} else if g.literal = g.literal[1:]; g.literal == "" {
			g.end()
		}
		return true
	case inMinus, inZero, inInteger, inPoint, inFraction, inExponent, inSign, inPower:
		next, ok := g.state.number(c)
		if ok {
			g.state = next
			return true
		}
		if !g.state.ends() {
			g.broken = true
			return true
		}
		if g.end(); g.over {
			return false
		}
	}
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		return true
	}
	g.between(c)
	return true
}

// inText takes a byte of a string.
func (g *JSONGuard) inText(c byte) {
	switch {
	case g.state == inHex:
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			g.broken = true
		} else if g.hex--; g.hex == 0 {
			g.state = inString
		}
	case g.state == inEscape && c == 'u':
		g.state, g.hex = inHex, 4
	case g.state == inEscape:
		g.state, g.broken = inString, strings.IndexByte(`"\/bfnrt`, c) < 0
	case c == '\\':
		g.state = inEscape
	case c == '"' && g.key:
		g.state = wantColon
	case c == '"':
		g.end()
	case c < ' ':
		g.broken = true
	}
}

// number is the state of a number behind one more byte, if that is a part of it.
func (s jsonState) number(c byte) (next jsonState, ok bool) {
	digit := '0' <= c && c <= '9'
	switch {
	case s == inMinus && c == '0':
		return inZero, true
	case (s == inMinus || s == inInteger) && digit:
		return inInteger, true
	case (s == inZero || s == inInteger) && c == '.':
		return inPoint, true
	case (s == inPoint || s == inFraction) && digit:
		return inFraction, true
	case (s == inZero || s == inInteger || s == inFraction) && c|0x20 == 'e':
		return inExponent, true
	case s == inExponent && (c == '+' || c == '-'):
		return inSign, true
	case (s == inExponent || s == inSign || s == inPower) && digit:
		return inPower, true
	}
	return s, false
}

// between takes a byte that is in no scalar and no white space.
func (g *JSONGuard) between(c byte) {
	switch g.state {
	case wantValue, wantElement:
		g.value(c)
	case wantFirst:
		if c == ']' {
			g.shut(c)
			return
		}
		g.value(c)
	case wantMember, wantKey:
		if c == '}' && g.state == wantMember {
			g.shut(c)
			return
		}
		g.state, g.key, g.broken = inString, true, c != '"'
	case wantColon:
		g.state, g.broken = wantValue, c != ':'
	case behindValue:
		if c != ',' {
			g.shut(c)
			return
		}
		if g.state = wantElement; g.closers[len(g.closers)-1] == '}' {
			g.state = wantKey
		}
	}
}

// value takes the first byte of a value.
func (g *JSONGuard) value(c byte) {
	switch {
	case c == '{':
		g.closers, g.state = append(g.closers, '}'), wantMember
	case c == '[':
		g.closers, g.state = append(g.closers, ']'), wantFirst
	case c == '"':
		g.state, g.key = inString, false
	case c == '-':
		g.state = inMinus
	case c == '0':
		g.state = inZero
	case '1' <= c && c <= '9':
		g.state = inInteger
	case c == 't':
		g.state, g.literal = inLiteral, "true"[1:]
	case c == 'f':
		g.state, g.literal = inLiteral, "false"[1:]
	case c == 'n':
		g.state, g.literal = inLiteral, "null"[1:]
	default:
		g.broken = true
	}
	g.broken = g.broken || len(g.closers) > maxNesting
}

// shut takes a closing bracket.
func (g *JSONGuard) shut(c byte) {
	last := len(g.closers) - 1
	if g.closers[last] != c {
		g.broken = true
		return
	}
	g.closers = g.closers[:last]
	g.end()
}

// end is behind a value.
func (g *JSONGuard) end() {
	g.state = behindValue
	g.over = len(g.closers) == 0
}
