package wire_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/parley-ai/parley/internal/wire"
)

// schemas compiles component schemas of the published document.
func schemas(t *testing.T) func(name string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("openapi.yaml", doc); err != nil {
		t.Fatal(err)
	}
	return func(name string) *jsonschema.Schema {
		t.Helper()
		s, err := c.Compile("openapi.yaml#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func validate(t *testing.T, s *jsonschema.Schema, text []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

func TestAnswersMatchOpenAPI(t *testing.T) {
	t.Parallel()
	schema := schemas(t)
	h := head()
	h.ID = "chatcmpl-abcdefghijklmnopqrstuvwxyz123"
	call := wire.ToolCall{ID: "call_a", Name: "f"}
	completion := wire.Completion{Head: h, Choices: []wire.Choice{
		{Content: "Hello", Reasoning: "hm", Finish: wire.FinishStop},
		{ToolCalls: []wire.ToolCall{call}, Finish: wire.FinishToolCalls},
		{Refusal: "No.", Finish: wire.FinishContentFilter},
		{Content: "Hi", Logprobs: logprobs(), Finish: wire.FinishStop},
	}}
	validate(t, schema("ChatCompletion"), completion.AppendJSON(nil))

	chunk := schema("ChatCompletionChunk")
	for _, usage := range []bool{false, true} {
		e := wire.NewChunkEncoder(h, usage)
		for _, b := range [][]byte{
			e.AppendRole(nil, 0), e.AppendContent(nil, 1, "x"), e.AppendContentLogprobs(nil, 0, "Hi", logprobs()), e.AppendReasoning(nil, 0, "x"), e.AppendRefusal(nil, 0, "No."), e.AppendKeepAlive(nil, 0),
			e.AppendToolCall(nil, 0, 0, "call_a", "f", true), e.AppendToolArguments(nil, 0, 0, "{}"),
			e.AppendFinish(nil, 0, wire.FinishLength), e.AppendUsage(nil, wire.Usage{PromptTokens: 1}),
		} {
			validate(t, chunk, b)
			if bytes.Contains(b, []byte(`"error"`)) {
				t.Errorf("%s: has the key error, on which clients abort", b)
			}
		}
	}

	m := wire.Model{ID: "svc-pulse", ContextWindow: 8192, Pricing: wire.Pricing{Input: "0.05", Output: "10"}}
	validate(t, schema("Model"), m.AppendJSON(nil))
	validate(t, schema("ModelList"), wire.ModelList{m}.AppendJSON(nil))
	validate(t, schema("ModelList"), wire.ModelList(nil).AppendJSON(nil))
	for _, e := range everyError() {
		validate(t, schema("Error"), e.AppendJSON(nil))
	}
}

// TestRequestsMatchOpenAPI checks that the published request schema takes what
// DecodeChat takes, and the reverse where a schema can tell.
func TestRequestsMatchOpenAPI(t *testing.T) {
	t.Parallel()
	s := schemas(t)("ChatCompletionRequest")
	tests := []struct {
		body string
		ok   bool
	}{
		{`{"model":"m","messages":[{"role":"user","content":"x","extra":1}],"extra":{}}`, true},
		{`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"x"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":""}]}]}`, true},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"stop":null,"n":1.0,"seed":-9223372036854775808,"tools":[],"logit_bias":{"5":-100},"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":null}}}`, true},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"stop":[""]}`, false},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"n":9}`, false},
		{`{"model":"m","messages":[{"role":"bot","content":"x"}]}`, false},
		{`{"model":"m","messages":[]}`, false},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":2.1}`, false},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"seed":9223372036854775808}`, false},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"logit_bias":{"x":1}}`, false},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":"json_object"}`, false},
		{`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"a b"}}]}`, false},
	}
	for _, tt := range tests {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		fault := s.Validate(v)
		_, refused := wire.DecodeChat([]byte(tt.body))
		if (fault == nil) != tt.ok || (refused == nil) != tt.ok {
			t.Errorf("%s: schema says %v, DecodeChat says %v, want ok = %v", tt.body, fault, refused, tt.ok)
		}
	}
}

