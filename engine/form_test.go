package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/sample"
)

// follow gives a constraint a text token by token, the longest first, and returns what
// it did not allow, "" for nothing. left is the tokens that may come.
func follow(t *testing.T, v *grammar.Vocab, c sample.Constraint, text string, left int) string {
	t.Helper()
	for text != "" {
		if c.Done() {
			return text
		}
		best := int32(-1)
		for id := range int32(v.Size()) {
			p := string(v.Piece(id))
			if p == "" || !strings.HasPrefix(text, p) || !c.Allows(id, left) {
				continue
			}
			if mask := c.Mask(left); mask[id/64]>>(id%64)&1 == 0 {
				t.Fatalf("%q is allowed and not in the mask before %q", p, text)
			}
			if best < 0 || len(p) > len(v.Piece(best)) {
				best = id
			}
		}
		if best < 0 {
			return text
		}
		c.Accept(best)
		text = text[len(v.Piece(best)):]
		left--
	}
	return ""
}

func schema(t *testing.T, v *grammar.Vocab, text string) *grammar.Grammar {
	t.Helper()
	g, err := grammar.Schema(v, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func vocab(t *testing.T, e *engine.Engine) *grammar.Vocab {
	t.Helper()
	v, err := e.Vocab()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What the forms allow, by their texts.
func TestForm(t *testing.T) {
	t.Parallel()
	v := vocab(t, open(t, tiny(t), small()))
	number, list := schema(t, v, `{"enum":[1,27]}`), schema(t, v, `{"enum":[[1],["<call>"]]}`)
	either := engine.Form{Grammar: number, Else: list}
	marked := engine.Form{Grammar: number, Marker: "<call>", Vocab: v}
	twice := engine.Form{Grammar: number, Marker: "aab", Vocab: v}
	within := engine.Form{Grammar: number, Marker: "<t", Vocab: v} // "th" and "the" are tokens, too
	never := engine.Form{Marker: "<call>", Vocab: v}
	for _, c := range []struct {
		name string
		form engine.Form
		text string
		left int
		rest string // what is not allowed of it
		done bool
	}{
		{"either the first", either, `27`, 9, "", true},
		{"either the second", either, `["<call>"]`, 20, "", true},
		{"neither", either, `28`, 9, "8", false},
		{"not both", either, `[27]`, 9, "27]", false},
		{"only what fits", either, `[1]`, 2, "[1]", false},
		{"the other way fits", either, `1`, 1, "", true},
		{"text", marked, `Hello the <cal> and <call <`, 90, "", false},
		{"marked", marked, `So: <call>27`, 90, "", true},
		{"not behind the mark", marked, `<call> 27`, 90, " 27", false},
		{"begun again", marked, `<ca<call>27`, 90, "", true},
		{"only one value", marked, `<call>27<call>27`, 90, "<call>27", true},
		{"a mark that fits with its value", marked, `<call>1`, 6, "", true}, // "ll" is a token
		{"no mark without room", marked, `<call>1`, 5, ">1", false},
		{"a mark that begins in itself", twice, `aaaab27`, 90, "", true},
		{"a mark ends with its token", within, `I <the`, 90, "he", false},
		{"never", never, `a <call b <call>`, 90, ">", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := c.form.Constraint()
			if rest := follow(t, v, k, c.text, c.left); rest != c.rest {
				t.Errorf("of %q is not allowed %q, want %q", c.text, rest, c.rest)
			}
			if k.Done() != c.done {
				t.Errorf("Done after %q is %t", c.text, k.Done())
			}
		})
	}
}

// An answer that MaxTokens had a say in ends with length, one that is what the model
// wanted with stop, also if it took all of them.
func TestForm_Cut(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	v := vocab(t, e)
	id := func(text string) int32 {
		for id := range int32(v.Size()) {
			if string(v.Piece(id)) == text {
				return id
			}
		}
		t.Fatalf("no token %q", text)
		return 0
	}
	const most = 100
	for _, c := range []struct {
		name, schema string
		tokens       int
		bias         map[int32]float64
		text         string
		finish       engine.Finish
	}{
		{"forced", `{"const":[12]}`, 4, nil, `[12]`, engine.FinishStop},
		{"with room", `{"type":"string","maxLength":2}`, 30, map[int32]float64{id("z"): most}, `"zz"`, engine.FinishStop},
		{"cut", `{"type":"string"}`, 6, map[int32]float64{id("z"): most}, `"zzzz"`, engine.FinishLength},
		{"cut where it could go on", `{"enum":[7,[7,7,7]]}`, 2, map[int32]float64{id("["): most}, `7`, engine.FinishLength},
		{"cut where it may end", `{"enum":[7,7777]}`, 2, map[int32]float64{id("7"): most}, `7`, engine.FinishLength},
		{"its own end", `{"type":"integer"}`, 30, map[int32]float64{id("7"): 50, 2: most}, `7`, engine.FinishStop},
		{"all of them", `{"type":"integer"}`, 3, map[int32]float64{id("7"): most}, `777`, engine.FinishLength},
	} {
		g := schema(t, v, c.schema)
		text, last, err := collect(e.Generate(t.Context(), engine.Request{
			Prompt: prompt(9, 0), MaxTokens: c.tokens, LogitBias: c.bias, Constraint: engine.Form{Grammar: g}.Constraint,
		}))
		if err != nil || text != c.text || last.Finish != c.finish {
			t.Errorf("%s: %q ends with %s after %d tokens, %v; want %q, %s", c.name, text, last.Finish, last.Generated, err, c.text, c.finish)
		}
	}
}

// Lead bears on the first token only, and on that of every choice.
func TestForm_Lead(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	first := map[int]int32{}
	others := map[int32]int{}
	for tok, err := range e.Generate(t.Context(), engine.Request{
		Prompt: prompt(20, 0), MaxTokens: 20, Choices: 4, Temperature: 1, TopP: 1, Lead: map[int32]float64{40: 100},
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := first[tok.Choice]; !ok {
			first[tok.Choice] = tok.ID
			continue
		}
		others[tok.ID]++
	}
	for c := range 4 {
		if first[c] != 40 {
			t.Errorf("choice %d begins with %d", c, first[c])
		}
	}
	if len(others) < 5 || others[40] > 20 {
		t.Errorf("behind it come %v", others)
	}
}

// Whatever is drawn, what is held to a form of values is one, and determined by the
// seed alone: beside others, with other threads, and behind a cached prompt.
func TestForm_Invariant(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	var want []string
	for _, threads := range []int{1, 2} {
		e := open(t, path, engine.Options{Threads: threads, KVBytes: 8 << 20})
		v := vocab(t, e)
		object := schema(t, v, `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"integer"}}},"required":["a"],"additionalProperties":false}`)
		calls, err := grammar.Calls(v, grammar.CallOptions{Tools: []grammar.Tool{{Name: "f", Parameters: []byte(`{"properties":{"x":{"type":"number"}}}`)}}, Most: 3, Open: "<call>", Between: ",", Close: "</call>"})
		if err != nil {
			t.Fatal(err)
		}
		request := func(i int) engine.Request {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			f := []engine.Form{{Grammar: object}, {Grammar: calls, Else: object}, {Grammar: object, Marker: "th", Vocab: v}, {Marker: "an", Vocab: v}}[i%4]
			return engine.Request{
				Owner: "one", Prompt: prompt(40+i, i%3), MaxTokens: 60 + r.IntN(40), Temperature: 2 * r.Float64(), TopP: r.Float64(), Seed: r.Uint64(),
				FrequencyPenalty: float64(i % 2), LogitBias: map[int32]float64{int32(3 + r.IntN(250)): 20}, Lead: map[int32]float64{63: 3}, Constraint: f.Constraint,
			}
		}
		const n = 16
		texts := make([]string, n)
		for i := range n {
			text, _, err := collect(e.Generate(t.Context(), request(i)))
			if err != nil {
				t.Fatal(err)
			}
			if i%4 == 0 && !json.Valid([]byte(text)) {
				t.Errorf("request %d gives %q", i, text)
			}
			texts[i] = text
		}
		if want == nil {
			want = texts
		}
		if !slices.Equal(texts, want) {
			t.Errorf("%d threads give\n%q, one gives\n%q", threads, texts, want)
		}
		var wg sync.WaitGroup
		for i := range n {
			for _, owner := range []string{"one", fmt.Sprint(i)} {
				wg.Go(func() {
					r := request(i)
					r.Owner = owner
					text, last, err := collect(e.Generate(t.Context(), r))
					if err != nil || text != want[i] || (last.Cached > 0) != (owner == "one") {
						t.Errorf("request %d of %s, %d tokens cached: %q, %v, want %q", i, owner, last.Cached, text, err, want[i])
					}
				})
			}
		}
		wg.Wait()
	}
}
