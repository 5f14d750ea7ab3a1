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

// escaped is text as it stands between the quotes.
func escaped(s string) string {
	return `{"choices":[{"index":0,"delta":{"content":"` + s + `"}}]}`
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
		{"pair in pieces", "", events(escaped(`a\ud83d`), escaped(`\ude00b`), escaped(`\ud83d`), escaped(``), escaped(`\ude01`), finish("stop")), "", []string{"text a", "text 😀b", "text 😁", "finish stop"}},
		{"pairs of one half", "", events(escaped(`\ude00a`), escaped(`\ud83d`), escaped(`b\ud83d`), escaped(`\ud83d`), finish("stop")), "", []string{"text \ufffda", "text \ufffdb", "text \ufffd", "text \ufffd", "finish stop"}},
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
		{"cut by a filter", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x"}`), finish("content_filter")), "", []string{"call 0 call_a f", `args 0 {"x`, "finish content_filter"}},
		{"broken arguments", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x"}`), finish("tool_calls")), "cut", []string{"call 0 call_a f", `args 0 {"x`}},
		{"broken arguments of a whole answer", strings.ReplaceAll(withTools, "true", "false"), events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{\"x"}`), finish("tool_calls")), "failed", []string{"call 0 call_a f", `args 0 {"x`}},
		{"rune in pieces", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"[\"`+"\xf0\x9f"+`"}`), toolDelta(`"index":0,"function":{"arguments":"`+"\x98\x80"+`\"]"}`), finish("tool_calls")), "", []string{"call 0 call_a f", `args 0 ["`, `args 0 😀"]`, "finish tool_calls"}},
		{"pair in pieces", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"[\"\ud83d"}`), toolDelta(`"index":0,"function":{"arguments":"\ude00\"]"}`), finish("tool_calls")), "", []string{"call 0 call_a f", `args 0 ["`, `args 0 😀"]`, "finish tool_calls"}},
		{"no name", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"arguments":"{}"}`), finish("tool_calls")), "failed", nil},
		{"more behind the end", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{}"}`), toolDelta(`"index":1,"id":"call_b","function":{"name":"g","arguments":"{"}`), toolDelta(`"index":0,"function":{"arguments":"1"}`), finish("tool_calls")), "cut", []string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {"}},
		{"nothing behind the end", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{}"}`), toolDelta(`"index":1,"id":"call_b","function":{"name":"g","arguments":"{"}`), toolDelta(`"index":0,"function":{"arguments":" "}`), toolDelta(`"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":""}`), finish("tool_calls")), "", []string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {", "args 1 }", "finish tool_calls"}},
		{"negative index", withTools, events(toolDelta(`"index":-7,"id":"call_a","function":{"name":"f"}`), finish("tool_calls")), "failed", nil},
		{"arguments of a number", withTools, events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":5}`), finish("tool_calls")), "failed", nil},
	})
}

