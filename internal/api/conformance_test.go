package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// TestBodies has the cases of the contract that are a body and its answer, by their
// numbers there.
func TestBodies(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	user := func(content string) string {
		return `{"model":"svc-pulse","messages":[{"role":"user","content":` + content + `}]}`
	}
	messages := func(m string) string { return `{"model":"svc-pulse","messages":` + m + `}` }
	long := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") + "]" }
	for _, tt := range []struct {
		name, body  string
		status      int
		code, param string
	}{
		{"4 null", body(`,"stream":null,"stream_options":null,"temperature":null,"top_p":null,"max_tokens":null,"max_completion_tokens":null,"stop":null,"n":null,"seed":null,"tools":null,"tool_choice":null,"response_format":null,"logit_bias":null,"logprobs":null,"top_logprobs":null,"frequency_penalty":null,"presence_penalty":null,"functions":null,"modalities":null`), 200, "", ""},
		{"5 unknown", `{"model":"svc-pulse","provider":{"x":[1]},"messages":[{"role":"user","x":1,"content":[{"type":"text","text":"Hi","cache_control":{}}]}]}`, 200, "", ""},
		{"6 stream false", body(`,"stream":false`), 200, "", ""},
		{"8 developer", messages(`[{"role":"developer","content":"x"},{"role":"user","content":"x"}]`), 200, "", ""},
		{"9 assistant last", messages(`[{"role":"user","content":"x"},{"role":"assistant","content":"x"}]`), 200, "", ""},
		{"10 two assistants", messages(`[{"role":"user","content":"x"},{"role":"assistant","content":"x"},{"role":"assistant","content":"y"}]`), 200, "", ""},
		{"11 name", messages(`[{"role":"user","name":"n","content":"x"}]`), 200, "", ""},
		{"12 temperature 0", body(`,"temperature":0`), 200, "", ""},
		{"12 temperature 2", body(`,"temperature":2`), 200, "", ""},
		{"13 temperature 2.1", body(`,"temperature":2.1`), 400, "decimal_above_max_value", "temperature"},
		{"13 temperature -0.1", body(`,"temperature":-0.1`), 400, "decimal_below_min_value", "temperature"},
		{"14 temperature string", body(`,"temperature":"1"`), 400, "invalid_type", "temperature"},
		{"15 top_p 0", body(`,"top_p":0`), 200, "", ""},
		{"15 top_p 1", body(`,"top_p":1`), 200, "", ""},
		{"15 top_p 1.01", body(`,"top_p":1.01`), 400, "decimal_above_max_value", "top_p"},
		{"16 max_tokens 0", body(`,"max_tokens":0`), 400, "integer_below_min_value", "max_tokens"},
		{"16 max_tokens -1", body(`,"max_tokens":-1`), 400, "integer_below_min_value", "max_tokens"},
		{"16 max_tokens 1.5", body(`,"max_tokens":1.5`), 400, "invalid_type", "max_tokens"},
		{"16 max_tokens string", body(`,"max_tokens":"5"`), 400, "invalid_type", "max_tokens"},
		{"17 max_tokens 10.0", body(`,"max_tokens":10.0`), 200, "", ""},
		{"18 both limits", body(`,"max_tokens":1,"max_completion_tokens":1`), 400, "invalid_parameter_combination", "max_tokens"},
		{"20 above the cap", body(`,"max_tokens":4097`), 400, "invalid_value", "max_tokens"},
		{"20 above the cap, new name", body(`,"max_completion_tokens":4097`), 400, "invalid_value", "max_completion_tokens"},
		{"21 stop string", body(`,"stop":"x"`), 200, "", ""},
		{"21 20 stops", body(`,"stop":` + long(20)), 200, "", ""},
		{"21 65 stops", body(`,"stop":` + long(65)), 400, "array_above_max_length", "stop"},
		{"21 no stops", body(`,"stop":[]`), 200, "", ""},
		{"21 empty stop", body(`,"stop":[""]`), 400, "empty_string", "stop[0]"},
		{"23 n 9", body(`,"n":9`), 400, "integer_above_max_value", "n"},
		{"23 n 0", body(`,"n":0`), 400, "integer_below_min_value", "n"},
		{"23 n 2 where there is one", body(`,"n":2`), 400, "integer_above_max_value", "n"},
		{"24 seed 2^63", body(`,"seed":9223372036854775808`), 400, "integer_above_max_value", "seed"},
		{"24 seed -2^63", body(`,"seed":-9223372036854775808`), 200, "", ""},
		{"24 seed 1.5", body(`,"seed":1.5`), 400, "invalid_type", "seed"},
		{"26 no model", `{"messages":[{"role":"user","content":"x"}]}`, 400, "missing_required_parameter", "model"},
		{"26 no messages", `{"model":"svc-pulse"}`, 400, "missing_required_parameter", "messages"},
		{"27 []", messages(`[]`), 400, "empty_array", "messages"},
		{"27 string", messages(`"x"`), 400, "invalid_type", "messages"},
		{"27 [1]", messages(`[1]`), 400, "invalid_type", "messages[0]"},
		{"27 [{}]", messages(`[{}]`), 400, "missing_required_parameter", "messages[0].role"},
		{"27 role 1", messages(`[{"role":1}]`), 400, "invalid_type", "messages[0].role"},
		{"28 bot", messages(`[{"role":"bot","content":"x"}]`), 400, "invalid_value", "messages[0].role"},
		{"29 null content", user(`null`), 400, "invalid_type", "messages.[0].content"},
		{"29 no content", messages(`[{"role":"user"}]`), 400, "missing_required_parameter", "messages[0].content"},
		{"29 content 5", user(`5`), 400, "invalid_type", "messages[0].content"},
		{"30 {", `{`, 400, "invalid_json", ""},
		{"30 empty", ``, 400, "invalid_json", ""},
		{"30 []", `[]`, 400, "invalid_type", ""},
		{"30 null", `null`, 400, "invalid_type", ""},
		{"30 string", `"x"`, 400, "invalid_type", ""},
		{"30 {} x", `{} x`, 400, "invalid_json", ""},
		{"30 {}{}", `{}{}`, 400, "invalid_json", ""},
		{"31 BOM", "\ufeff" + body(""), 200, "", ""},
		{"32 UTF-8", user("\"\xff\""), 400, "invalid_json", ""},
		{"33 model twice", body(`,"model":"svc-pulse"`), 400, "invalid_json", ""},
		{"33 Model", `{"Model":"svc-pulse","messages":[{"role":"user","content":"x"}]}`, 400, "missing_required_parameter", "model"},
		{"34 1e400", body(`,"temperature":1e400`), 400, "decimal_above_max_value", "temperature"},
		{"34 20 digits", body(`,"max_tokens":99999999999999999999`), 400, "integer_above_max_value", "max_tokens"},
		{"35 depth", body(`,"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), 400, "invalid_json", ""},
		{"48 unknown model", strings.Replace(body(""), "svc-pulse", "svc-Pulse", 1), 404, "model_not_found", "model"},
		{"48 deprecated model", strings.Replace(body(""), "svc-pulse", "old", 1), 404, "model_not_found", "model"},
		{"66 stream_options alone", body(`,"stream_options":{"include_usage":true}`), 400, "invalid_value", "stream_options"},
		{"86 format it cannot", body(`,"response_format":{"type":"json_object"}`), 400, "unsupported_value", "response_format"},
		{"88 format string", body(`,"response_format":"json_object"`), 400, "invalid_type", "response_format"},
		{"88 format xml", body(`,"response_format":{"type":"xml"}`), 400, "invalid_value", "response_format.type"},
	} {
		r := d.post(t, tt.body)
		if param := r.param(); r.StatusCode != tt.status || r.code() != tt.code || param != tt.param && tt.name[:2] != "86" {
			t.Errorf("%s: %d %s %q, want %d %s %q: %s", tt.name, r.StatusCode, r.code(), param, tt.status, tt.code, tt.param, r.body)
		}
	}
}

// 1, 2: the whole answer, byte by byte.
func TestWholeAnswer(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	before := time.Now().Unix()
	r := d.post(t, body(""))
	var v struct {
		ID      string
		Created int64
	}
	must(t, json.Unmarshal([]byte(r.body), &v))
	want := fmt.Sprintf(`{"id":%q,"object":"chat.completion","created":%d,"model":"svc-pulse","system_fingerprint":"fp_0123456789","choices":[{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`, v.ID, v.Created)
	if r.StatusCode != 200 || r.body != want {
		t.Errorf("%d %s\nwant %s", r.StatusCode, r.body, want)
	}
	if !regexp.MustCompile(`^chatcmpl-[A-Za-z0-9]{20,}$`).MatchString(v.ID) || v.Created < before || v.Created > time.Now().Unix() {
		t.Errorf("id %q, created %d", v.ID, v.Created)
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" || r.ContentLength != int64(len(want)) || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", r.Header)
	}
}

// 7, 19, 25: what the provider is asked, and held to.
func TestProviderIsAsked(t *testing.T) {
	t.Parallel()
	var c []upstream.Call
	d := open(t, upstreamtest.Choice(func(call *upstream.Call) upstreamtest.Script {
		c = append(c, *call) // one at a time
		if call.MaxTokens == 1 {
			return upstreamtest.Script{upstreamtest.Text("Hel"), upstreamtest.Finish(wire.FinishLength)}
		}
		return upstreamtest.Script{upstreamtest.Text("Hello"), upstreamtest.Finish(wire.FinishStop)}
	}))
	d.post(t, `{"model":"svc-pulse","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`)
	r := d.post(t, body(`,"max_tokens":1,"seed":7`))
	if !strings.Contains(r.body, `"finish_reason":"length"`) || !strings.Contains(r.body, `"completion_tokens":1,`) {
		t.Errorf("max_tokens 1: %s", r.body)
	}
	d.post(t, body(`,"seed":7`))
	if got := c[0].Request.Messages[0].Content; got != "ab" {
		t.Errorf("content = %q, want ab", got)
	}
	if c[1].Seed != 7 || c[2].Seed != 7 || c[1].MaxTokens != 1 || c[0].MaxTokens != 4096 {
		t.Errorf("calls %+v", c)
	}
}

// 39, 40
func TestMedia(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	for _, tt := range []struct {
		name, value string
		status      int
	}{
		{"Content-Type", "text/plain", 415},
		{"Content-Type", "", 200},
		{"Content-Type", "application/json; charset=utf-8", 200},
		{"Content-Type", `Application/JSON;charset="UTF-8"`, 200},
		{"Content-Type", "application/json; charset=latin1", 415},
		{"Content-Type", "application/json; profile", 200},
		{"Content-Type", "application/vnd.x+json", 200},
		{"Content-Type", "application/jsonx", 415},
		{"Content-Type", "text/x+json", 415},
		{"Content-Type", ";", 415},
		{"Content-Encoding", "br", 415},
		{"Content-Encoding", "gzip", 415},
		{"Content-Encoding", "identity", 200},
		{"Accept", "text/nothing", 200},
	} {
		r := d.post(t, body(""), tt.name, tt.value)
		if r.StatusCode != tt.status || tt.status == 415 && r.code() != "unsupported_media_type" {
			t.Errorf("%s %q: %d %s, want %d", tt.name, tt.value, r.StatusCode, r.body, tt.status)
		}
		if got := r.Header.Get("Accept-Encoding"); (got == "identity") != (tt.name == "Content-Encoding" && tt.status == 415) {
			t.Errorf("%s %q: Accept-Encoding %q", tt.name, tt.value, got)
		}
	}
}

// 41 to 45, over raw bytes where a client library would tidy up.
func TestKeys(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	ctx := context.Background()
	other, secret := d.customer(t, "b", "pro", credit)
	_, err := d.keys.Revoke(ctx, d.keys.List(other.ID)[0].ID)
	must(t, err)
	stopped, suspended := d.customer(t, "c", "pro", credit)
	status := "suspended"
	_, err = d.accounts.Change(ctx, stopped.ID, account.Change{Status: &status})
	must(t, err)
	_, expired, err := d.keys.Create(ctx, apikey.NewKey{AccountID: d.account.ID, Name: "k", ExpiresAt: time.Now().Add(time.Hour)})
	must(t, err)
	d.later.Store(int64(time.Hour))
	unknown := d.key[:len(d.key)-1] + string(rune('0'+(d.key[len(d.key)-1]+1)%10))
	for _, tt := range []struct {
		header string
		status int
		code   string
	}{
		{"X: y", 401, "missing_api_key"},
		{"Authorization:", 401, "missing_api_key"},
		{"Authorization: Basic x", 401, "missing_api_key"},
		{"Authorization: Bearer", 401, "missing_api_key"},
		{"Authorization: Bearer ", 401, "missing_api_key"},
		{"Authorization: Bearer  " + d.key, 401, "invalid_api_key"},
		{"Authorization: Bearer " + d.key + " x", 401, "invalid_api_key"},
		{"Authorization: Bearer " + d.key + "\r\n x", 401, "invalid_api_key"},
		{"Authorization: Bearer " + d.key + "\r\nAuthorization: Bearer " + d.key, 401, "invalid_api_key"},
		{"Authorization: Bearer " + d.key + "\xc3\xa9", 401, "invalid_api_key"},
		{"Authorization: Bearer " + strings.Repeat("k", 513), 401, "invalid_api_key"},
		{"Authorization: Bearer sk-other", 401, "invalid_api_key"},
		{"Authorization: Bearer " + unknown, 401, "invalid_api_key"},
		{"Authorization: Bearer " + secret, 401, "api_key_revoked"},
		{"Authorization: Bearer " + suspended, 401, "account_suspended"},
		{"Authorization: Bearer " + string(expired), 401, "api_key_expired"},
		{"Authorization: bearer " + d.key, 400, "invalid_json"},
		{"Authorization: BEARER   " + d.key + "  ", 401, "invalid_api_key"},
		{"Authorization: BEARER " + d.key + "  ", 400, "invalid_json"},
	} {
		r := d.raw(t, d.head(tt.header, "Content-Length: 1")+"{") // 45: the key comes before the body
		if r.StatusCode != tt.status || r.code() != tt.code {
			t.Errorf("%q: %d %s, want %d %s", tt.header, r.StatusCode, r.body, tt.status, tt.code)
		}
		if got := r.Header.Get("Www-Authenticate"); (got == "Bearer") != (tt.status == 401) {
			t.Errorf("%q: WWW-Authenticate %q", tt.header, got)
		}
		for _, k := range []string{d.key, secret, suspended, unknown, string(expired)} {
			if strings.Contains(r.body, k[12:40]) || strings.Contains(d.log.String(), k[12:40]) {
				t.Errorf("%q: the answer or the log shows the key: %s", tt.header, r.body)
			}
		}
	}
}

// A key without the right to chat is told so before its body is looked at.
func TestScopes(t *testing.T) {
	t.Parallel()
	p := hello()
	d := open(t, p)
	for _, tt := range []struct {
		scopes account.Scopes
		status int
		code   string
	}{
		{0, 200, ""}, // the default
		{account.ScopeChat, 200, ""},
		{account.ScopeChat | account.ScopeBilling, 200, ""},
		{account.ScopeModels, 403, "scope_missing"},
		{account.ScopeUsageRead | account.ScopeKeysWrite | account.ScopeBilling, 403, "scope_missing"},
	} {
		_, secret, err := d.keys.Create(t.Context(), apikey.NewKey{AccountID: d.account.ID, Name: "k", Scopes: tt.scopes})
		must(t, err)
		texts := []string{body("")}
		if tt.status != 200 {
			texts = append(texts, "{")
		}
		for _, text := range texts {
			r := d.post(t, text, "Authorization", "Bearer "+string(secret))
			if r.StatusCode != tt.status || r.code() != tt.code {
				t.Errorf("with the scopes %s: %d %s, want %d %s", tt.scopes, r.StatusCode, r.body, tt.status, tt.code)
			}
		}
	}
	if n := len(p.Calls()); n != 3 {
		t.Errorf("the provider had %d calls, want 3", n)
	}
}

// 46, 47, 49
func TestMoneyAndPlans(t *testing.T) {
	t.Parallel()
	p := hello()
	d := open(t, p)
	_, poor := d.customer(t, "poor", "free", 0)
	_, low := d.customer(t, "low", "pro", 100+20*16-1)
	titan := strings.Replace(body(""), "svc-pulse", "svc-titan", 1)
	for _, tt := range []struct {
		name, key, body string
		status          int
		code, message   string
	}{
		{"no credit", poor, body(""), 402, "insufficient_quota", "Insufficient credits: your balance is exhausted. Add credits to continue."},
		{"plan before credit", poor, titan, 403, "model_access_denied", "Your plan does not have access to model 'svc-titan'. Upgrade your plan."},
		{"model before plan", poor, strings.Replace(titan, "titan", "none", 1), 404, "model_not_found", "The model 'svc-none' does not exist or you do not have access to it."},
		{"shape before model", poor, `{"model":"svc-none","messages":[]}`, 400, "empty_array", ""},
		{"size before credit", poor, body(`,"max_tokens":4097`), 400, "invalid_value", ""},
		{"little credit", low, titan, 402, "insufficient_quota", "Insufficient credits: this call needs up to 0.00000042 IU, but your balance has 0.000000419 IU left (0 IU is held by running calls). The largest max_tokens that fits is 15."},
		{"enough for what was asked", low, body(`,"max_tokens":15`), 200, "", ""},
	} {
		r := d.post(t, tt.body, "Authorization", "Bearer "+tt.key)
		if r.StatusCode != tt.status || r.code() != tt.code || !strings.Contains(r.body, tt.message) || r.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %d %v %s, want %d %s %s", tt.name, r.StatusCode, r.Header, r.body, tt.status, tt.code, tt.message)
		}
	}
	if n := len(p.Calls()); n != 1 {
		t.Errorf("the provider had %d calls, want 1", n)
	}
}

// The budget of a key is a 402 of its own, with what fits, and 300 callers at once get
// exactly as much as it covers.
func TestKeyBudget(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	key := func(amount money.Amount) []string {
		_, secret, err := d.keys.Create(t.Context(), apikey.NewKey{AccountID: d.account.ID, Name: "k", Budget: account.Budget{Amount: amount}})
		must(t, err)
		return []string{"Authorization", "Bearer " + string(secret)}
	}
	short := key(299)
	r := d.post(t, body(`,"max_tokens":10`), short...)
	const message = "Key budget exceeded: this call needs up to 0.0000003 IU, but the budget of this API key has 0.000000299 IU left (0 IU is held by running calls). The largest max_tokens that fits is 9."
	if r.StatusCode != 402 || r.code() != "key_budget_exceeded" || !strings.Contains(r.body, message) {
		t.Errorf("%d %s, want 402 %s", r.StatusCode, r.body, message)
	}
	r = d.post(t, body(`,"max_tokens":9`), short...)
	if r.StatusCode != 200 {
		t.Errorf("what fits: %d %s", r.StatusCode, r.body)
	}

	const k, callers = 7, 300
	before := d.ledger.Balance(d.account.ID).Posted
	first := d.post(t, body(`,"max_tokens":9`))
	price := d.ledger.Balance(d.account.ID).Posted - before // of one answer
	if first.StatusCode != 200 || price <= 0 {
		t.Fatalf("%d %s at %s", first.StatusCode, first.body, price)
	}
	h := key(k * 280) // what a call of max_tokens 9 holds
	var admitted, refused atomic.Int32
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			switch r := d.post(t, body(`,"max_tokens":9`), h...); r.code() {
			case "":
				admitted.Add(1)
			case "key_budget_exceeded":
				refused.Add(1)
			default:
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		})
	}
	wg.Wait()
	// What is given back lets further calls in, but never more than is paid for.
	if n := money.Amount(admitted.Load()); n < k || n*price > k*280 || admitted.Load()+refused.Load() != callers {
		t.Errorf("%d calls of %s are admitted and %d refused, on a budget of %s", n, price, refused.Load(), money.Amount(k*280))
	}
}

// 54, 73: failures before the first byte are plain answers in both modes.
func TestProviderFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		class  upstream.Class
		status int
		code   string
		retry  string
	}{
		{upstream.Failed, 502, "upstream_error", ""},
		{upstream.Unreachable, 502, "upstream_error", ""},
		{upstream.Refused, 502, "upstream_error", ""},
		{upstream.Timeout, 502, "upstream_timeout", ""},
		{upstream.Overloaded, 502, "upstream_overloaded", ""},
		{upstream.Cut, 502, "upstream_error", ""},
		{upstream.Busy, 503, "server_is_overloaded", "1"},
	} {
		d := open(t, provider(upstreamtest.Fail(tt.class)))
		for _, extra := range []string{"", `,"stream":true`} {
			r := d.post(t, body(extra))
			if r.StatusCode != tt.status || r.code() != tt.code || r.Header.Get("Retry-After") != tt.retry || strings.Contains(r.body, "script") {
				t.Errorf("%s%s: %d %v %s, want %d %s", tt.class, extra, r.StatusCode, r.Header, r.body, tt.status, tt.code)
			}
		}
		if b := d.ledger.Balance(d.account.ID); b.Posted != 0 || b.Held != 0 {
			t.Errorf("%s: Balance = %+v", tt.class, b)
		}
	}
	// A refusal is told from a provider in trouble.
	if r := open(t, provider(upstreamtest.Fail(upstream.Refused))).post(t, body("")); !strings.Contains(r.body, "It will refuse it again") {
		t.Errorf("refused: %d %s", r.StatusCode, r.body)
	}
	// In the middle of a whole answer it is the same.
	d := open(t, provider(upstreamtest.Text("a"), upstreamtest.Fail(upstream.Cut)))
	if r := d.post(t, body("")); r.StatusCode != 502 || r.code() != "upstream_error" {
		t.Errorf("cut: %d %s", r.StatusCode, r.body)
	}
}

// 89: text goes out as the model wrote it, in both modes.
func TestOddText(t *testing.T) {
	t.Parallel()
	odd := "<b>&\u2028\u2029\"\\\n\t\x00\x7f é 😀 {\"error\": null}"
	d := open(t, provider(upstreamtest.Text(odd), upstreamtest.Finish(wire.FinishStop)))
	r := d.post(t, body(""))
	if got := content(t, r.body); got != odd || !strings.Contains(r.body, "<b>&") || strings.Contains(r.body, "\u2028") {
		t.Errorf("whole %q, want %q: %s", got, odd, r.body)
	}
	if got := streamed(t, d.post(t, body(`,"stream":true`)).body); got != odd {
		t.Errorf("streamed %q, want %q", got, odd)
	}
}

func content(t testing.TB, body string) string {
	t.Helper()
	var v struct {
		Choices []struct{ Message struct{ Content string } }
	}
	must(t, json.Unmarshal([]byte(body), &v))
	return v.Choices[0].Message.Content
}
