package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/gguf/gguftest"
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/grammar/grammartest"
	"github.com/parley-ai/parley/internal/upstream/local"
)

// calledJSON is a choice that may call tools. Members that must come once are pointers.
type calledJSON struct {
	Index          int
	Message, Delta struct {
		Content *string
		Calls   []callJSON `json:"tool_calls"`
	}
	Finish string `json:"finish_reason"`
}

type callJSON struct {
	Index    int
	ID       *string
	Type     *string
	Function *struct {
		Name      *string
		Arguments string
	}
}

// spoken is a choice put together.
type spoken struct {
	content, finish string
	calls           []spokenCall
}

type spokenCall struct{ id, name, arguments string }

// heard puts the choices of an answer together, whole or streamed, and checks that ids
// and names of calls come once and in order.
func heard(t *testing.T, r *reply) (choices []spoken, completion int) {
	t.Helper()
	type answer struct {
		Choices []calledJSON
		Usage   *struct {
			Completion int `json:"completion_tokens"`
		}
	}
	take := func(text string, of func(*calledJSON) ([]callJSON, *string)) {
		var a answer
		must(t, json.Unmarshal([]byte(text), &a))
		if a.Usage != nil {
			completion = a.Usage.Completion
		}
		for i := range a.Choices {
			c := &a.Choices[i]
			for c.Index >= len(choices) {
				choices = append(choices, spoken{})
			}
			to := &choices[c.Index]
			calls, content := of(c)
			if content != nil {
				to.content += *content
			}
			for at, call := range calls {
				to.add(t, r, at, call)
			}
			to.finish += c.Finish
		}
	}
	if r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r.Header.Get("Content-Type") == "application/json" {
		take(r.body, func(c *calledJSON) ([]callJSON, *string) {
			for i := range c.Message.Calls {
				c.Message.Calls[i].Index = i // a whole answer has none
			}
			return c.Message.Calls, c.Message.Content
		})
		return choices, completion
	}
	if !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Fatalf("the stream ends without [DONE]: %s", r.body)
	}
	for line := range strings.Lines(r.body) {
		if event, ok := strings.CutPrefix(strings.TrimSpace(line), "data: {"); ok {
			take("{"+event, func(c *calledJSON) ([]callJSON, *string) { return c.Delta.Calls, c.Delta.Content })
		}
	}
	return choices, completion
}

// add takes a piece of a call.
func (s *spoken) add(t *testing.T, r *reply, at int, c callJSON) {
	t.Helper()
	switch {
	case c.Function == nil:
		t.Fatalf("piece %d has no function: %s", at, r.body)
	case c.Index == len(s.calls):
		if c.ID == nil || c.Type == nil || c.Function.Name == nil || *c.ID == "" || *c.Type != "function" {
			t.Fatalf("call %d begins without id, type or name: %s", c.Index, r.body)
		}
		s.calls = append(s.calls, spokenCall{id: *c.ID, name: *c.Function.Name})
	case c.Index != len(s.calls)-1 || c.ID != nil || c.Type != nil || c.Function.Name != nil:
		t.Fatalf("a piece of call %d comes after %d calls, or has its id, type or name again: %s", c.Index, len(s.calls), r.body)
	}
	s.calls[c.Index].arguments += c.Function.Arguments
}

// models of these tests: a tiny one of random weights, which does what no trained one
// would, and the real one. `make prove` asks the real one for as much.
func eachModel(t *testing.T, requests int, test func(t *testing.T, e *engine.Engine, requests int)) {
	t.Helper()
	t.Run("tiny", func(t *testing.T) {
		t.Parallel()
		test(t, tiny(t, engine.Options{}), requests)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		e, err := engine.Open(gguftest.Weights(t), engine.Options{KVBytes: 256 << 20})
		must(t, err)
		t.Cleanup(func() { must(t, e.Close()) })
		fewer := requests // not requests itself, which the other model's test reads
		if os.Getenv("PARLEY_PROVE") == "" {
			fewer /= 10
		}
		test(t, e, fewer)
	})
}

// crowd is the clients of one door: the requests run side by side.
const crowd = 8

// crowded runs n requests of a kind; try returns false for one that does not count.
func crowded(t *testing.T, n int, try func(t *testing.T, i int, r *rand.Rand) bool) {
	t.Helper()
	var next, done atomic.Int64
	t.Run("all", func(t *testing.T) {
		for range crowd {
			t.Run("client", func(t *testing.T) {
				t.Parallel()
				for done.Load() < int64(n) {
					i := int(next.Add(1))
					if i > 8*n {
						t.Fatalf("of %d requests only %d count", i, done.Load())
					}
					if try(t, i, rand.New(rand.NewPCG(uint64(i), 11))) {
						done.Add(1)
					}
				}
			})
		}
	})
}

