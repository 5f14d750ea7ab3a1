package grammar_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
)

// author writes random schemas and values that have a chance to fit them. Every
// object says whether it is open, since what is written where a schema is silent is
// narrower than what is valid.
type author struct {
	*rand.Rand
	budget int
}

type dict = map[string]any

func pick[T any](a *author, list ...T) T { return list[a.IntN(len(list))] }

func (a *author) maybe(n int) bool { return a.IntN(n) == 0 }

// schema returns a random schema; refs lead to the definitions a, b and c.
func (a *author) schema(depth int) any {
	if a.budget--; a.budget < 0 || depth > 4 {
		return pick[any](a, true, dict{"type": "integer"}, dict{"enum": []any{"x", 1}})
	}
	s := dict{}
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
		s["const"] = a.value(2)
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
		a.object(s, depth)
	}
	if a.maybe(8) {
		s[pick(a, "anyOf", "allOf")] = a.list(depth, 1, 3)
	}
	return s
}

func (a *author) list(depth, least, most int) []any {
	var out []any
	for range least + a.IntN(most) {
		out = append(out, a.schema(depth+1))
	}
	return out
}

func (a *author) number(s dict) {
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

func (a *author) text(s dict) {
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

func (a *author) array(s dict, depth int) {
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

func (a *author) object(s dict, depth int) {
	s["type"] = "object"
	props := dict{}
	for _, name := range []string{"a", "aa", "b", "kind", "é"} {
		if a.maybe(2) {
			props[name] = a.schema(depth + 1)
		}
	}
	s["properties"] = props
	s["additionalProperties"] = pick[any](a, true, false, dict{"type": "integer"})
	if a.maybe(2) {
		s["required"] = []any{pick(a, "a", "b", "kind", "zz")}
	}
	if a.maybe(6) {
		s["patternProperties"] = dict{pick(a, "^a", "b", "^[x-z]{1,2}$"): a.schema(depth + 1)}
	}
	if a.maybe(8) {
		s["propertyNames"] = pick[any](a, dict{"pattern": "^[a-e]"}, dict{"maxLength": 3}, dict{"enum": []any{"a", "b", "q"}})
	}
	if a.maybe(6) {
		s["minProperties"] = a.IntN(4)
	}
	if a.maybe(6) {
		s["maxProperties"] = a.IntN(4)
	}
}

func (a *author) document() []byte {
	a.budget = 4 + a.IntN(24)
	s := a.schema(0)
	root, ok := s.(dict)
	if !ok {
		root = dict{"allOf": []any{s}}
	}
	root["$defs"] = dict{"a": a.schema(2), "b": a.schema(2), "c": dict{"type": pick(a, "integer", "string")}}
	text, err := json.Marshal(root)
	if err != nil {
		panic(err)
	}
	return text
}

func (a *author) values(n int) []any {
	var out []any
	for range n {
		out = append(out, a.value(2))
	}
	return out
}

// value returns a random value of few forms, so that it often fits.
func (a *author) value(depth int) any {
	switch a.IntN(6) {
	case 0:
		return pick[any](a, nil, true, false)
	case 1:
		return pick[any](a, 0, 1, 2, 3, 5, 10, 12, 100, -2, 0.5, 1.5, 2.25)
	case 2, 3:
		return pick(a, "", "a", "ab", "abc", "b", "c", "x", "xx", "é", "zz", `"`, "\n")
	case 4:
		if depth > 0 {
			return a.values_(depth - 1)
		}
	case 5:
		if depth > 0 {
			return a.fields(depth - 1)
		}
	}
	return "a"
}

func (a *author) values_(depth int) []any {
	out := []any{}
	for range a.IntN(3) {
		out = append(out, a.value(depth))
	}
	return out
}

func (a *author) fields(depth int) dict {
	out := dict{}
	for range a.IntN(4) {
		out[pick(a, "a", "aa", "b", "kind", "zz", "é", "q")] = a.value(depth)
	}
	return out
}

// TestRandom_Sound: whatever is chosen, what is written is valid.
func TestRandom_Sound(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	compiled, strict := 0, 0
	for i := range 600 {
		a := &author{Rand: rand.New(rand.NewPCG(uint64(i), 5))}
		schema := a.document()
		if _, ok := library(schema); !ok {
			t.Fatalf("the library does not take %s", schema)
		}
		v := small()
		if i%4 == 0 {
			v = asciiOnly()
		}
		g, err := grammar.Schema(v, schema)
		if err != nil {
			if _, ok := errors.AsType[*grammar.Error](err); !ok {
				t.Fatalf("%s: %T %v", schema, err, err)
			}
			continue
		}
		compiled++
		if len(g.Unknown()) == 0 {
			strict++
		}
		check(t, v, schema, 5, r)
	}
	if compiled < 250 || strict < 150 {
		t.Errorf("of 600 schemas only %d compiled and %d are strict", compiled, strict)
	}
}

const maxOrders = 200

// orders returns the ways to write v with the properties of its objects in another
// order, up to maxOrders.
func orders(v any) []string {
	join := func(open, end string, parts [][]string) []string {
		out := []string{open}
		for i, p := range parts {
			var next []string
			for _, o := range out {
				for _, s := range p {
					if len(next) < maxOrders {
						if i > 0 {
							s = "," + s
						}
						next = append(next, o+s)
					}
				}
			}
			out = next
		}
		for i := range out {
			out[i] += end
		}
		return out
	}
	quote := func(v any) string {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			panic(err)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	switch v := v.(type) {
	case []any:
		var parts [][]string
		for _, item := range v {
			parts = append(parts, orders(item))
		}
		return join("[", "]", parts)
	case dict:
		var names []string
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		var out []string
		permute(names, func(order []string) {
			var parts [][]string
			for _, name := range order {
				var part []string
				for _, s := range orders(v[name]) {
					part = append(part, quote(name)+":"+s)
				}
				parts = append(parts, part)
			}
			if len(out) < maxOrders {
				out = append(out, join("{", "}", parts)...)
			}
		})
		return out
	}
	return []string{quote(v)}
}

func permute(list []string, use func([]string)) {
	if len(list) == 0 {
		use(nil)
		return
	}
	for i := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		permute(rest, func(order []string) { use(append([]string{list[i]}, order...)) })
	}
}

// TestRandom_Complete: what is valid can be written, in some order.
func TestRandom_Complete(t *testing.T) {
	t.Parallel()
	tried := 0
	for i := range 600 {
		a := &author{Rand: rand.New(rand.NewPCG(uint64(i), 6))}
		schema := a.document()
		lib, ok := library(schema)
		if !ok {
			t.Fatalf("the library does not take %s", schema)
		}
		if strings.Contains(string(schema), `"format"`) {
			continue // narrower than what is valid
		}
		g, err := grammar.Schema(small(), schema)
		for range 40 {
			value := a.value(3)
			text, merr := json.Marshal(value)
			if merr != nil {
				t.Fatal(merr)
			}
			if valid(lib, string(text)) != nil {
				continue
			}
			if err != nil {
				// A schema that refers to itself is valid only by accident.
				if !strings.Contains(err.Error(), "itself") && !strings.Contains(err.Error(), "combinations") {
					t.Errorf("%s\nhas the valid value %s, but: %v", schema, text, err)
				}
				break
			}
			tried++
			list := orders(value)
			if len(list) >= maxOrders {
				continue
			}
			if !slices.ContainsFunc(list, func(s string) bool { return accepts(small(), g, s) }) {
				t.Errorf("%s\ndoes not accept %s", schema, text)
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d values were valid", tried)
	}
}
