package openai

import (
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

// A 400 without a param is the caller's when its words are of a field that the caller set.
func TestGenerate_FieldDescribed(t *testing.T) {
	t.Parallel()
	const (
		schema = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`
		object = `,"response_format":{"type":"json_object"}`
	)
	tests := []struct{ members, theirs, want string }{
		{`,"n":2,"temperature":0`, `n must be 1 when using greedy sampling, got 2.`, "n"},
		{`,"temperature":0`, `n must be 1 when using greedy sampling, got 2.`, ""},
		{`,"n":2`, `[{'type': 'value_error', 'loc': ('body', 'n'), 'msg': 'Value error'}]`, "n"},
		{`,"logit_bias":{"50257":1}`, `token_id(s) [50257] in logit_bias contain out-of-vocab token ids. Vocabulary size: 32000`, "logit_bias"},
		{`,"logprobs":true,"top_logprobs":9`, `Requested sample logprobs of 9, which is greater than max allowed: 5`, "logprobs"},
		{`,"logprobs":true,"top_logprobs":9`, `top_logprobs must be at most 5`, "top_logprobs"},
		{``, `logprobs are not supported`, ""},
		{withTools, `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`, "tools"},
		{withTools + `,"tool_choice":"required"`, `tool_choice = "required" is not supported for the Mistral tokenizer`, "tool_choice"},
		{withTools, `registry.example/library/gemma:2b does not support tools`, "tools"},
		{withTools, `Failed to parse grammar`, "tools"},
		{``, `registry.example/library/gemma:2b does not support tools`, ""},
		{schema, `The provided JSON schema contains features not supported by xgrammar.`, "response_format"},
		{schema, `Grammar error: Unimplemented keys: ["minItems"]`, "response_format"},
		{object, `System role not supported`, ""}, // it is ours
		{`,"temperature":1,"stop":"x"`, `temperature must be less than 1, stop strings are not supported`, "temperature"},
		{`,"stop":"x"`, `stop strings are only supported when detokenization is True`, "stop"},
		{`,"seed":1`, `seed is not supported`, "seed"},
		{`,"reasoning_effort":"low"`, `Invalid reasoning effort: low`, "reasoning_effort"},
		{`,"presence_penalty":1,"frequency_penalty":1`, `Presence Penalty is not supported`, "presence_penalty"},
		{`,"top_p":0.5,"parallel_tool_calls":false`, `top_p and parallel tool calls exclude each other`, "top_p"},
		{``, `Conversation roles must alternate user/assistant/user/assistant/...`, "messages"},
		{``, `System role not supported`, ""},
		{``, `you must provide a chat template if the tokenizer does not define one`, ""},
		{``, `max_tokens must be at least 1, got 0. ` + secret, ""},
		{`,"temperature":1`, `API key expired. Please renew the API key.`, ""},
	}
	for _, tt := range tests {
		for _, body := range []string{`{"error":{"message":%q,"type":"BadRequestError","param":null,"code":400}}`, `{"object":"error","message":%q,"type":"BadRequestError","code":400}`} {
			p := newProvider(t, upstreamtest.NewHTTP(t, answer(400, "application/json", "", fmt.Sprintf(body, tt.theirs))), nil)
			_, err := generate(t.Context(), p, newCall(t, tt.members))
			if f, ok := errors.AsType[*upstream.Failure](err); !ok || f.Class != upstream.Refused || f.Retryable {
				t.Errorf("%s: %v, want a failure that is not tried again here", tt.theirs, err)
			}
			e, refused := errors.AsType[*wire.Error](err)
			if refused != (tt.want != "") || refused && (e.Status != 400 || e.Code != "unsupported_value" || *e.Param != tt.want || e.Message != wire.ValueRefused(tt.want).Message) {
				t.Errorf("%s: %+v of %v, want %q", tt.theirs, e, err, tt.want)
			}
		}
	}
	for role, theirs := range map[wire.Role]string{wire.RoleSystem: `System role not supported`, wire.RoleAssistant: `Assistant response prefill is incompatible with enable_thinking.`} {
		p := newProvider(t, upstreamtest.NewHTTP(t, answer(400, "application/json", "", fmt.Sprintf(`{"error":{"message":%q}}`, theirs))), nil)
		call := newCall(t, "")
		call.Request.Messages = append(call.Request.Messages, wire.Message{Role: role, Content: "x"})
		_, err := generate(t.Context(), p, call)
		if e, ok := errors.AsType[*wire.Error](err); !ok || *e.Param != "messages" {
			t.Errorf("%s: %v, want messages", theirs, err)
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