// manner is random members of a request that bear on how it is answered: whatever they
// are, the form is kept.
func manner(r *rand.Rand, maxTokens int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `,"max_tokens":%d,"temperature":%.2f,"top_p":%.2f,"seed":%d`, maxTokens, 2*r.Float64(), r.Float64(), r.IntN(1000))
	if r.IntN(2) == 0 {
		b.WriteString(`,"stream":true,"stream_options":{"include_usage":true}`)
	}
	if r.IntN(4) == 0 {
		fmt.Fprintf(&b, `,"n":%d`, 2+r.IntN(2))
	}
	if r.IntN(4) == 0 {
		fmt.Fprintf(&b, `,"frequency_penalty":%.1f,"presence_penalty":%.1f`, 4*r.Float64()-2, 4*r.Float64()-2)
	}
	if r.IntN(4) == 0 { // for and against any bytes, and against the end
		fmt.Fprintf(&b, `,"logit_bias":{"%d":%d,"%d":100,"2":-100}`, 3+r.IntN(256), r.IntN(201)-100, 3+r.IntN(256))
	}
	if r.IntN(4) == 0 {
		b.WriteString(`,"logprobs":true`)
	}
	return b.String()
}

// ended says what is wrong with how choices ended.
func ended(choices []spoken, completion, maxTokens int, reasons string) error {
	for i, c := range choices {
		if !strings.Contains(reasons, "|"+c.finish+"|") {
			return fmt.Errorf("choice %d ends with %q", i, c.finish)
		}
	}
	if len(choices) == 0 || completion < 1 || completion > maxTokens*len(choices) {
		return fmt.Errorf("%d choices of at most %d tokens have %d", len(choices), maxTokens, completion)
	}
	return nil
}

// 85: whatever JSON mode is asked for with, each choice is one object, from the least
// number of tokens on.
func TestEmbedded_JSON(t *testing.T) {
	t.Parallel()
	eachModel(t, 1000, keepJSON)
}

func keepJSON(t *testing.T, e *engine.Engine, requests int) {
	t.Helper()
	d := open(t, local.New(e))
	crowded(t, requests, func(t *testing.T, _ int, r *rand.Rand) bool {
		t.Helper()
		limit := 2 + r.IntN(3) + r.IntN(1+r.IntN(60))
		ask := body(manner(r, limit) + `,"response_format":{"type":"json_object"}`)
		if r.IntN(4) == 0 {
			ask = strings.TrimSuffix(ask, "}") + fmt.Sprintf(`,"stop":[%q,%q]}`, `"`+string(rune('a'+r.IntN(26))), string(rune('a'+r.IntN(26))))
		}
		choices, completion := heard(t, d.post(t, ask))
		if err := ended(choices, completion, limit, "|stop|length|"); err != nil {
			t.Errorf("%s: %v", ask, err)
		}
		for _, c := range choices {
			var v map[string]any
			if err := json.Unmarshal([]byte(c.content), &v); err != nil || v == nil || len(c.calls) > 0 {
				t.Errorf("%s\ngives %q: %v", ask, c.content, err)
			}
		}
		return true
	})
}

