package regex

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// kind of a syntax node.
type kind uint8

const (
	empty  kind = iota
	class       // one character of set
	begin       // ^
	end         // $
	concat      // subs in order
	either      // one of subs
	repeat      // subs[0], min to max times; max -1: without end
)

type tree struct {
	kind     kind
	set      set
	subs     []*tree
	min, max int
}

// set is ranges of characters, in order and apart.
type set []span

type span struct{ lo, hi rune }

func (s set) normal() set {
	slices.SortFunc(s, func(a, b span) int { return int(a.lo - b.lo) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// not returns all other characters; s is normal.
func (s set) not() set {
	var out set
	at := rune(0)
	for _, r := range s {
		if r.lo > at {
			out = append(out, span{at, r.lo - 1})
		}
		at = r.hi + 1
	}
	if at <= utf8.MaxRune {
		out = append(out, span{at, utf8.MaxRune})
	}
	return out
}

var (
	digits = set{{'0', '9'}}
	words  = set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	// spaces are those of Go, which ECMA-262 has too; \S is what is a space in neither.
	spaces    = set{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}
	allSpaces = set{{'\t', '\r'}, {' ', ' '}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}}
	lineEnds  = set{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
	anything  = set{{0, utf8.MaxRune}}
)

type parser struct {
	in    []rune
	at    int
	depth int
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("%w: at character %d: %s", ErrUnsupported, p.at, fmt.Sprintf(format, args...))
}

func (p *parser) parse() (*tree, error) {
	t, err := p.alternatives()
	if err == nil && p.at < len(p.in) {
		err = p.fail("a ) closes nothing")
	}
	return t, err
}

func (p *parser) peek() rune {
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return -1
}

// take skips c if it is next.
func (p *parser) take(c rune) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

func (p *parser) alternatives() (*tree, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("%w: groups nest deeper than %d", ErrTooLarge, maxNesting)
	}
	defer func() { p.depth-- }()
	out := &tree{kind: either}
	for {
		t := &tree{kind: concat}
		for p.at < len(p.in) && p.peek() != '|' && p.peek() != ')' {
			sub, err := p.term()
			if err != nil {
				return nil, err
			}
			t.subs = append(t.subs, sub)
		}
		out.subs = append(out.subs, t)
		if !p.take('|') {
			return out, nil
		}
	}
}

func (p *parser) term() (*tree, error) {
	switch {
	case p.take('^'):
		return &tree{kind: begin}, p.noQuantifier()
	case p.take('$'):
		return &tree{kind: end}, p.noQuantifier()
	}
	t, err := p.atom()
	if err != nil {
		return nil, err
	}
	minimum, maximum, ok, err := p.quantifier()
	if err != nil || !ok {
		return t, err
	}
	p.take('?') // lazy or not, the texts are the same
	return &tree{kind: repeat, subs: []*tree{t}, min: minimum, max: maximum}, p.noQuantifier()
}

func (p *parser) noQuantifier() error {
	if _, _, ok, err := p.quantifier(); ok || err != nil {
		return p.fail("nothing to repeat")
	}
	return nil
}

// quantifier reads *, +, ?, {n}, {n,} or {n,m}. A brace that is none of these is a
// character.
func (p *parser) quantifier() (minimum, maximum int, ok bool, err error) {
	switch {
	case p.take('*'):
		return 0, -1, true, nil
	case p.take('+'):
		return 1, -1, true, nil
	case p.take('?'):
		return 0, 1, true, nil
	case p.peek() != '{':
		return 0, 0, false, nil
	}
	start := p.at
	p.at++
	minimum, ok = p.number()
	maximum = minimum
	if ok && p.take(',') {
		maximum = -1
		if n, given := p.number(); given {
			maximum = n
		}
	}
	if !ok || !p.take('}') {
		p.at = start
		return 0, 0, false, nil
	}
	if maximum >= 0 && maximum < minimum {
		return 0, 0, false, p.fail("{%d,%d}", minimum, maximum)
	}
	return minimum, maximum, true, nil
}

// number reads digits; what is larger than any limit is one more than it.
func (p *parser) number() (n int, ok bool) {
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		n, ok = min(n*10+int(c-'0'), maxInsts+1), true
		p.at++
	}
	return n, ok
}

func (p *parser) atom() (*tree, error) {
	c := p.in[p.at]
	p.at++
	switch c {
	case '.':
		return &tree{kind: class, set: lineEnds.not()}, nil
	case '(':
		return p.group()
	case '[':
		s, err := p.brackets()
		return &tree{kind: class, set: s}, err
	case '\\':
		s, _, err := p.escape(false)
		return &tree{kind: class, set: s}, err
	case '*', '+', '?':
		return nil, p.fail("nothing to repeat")
	case '{':
		p.at--
		if _, _, ok, err := p.quantifier(); ok || err != nil {
			return nil, p.fail("nothing to repeat")
		}
		p.at++
	}
	return &tree{kind: class, set: set{{c, c}}}, nil
}

func (p *parser) group() (*tree, error) {
	if p.take('?') {
		switch {
		case p.take(':'):
		case p.take('<') && p.peek() != '=' && p.peek() != '!':
			for p.at < len(p.in) && p.peek() != '>' {
				p.at++
			}
			p.take('>')
		default:
			return nil, p.fail("look-around and flags are left out")
		}
	}
	t, err := p.alternatives()
	if err == nil && !p.take(')') {
		err = p.fail("a ) is missing")
	}
	return t, err
}

func (p *parser) brackets() (set, error) {
	negated := p.take('^')
	var s set
	var some, rest bool // \s and \S are members
	for {
		switch {
		case p.at >= len(p.in):
			return nil, p.fail("a ] is missing")
		case p.take(']'):
			if len(s) == 0 {
				// Go reads the bracket as a member, ECMA-262 as the end.
				return nil, p.fail("an empty class")
			}
			// The two halves are everything in each dialect.
			if some && rest {
				s = append(s, anything...)
			}
			if s = s.normal(); negated {
				s = s.not()
			}
			return s, nil
		}
		if p.peek() == '\\' && p.at+1 < len(p.in) {
			some, rest = some || p.in[p.at+1] == 's', rest || p.in[p.at+1] == 'S'
		}
		first, single, err := p.member(negated)
		if err != nil {
			return nil, err
		}
		// A hyphen at the end is a character; dialects differ about one beside \d.
		if p.peek() != '-' || p.at+1 >= len(p.in) || p.in[p.at+1] == ']' {
			s = append(s, first...)
			continue
		}
		p.at++
		last, alsoSingle, err := p.member(negated)
		if err != nil {
			return nil, err
		}
		if !single || !alsoSingle || last[0].lo < first[0].lo {
			return nil, p.fail("a range without order")
		}
		s = append(s, span{first[0].lo, last[0].lo})
	}
}

// member reads one character or class inside brackets.
func (p *parser) member(negated bool) (s set, single bool, err error) {
	c := p.peek()
	if c < 0 {
		return nil, false, p.fail("a ] is missing")
	}
	p.at++
	if c == '\\' {
		return p.escape(negated)
	}
	if c == '[' && p.peek() == ':' {
		return nil, false, p.fail("named classes differ between dialects")
	}
	return set{{c, c}}, true, nil
}

// escape reads what follows a backslash. Where dialects differ a negated class
// needs the larger set.
func (p *parser) escape(negated bool) (s set, single bool, err error) {
	c := p.peek()
	if c < 0 {
		return nil, false, p.fail("a backslash ends the expression")
	}
	p.at++
	small, large := spaces, allSpaces
	if negated {
		small, large = allSpaces, spaces
	}
	one := func(r rune) (set, bool, error) { return set{{r, r}}, true, nil }
	switch c {
	case 'd':
		return slices.Clone(digits), false, nil
	case 'D':
		return digits.not(), false, nil
	case 'w':
		return slices.Clone(words), false, nil
	case 'W':
		return words.not(), false, nil
	case 's':
		return slices.Clone(small), false, nil
	case 'S':
		return large.not(), false, nil
	case 't':
		return one('\t')
	case 'n':
		return one('\n')
	case 'v':
		return one('\v')
	case 'f':
		return one('\f')
	case 'r':
		return one('\r')
	case 'x':
		return p.hex(2)
	case 'u':
		return p.unicode()
	}
	if c >= 0x80 || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return nil, false, p.fail("\\%c is left out", c)
	}
	return one(c)
}

