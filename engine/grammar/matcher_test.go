package grammar_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
)

func mustJSON(t testing.TB, v *grammar.Vocab) *grammar.Grammar {
	t.Helper()
	g, err := grammar.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// feed accepts a text byte by byte.
func feed(t testing.TB, m *grammar.Matcher, text string) {
	t.Helper()
	for i, b := range []byte(text) {
		if !m.Accept(int32(b)) {
			t.Fatalf("%q is not accepted after %q", b, text[:i])
		}
	}
}

func TestNewVocab(t *testing.T) {
	t.Parallel()
	_, err := grammar.NewVocab(256, func(id int32) []byte {
		if id == '}' || id == 'q' {
			return nil
		}
		return []byte{byte(id)}
	}, func(int32) bool { return false })
	if err == nil || !strings.Contains(err.Error(), `"q}"`) {
		t.Errorf("error %v, want one that names q and }", err)
	}
}

// Forced text counts in tokens, what is free in bytes.
func TestLeast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		schema string
		want   int // with small
	}{
		{`{"type":"object"}`, 2},
		{`{}`, 1},
		{`{"type":"string","minLength":3}`, 5},
		{`{"type":"array","minItems":2,"items":{"type":"integer","minimum":10}}`, 7},
		{`{"const":"abc"}`, 3}, // ", abc, "
		{`{"enum":["abcabcabc","foo",123456]}`, 3},
		{`{"type":"object","properties":{"name":{"type":"integer"},"aa":{"type":"string"}},"required":["name"]}`, 6}, // {, ", name, ":, 0, }
		{`{"type":"object","minProperties":2}`, 13}, // {, ", two characters, ":, 0, then a comma and the same, }
		{`{"anyOf":[{"type":"string","minLength":9},{"const":12345}]}`, 4},
		{`{"type":"string","format":"date"}`, 12},
	} {
		g, err := grammar.Schema(small(), []byte(tt.schema))
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Least(); got != tt.want {
			t.Errorf("%s: Least() = %d, want %d", tt.schema, got, tt.want)
		}
	}
}

func TestMatcher_End(t *testing.T) {
	t.Parallel()
	v := small()
	const end, control = 256, 257
	g, err := grammar.Schema(v, []byte(`{"type":"integer"}`))
	if err != nil {
		t.Fatal(err)
	}
	m := g.NewMatcher()
	if m.Done() || m.MustEnd() || m.Allows(end, 9) || m.Accept(end) {
		t.Error("an empty text is complete")
	}
	if m.Allows(control, 9) || m.Accept(control) || m.Allows(-1, 9) || m.Allows(1<<20, 9) {
		t.Error("a token without text is allowed")
	}
	feed(t, m, "1")
	if !m.Done() || m.MustEnd() || !m.Allows(end, 0) || m.Allows('2', 0) || !m.Allows('2', 1) {
		t.Error("after 1 it may end, or go on if there is budget")
	}
	if got := ids(m.Mask(0)); len(got) != 1 || got[0] != end {
		t.Errorf("the mask with no budget is %v", got)
	}
	if !m.Accept(end) || !m.MustEnd() || m.Accept(end) || m.Allows('2', 9) || len(ids(m.Mask(9))) > 0 {
		t.Error("after the end something is allowed")
	}
	m = mustJSON(t, v).NewMatcher()
	feed(t, m, "{}")
	if !m.Done() || !m.MustEnd() || !m.Allows(end, 0) {
		t.Error("after {} it must end")
	}
}

func TestMatcher_AcceptBytes(t *testing.T) {
	t.Parallel()
	m := mustJSON(t, small()).NewMatcher()
	if m.AcceptBytes([]byte(`{"a":x`)) || m.Distance() != 2 {
		t.Error("what the grammar does not have is accepted")
	}
	if !m.AcceptBytes(nil) || !m.AcceptBytes([]byte(`{"a":`)) || m.Distance() != 2 {
		t.Errorf("after {\"a\": the distance is %d", m.Distance())
	}
	if !m.Accept('1') || m.AcceptBytes([]byte("]")) || !m.AcceptBytes([]byte("}")) || !m.MustEnd() {
		t.Error("the object is not complete")
	}
	if m.AcceptBytes([]byte("}")) {
		t.Error("something follows the object")
	}
}

