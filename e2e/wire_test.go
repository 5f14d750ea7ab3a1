package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	requestID    = regexp.MustCompile(`^req_[0-9a-f]{32}$`)
	completionID = regexp.MustCompile(`^chatcmpl-[A-Za-z0-9]{20,}$`)
)

// body makes a request of svc-pulse with few tokens; fields come before the messages.
func body(fields string) string {
	return `{"model":"svc-pulse","max_tokens":4,"temperature":0` + fields + `,"messages":[{"role":"user","content":"Say hello."}]}`
}

// messages makes a request with the messages given.
func messages(list string) string {
	return `{"model":"svc-pulse","max_tokens":2,"messages":` + list + `}`
}

// TestWire_Whole is wire.md 1 to 3: the shape of a whole answer.
func TestWire_Whole(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := post(t, s, s.Key, body(""))
	c := wantCompletion(t, a)
	if !completionID.MatchString(c.ID) || c.Object != "chat.completion" || c.Model != "svc-pulse" || c.Created == 0 {
		t.Errorf("head of the answer: %+v", c)
	}
	if m := c.Choices[0].Message; m.Role != "assistant" || m.Content == nil || m.Refusal != nil || c.Choices[0].Index != 0 {
		t.Errorf("choice: %+v", c.Choices[0])
	}
	if c.Usage.Total != c.Usage.Prompt+c.Usage.Completion || c.Usage.Prompt == 0 {
		t.Errorf("usage: %+v", c.Usage)
	}
	for _, key := range []string{`"refusal":null`, `"logprobs":null`, `"prompt_tokens_details"`, `"completion_tokens_details"`} {
		if !strings.Contains(string(a.Body), key) {
			t.Errorf("the answer lacks %s: %s", key, a.Body)
		}
	}
	if strings.Contains(string(a.Body), "tool_calls") {
		t.Errorf("tool_calls in an answer without any: %s", a.Body)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type = %q", ct)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "*"} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	again := post(t, s, s.Key, body(""))
	if a.Header.Get("X-Request-Id") == again.Header.Get("X-Request-Id") || !requestID.MatchString(a.Header.Get("X-Request-Id")) {
		t.Errorf("x-request-id %q and %q", a.Header.Get("X-Request-Id"), again.Header.Get("X-Request-Id"))
	}
}

// TestWire_Accepted are requests that unmodified clients send and that must be answered.
func TestWire_Accepted(t *testing.T) {
	t.Parallel()
	s := server(t)
	var nulls strings.Builder
	for _, name := range []string{
		"stream", "stream_options", "top_p", "max_completion_tokens", "stop", "n", "seed", "frequency_penalty",
		"presence_penalty", "logit_bias", "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
		"response_format", "user", "metadata", "store", "service_tier", "modalities", "audio", "functions", "reasoning_effort",
	} {
		nulls.WriteString(`,"` + name + `":null`)
	}
	tests := []struct{ name, body string }{
		{"4 null optionals", body(nulls.String())},
		{"5 unknown fields", `{"model":"svc-pulse","max_tokens":2,"extra":{"a":[1]},"messages":[{"role":"user","x":1,"content":[{"type":"text","text":"Hi","cache_control":{}}]}]}`},
		{"6 explicit stream false", body(`,"stream":false`)},
		{"7 content parts", messages(`[{"role":"user","content":[{"type":"text","text":"Say"},{"type":"text","text":" hello"}]}]`)},
		{"8 developer role", messages(`[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]`)},
		{"9 assistant last", messages(`[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well,"}]`)},
		{"10 two assistants in a row", messages(`[{"role":"user","content":"Hi"},{"role":"assistant","content":"A"},{"role":"assistant","content":"B"},{"role":"user","content":"C"}]`)},
		{"11 name field", messages(`[{"role":"user","name":"ann","content":"Hi"}]`)},
		{"12 temperature 0", body(``)},
		{"12 temperature 2", messages(`[{"role":"user","content":"Hi"}],"temperature":2`)},
		{"15 top_p 0", body(`,"top_p":0`)},
		{"15 top_p 1", body(`,"top_p":1`)},
		{"17 max_tokens 10.0", messages(`[{"role":"user","content":"Hi"}],"max_completion_tokens":null,"temperature":0`)},
		{"21 stop array of 20", body(`,"stop":["a1","a2","a3","a4","a5","a6","a7","a8","a9","b1","b2","b3","b4","b5","b6","b7","b8","b9","c1","c2"]`)},
		{"21 stop empty array", body(`,"stop":[]`)},
		{"24 smallest seed", body(`,"seed":-9223372036854775808`)},
		{"31 byte order mark", "\xef\xbb\xbf" + body("")},
		{"system in the middle", messages(`[{"role":"user","content":"Hi"},{"role":"system","content":"Be kind."},{"role":"user","content":"Yes"}]`)},
		{"max_completion_tokens", `{"model":"svc-pulse","max_completion_tokens":2,"messages":[{"role":"user","content":"Hi"}]}`},
		{"integral decimal", `{"model":"svc-pulse","max_tokens":2.0,"messages":[{"role":"user","content":"Hi"}]}`},
		{"exponent", `{"model":"svc-pulse","max_tokens":2e0,"messages":[{"role":"user","content":"Hi"}]}`},
		{"response_format text", body(`,"response_format":{"type":"text"}`)},
		{"83 tools empty", body(`,"tools":[]`)},
		{"trailing space", body("") + " \n\t"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			wantCompletion(t, post(t, s, s.Key, tc.body))
		})
	}
}