// The index of a piece says which call it is of, so pieces may come in turns. Callers get
// one call after the other.
func TestGenerate_ToolsInTurns(t *testing.T) {
	t.Parallel()
	piece := func(index int, arguments string) string {
		return fmt.Sprintf(`"index":%d,"function":{"arguments":%q}`, index, arguments)
	}
	const a, b, c = `"index":0,"id":"call_a","function":{"name":"f","arguments":""}`, `"index":1,"id":"call_b","function":{"name":"g","arguments":""}`, `"index":2,"id":"call_c","function":{"name":"h"}`
	runStreamTests(t, []streamTest{
		{
			"told together", withTools, events(toolDelta(a+"},{"+b), toolDelta(piece(0, `{"x":`)), toolDelta(piece(1, `{"y"`)), toolDelta(piece(0, `1}`)), toolDelta(piece(1, `:2`)), toolDelta(piece(1, `}`)), finish("tool_calls")), "",
			[]string{"call 0 call_a f", `args 0 {"x":`, "args 0 1}", "call 1 call_b g", `args 1 {"y":2`, "args 1 }", "finish tool_calls"},
		},
		{
			"the second is whole first", withTools, events(toolDelta(a), toolDelta(piece(0, `{`)), toolDelta(b), toolDelta(piece(1, `{}`)), toolDelta(piece(0, `}`)), finish("tool_calls")), "",
			[]string{"call 0 call_a f", "args 0 {", "args 0 }", "call 1 call_b g", "args 1 {}", "finish tool_calls"},
		},
		{
			"three", withTools, events(toolDelta(a), toolDelta(piece(0, `[`)), toolDelta(b), toolDelta(piece(1, `[]`)), toolDelta(piece(0, `]`)), toolDelta(c), toolDelta(piece(2, `{}`)), finish("tool_calls")), "",
			[]string{"call 0 call_a f", "args 0 [", "args 0 ]", "call 1 call_b g", "args 1 []", "call 2 call_c h", "args 2 {}", "finish tool_calls"},
		},
		{
			"without arguments", withTools, events(toolDelta(a), toolDelta(b), toolDelta(c), toolDelta(piece(1, `{}`)), finish("tool_calls")), "",
			[]string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 {}", "call 2 call_c h", "args 2 {}", "finish tool_calls"},
		},
		{
			"name comes late", withTools, events(toolDelta(a), toolDelta(`"index":1,"function":{"arguments":"[1,"}`), toolDelta(piece(0, `{}`)), toolDelta(`"index":1,"id":"call_b","function":{"name":"g","arguments":"2]"}`), finish("tool_calls")), "",
			[]string{"call 0 call_a f", "args 0 {}", "call 1 call_b g", "args 1 [1,2]", "finish tool_calls"},
		},
		{
			"cut at the length", withTools, events(toolDelta(a), toolDelta(piece(0, `{`)), toolDelta(b), toolDelta(piece(1, `{"`)), finish("length")), "",
			[]string{"call 0 call_a f", "args 0 {", "call 1 call_b g", `args 1 {"`, "finish length"},
		},
		{"never whole", withTools, events(toolDelta(a), toolDelta(piece(0, `{`)), toolDelta(b), toolDelta(piece(1, `{}`)), finish("tool_calls")), "cut", []string{"call 0 call_a f", "args 0 {"}},
		{"only one allowed", withTools + `,"parallel_tool_calls":false`, events(toolDelta(a), toolDelta(piece(0, `{`)), toolDelta(b), toolDelta(piece(1, `{`)), toolDelta(piece(0, `}`)), finish("tool_calls")), "", []string{"call 0 call_a f", "args 0 {", "args 0 }", "finish tool_calls"}},
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

// blanks says a text and then nothing but white space.
func blanks(begin string) func(*upstreamtest.Exchange) {
	return func(e *upstreamtest.Exchange) {
		e.Stream()
		e.Event(text(begin))
		for e.Event(text(strings.Repeat(" \n", 50))) {
		}
	}
}

func TestGenerate_JSONMode(t *testing.T) {
	t.Parallel()
	const whole, stream = `,"response_format":{"type":"json_object"}`, `,"stream":true,"response_format":{"type":"json_object"}`
	const schema = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$schema":"x","type":"object","properties":{"type":{"type":"number"}}}}}`
	runStreamTests(t, []streamTest{
		{"object", whole, events(text(`{"a"`), text(`:1}`), finish("stop")), "", []string{`text {"a"`, "text :1}", "finish stop"}},
		{"words before the object of a schema", schema, events(text("the answer: "), text(`{"a":1}`), finish("stop")), "", []string{`text {"a":1}`, "finish stop"}},
		{"no object of a schema", schema, events(text("12"), finish("stop")), "failed", nil},
		{"a schema of any value", strings.Replace(schema, `"object"`, `["object","number"]`, 1), events(text("12"), finish("stop")), "", []string{"text 12", "finish stop"}},
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
		{"blanks without end", stream, blanks(`{"a":1,`), "", []string{`text {"a":1`, "text }", "finish length"}},
		{"blanks before the value", whole, blanks(``), "", []string{"text {}", "finish length"}},
		{"blanks behind the value", whole, blanks(`{"a":1} `), "", []string{`text {"a":1}`, "finish stop"}},
		{"a string of blanks", whole, events(text(`{"a":"`+strings.Repeat(" ", 2000)), text(`"}`), finish("stop")), "", []string{`text {"a":"` + strings.Repeat(" ", 2000), `text "}`, "finish stop"}},
		{"a call wins", stream + withTools[len(`,"stream":true`):], events(toolDelta(`"index":0,"id":"call_a","function":{"name":"f"}`), finish("stop")), "", []string{"call 0 call_a f", "args 0 {}", "finish tool_calls"}},
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
