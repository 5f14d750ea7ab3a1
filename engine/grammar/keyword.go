package grammar

import (
	"fmt"
	"strings"
)

// parser reads one keyword into the schema of p.
type parser func(p *place, v *value) error

// keyword returns what parses a keyword: nil if it constrains nothing, or belongs
// to another one. Those that are not known are not enforced.
func keyword(name string) (parse parser, known bool) {
	switch name {
	case "$schema", "$comment", "$vocabulary", "$anchor", "$dynamicAnchor", "$defs", "definitions",
		"title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly",
		"contentEncoding", "contentMediaType", "contentSchema",
		"discriminator", "nullable", // OpenAPI's; JSON Schema does not know them
		"additionalItems", // with items
		"then", "else",    // with if
		"minContains", "maxContains": // with contains
		return nil, true
	case "$id":
		return parseID, true
	case "$ref":
		return parseRef, true
	case "type":
		return parseType, true
	case "enum", "const":
		return parseEnum, true
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return parseNumber, true
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		return parseCount, true
	case "pattern", "format":
		return parsePattern, true
	case "items", "prefixItems":
		return parseItems, true
	case "properties", "patternProperties":
		return parseProperties, true
	case "required":
		return parseRequired, true
	case "additionalProperties":
		return parseAdditional, true
	case "propertyNames":
		return parseNames, true
	case "allOf", "anyOf", "oneOf":
		return parseBranches, true
	case "uniqueItems", "unevaluatedItems", "unevaluatedProperties":
		return parseTrivial, true
	}
	return nil, false
}

// last is the name of the keyword.
func (p *place) last() string { return p.path[strings.LastIndexByte(p.path, '/')+1:] }

func parseID(p *place, v *value) error {
	// References inside would have another base.
	if v.kind != '"' || p.s.path != p.s.doc.prefix && !strings.HasPrefix(v.text, "#") {
		return p.fail("only the whole schema may have an $id")
	}
	return nil
}

func parseRef(p *place, v *value) (err error) {
	if v.kind != '"' {
		return p.fail("it must be a string")
	}
	p.s.ref, err = p.resolve(v.text)
	return err
}

func typeOf(name string) types {
	switch name {
	case "null":
		return typeNull
	case "boolean":
		return typeBoolean
	case "integer":
		return typeInteger
	case "number":
		return typeNumber
	case "string":
		return typeString
	case "array":
		return typeArray
	case "object":
		return typeObject
	}
	return 0
}

func parseType(p *place, v *value) error {
	names := []*value{v}
	if v.kind == '[' && len(v.items) > 0 {
		names = v.items
	}
	var t types
	for _, name := range names {
		one := typeOf(name.text)
		if name.kind != '"' || one == 0 {
			return p.fail("it must be a type's name, or an array of some: null, boolean, integer, number, string, array, object")
		}
		t |= one
	}
	p.s.types = t
	return nil
}

func parseEnum(p *place, v *value) error {
	values := []*value{v}
	if p.last() == "enum" {
		if v.kind != '[' {
			return p.fail("it must be an array")
		}
		values = v.items
	}
	var kept []*value
	among := map[string]bool{}
	for _, item := range values {
		if !finite(item) {
			return p.fail("it has a number that is out of range")
		}
		if err := p.c.spend(item.size(), p.path); err != nil {
			return err
		}
		key := string(item.canonical(nil))
		if among[key] || p.s.hasEnum && !p.s.among[key] {
			continue
		}
		among[key] = true
		kept = append(kept, item)
	}
	p.s.enum, p.s.among, p.s.hasEnum = kept, among, true
	return nil
}

// finite reports whether all numbers in v can be told exactly.
func finite(v *value) bool {
	if v.kind == '0' {
		_, ok := rat(v.text)
		return ok
	}
	for _, item := range v.items {
		if !finite(item) {
			return false
		}
	}
	return true
}

func parseNumber(p *place, v *value) error {
	r, ok := rat(v.text)
	if v.kind != '0' || !ok {
		return p.fail("it must be a number within the range of a float64")
	}
	s := p.s
	switch p.last() {
	case "multipleOf":
		if r.Sign() <= 0 {
			return p.fail("it must be positive")
		}
		if _, decimals := scaled(r, maxDigits); !decimals {
			return p.unknown()
		}
		s.multiple = r
	case "minimum":
		s.lower(r, false)
	case "exclusiveMinimum":
		s.lower(r, true)
	case "maximum":
		s.upper(r, false)
	case "exclusiveMaximum":
		s.upper(r, true)
	}
	return nil
}

func parseCount(p *place, v *value) error {
	n, err := p.count(v)
	if err != nil {
		return err
	}
	switch p.last() {
	case "minLength":
		p.s.minLength = n
	case "maxLength":
		p.s.maxLength = n
	case "minItems":
		p.s.minItems = n
	case "maxItems":
		p.s.maxItems = n
	case "minProperties":
		p.s.minProperties = n
	case "maxProperties":
		p.s.maxProperties = n
	}
	return nil
}