// everyError makes one of each refusal of errors.go.
func everyError() []*wire.Error {
	s := wire.Shortfall{Need: "0.5", Left: "0.2", Held: "0.1", Fits: 120}
	return []*wire.Error{
		wire.MissingKey(), wire.MalformedKey(), wire.IncorrectKey("sk-parley-0123456789wxyz"), wire.KeyRevoked(), wire.KeyExpired(), wire.AccountSuspended(),
		wire.NoCredit(), wire.NotEnoughCredit(s), wire.KeyBudgetExceeded(s), wire.SubscriptionInactive(),
		wire.PlanLacksModel("svc-titan"), wire.KeyLacksModel("svc-titan"), wire.AddressNotAllowed(), wire.ScopeMissing("chat"),
		wire.ModelNotFound("x"), wire.UnknownURL("POST", "/v1/foo"), wire.MethodNotAllowed("GET", "/v1/chat/completions", "POST"),
		wire.BodyTooLarge(16 << 20), wire.UnsupportedContentType("text/plain"), wire.UnsupportedContentEncoding("br"),
		wire.RequestsPerMinute("svc-pulse", 60, 60, time.Second), wire.TokensPerMinute("svc-pulse", 30000, 29937, 385, 644*time.Millisecond),
		wire.TooLargeForLimit("svc-pulse", 30000, 30601), wire.TooManyRunning("svc-pulse", 4),
		wire.Internal(), wire.LedgerUnavailable(),
		wire.UpstreamFailed(), wire.UpstreamRefused(), wire.UpstreamCut(), wire.UpstreamTimeout(), wire.UpstreamOverloaded(), wire.Overloaded(2 * time.Second),
		wire.MaxTokensTooLarge("max_tokens", 2, 1), wire.MaxTokensAbovePlan("max_tokens", 2, 1), wire.ContextLengthExceeded(1, 2, true), wire.JSONWordMissing(),
		wire.UnsupportedParameter("tools"), wire.UnsupportedContent(0, 1, "image_url"), wire.ValueRefused("tools"),
	}
}

// TestErrors_Table has status, type, code and headers of every refusal.
func TestErrors_Table(t *testing.T) {
	t.Parallel()
	want := strings.Split(strings.TrimSpace(`
401 authentication_error missing_api_key WWW-Authenticate=Bearer
401 authentication_error invalid_api_key WWW-Authenticate=Bearer
401 authentication_error invalid_api_key WWW-Authenticate=Bearer
401 authentication_error api_key_revoked WWW-Authenticate=Bearer
401 authentication_error api_key_expired WWW-Authenticate=Bearer
401 authentication_error account_suspended WWW-Authenticate=Bearer
402 insufficient_quota insufficient_quota
402 insufficient_quota insufficient_quota
402 insufficient_quota key_budget_exceeded
402 insufficient_quota billing_not_active
403 permission_error model_access_denied
403 permission_error model_access_denied
403 permission_error address_not_allowed
403 permission_error scope_missing
404 invalid_request_error model_not_found
404 invalid_request_error unknown_url
405 invalid_request_error method_not_allowed Allow=POST
413 invalid_request_error request_too_large Connection=close
415 invalid_request_error unsupported_media_type
415 invalid_request_error unsupported_media_type Accept-Encoding=identity
429 requests rate_limit_exceeded Retry-After=1 retry-after-ms=1000
429 tokens rate_limit_exceeded Retry-After=1 retry-after-ms=644
429 tokens rate_limit_exceeded x-should-retry=false
429 requests rate_limit_exceeded Retry-After=1 retry-after-ms=1000
500 server_error internal_error
500 server_error ledger_unavailable Retry-After=5 retry-after-ms=5000
502 server_error upstream_error
502 server_error upstream_error
502 server_error upstream_error
502 server_error upstream_timeout
502 server_error upstream_overloaded
503 server_error server_is_overloaded Retry-After=2 retry-after-ms=2000
400 invalid_request_error invalid_value
400 invalid_request_error invalid_value
400 invalid_request_error context_length_exceeded
400 invalid_request_error invalid_value
400 invalid_request_error unsupported_parameter
400 invalid_request_error unsupported_value
400 invalid_request_error unsupported_value`), "\n")
	rate := regexp.MustCompile(`(?i)rate[\s_-]*limit`)
	for i, e := range everyError() {
		var got strings.Builder
		got.WriteString(fmt.Sprint(e.Status, " ", e.Type, " ", e.Code))
		for _, h := range e.Header {
			got.WriteString(" " + h.Name + "=" + h.Value)
		}
		if got.String() != want[i] {
			t.Errorf("error %d = %s, want %s", i, got.String(), want[i])
		}
		text := string(e.AppendJSON(nil))
		if !strings.HasPrefix(text, `{"error":{"message":`) || strings.Contains(text, "\n") {
			t.Errorf("envelope %s", text)
		}
		if e.Status != 429 && rate.MatchString(text) {
			t.Errorf("%s: clients take this for a 429", text)
		}
		if (e.Status >= 500 || e.Status >= 401 && e.Status <= 403) && strings.Contains(text, "invalid_request_error") {
			t.Errorf("%s: clients take this for a 400", text)
		}
		if why, ok := wire.Explain(e.Code); !ok || !strings.HasSuffix(why, ".") || e.Status != 429 && rate.MatchString(why) {
			t.Errorf("Explain(%s) = %q, %v", e.Code, why, ok)
		}
		if !strings.HasPrefix(e.Error(), e.Code+": ") {
			t.Errorf("Error() = %q", e.Error())
		}
	}
	seen := map[string]bool{}
	for _, e := range wire.Explanations() {
		if seen[e.Code] {
			t.Errorf("%s is explained twice", e.Code)
		}
		seen[e.Code] = true
	}
	if _, ok := wire.Explain("no_such_code"); ok {
		t.Error("Explain knows no_such_code")
	}
}

