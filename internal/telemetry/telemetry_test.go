package telemetry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/telemetry"
)

// scrape is what the handler serves.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	text, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("metrics give %d, %v", w.Code, err)
	}
	return string(text)
}

// everything is metrics to which everything has happened once.
func everything() *telemetry.Metrics {
	m := telemetry.New("1.2.3")
	m.Ready(func() bool { return true })
	m.Dropped(func() int64 { return 3 })
	m.Engines(func() map[string]telemetry.Engine {
		return map[string]telemetry.Engine{"local": {
			Running: 1, Waiting: 2, PagesUsed: 3, PagesTotal: 4, Generated: 5, Prompt: 6, Steps: 7,
			Places: 8, PagesCached: 9, PrefixQueries: 10, PrefixHits: 11, Preempted: 14, Busy: 12 * time.Second, TokensPerSecond: 13.5,
			QueueTime:  telemetry.Histogram{Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []int64{3, 2}, Count: 6, Sum: 9 * time.Second},
			FirstToken: telemetry.Histogram{Count: 1, Sum: time.Second},
		}}
	})
	m.Running(true, 1)
	m.Request(telemetry.Request{
		Route: "chat.completions", Model: "m", Stream: true, Status: 200, Took: time.Second, FirstToken: 20 * time.Millisecond,
		Prompt: 9, Cached: 4, Completion: 3, Charged: 0.5,
	})
	m.Request(telemetry.Request{Route: "unknown", Status: 404, Code: "unknown_url", Took: time.Millisecond})
	m.Commit(8, 3*time.Millisecond, false)
	m.Commit(1, 3*time.Millisecond, true)
	m.Attempt("local", "ok", time.Millisecond)
	m.Attempt("rack", "unreachable", 0)
	m.Retries("m", 1)
	m.Ejected("rack", "timeout")
	m.Proof(false, 2*time.Second, time.Unix(1_790_000_000, 0))
	m.Revoked("key")
	m.EventsLost("https://hooks.example/#1", 3)
	return m
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	text := scrape(t, everything())
	for _, want := range []string{
		`parley_build_info{go_version="go`,
		`parley_ready 1`,
		`parley_requests_total{code="",model="m",route="chat.completions",status="200"} 1`,
		`parley_requests_total{code="unknown_url",model="",route="unknown",status="404"} 1`,
		`parley_request_duration_seconds_count{mode="stream",model="m",route="chat.completions"} 1`,
		`parley_time_to_first_token_seconds_sum{model="m"} 0.02`,
		`parley_prompt_tokens_total{model="m"} 9`,
		`parley_cached_prompt_tokens_total{model="m"} 4`,
		`parley_completion_tokens_total{model="m"} 3`,
		`parley_charged_iu_total{model="m"} 0.5`,
		`parley_running_calls{mode="stream"} 1`,
		`parley_running_calls{mode="whole"} 0`,
		`parley_ledger_commits_total{result="ok"} 1`,
		`parley_ledger_commits_total{result="failed"} 1`,
		`parley_ledger_commit_ops_sum 9`,
		`parley_ledger_commit_duration_seconds_count 2`,
		`parley_upstream_attempts_total{outcome="ok",upstream="local"} 1`,
		`parley_upstream_attempts_total{outcome="unreachable",upstream="rack"} 1`,
		`parley_upstream_time_to_first_token_seconds_count{upstream="local"} 1`,
		`parley_upstream_retries_total{model="m"} 1`,
		`parley_revocations_total{what="key"} 1`,
		`parley_webhook_events_lost_total{endpoint="https://hooks.example/#1"} 3`,
		`parley_engine_running{upstream="local"} 1`,
		`parley_engine_waiting{upstream="local"} 2`,
		`parley_engine_pages_used{upstream="local"} 3`,
		`parley_engine_pages{upstream="local"} 4`,
		`parley_engine_generated_tokens_total{upstream="local"} 5`,
		`parley_engine_prompt_tokens_total{upstream="local"} 6`,
		`parley_engine_steps_total{upstream="local"} 7`,
		`parley_engine_places{upstream="local"} 8`,
		`parley_engine_pages_cached{upstream="local"} 9`,
		`parley_engine_prefix_cache_queries_total{upstream="local"} 10`,
		`parley_engine_prefix_cache_hits_total{upstream="local"} 11`,
		`parley_engine_preemptions_total{upstream="local"} 14`,
		`parley_engine_busy_seconds_total{upstream="local"} 12`,
		`parley_engine_tokens_per_second{upstream="local"} 13.5`,
		`parley_engine_queue_time_seconds_bucket{upstream="local",le="0.001"} 3`,
		`parley_engine_queue_time_seconds_bucket{upstream="local",le="1"} 5`,
		`parley_engine_queue_time_seconds_bucket{upstream="local",le="+Inf"} 6`,
		`parley_engine_queue_time_seconds_sum{upstream="local"} 9`,
		`parley_engine_time_to_first_token_seconds_count{upstream="local"} 1`,
		`parley_upstream_ejections_total{outcome="timeout",upstream="rack"} 1`,
		`parley_ledger_proof_ok 0`,
		`parley_ledger_proof_timestamp_seconds 1.79e+09`,
		`parley_ledger_proof_duration_seconds 2`,
		`go_goroutines `,
	} {
		if !strings.Contains("\n"+text, "\n"+want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	// What did not come is not observed as 0.
	if strings.Contains(text, `parley_upstream_time_to_first_token_seconds_count{upstream="rack"}`) {
		t.Error("an attempt without a token has a time to its first token")
	}
}

// docs/operate.md names every metric of ours and no other.
func TestMetrics_Documented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(pattern, text string) []string {
		var list []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	have, told := names(`(?m)^# TYPE (parley_\w+) `, scrape(t, everything())), names("`(parley_\\w+)", string(docs))
	if !slices.Equal(have, told) {
		t.Errorf("docs/operate.md names\n%v\nthere are\n%v", told, have)
	}
}

// Nothing is measured where nothing was asked for.
func TestMetrics_Nil(t *testing.T) {
	t.Parallel()
	var m *telemetry.Metrics
	m.Ready(nil)
	m.Engines(nil)
	m.Running(true, 1)
	m.Request(telemetry.Request{Model: "m"})
	m.Commit(1, 0, true)
	m.Attempt("u", "ok", 1)
	m.Retries("m", 1)
	m.Ejected("rack", "timeout")
	m.Proof(false, 2*time.Second, time.Unix(1_790_000_000, 0))
	m.Revoked("key")
	m.EventsLost("x", 1)
}

// A call that failed before it was charged must not make a counter panic.
func TestMetrics_NothingUsed(t *testing.T) {
	t.Parallel()
	m := telemetry.New("")
	m.Request(telemetry.Request{Route: "chat.completions", Model: "m", Status: 502, Code: "upstream_error", Prompt: -1, Charged: -1})
	m.Retries("m", -1)
	if text := scrape(t, m); !strings.Contains(text, `parley_prompt_tokens_total{model="m"} 0`+"\n") || strings.Contains(text, "parley_upstream_retries_total{") {
		t.Errorf("what was not used is counted:\n%s", text)
	}
}
