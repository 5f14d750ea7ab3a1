package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/e2e/stub"
)

// TestRevoke: 20 callers and a stream use a right when it ends. No call that begins after the command
// has returned succeeds; the stream is broken off with the reason, within 2 s by the clock of what
// delivers it, and charged for what it delivered.
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
			resp, err := openStream(t, newClient(), s, secret, tell("svc-pulse", withUsage, "words=1000 pace=200ms"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			heard := listen(resp.Body)

			slow := make(chan answer, 1)
			go func() {
				defer close(slow)
				if a, err := tryPost(t, newClient(), s, secret, tell("svc-pulse", "", "words=1000 pace=200ms")); err == nil {
					slow <- a
				}
			}()
			callers := press(t, s, secret)
			eventually(t, func() error {
				if callers.successes() < 200 || heard.words() == 0 {
					return statusError(http.StatusTooEarly)
				}
				return nil
			})
			c.end(t, s, keyID)
			ended, before := time.Now(), heard.words()
			text, cut, err := heard.all()
			if err == nil {
				t.Error("the stream ended cleanly")
			}
			checkCut(t, text, c.code)
			// Where the machine stands still, the provider does too.
			if later := heard.words() - before; later > 10 {
				t.Errorf("%d words came after the command, want those of 2 s: at most 10", later)
			}
			eventually(t, func() error {
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
			eventually(t, func() error {
				charges, err := chargesOf(t.Context(), books, whole.Header.Get("X-Request-Id"))
				if err == nil && (len(charges) != 1 || charges[0].state != "voided") {
					err = fmt.Errorf("a whole answer that was broken off: %+v", charges)
				}
				return err
			})
			last := callers.end(t, c.code, ended)
			wantError(t, post(t, s, secret, body("")), http.StatusUnauthorized, c.code)
			wantCompletion(t, post(t, s, other, body("")))
			t.Attr("proof", fmt.Sprintf("T15; %s ended under %d calls: last success after %v, stream cut after %v; wrong 0",
				c.name, len(callers.log), last.Sub(ended).Round(time.Millisecond), cut.Sub(ended).Round(time.Millisecond)))
			t.Logf("last success %v, stream cut %v after the command", last.Sub(ended).Round(time.Millisecond), cut.Sub(ended).Round(time.Millisecond))

			st := readStream(text)
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
				begun := time.Now()
				a, err := tryPost(t, client, s, secret, tell("svc-pulse", "", "words=2"))
				if err != nil {
					t.Error(err)
					return
				}
				c.note(t, a, begun)
			}
		})
	}
	return c
}

func (c *callers) note(t *testing.T, a answer, begun time.Time) {
	t.Helper()
	if a.Status == http.StatusOK {
		done := wantCompletion(t, a)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.log = append(c.log, entry{
			requestID: a.Header.Get("X-Request-Id"), completionID: done.ID, usage: done.Usage, complete: true, begun: begun, ended: time.Now(),
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

// end lets the callers go on until they were often refused, sends them home and says when the last
// one succeeded. None that began after that time may.
func (c *callers) end(t *testing.T, code string, after time.Time) (last time.Time) {
	t.Helper()
	eventually(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := c.refused[code]; n < 1000 {
			return fmt.Errorf("%d calls were refused as %s", n, code)
		}
		return nil
	})
	close(c.stop)
	c.wg.Wait()
	for other, n := range c.refused {
		if other != code {
			t.Errorf("%d calls were refused as %s, want %s", n, other, code)
		}
	}
	for _, e := range c.log {
		if e.begun.After(after) {
			t.Errorf("%s succeeded, and began %v after the command", e.requestID, e.begun.Sub(after))
		}
	}
	return slices.MaxFunc(c.log, func(a, b entry) int { return a.ended.Compare(b.ended) }).ended
}

// heard is a stream that is read as it comes.
type heard struct {
	mu   sync.Mutex
	text []byte
	at   time.Time // of the end
	err  error
	done chan struct{}
}

func listen(stream io.Reader) *heard {
	h := &heard{done: make(chan struct{})}
	go func() {
		defer close(h.done)
		_, h.err = io.Copy(h, stream)
		h.at = time.Now()
	}()
	return h
}

// Write implements io.Writer.
func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p...)
	return len(p), nil
}

// words is how many of the provider's words have come so far.
func (h *heard) words() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Count(h.text, []byte(stub.Word))
}

// all waits for the end, and returns the text, the time of the end and how it ended.
func (h *heard) all() (text string, at time.Time, err error) {
	<-h.done
	return string(h.text), h.at, h.err
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
	expiring := expiringKey(t, s, "narrowed")
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
	eventually(t, func() error {
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

	run(t, s, "subscription", "set", "subscriber", "--plan", "pro")
	run(t, s, "subscription", "set", "lapsed", "--plan", "member")
	wantCompletion(t, post(t, s, secret, titan))
	wantCompletion(t, post(t, s, lapsed, titan)) // its plan includes enough
	if got := status("subscriber"); got != "active" {
		t.Errorf("while it runs: %q", got)
	}
	soon(t, s, "subscription", "set", "lapsed", "--plan", "member", "--until")
	_, until := soon(t, s, "subscription", "set", "subscriber", "--plan", "pro", "--until")
	eventually(t, func() error {
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
	eventually(t, func() error {
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
