package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/local"
	"github.com/parley-ai/parley/internal/wire"
)

// scripted is an engine that says what the test wants, each attempt another thing, each
// token with its log-probability. All but the first find the prompt in the cache. What is
// asked of it is kept.
type scripted struct {
	local.Engine
	attempts [][][]string // by choice, the pieces
	finish   engine.Finish
	asked    []engine.Request
}

func (s *scripted) Generate(_ context.Context, r engine.Request) iter.Seq2[engine.Token, error] {
	choices, cached := s.attempts[min(len(s.asked), len(s.attempts)-1)], 16*min(len(s.asked), 1)
	s.asked = append(s.asked, r)
	return func(yield func(engine.Token, error) bool) {
		for c, pieces := range choices {
			for i, p := range pieces {
				t := engine.Token{Choice: c, Text: p, Generated: i + 1, Cached: cached}
				t.Logprobs = []engine.Logprob{{Candidate: engine.Candidate{Bytes: []byte(p)}}}
				if i == len(pieces)-1 {
					t.Finish = s.finish
				}
				if !yield(t, nil) {
					return
				}
			}
		}
	}
}

// said is what has come of one choice.
type said struct {
	text   string
	calls  []string // name and arguments
	finish wire.FinishReason
	scored string // the tokens that have log-probabilities
	cached int
}