// Nesting stops at the limit, whatever the budget.
func TestMatcher_Nesting(t *testing.T) {
	t.Parallel()
	m := mustJSON(t, small()).NewMatcher()
	feed(t, m, `{"a":`)
	depth := 0
	for ; depth < 200 && m.Allows('[', 1<<20); depth++ {
		m.Accept('[')
	}
	if depth < grammar.MaxNesting-4 || depth > grammar.MaxNesting {
		t.Errorf("%d arrays nest, the limit is %d", depth, grammar.MaxNesting)
	}
	for !m.MustEnd() {
		allowed := ids(m.Mask(1 << 20))
		if len(allowed) == 0 {
			t.Fatal("nothing is allowed")
		}
		m.Accept(allowed[0])
	}
}

func TestMatcher_Space(t *testing.T) {
	t.Parallel()
	blanks, tabs := strings.Repeat(" ", grammar.MaxIndent), strings.Repeat("\t", grammar.MaxIndent/4)
	for text, want := range map[string]bool{
		`{ "a": [ 1, 2 ] }`:       true,
		"{\n" + blanks + "}":      true,
		"{\n" + blanks + " }":     false,
		"{\n" + tabs + "}":        true,
		"{\n" + tabs + " }":       false,
		"{\n" + tabs[1:] + " \t}": false,
		"{\n\t\t\"a\":\n\t1\n}":   true,
		"{\n\n}":                  false,
		`{  }`:                    false,
		"{ \n}":                   false,
		"{\r\n}":                  false,
		`{"a" :1}`:                false,
		`{"a":1 ,"b":2}`:          false,
		"{\"a\":1\n,\"b\":2}":     false,
		"{\"a\":1,\n\"b\":2\n}":   true,
		"{\"a\":[1\n, 2]}":        false,
		"{\"a\":[\n1,\n 2\n]\n}":  true,
	} {
		if got := accepts(small(), mustJSON(t, small()), text); got != want {
			t.Errorf("accepts %q: %t", text, got)
		}
	}
}

// An object has at most MaxUndeclared properties that its schema does not name.
func TestMatcher_Undeclared(t *testing.T) {
	t.Parallel()
	m := mustJSON(t, small()).NewMatcher()
	var text strings.Builder
	text.WriteString("{")
	for i := range grammar.MaxUndeclared {
		text.WriteString(fmt.Sprintf(`"%d":0,`, i))
	}
	feed(t, m, strings.TrimSuffix(text.String(), ","))
	if m.Allows(',', 1000) || !m.Allows('}', 1) {
		t.Error("one property more is allowed")
	}
}

// Names that begin like others keep the promise, with any budget.
func TestMatcher_Names(t *testing.T) {
	t.Parallel()
	var schema strings.Builder
	schema.WriteString(`{"type":"object","minProperties":3,"additionalProperties":{"type":"integer"},"properties":{`)
	for i := range 90 {
		c := string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- !#$%&'()*+,./:;<=>?@[]^`{|}~"[i])
		name, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		schema.WriteString(string(name) + ":false,")
	}
	schema.WriteString(`"é":false}}`)
	check(t, small(), []byte(schema.String()), 40, rand.New(rand.NewPCG(1, 9)))
	check(t, asciiOnly(), []byte(schema.String()), 10, rand.New(rand.NewPCG(2, 9)))
	for _, schema := range []string{
		`{"type":"object","minProperties":1,"additionalProperties":false,"patternProperties":{"^a{1,3}$":{"type":"integer"}}}`,
		`{"type":"object","additionalProperties":false,"patternProperties":{"^(é|日|😀)$":{"type":"integer"}}}`,
		`{"type":"object","properties":{"aa":{"type":"null"}},"required":["aa"],"additionalProperties":false,"patternProperties":{"^a+$":true}}`,
	} {
		check(t, small(), []byte(schema), 60, rand.New(rand.NewPCG(3, 9)))
		check(t, asciiOnly(), []byte(schema), 20, rand.New(rand.NewPCG(4, 9)))
	}
}

// One grammar serves many goroutines.
func TestGrammar_Concurrent(t *testing.T) {
	t.Parallel()
	g := mustJSON(t, small())
	texts := make([]string, 8)
	var wg sync.WaitGroup
	for i := range texts {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, 5))
			w := walker{v: small(), choose: r.IntN}
			for range 20 {
				texts[i] += w.walk(t, g, 60)
			}
		})
	}
	wg.Wait()
	for _, text := range texts {
		if text != texts[0] {
			t.Error("the same choices gave different texts")
		}
	}
}

