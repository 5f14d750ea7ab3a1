package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestRevoke: 20 callers and a stream use a right when it ends. Nobody succeeds 2 s after the
// command has returned; the stream is broken off with the reason and charged for what it delivered.
func TestRevoke(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		end        func(t *testing.T, s *proc.Server, keyID string)
	}{
		{"key", "api_key_revoked", func(t *testing.T, s *proc.Server, keyID string) {
			t.Helper()
			run(t, s, "key", "revoke", keyID)
		}},
		{"account", "account_suspended", func(t *testing.T, s *proc.Server, _ string) {
			t.Helper()
			run(t, s, "account", "set", "revoked", "--status", "suspended")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := startStub(t)
			s := behind(t, p, "")
			secret, keyID := account(t, s, "revoked", "bulk", "1000")
			other, _ := account(t, s, "other", "bulk", "1000")
			resp, err := openStream(t, newClient(), s, secret, tell("svc-pulse", withUsage, "words=1000 pace=20ms"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()

			slow := make(chan answer, 1)
			go func() {
				defer close(slow)
				if a, err := tryPost(t, newClient(), s, secret, tell("svc-pulse", "", "words=1000 pace=20ms")); err == nil {
					slow <- a
				}
			}()
			callers := press(t, s, secret)
			eventually(t, 20*time.Second, func() error {
				if callers.successes() < 200 {
					return statusError(http.StatusTooEarly)
				}
				return nil
			})
			c.end(t, s, keyID)
			ended := time.Now()
			text, err := io.ReadAll(resp.Body)
			cut := time.Now()
			if err == nil {
				t.Error("the stream ended cleanly")
			}
			checkCut(t, string(text), c.code)
			eventually(t, 5*time.Second, func() error {
				if p.Cancelled() < 2 {
					return statusError(http.StatusProcessing)
				}
				return nil
			})
			// Of a whole answer nothing had been shown: it is refused like any other call.
			whole := <-slow
			wantError(t, whole, http.StatusUnauthorized, c.code)
			// What costs nothing waits for no disk: its receipt follows the answer.
			books := openBooks(t, s.Options.Data)
			eventually(t, 5*time.Second, func() error {
				charges, err := chargesOf(t.Context(), books, whole.Header.Get("X-Request-Id"))
				if err == nil && (len(charges) != 1 || charges[0].state != "voided") {
					err = fmt.Errorf("a whole answer that was broken off: %+v", charges)
				}
				return err
			})
			last, refusals := callers.end(t, c.code)
			if late := last.Sub(ended); late > 2*time.Second {
				t.Errorf("a call succeeded %v after the command", late)
			}
			if refusals == 0 || cut.Sub(ended) > 2*time.Second {
				t.Errorf("%d refusals, the stream was cut after %v", refusals, cut.Sub(ended))
			}
			wantError(t, post(t, s, secret, body("")), http.StatusUnauthorized, c.code)
			wantCompletion(t, post(t, s, other, body("")))
			t.Attr("proof", fmt.Sprintf("T15; %s ended under %d calls: last success after %v, stream cut after %v; wrong 0",
				c.name, len(callers.log), last.Sub(ended).Round(time.Millisecond), cut.Sub(ended).Round(time.Millisecond)))
			t.Logf("last success %v, stream cut %v after the command", last.Sub(ended).Round(time.Millisecond), cut.Sub(ended).Round(time.Millisecond))

			st := readStream(string(text))
			pieces := int64(strings.Count(st.text, "yes"))
			log := append(callers.log, entry{requestID: resp.Header.Get("X-Request-Id"), completionID: st.chunks[0].ID, pieces: pieces})
			checkBooks(t, s.Options.Data, log)
			charges, err := chargesOf(t.Context(), openBooks(t, s.Options.Data), resp.Header.Get("X-Request-Id"))
			if err != nil || len(charges) != 1 || charges[0].out < pieces || charges[0].out > pieces+1 || charges[0].state != "settled" {
				t.Errorf("%d delivered, charged %+v, %v", pieces, charges, err)
			}
		})
	}
}

// checkCut wants a stream that ends with the error event of that code and nothing after it.
func checkCut(t *testing.T, text, code string) {
	t.Helper()
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	last := events[len(events)-1]
	if !strings.HasPrefix(last, `data: {"error":{`) || !strings.Contains(last, `"code":"`+code+`"`) {
		t.Errorf("the stream ends with %q, want the error event %s", last, code)
	}
	if strings.Contains(text, "[DONE]") {
		t.Error("the stream has [DONE]")
	}
}

// callers call one after the other, many at once.
type callers struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	log     []entry
	refused map[string]int
}

func press(t *testing.T, s *proc.Server, secret string) *callers {
	t.Helper()
	c := &callers{stop: make(chan struct{}), refused: map[string]int{}}
	client := newClient()
	for range 20 {
		c.wg.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				a, err := tryPost(t, client, s, secret, tell("svc-pulse", "", "words=2"))
				if err != nil {
					t.Error(err)
					return
				}
				c.note(t, a)
			}
		})
	}
	return c
}