// TestWire_Refused are requests that must be refused with 400, the code and the parameter.
func TestWire_Refused(t *testing.T) {
	t.Parallel()
	s := server(t)
	many := strings.TrimSuffix(strings.Repeat(`"x",`, 65), ",")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	tests := []struct{ name, body, code, param string }{
		{"13 temperature 2.1", messages(`[{"role":"user","content":"Hi"}],"temperature":2.1`), "decimal_above_max_value", "temperature"},
		{"13 temperature -0.1", messages(`[{"role":"user","content":"Hi"}],"temperature":-0.1`), "decimal_below_min_value", "temperature"},
		{"14 temperature string", messages(`[{"role":"user","content":"Hi"}],"temperature":"1"`), "invalid_type", "temperature"},
		{"15 top_p 1.01", body(`,"top_p":1.01`), "decimal_above_max_value", "top_p"},
		{"16 max_tokens 0", `{"model":"svc-pulse","max_tokens":0,"messages":[{"role":"user","content":"Hi"}]}`, "integer_below_min_value", "max_tokens"},
		{"16 max_tokens -1", `{"model":"svc-pulse","max_tokens":-1,"messages":[{"role":"user","content":"Hi"}]}`, "integer_below_min_value", "max_tokens"},
		{"16 max_tokens 1.5", `{"model":"svc-pulse","max_tokens":1.5,"messages":[{"role":"user","content":"Hi"}]}`, "invalid_type", "max_tokens"},
		{"16 max_tokens string", `{"model":"svc-pulse","max_tokens":"5","messages":[{"role":"user","content":"Hi"}]}`, "invalid_type", "max_tokens"},
		{"18 both limits", body(`,"max_completion_tokens":4`), "invalid_parameter_combination", "max_tokens"},
		{"20 max_tokens over the model's", `{"model":"svc-pulse","max_tokens":2049,"messages":[{"role":"user","content":"Hi"}]}`, "invalid_value", "max_tokens"},
		{"21 stop of 65", body(`,"stop":[` + many + `]`), "array_above_max_length", "stop"},
		{"21 stop empty string", body(`,"stop":[""]`), "empty_string", "stop[0]"},
		{"23 n over the cap", body(`,"n":9`), "integer_above_max_value", "n"},
		{"23 n 0", body(`,"n":0`), "integer_below_min_value", "n"},
		{"24 seed 2^63", body(`,"seed":9223372036854775808`), "*", "seed"},
		{"24 seed 1.5", body(`,"seed":1.5`), "invalid_type", "seed"},
		{"26 no model", `{"messages":[{"role":"user","content":"Hi"}]}`, "missing_required_parameter", "model"},
		{"26 model empty", `{"model":"","messages":[{"role":"user","content":"Hi"}]}`, "missing_required_parameter", "model"},
		{"26 no messages", `{"model":"svc-pulse"}`, "missing_required_parameter", "messages"},
		{"27 messages empty", messages(`[]`), "empty_array", "messages"},
		{"27 messages string", messages(`"x"`), "invalid_type", "messages"},
		{"27 message a number", messages(`[1]`), "invalid_type", "messages[0]"},
		{"27 message without role", messages(`[{}]`), "missing_required_parameter", "messages[0].role"},
		{"27 role a number", messages(`[{"role":1}]`), "invalid_type", "messages[0].role"},
		{"28 role bot", messages(`[{"role":"bot","content":"x"}]`), "invalid_value", "messages[0].role"},
		{"29 content null", messages(`[{"role":"user","content":null}]`), "invalid_type", "*"},
		{"29 content missing", messages(`[{"role":"user"}]`), "missing_required_parameter", "*"},
		{"29 content number", messages(`[{"role":"user","content":5}]`), "invalid_type", "messages[0].content"},
		{"30 open brace", `{`, "invalid_json", ""},
		{"30 empty", ``, "invalid_json", ""},
		{"30 array", `[]`, "invalid_type", ""},
		{"30 null", `null`, "invalid_type", ""},
		{"30 string", `"x"`, "invalid_type", ""},
		{"30 garbage after", body("") + ` x`, "invalid_json", ""},
		{"30 two objects", `{}{}`, "invalid_json", ""},
		{"32 bad UTF-8", messages("[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]"), "invalid_json", ""},
		{"33 model twice", `{"model":"svc-pulse","model":"svc-titan","messages":[{"role":"user","content":"Hi"}]}`, "invalid_json", ""},
		{"33 Model", `{"Model":"svc-pulse","messages":[{"role":"user","content":"Hi"}]}`, "missing_required_parameter", "model"},
		{"34 temperature 1e400", messages(`[{"role":"user","content":"Hi"}],"temperature":1e400`), "*", "*"},
		{"34 huge integer", `{"model":"svc-pulse","max_tokens":99999999999999999999,"messages":[{"role":"user","content":"Hi"}]}`, "*", "max_tokens"},
		{"35 depth 5000", messages(`[{"role":"user","content":"Hi"}],"x":` + deep), "invalid_json", ""},
		{"66 stream_options alone", body(`,"stream_options":{"include_usage":true}`), "invalid_value", "stream_options"},
		{"88 response_format string", body(`,"response_format":"json_object"`), "invalid_type", "response_format"},
		{"88 response_format xml", body(`,"response_format":{"type":"xml"}`), "invalid_value", "response_format.type"},
		{"functions", body(`,"functions":[{"name":"f"}]`), "unsupported_parameter", "functions"},
		{"trailing comma", `{"model":"svc-pulse","messages":[{"role":"user","content":"Hi"}],}`, "invalid_json", ""},
		{"NaN", messages(`[{"role":"user","content":"Hi"}],"temperature":NaN`), "invalid_json", ""},
		{"prompt too long", messages(`[{"role":"user","content":"` + strings.Repeat("one two three ", 4000) + `"}]`), "context_length_exceeded", "messages"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := post(t, s, s.Key, tc.body)
			code := tc.code
			if code == "*" {
				var e apiError
				_ = json.Unmarshal(a.Body, &e)
				code = e.Error.Code
			}
			e := wantError(t, a, http.StatusBadRequest, code)
			if e.Error.Type != "invalid_request_error" {
				t.Errorf("type = %q", e.Error.Type)
			}
			got := ""
			if e.Error.Param != nil {
				got = *e.Error.Param
			}
			if tc.param != "*" && got != tc.param {
				t.Errorf("param = %q, want %q (%s)", got, tc.param, e.Error.Message)
			}
		})
	}
}

