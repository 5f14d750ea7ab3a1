package telemetry_test

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/telemetry"
)

// writes keeps each write.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(p))
	return len(p), nil
}

// A line that comes alone is written at once; those that follow within 10 ms wait for
// each other, no longer than that.
func TestGatherer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writes{}
		g := telemetry.NewGatherer(w)
		line := func(s string) { _, _ = g.Write([]byte(s + "\n")) }
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if !slices.Equal(w.all, want) {
				t.Errorf("after %v: writes %q, want %q", time.Now().UTC().Format("05.000"), w.all, want)
			}
		}
		line("a")
		expect("a\n")
		line("b")
		time.Sleep(4 * time.Millisecond)
		line("c")
		expect("a\n")
		time.Sleep(6 * time.Millisecond)
		expect("a\n", "b\nc\n")
		line("d")
		time.Sleep(time.Second)
		expect("a\n", "b\nc\n", "d\n")
		line("e")
		line(strings.Repeat("f", 64<<10))
		expect("a\n", "b\nc\n", "d\n", "e\n", strings.Repeat("f", 64<<10)+"\n")
		line("g")
		g.Flush()
		time.Sleep(time.Second)
		expect("a\n", "b\nc\n", "d\n", "e\n", strings.Repeat("f", 64<<10)+"\n", "g\n")
	})
}

// Lines of many goroutines stay whole and none is lost.
func TestGatherer_Concurrent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	g := telemetry.NewGatherer(&out)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 1000 {
				_, _ = g.Write([]byte("one whole line\n"))
			}
		})
	}
	group.Wait()
	g.Flush()
	if want := strings.Repeat("one whole line\n", 8000); out.String() != want {
		t.Errorf("%d bytes, want %d", out.Len(), len(want))
	}
}
