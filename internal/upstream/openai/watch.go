package openai

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of a call that took too long.
var (
	errFirstToken = errors.New("no answer within the time for the first token")
	errIdle       = errors.New("nothing arrived for too long")
	errTotal      = errors.New("the call took longer than a call may")
)

// never is a time that no call reaches.
const never = time.Duration(math.MaxInt64)

// watch ends a call that takes too long, or whose caller leaves. It has one timer a
// call, not one a piece: the timer finds out, when it fires, how much time is really
// left. It is no context of its own: what ends a call is its connection, and contexts
// in a chain cost as much as the call's line in the log.
type watch struct {
	limits Timeouts
	start  time.Time
	timer  *time.Timer
	forget func() bool // the caller's context
	// The times below count from start.
	deadline atomic.Int64 // of what is awaited now
	idle     atomic.Int64 // how long a silence may be; 0 where only deadline counts
	sooner   bool         // the timer may be set to later than deadline

	mu    sync.Mutex
	over  bool
	cause error     // the time that was exceeded, or nil
	ends  io.Closer // with the call; nil while there is none
}

// newWatch begins the clock. The watch ends with parent; its user stops it.
func newWatch(parent context.Context, limits Timeouts) *watch {
	w := &watch{limits: limits, start: time.Now()}
	w.deadline.Store(int64(limits.FirstToken))
	w.forget = context.AfterFunc(parent, func() { w.end(nil) })
	w.timer = time.AfterFunc(min(limits.FirstToken, limits.Total), w.check)
	return w
}

// end closes what the call waits for. cause is the time that was exceeded, or nil.
func (w *watch) end(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.over, w.cause = true, cause
	if w.ends != nil {
		_ = w.ends.Close() // whoever waits for it hears of that
	}
}

// guard has c closed when the call ends, which may be at once.
func (w *watch) guard(c io.Closer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends = c; w.over {
		_ = c.Close() // as above
	}
}

// release forgets what is guarded and says whether it was left alone.
func (w *watch) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = nil
	return !w.over
}

// check runs on the timer.
func (w *watch) check() {
	now := time.Since(w.start)
	deadline := time.Duration(w.deadline.Load())
	switch {
	case now >= w.limits.Total:
		w.end(errTotal)
	case now >= deadline && w.idle.Load() == 0:
		w.end(errFirstToken)
	case now >= deadline:
		w.end(errIdle)
	default:
		w.timer.Reset(min(deadline, w.limits.Total, now+w.limits.Idle) - now)
	}
}

// touch says that something arrived.
func (w *watch) touch() {
	if idle := w.idle.Load(); idle > 0 {
		w.deadline.Store(int64(time.Since(w.start)) + idle)
	}
}

// await bounds every silence from now on. The timer is only set when it is waited: most of
// an answer that is short has arrived already.
func (w *watch) await(idle time.Duration) {
	if w.idle.Swap(int64(idle)) != int64(idle) {
		w.touch()
		w.sooner = true
	}
}

// within ends the call when d is over, whatever arrives until then.
func (w *watch) within(d time.Duration) {
	w.idle.Store(0)
	w.deadline.Store(int64(time.Since(w.start) + d))
	w.sooner = true
}

// wait comes before every read of the connection.
func (w *watch) wait() {
	if w.sooner {
		w.sooner = false
		w.timer.Reset(min(time.Duration(w.deadline.Load()), w.limits.Total) - time.Since(w.start))
	}
}

// pause stops the clock until the next touch: the caller is at work, not the provider.
func (w *watch) pause() { w.deadline.Store(int64(never)) }

// expired is the reason when the watch ended the call.
func (w *watch) expired() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// stop ends the watch, and with it the connection of an answer that was not read to
// its end.
func (w *watch) stop() {
	w.forget()
	w.timer.Stop()
	w.end(nil)
}
