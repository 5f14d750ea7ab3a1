package openai

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// bytesCounter counts every four bytes as a token.
type bytesCounter struct{}

func (bytesCounter) Count(text string, _ int) (int, error) { return (len(text) + 3) / 4, nil }

const secret = "sk-provider-secret"

func newProvider(t testing.TB, s *upstreamtest.HTTP, change func(*Options)) *Provider {
	t.Helper()
	// A busy machine may need long for a handshake.
	o := Options{BaseURL: s.URL, APIKey: secret, Counter: bytesCounter{}, Timeouts: Timeouts{Connect: time.Minute}}
	if change != nil {
		change(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatalf("New(%q) = %v", o.BaseURL, err)
	}
	t.Cleanup(p.Close)
	return p
}

// newCall is a call with one tool; body holds further members.
func newCall(t testing.TB, members string) *upstream.Call {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"Say JSON."}]` + members + `}`
	req, refused := wire.DecodeChat([]byte(body))
	if refused != nil {
		t.Fatalf("DecodeChat(%s) = %v", body, refused)
	}
	return &upstream.Call{ID: "chatcmpl-1", Owner: "acct_1", Model: "theirs", Window: 8192, Request: req, MaxTokens: 1000}
}

const withTools = `,"stream":true,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`

// show writes an event in short.
func show(e upstream.Event) string {
	s := ""
	if e.Choice > 0 {
		s = fmt.Sprintf("#%d ", e.Choice)
	}
	s += showPiece(e)
	for _, l := range e.Logprobs {
		s += fmt.Sprintf(" {%s %v %q %d}", l.Token, l.Logprob, l.Bytes, len(l.Top))
	}
	return s
}

func showPiece(e upstream.Event) string {
	switch {
	case e.Refusal != "":
		return "refuse " + e.Refusal
	case e.Finish != "":
		s := "finish " + string(e.Finish)
		if u := e.Usage; u != nil {
			s += fmt.Sprintf(" usage %d %d %d %d", u.PromptTokens, u.CompletionTokens, u.CachedTokens, u.ReasoningTokens)
		}
		return s
	case e.Tool != nil && e.Tool.ID != "":
		return fmt.Sprintf("call %d %s %s", e.Tool.Index, e.Tool.ID, e.Tool.Name)
	case e.Tool != nil:
		return fmt.Sprintf("args %d %s", e.Tool.Index, e.Tool.Arguments)
	case e.Reasoning != "":
		return "think " + e.Reasoning
	}
	return "text " + e.Text
}

// generate runs a call and returns its events in short.
func generate(ctx context.Context, p *Provider, call *upstream.Call) (events []string, err error) {
	last := 0
	err = p.Generate(ctx, call, func(e upstream.Event) error {
		if e.Completion < last && e.Finish == "" || e.Completion > call.MaxTokens*call.Request.N || e.Fingerprint == "" {
			return fmt.Errorf("event %+v after %d tokens", e, last)
		}
		last = e.Completion
		events = append(events, show(e))
		return nil
	})
	return events, err
}

// class names how a call ended.
func class(err error) string {
	if err == nil {
		return ""
	}
	if r, ok := errors.AsType[*upstream.Rejected](err); ok {
		return "rejected " + r.Answer.Code
	}
	f, ok := errors.AsType[*upstream.Failure](err)
	if !ok {
		return err.Error()
	}
	s := string(f.Class)
	if f.Retryable {
		s += " retryable"
	}
	if f.RetryAfter > 0 {
		s += " " + f.RetryAfter.String()
	}
	return s
}

func text(s string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, s)
}

func finish(reason string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

func toolDelta(members string) string {
	return `{"choices":[{"index":0,"delta":{"tool_calls":[{` + members + `}]}}]}`
}

const (
	role  = `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}`
	usage = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}}}`
)

// events is the script of a stream that ends as it should.
func events(data ...string) func(*upstreamtest.Exchange) {
	return func(e *upstreamtest.Exchange) {
		e.Stream()
		for _, d := range data {
			e.Event(d)
		}
		e.Done()
	}
}

