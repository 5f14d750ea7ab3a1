package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// 57 to 59, 61, 62: every path and method.
func TestRoutes(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	for _, tt := range []struct {
		method, path string
		status       int
		code         string
		has          string // in the body, or in the header Allow of a 405
	}{
		{"GET", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
		{"PUT", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
		{"DELETE", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
		{"HEAD", "/v1/chat/completions", 405, "", "POST"},
		{"POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD"},
		{"DELETE", "/v1/models/svc-pulse", 405, "method_not_allowed", "GET, HEAD"},
		{"POST", "/v1/foo", 404, "unknown_url", "POST /v1/foo"},
		{"POST", "/v1/responses", 404, "unknown_url", "Use /v1/chat/completions."},
		{"POST", "/chat/completions", 404, "unknown_url", "Use /v1/chat/completions."},
		{"GET", "/models", 404, "unknown_url", "Use /v1/models."},
		{"GET", "/", 404, "unknown_url", ""},
		{"GET", "/v1/../v1/models", 404, "unknown_url", ""},
		{"GET", "/v1/chat%2Fcompletions", 404, "unknown_url", ""},
		{"POST", "/v1/chat/completions", 401, "missing_api_key", ""},
		{"POST", "/v1//chat/completions", 401, "missing_api_key", ""},
		{"POST", "//v1/chat/completions", 401, "missing_api_key", ""},
		{"POST", "/v1/chat/completions/", 401, "missing_api_key", ""},
		{"POST", "/v1/chat/completions?x=y", 401, "missing_api_key", ""},
		{"GET", "/v1/models", 200, "", `"data":[{"id":"org/m","object":"model","created":1750000000,"owned_by":"svc"},{"id":"svc-pulse"`},
		{"GET", "/v1/models/", 200, "", `"object":"list"`},
		{"HEAD", "/v1/models", 200, "", ""},
		{"GET", "/v1/models/svc-pulse", 200, "", `"description":"Quick.","context_window":8192,"pricing":{"input":0.00001,"output":0.00002}`},
		{"GET", "/v1/models/svc-titan", 200, "", `"id":"svc-titan"`},
		{"GET", "/v1/models/org%2Fm", 200, "", `"id":"org/m"`},
		{"GET", "/v1/models/org/m", 200, "", `"id":"org/m"`},
		{"GET", "/v1/models//org//m/", 200, "", `"id":"org/m"`},
		{"GET", "/v1/models/svc%2Dpulse", 200, "", `"id":"svc-pulse"`},
		{"GET", "/v1/models/nope", 404, "model_not_found", "'nope'"},
		{"GET", "/v1/models/old", 404, "model_not_found", "'old'"},
		{"GET", "/v1/models/SVC-PULSE", 404, "model_not_found", ""},
		{"GET", "/v1/models/..%2Fmodels", 404, "model_not_found", ""},
		{"GET", "/v1/models/%2F", 404, "model_not_found", ""},
		{"GET", "/healthz", 200, "", "ok"},
		{"GET", "/readyz", 200, "", "ready"},
		{"HEAD", "/readyz", 200, "", ""},
		{"OPTIONS", "/v1/nothing", 204, "", ""},
	} {
		// A key that is no key: only paths that need one may care.
		r := d.do(t, tt.method, tt.path, nil, "Authorization", "Basic x")
		if r.StatusCode != tt.status || r.code() != tt.code {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, r.StatusCode, r.body, tt.status, tt.code)
		}
		if tt.status == 405 {
			if got := r.Header.Get("Allow"); got != tt.has {
				t.Errorf("%s %s: Allow %q, want %q", tt.method, tt.path, got, tt.has)
			}
		} else if !strings.Contains(r.body, tt.has) {
			t.Errorf("%s %s: %s, want %s in it", tt.method, tt.path, r.body, tt.has)
		}
		if (tt.method == "HEAD" || tt.method == "OPTIONS") != (r.body == "") {
			t.Errorf("%s %s: body %q", tt.method, tt.path, r.body)
		}
	}
	if strings.Contains(d.do(t, "GET", "/v1/models", nil).body, `"old"`) {
		t.Error("a deprecated model is listed")
	}
}

// 60
func TestPreflight(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	r := d.do(t, "OPTIONS", "/v1/chat/completions", nil, "Origin", "https://x", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-os")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
		"Access-Control-Allow-Headers": "authorization,x-stainless-os", "Access-Control-Max-Age": "600",
		"Access-Control-Allow-Credentials": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.StatusCode != 204 {
		t.Errorf("status %d, want 204", r.StatusCode)
	}
	// What SDKs in a browser act on.
	exposed := strings.Split(d.post(t, body("")).Header.Get("Access-Control-Expose-Headers"), ", ")
	for _, name := range []string{"x-request-id", "retry-after", "retry-after-ms", "x-should-retry"} {
		if !slices.Contains(exposed, name) {
			t.Errorf("Access-Control-Expose-Headers: %q lacks %s", exposed, name)
		}
	}
}

// 56: a draining server takes no new calls but still says who it is.
func TestDraining(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	d.draining.Store(true)
	for _, b := range []string{body(""), body(`,"stream":true`), "{"} {
		r := d.post(t, b)
		if r.StatusCode != 503 || r.code() != "server_is_overloaded" || r.Header.Get("Retry-After") != "5" {
			t.Errorf("%d %v %s, want 503 with Retry-After 5", r.StatusCode, r.Header, r.body)
		}
	}
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/v1/models": 200} {
		if r := d.do(t, "GET", path, nil); r.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, r.StatusCode, r.body, want)
		}
	}
}

