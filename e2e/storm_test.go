package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// iu prints nano-IU as a decimal number of IU.
func iu(nano int64) string {
	return fmt.Sprintf("%d.%09d", nano/1_000_000_000, nano%1_000_000_000)
}

// TestStorm: an account with credit for exactly k calls answers exactly k of 300 that come at once.
func TestStorm(t *testing.T) {
	t.Parallel()
	s := start(t)
	// A stop of its own weight would end it earlier: greedy, two tokens, always "length".
	const ask = `{"model":"svc-pulse","max_tokens":2,"temperature":0,"messages":[{"role":"user","content":"Count from one to thirty in words."}]}`
	probe := wantCompletion(t, post(t, s, s.Key, ask))
	if probe.Choices[0].FinishReason != "length" {
		t.Fatalf("the probe ended with %s", probe.Choices[0].FinishReason)
	}
	each := price("svc-pulse", probe.Usage.Prompt, probe.Usage.Completion)
	const k = 23
	secret, _ := account(t, s, "storm", "pro", iu(k*each))

	type show struct{ Balance, Held, Available string }
	stop := make(chan struct{})
	var watcher, wg sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			a := s.Run("account", "show", "storm", "--json")
			if a.Code != 0 || strings.Contains(a.Stdout, `"-`) {
				t.Errorf("account show during the storm: %d %s%s", a.Code, a.Stdout, a.Stderr)
			}
		}
	})
	var mu sync.Mutex
	got := map[int]int{}
	var ids []entry
	c := newClient()
	for i := range 300 {
		wg.Go(func() {
			body := ask
			if i%3 == 0 {
				body = strings.Replace(ask, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)
			}
			for {
				a, err := tryPost(t, c, s, secret, body)
				if err != nil {
					t.Error(err)
					return
				}
				// Too many at once is no answer to the question of this test.
				if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
					<-time.After(50 * time.Millisecond)
					continue
				}
				var e entry
				if a.Status == http.StatusOK {
					e = entry{requestID: a.Header.Get("X-Request-Id"), complete: true}
					if st := readStream(string(a.Body)); len(st.chunks) > 0 {
						e.completionID, e.usage = st.chunks[0].ID, st.usage
					} else {
						done := wantCompletion(t, a)
						e.completionID, e.usage = done.ID, done.Usage
					}
				}
				mu.Lock()
				got[a.Status]++
				if e.complete {
					ids = append(ids, e)
				}
				mu.Unlock()
				if a.Status == http.StatusPaymentRequired {
					wantError(t, a, http.StatusPaymentRequired, "insufficient_quota")
				}
				return
			}
		})
	}
	wg.Wait()
	close(stop)
	watcher.Wait()
	if got[http.StatusOK] != k || got[http.StatusPaymentRequired] != 300-k {
		t.Errorf("statuses %v, want %d times 200 and %d times 402", got, k, 300-k)
	}
	if a := runJSON[show](t, s, "account", "show", "storm"); nano(t, a.Balance) != 0 || nano(t, a.Held) != 0 {
		t.Errorf("after the storm: %+v, want nothing left and nothing held", a)
	}
	if a := post(t, s, secret, ask); a.Status != http.StatusPaymentRequired || a.Header.Get("Retry-After") != "" {
		t.Errorf("a call without credit: %d, Retry-After %q", a.Status, a.Header.Get("Retry-After"))
	}
	checkBooks(t, s.Options.Data, ids)
	if !t.Failed() {
		t.Attr("proof", fmt.Sprintf("T5; %d calls at once to the binary, credit for %d; lost 0; duplicate 0; wrong 0; negative 0", got[http.StatusOK]+got[http.StatusPaymentRequired], k))
	}
}
