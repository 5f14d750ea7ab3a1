// Package grammartest writes random JSON Schemas, for tests of the grammar and of what is built
// on it.
package grammartest

import (
	"encoding/json"
	"math/rand/v2"
)

// Author writes random schemas and values that have a chance to fit them. Every
// object says whether it is open, since what is written where a schema is silent is
// narrower than what is valid.
type Author struct {
	*rand.Rand
	budget int // places for values that the document may still have
}

// New returns an author whose writings follow from the two seeds alone.
func New(seed1, seed2 uint64) *Author {
	return &Author{Rand: rand.New(rand.NewPCG(seed1, seed2))}
}

type object = map[string]any

func pick[T any](a *Author, list ...T) T { return list[a.IntN(len(list))] }

func (a *Author) maybe(n int) bool { return a.IntN(n) == 0 }

// schema returns a random schema; refs lead to the definitions a, b and c.
func (a *Author) schema(depth int) any {
	if a.budget--; a.budget < 0 || depth > 4 {
		return pick[any](a, true, object{"type": "integer"}, object{"enum": []any{"x", 1}})
	}
	s := object{}
	switch a.IntN(14) {
	case 0:
		return pick[any](a, true, true, false)
	case 1:
		s["$ref"] = "#/$defs/" + pick(a, "a", "b", "c")
	case 2:
		s[pick(a, "anyOf", "oneOf", "allOf")] = a.list(depth, 1, 3)
	case 3:
		s["enum"] = a.values(1 + a.IntN(4))
	case 4:
		s["const"] = a.Value(2)
	case 5:
		s["type"] = pick[any](a, "null", "boolean", []any{"string", "null"}, []any{"integer", "array"}, []any{"object", "number"})
	}
	if a.maybe(3) {
		a.number(s)
	}
	if a.maybe(3) {
		a.text(s)
	}
	if a.maybe(4) {
		a.array(s, depth)
	}
	if a.maybe(2) {
		a.properties(s, depth)
	}
	if a.maybe(8) {
		s[pick(a, "anyOf", "allOf")] = a.list(depth, 1, 3)
	}
	return s
}

func (a *Author) list(depth, least, most int) []any {
	var out []any
	for range least + a.IntN(most) {
		out = append(out, a.schema(depth+1))
	}
	return out
}

func (a *Author) number(s object) {
	s["type"] = pick(a, "integer", "number")
	if a.maybe(2) {
		s[pick(a, "minimum", "exclusiveMinimum")] = pick[any](a, -3, 0, 1, 2, 10, 0.5, 1.25)
	}
	if a.maybe(2) {
		s[pick(a, "maximum", "exclusiveMaximum")] = pick[any](a, 2, 3, 12, 100, 2.5, 1e6)
	}
	if a.maybe(4) {
		s["multipleOf"] = pick[any](a, 2, 3, 0.5, 0.25, 10)
	}
}

func (a *Author) text(s object) {
	s["type"] = "string"
	if a.maybe(3) {
		s["minLength"] = a.IntN(3)
	}
	if a.maybe(3) {
		s["maxLength"] = 1 + a.IntN(4)
	}
	if a.maybe(3) {
		s["pattern"] = pick(a, "a", "^a", "b$", "^[a-c]*$", "^(ab|c)+$", "x{2,3}", "^.{1,3}$", "[^a]", "é", `^"?\\?$`)
	}
	if a.maybe(8) {
		s["format"] = pick(a, "date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname", "duration", "uri-reference")
	}
}

func (a *Author) array(s object, depth int) {
	s["type"] = "array"
	if a.maybe(2) {
		s["items"] = a.schema(depth + 1)
	}
	if a.maybe(4) {
		s["prefixItems"] = a.list(depth, 1, 2)
	}
	if a.maybe(3) {
		s["minItems"] = a.IntN(3)
	}
	if a.maybe(3) {
		s["maxItems"] = a.IntN(4)
	}
}

func (a *Author) properties(s object, depth int) {
	s["type"] = "object"
	props := object{}
	for _, name := range []string{"a", "aa", "b", "kind", "é"} {
		if a.maybe(2) {
			props[name] = a.schema(depth + 1)
		}
	}
	s["properties"] = props
	s["additionalProperties"] = pick[any](a, true, false, object{"type": "integer"})
	if a.maybe(2) {
		s["required"] = []any{pick(a, "a", "b", "kind", "zz")}
	}
	if a.maybe(6) {
		s["patternProperties"] = object{pick(a, "^a", "b", "^[x-z]{1,2}$"): a.schema(depth + 1)}
	}
	if a.maybe(8) {
		s["propertyNames"] = pick[any](a, object{"pattern": "^[a-e]"}, object{"maxLength": 3}, object{"enum": []any{"a", "b", "q"}})
	}
	if a.maybe(6) {
		s["minProperties"] = a.IntN(4)
	}
	if a.maybe(6) {
		s["maxProperties"] = a.IntN(4)
	}
}

// Document returns a random schema with definitions, draft 2020-12; perhaps no value satisfies it.
func (a *Author) Document() []byte {
	a.budget = 4 + a.IntN(24)
	s := a.schema(0)
	root, ok := s.(object)
	if !ok {
		root = object{"allOf": []any{s}}
	}
	root["$defs"] = object{"a": a.schema(2), "b": a.schema(2), "c": object{"type": pick(a, "integer", "string")}}
	text, err := json.Marshal(root)
	if err != nil {
		panic(err)
	}
	return text
}

func (a *Author) values(n int) []any {
	var out []any
	for range n {
		out = append(out, a.Value(2))
	}
	return out
}

// Value returns a random value of few forms, so that it often fits.
func (a *Author) Value(depth int) any {
	switch a.IntN(6) {
	case 0:
		return pick[any](a, nil, true, false)
	case 1:
		return pick[any](a, 0, 1, 2, 3, 5, 10, 12, 100, -2, 0.5, 1.5, 2.25)
	case 2, 3:
		return pick(a, "", "a", "ab", "abc", "b", "c", "x", "xx", "é", "zz", `"`, "\n")
	case 4:
		if depth > 0 {
			return a.items(depth - 1)
		}
	case 5:
		if depth > 0 {
			return a.fields(depth - 1)
		}
	}
	return "a"
}

func (a *Author) items(depth int) []any {
	out := []any{}
	for range a.IntN(3) {
		out = append(out, a.Value(depth))
	}
	return out
}

func (a *Author) fields(depth int) object {
	out := object{}
	for range a.IntN(4) {
		out[pick(a, "a", "aa", "b", "kind", "zz", "é", "q")] = a.Value(depth)
	}
	return out
}
