package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is parsed JSON that keeps the order of properties and the text of numbers.
type value struct {
	kind  byte     // one of n t f 0 " [ {
	text  string   // of a number as written, of a string decoded
	keys  []string // of an object, beside items
	items []*value
}

// parseValue reads a schema's text.
func parseValue(text []byte, path string) (*value, error) {
	if len(text) > MaxSchemaBytes {
		return nil, &Error{path, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(text), MaxSchemaBytes)}
	}
	if !utf8.Valid(text) {
		return nil, &Error{path, "it is not UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, path, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &Error{path, "there is more than one JSON value"}
	}
	return v, nil
}

func readValue(d *json.Decoder, path string, depth int) (*value, error) {
	token, err := d.Token()
	if err != nil {
		return nil, &Error{path, "it is not JSON: " + err.Error()}
	}
	switch t := token.(type) {
	case nil:
		return &value{kind: 'n'}, nil
	case bool:
		if t {
			return &value{kind: 't'}, nil
		}
		return &value{kind: 'f'}, nil
	case string:
		return &value{kind: '"', text: t}, nil
	case json.Number:
		return &value{kind: '0', text: t.String()}, nil
	}
	if depth++; depth > MaxSchemaDepth {
		return nil, &Error{path, fmt.Sprintf("it nests deeper than %d", MaxSchemaDepth)}
	}
	v := &value{kind: byte(token.(json.Delim))}
	var seen map[string]bool
	if v.kind == '{' {
		seen = map[string]bool{}
	}
	for d.More() {
		at := path + "/" + strconv.Itoa(len(v.items))
		if v.kind == '{' {
			key, err := d.Token()
			if err != nil {
				return nil, &Error{path, "it is not JSON: " + err.Error()}
			}
			name := key.(string)
			at = join(path, name)
			if seen[name] {
				return nil, &Error{at, "the name is given twice"}
			}
			seen[name] = true
			v.keys = append(v.keys, name)
		}
		item, err := readValue(d, at, depth)
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, item)
	}
	if _, err := d.Token(); err != nil {
		return nil, &Error{path, "it is not JSON: " + err.Error()}
	}
	return v, nil
}

// join adds a name to a JSON pointer.
func join(path, name string) string {
	return path + "/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// get returns a property, or nil.
func (v *value) get(name string) *value {
	if i := slices.Index(v.keys, name); i >= 0 {
		return v.items[i]
	}
	return nil
}

// appendJSON writes v compactly.
func (v *value) appendJSON(dst []byte) []byte {
	switch v.kind {
	case 'n':
		return append(dst, "null"...)
	case 't':
		return append(dst, "true"...)
	case 'f':
		return append(dst, "false"...)
	case '0':
		return append(dst, v.text...)
	case '"':
		return appendString(dst, v.text)
	}
	dst = append(dst, v.kind)
	for i, item := range v.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.kind == '{' {
			dst = append(appendString(dst, v.keys[i]), ':')
		}
		dst = item.appendJSON(dst)
	}
	return append(dst, v.kind+2) // ] and } come two after [ and {
}

// appendString writes s as JSON, with an escape only where there must be one.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b == '\n':
			dst = append(dst, '\\', 'n')
		case b == '\r':
			dst = append(dst, '\\', 'r')
		case b == '\t':
			dst = append(dst, '\\', 't')
		case b < ' ':
			dst = fmt.Appendf(dst, "\\u%04x", b)
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, '"')
}

// rat returns the exact value of a number. Numbers beyond float64, or written with
// hundreds of digits, are not numbers for most programs: ok is false.
func rat(text string) (r *big.Rat, ok bool) {
	if len(text) > 400 {
		return nil, false
	}
	// A huge exponent would be a huge integer.
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(strings.TrimPrefix(text[i+1:], "+")); err != nil || e > 400 || e < -400 {
			return nil, false
		}
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// canonical writes v so that what JSON Schema calls equal is the same text: numbers
// by value, properties sorted.
func (v *value) canonical(dst []byte) []byte {
	switch v.kind {
	case '0':
		if r, ok := rat(v.text); ok {
			return append(dst, r.RatString()...)
		}
		return append(dst, v.text...)
	case '[', '{':
	default:
		return v.appendJSON(dst)
	}
	order := make([]int, len(v.items))
	for i := range order {
		order[i] = i
	}
	if v.kind == '{' {
		slices.SortFunc(order, func(a, b int) int { return strings.Compare(v.keys[a], v.keys[b]) })
	}
	dst = append(dst, v.kind)
	for _, i := range order {
		if v.kind == '{' {
			dst = appendString(dst, v.keys[i])
		}
		dst = append(v.items[i].canonical(dst), ',')
	}
	return append(dst, v.kind+2)
}

// size is the number of values in v, its own included.
func (v *value) size() int {
	n := 1
	for _, item := range v.items {
		n += item.size()
	}
	return n
}
