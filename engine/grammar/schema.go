package grammar

import (
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parley-ai/parley/engine/grammar/regex"
)

// types is a set of JSON's types. Every integer is a number; fraction is the rest.
type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeInteger
	typeFraction
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFraction
	typeAny    = 1<<7 - 1
)

// schema is one parsed schema. A zero bound or nil part constrains nothing.
type schema struct {
	id    int
	path  string
	never bool // the schema false
	plain bool // constrains nothing

	types types
	enum  []*value // with hasEnum
	among map[string]bool
	// hasEnum tells an empty enum, which nothing satisfies, from none.
	hasEnum bool

	min, max                   *big.Rat
	exclusiveMin, exclusiveMax bool
	multiple                   *big.Rat

	minLength, maxLength int32 // maxLength noLimit: none
	patterns             []*regex.DFA
	format               *regex.DFA // narrower than the format, so no test of constants

	prefix             []*schema
	items              *schema
	minItems, maxItems int32 // maxItems noLimit: none

	properties    []property
	byName        map[string]*schema
	hasProperties bool
	required      []string
	additional    *schema
	named         []pattern // patternProperties
	names         []*regex.DFA
	namesAmong    []string // with hasNamesAmong: propertyNames is an enum
	hasNamesAmong bool
	minProperties int32
	maxProperties int32 // noLimit: none

	ref   *schema
	all   []*schema
	any   [][]*schema // anyOf and oneOf
	apart []bool      // beside any: a oneOf, whose branches must exclude each other
	doc   *document

	active bool   // being merged
	tested *value // the constant that is being tested; nil: none
}

type property struct {
	name   string
	schema *schema
}

type pattern struct {
	dfa    *regex.DFA
	schema *schema
}

// document is one schema text, in which references lead.
type document struct {
	prefix string // of its paths
	root   *value
	id     string // its own $id
}

// document parses a text and returns its schema. Paths begin with prefix.
func (c *compiler) document(prefix string, text []byte) (*schema, error) {
	root, err := parseValue(text, prefix)
	if err != nil {
		return nil, err
	}
	c.text += len(text)
	d := &document{prefix: prefix, root: root}
	if id := root.get("$id"); id != nil && id.kind == '"' {
		d.id = strings.TrimSuffix(id.text, "#")
	}
	return c.schema(d, root, prefix)
}

// newSchema returns one that constrains nothing.
func (c *compiler) newSchema(path string) *schema {
	s := &schema{id: len(c.list), path: path, types: typeAny, maxLength: noLimit, maxItems: noLimit, maxProperties: noLimit}
	c.list = append(c.list, s)
	return s
}