// TestWire_Behaviour are fields that must do something, not only be accepted.
func TestWire_Behaviour(t *testing.T) {
	t.Parallel()
	s := server(t)
	t.Run("19 max_tokens 1", func(t *testing.T) {
		t.Parallel()
		c := wantCompletion(t, post(t, s, s.Key, `{"model":"svc-pulse","max_tokens":1`+endless+`,`+countTo+`}`))
		if c.Choices[0].FinishReason != "length" || c.Usage.Completion != 1 {
			t.Errorf("finish %s, %d tokens", c.Choices[0].FinishReason, c.Usage.Completion)
		}
	})
	t.Run("21 stop is kept and not returned", func(t *testing.T) {
		t.Parallel()
		free := wantCompletion(t, post(t, s, s.Key, `{"model":"svc-pulse","max_tokens":40,"temperature":0,`+countTo+`}`))
		text := *free.Choices[0].Message.Content
		words := strings.Fields(text)
		if len(words) < 4 {
			t.Fatalf("too short to stop: %q", text)
		}
		stop, _ := json.Marshal(words[3])
		c := wantCompletion(t, post(t, s, s.Key, fmt.Sprintf(`{"model":"svc-pulse","max_tokens":40,"temperature":0,"stop":%s,%s}`, stop, countTo)))
		want, _, _ := strings.Cut(text, words[3])
		if got := *c.Choices[0].Message.Content; got != want || c.Choices[0].FinishReason != "stop" {
			t.Errorf("got %q %s, want %q stop", got, c.Choices[0].FinishReason, want)
		}
	})
	t.Run("22 n=2", func(t *testing.T) {
		t.Parallel()
		one := wantCompletion(t, post(t, s, s.Key, body(`,"n":1,"seed":3`)))
		two := wantCompletion(t, post(t, s, s.Key, body(`,"n":2,"seed":3`)))
		if len(two.Choices) != 2 || two.Choices[1].Index != 1 || *two.Choices[0].Message.Content != *one.Choices[0].Message.Content {
			t.Errorf("two choices %+v, one %+v", two.Choices, one.Choices)
		}
		wantError(t, post(t, s, s.Key, body(`,"n":9`)), http.StatusBadRequest, "integer_above_max_value")
	})
	t.Run("25 seed", func(t *testing.T) {
		t.Parallel()
		ask := func(seed int) string {
			return *wantCompletion(t, post(t, s, s.Key, fmt.Sprintf(
				`{"model":"svc-pulse","max_tokens":24,"temperature":1.2,"seed":%d,%s}`, seed, countTo))).Choices[0].Message.Content
		}
		if a, b := ask(41), ask(41); a != b {
			t.Errorf("one seed, two texts: %q and %q", a, b)
		}
		if ask(41) == ask(42) && ask(43) == ask(44) {
			t.Error("the seed changes nothing")
		}
	})
	t.Run("34 never a server error", func(t *testing.T) {
		t.Parallel()
		for _, v := range []string{"1e400", "-1e400", "99999999999999999999", "1e-400", "0.0000000001", "[]", "{}", `""`, "true"} {
			for _, field := range []string{"temperature", "top_p", "max_completion_tokens", "n", "seed", "stop", "stream", "logit_bias", "tools", "tool_choice", "response_format"} {
				a := post(t, s, s.Key, `{"model":"svc-pulse","`+field+`":`+v+`,"messages":[{"role":"user","content":"Hi"}],"max_tokens":1}`)
				if a.Status >= 500 {
					t.Errorf("%s %s: %d %s", field, v, a.Status, a.Body)
				}
			}
		}
	})
	t.Run("89 characters", func(t *testing.T) {
		t.Parallel()
		a := post(t, s, s.Key, `{"model":"no<such>&model","messages":[{"role":"user","content":"Hi"}]}`)
		e := wantError(t, a, http.StatusNotFound, "model_not_found")
		if !strings.Contains(e.Error.Message, "no<such>&model") || strings.Contains(string(a.Body), `\u003c`) {
			t.Errorf("the name does not come back as it was sent: %s", a.Body)
		}
	})
}

