package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	role   = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}` + "\n\n"
	piece  = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"w0 "},"finish_reason":null}],"usage":null}` + "\n\n"
	finish = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n"
	count  = `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":1,"total_tokens":12}}` + "\n\n"
	done   = "data: [DONE]\n\n"
	broken = `data: {"error":{"code":"upstream_error","message":"m"}}` + "\n\n"
	entire = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"w0 "},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":1,"total_tokens":12}}`
)

// Whatever breaks the convention is seen; what does not is not.
func TestCall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stream bool
		status int
		body   string
		code   string
		wrong  string // part of it; empty is right
	}{
		"stream":           {true, 200, role + piece + finish + count + done, "", ""},
		"broken off":       {true, 200, role + piece + broken, "upstream_error", ""},
		"no end":           {true, 200, role + piece + finish + count, "", "without [DONE]"},
		"no finish":        {true, 200, role + piece + done, "", "[DONE] with finish"},
		"usage early":      {true, 200, role + count + piece + finish + done, "", "event 2"},
		"text after usage": {true, 200, role + finish + count + piece + done, "", "behind its end"},
		"text twice":       {true, 200, role + piece + piece + finish + count + done, "", "the answer is"},
		"no role":          {true, 200, piece + finish + count + done, "", "the role"},
		"role twice":       {true, 200, role + role + piece + finish + count + done, "", "the role"},
		"another id":       {true, 200, role + strings.Replace(piece, `"c"`, `"d"`, 1) + finish + count + done, "", "event 2"},
		"after the end":    {true, 200, role + piece + finish + count + done + "data: x\n\n", "", "behind [DONE]"},
		"a comment":        {true, 200, ": hello\n\n", "", "line"},
		"whole":            {false, 200, entire, "", ""},
		"wrong sum":        {false, 200, strings.Replace(entire, ":12", ":13", 1), "", "does not add up"},
		"no choice":        {false, 200, `{"id":"c","object":"chat.completion","choices":[]}`, "", "not of the convention"},
		"no JSON":          {false, 200, `hello`, "", "no JSON"},
		"refused":          {false, 402, `{"error":{"code":"insufficient_quota","message":"m","type":"t"}}`, "insufficient_quota", ""},
		"429 without time": {false, 429, `{"error":{"code":"rate_limit_exceeded","message":"m","type":"t"}}`, "rate_limit_exceeded", "Retry-After"},
		"no error":         {false, 500, `oops`, "not an error", "no error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Request-Id", "req_1")
				w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[tt.stream])
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer s.Close()
			c := &call{stream: tt.stream}
			c.do(context.Background(), s.Client(), options{url: s.URL, model: "m"}, "key", "w0 ")
			if c.code != tt.code || (c.wrong == "") != (tt.wrong == "") || !strings.Contains(c.wrong, tt.wrong) {
				t.Errorf("code %q, wrong %q, want %q and %q", c.code, c.wrong, tt.code, tt.wrong)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	var m model
	m.ID, m.Pricing.Input, m.Pricing.CachedInput, m.Pricing.Output = "m", "0.05", "0.01", "0.1"
	seen := func() *call {
		return &call{requestID: "req_1", completion: "c", status: 200, usage: usage{11, 2, 13}}
	}
	right := receipt{RequestID: "req_1", CompletionID: "c", Model: "m", Prompt: 11, Completion: 2, Charge: "0.00075", WrittenOff: "0", State: "settled"}
	with := func(change func(*receipt)) []receipt {
		r := right
		change(&r)
		return []receipt{r}
	}
	void := with(func(r *receipt) { r.State, r.Charge, r.Prompt, r.Completion = "voided", "0", 0, 0 })
	for name, tt := range map[string]struct {
		call  *call
		list  []receipt
		wrong string
	}{
		"right":            {seen(), []receipt{right}, ""},
		"cached":           {seen(), with(func(r *receipt) { r.Cached, r.Charge = 10, "0.00035" }), ""},
		"no receipt":       {seen(), nil, "has no receipt"},
		"twice":            {seen(), []receipt{right, right}, "has 2 receipts"},
		"another sum":      {seen(), with(func(r *receipt) { r.Charge = "0.00076" }), "it charges 0.00076"},
		"other tokens":     {seen(), with(func(r *receipt) { r.Completion, r.Charge = 3, "0.00085" }), "the client saw"},
		"voided":           {seen(), void, "the client saw"},
		"refused":          {&call{requestID: "req_1", status: 502, code: "upstream_error"}, void, ""},
		"refused for cash": {&call{requestID: "req_1", status: 502, code: "upstream_error"}, []receipt{right}, "refused with 502"},
		"left":             {&call{requestID: "req_1", status: 200, left: true}, []receipt{right}, ""},
		"left running":     {&call{requestID: "req_1", status: 200, left: true}, with(func(r *receipt) { r.State = "running" }), "is running"},
		"nobody's":         {&call{requestID: "req_2", status: 402, code: "insufficient_quota"}, []receipt{right}, "nobody saw"},
		"broken answer":    {&call{requestID: "req_1", status: 200, wrong: "odd"}, []receipt{right}, "odd"},
	} {
		problems, spent := compare([]*call{tt.call}, tt.list, []model{m})
		all := strings.Join(problems, "\n")
		if (all == "") != (tt.wrong == "") || !strings.Contains(all, tt.wrong) {
			t.Errorf("%s: %q, want %q", name, all, tt.wrong)
		}
		if tt.list == nil && spent.Sign() != 0 {
			t.Errorf("%s: %s spent", name, spent)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var ds []time.Duration
	for i := range 100 {
		ds = append(ds, time.Duration(100-i)*time.Millisecond)
	}
	if a, b, c := quantile(ds, 0.5), quantile(ds, 0.99), quantile(nil, 0.5); a != 51*time.Millisecond || b != 100*time.Millisecond || c != 0 {
		t.Errorf("quantiles are %s, %s, %s", a, b, c)
	}
}
