package grammar_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/engine/grammar"
)

var tools = []grammar.Tool{
	{Name: "get", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["c","f"]}},"required":["city"],"additionalProperties":false}`)},
	{Name: "get_time"},
	{Name: "free", Parameters: []byte(`{"type":"object"}`)},
	{Name: "any", Parameters: []byte(`true`)},
}

func TestCalls(t *testing.T) {
	t.Parallel()
	array := grammar.CallOptions{Tools: tools, Most: 3, Open: "[", Between: ", ", Close: "]"}
	tags := grammar.CallOptions{Tools: tools, Most: 2, Open: "<tool_call>\n", Between: "\n</tool_call>\n<tool_call>\n", Close: "\n</tool_call>"}
	lines := grammar.CallOptions{Tools: tools, Most: 2, Between: "\n"}
	const get, now = `{"name": "get", "arguments": {"city": "x"}}`, `{"name": "get_time", "arguments": {}}`
	for _, tt := range []struct {
		name    string
		options grammar.CallOptions
		yes, no []string
	}{
		{"one", grammar.CallOptions{Tools: tools}, []string{
			get, now, `{"name": "get", "arguments": {"city":"","unit":"f"}}`, `{"name": "any", "arguments": {"a":[1]}}`,
		}, []string{
			`{}`, `{"name": "get", "arguments": {}}`, `{"name": "gets", "arguments": {}}`, `{"name": "get_time", "arguments": {"a":1}}`,
			`{"name": "get_time", "arguments": {}`, `{"name": "any", "arguments": []}`, get + get, get + "\n" + get,
		}},
		{"named", grammar.CallOptions{Tools: tools[1:2]}, []string{now}, []string{get}},
		{"array", array, []string{"[" + get + "]", "[" + get + ", " + now + "]", "[" + now + ", " + now + ", " + now + "]"}, []string{
			get, "[" + get, "[]", "[" + get + ",]", "[" + now + ", " + now + ", " + now + ", " + now + "]",
		}},
		{"tags", tags, []string{"<tool_call>\n" + get + "\n</tool_call>", "<tool_call>\n" + get + "\n</tool_call>\n<tool_call>\n" + now + "\n</tool_call>"}, []string{"<tool_call>\n" + get + "\n</tool_call>\n"}},
		{"lines", lines, []string{get, get + "\n" + now}, []string{get + "\n", get + now, get + "\n" + now + "\n" + get}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, err := grammar.Calls(small(), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range tt.yes {
				if !accepts(small(), g, text) {
					t.Errorf("does not accept %s", text)
				}
			}
			for _, text := range tt.no {
				if accepts(small(), g, text) {
					t.Errorf("accepts %s", text)
				}
			}
			r := rand.New(rand.NewPCG(11, 12))
			for i := range 60 {
				w := walker{v: small(), choose: r.IntN, exact: i%10 == 0}
				scanned(t, tt.options, w.walk(t, g, g.Least()+i), r)
			}
		})
	}
}

// scanned takes a text through a scanner in random parts, and checks each call.
func scanned(t *testing.T, o grammar.CallOptions, text string, r *rand.Rand) {
	t.Helper()
	s := grammar.NewCallScanner(o)
	var names, args []string
	var rebuilt strings.Builder
	rebuilt.WriteString(o.Open)
	for rest := text; rest != ""; {
		n := 1 + r.IntN(min(len(rest), 9))
		for _, p := range s.Push(rest[:n]) {
			if p.Name != "" {
				if p.Arguments != "" || p.Index != len(names) {
					t.Fatalf("%q: piece %+v after %d calls", text, p, len(names))
				}
				names, args = append(names, p.Name), append(args, "")
				continue
			}
			if p.Arguments == "" || p.Index != len(names)-1 {
				t.Fatalf("%q: piece %+v after %d calls", text, p, len(names))
			}
			args[p.Index] += p.Arguments
		}
		rest = rest[n:]
	}
	for i, name := range names {
		if i > 0 {
			rebuilt.WriteString(o.Between)
		}
		rebuilt.WriteString(`{"name": "` + name + `", "arguments": ` + args[i] + "}")
		if !json.Valid([]byte(args[i])) || args[i][0] != '{' {
			t.Fatalf("%q: arguments %q", text, args[i])
		}
		for _, tool := range o.Tools {
			if tool.Name == name && tool.Parameters == nil && args[i] != "{}" {
				t.Fatalf("%q: arguments %q of a tool that has none", text, args[i])
			}
			if tool.Name != name || tool.Parameters == nil {
				continue
			}
			lib, ok := library(tool.Parameters)
			if !ok {
				t.Fatalf("the library does not take %s", tool.Parameters)
			}
			if err := valid(lib, args[i]); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	}
	if rebuilt.WriteString(o.Close); len(names) == 0 || rebuilt.String() != text {
		t.Fatalf("the scanner saw %q in %q", rebuilt.String(), text)
	}
}

func TestCalls_Errors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		options grammar.CallOptions
		path    string
	}{
		{"none", grammar.CallOptions{}, ""},
		{"twice", grammar.CallOptions{Tools: []grammar.Tool{{Name: "a"}, {Name: "b"}, {Name: "a"}}}, "/2"},
		{"no object", grammar.CallOptions{Tools: []grammar.Tool{{Name: "a"}, {Name: "b", Parameters: []byte(`{"type":"string"}`)}}}, ""},
		{"bad schema", grammar.CallOptions{Tools: []grammar.Tool{{Name: "a"}, {Name: "b", Parameters: []byte(`{"properties":{"x":{"type":"y"}}}`)}}}, "/1/properties/x/type"},
		{"nothing between", grammar.CallOptions{Tools: tools, Most: 2}, ""},
	} {
		_, err := grammar.Calls(small(), tt.options)
		var e *grammar.Error
		if tt.name == "no object" {
			// The other tool can still be called.
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if !errors.As(err, &e) || e.Path != tt.path {
			t.Errorf("%s: error %v, want one at %q", tt.name, err, tt.path)
		}
	}
}

func TestCalls_Unknown(t *testing.T) {
	t.Parallel()
	g, err := grammar.Calls(small(), grammar.CallOptions{Tools: []grammar.Tool{
		{Name: "a"},
		{Name: "b", Parameters: []byte(`{"type":"object","properties":{"x":{"not":{}}}}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/1/properties/x/not"}, g.Unknown()); diff != "" {
		t.Error(diff)
	}
}

