package openai

import (
	"context"
	"errors"
	"math"
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

// watch ends a call that takes too long. It has one timer a call, not one a piece: the
// timer finds out, when it fires, how much time is really left.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	limits Timeouts
	start  time.Time
	timer  *time.Timer
	// The times below count from start.
	deadline atomic.Int64 // of what is awaited now
	idle     atomic.Int64 // how long a silence may be; 0 until the first token
}

func newWatch(parent context.Context, limits Timeouts) (*watch, context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watch{ctx: ctx, cancel: cancel, limits: limits, start: time.Now()}
	w.deadline.Store(int64(limits.FirstToken))
	w.timer = time.AfterFunc(min(limits.FirstToken, limits.Total), w.check)
	return w, ctx
}

// check runs on the timer.
func (w *watch) check() {
	if w.ctx.Err() != nil {
		return
	}
	now := time.Since(w.start)
	deadline := time.Duration(w.deadline.Load())
	switch {
	case now >= w.limits.Total:
		w.cancel(errTotal)
	case now >= deadline && w.idle.Load() == 0:
		w.cancel(errFirstToken)
	case now >= deadline:
		w.cancel(errIdle)
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

// await bounds every silence from now on.
func (w *watch) await(idle time.Duration) {
	if w.idle.Swap(int64(idle)) != int64(idle) {
		w.touch()
		w.timer.Reset(idle)
	}
}

// pause stops the clock until the next touch: the caller is at work, not the provider.
func (w *watch) pause() { w.deadline.Store(int64(never)) }

// expired is the reason when the watch ended the call.
func (w *watch) expired() error {
	err := context.Cause(w.ctx)
	if errors.Is(err, errFirstToken) || errors.Is(err, errIdle) || errors.Is(err, errTotal) {
		return err
	}
	return nil
}

// stop ends the watch, and with it the connection of an answer that was not read to
// its end.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}