// cut is the script of a stream that ends without [DONE].
func cut(data ...string) func(*upstreamtest.Exchange) {
	return func(e *upstreamtest.Exchange) {
		e.Stream()
		for _, d := range data {
			e.Event(d)
		}
		e.End()
	}
}

// answer is the script of an answer that is no stream.
func answer(status int, contentType, header, body string) func(*upstreamtest.Exchange) {
	return func(e *upstreamtest.Exchange) { e.Respond(status, contentType, header, body) }
}

type streamTest struct {
	name    string
	members string // of the request
	script  func(*upstreamtest.Exchange)
	class   string
	events  []string
}

func runStreamTests(t *testing.T, tests []streamTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := upstreamtest.NewHTTP(t, tt.script)
			p := newProvider(t, s, nil)
			got, err := generate(t.Context(), p, newCall(t, tt.members))
			if class(err) != tt.class {
				t.Errorf("error %v is %q, want %q", err, class(err), tt.class)
			}
			if diff := cmp.Diff(tt.events, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || len(err.Error()) > 600) {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestGenerate_Text(t *testing.T) {
	t.Parallel()
	hi := []string{"text Hel", "text lo"}
	runStreamTests(t, []streamTest{
		{"whole", "", events(role, text("Hel"), text("lo"), finish("stop"), usage), "", append(hi[:2:2], "finish stop usage 3 2 1 1")},
		{"length", "", events(text("Hel"), text("lo"), finish("length"), usage), "", append(hi[:2:2], "finish length usage 3 2 1 1")},
		{"no usage", "", events(text("Hel"), text("lo"), finish("stop")), "", append(hi[:2:2], "finish stop")},
		{"usage with the reason", "", events(text("Hel"), text("lo"), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`), "", append(hi[:2:2], "finish stop usage 7 2 0 0")},
		{"usage in every chunk", "", events(`{"choices":[{"index":0,"delta":{"content":"Hel"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}`, text("lo"), finish("stop")), "", append(hi[:2:2], "finish stop")},
		{"usage twice", "", events(text("Hel"), text("lo"), finish("stop"), usage, `{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}`), "", append(hi[:2:2], "finish stop usage 4 2 0 0")},
		{"usage zero", "", events(text("Hel"), text("lo"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`), "", append(hi[:2:2], "finish stop usage 0 0 0 0")},
		{"usage negative", "", events(text("Hel"), text("lo"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":-2}}`), "", append(hi[:2:2], "finish stop")},
		{"usage absurd", "", events(text("Hel"), text("lo"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":99999999999999999999}}`), "", append(hi[:2:2], "finish stop")},
		{"usage above the bound", "", events(text("Hel"), text("lo"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1001,"prompt_tokens_details":{"cached_tokens":9},"completion_tokens_details":{"reasoning_tokens":5000}}}`), "", append(hi[:2:2], "finish stop usage 3 1000 3 1000")},
		{"usage of strings", "", events(text("Hel"), text("lo"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":"3","completion_tokens":2}}`), "", append(hi[:2:2], "finish stop")},
		{"usage is a word", "", events(text("Hel"), text("lo"), finish("stop"), `{"choices":[],"usage":"none"}`), "", append(hi[:2:2], "finish stop")},
		{"nulls", "", events(`{"choices":null,"usage":null,"error":null}`, `{"choices":[{"index":null,"delta":{"role":null,"content":null,"tool_calls":null,"reasoning":null},"finish_reason":null}]}`, `{"choices":[{"delta":null}]}`, text("Hel"), text("lo"), finish("stop")), "", append(hi[:2:2], "finish stop")},
		{"role repeats", "", events(role, role, `{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}`, role, text("lo"), finish("stop")), "", append(hi[:2:2], "finish stop")},
		{"several choices", "", events(text("Hel"), `{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"},{"delta":{"content":"lo"},"index":0},{"delta":{"content":"no"},"index":2}]}`, finish("stop")), "", append(hi[:2:2], "finish stop")},
		{"empty answer", "", events(role, finish("stop"), usage), "", []string{"finish stop usage 3 2 1 1"}},
		{"nothing at all", "", events(), "failed retryable", nil},
		{"no reason", "", events(text("Hel"), text("lo")), "cut", hi},
		{"end without terminator", "", cut(text("Hel"), text("lo"), finish("stop"), usage), "", append(hi[:2:2], "finish stop usage 3 2 1 1")},
		{"end without reason", "", cut(text("Hel"), text("lo")), "cut", hi},
		{"end before the first", "", cut(role), "failed retryable", nil},
		{"after the terminator", "", func(e *upstreamtest.Exchange) {
			events(text("Hel"), text("lo"), finish("stop"), usage, "[DONE]", text("no"), `{"error":{}}`)(e)
		}, "", append(hi[:2:2], "finish stop usage 3 2 1 1")},
		{"unknown reason", "", events(text("Hel"), text("lo"), finish("abort")), "cut", hi},
		{"reasoning", "", events(`{"choices":[{"delta":{"reasoning_content":"Hm","reasoning":"Hm"}}]}`, `{"choices":[{"delta":{"reasoning":"m"}}]}`, text("lo"), finish("stop")), "", []string{"think Hm", "think m", "text lo", "finish stop"}},
		{"refusal", `,"logprobs":true`, events(role, `{"choices":[{"delta":{"refusal":"N"},"logprobs":{"content":null,"refusal":[{"token":"N","logprob":-1}]}}]}`, `{"choices":[{"delta":{"refusal":"o"}}]}`, finish("stop"), usage), "", []string{"refuse N", "refuse o", "finish stop usage 3 2 1 1"}},
		{"refusal of a schema", `,"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`, events(`{"choices":[{"delta":{"refusal":"No"}}]}`, finish("stop")), "", []string{"refuse No", "finish stop"}},
		{"refusal in JSON mode", `,"response_format":{"type":"json_object"}`, events(`{"choices":[{"delta":{"refusal":"No"}}]}`, finish("stop")), "failed", []string{"refuse No"}},
		{"rune in pieces", "", events("{\"choices\":[{\"delta\":{\"content\":\"a\xf0\x9f\"}}]}", "{\"choices\":[{\"delta\":{\"content\":\"\x98\x80b\"}}]}", finish("stop")), "", []string{"text a", "text 😀b", "finish stop"}},
		{"half a rune at the end", "", events("{\"choices\":[{\"delta\":{\"content\":\"a\xf0\x9f\"}}]}", finish("stop")), "", []string{"text a", "text \xf0\x9f", "finish stop"}},
		{"escapes", "", events(`{"choices":[{"delta":{"content":"\ud83d\ude00\u00e9\n\t\"\\\/\b\f\r\ud800x\ud800\u0041"}}]}`, finish("stop")), "", []string{"text 😀é\n\t\"\\/\b\f\r\ufffdx\ufffdA", "finish stop"}},
		{"blank data", "", events("", text("Hello"), " ", finish("stop")), "", []string{"text Hello", "finish stop"}},
		{"CRLF and comments", "", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes(": hi\r\n\r\nevent: x\r\nid: 1\r\ndata:" + text("Hello") + "\r\n\r\ndata: " + finish("eos") + "\r\n\r\ndata: [DO")
			e.Bytes("NE]\r\n\r\n")
			e.End()
		}, "", []string{"text Hello", "finish stop"}},
		{"ignores its bound", "", func(e *upstreamtest.Exchange) {
			e.Stream()
			for e.Event(text(strings.Repeat("word ", 2000))) {
			}
		}, "", []string{"text " + strings.Repeat("word ", 2000), "finish length"}},
	})
}

func TestGenerate_Stop(t *testing.T) {
	t.Parallel()
	endless := func(data ...string) func(*upstreamtest.Exchange) {
		return func(e *upstreamtest.Exchange) {
			e.Stream()
			for _, d := range data {
				e.Event(d)
			}
			<-e.Gone()
		}
	}
	runStreamTests(t, []streamTest{
		{"across events", `,"stop":"END"`, endless(text("aE"), text("N"), text("Db")), "", []string{"text a", "finish stop"}},
		{"held back", `,"stop":"END"`, events(text("aEN"), finish("length"), usage), "", []string{"text a", "text EN", "finish length usage 3 2 1 1"}},
		{"at the start", `,"stop":["x","END"]`, endless(text("END")), "", []string{"finish stop"}},
	})
}

func TestGenerate_Tools(t *testing.T) {
	t.Parallel()
	one := []string{"call 0 call_a f", `args 0 {"x":`, `args 0 1}`, "finish tool_calls"}
	runStreamTests(t, []streamTest{
		{"convention", withTools, events(toolDelta(`"index":0,"id":"call_a","type":"function","function":{"name":"f","arguments":""}`), toolDelta(`"index":0,"function":{"arguments":"{\"x\":"}`), toolDelta(`"index":0,"function":{"arguments":"1}"}`), finish("tool_calls")), "", one},
		{"no index, no type, nulls", withTools, events(toolDelta(`"id":"call_a","function":{"name":"f","arguments":null}`), toolDelta(`"id":null,"function":{"name":null,"arguments":"{\"x\":"}`), toolDelta(`"function":{"arguments":"1}"}`), finish("stop")), "", one},
		{"id and name repeat", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x\":"}`), toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"1}"}`), finish("tool_calls")), "", one},
		{"name after id", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"arguments":"{\"x\":"}`), toolDelta(`"index":0,"function":{"name":"f"}`), toolDelta(`"index":0,"function":{"arguments":"1}"}`), finish("tool_calls")), "", one},
		{
			"two calls", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"call_b","function":{"name":"g"}`), toolDelta(`"index":1,"function":{"arguments":"{}"}`), finish("tool_calls")), "",
			[]string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {}", "finish tool_calls"},
		},
		{
			"index 0 for both", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{}"}`), toolDelta(`"index":0,"id":"call_b","function":{"name":"g","arguments":"{}"}`), finish("stop")), "",
			[]string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {}", "finish tool_calls"},
		},
		{
			"index from 1", withTools, events(toolDelta(`"index":1,"id":"call_a","function":{"name":"f","arguments":"{}"}`), toolDelta(`"index":5,"id":"call_b","function":{"name":"f","arguments":"{}"}`), finish("stop")), "",
			[]string{"call 0 call_a f", "args 0 {}", "call 1 call_b f", "args 1 {}", "finish tool_calls"},
		},
		{"object arguments", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":{"x": [1, 2]}}`), finish("tool_calls")), "", []string{"call 0 call_a f", `args 0 {"x":[1,2]}`, "finish tool_calls"}},
		{"no arguments", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), finish("tool_calls")), "", []string{"call 0 call_a f", "args 0 {}", "finish tool_calls"}},
		{"no arguments, then another", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), toolDelta(`"index":1,"id":"call_b","function":{"name":"g"}`), finish("tool_calls")), "", []string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {}", "finish tool_calls"}},
		{"text, then a call", withTools, events(text("Hm"), toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), finish("tool_calls")), "", []string{"text Hm", "call 0 call_a f", "args 0 {}", "finish tool_calls"}},
		{"only one allowed", withTools + `,"parallel_tool_calls":false`, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), toolDelta(`"index":1,"id":"call_b","function":{"name":"g","arguments":"{"}`), toolDelta(`"index":1,"function":{"arguments":"}"}`), finish("tool_calls")), "", []string{"call 0 call_a f", "args 0 {}", "finish tool_calls"}},
		{"none allowed", withTools + `,"tool_choice":"none"`, events(text("Hm"), toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), finish("tool_calls")), "", []string{"text Hm", "finish stop"}},
		{"reason without calls", withTools, events(text("Hm"), finish("tool_calls")), "", []string{"text Hm", "finish stop"}},
		{"cut at the length", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x"}`), finish("length")), "", []string{"call 0 call_a f", `args 0 {"x`, "finish length"}},
		{"broken arguments", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x"}`), finish("tool_calls")), "cut", []string{"call 0 call_a f", `args 0 {"x`}},
		{"broken arguments of a whole answer", strings.ReplaceAll(withTools, "true", "false"), events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x"}`), finish("tool_calls")), "failed", []string{"call 0 call_a f", `args 0 {"x`}},
		{"rune in pieces", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"[\"`+"\xf0\x9f"+`"}`), toolDelta(`"index":0,"function":{"arguments":"`+"\x98\x80"+`\"]"}`), finish("tool_calls")), "", []string{"call 0 call_a f", `args 0 ["`, `args 0 😀"]`, "finish tool_calls"}},
		{"no name", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"arguments":"{}"}`), finish("tool_calls")), "failed", nil},
		{"interleaved", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{}"}`), toolDelta(`"index":1,"id":"call_b","function":{"name":"g","arguments":"{"}`), toolDelta(`"index":0,"function":{"arguments":" "}`), finish("tool_calls")), "cut", []string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {"}},
		{"negative index", withTools, events(toolDelta(`"index":-7,"id":"call_a","function":{"name":"f"}`), finish("tool_calls")), "failed", nil},
		{"arguments of a number", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":5}`), finish("tool_calls")), "failed", nil},
	})
}