func (c *callers) note(t *testing.T, a answer) {
	t.Helper()
	if a.Status == http.StatusOK {
		done := wantCompletion(t, a)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.log = append(c.log, entry{
			requestID: a.Header.Get("X-Request-Id"), completionID: done.ID, usage: done.Usage, complete: true, ended: time.Now(),
		})
		return
	}
	_, code, _ := strings.Cut(string(a.Body), `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	c.mu.Lock()
	c.refused[code]++
	c.mu.Unlock()
	<-time.After(5 * time.Millisecond)
}

func (c *callers) successes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.log)
}

// end lets the callers go on for a while, sends them home and says when the last one succeeded.
func (c *callers) end(t *testing.T, code string) (last time.Time, refusals int) {
	t.Helper()
	<-time.After(2500 * time.Millisecond)
	close(c.stop)
	c.wg.Wait()
	for other, n := range c.refused {
		if other != code {
			t.Errorf("%d calls were refused as %s, want %s", n, other, code)
		}
	}
	last = slices.MaxFunc(c.log, func(a, b entry) int { return a.ended.Compare(b.ended) }).ended
	return last, c.refused[code]
}

// TestKey_Narrowed: what a key was made with takes effect beside the plan of its account.
func TestKey_Narrowed(t *testing.T) {
	t.Parallel()
	s := behind(t, startStub(t), "")
	wide, _ := account(t, s, "narrowed", "pro", "10")
	make := func(flags ...string) string {
		return runJSON[struct{ Secret string }](t, s, append([]string{"key", "create", "--account", "narrowed"}, flags...)...).Secret
	}
	few, short, one := make("--rpm", "2"), make("--tpm", "50"), make("--models", "svc-titan")
	expiring := make("--expires", time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))
	ask := tell("svc-pulse", `,"max_tokens":5`, "words=5")
	for range 2 {
		a := post(t, s, few, ask)
		wantCompletion(t, a)
		if a.Header.Get("X-Ratelimit-Limit-Requests") != "2" {
			t.Errorf("limit of the key: %v", a.Header)
		}
	}
	wantError(t, post(t, s, few, ask), http.StatusTooManyRequests, "rate_limit_exceeded")
	wantCompletion(t, post(t, s, short, ask))
	large := post(t, s, short, tell("svc-pulse", `,"max_tokens":60`, "words=5"))
	wantError(t, large, http.StatusTooManyRequests, "rate_limit_exceeded")
	if large.Header.Get("X-Should-Retry") != "false" || large.Header.Get("Retry-After") != "" {
		t.Errorf("a call that never fits: %v", large.Header)
	}
	wantError(t, post(t, s, one, ask), http.StatusForbidden, "model_access_denied")
	wantCompletion(t, post(t, s, one, strings.Replace(ask, "pulse", "titan", 1)))
	// The account's other keys have none of it, but its limits count them all together.
	a := post(t, s, wide, ask)
	wantCompletion(t, a)
	if n := a.Header.Get("X-Ratelimit-Remaining-Requests"); n != "595" {
		t.Errorf("after 5 calls %s of 600 requests are left to the account", n)
	}
	eventually(t, 10*time.Second, func() error {
		if a := post(t, s, expiring, ask); a.Status != http.StatusUnauthorized {
			return statusError(a.Status)
		}
		return nil
	})
	wantError(t, post(t, s, expiring, ask), http.StatusUnauthorized, "api_key_expired")
}

// TestSubscription: while one is active its plan applies; after it the account has its own again,
// and without credit it is told which of the two is missing.
func TestSubscription(t *testing.T) {
	t.Parallel()
	s := behind(t, startStub(t), "")
	secret, _ := account(t, s, "subscriber", "free", "0.01")
	none, _ := account(t, s, "none", "free", "")
	lapsed, _ := account(t, s, "lapsed", "free", "")
	titan := tell("svc-titan", `,"max_tokens":2`, "words=2")
	type show struct {
		Plan         string
		Subscription *struct{ Plan, Status string }
	}
	status := func(name string) string {
		if sub := runJSON[show](t, s, "account", "show", name).Subscription; sub != nil {
			return sub.Status
		}
		return ""
	}
	if got := status("none"); got != "" && got != "none" {
		t.Errorf("an account without a subscription has status %q", got)
	}
	wantError(t, post(t, s, secret, titan), http.StatusForbidden, "model_access_denied")
	wantError(t, post(t, s, none, body("")), http.StatusPaymentRequired, "insufficient_quota")

	until := time.Now().Add(3 * time.Second).UTC().Truncate(time.Second).Add(time.Second)
	run(t, s, "subscription", "set", "subscriber", "--plan", "pro", "--until", until.Format(time.RFC3339))
	run(t, s, "subscription", "set", "lapsed", "--plan", "member", "--until", until.Format(time.RFC3339))
	wantCompletion(t, post(t, s, secret, titan))
	wantCompletion(t, post(t, s, lapsed, titan)) // its plan includes enough
	if got := status("subscriber"); got != "active" {
		t.Errorf("while it runs: %q", got)
	}
	eventually(t, 10*time.Second, func() error {
		if a := post(t, s, secret, titan); a.Status != http.StatusForbidden {
			return statusError(a.Status)
		}
		return nil
	})
	if now := time.Now(); now.Before(until) {
		t.Errorf("it ended %v early", until.Sub(now))
	}
	if got := status("subscriber"); got != "expired" {
		t.Errorf("when it has ended: %q", got)
	}
	// The server has turned them by itself, and taken back what they included.
	db := openBooks(t, s.Options.Data)
	eventually(t, 10*time.Second, func() error {
		n, err := count(db, `SELECT count(*) FROM subscription s JOIN account a ON a.id = s.account_id WHERE s.status = 'expired' AND s.ended_at = s.until AND a.tokens_granted = a.tokens_posted`)
		if err == nil && n != 2 {
			err = fmt.Errorf("%d of 2 have ended in the books", n)
		}
		return err
	})
	wantError(t, post(t, s, lapsed, body("")), http.StatusPaymentRequired, "billing_not_active")
	// Credit is what is left, and it pays.
	wantCompletion(t, post(t, s, secret, body("")))
	run(t, s, "credit", "add", "lapsed", "1", "--note", "renewed")
	wantCompletion(t, post(t, s, lapsed, body("")))
}