// TestWire_Models is wire.md 61 and 62.
func TestWire_Models(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, auth := range []string{"", "Bearer nonsense", "Bearer " + s.Key} {
		a := call(t, s, "GET", "/v1/models", "Authorization", auth)
		var list struct {
			Object string           `json:"object"`
			Data   []map[string]any `json:"data"`
		}
		if err := json.Unmarshal(a.Body, &list); err != nil || a.Status != 200 || list.Object != "list" || len(list.Data) != 2 {
			t.Fatalf("auth %q: %d %s %v", auth, a.Status, a.Body, err)
		}
		for _, m := range list.Data {
			if len(m) != 4 || m["id"] == nil || m["object"] != "model" || m["created"] == nil || m["owned_by"] != "svc" {
				t.Errorf("model %v", m)
			}
		}
	}
	for _, path := range []string{"/v1/models/svc-pulse", "/v1/models/svc%2Dpulse", "/v1//models/svc-pulse"} {
		a := call(t, s, "GET", path)
		var m struct {
			ID            string                     `json:"id"`
			ContextWindow int                        `json:"context_window"`
			Description   string                     `json:"description"`
			Pricing       map[string]json.RawMessage `json:"pricing"`
		}
		if err := json.Unmarshal(a.Body, &m); err != nil || m.ID != "svc-pulse" || m.ContextWindow != 8192 || m.Description == "" {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
		if string(m.Pricing["input"]) != "0.05" || string(m.Pricing["output"]) != "0.1" {
			t.Errorf("%s: pricing %s, want the numbers 0.05 and 0.1", path, a.Body)
		}
	}
	wantError(t, call(t, s, "GET", "/v1/models/nope"), http.StatusNotFound, "model_not_found")
	wantError(t, call(t, s, "GET", "/v1/models/org%2Fnope"), http.StatusNotFound, "model_not_found")
	wantError(t, call(t, s, "GET", "/v1/models/..%2F..%2Fetc%2Fpasswd"), http.StatusNotFound, "model_not_found")
	wantError(t, call(t, s, "DELETE", "/v1/models/svc-pulse"), http.StatusMethodNotAllowed, "method_not_allowed")
	if a := call(t, s, "HEAD", "/v1/models"); a.Status != 200 || len(a.Body) != 0 {
		t.Errorf("HEAD: %d", a.Status)
	}
	if a := call(t, s, "GET", "/v1/models/"); a.Status != 200 || !strings.Contains(string(a.Body), `"list"`) {
		t.Errorf("trailing slash: %d %s", a.Status, a.Body)
	}
}

// TestWire_Paths is wire.md 57 to 60.
func TestWire_Paths(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, method := range []string{"GET", "PUT", "DELETE", "HEAD", "PATCH"} {
		a := call(t, s, method, "/v1/chat/completions")
		if allow := a.Header.Get("Allow"); a.Status != http.StatusMethodNotAllowed || !strings.Contains(allow, "POST") {
			t.Errorf("%s: %d, Allow %q", method, a.Status, allow)
		}
		if method != "HEAD" {
			wantError(t, a, http.StatusMethodNotAllowed, "method_not_allowed")
		}
	}
	for _, path := range []string{"/v1/foo", "/v1/responses", "/chat/completions", "/v1/completions", "/v1/embeddings", "/"} {
		e := wantError(t, call(t, s, "POST", path), http.StatusNotFound, "unknown_url")
		if path == "/chat/completions" && !strings.Contains(e.Error.Message, "/v1") {
			t.Errorf("%s: no hint at /v1: %s", path, e.Error.Message)
		}
	}
	for _, path := range []string{"/v1//chat/completions", "/v1/chat/completions/", "//v1/chat/completions"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+path, strings.NewReader(body("")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.Key)
		a, err := do(httpClient, req)
		if err != nil || a.Status != 200 {
			t.Errorf("%s: %d %s %v", path, a.Status, a.Body, err)
		}
	}
	a := call(t, s, "OPTIONS", "/v1/chat/completions", "Origin", "https://example.org",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,x-stainless-os")
	if a.Status != http.StatusNoContent || a.Header.Get("Access-Control-Allow-Origin") != "*" ||
		!strings.EqualFold(a.Header.Get("Access-Control-Allow-Headers"), "authorization,content-type,x-stainless-os") {
		t.Errorf("preflight: %d %v", a.Status, a.Header)
	}
	if exposed := strings.ToLower(post(t, s, s.Key, body("")).Header.Get("Access-Control-Expose-Headers")); !strings.Contains(exposed, "x-request-id") {
		t.Errorf("exposed headers: %q", exposed)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := call(t, s, "GET", path); a.Status != 200 {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
}
