package grammar_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
)

// Schemas made to be slow or large. Each is refused at a path, or compiled; either
// way the work is bounded, and so is the state while it is written.
func TestHostile(t *testing.T) {
	t.Parallel()
	nest := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	list := func(n int, f string) string {
		var parts []string
		for i := range n {
			parts = append(parts, strings.ReplaceAll(f, "#i", fmt.Sprint(i)))
		}
		return strings.Join(parts, ",")
	}
	chain := func(keyword string, n int) string {
		return `{"$ref":"#/$defs/d0","$defs":{` + list(n, `"d#i":{"`+keyword+`":[{"$ref":"#/$defs/e#i"},{"$ref":"#/$defs/e#i"},{"minLength":#i}]},"e#i":{"$ref":"#/$defs/f#i"},"f#i":{"maxLength":1#i}`) + `}}`
	}
	doubling := func(keyword string, n int) string {
		var s strings.Builder
		s.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
		for i := range n {
			s.WriteString(fmt.Sprintf(`"d%d":{%q:[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"},{"maxLength":%d}]},`, i, keyword, i+1, i+1, i))
		}
		return s.String() + fmt.Sprintf(`"d%d":{"type":"string"}}}`, n)
	}
	refuse := []struct{ name, schema, path string }{
		{"not JSON", `{"type":`, ""},
		{"two values", `{} {}`, ""},
		{"not UTF-8", "{\"title\":\"\xff\"}", ""},
		{"not a schema", `[1]`, ""},
		{"name twice", `{"type":"object","type":"string"}`, "/type"},
		{"unknown type", `{"properties":{"a":{"type":"int"}}}`, "/properties/a/type"},
		{"bad bound", `{"items":{"minLength":-1}}`, "/items/minLength"},
		{"huge number", `{"minimum":1e999999999}`, "/minimum"},
		{"huge constant", `{"const":{"a":[1e400]}}`, "/const"},
		{"too deep", nest(`{"items":`, `true`, `}`, 100), ""},
		{"too large", `{"title":"` + strings.Repeat("x", grammar.MaxSchemaBytes) + `"}`, ""},
		{"no value", `{"type":"string","enum":[1,2]}`, ""},
		{"no value inside", `{"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":2}},"required":["a"]}`, "/properties/a"},
		{"no finite value", `{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, ""},
		{"no finite array", `{"type":"array","items":{"$ref":"#"},"minItems":1}`, ""},
		{"no finite pair", `{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","prefixItems":[{"$ref":"#/$defs/b"}],"minItems":1},"b":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}}`, ""},
		{"itself", `{"$ref":"#"}`, ""},
		{"itself through allOf", `{"properties":{"a":{"allOf":[{"$ref":"#/properties/a"}]}},"required":["a"],"type":"object"}`, "/properties/a"},
		{"itself through anyOf", `{"anyOf":[{"type":"string"},{"$ref":"#"}]}`, ""},
		// Constants are looked at before anything else would meet the circle.
		{"itself under a constant", `{"enum":[{"a":1}],"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/x"}}}`, "/$defs/x"},
		{"each other under a constant", `{"const":[[1]],"items":{"items":{"$ref":"#/$defs/x"}},"$defs":{"x":{"anyOf":[{"$ref":"#/$defs/y"},{"type":"integer"}]},"y":{"allOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}]}}}`, "/$defs/x"},
		{"outside", `{"$ref":"https://example.com/schema.json"}`, "/$ref"},
		{"nowhere", `{"$ref":"#/$defs/x"}`, "/$ref"},
		{"anchor", `{"$ref":"#x"}`, "/$ref"},
		{"id inside", `{"properties":{"a":{"$id":"https://example.com/a"}}}`, "/properties/a/$id"},
		{"very long", `{"type":"string","minLength":1000000}`, ""},
		{"very many", `{"type":"array","minItems":1000000000,"items":{"type":"integer"}}`, ""},
		{"too many properties", `{"type":"object","minProperties":100}`, ""},
		{"many combinations", `{"allOf":[` + list(8, `{"anyOf":[{"minLength":#i},{"maxLength":1#i}]}`) + `]}`, ""},
		{"many branches", `{"anyOf":[` + list(100, `{"type":"object","properties":{"a#i":true}}`) + `]}`, ""},
		{"repeated repeats", `{"type":"string","pattern":"^(a{1000}){1000}$"}`, "/pattern"},
		{"repeats of choices", `{"type":"string","pattern":"^((((a|b){30}){30}){30}){30}$"}`, "/pattern"},
		{"exponential automaton", `{"type":"string","pattern":"^(a|b)*a(a|b){20}$"}`, "/pattern"},
		{"product of patterns", `{"type":"string","allOf":[` + list(20, `{"pattern":"(a|b)*a(a|b){#i}b"}`) + `]}`, "/allOf/10/pattern"},
		{"groups", `{"type":"string","pattern":"` + nest("(", "a", ")", 1000) + `"}`, "/pattern"},
		{"pattern and lengths", `{"type":"string","pattern":"^(ab)*$","maxLength":200000000}`, ""},
	}
	for _, tt := range refuse {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			work, err := grammar.Work(small(), []byte(tt.schema))
			var e *grammar.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v (%T), want an *Error", err, err)
			}
			if e.Path != tt.path && tt.path != "" {
				t.Errorf("path %q, want %q: %v", e.Path, tt.path, err)
			}
			bounded(t, work)
		})
	}
	compile := []struct{ name, schema string }{
		{"doubled allOf", doubling("allOf", 200)},
		{"chain of anyOf", chain("anyOf", 20)},
		{"huge enum", `{"enum":[` + list(12000, `"value #i"`) + `]}`},
		{"enum under a pattern", `{"enum":[` + list(5000, `"value #i"`) + `],"pattern":"7$"}`},
		{"many properties", `{"type":"object","properties":{` + list(4000, `"property #i":{"type":"integer"}`) + `},"required":["property 3999"]}`},
		{"many definitions", `{"$ref":"#/$defs/d0","$defs":{` + list(3000, `"d#i":{"type":"array","items":{"$ref":"#/$defs/e#i"}},"e#i":true`) + `}}`},
		{"alike objects", `{"anyOf":[` + list(60, `{"type":"object","properties":{"a":{"$ref":"#"},"b#i":true},"additionalProperties":true}`) + `]}`},
		{"alike arrays", `{"anyOf":[` + list(60, `{"type":"array","items":{"$ref":"#"},"maxItems":9#i}`) + `]}`},
		{"alike strings", `{"anyOf":[` + list(60, `{"type":"string","maxLength":9#i}`) + `]}`},
		{"catastrophic for others", `{"type":"string","pattern":"^(a+)+$"}`},
		{"catastrophic for others, too", `{"type":"string","pattern":"(x+x+)+y"}`},
		{"ambiguous stars", `{"type":"string","pattern":"^(a*)*(a*)*(a*)*b$"}`},
		{"empty repeats", `{"type":"string","pattern":"^((){1000}){1000}a$"}`},
		{"wide automaton", `{"type":"string","pattern":"^[\\w.-]{1,64}@[\\w.-]{1,64}$"}`},
		{"oneOf of many", `{"oneOf":[` + list(60, `{"type":"object","properties":{"k":{"const":"k#i"},"v":{"type":"string"}},"required":["k","v"]}`) + `]}`},
		{"properties that begin alike", `{"type":"object","additionalProperties":true,"properties":{` + list(2000, `"aaaaaaaaaaaaaaaaaaaaaaa#i":true`) + `}}`},
	}
	for _, tt := range compile {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			work, err := grammar.Work(small(), []byte(tt.schema))
			bounded(t, work)
			if err != nil {
				t.Fatal(err)
			}
			g, err := grammar.Schema(small(), []byte(tt.schema))
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(7, 8))
			w := walker{v: small(), choose: r.IntN}
			for i := range 3 {
				w.walk(t, g, g.Least()+20*i)
			}
		})
	}
}

