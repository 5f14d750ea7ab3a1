package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/e2e/stub"
)

// peak is the most memory that a process ever had, in MiB.
func peak(t *testing.T, s *proc.Server) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatalf("no VmHWM in %s", text)
	}
	kib, err := strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// mostMiB is what a server that only passes answers on may take, whatever its providers send.
const mostMiB = 256

// TestHostileProvider: whatever a provider sends, its callers get 502 or a broken stream in our
// words, nothing is charged that was not delivered, and memory stays bounded.
func TestHostileProvider(t *testing.T) {
	t.Parallel()
	p := startStub(t)
	s := behind(t, p, "")
	before := peak(t, s)
	clean := func(what, text string) {
		for word := range strings.SplitSeq(stub.Secret, " of ") {
			if strings.Contains(text, word) {
				t.Errorf("%s: the provider's words reached the client: %.300s", what, text)
			}
		}
	}
	for _, how := range stub.Hostile() {
		for _, fields := range []string{"", withUsage, `,"max_tokens":5,"response_format":{"type":"json_object"}`} {
			a := post(t, s, s.Key, tell("svc-pulse", fields, "hostile="+how))
			if a.Status != http.StatusBadGateway {
				t.Errorf("%s%s: %d %.300s", how, fields, a.Status, a.Body)
				continue
			}
			wantError(t, a, http.StatusBadGateway, "upstream_error")
			clean(how, string(a.Body)+fmt.Sprint(a.Header))
		}
	}
	for _, how := range stub.HostileLater() {
		a, err := tryPost(t, httpClient, s, s.Key, tell("svc-pulse", withUsage, "hostile="+how))
		if err == nil {
			t.Errorf("%s: the stream ended cleanly", how)
		}
		checkCut(t, string(a.Body), "upstream_error")
		clean(how, string(a.Body))
		wantError(t, post(t, s, s.Key, tell("svc-pulse", "", "hostile="+how)), http.StatusBadGateway, "upstream_error")
	}
	if after := peak(t, s); after > mostMiB {
		t.Errorf("the server took %d MiB, at most %d are allowed", after, mostMiB)
	} else {
		t.Logf("memory: %d MiB before, at most %d MiB since", before, after)
	}
	wantCompletion(t, post(t, s, s.Key, body("")))
	eventually(t, func() error {
		if n := p.Running(); n != 0 {
			return fmt.Errorf("%d calls still run at the provider", n)
		}
		return nil
	})
	if n, err := count(openBooks(t, s.Options.Data), `SELECT count(*) FROM charge WHERE state = 'settled' AND completion_tokens > 3`); n != 0 || err != nil {
		t.Errorf("%d calls are charged for more than was delivered, %v", n, err)
	}
	checkBooks(t, s.Options.Data, nil)
}

// TestHostileUsage: counts that cannot be true are not charged; ours are.
func TestHostileUsage(t *testing.T) {
	t.Parallel()
	s := behind(t, startStub(t), "")
	const limit = `,"max_tokens":50`
	honest := wantCompletion(t, post(t, s, s.Key, tell("svc-pulse", limit, "words=7 usage=none")))
	if honest.Usage.Completion != 7 || honest.Usage.Prompt == 0 {
		t.Fatalf("our own count: %+v", honest.Usage)
	}
	for _, usage := range []string{"-5", "1e300", "1.5", "\"9\"", "[1]", "{}", "true", "99999999"} {
		for _, fields := range []string{limit, limit + withUsage} {
			a := post(t, s, s.Key, tell("svc-pulse", fields, "words=7 usage="+usage))
			var got *usageCounts
			if st := readStream(string(a.Body)); st.done {
				got = st.usage
			} else {
				got = wantCompletion(t, a).Usage
			}
			if got == nil || got.Completion != 7 || got.Prompt < 5 || got.Prompt > 60 {
				t.Errorf("usage %s: %+v, want our own count", usage, got)
			}
		}
	}
	checkBooks(t, s.Options.Data, nil)
}

type usageCounts = usage

// TestMemory_Bodies: a thousand connections of one account with bodies of 16 MiB take what the rule
// allows; others are served meanwhile.
func TestMemory_Bodies(t *testing.T) {
	t.Parallel()
	s := behind(t, startStub(t), "")
	greedy, _ := account(t, s, "greedy", "bulk", "100000")
	modest, _ := account(t, s, "modest", "pro", "10")
	before := peak(t, s)
	pad := strings.Repeat("a ", (16<<20-1000)/2)
	big := tell("svc-pulse", `,"max_tokens":1`, "words=1 "+pad)
	// The memory of a call lasts as long as the call: the provider takes its time.
	slow := strings.Replace(big, "words=1 ", "words=2 silent=3s ", 1)
	slow = strings.Replace(slow, `"max_tokens":1`, `"max_tokens":2`, 1)
	client := &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	heldByCalls(t, client, s, strings.Replace(slow, "silent=3s", "hold", 1), greedy)
	var wg sync.WaitGroup
	var served, refused, broken atomic.Int64
	done := make(chan struct{})
	for i := range 1000 {
		wg.Go(func() {
			body := big
			if i%2 == 0 {
				body = slow
			}
			// A server that refuses without reading may reset the rest of the body.
			status, err := pourBody(t, client, s, greedy, body)
			switch {
			case err != nil:
				broken.Add(1)
			case status == http.StatusOK:
				served.Add(1)
			case status == http.StatusServiceUnavailable:
				refused.Add(1)
			default:
				t.Errorf("status %d", status)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	var slowest time.Duration
	others := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(50 * time.Millisecond):
		}
		slowest = max(slowest, ownTime(func() { wantCompletion(t, post(t, s, modest, body(""))) }))
		others++
	}
	after := peak(t, s)
	t.Logf("memory: %d MiB before, at most %d MiB since; %d served, %d refused, %d cut; %d calls of others, the slowest %v",
		before, after, served.Load(), refused.Load(), broken.Load(), others, slowest.Round(time.Millisecond))
	if after > 2*mostMiB {
		t.Errorf("the server took %d MiB, at most %d are allowed", after, 2*mostMiB)
	}
	if served.Load() == 0 {
		t.Error("nobody was served")
	}
	if slowest > 15*time.Second {
		t.Errorf("another account waited %v", slowest)
	}
	if others < 2 { // the last may have begun when they were done
		t.Errorf("another account had no answer meanwhile, and waited %v for one", slowest)
	}
}

// heldByCalls starts long calls one after the other: what they asked is held until they end, so it
// counts, and all but two are turned away.
func heldByCalls(t *testing.T, c *http.Client, s *proc.Server, body, key string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	running := 0
	for range 12 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(strings.Replace(body, "{", `{"stream":true,`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := c.Do(req)
		if err != nil {
			continue // turned away before the body was read
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			running++
		} else if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	leave()
	if running < 1 || running > 2 {
		t.Errorf("%d calls of 16 MiB ran at once, want 1 or 2 in 32 MiB", running)
	}
	eventually(t, func() error {
		if a := post(t, s, key, tell("svc-pulse", "", "words=1")); a.Status != http.StatusOK {
			return statusError(a.Status)
		}
		return nil
	})
}

// pourBody sends a body that a thousand callers share; it must not be copied.
func pourBody(t *testing.T, c *http.Client, s *proc.Server, key, body string) (status int, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	a, err := do(c, req)
	return a.Status, err
}