// answer makes a call of p and puts its choices together.
func answer(t *testing.T, p *local.Provider, req *wire.ChatRequest, seed uint64) (choices []said, completion int) {
	t.Helper()
	choices = make([]said, req.N)
	ids := map[string]bool{}
	err := p.Generate(t.Context(), &upstream.Call{Owner: "a", Request: req, MaxTokens: 100, Seed: seed}, func(e upstream.Event) error {
		c := &choices[e.Choice]
		if c.finish != "" {
			t.Errorf("choice %d goes on with %+v", e.Choice, e)
		}
		c.text += e.Text
		for _, l := range e.Logprobs {
			c.scored += l.Token
		}
		c.cached = e.Cached
		if d := e.Tool; d != nil {
			if (d.Name != "") != (d.Index == len(c.calls)) || (d.ID != "") != (d.Name != "") || ids[d.ID] && d.ID != "" {
				t.Errorf("delta %+v after %q", d, c.calls)
			}
			if d.Name != "" {
				c.calls, ids[d.ID] = append(c.calls, d.Name+" "), true
			}
			c.calls[d.Index] += d.Arguments
		}
		if e.Completion < completion {
			t.Errorf("%d tokens after %d", e.Completion, completion)
		}
		c.finish, completion = e.Finish, e.Completion
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return choices, completion
}

func ask(mode wire.ToolMode, format wire.FormatKind, stop ...string) *wire.ChatRequest {
	r := request("Hello")
	r.ResponseFormat.Kind, r.Stop, r.ToolChoice.Mode, r.ParallelToolCalls = format, stop, mode, true
	if mode != "" {
		r.Tools = []wire.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{"s":{"type":"string"}}}`)}, {Name: "g"}}
	}
	return r
}

// What the model writes becomes text or calls, however its tokens cut it.
func TestGenerate_Said(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	const f, g = `{"name": "f", "arguments": {"s":"<x>"}}`, `{"name": "g", "arguments": {}}`
	fSaid, gSaid := `f {"s":"<x>"}`, `g {}`
	for _, c := range []struct {
		name   string
		req    *wire.ChatRequest
		text   string
		finish engine.Finish
		want   said
	}{
		{"text", ask(wire.ToolAuto, ""), `Hello <you>`, "stop", said{text: `Hello <you>`, finish: "stop"}},
		{"call", ask(wire.ToolAuto, ""), `<tool_call>` + f + `</tool_call>`, "stop", said{text: "", calls: []string{fSaid}, finish: "tool_calls"}},
		{"words and a call", ask(wire.ToolAuto, ""), `I look.<tool_call>` + f + `</tool_call>`, "stop", said{text: "I look.", calls: []string{fSaid}, finish: "tool_calls"}},
		{"two calls", ask(wire.ToolAuto, ""), "<tool_call>" + f + "</tool_call>\n<tool_call>" + g + "</tool_call>", "length", said{text: "", calls: []string{fSaid, gSaid}, finish: "tool_calls"}},
		{"like the mark", ask(wire.ToolAuto, ""), `<tool_<tool_cal1> <<tool_call`, "length", said{text: `<tool_<tool_cal1> <<tool_call`, finish: "length"}},
		{"the mark's beginning at the end", ask(wire.ToolAuto, ""), `a <tool_cal`, "length", said{text: `a <tool_cal`, finish: "length"}},
		{"stop before a call", ask(wire.ToolAuto, "", "nd"), `The end<tool_call>` + f + `</tool_call>`, "stop", said{text: "The e", finish: "stop"}},
		{"stop within arguments", ask(wire.ToolAuto, "", "<x"), `<tool_call>` + f + `</tool_call>`, "stop", said{text: "", calls: []string{fSaid}, finish: "tool_calls"}},
		{"stop that begins like the mark", ask(wire.ToolAuto, "", "<tool_"), `a <tool_box>`, "stop", said{text: `a `, finish: "stop"}},
		{"required", ask(wire.ToolRequired, ""), `<tool_call>` + g + `</tool_call>`, "length", said{text: "", calls: []string{gSaid}, finish: "tool_calls"}},
		{"none", ask(wire.ToolNone, ""), `a <tool_cal and so on`, "stop", said{text: `a <tool_cal and so on`, finish: "stop"}},
		{"value or call: call", ask(wire.ToolAuto, wire.FormatJSONObject), `<tool_call>` + f + `</tool_call>`, "stop", said{text: "", calls: []string{fSaid}, finish: "tool_calls"}},
		{"value or call: value", ask(wire.ToolAuto, wire.FormatJSONObject), `{"a":"<tool_call>` + `{\"name\""}`, "stop", said{text: `{"a":"<tool_call>{\"name\""}`, finish: "stop"}},
		{"value", ask("", wire.FormatJSONObject), `{"a":1}`, "length", said{text: `{"a":1}`, finish: "length"}},
		{"stop within a value", ask("", wire.FormatJSONObject, "never", "STOP"), `{"a":["b STOP c"]}`, "length", said{text: `{"a":["b "]}`, finish: "stop"}},
		{"stop between", ask("", wire.FormatJSONObject, ","), `{"a":1,"b":2}`, "stop", said{text: `{"a":1}`, finish: "stop"}},
		{"stop at once", ask("", wire.FormatJSONObject, "{"), `{"a":1}`, "stop", said{text: `{}`, finish: "stop"}},
		{"stop within an escape", ask("", wire.FormatJSONObject, "u0041"), `{"a":"\u0041"}`, "stop", said{text: `{"a":"\""}`, finish: "stop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(c.text); size++ {
				var pieces []string
				for piece := range slices.Chunk([]byte(c.text), size) {
					pieces = append(pieces, string(piece))
				}
				s := &scripted{Engine: e, attempts: [][][]string{{pieces}}, finish: c.finish}
				got, _ := answer(t, local.New(s), c.req, 3)
				if g := got[0]; g.text != c.want.text || g.finish != c.want.finish || !slices.Equal(g.calls, c.want.calls) {
					t.Fatalf("in pieces of %d it says %+v, want %+v", size, g, c.want)
				}
			}
		})
	}
}

// What the grammar does not enforce is checked, and made again: the first attempt that is
// valid counts for each choice, the tokens of the others are nobody's.
func TestGenerate_Checked(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	bad, good, longer := []string{`[1`, `,1`, `]`}, []string{`[1`, `,2]`}, []string{`[`, `3`, `,`, `4`, `]`}
	for _, c := range []struct {
		name       string
		attempts   [][][]string
		temps      []float64
		texts      string
		completion int
	}{
		{"at once", [][][]string{{good, longer}}, []float64{0}, "[1,2] [3,4]", 7},
		{"one of two", [][][]string{{good, bad}, {longer, longer}}, []float64{0, 1}, "[1,2] [3,4]", 7},
		{"at the last", [][][]string{{bad, bad}, {bad, good}, {bad, bad}, {longer, bad}}, []float64{0, 1, 1, 1}, "[3,4] [1,2]", 7},
		{"never", [][][]string{{bad, bad}}, []float64{0, 1, 1, 1}, "[1,1] [1,1]", 6},
	} {
		s := &scripted{Engine: e, attempts: c.attempts, finish: "stop"}
		req := ask("", wire.FormatJSONSchema)
		req.N, req.Temperature = 2, 0
		req.ResponseFormat.Name, req.ResponseFormat.Schema = "list", json.RawMessage(`{"type":"array","items":{"type":"integer"},"uniqueItems":true}`)
		got, completion := answer(t, local.New(s), req, 100)
		if texts := got[0].text + " " + got[1].text; texts != c.texts || completion != c.completion {
			t.Errorf("%s: %q with %d tokens, want %q with %d", c.name, texts, completion, c.texts, c.completion)
		}
		if got[0].cached+got[1].cached > 0 { // another attempt finds what the first has computed
			t.Errorf("%s: %d and %d tokens of the prompt are said to be cached", c.name, got[0].cached, got[1].cached)
		}
		var temps []float64
		seeds := map[uint64]bool{}
		for _, r := range s.asked {
			temps, seeds[r.Seed] = append(temps, r.Temperature), true
		}
		if !slices.Equal(temps, c.temps) || len(seeds) != len(temps) {
			t.Errorf("%s: asked with temperatures %v and seeds %v", c.name, temps, seeds)
		}
	}
}

// What is shown of the model's words has log-probabilities, a stop string and what closes
// a value have none, however tokens cut the text: each comes with the beginning of its
// token.
func TestGenerate_Scored(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	for _, c := range []struct {
		name   string
		req    *wire.ChatRequest
		pieces []string
		text   string
		scored string
	}{
		{"value", ask("", wire.FormatJSONObject), []string{`{"`, `a`, `":`, `1}`}, `{"a":1}`, `{"a":1}`},
		{"stop within a value", ask("", wire.FormatJSONObject, "STOP"), []string{`{"`, `a`, `":"`, `b`, `S`, `TO`, `P`}, `{"a":"b"}`, `{"a":"b`},
		{"stop within a token", ask("", wire.FormatJSONObject, "STOP"), []string{`{"a":"`, `bST`, `OP c`}, `{"a":"b"}`, `{"a":"bST`},
		{"stop that begins twice", ask(wire.ToolAuto, "", "STOP"), []string{"a", "S", "S", "TOP"}, "aS", "aS"},
		{"no stop after all", ask(wire.ToolAuto, "", "STOP"), []string{"a", "ST", "O", "p"}, "aSTOp", "aSTOp"},
		{"token without text", ask(wire.ToolNone, "", "STOP"), []string{"", "a", "", "ST", "", "OP"}, "a", "a"},
		{"call behind words", ask(wire.ToolAuto, ""), []string{"a ", "<tool", "_call>", `{"name": "g", "arguments": {}}`, "</tool_call>"}, "a ", "a "},
		{"nearly a call", ask(wire.ToolAuto, ""), []string{"a ", "<tool", "_ca", "r>"}, "a <tool_car>", "a <tool_car>"},
	} {
		s := &scripted{Engine: e, attempts: [][][]string{{c.pieces}}, finish: "stop"}
		got, _ := answer(t, local.New(s), c.req, 3)
		if got[0].text != c.text || got[0].scored != c.scored {
			t.Errorf("%s: it says %q with log-probabilities of %q, want %q and %q", c.name, got[0].text, got[0].scored, c.text, c.scored)
		}
	}
}

// A schema that is not strict is not refused for a pattern that no part of this program can
// hold to, nor for one that only the grammar can, beside a keyword that only a check can.
func TestCountPrompt_Patterns(t *testing.T) {
	t.Parallel()
	p, _ := open(t, engine.Options{})
	for _, c := range []struct {
		pattern string
		refused bool
	}{
		{`^(?=.*[0-9])[a-z0-9]{8,}$`, false},
		{`^(?!x)(?<=y)(?<!z)a`, false},
		{`(a)\\1`, false},
		{`^[\\u4e00-\\u9fff]+$`, false},
		{`^\\p{L}+\\b`, false},
		{`^[a`, true},
		{`a)`, true},
	} {
		req := ask("", wire.FormatJSONSchema)
		req.ResponseFormat.Schema = json.RawMessage(`{"type":"array","items":{"type":"string","pattern":"` + c.pattern + `"},"uniqueItems":true}`)
		_, err := p.CountPrompt(req, 1000)
		switch e, refused := errors.AsType[*wire.Error](err); {
		case !c.refused && err != nil:
			t.Errorf("%s is refused: %v", c.pattern, err)
		case c.refused && (!refused || strings.Contains(e.Message, "file:")):
			t.Errorf("%s: %v, want a refusal that names no file", c.pattern, err)
		}
	}
}

// Nor is it for words of draft 7, or of draft 3, beside a keyword that only a check can hold
// to: what is made is valid in all that the check knows.
func TestGenerate_CheckedDrafts(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	for _, c := range []struct{ name, schema, bad, good string }{
		{"draft 7", `{"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"integer"},"uniqueItems":true}`, `[1,1]`, `[1,2]`},
		{"draft 2020-12", `{"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"integer"},"uniqueItems":true}`, `[1,1]`, `[1,2]`},
		{"draft 3", `{"type":"object","properties":{"required":{"type":"array","uniqueItems":true,"required":true}}}`, `{"required":[1,1]}`, `{"required":[1,2]}`},
		{"draft 3 in constants", `{"enum":[{"required":true},{"required":false}],"not":{"const":{"required":false}}}`, `{"required":false}`, `{"required":true}`},
	} {
		s := &scripted{Engine: e, attempts: [][][]string{{{c.bad}}, {{c.good}}}, finish: "stop"}
		req := ask("", wire.FormatJSONSchema)
		req.ResponseFormat.Schema = json.RawMessage(c.schema)
		if got, _ := answer(t, local.New(s), req, 3); got[0].text != c.good {
			t.Errorf("%s: it says %q, want %q", c.name, got[0].text, c.good)
		}
	}
}

// crowded is an engine that has room for the first attempt only.
type crowded struct {
	scripted
	leave context.CancelCauseFunc // not nil: the caller leaves while the second one waits
}

var errLeft = errors.New("left")

func (c *crowded) Generate(ctx context.Context, r engine.Request) iter.Seq2[engine.Token, error] {
	if len(c.asked) == 0 {
		return c.scripted.Generate(ctx, r)
	}
	return func(yield func(engine.Token, error) bool) {
		if c.leave == nil {
			yield(engine.Token{}, engine.ErrBusy)
			return
		}
		c.leave(errLeft)
		yield(engine.Token{}, fmt.Errorf("%w: %w", engine.ErrNotStarted, ctx.Err()))
	}
}

// Where another attempt finds no room the one that was made is shown, and who leaves while
// it waits leaves a call that had started.
func TestGenerate_CheckedCrowded(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	req := ask("", wire.FormatJSONSchema)
	req.ResponseFormat.Schema = json.RawMessage(`{"type":"array","items":{"type":"integer"},"uniqueItems":true}`)
	made := scripted{Engine: e, attempts: [][][]string{{{`[1,1]`}}}, finish: "stop"}
	if got, completion := answer(t, local.New(&crowded{scripted: made}), req, 3); got[0].text != `[1,1]` || got[0].finish != wire.FinishStop || completion != 1 {
		t.Errorf("it says %+v with %d tokens", got[0], completion)
	}
	ctx, leave := context.WithCancelCause(t.Context())
	err := local.New(&crowded{made, leave}).Generate(ctx, &upstream.Call{Owner: "a", Request: req, MaxTokens: 100}, func(upstream.Event) error { return nil })
	if !errors.Is(err, errLeft) || errors.Is(err, upstream.ErrNotStarted) {
		t.Errorf("who leaves before another attempt is told %v", err)
	}
}

// The real thing: most lists of a random model have something twice.
func TestGenerate_CheckedTools(t *testing.T) {
	t.Parallel()
	p, _ := open(t, engine.Options{})
	req := ask(wire.ToolRequired, "")
	req.Tools = []wire.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{"l":{"type":"array","items":{"enum":[1,2,3]},"minItems":2,"maxItems":2,"uniqueItems":true}},"required":["l"]}`)}}
	req.ParallelToolCalls = false
	unique := 0
	for seed := range uint64(40) {
		got, _ := answer(t, p, req, 100*seed)
		if len(got[0].calls) != 1 {
			t.Fatalf("it says %+v", got[0])
		}
		var args struct{ L []int }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(got[0].calls[0], "f ")), &args); err != nil || len(args.L) != 2 {
			t.Fatalf("it calls %q: %v", got[0].calls, err)
		}
		if args.L[0] != args.L[1] {
			unique++
		}
	}
	if unique < 35 { // one in 81 misses four times
		t.Errorf("only %d of 40 obey", unique)
	}
}

// Words are due behind a result, and when no tool may be called; else an answer that may
// be a call leans towards it, or away from one that does not fit.
func TestGenerate_Lead(t *testing.T) {
	t.Parallel()
	_, e := open(t, engine.Options{})
	again := ask(wire.ToolAuto, "")
	again.Messages = append(again.Messages, wire.Message{Role: wire.RoleAssistant, ToolCalls: []wire.ToolCall{{ID: "1", Name: "g"}}}, wire.Message{Role: wire.RoleTool, ToolCallID: "1", Content: "noon"})
	for _, c := range []struct {
		name   string
		req    *wire.ChatRequest
		tokens int
		leans  float64
	}{
		{"auto", ask(wire.ToolAuto, ""), 100, 3},
		{"auto or a value", ask(wire.ToolAuto, wire.FormatJSONObject), 100, 3},
		{"required", ask(wire.ToolRequired, ""), 100, 0},
		{"none", ask(wire.ToolNone, ""), 100, 0},
		{"plain", ask("", ""), 100, 0},
		{"behind a result", again, 100, 0},
		{"no room for a call", ask(wire.ToolAuto, ""), 20, -100},
		{"no room for a call, but for a value", ask(wire.ToolAuto, wire.FormatJSONObject), 20, -100},
	} {
		s := &scripted{Engine: e, attempts: [][][]string{{{"Hello"}}}, finish: "stop"}
		call := &upstream.Call{Owner: "a", Request: c.req, MaxTokens: c.tokens, Seed: 3}
		if err := local.New(s).Generate(t.Context(), call, func(upstream.Event) error { return nil }); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		sum := 0.0
		for _, bias := range s.asked[0].Lead {
			sum += bias
		}
		if sum != c.leans {
			t.Errorf("%s: Lead is %v, want %v", c.name, s.asked[0].Lead, c.leans)
		}
	}
}