func TestGenerate_ToolIDs(t *testing.T) {
	t.Parallel()
	s := upstreamtest.NewHTTP(t, events(
		toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{}"}`),
		toolDelta(`"index":1,"id":"call_a","function":{"name":"f","arguments":"{}"}`),
		toolDelta(`"index":2,"id":"","function":{"name":"f","arguments":"{}"}`),
		toolDelta(`"index":3,"id":"a b","function":{"name":"f","arguments":"{}"}`), finish("tool_calls")))
	ids := map[string]bool{}
	err := newProvider(t, s, nil).Generate(t.Context(), newCall(t, withTools), func(e upstream.Event) error {
		if e.Tool != nil && e.Tool.ID != "" {
			ids[e.Tool.ID] = true
			if !strings.HasPrefix(e.Tool.ID, "call_") {
				t.Errorf("id %q", e.Tool.ID)
			}
		}
		return nil
	})
	if err != nil || len(ids) != 4 {
		t.Errorf("Generate = %v with ids %v, want four of them", err, ids)
	}
}

func TestGenerate_JSONMode(t *testing.T) {
	t.Parallel()
	const whole, stream = `,"response_format":{"type":"json_object"}`, `,"stream":true,"response_format":{"type":"json_object"}`
	runStreamTests(t, []streamTest{
		{"object", whole, events(text(`{"a"`), text(`:1}`), finish("stop")), "", []string{`text {"a"`, "text :1}", "finish stop"}},
		{"fenced", stream, events(text("Sure:\n```js"), text("on\n{\"a\":1}\n``"), text("`"), finish("stop"), usage), "", []string{`text {"a":1}`, "finish stop usage 3 2 1 1"}},
		{"no JSON", whole, events(text(`Sure!`), finish("stop")), "failed", nil},
		{"no JSON in a stream", stream, events(text(`Sure!`), finish("stop")), "failed", nil},
		{"broken", whole, events(text(`{"a":1,`), text(`}`), text(`no`), finish("stop")), "failed", []string{`text {"a":1`}},
		{"broken in a stream", stream, events(text(`{"a":1,`), text(`}`), text(`no`), finish("stop")), "cut", []string{`text {"a":1`}},
		{"not ended", stream, events(text(`{"a":1`), finish("stop")), "cut", []string{`text {"a":1`}},
		{"cut at the length", stream, events(text(`{"a":[1,`), finish("length"), usage), "", []string{`text {"a":[1`, "text ]}", "finish length usage 3 2 1 1"}},
		{"cut before it began", whole, events(`{"choices":[{"delta":{"reasoning":"Hm"}}]}`, finish("length")), "", []string{"think Hm", "text {}", "finish length"}},
		{"cut by a filter", whole, events(text(`{"a":"b`), finish("content_filter")), "", []string{`text {"a":"b`, `text "}`, "finish content_filter"}},
		{"cut by a stop", whole + `,"stop":"END"`, events(text(`{"a":"bEN`), text(`D"}`), finish("stop")), "", []string{`text {"a":"b`, `text "}`, "finish stop"}},
		{"cut by the provider's stop", whole + `,"stop":"END"`, events(text(`{"a":"b`), finish("stop")), "", []string{`text {"a":"b`, `text "}`, "finish stop"}},
		{"cut in a rune", whole, events("{\"choices\":[{\"delta\":{\"content\":\"{\\\"a\\\":\\\"\xf0\x9f\"}}]}", finish("length")), "", []string{`text {"a":"`, "text \xf0\x9f", `text "}`, "finish length"}},
		{"log-probabilities", stream + `,"logprobs":true`, events(scored("Sure ", "Sure "), scored("{", "{"), scored(",x", ",", "x")), "cut", []string{`text { {{ -0.5 "" 0}`}},
		{
			"log-probabilities of what was held", stream + `,"logprobs":true`, events(scored("Sure ", "Sure "), scored(`{"a":1`, `{"a":1`), scored(",", ","), scored(`"b":2}`, `"b":2}`), scored(" ok", " ok"), finish("stop")), "",
			[]string{`text {"a":1 {{"a":1 -0.5 "" 0}`, `text ,"b":2} {, -0.5 "" 0} {"b":2} -0.5 "" 0}`, "finish stop"},
		},
		{"a call wins", stream + withTools[len(`,"stream":true`):], events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), finish("stop")), "", []string{"call 0 call_a f", "args 0 {}", "finish tool_calls"}},
	})
}

