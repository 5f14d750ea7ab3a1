package chat_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// start completes c in a goroutine of its own and returns where its error will be.
func (l *line) start(t *testing.T, c chat.Call, out chat.Emitter) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := l.Complete(t.Context(), c, out)
		done <- err
	}()
	return done
}

// No byte of a whole answer, and no end of a stream, leaves before its charge is on
// the disk.
func TestBarrier(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		text, end := make(chan struct{}), make(chan struct{})
		l := open(t, 100_000, provider(upstreamtest.Text("a"), reached(text), upstreamtest.Wait(end), upstreamtest.Finish(wire.FinishStop)))
		out := &recorder{}
		done := l.start(t, l.call(stream), out)
		<-text // the hold of a stream is durable by now
		l.disk.block()
		waiting := l.disk.waiting
		close(end)
		<-waiting // the charge has come to the disk, and to nobody else
		if got := out.String(); got != "start,a" {
			t.Errorf("stream %v: emitted %q before the commit, want only the text", stream, got)
		}
		if b := l.Ledger.Balance(l.caller.Account.ID); b.Held == 0 || b.Posted != 0 {
			t.Errorf("stream %v: Balance before the commit = %+v", stream, b)
		}
		l.disk.release()
		if err := <-done; err != nil || out.String() != "start,a,stop 10+1" {
			t.Errorf("stream %v: after the commit emitted %q, %v", stream, out, err)
		}
	}
}

// No text of a stream leaves before its hold is on the disk; that of a whole answer is
// only collected, and has no hold there.
func TestHoldBarrier(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	l := open(t, 100_000, provider(reached(asked), upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)))
	l.disk.block()
	waiting := l.disk.waiting
	out := &recorder{}
	done := l.start(t, l.call(true), out)
	<-asked // the model computes while the hold is being written
	<-waiting
	if got := out.String(); got != "" {
		t.Errorf("emitted %q before the hold was durable", got)
	}
	l.disk.release()
	if err := <-done; err != nil || out.String() != "start,a,stop 10+1" {
		t.Errorf("emitted %q, %v", out, err)
	}
}

// A disk that fails under the hold, and one that fails under the charge.
func TestNothingBillableWithoutDisk(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		l := open(t, 100_000, provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)))
		l.disk.fail()
		out := &recorder{}
		if _, err := l.Complete(t.Context(), l.call(stream), out); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, errDisk) {
			t.Errorf("stream %v: Complete gives %v, want ErrUnavailable", stream, err)
		}
		if got := out.String(); stream && got != "" || got == "start,a,stop 10+1" {
			t.Errorf("stream %v: emitted %q", stream, got)
		}
		out = &recorder{}
		if _, err := l.Complete(t.Context(), l.call(stream), out); !errors.Is(err, ledger.ErrUnavailable) || out.String() != "" {
			t.Errorf("stream %v: the next call emits %q, %v, want it refused", stream, out, err)
		}
	}
}

// Calls at once neither mix nor spend more than there is.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	const each = 100 + 20*50
	l := open(t, 8*each, provider(upstreamtest.Text("a", "b"), upstreamtest.Finish(wire.FinishStop)))
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			out := &recorder{}
			_, err := l.Complete(t.Context(), l.call(i%2 == 0, func(r *wire.ChatRequest) { r.MaxTokens = 50 }), out)
			if _, short := errors.AsType[*chat.ShortfallError](err); err != nil && !short || err == nil && out.String() != "start,a,b,stop 10+2" {
				t.Errorf("emitted %q, %v", out, err)
			}
		})
	}
	wg.Wait()
	b := l.Ledger.Balance(l.caller.Account.ID)
	if b.Held != 0 || b.Running != 0 || b.Posted%140 != 0 || b.Posted < 8*140 || b.Posted > money.Amount(64*140) {
		t.Errorf("Balance = %+v", b)
	}
	if err := l.Ledger.Close(); err != nil {
		t.Fatal(err)
	}
	l.verify(t)
}