// References of a tool lead into its own schema.
func TestCalls_References(t *testing.T) {
	t.Parallel()
	schema := func(kind string) []byte {
		return []byte(`{"type":"object","properties":{"v":{"$ref":"#/$defs/t"}},"required":["v"],"$defs":{"t":{"type":"` + kind + `"}}}`)
	}
	g, err := grammar.Calls(small(), grammar.CallOptions{Tools: []grammar.Tool{{Name: "a", Parameters: schema("integer")}, {Name: "b", Parameters: schema("string")}}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{"name": "a", "arguments": {"v":1}}`: true, `{"name": "b", "arguments": {"v":"x"}}`: true,
		`{"name": "a", "arguments": {"v":"x"}}`: false, `{"name": "b", "arguments": {"v":1}}`: false,
	} {
		if got := accepts(small(), g, text); got != want {
			t.Errorf("accepts %s: %t", text, got)
		}
	}
}

// Text that no grammar of calls has gives no pieces, and no panic.
func TestCallScanner_Strange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "hello", `{"name": 5}`, `{"name": "a", "arguments": 5}}}}`, `{"name": "\`, strings.Repeat(`{`, 100), `{"name": "\uZZZZ", "arguments": {}}`} {
		s := grammar.NewCallScanner(grammar.CallOptions{})
		for _, p := range s.Push(text) {
			if p.Name != "a" && p.Arguments == "" {
				t.Errorf("%q gives %+v", text, p)
			}
		}
	}
}
