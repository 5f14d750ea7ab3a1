package e2e

import (
	"bufio"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestStop_Drains is wire.md 56: a stream that runs when SIGTERM comes is carried to its end, new
// calls are turned away, the exit code is 0 and the books are balanced at the next start.
func TestStop_Drains(t *testing.T) {
	t.Parallel()
	s := start(t)
	resp, err := openStream(t, newClient(), s, s.Key,
		`{"model":"svc-pulse","stream":true,"stream_options":{"include_usage":true},"max_tokens":300,"temperature":0.7,"seed":3,"messages":[{"role":"user","content":"Write a long story about a river."}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	var text strings.Builder
	for range 6 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(line)
	}
	s.Terminate()
	eventually(t, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		req.Close = true
		a, err := do(newClient(), req)
		if err == nil && a.Status == http.StatusOK {
			return statusError(a.Status)
		}
		return nil // Refused, or 503.
	})
	if a, err := tryPost(t, newClient(), s, s.Key, body("")); err == nil {
		e := wantError(t, a, http.StatusServiceUnavailable, "server_is_overloaded")
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("503 without Retry-After: %+v", e)
		}
	}
	if _, err := r.WriteTo(&text); err != nil {
		t.Fatalf("the stream was cut by the drain: %v after %q", err, text.String())
	}
	st := readStream(text.String())
	if !st.done || st.usage == nil || st.finish == "" {
		t.Errorf("the stream did not complete: done %v, usage %v, finish %q", st.done, st.usage, st.finish)
	}
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, s.Stderr())
	}
	again, err := proc.Start(s.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Kill()
	all := again.Stdout() + again.Stderr()
	if !strings.Contains(all, "balanced") || strings.Contains(all, "recovered") {
		t.Errorf("the start after a clean stop says:\n%s", all)
	}
	if len(st.chunks) > 0 {
		log := []entry{{completionID: st.chunks[0].ID, complete: true, usage: st.usage}}
		checkBooks(t, s.Options.Data, log)
	}
}

// TestStop_Twice: a second signal cuts what runs; the call is charged for what it delivered.
func TestStop_Twice(t *testing.T) {
	t.Parallel()
	s := start(t)
	resp, err := openStream(t, newClient(), s, s.Key,
		`{"model":"svc-pulse","stream":true,"max_tokens":2000,"temperature":0.7,"seed":3`+endless+`,"messages":[{"role":"user","content":"Write a very long story about a river."}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	var text strings.Builder
	for range 8 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(line)
	}
	code := 0
	took := ownTime(func() {
		s.Terminate()
		eventually(t, func() error {
			// The first must have been taken before the second is sent, or they are one signal.
			if strings.Contains(strings.ToLower(s.Stdout()+s.Stderr()), "stopping") {
				return nil
			}
			return statusError(http.StatusOK)
		})
		s.Terminate()
		code = s.Wait()
	})
	if code != 130 {
		t.Errorf("exit code %d after two signals, want 130\n%s", code, s.Stderr())
	}
	if took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	_, cut := r.WriteTo(&text)
	st := readStream(text.String())
	if cut == nil || st.done {
		t.Errorf("the stream ended cleanly (%v, done %v)", cut, st.done)
	}
	again, err := proc.Start(s.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Kill()
	pieces := int64(0)
	for _, c := range st.chunks {
		if len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
			pieces++
		}
	}
	checkBooks(t, s.Options.Data, []entry{{completionID: st.chunks[0].ID, pieces: pieces}})
}

// TestStop_Interrupt: Ctrl+C is the same order as SIGTERM.
func TestStop_Interrupt(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := syscall.Kill(s.Pid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, s.Stderr())
	}
}

// TestStop_Hangup: a terminal that is closed, or somebody who hopes for a reload, stops the
// server in order, and no second such signal cuts what runs.
func TestStop_Hangup(t *testing.T) {
	t.Parallel()
	// Under nohup it is ignored, also by what a process starts, unless it handles it.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })
	s := start(t)
	resp, err := openStream(t, newClient(), s, s.Key,
		`{"model":"svc-pulse","stream":true,"max_tokens":200,"temperature":0.7,"seed":3,"messages":[{"role":"user","content":"Write a long story about a river."}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	var text strings.Builder
	for range 2 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(line)
		if err := syscall.Kill(s.Pid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if strings.Contains(s.Stderr(), "Stopping: ") {
				return nil
			}
			return statusError(http.StatusOK)
		})
	}
	if _, err := r.WriteTo(&text); err != nil || !readStream(text.String()).done {
		t.Errorf("the stream was cut: %v after %q", err, text.String())
	}
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, s.Stderr())
	}
}