func TestGenerate_Refused(t *testing.T) {
	t.Parallel()
	json := func(status int, body string) func(*upstreamtest.Exchange) {
		return answer(status, "application/json", "", body)
	}
	runStreamTests(t, []streamTest{
		{"400", "", json(400, `{"error":{"message":"bad tools for `+secret+`","type":"x","code":null}}`), "refused", nil},
		{"400 of the context", "", json(400, `{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4990 in the messages, 10 in the completion).","code":"context_length_exceeded"}}`), "rejected context_length_exceeded", nil},
		{"400 of llama-server", "", json(400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}`), "rejected context_length_exceeded", nil},
		{"400 of SGLang", "", json(400, `{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (4096 tokens).","type":"BadRequestError","code":400}`), "rejected context_length_exceeded", nil},
		{"400 without numbers", "", json(400, `{"error":"prompt is too long"}`), "rejected context_length_exceeded", nil},
		{"401", "", json(401, `{"error":{"message":"Incorrect API key provided: `+secret+`"}}`), "denied", nil},
		{"402", "", json(402, `{}`), "denied", nil},
		{"403", "", json(403, `no`), "denied", nil},
		{"404", "", json(404, `{"error":{"message":"no such model"}}`), "denied", nil},
		{"408", "", json(408, ``), "timeout retryable", nil},
		{"418", "", json(418, ``), "failed", nil},
		{"429", "", answer(429, "application/json", "Retry-After: 2\r\n", `{}`), "overloaded retryable 2s", nil},
		{"429 in milliseconds", "", answer(429, "application/json", "Retry-After: 2\r\nretry-after-ms: 150\r\n", `{}`), "overloaded retryable 150ms", nil},
		{"429 for ages", "", answer(429, "application/json", "Retry-After: 1e300\r\n", `{}`), "overloaded retryable 1h0m0s", nil},
		{"429 of nonsense", "", answer(429, "application/json", "Retry-After: NaN\r\n", `{}`), "overloaded retryable", nil},
		{"429 without credit", "", json(429, `{"error":{"code":"insufficient_quota"}}`), "denied", nil},
		{"500", "", json(500, `{"error":{"message":"oops"}}`), "failed retryable", nil},
		{"503", "", answer(503, "text/html", "Retry-After: 1\r\n", `<html>`), "failed retryable 1s", nil},
		{"redirect", "", answer(307, "text/plain", "Location: http://169.254.169.254/\r\n", ``), "failed", nil},
		{"204", "", func(e *upstreamtest.Exchange) { e.Raw("HTTP/1.1 204 No Content\r\n\r\n") }, "failed", nil},
		{"JSON instead of a stream", "", json(200, `{"id":"x","choices":[{"message":{"content":"hi"}}]}`), "failed", nil},
		{"error instead of a stream", "", json(200, `{"error":{"message":"overloaded","code":429}}`), "overloaded retryable", nil},
		{"HTML", "", answer(200, "text/html; charset=utf-8", "", "<html><body>Welcome</body></html>"), "failed", nil},
		{"gzip", "", answer(200, "text/event-stream", "Content-Encoding: gzip\r\n", "\x1f\x8b"), "failed", nil},
		{"error is the first event", "", events(role, `{"error":{"message":"no room","code":503}}`), "failed retryable", nil},
		{"error is a word", "", events(`{"error":"no room"}`), "failed retryable", nil},
		{"error by name", "", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes("event: error\ndata: {\"message\":\"no\"}\n\n")
			e.End()
		}, "failed retryable", nil},
		{"error by name, no JSON", "", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes("event: error\ndata: oops\n\n")
			e.End()
		}, "failed retryable", nil},
		{"error of SGLang", "", events(`{"object":"error","message":"no","code":400}`), "refused", nil},
		{"too long is the first event", "", events(`{"error":{"message":"maximum context length","code":400}}`), "rejected context_length_exceeded", nil},
		{"error later", "", events(text("Hel"), `{"error":{"message":"no room","code":503}}`), "cut", []string{"text Hel"}},
		{"no JSON", "", events("hello"), "failed", nil},
		{"no JSON later", "", events(text("Hel"), "{"), "cut", []string{"text Hel"}},
		{"not an object", "", events("[]"), "failed", nil},
		{"two objects", "", events("{}{}"), "failed", nil},
		{"wrong types", "", events(`{"choices":{}}`), "failed", nil},
		{"content of a number", "", events(`{"choices":[{"delta":{"content":5}}]}`), "failed", nil},
		{"content of parts", "", events(`{"choices":[{"delta":{"content":[{"type":"text","text":"x"}]}}]}`), "failed", nil},
		{"reason of a number", "", events(`{"choices":[{"finish_reason":1}]}`), "failed", nil},
		{"deep", "", events(strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)), "failed", nil},
		{"closed at once", "", func(*upstreamtest.Exchange) {}, "failed retryable", nil},
		{"reset at once", "", func(e *upstreamtest.Exchange) { e.Reset() }, "failed retryable", nil},
		{"no HTTP", "", func(e *upstreamtest.Exchange) { e.Raw("SSH-2.0-x\r\n\r\n") }, "failed retryable", nil},
	})
}