// schema returns the schema at path, parsed at the first call.
func (c *compiler) schema(d *document, v *value, path string) (*schema, error) {
	if s, ok := c.schemas[path]; ok {
		return s, nil
	}
	s := c.newSchema(path)
	s.doc = d
	c.schemas[path] = s
	switch v.kind {
	case 't':
		s.plain = true
		return s, nil
	case 'f':
		s.never = true
		return s, nil
	case '{':
	default:
		return nil, &Error{path, "a schema is an object, true or false"}
	}
	if err := c.spend(len(v.keys)+1, path); err != nil {
		return nil, err
	}
	s.plain = true
	for i, key := range v.keys {
		parse, known := keyword(key)
		if !known {
			if !strings.HasPrefix(key, "x-") {
				c.unknown = append(c.unknown, join(path, key))
			}
			continue
		}
		if parse == nil {
			continue
		}
		s.plain = false
		p := place{c: c, s: s, all: v, path: join(path, key)}
		if err := parse(&p, v.items[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// place is a keyword that is being parsed.
type place struct {
	c    *compiler
	s    *schema
	all  *value // the whole schema
	path string // of the keyword
}

func (p *place) fail(format string, args ...any) error {
	return &Error{p.path, fmt.Sprintf(format, args...)}
}

// unknown notes that the keyword is not enforced.
func (p *place) unknown() error {
	p.c.unknown = append(p.c.unknown, p.path)
	return nil
}

func (p *place) sub(v *value, path string) (*schema, error) { return p.c.schema(p.s.doc, v, path) }

func (p *place) subs(v *value) ([]*schema, error) {
	if v.kind != '[' || len(v.items) == 0 {
		return nil, p.fail("it must be an array of schemas")
	}
	var out []*schema
	for i, item := range v.items {
		s, err := p.sub(item, p.path+"/"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// count reads an integer that is not negative; large ones are as good as infinite.
func (p *place) count(v *value) (int32, error) {
	r, ok := rat(v.text)
	if v.kind != '0' || !ok || !r.IsInt() || r.Sign() < 0 {
		return 0, p.fail("it must be an integer that is not negative")
	}
	if !r.Num().IsInt64() || r.Num().Int64() > int64(noLimit) {
		return noLimit, nil
	}
	return int32(r.Num().Int64()), nil
}

func (p *place) strings(v *value) ([]string, error) {
	var out []string
	for _, item := range v.items {
		if item.kind == '"' {
			out = append(out, item.text)
		}
	}
	if v.kind != '[' || len(out) != len(v.items) {
		return nil, p.fail("it must be an array of strings")
	}
	return out, nil
}

// regex compiles a pattern. One that is not supported is nil, and then the keyword
// at path is not enforced.
func (p *place) regex(text, path string) (*regex.DFA, error) {
	if d, ok := p.c.patterns[text]; ok {
		if d == nil {
			p.c.unknown = append(p.c.unknown, path)
		}
		return d, nil
	}
	d, err := regex.Compile(text, &p.c.budget)
	if errors.Is(err, regex.ErrUnsupported) {
		d, err = nil, nil
		p.c.unknown = append(p.c.unknown, path)
	}
	if err != nil {
		return nil, &Error{path, err.Error()}
	}
	p.c.patterns[text] = d
	return d, nil
}

// resolve finds what a reference means.
func (p *place) resolve(ref string) (*schema, error) {
	base, fragment, _ := strings.Cut(ref, "#")
	d := p.s.doc
	if base != "" && base != d.id {
		return nil, p.fail("%q is not in this schema; only references within it can be followed", ref)
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil || pointer != "" && pointer[0] != '/' {
		return nil, p.fail("%q is not a JSON pointer; anchors are not supported", ref)
	}
	v, path := d.root, d.prefix
	if pointer == "" {
		return p.sub(v, path)
	}
	for name := range strings.SplitSeq(pointer[1:], "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		if v.kind == '[' {
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v.items) {
				return nil, p.fail("%q leads nowhere", ref)
			}
			v = v.items[i]
		} else if v = v.get(name); v == nil {
			return nil, p.fail("%q leads nowhere", ref)
		}
		path = join(path, name)
	}
	return p.sub(v, path)
}

// accepts reports whether a constant satisfies s, as far as its keywords are
// enforced. Work is counted; what runs out of it is refused, and so is what leads back
// to s without a value in between, which is noted.
func (c *compiler) accepts(s *schema, v *value) bool {
	if s.tested == v && c.looped == nil {
		c.looped = s
	}
	if s.tested == v || !c.budget.Spend(1) || s.never {
		return false
	}
	if s.plain {
		return true
	}
	outer := s.tested
	s.tested = v
	defer func() { s.tested = outer }()
	if !c.acceptsKind(s, v) || s.hasEnum && !s.among[string(v.canonical(nil))] {
		return false
	}
	for _, sub := range s.all {
		if !c.accepts(sub, v) {
			return false
		}
	}
	if s.ref != nil && !c.accepts(s.ref, v) {
		return false
	}
	for i, group := range s.any {
		n := 0
		for _, sub := range group {
			if c.accepts(sub, v) {
				n++
			}
		}
		if n == 0 || s.apart[i] && n > 1 {
			return false
		}
	}
	return true
}

// acceptsKind checks what depends on the type of v.
func (c *compiler) acceptsKind(s *schema, v *value) bool {
	switch v.kind {
	case 'n':
		return s.types&typeNull != 0
	case 't', 'f':
		return s.types&typeBoolean != 0
	case '0':
		r, ok := rat(v.text)
		return ok && acceptsNumber(s, r)
	case '"':
		n := int32(utf8.RuneCountInString(v.text))
		ok := s.types&typeString != 0 && n >= s.minLength && n <= s.maxLength
		for _, d := range s.patterns {
			ok = ok && c.budget.Spend(len(v.text)) && d.Match(v.text)
		}
		return ok
	case '[':
		n := int32(len(v.items))
		if s.types&typeArray == 0 || n < s.minItems || n > s.maxItems {
			return false
		}
		for i, item := range v.items {
			if sub := s.item(i); sub != nil && !c.accepts(sub, item) {
				return false
			}
		}
		return true
	}
	return c.acceptsObject(s, v)
}

func acceptsNumber(s *schema, r *big.Rat) bool {
	t := typeFraction
	if r.IsInt() {
		t = typeInteger
	}
	if s.types&t == 0 {
		return false
	}
	if s.min != nil && (r.Cmp(s.min) < 0 || s.exclusiveMin && r.Cmp(s.min) == 0) {
		return false
	}
	if s.max != nil && (r.Cmp(s.max) > 0 || s.exclusiveMax && r.Cmp(s.max) == 0) {
		return false
	}
	return s.multiple == nil || new(big.Rat).Quo(r, s.multiple).IsInt()
}

func (c *compiler) acceptsObject(s *schema, v *value) bool {
	n := int32(len(v.keys))
	if s.types&typeObject == 0 || n < s.minProperties || n > s.maxProperties {
		return false
	}
	for _, name := range s.required {
		if !c.budget.Spend(len(v.keys)) || v.get(name) == nil {
			return false
		}
	}
	for i, name := range v.keys {
		subs, ok := s.schemasOf(name)
		if !ok || !s.acceptsName(name) {
			return false
		}
		for _, sub := range subs {
			if !c.accepts(sub, v.items[i]) {
				return false
			}
		}
	}
	return true
}

// item returns the schema of an array's i-th item, or nil.
func (s *schema) item(i int) *schema {
	if i < len(s.prefix) {
		return s.prefix[i]
	}
	return s.items
}

// schemasOf returns the schemas of a property; ok is false if there may be none of
// that name.
func (s *schema) schemasOf(name string) (subs []*schema, ok bool) {
	if sub := s.byName[name]; sub != nil {
		subs = append(subs, sub)
	}
	for _, p := range s.named {
		if p.dfa.Match(name) {
			subs = append(subs, p.schema)
		}
	}
	if len(subs) == 0 && s.additional != nil {
		subs = append(subs, s.additional)
	}
	return subs, !slices.ContainsFunc(subs, func(sub *schema) bool { return sub.never })
}

func (s *schema) acceptsName(name string) bool {
	for _, d := range s.names {
		if !d.Match(name) {
			return false
		}
	}
	return !s.hasNamesAmong || slices.Contains(s.namesAmong, name)
}
