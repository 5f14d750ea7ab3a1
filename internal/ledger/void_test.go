package ledger_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/parley-ai/parley/internal/ledger"
)

// gated is a store whose commits wait for the gate.
type gated struct {
	ledger.Store
	gate chan struct{}
}

func (s *gated) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	<-s.gate
	return s.Store.Commit(ctx, ops)
}

// The credit of a void is free only when its row is on its way: a stream that took it
// earlier could reach the disk first, and the rows would hold more than was granted.
func TestVoid_FreesOnceItIsQueued(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var s *gated
		b := open(t, dir, func(db ledger.Store) ledger.Store {
			s = &gated{db, make(chan struct{}, 2)}
			s.gate <- struct{}{} // the two grants
			s.gate <- struct{}{}
			return s
		})
		defer b.stop() // before the bubble ends: its goroutines are inside
		a, crowd := b.account(t, 500), b.account(t, 1_000_000)
		h, err := b.Reserve(b.call(a, true, 20))
		if err != nil {
			t.Fatal(err)
		}
		const queued = 1024
		for i := range 1 + queued { // one in the commit that waits, and a full queue
			other, err := b.Reserve(b.call(crowd, false, 1))
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Void(done(0)); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait()
			}
		}
		go func() {
			if err := h.Void(done(0)); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if got := b.Balance(a); got.Held != 500 || got.Running != 1 {
			t.Errorf("Balance while the void waits for the queue = %+v, want 500 held", got)
		}
		close(s.gate)
		synctest.Wait()
		if got := b.Balance(a); got.Held != 0 || got.Running != 0 {
			t.Errorf("Balance after it = %+v, want nothing held", got)
		}
	})
}
