package ledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
)

// broken is a store that panics after its first commits.
type broken struct {
	ledger.Store
	left atomic.Int32
}

func (s *broken) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	if s.left.Add(-1) < 0 {
		panic("a fault in the store")
	}
	return s.Store.Commit(ctx, ops)
}

// A call commits what others wait for. A panic in it is everybody's failure, not that
// of one handler while the others wait for ever.
func TestPanicOfTheStore(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), func(s ledger.Store) ledger.Store {
		f := &broken{Store: s}
		f.left.Store(1) // the grant
		return f
	})
	a := b.account(t, 1_000_000)
	holds := make([]*ledger.Hold, 64)
	for i := range holds {
		var err error
		if holds[i], err = b.Reserve(b.call(a, false, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, h := range holds {
		wg.Go(func() {
			if _, err := h.Settle(done(1)); !errors.Is(err, ledger.ErrUnavailable) {
				t.Errorf("Settle gives %v, want ErrUnavailable", err)
			}
		})
	}
	wg.Wait()
	<-b.Failed()
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "a fault in the store") {
		t.Errorf("Close gives %v, want what the store said", err)
	}
	if got := len(b.receipts(t, a)); got != 0 {
		t.Errorf("%d charges on the disk, want 0", got)
	}
}
