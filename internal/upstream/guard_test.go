package upstream_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// guarded is what a guard shows of text in pieces of n bytes.
func guarded(g *upstream.JSONGuard, text string, n int) string {
	var shown strings.Builder
	for i := 0; i < len(text); i += n {
		shown.WriteString(g.Push(text[i:min(i+n, len(text))]))
	}
	return shown.String()
}

// TestJSONGuard_Finds has what models write around the JSON that they were asked for.
func TestJSONGuard_Finds(t *testing.T) {
	t.Parallel()
	object, schema := wire.ResponseFormat{Kind: wire.FormatJSONObject}, wire.ResponseFormat{Kind: wire.FormatJSONSchema}
	ofObject, ofTwo := schema, schema
	ofObject.Schema, ofTwo.Schema = []byte(`{"$id":"x","type":"object"}`), []byte(`{"type":["object","number"]}`)
	tests := []struct {
		format     wire.ResponseFormat
		text, want string // "" is none
	}{
		{object, `{"a":1}`, `{"a":1}`},
		{object, " \n{\"a\":[1, 2]}\n", `{"a":[1, 2]}`},
		{object, "```json\n{\"a\":\"```\"}\n```\nDone.", "{\"a\":\"```\"}"},
		{object, `Sure! {"a":{}} {"b":1}`, `{"a":{}}`},
		{object, `[{"a":1}]`, ""},
		{object, "Sure!", ""},
		{object, `Use {braces}.`, ""},
		{object, "", ""},
		{schema, "```json\n[1]\n```", "[1]"},
		{schema, ` "x" y`, `"x"`},
		{schema, "-0.5e+7\n", "-0.5e+7"},
		{schema, "true", "true"},
		{schema, "no", ""},
		{ofObject, `the answer: {"a":1}`, `{"a":1}`},
		{ofObject, `1. {"a":1}`, `{"a":1}`},
		{ofObject, "12", ""},
		{ofObject, "[{}]", ""},
		{ofTwo, "12 ", "12"},
	}
	for _, tt := range tests {
		for n := 1; n <= len(tt.text)+1; n++ {
			g := upstream.NewJSONGuard(&tt.format)
			got := guarded(g, tt.text, n)
			if !g.Whole() {
				got = ""
			}
			if got != tt.want {
				t.Errorf("%s %s of %q in pieces of %d is %q, want %q", tt.format.Kind, tt.format.Schema, tt.text, n, got, tt.want)
			}
		}
	}
}

// documents has every construct of JSON.
var documents = []string{
	`{"a":1,"b":[true,false,null],"c":{"d":"e"}}`,
	"{ \"a\" : [ -0.5e-7 , 10E+2 , 0 , 1.25 , -3 ] ,\n\t\"\" : { } , \"x\" : [ ] }",
	`{"q\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00":"\u0000é😀","z":",]}"}`,
	`[[[{"a":[{}]}],"x"],0]`, `"text"`, `-12.50`, `0`, `1e9`, `false`, ` null `,
}

// TestJSONGuard_Closes cuts documents everywhere: what was shown and what closes it parse,
// and nothing that was whole is lost.
func TestJSONGuard_Closes(t *testing.T) {
	t.Parallel()
	for _, doc := range documents {
		for cut := range len(doc) + 1 {
			for n := 1; n <= 7; n++ {
				g := upstream.NewJSONGuard(&wire.ResponseFormat{Kind: wire.FormatJSONSchema})
				shown := guarded(g, doc[:cut], n)
				rest, ok := g.Close()
				if !ok || !json.Valid([]byte(shown+rest)) || !strings.HasPrefix(strings.TrimLeft(doc, " "), shown) {
					t.Errorf("%q in pieces of %d shows %q and closes with %q, %v", doc[:cut], n, shown, rest, ok)
				}
				if cut == len(doc) && (rest != "" || shown != strings.Trim(doc, " ")) {
					t.Errorf("%q in pieces of %d shows %q and %q", doc, n, shown, rest)
				}
			}
		}
	}
	for cut, want := range map[string]string{
		`{"a":1,`: `{"a":1}`, "{\"a\":1 , \n": `{"a":1 }`, `{"a"`: `{"a":null}`, `{"a`: `{"a":null}`, `{"a":`: `{"a":null}`, `{"a":"x\`: `{"a":"x"}`,
		`{"a":"x\u00e`: `{"a":"x"}`, `{"a":[1.`: `{"a":[1.0]}`, `{"a":tr`: `{"a":true}`, "Sure": "{}", "": "{}", `{"a":1} and`: `{"a":1}`,
	} {
		g := upstream.NewJSONGuard(&wire.ResponseFormat{Kind: wire.FormatJSONObject})
		got := g.Push(cut)
		if rest, ok := g.Close(); !ok || got+rest != want {
			t.Errorf("%q is closed as %q, want %q", cut, got+rest, want)
		}
	}
}

// FuzzJSONGuard holds the guard to the standard library's idea of JSON: of a text that
// begins with a brace it takes all that is valid, and breaks on nothing that can still
// become so.
func FuzzJSONGuard(f *testing.F) {
	for _, doc := range documents {
		f.Add(doc)
	}
	for _, bad := range []string{`{"a":01}`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{"a":+1}`, "{\"a\":\"\n\"}", `{"a":"\x"}`, `{"a":"\u00g0"}`, `{"a":truE}`, `{"a":1]`, `{"a":.5}`, `{"a":1.e}`, `{"a":--1}`, `{1:2}`, `{"a":nul}`} {
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = "{" + strings.TrimPrefix(text, "{")
		g := upstream.NewJSONGuard(&wire.ResponseFormat{Kind: wire.FormatJSONObject})
		shown := guarded(g, text, 3)
		if json.Valid([]byte(text)) && (!g.Whole() || shown != strings.TrimRight(text, " \t\r\n")) {
			t.Fatalf("%q is JSON, and %q is shown, whole %v", text, shown, g.Whole())
		}
		if g.Whole() && !json.Valid([]byte(shown)) {
			t.Fatalf("%q is no JSON", shown)
		}
		rest, ok := g.Close()
		if ok == g.Broken() || ok && !json.Valid([]byte(shown+rest)) {
			t.Fatalf("%q shows %q and closes with %q, %v", text, shown, rest, ok)
		}
	})
}
