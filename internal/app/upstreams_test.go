package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// answer is a provider that says hello and counts 7 and 2 tokens.
func answer(e *upstreamtest.Exchange) {
	e.Stream()
	e.Event(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}`)
	e.Event(`{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}`)
	e.Event(`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`)
	e.Done()
}

// outside are options for a server whose first model runs at providers outside, tried
// in this order.
func outside(t *testing.T, scripts map[string]func(*upstreamtest.Exchange), order ...string) (Options, *output, *output) {
	t.Helper()
	o, out, errs := options(t, t.TempDir(), nil)
	o.upstreams = nil
	o.Config.Upstreams, o.Config.Models = nil, o.Config.Models[:1]
	o.Config.Models[0].Targets = nil
	for _, id := range order {
		fake := upstreamtest.NewHTTP(t, scripts[id])
		o.Config.Upstreams = append(o.Config.Upstreams, config.Upstream{
			ID: id, Kind: config.KindOpenAI, BaseURL: fake.URL, APIKey: "sk-of-" + config.Secret(id), Tokenizer: "o200k_base", Timeouts: config.Timeouts{Connect: time.Minute},
		})
		o.Config.Models[0].Targets = append(o.Config.Models[0].Targets, config.Target{Upstream: id, Model: "big"})
	}
	return o, out, errs
}

func TestServe_Upstreams(t *testing.T) {
	t.Parallel()
	key := make(chan string, 1)
	o, out, errs := outside(t, map[string]func(*upstreamtest.Exchange){
		"full": func(e *upstreamtest.Exchange) {
			e.Respond(http.StatusTooManyRequests, "application/json", "", `{"error":{"message":"we are the provider"}}`)
		},
		"rack": func(e *upstreamtest.Exchange) {
			key <- e.Request.Header.Get("Authorization")
			answer(e)
		},
	}, "full", "rack")
	o.Config.Metrics.Listen = "127.0.0.1:0"
	r := start(t, o, out, errs)
	errs.await(t, "upstream rack, 127.0.0.1:")
	res := r.post(t, secret.FindString(out.String()), hello)
	if body := read(t, res.Body); res.StatusCode != http.StatusOK || !strings.Contains(body, `"content":"Hello"`) || !strings.Contains(body, `"prompt_tokens":7,"completion_tokens":2`) {
		t.Errorf("the call gives %d %s", res.StatusCode, body)
	}
	if got := <-key; got != "Bearer sk-of-rack" {
		t.Errorf("the provider was given %q", got)
	}
	c := client(t, o.Config.Data)
	list, err := c.Receipts(t.Context(), "default", 1)
	if err != nil || len(list) != 1 || list[0].Target != "rack/big" || list[0].Attempts != 2 || list[0].UsageSource != "provider" {
		t.Errorf("the receipt is %+v, %v", list, err)
	}
	models, err := c.Models(t.Context())
	if err != nil || !cmp.Equal(models[0].Targets, []string{"full/big", "rack/big"}) {
		t.Errorf("the models are %+v, %v", models, err)
	}
	for _, want := range []string{
		`parley_requests_total{code="",model="svc-pulse",route="chat.completions",status="200"} 1`,
		`parley_prompt_tokens_total{model="svc-pulse"} 7`,
		`parley_completion_tokens_total{model="svc-pulse"} 2`,
		`parley_charged_iu_total{model="svc-pulse"} 0.00055`,
		`parley_time_to_first_token_seconds_count{model="svc-pulse"} 1`,
		`parley_upstream_attempts_total{outcome="ok",upstream="rack"} 1`,
		`parley_upstream_attempts_total{outcome="overloaded",upstream="full"} 1`,
		`parley_upstream_retries_total{model="svc-pulse"} 1`,
		`parley_running_calls{mode="whole"} 0`,
		`parley_ledger_commits_total{result="ok"} `,
		`parley_ledger_commits_total{result="failed"} 0`,
		`parley_ready 1`,
	} {
		r.awaitMetric(t, want)
	}
}

// client speaks to the server on dir.
func client(t *testing.T, dir string) *admin.Client {
	t.Helper()
	c, err := admin.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var metricsURL = regexp.MustCompile(`http://\S+/metrics`)

func (r *running) metrics(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, metricsURL.FindString(r.err.String()), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return read(t, res.Body)
}

// awaitMetric reads the metrics until a line begins with want: a request is counted
// after the last byte of its answer.
func (r *running) awaitMetric(t *testing.T, want string) {
	t.Helper()
	text := ""
	for range 1000 {
		text = r.metrics(t)
		if strings.Contains("\n"+text, "\n"+want) {
			return
		}
	}
	t.Errorf("the metrics lack %q:\n%s", want, regexp.MustCompile(`(?m)^(#|go_|process_).*\n`).ReplaceAllString(text, ""))
}

// What a client writes never becomes a label.
func TestMetrics_BoundedLabels(t *testing.T) {
	t.Parallel()
	o, out, errs := options(t, t.TempDir(), &provider{})
	o.Config.Metrics.Listen = "127.0.0.1:0"
	r := start(t, o, out, errs)
	key := secret.FindString(out.String())
	for _, body := range []string{strings.Replace(hello, "svc-pulse", "curious-model", 1), `{"model":5}`, hello} {
		read(t, r.post(t, key, body).Body)
	}
	read(t, r.post(t, "sk-parley-curious", hello).Body)
	res, err := http.Get(r.URL() + "/curious/path")
	if err != nil {
		t.Fatal(err)
	}
	read(t, res.Body)
	res.Body.Close()
	for _, want := range []string{
		`parley_requests_total{code="model_not_found",model="",route="chat.completions",status="404"} 1`,
		`parley_requests_total{code="invalid_api_key",model="",route="chat.completions",status="401"} 1`,
		`parley_requests_total{code="unknown_url",model="",route="unknown",status="404"} 1`,
		`parley_requests_total{code="",model="svc-pulse",route="chat.completions",status="200"} 1`,
	} {
		r.awaitMetric(t, want)
	}
	if text := r.metrics(t); strings.Contains(text, "curious") {
		t.Errorf("a client's words are in the metrics:\n%s", text)
	}
}

func TestMetrics_EngineAndRevocations(t *testing.T) {
	t.Parallel()
	o, out, errs := tiny(t)
	o.Config.Metrics.Listen = "127.0.0.1:0"
	r := start(t, o, out, errs)
	read(t, r.post(t, secret.FindString(out.String()), strings.Replace(hello, `{`, `{"max_tokens":5,`, 1)).Body)
	for _, want := range []string{`parley_engine_generated_tokens_total{upstream="local"} 5`, `parley_engine_pages{upstream="local"} `, `parley_engine_running{upstream="local"} 0`} {
		r.awaitMetric(t, want)
	}
	c := client(t, o.Config.Data)
	keys, err := c.Keys(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second changes nothing
		_, err1 := c.RevokeKey(t.Context(), keys[0].ID)
		_, err2 := c.SetAccount(t.Context(), "default", admin.Change{Status: new("suspended")})
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
	}
	r.awaitMetric(t, `parley_revocations_total{what="account"} 1`)
	r.awaitMetric(t, `parley_revocations_total{what="key"} 1`)
}

func TestOpen_UpstreamRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		change func(o *Options)
	}{
		"address of the metrics": {"metrics_listen", func(o *Options) { o.Config.Metrics.Listen = "256.0.0.1:1" }},
		"no tokenizer file":      {"tokenizer", func(o *Options) { o.Config.Upstreams[0].Tokenizer = "none.gguf" }},
		"no such tokenizer":      {"tokenizer", func(o *Options) { o.Config.Upstreams[0].Tokenizer = "none" }},
		"base URL":               {"upstream", func(o *Options) { o.Config.Upstreams[0].BaseURL = "ftp://h" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _, _ := outside(t, map[string]func(*upstreamtest.Exchange){"rack": answer}, "rack")
			c.change(&o)
			a, err := Open(t.Context(), o)
			if err == nil {
				_ = a.Close()
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != c.code {
				t.Errorf("Open gives %v, want %s", err, c.code)
			}
		})
	}
}