func bounded(t *testing.T, work int) {
	t.Helper()
	// The step that crosses the limit may be as large as an automaton's state.
	if limit := grammar.MaxWork + 1<<20; work > limit {
		t.Errorf("%d steps, at most %d", work, limit)
	}
}

// However many branches are alike, the state stays small.
func TestHostile_Threads(t *testing.T) {
	t.Parallel()
	var schema strings.Builder
	schema.WriteString(`{"$defs":{"n":{"anyOf":[`)
	for i := range 60 {
		schema.WriteString(fmt.Sprintf(`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"},"b%d":{"type":"integer"}},"additionalProperties":true},`, i))
	}
	schema.WriteString(`{"type":"null"}]}},"$ref":"#/$defs/n"}`)
	g, err := grammar.Schema(small(), []byte(schema.String()))
	if err != nil {
		t.Fatal(err)
	}
	m := g.NewMatcher()
	most := 0
	for _, b := range []byte(strings.Repeat(`{"a":`, 20)) {
		if !m.Accept(int32(b)) {
			t.Fatalf("%q is not accepted", b)
		}
		most = max(most, m.Threads())
	}
	if most > grammar.MaxThreads || most < 2 {
		t.Errorf("%d threads, at most %d", most, grammar.MaxThreads)
	}
	for !m.MustEnd() {
		allowed := ids(m.Mask(m.Distance()))
		if len(allowed) == 0 {
			t.Fatal("nothing is allowed")
		}
		m.Accept(allowed[0])
	}
}

