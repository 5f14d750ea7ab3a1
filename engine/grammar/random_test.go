package grammar_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/grammar/grammartest"
)

type dict = map[string]any

// TestRandom_Sound: whatever is chosen, what is written is valid.
func TestRandom_Sound(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	compiled, strict := 0, 0
	for i := range 600 {
		a := grammartest.New(uint64(i), 5)
		schema := a.Document()
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
		a := grammartest.New(uint64(i), 6)
		schema := a.Document()
		lib, ok := library(schema)
		if !ok {
			t.Fatalf("the library does not take %s", schema)
		}
		if strings.Contains(string(schema), `"format"`) {
			continue // narrower than what is valid
		}
		g, err := grammar.Schema(small(), schema)
		for range 40 {
			value := a.Value(3)
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