// Golden: on the real vocabulary, with tokens chosen at random and any budget, every
// answer is an object.
func TestGolden_JSON(t *testing.T) {
	t.Parallel()
	v, _ := weights(t)
	g := mustJSON(t, v)
	r := rand.New(rand.NewPCG(2026, 1))
	w := walker{v: v, choose: r.IntN}
	for i := range 1000 {
		budget := g.Least() + i%(201-g.Least())
		text := w.walk(t, g, budget)
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
			t.Fatalf("budget %d: %q: %v", budget, text, err)
		}
	}
}

// What the model would write by itself is allowed: text as json.dumps and
// pretty-printers have it, in the model's own tokens.
func TestGolden_Tokens(t *testing.T) {
	t.Parallel()
	v, tk := weights(t)
	g := mustJSON(t, v)
	for _, text := range []string{
		`{"name": "Ada Lovelace", "age": 36, "langs": ["en", "fr"], "ok": true, "n": null, "x": -1.5e-3}`,
		"{\n  \"a\": {\n    \"b\": [\n      1,\n      2\n    ]\n  },\n  \"text\": \"She said: \\\"hi\\\"\\n日本 😀\"\n}",
		`{"a":{"b":[[],{}]}}`,
	} {
		m := g.NewMatcher()
		tokens := tk.Encode(text, false)
		for i, id := range tokens {
			left := len(tokens) - i + 10 // the end is counted in brackets, which may share a token
			mask := m.Mask(left)
			if !m.Allows(id, left) || mask[id>>6]>>(id&63)&1 == 0 || !m.Accept(id) {
				t.Fatalf("%q: token %d %q is not allowed", text, i, tk.Piece(id))
			}
		}
		if !m.MustEnd() {
			t.Errorf("%q is not complete", text)
		}
	}
}

// Where a walk of the vocabulary would take too long, the promise holds still.
func TestGolden_Hostile(t *testing.T) {
	t.Parallel()
	v, _ := weights(t)
	var branches []string
	for i := range 60 {
		branches = append(branches, fmt.Sprintf(`{"type":"string","pattern":"^.{1,%d}x"}`, i+1))
	}
	check(t, v, []byte(`{"anyOf":[`+strings.Join(branches, ",")+`]}`), 8, rand.New(rand.NewPCG(6, 6)))
}

// On the real vocabulary too the mask is what Allows says.
func TestGolden_Mask(t *testing.T) {
	t.Parallel()
	v, _ := weights(t)
	schema := `{"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"string","pattern":"^[a-zé]+$"},"c":{"type":"array","items":{"type":"number"}}},"required":["a","b"],"additionalProperties":{"type":"string"}}`
	g, err := grammar.Schema(v, []byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{``, `{`, `{"`, `{"a":"`, `{"a":"four`, `{"a":"é`[:7], `{"a":"x","b":"ab`, `{"a":"x","b":"ab"`, `{"a":"x","b":"ab","`, `{"a":"x","b":"ab","name":"x","`, `{"a":"x","b":"ab","c":[1`} {
		m := g.NewMatcher()
		for _, b := range []byte(text) {
			for id := range int32(v.Size()) {
				if p := v.Piece(id); len(p) == 1 && p[0] == b {
					m.Accept(id)
				}
			}
		}
		w := walker{v: v}
		for _, left := range []int{m.Distance() + 1, 1000} {
			w.compare(t, m, []byte(text), ids(m.Mask(left)), left)
		}
	}
}

// Branches that are not equally far from their end are told apart: one that needs more
// characters is not nearer to it than one that needs none.
func TestMask_Apart(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, schema := range []string{
		`{"anyOf":[{"type":"string","minLength":4,"maxLength":9},{"type":"string","maxLength":4}]}`,
		`{"anyOf":[{"type":"string","maxLength":4},{"type":"string","minLength":4},{"type":"string","pattern":"^[ab]{3,}$"},{"enum":["abcdef"]}]}`,
		`{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"string","minLength":2,"pattern":"b$"}]},"minItems":2}`,
		`{"anyOf":[{"type":"object","properties":{"a":{"type":"string","minLength":5}},"required":["a"]},{"type":"object","additionalProperties":{"type":"string"}}]}`,
	} {
		g, err := grammar.Schema(small(), []byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		w := walker{v: small(), choose: r.IntN, what: "\nof " + schema, exact: true}
		for i := range 24 {
			w.walk(t, g, g.Least()+i%8)
		}
	}
}