// A mask takes a bounded time however many branches the next token may begin, and has
// nothing that is not allowed then.
func TestHostile_Masks(t *testing.T) {
	t.Parallel()
	v, _ := weights(t)
	arrays := func(of string, n, from int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(`{"type":"array","items":%s,"maxItems":%d}`, of, from+i))
		}
		return strings.Join(parts, ",")
	}
	for _, tt := range []struct{ name, schema, begins string }{
		{"of themselves", `{"anyOf":[` + arrays(`{"$ref":"#"}`, 60, 900) + `,{"type":"integer"}]}`, "[[[[0,["},
		{"of strings before numbers", `{"anyOf":[` +
			arrays(`{"anyOf":[`+arrays(`{"type":"string"}`, 60, 100)+`]}`, 3, 50) + `,` +
			arrays(`{"type":"array","items":{"type":"integer"}}`, 1, 70) + `]}`, "["},
	} {
		g, err := grammar.Schema(v, []byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		m := g.NewMatcher()
		for i := range len(tt.begins) + 1 {
			if i > 0 && !m.AcceptBytes([]byte(tt.begins[i-1:i])) {
				t.Fatalf("%s: %q is not accepted", tt.name, tt.begins[:i])
			}
			before := m.Steps()
			mask := slices.Clone(m.Mask(40))
			if n := m.Steps() - before; n > 2*grammar.MaxWalk {
				t.Errorf("%s: after %q a mask takes %d steps", tt.name, tt.begins[:i], n)
			}
			if len(ids(mask)) == 0 {
				t.Errorf("%s: after %q nothing is allowed", tt.name, tt.begins[:i])
			}
			for _, id := range ids(mask) {
				if !m.Allows(id, 40) {
					t.Errorf("%s: after %q the mask has %q, which is not allowed", tt.name, tt.begins[:i], v.Piece(id))
				}
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schema string
		want   []string
	}{
		{`{"type":"string","title":"x","description":"y","default":"z","examples":[],"$comment":"","$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://example.com/x","readOnly":true,"x-order":1}`, nil},
		{`{"properties":{"a/b":{"not":{"type":"null"}}}}`, []string{"/properties/a~1b/not"}},
		{`{"type":"array","uniqueItems":true,"contains":{"type":"null"},"minContains":2}`, []string{"/contains", "/uniqueItems"}},
		{`{"type":"array","uniqueItems":false,"unevaluatedItems":true}`, nil},
		{`{"if":{"type":"null"},"then":true,"else":false}`, []string{"/if"}},
		{`{"type":"string","pattern":"(?=a)b"}`, []string{"/pattern"}},
		{`{"type":"string","format":"regex"}`, []string{"/format"}},
		{`{"type":"number","multipleOf":1e-30}`, []string{"/multipleOf"}},
		{`{"dependentRequired":{"a":["b"]},"minlength":3}`, []string{"/dependentRequired", "/minlength"}},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, []string{"/oneOf"}},
		{`{"oneOf":[{"type":"integer"},{"type":"string"},{"type":["null","boolean"]}]}`, nil},
		{`{"oneOf":[{"enum":["a","b"]},{"type":"string","pattern":"^c"}]}`, nil},
		{`{"oneOf":[{"type":"object","properties":{"a":true},"required":["a"]},{"type":"object","additionalProperties":false,"properties":{"b":true}}]}`, nil},
		{`{"oneOf":[{"type":"object","properties":{"a":{"const":1}}},{"type":"object","properties":{"a":{"const":2}}}]}`, []string{"/oneOf"}},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"null"},"b":{"not":true}}}`, nil},
		{`{"propertyNames":{"anyOf":[{"maxLength":2}]}}`, []string{"/propertyNames"}},
		{`{"type":"object","minProperties":4,"patternProperties":{"^a":true}}`, []string{"/minProperties"}},
	} {
		g, err := grammar.Schema(small(), []byte(tt.schema))
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
			continue
		}
		if got := g.Unknown(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: Unknown() = %q, want %q", tt.schema, got, tt.want)
		}
	}
}