func TestGenerate_BrokenConnection(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		end  func(*upstreamtest.Exchange)
	}{{"end", func(*upstreamtest.Exchange) {}}, {"reset", (*upstreamtest.Exchange).Reset}} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			shown := make(chan struct{})
			s := upstreamtest.NewHTTP(t, func(e *upstreamtest.Exchange) {
				e.Stream()
				e.Event(text("Hel"))
				<-shown // A reset may overtake what was sent before it.
				end.end(e)
			})
			err := newProvider(t, s, nil).Generate(t.Context(), newCall(t, ""), func(upstream.Event) error { close(shown); return nil })
			if class(err) != "cut" {
				t.Errorf("Generate = %v, want cut", err)
			}
		})
	}
}

func TestGenerate_Rejected(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, theirs, want string
		window             int
	}{
		{"both known", "maximum context length is 4096 tokens. Your messages resulted in 9000 tokens.", "length is 8192 tokens. However, your messages resulted in 9000 tokens.", 8192},
		{"a smaller window", "maximum context length is 4096 tokens. Your messages resulted in 5000 tokens.", "length is 8192 tokens. However, your messages resulted in at least 8192 tokens.", 8192},
		{"theirs only", "maximum context length is 4096 tokens.", "length is 4096 tokens. However, your messages resulted in at least 4096 tokens.", 0},
		{"nothing known", "context size", "length is shorter than your messages.", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, upstreamtest.NewHTTP(t, answer(400, "application/json", "", `{"error":{"message":"`+tt.theirs+`"}}`)), nil)
			call := newCall(t, "")
			call.Window = tt.window
			_, err := generate(t.Context(), p, call)
			e, ok := errors.AsType[*wire.Error](err)
			if !ok || e.Status != 400 || e.Code != "context_length_exceeded" || !strings.Contains(e.Message, "This model's maximum context "+tt.want) || !strings.HasSuffix(e.Message, "(context_length_exceeded)") {
				t.Errorf("error %+v of %v, want %q", e, err, tt.want)
			}
		})
	}
}