func (p *parser) hex(n int) (set, bool, error) {
	r := rune(0)
	for range n {
		d := hexDigit(p.peek())
		if d < 0 {
			return nil, false, p.fail("%d hexadecimal digits are missing", n)
		}
		r = r<<4 | d
		p.at++
	}
	return set{{r, r}}, true, nil
}

// unicode reads XXXX or {X}, and two of the former that are surrogates as one.
func (p *parser) unicode() (set, bool, error) {
	if p.take('{') {
		r := rune(0)
		for d := hexDigit(p.peek()); d >= 0; d = hexDigit(p.peek()) {
			r = min(r<<4|d, utf8.MaxRune+1)
			p.at++
		}
		if !p.take('}') || r > utf8.MaxRune {
			return nil, false, p.fail("not a code point")
		}
		return set{{r, r}}, true, nil
	}
	s, _, err := p.hex(4)
	if err != nil || s[0].lo < 0xd800 || s[0].lo > 0xdfff {
		return s, true, err
	}
	if s[0].lo < 0xdc00 && p.take('\\') && p.take('u') {
		low, _, err := p.hex(4)
		if err == nil && low[0].lo >= 0xdc00 && low[0].lo <= 0xdfff {
			r := 0x10000 + (s[0].lo-0xd800)<<10 + low[0].lo - 0xdc00
			return set{{r, r}}, true, nil
		}
	}
	return nil, false, p.fail("half of a character")
}

func hexDigit(c rune) rune {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return -1
}