func TestErrors_Messages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  *wire.Error
		want string
	}{
		{wire.IncorrectKey("sk-parley-0123456789wxyz"), "Incorrect API key provided: sk-pa***wxyz."},
		{wire.IncorrectKey("hunter2"), "Incorrect API key provided: ***."},
		{wire.IncorrectKey("\x00\xff\n" + strings.Repeat("é", 20) + "\r\n"), "Incorrect API key provided: ???é***é??."},
		{wire.NotEnoughCredit(wire.Shortfall{Need: "0.5", Left: "0.2", Held: "0.1", Fits: 120}), "Insufficient credits: this call needs up to 0.5 IU, but your balance has 0.2 IU left (0.1 IU is held by running calls). The largest max_tokens that fits is 120."},
		{wire.NotEnoughCredit(wire.Shortfall{Need: "0.5", Left: "0", Held: "0"}), "Insufficient credits: this call needs up to 0.5 IU, but your balance has 0 IU left (0 IU is held by running calls). No max_tokens is small enough to fit."},
		{wire.ModelNotFound("x"), "The model 'x' does not exist or you do not have access to it."},
		{wire.ModelNotFound("rate_limit\n" + strings.Repeat("é", 100)), "The model 'rate*limit?" + strings.Repeat("é", 26) + "...' does not exist or you do not have access to it."},
		{wire.UnknownURL("POST", "/v1/foo"), "Unknown request URL: POST /v1/foo. Please check the URL for typos."},
		{wire.UnknownURL("POST", "/chat/completions"), "Unknown request URL: POST /chat/completions. Please check the URL for typos. Use /v1/chat/completions."},
		{wire.UnknownURL("POST", "/v1/responses/"), "Unknown request URL: POST /v1/responses/. Please check the URL for typos. Use /v1/chat/completions."},
		{wire.UnknownURL("POST", "/v1/v1/chat/completions"), "Unknown request URL: POST /v1/v1/chat/completions. Please check the URL for typos. Use /v1/chat/completions."},
		{wire.UnknownURL("GET", "/"), "Unknown request URL: GET /. Please check the URL for typos."},
		{wire.UnknownURL("GET", "/models"), "Unknown request URL: GET /models. Please check the URL for typos. Use /v1/models."},
		{wire.MethodNotAllowed("GET", "/v1/chat/completions", "POST"), "Not allowed to GET on /v1/chat/completions. Use POST."},
		{wire.BodyTooLarge(16 << 20), "Request body too large: the limit is 16777216 bytes."},
		{wire.UnsupportedContentType("text/plain"), "Unsupported content type 'text/plain'. Use application/json."},
		{wire.RequestsPerMinute("svc-pulse", 60, 60, time.Second), "Rate limit reached for svc-pulse on requests per min (RPM): Limit 60, Used 60, Requested 1. Please try again in 1s."},
		{wire.TokensPerMinute("svc-pulse", 30000, 29937, 385, 644*time.Millisecond), "Rate limit reached for svc-pulse on tokens per min (TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms."},
		{wire.TooLargeForLimit("svc-pulse", 30000, 30601), "Request too large for svc-pulse on tokens per min (TPM): Limit 30000, Requested 30601. The input or output tokens must be reduced in order to run successfully."},
	}
	for _, tt := range tests {
		if tt.err.Message != tt.want {
			t.Errorf("message = %q, want %q", tt.err.Message, tt.want)
		}
	}
}

// TestErrors_RetryAfter keeps the seconds within 1..60 and in line with the
// milliseconds, whatever the limiter says.
func TestErrors_RetryAfter(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{
		-time.Second: "1 1", 0: "1 1", time.Microsecond: "1 1", 1500 * time.Millisecond: "2 1500", 59_001 * time.Millisecond: "60 59001", time.Hour: "60 60000",
	} {
		e := wire.RequestsPerMinute("m", 1, 1, wait)
		if got := e.Header[0].Value + " " + e.Header[1].Value; got != want {
			t.Errorf("wait %v: %s, want %s", wait, got, want)
		}
		if _, err := strconv.Atoi(e.Header[0].Value); err != nil || strings.Contains(e.Message, "µ") {
			t.Errorf("wait %v: %+v", wait, e)
		}
	}
}