// Every vocabulary that a configuration may name can be used, and so can a model file.
func TestCounters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u, err := openUpstreams(&config.Config{}, &screen{err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	file := filepath.Join(dir, "tiny.gguf")
	if err := enginetest.WriteModel(file, 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(config.Encodings(), file) {
		c, err := u.counter(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n, err := c.Count("Hello, world", 100); n < 2 || n > 12 || err != nil {
			t.Errorf("%s counts %d, %v", name, n, err)
		}
		if again, err := u.counter(name); again != c || err != nil {
			t.Errorf("%s is opened twice", name)
		}
	}
	c, _ := u.counter(file)
	for _, limit := range []int{0, 1, 3} {
		if n, err := c.Count(strings.Repeat("Hello, world. ", 50), limit); n <= limit || err != nil {
			t.Errorf("with limit %d a long text has %d tokens, %v", limit, n, err)
		}
	}
	if n, err := c.Count("", 0); n != 0 || err != nil {
		t.Errorf("nothing has %d tokens, %v", n, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text.gguf"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := u.counter(filepath.Join(dir, "text.gguf")); err == nil {
		t.Error("a text is taken for a tokenizer")
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"ok":        nil,
		"timeout":   &upstream.Failure{Class: upstream.Timeout, Err: io.EOF},
		"rejected":  &upstream.Rejected{Err: io.EOF},
		"abandoned": context.Canceled,
	} {
		if got := outcome(err); got != want {
			t.Errorf("outcome(%v) = %s, want %s", err, got, want)
		}
	}
}
