package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestStop_Under500: SIGTERM while 500 streams run. Readiness tells of it first, while calls are
// still served; then new ones are turned away; every stream comes to its end and is charged.
func TestStop_Under500(t *testing.T) {
	t.Parallel()
	const streams, words = 500, 50
	p := startStub(t)
	s := behind(t, p, "drain: {delay: 10s, limit: 10m}")
	secret, _ := account(t, s, "many", "bulk", "100000")
	client := &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	log := make([]entry, streams)
	var heard atomic.Int64
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			resp, err := openStream(t, client, s, secret, tell("svc-pulse", withUsage, fmt.Sprintf("words=%d pace=100ms hold", words)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			heard.Add(1)
			text, err := io.ReadAll(resp.Body)
			st := readStream(string(text))
			if err != nil || !st.done || st.finish != "stop" || st.usage == nil || st.text != strings.Repeat(" yes", words) {
				t.Errorf("stream %d: %v, done %v, %d bytes of text", i, err, st.done, len(st.text))
				return
			}
			log[i] = entry{requestID: resp.Header.Get("X-Request-Id"), completionID: st.chunks[0].ID, complete: true, usage: st.usage, pieces: words}
		})
	}
	eventually(t, func() error {
		if n := heard.Load(); n < streams {
			return fmt.Errorf("%d streams have begun", n)
		}
		return nil
	})
	if n := p.Running(); n != streams {
		t.Errorf("%d streams run, want %d", n, streams)
	}
	s.Terminate()
	told := time.Now()
	readinessFirst(t, s, secret)
	p.Release()
	wg.Wait()
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.Stderr())
	}
	t.Logf("%d streams ran when told to stop; it took %v", streams, time.Since(told).Round(time.Millisecond))
	if n, err := count(openBooks(t, s.Options.Data), `SELECT count(*) FROM hold`); n != 0 || err != nil {
		t.Errorf("%d calls are still held, %v", n, err)
	}
	if !strings.Contains(s.Stderr(), "books balanced") {
		t.Errorf("the last words: %s", s.Stderr())
	}
	checkBooks(t, s.Options.Data, log)
}

// readinessFirst wants /readyz to fail while calls are still answered, and refusals only later.
func readinessFirst(t *testing.T, s *proc.Server, secret string) {
	t.Helper()
	eventually(t, func() error {
		if a := call(t, s, http.MethodGet, "/readyz"); a.Status == http.StatusOK {
			return statusError(a.Status)
		}
		return nil
	})
	wantCompletion(t, post(t, s, secret, tell("svc-pulse", "", "words=1")))
	eventually(t, func() error {
		a, err := tryPost(t, newClient(), s, secret, tell("svc-pulse", "", "words=1"))
		if err == nil && a.Status == http.StatusOK {
			return statusError(a.Status)
		}
		if err == nil && a.Status != http.StatusServiceUnavailable {
			t.Errorf("while it drains: %d %s", a.Status, a.Body)
		}
		return nil // Refused, or 503.
	})
}

// TestStream_KeepAlive is wire.md 71: a provider that says nothing until two empty chunks have come
// does not look dead.
func TestStream_KeepAlive(t *testing.T) {
	t.Parallel()
	p := startStub(t)
	s := behind(t, p, "")
	resp, err := openStream(t, newClient(), s, s.Key, tell("svc-pulse", withUsage, "words=3 hold"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	var empty []time.Duration
	begun := time.Now()
	for buf := make([]byte, 32<<10); err == nil; {
		var n int
		n, err = resp.Body.Read(buf)
		text.Write(buf[:n])
		for _, c := range readStream(string(buf[:n])).chunks {
			if len(c.Choices) == 1 && c.Choices[0].Delta.Content == "" && c.Choices[0].Delta.Role == "" && c.Choices[0].FinishReason == nil {
				empty = append(empty, time.Since(begun))
			}
		}
		if len(empty) == 2 {
			p.Release()
		}
	}
	st := readStream(text.String())
	if !st.done || st.text != " yes yes yes" || st.usage == nil || st.usage.Completion != 3 {
		t.Errorf("done %v, text %q, usage %+v", st.done, st.text, st.usage)
	}
	// Its provider would have been given up after two minutes. How late a chunk may be is told in
	// internal/chat, where no machine can make it late.
	if len(empty) < 2 {
		t.Fatalf("%d empty chunks, want 2: %v", len(empty), empty)
	}
	for i, at := range empty[:2] {
		if want := time.Duration(i+1) * 15 * time.Second; at < want-2*time.Second {
			t.Errorf("the empty chunk %d came after %v, want %v", i, at, want)
		}
	}
	for line := range strings.SplitSeq(text.String(), "\n") {
		if line != "" && !strings.HasPrefix(line, "data: ") {
			t.Errorf("a line that is neither data nor empty: %q", line)
		}
	}
}