// library compiles a schema as a client would.
func library(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	must(t, err)
	c := jsonschema.NewCompiler()
	must(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	must(t, err)
	return s
}

func obeys(s *jsonschema.Schema, text string) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// longest bounds the schemas: they are part of the prompt, and a byte is a token.
const longest = 700

// 87: every choice obeys the schema, from the least number of tokens on; one less is
// refused, with the least.
func TestEmbedded_Schema(t *testing.T) {
	t.Parallel()
	eachModel(t, 500, keepSchemas)
}

func keepSchemas(t *testing.T, e *engine.Engine, requests int) {
	t.Helper()
	d := open(t, local.New(e))
	vocab, err := e.Vocab()
	must(t, err)
	crowded(t, requests, func(t *testing.T, i int, r *rand.Rand) bool {
		t.Helper()
		schema := grammartest.New(uint64(i), 12).Document()
		g, err := grammar.Schema(vocab, schema)
		if err != nil || len(g.Unknown()) > 0 || len(schema) > longest || g.Least() > 200 {
			return false
		}
		format := `,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":` + string(schema) + `}}`
		if g.Least() > 1 {
			short := d.post(t, body(manner(r, g.Least()-1)+format))
			if want := fmt.Sprintf("at least %d completion tokens", g.Least()); short.StatusCode != 400 || short.param() != "max_tokens" || !strings.Contains(short.body, want) {
				t.Errorf("%s\nwith one token less than %d: %d %s", schema, g.Least(), short.StatusCode, short.body)
			}
		}
		limit := g.Least() + r.IntN(1+r.IntN(60))
		ask := body(manner(r, limit) + format)
		choices, completion := heard(t, d.post(t, ask))
		if err := ended(choices, completion, limit, "|stop|length|"); err != nil {
			t.Errorf("%s: %v", ask, err)
		}
		lib := library(t, schema)
		for _, c := range choices {
			if err := obeys(lib, c.content); err != nil {
				t.Errorf("%s\ngives %q: %v", ask, c.content, err)
			}
		}
		return true
	})
}

// offer is random tools that can be called; any of them in least tokens.
func offer(r *rand.Rand, vocab *grammar.Vocab) (tools string, schemas map[string][]byte, least int) {
	const marks = len("<tool_call></tool_call>")
	schemas = map[string][]byte{}
	var list []string
	for len(list) == 0 || len(list) < 3 && r.IntN(2) == 0 {
		name := fmt.Sprintf("tool_%d", len(list))
		schema := grammartest.New(r.Uint64(), 13).Document()
		if r.IntN(5) == 0 {
			schemas[name] = []byte(`{"const":{}}`)
			list = append(list, fmt.Sprintf(`{"type":"function","function":{"name":%q}}`, name))
			least = max(least, marks+len(`{"name": "tool_0", "arguments": {}}`))
			continue
		}
		g, err := grammar.Calls(vocab, grammar.CallOptions{Tools: []grammar.Tool{{Name: name, Parameters: schema}}})
		if err != nil || len(g.Unknown()) > 0 || len(schema) > longest/2 || g.Least() > 200 {
			continue
		}
		schemas[name], least = schema, max(least, g.Least()+marks)
		list = append(list, fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"Does it.","parameters":%s}}`, name, schema))
	}
	return "[" + strings.Join(list, ",") + "]", schemas, least
}

// 76 to 78, 81, 82: whenever tools must be called they are, with arguments that obey
// their schemas; and where a call or an object may come, one of them does.
func TestEmbedded_Tools(t *testing.T) {
	t.Parallel()
	var met forms
	t.Cleanup(func() {
		if met.several.Load() == 0 || met.objects.Load() == 0 {
			t.Errorf("%d choices with several calls, %d objects, want both tried", met.several.Load(), met.objects.Load())
		}
	})
	eachModel(t, 300, met.keepTools)
}

// forms counts the less usual answers to offers of tools. Not every model gives all: the
// real one calls a tool wherever it may.
type forms struct{ several, objects atomic.Int64 }

func (f *forms) keepTools(t *testing.T, e *engine.Engine, requests int) {
	t.Helper()
	d := open(t, local.New(e))
	vocab, err := e.Vocab()
	must(t, err)
	var calls atomic.Int64
	crowded(t, requests, func(t *testing.T, _ int, r *rand.Rand) bool {
		t.Helper()
		tools, schemas, least := offer(r, vocab)
		limit := least + r.IntN(1+r.IntN(120))
		mode := r.IntN(4)
		choice := []string{`"required"`, `{"type":"function","function":{"name":"tool_0"}}`, `"auto"`, `"auto","response_format":{"type":"json_object"}`}[mode]
		parallel := r.IntN(2) == 0
		ask := body(manner(r, limit) + fmt.Sprintf(`,"tools":%s,"tool_choice":%s,"parallel_tool_calls":%t`, tools, choice, parallel))
		got, completion := heard(t, d.post(t, ask))
		if err := ended(got, completion, limit, "|stop|length|tool_calls|"); err != nil {
			t.Errorf("%s: %v", ask, err)
		}
		ids := map[string]bool{}
		for _, c := range got {
			most := 8
			if !parallel || mode == 1 {
				most = 1
			}
			if len(c.calls) > most || len(c.calls) == 0 && mode < 2 || (c.finish == "tool_calls") != (len(c.calls) > 0) || len(c.calls) > 0 && c.content != "" {
				t.Errorf("%s\ngives %+v", ask, c)
			}
			if mode == 3 && len(c.calls) == 0 {
				var v map[string]any
				if err := json.Unmarshal([]byte(c.content), &v); err != nil {
					t.Errorf("%s\ngives %q: %v", ask, c.content, err)
				}
				f.objects.Add(1)
			}
			for _, call := range c.calls {
				if schemas[call.name] == nil || ids[call.id] || mode == 1 && call.name != "tool_0" {
					t.Errorf("%s\ncalls %+v", ask, call)
					continue
				}
				ids[call.id] = true
				if err := obeys(library(t, schemas[call.name]), call.arguments); err != nil || call.arguments[0] != '{' {
					t.Errorf("%s\ncalls %+v: %v", ask, call, err)
				}
			}
			calls.Add(int64(len(c.calls)))
			if len(c.calls) > 1 {
				f.several.Add(1)
			}
		}
		return true
	})
	if int(calls.Load()) < requests/2 {
		t.Errorf("%d calls, want at least one to every second request", calls.Load())
	}
}
