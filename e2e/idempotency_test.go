package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestIdempotencyStorm: 64 callers share each key, the server is killed among them, and all come
// again until they have an answer: one charge for each key, and one answer.
func TestIdempotencyStorm(t *testing.T) {
	t.Parallel()
	rounds := max(6, thorough(t)/10)
	const callers, together = 64, 4
	p := startStub(t)
	o := options(dataDir(t))
	o.Config = behindConfig(t, filepath.Dir(o.Data), p, false, "")
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	key, _ := account(t, s, "storm", "bulk", "100")
	random := rand.New(rand.NewPCG(7, uint64(time.Now().UnixNano())))
	keys := 0
	for round := range rounds {
		var mu sync.Mutex
		answers := map[string]map[string]bool{}
		server := s
		current := func() *proc.Server { mu.Lock(); defer mu.Unlock(); return server }
		var wg sync.WaitGroup
		for k := range together {
			name := fmt.Sprintf("round %d key %d", round, k)
			answers[name] = map[string]bool{}
			keys++
			for range callers {
				wg.Go(func() { insist(t, current, key, name, k%2 == 1, &mu, answers[name]) })
			}
		}
		<-time.After(time.Duration(random.IntN(60)) * time.Millisecond)
		s.Kill()
		next, err := proc.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		s, server = next, next
		mu.Unlock()
		wg.Wait()
		for name, bodies := range answers {
			if len(bodies) != 1 {
				t.Errorf("%s: %d different outcomes, want 1: %v", name, len(bodies), bodies)
			}
		}
	}
	db := openBooks(t, o.Data)
	var charged, named int
	const both = `SELECT (SELECT count(*) FROM charge WHERE state <> 'voided'), (SELECT count(*) FROM idempotency)`
	if err := db.QueryRowContext(t.Context(), both).Scan(&charged, &named); err != nil {
		t.Fatal(err)
	}
	if charged != keys || named != keys {
		t.Errorf("%d charges and %d rows for %d keys", charged, named, keys)
	}
	if !t.Failed() {
		t.Attr("proof", fmt.Sprintf("T6; %d keys, %d callers each, %d kills among them; lost 0; duplicate %d; wrong 0", keys, callers, rounds, charged-keys))
	}
	t.Logf("%d keys, %d callers each, %d kills: %d charges", keys, callers, rounds, charged)
}

// insist calls under the key until the call is done, and notes as what: the whole answer, or the
// completion that a stream was.
func insist(t *testing.T, current func() *proc.Server, secret, name string, stream bool, mu *sync.Mutex, outcomes map[string]bool) {
	t.Helper()
	c := newClient()
	defer c.CloseIdleConnections()
	body := `{"model":"svc-pulse","max_tokens":8,"messages":[{"role":"user","content":"` + name + `"}]}`
	if stream {
		body = strings.Replace(body, "{", `{"stream":true,`, 1)
	}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		a, err := tryPost(t, c, current(), secret, body, "Idempotency-Key", name)
		switch {
		case err != nil: // killed
		case a.Status == http.StatusOK && !stream:
			mu.Lock()
			outcomes[string(a.Body)] = true
			mu.Unlock()
			return
		case a.Status == http.StatusConflict && strings.Contains(string(a.Body), "idempotency_completed"):
			mu.Lock()
			outcomes[string(a.Body)] = true
			mu.Unlock()
			return
		case a.Status == http.StatusOK, a.Status == http.StatusConflict, a.Status == http.StatusTooManyRequests, a.Status >= 500:
		default:
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Errorf("%s: no outcome in %v", name, patience)
}
