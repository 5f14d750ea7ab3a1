package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/e2e/stub"
)

// behindPlans is behind with more plans.
func behindPlans(t *testing.T, p *stub.Server, plans string) *proc.Server {
	t.Helper()
	o := options(dataDir(t))
	o.Config = remotePlans(t, o.Data, p, plans)
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		for line := range strings.SplitSeq(s.Stderr(), "\n") {
			if t.Failed() && !strings.Contains(line, `"status":200`) && !strings.Contains(line, `"status":429`) {
				t.Log(line)
			}
		}
	})
	return s
}

// left are the counters that a caller sees.
func left(a answer) [2]string {
	return [2]string{a.Header.Get("X-Ratelimit-Remaining-Requests"), a.Header.Get("X-Ratelimit-Remaining-Tokens")}
}

// TestLimits_Wait: refused calls count nowhere, a kill -9 gives nobody a second helping, and who
// waits as long as told is let in.
func TestLimits_Wait(t *testing.T) {
	t.Parallel()
	p := startStub(t)
	// They only wait: all at once, and they count as one test.
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range []struct{ name, flag, value, kind string }{
		{"requests of the key", "--rpm", "5", "requests"},
		{"tokens of the key", "--tpm", "600", "tokens"},
		{"requests of the account", "", "", "requests"},
	} {
		wg.Go(func() {
			t.Run(c.name, func(t *testing.T) { waitAsTold(t, p, c.flag, c.value, c.kind) })
		})
	}
}

func waitAsTold(t *testing.T, p *stub.Server, flag, value, kind string) {
	t.Helper()
	s := behindPlans(t, p, "\n  - {id: five, rpm: 5, tpm: 100000, concurrency: 8}")
	plan := "pro"
	if flag == "" {
		plan = "five"
	}
	secret, _ := account(t, s, "waiting", plan, "1")
	if flag != "" {
		secret = runJSON[struct{ Secret string }](t, s, "key", "create", "--account", "waiting", flag, value).Secret
	}
	// 110 to 120 tokens each: five fit into either limit.
	ask := tell("svc-pulse", `,"max_tokens":100`, "words=100 usage=none")
	for i := range 5 {
		if a := post(t, s, secret, ask); a.Status != http.StatusOK {
			t.Fatalf("call %d: %d %s", i, a.Status, a.Body)
		}
	}
	refusedCalls(t, s, secret, ask, kind)
	s.Kill()
	s, err := proc.Start(s.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	a := refusedCalls(t, s, secret, ask, kind)
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 60 {
		t.Fatalf("Retry-After = %q", a.Header.Get("Retry-After"))
	}
	ms, err := strconv.Atoi(a.Header.Get("Retry-After-Ms"))
	if err != nil || ms > seconds*1000 || ms <= (seconds-1)*1000 {
		t.Errorf("retry-after-ms = %q, Retry-After %d", a.Header.Get("Retry-After-Ms"), seconds)
	}
	<-time.After(time.Duration(seconds) * time.Second)
	if a := post(t, s, secret, ask); a.Status != http.StatusOK {
		t.Errorf("after the %d s that were told: %d %s", seconds, a.Status, a.Body)
	}
}

// refusedCalls makes calls that must all be refused and leave the counters as they are. It returns
// the last refusal by the limit.
func refusedCalls(t *testing.T, s *proc.Server, secret, ask, kind string) answer {
	t.Helper()
	first := post(t, s, secret, ask)
	e := wantError(t, first, http.StatusTooManyRequests, "rate_limit_exceeded")
	if e.Error.Type != kind {
		t.Errorf("refused for %s, want %s: %s", e.Error.Type, kind, e.Error.Message)
	}
	for _, body := range []string{
		ask, strings.Replace(ask, "{", `{"stream":true,`, 1), "{", strings.Replace(ask, "svc-pulse", "svc-none", 1),
		strings.Replace(ask, `"max_tokens":100`, `"max_tokens":100000`, 1), ask,
	} {
		a := post(t, s, secret, body)
		if a.Status < 400 {
			t.Errorf("%.80s: %d", body, a.Status)
		}
		if left(a) != left(first) {
			t.Errorf("%.80s: refused with %d, and left %v became %v", body, a.Status, left(first), left(a))
		}
	}
	return post(t, s, secret, ask)
}

// TestLimits_Refused: whatever refuses a call, its counters are as before.
func TestLimits_Refused(t *testing.T) {
	t.Parallel()
	s := behindPlans(t, startStub(t), "")
	secret, _ := account(t, s, "careful", "free", "0.02")
	ask := tell("svc-pulse", `,"max_tokens":10`, "words=10 usage=none")
	first := post(t, s, secret, ask)
	wantCompletion(t, first)
	want := left(post(t, s, secret, "{"))
	if want[0] != "59" {
		t.Errorf("left after one call: %v", want)
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"plan":       {tell("svc-titan", "", "words=1"), http.StatusForbidden},
		"model":      {tell("svc-none", "", "words=1"), http.StatusNotFound},
		"shape":      {tell("svc-pulse", `,"max_tokens":0`, "words=1"), http.StatusBadRequest},
		"this call":  {tell("svc-pulse", `,"max_tokens":2000`, "words=1"), http.StatusPaymentRequired},
		"output cap": {tell("svc-pulse", `,"max_tokens":9000`, "words=1"), http.StatusBadRequest},
		"media type": {"", http.StatusUnsupportedMediaType},
	} {
		var header []string
		if c.body == "" {
			header = []string{"Content-Type", "text/plain"}
		}
		a := post(t, s, secret, c.body, header...)
		if a.Status != c.status {
			t.Errorf("%s: %d %s, want %d", name, a.Status, a.Body, c.status)
		}
		if got := left(a); got != want {
			t.Errorf("%s: left %v became %v", name, want, got)
		}
	}
}