// One line a request, with what an operator needs and nothing that a caller would mind.
func TestLog(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	const prompt = "a very private prompt"
	r := d.post(t, strings.Replace(body(""), "Hi", prompt, 1), "X-Client-Request-Id", "mine", "X-Stainless-Retry-Count", "2")
	d.post(t, strings.Replace(body(`,"stream":true`), "Hi", prompt, 1))
	d.post(t, strings.Replace(body(`,"n":0`), "Hi", prompt, 1))
	d.do(t, "GET", "/v1/models", nil)
	d.do(t, "OPTIONS", "/", nil)
	d.do(t, "GET", "/v1/foo", nil)
	d.Close() // every handler has returned, and so has logged
	log := d.log.String()
	got := strings.Split(strings.TrimSpace(log), "\n")
	if len(got) != 6 {
		t.Fatalf("%d lines, want 6:\n%s", len(got), log)
	}
	for _, s := range []string{prompt, "private", "Hello", d.key, d.key[12:]} {
		if strings.Contains(log, s) {
			t.Errorf("the log has %q:\n%s", s, log)
		}
	}
	var v map[string]any
	must(t, json.Unmarshal([]byte(got[0]), &v))
	for name, want := range map[string]any{
		"level": "INFO", "msg": "request", "request_id": r.Header.Get("X-Request-Id"), "route": "chat.completions", "method": "POST",
		"status": 200.0, "account": d.account.ID, "key": d.keys.List(d.account.ID)[0].ID, "model": "svc-pulse", "stream": false,
		"target": "fake/x", "ending": "stop", "prompt_tokens": 10.0, "completion_tokens": 2.0, "charge": "0.00000014",
		"client_request_id": "mine", "retry": "2",
	} {
		if v[name] != want {
			t.Errorf("%s = %v, want %v", name, v[name], want)
		}
	}
	if !strings.Contains(got[2], `"code":"integer_below_min_value","status":400`) || !strings.Contains(got[5], `"route":"unknown"`) {
		t.Errorf("log:\n%s", log)
	}
}

// A ledger that cannot write serves nobody, says so, and is another server's chance.
func TestLedgerUnavailable(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	d.ledger.SetAdmission(errors.New("the disk is full"))
	for _, extra := range []string{"", `,"stream":true`} {
		r := d.post(t, body(extra))
		if r.StatusCode != 500 || r.code() != "ledger_unavailable" || r.Header.Get("Retry-After") != "5" || strings.Contains(r.body, "disk") {
			t.Errorf("%d %v %s, want 500 ledger_unavailable", r.StatusCode, r.Header, r.body)
		}
	}
	if r := d.do(t, "GET", "/readyz", nil); r.StatusCode != 503 {
		t.Errorf("/readyz: %d %s, want 503", r.StatusCode, r.body)
	}
}

// What is the caller's doing is information; what is ours is an error with its cause,
// even when the caller has left by then.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{chat.ErrClientGone, `"level":"INFO"`},
		{fmt.Errorf("%w: pipe", chat.ErrClientGone), `"level":"INFO"`},
		{errors.Join(chat.ErrClientGone, fmt.Errorf("%w: disk", ledger.ErrUnavailable)), `"level":"ERROR"`},
		{chat.ErrShutdown, `"level":"INFO"`},
		{chat.ErrNoCredit, `"level":"INFO"`},
		{&upstream.Failure{Class: upstream.Timeout, Err: upstreamtest.ErrScripted}, `"error":"upstream timeout: ` + upstreamtest.ErrScripted.Error()},
		{errors.New("who knows"), `"error":"who knows"`},
	} {
		log := &lines{}
		f := stub(func(context.Context, chat.Emitter) error { return tt.err })
		cat, err := catalog.New(nil)
		must(t, err)
		h := api.New(api.Config{Chat: f, Keys: f, Catalog: cat, Limiter: ratelimit.New(time.Now()), Draining: func() bool { return false }, Log: telemetry.NewLines(log, true)})
		func() {
			defer func() {
				if p := recover(); (p == http.ErrAbortHandler) != errors.Is(tt.err, chat.ErrClientGone) {
					t.Errorf("%v: recovered %v", tt.err, p)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body(""))))
		}()
		if !strings.Contains(log.String(), tt.want) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%v: log %s, want %s", tt.err, log, tt.want)
		}
	}
}