func parsePattern(p *place, v *value) error {
	if v.kind != '"' {
		return p.fail("it must be a string")
	}
	if p.last() == "format" {
		text := format(v.text)
		if text == "" {
			return p.otherFormat(v.text)
		}
		d, err := p.regex(text, p.path)
		p.s.format = d
		return err
	}
	d, err := p.regex(v.text, p.path)
	if d != nil {
		p.s.patterns = append(p.s.patterns, d)
	}
	return err
}

// parseItems reads 2020-12's prefixItems and items, and draft-07's items that is an
// array with additionalItems.
func parseItems(p *place, v *value) (err error) {
	s := p.s
	if v.kind != '[' && p.last() == "items" {
		s.items, err = p.sub(v, p.path)
		return err
	}
	if s.prefix, err = p.subs(v); err != nil || p.last() != "items" {
		return err
	}
	if rest := p.all.get("additionalItems"); rest != nil {
		s.items, err = p.sub(rest, join(s.path, "additionalItems"))
	}
	return err
}

func parseProperties(p *place, v *value) error {
	if v.kind != '{' {
		return p.fail("it must be an object")
	}
	s := p.s
	if p.last() == "properties" {
		s.hasProperties, s.byName = true, map[string]*schema{}
	}
	for i, name := range v.keys {
		path := join(p.path, name)
		sub, err := p.sub(v.items[i], path)
		if err != nil {
			return err
		}
		if p.last() == "properties" {
			s.properties = append(s.properties, property{name, sub})
			s.byName[name] = sub
			continue
		}
		d, err := p.regex(name, path)
		if err != nil {
			return err
		}
		if d != nil {
			s.named = append(s.named, pattern{d, sub})
		}
	}
	return nil
}

// otherFormat takes a format that the grammar does not write. Those of JSON Schema
// may be checked by somebody; any other is an annotation.
func (p *place) otherFormat(name string) error {
	switch name {
	case "idn-email", "idn-hostname", "uri-template", "json-pointer", "relative-json-pointer", "regex", "period", "semver":
		return p.unknown()
	}
	return nil
}

func parseRequired(p *place, v *value) (err error) {
	// Draft 3 has a boolean here, and schemas still have it beside a property.
	if v.kind == 't' || v.kind == 'f' {
		return p.unknown()
	}
	p.s.required, err = p.strings(v)
	return err
}

func parseAdditional(p *place, v *value) (err error) {
	p.s.additional, err = p.sub(v, p.path)
	return err
}

// maxNameLength bounds propertyNames' lengths: each is states of an automaton.
const maxNameLength = 256

// parseNames reads a propertyNames that says what strings say of themselves; any
// other is not enforced.
func parseNames(p *place, v *value) error {
	sub, err := p.sub(v, p.path)
	if err != nil || sub.plain {
		return err
	}
	s := p.s
	if sub.never || sub.types&typeString == 0 {
		s.hasNamesAmong = true
		return nil
	}
	if sub.ref != nil || len(sub.all)+len(sub.any) > 0 || sub.minLength > maxNameLength || sub.maxLength > maxNameLength && sub.maxLength < noLimit {
		return p.unknown()
	}
	s.names = append(s.names, sub.patterns...)
	if sub.format != nil {
		s.names = append(s.names, sub.format)
	}
	if sub.minLength > 1 || sub.maxLength < noLimit {
		most := ""
		if sub.maxLength < noLimit {
			if sub.maxLength < sub.minLength {
				s.hasNamesAmong = true
				return nil
			}
			most = fmt.Sprint(sub.maxLength)
		}
		d, err := p.regex(fmt.Sprintf(`^[\s\S]{%d,%s}$`, sub.minLength, most), p.path)
		if err != nil {
			return err
		}
		s.names = append(s.names, d)
	}
	s.hasNamesAmong = sub.hasEnum
	for _, item := range sub.enum {
		if item.kind == '"' {
			s.namesAmong = append(s.namesAmong, item.text)
		}
	}
	return nil
}

func parseBranches(p *place, v *value) error {
	subs, err := p.subs(v)
	if err != nil {
		return err
	}
	if p.last() == "allOf" {
		p.s.all = subs
		return nil
	}
	p.s.any = append(p.s.any, subs)
	p.s.apart = append(p.s.apart, p.last() == "oneOf")
	return nil
}

// parseTrivial reads a keyword that is enforced only where it says nothing.
func parseTrivial(p *place, v *value) error {
	nothing := byte('t')
	if p.last() == "uniqueItems" {
		nothing = 'f'
	}
	if v.kind == nothing {
		return nil
	}
	return p.unknown()
}
