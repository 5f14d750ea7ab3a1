package telemetry

import (
	"io"
	"sync"
	"time"
)

const (
	// gatherFor is how long a line may wait for others.
	gatherFor = 10 * time.Millisecond
	// gatherBytes is what waits at most.
	gatherBytes = 64 << 10
)

// Gatherer writes at once what comes alone, and in one write what comes within 10 ms of
// it: at thousands of lines a second the system call was half of what a line costs. It
// is safe for concurrent use. A write that fails is told to nobody.
type Gatherer struct {
	w     io.Writer
	mu    sync.Mutex
	buf   []byte
	last  time.Time   // of the last write
	timer *time.Timer // of the next; nil before the first time
}

// NewGatherer returns a gatherer of whole lines for w.
func NewGatherer(w io.Writer) *Gatherer { return &Gatherer{w: w} }

// Write takes one line or more.
func (g *Gatherer) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := len(g.buf) > 0
	g.buf = append(g.buf, p...)
	since := time.Since(g.last)
	switch {
	case since >= gatherFor || len(g.buf) >= gatherBytes:
		g.flush()
	case waiting: // for the timer
	case g.timer == nil:
		g.timer = time.AfterFunc(gatherFor-since, g.Flush)
	default:
		g.timer.Reset(gatherFor - since)
	}
	return len(p), nil
}

// Flush writes what waits.
func (g *Gatherer) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flush()
}

func (g *Gatherer) flush() {
	if len(g.buf) == 0 {
		return
	}
	_, _ = g.w.Write(g.buf) // there is nobody to tell
	g.last = time.Now()
	if cap(g.buf) > 2*gatherBytes {
		g.buf = nil
	}
	g.buf = g.buf[:0]
}