// A 400 is the caller's when it names a field that the caller set; a target behind may take
// it. What it says of anything else is about how we ask.
func TestGenerate_FieldRefused(t *testing.T) {
	t.Parallel()
	for param, want := range map[string]string{
		`"temperature"`: "temperature", `"tools[1].function.parameters"`: "tools[1].function.parameters", `"response_format"`: "response_format",
		`"messages[3].name"`: "messages", `"messages.[0].content"`: "messages", `"logit_bias"`: "logit_bias",
		`"max_tokens"`: "", `"stream_options"`: "", `"model"`: "", `"temperature and ` + secret + `"`: "", `"nonsense"`: "", `null`: "", `5`: "",
	} {
		for _, status := range []int{400, 422} {
			p := newProvider(t, upstreamtest.NewHTTP(t, answer(status, "application/json", "", `{"error":{"message":"no `+secret+`","type":"invalid_request_error","param":`+param+`,"code":"x"}}`)), nil)
			_, err := generate(t.Context(), p, newCall(t, ""))
			failure, ok := errors.AsType[*upstream.Failure](err)
			if !ok || failure.Class != upstream.Refused || failure.Retryable {
				t.Errorf("%s: %v, want a failure that is not tried again here", param, err)
			}
			e, refused := errors.AsType[*wire.Error](err)
			if refused != (want != "") || refused && (e.Status != 400 || e.Code != "unsupported_value" || *e.Param != want || strings.Contains(e.Message, secret)) {
				t.Errorf("%s: %+v of %v, want %q", param, e, err, want)
			}
		}
	}
}

