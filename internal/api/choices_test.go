package api_test

import (
	"context"
	"encoding/json"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream/local"
)

// embedded is a door with the embedded engine behind it.
func embedded(t *testing.T, o engine.Options) *door {
	t.Helper()
	return open(t, local.New(tiny(t, o)))
}

func tiny(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	must(t, enginetest.WriteModel(path, 1))
	o.Threads, o.KVBytes = 1, 8<<20
	e, err := engine.Open(path, o)
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

type scored struct {
	Token   string
	Logprob float64
	Bytes   []int
	Top     []scored `json:"top_logprobs"`
}

type choiceJSON struct {
	Index          int
	Message, Delta struct {
		Role, Content string
	}
	Logprobs *struct{ Content []scored }
	Finish   string `json:"finish_reason"`
}

type answerJSON struct {
	Choices []choiceJSON
	Usage   *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func whole(t *testing.T, r *reply) answerJSON {
	t.Helper()
	var a answerJSON
	if r.StatusCode != 200 || json.Unmarshal([]byte(r.body), &a) != nil {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	return a
}

// joined makes a whole answer of a stream, as clients do.
func joined(t *testing.T, r *reply) answerJSON {
	t.Helper()
	var a answerJSON
	finished := 0
	for line := range strings.Lines(r.body) {
		event, ok := strings.CutPrefix(strings.TrimSpace(line), "data: {")
		if !ok {
			continue
		}
		var chunk answerJSON
		must(t, json.Unmarshal([]byte("{"+event), &chunk))
		if chunk.Usage != nil {
			a.Usage = chunk.Usage
		}
		if len(chunk.Choices) == 0 {
			continue
		}
		c := chunk.Choices[0]
		if c.Delta.Role != "" {
			if c.Index != len(a.Choices) {
				t.Fatalf("choice %d opens after %d others: %s", c.Index, len(a.Choices), r.body)
			}
			a.Choices = append(a.Choices, choiceJSON{Index: c.Index})
		}
		to := &a.Choices[c.Index]
		to.Message.Role += c.Delta.Role
		to.Message.Content += c.Delta.Content
		if c.Logprobs != nil {
			if to.Logprobs == nil {
				to.Logprobs = c.Logprobs
			} else {
				to.Logprobs.Content = append(to.Logprobs.Content, c.Logprobs.Content...)
			}
		}
		if to.Finish != "" {
			t.Fatalf("a chunk of choice %d after its last: %s", c.Index, line)
		}
		if to.Finish = c.Finish; c.Finish != "" {
			finished++
		}
	}
	if finished != len(a.Choices) || !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Fatalf("%d of %d choices end: %s", finished, len(a.Choices), r.body)
	}
	return a
}

// 22, 72: several choices, whole and streamed alike, all of them charged; the first is
// what a call for one gives, and what an account asked for before it need not compute
// again.
func TestEmbedded_Choices(t *testing.T) {
	t.Parallel()
	d := embedded(t, engine.Options{})
	one := whole(t, d.post(t, body(`,"max_tokens":9,"seed":5`)))
	spent := int64(one.Usage.Prompt*10 + one.Usage.Completion*20)
	const more = `,"n":3,"max_tokens":9,"seed":5,"logprobs":true,"top_logprobs":2`
	a := whole(t, d.post(t, body(more)))
	b := joined(t, d.post(t, body(more+`,"stream":true,"stream_options":{"include_usage":true}`)))
	for i := range b.Choices {
		b.Choices[i].Delta = a.Choices[i].Delta
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("whole and streamed differ (-whole +streamed):\n%s", diff)
	}
	if len(a.Choices) != 3 || a.Choices[0].Message.Content != one.Choices[0].Message.Content {
		t.Errorf("three choices %+v, alone %+v", a.Choices, one.Choices)
	}
	for i, c := range a.Choices {
		if c.Index != i || c.Finish != "length" || c.Message.Role != "assistant" || i > 0 && c.Message.Content == a.Choices[i-1].Message.Content {
			t.Errorf("choice %d: %+v", i, c)
		}
		spelt := []byte{}
		for _, l := range c.Logprobs.Content {
			if len(l.Top) != 2 || l.Logprob > 0 || l.Top[0].Logprob < l.Top[1].Logprob || l.Top[0].Logprob < l.Logprob {
				t.Errorf("choice %d: %+v", i, l)
			}
			for _, b := range l.Bytes {
				spelt = append(spelt, byte(b))
			}
		}
		if len(c.Logprobs.Content) != 9 || !strings.Contains(c.Message.Content, "\ufffd") && string(spelt) != c.Message.Content {
			t.Errorf("choice %d: %d log-probabilities spell %q, the text is %q", i, len(c.Logprobs.Content), spelt, c.Message.Content)
		}
	}
	if u := a.Usage; u.Prompt != one.Usage.Prompt || u.Completion != 27 || u.Total != u.Prompt+27 || u.Details.Cached == 0 || u.Details.Cached%16 != 0 || u.Details.Cached >= u.Prompt {
		t.Errorf("usage %+v, of one %+v", u, one.Usage)
	}
	if one.Usage.Details.Cached != 0 || one.Choices[0].Logprobs != nil {
		t.Errorf("the first call: %+v", one)
	}
	spent += int64(2 * (a.Usage.Prompt*10 + 27*20)) // cached tokens cost as much here
	d.Close()
	if got := d.ledger.Balance(d.account.ID); got != (ledger.Balance{Granted: credit, Posted: money.Amount(spent)}) {
		t.Errorf("Balance = %+v, want %d posted", got, spent)
	}
}

// What bears on the draw does, and what cannot be is refused.
func TestEmbedded_Sampling(t *testing.T) {
	t.Parallel()
	d := embedded(t, engine.Options{})
	ask := func(more string) string {
		return whole(t, d.post(t, body(`,"max_tokens":30,"temperature":0`+more))).Choices[0].Message.Content
	}
	plain := ask("")
	for _, more := range []string{`,"frequency_penalty":2`, `,"presence_penalty":2`, `,"logit_bias":{"77":100}`} {
		if got := ask(more); got == plain {
			t.Errorf("%s changes nothing: %q", more, got)
		}
	}
	for _, nothing := range []string{`,"frequency_penalty":0`, `,"logit_bias":{}`, `,"logprobs":false`, `,"n":1`} {
		if got := ask(nothing); got != plain {
			t.Errorf("%s changes %q to %q", nothing, plain, got)
		}
	}
	for more, param := range map[string]string{
		`,"logit_bias":{"9999999":1}`: "logit_bias",
		`,"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"type":"object","properties":{"a":{"not":{"type":"null"}}},"required":["a"],"additionalProperties":false}}}`: "response_format",
		`,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"thing"}}}}}]`:                                                                              "tools[0].function.parameters",
		`,"max_tokens":1,"response_format":{"type":"json_object"}`: "max_tokens",
	} {
		if r := d.post(t, body(more)); r.StatusCode != 400 || r.param() != param {
			t.Errorf("%s: %d %s", more, r.StatusCode, r.body)
		}
	}
	d.Close()
	if b := d.ledger.Balance(d.account.ID); b.Held != 0 {
		t.Errorf("Balance = %+v", b)
	}
}

// More choices than there are places come all the same.
func TestEmbedded_FewPlaces(t *testing.T) {
	t.Parallel()
	d := embedded(t, engine.Options{MaxSequences: 3})
	r := d.post(t, body(`,"n":8,"max_tokens":20,"seed":1,"stop":["q"],"stream":true,"stream_options":{"include_usage":true}`))
	a := joined(t, r)
	var texts []string
	for _, c := range a.Choices {
		texts = append(texts, c.Message.Content)
		if strings.Contains(c.Message.Content, "q") {
			t.Errorf("the stop string is in %q", c.Message.Content)
		}
	}
	slices.Sort(texts)
	if len(slices.Compact(texts)) != 8 || a.Usage.Completion < 8 || a.Usage.Completion > 160 {
		t.Errorf("%d choices, usage %+v", len(a.Choices), a.Usage)
	}
}

// full is an engine whose queue is.
type full struct{ local.Engine }

func (full) Generate(context.Context, engine.Request) iter.Seq2[engine.Token, error] {
	return func(yield func(engine.Token, error) bool) { yield(engine.Token{}, engine.ErrBusy) }
}

// A full queue is 503 with a time to come back, and costs nothing.
func TestEmbedded_Busy(t *testing.T) {
	t.Parallel()
	d := open(t, local.New(full{tiny(t, engine.Options{})}))
	for _, more := range []string{"", `,"stream":true`, `,"n":4`} {
		if r := d.post(t, body(more)); r.StatusCode != 503 || r.code() != "server_is_overloaded" || r.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %v %s", more, r.StatusCode, r.Header, r.body)
		}
	}
	d.Close()
	if b := d.ledger.Balance(d.account.ID); b != (ledger.Balance{Granted: credit}) {
		t.Errorf("Balance = %+v", b)
	}
}