func TestGenerate_SmallerBound(t *testing.T) {
	t.Parallel()
	s := upstreamtest.NewHTTP(t, func(e *upstreamtest.Exchange) {
		if strings.Contains(string(e.Body), `"max_tokens":1000`) {
			e.Respond(400, "application/json", "", `{"error":{"message":"'max_tokens' is too large: 1000. This model's maximum context length is 8192 tokens and your request has 7300 input tokens (1000 > 8192 - 7300)."}}`)
			return
		}
		events(text("Hi"), finish("length"))(e)
	})
	got, err := generate(t.Context(), newProvider(t, s, nil), newCall(t, ""))
	if diff := cmp.Diff([]string{"text Hi", "finish length"}, got); diff != "" || err != nil {
		t.Fatalf("Generate = %v, events (-want +got):\n%s", err, diff)
	}
	if ex := s.Exchanges(); len(ex) != 2 || !strings.Contains(string(ex[1].Body), `"max_tokens":892`) {
		t.Errorf("%d requests, the last %s", len(ex), ex[len(ex)-1].Body)
	}
}

func TestGenerate_ReusesConnections(t *testing.T) {
	t.Parallel()
	s := upstreamtest.NewHTTP(t, events(text("Hi"), finish("stop")))
	p := newProvider(t, s, nil)
	for range 5 {
		if _, err := generate(t.Context(), p, newCall(t, "")); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections for 5 calls, want 1", n)
	}
}

func TestRetryAfter_Date(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"Thu, 01 Jan 2026 00:00:07 GMT": 7 * time.Second, "Thu, 01 Jan 2025 00:00:07 GMT": 0, "-1": 0, "soon": 0, "": 0,
	} {
		if got := retryAfter(&head{retryAfter: value}, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", value, got, want)
		}
	}
}
