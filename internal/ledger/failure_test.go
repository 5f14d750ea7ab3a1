package ledger_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
)

// Credit for exactly k calls and 300 at once: k are admitted, whatever the order, and
// the balance is never negative.
func TestOverspendStorm(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	const k, callers = 41, 300
	for range 5 {
		a := b.account(t, k*500)
		var admitted, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				h, err := b.Reserve(b.call(a, i%2 == 0, 20))
				if err != nil {
					if _, ok := errors.AsType[*ledger.InsufficientError](err); !ok {
						t.Error(err)
					}
					refused.Add(1)
					return
				}
				admitted.Add(1)
				if i%2 == 0 {
					if err := h.Persist(); err != nil {
						t.Error(err)
					}
				}
				if v := b.Balance(a).Available(); v < 0 {
					t.Errorf("available is %d", v)
				}
				if _, err := h.Settle(done(20)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if admitted.Load() != k || refused.Load() != callers-k {
			t.Errorf("%d admitted, %d refused, want %d and %d", admitted.Load(), refused.Load(), k, callers-k)
		}
		if got, want := b.Balance(a), (ledger.Balance{Granted: k * 500, Posted: k * 500}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	}
	b.verify(t)
}

// failing is a store whose disk fails at the n-th commit.
type failing struct {
	ledger.Store
	left  atomic.Int32
	calls atomic.Int32
}

var errDisk = errors.New("disk I/O error")

func (f *failing) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	f.calls.Add(1)
	if f.left.Add(-1) < 0 {
		return nil, errDisk
	}
	return f.Store.Commit(ctx, ops)
}

// When the disk fails, every waiter is told, nothing more is admitted, and the store
// is not asked again.
func TestDiskFailure(t *testing.T) {
	t.Parallel()
	var f *failing
	b := open(t, t.TempDir(), func(s ledger.Store) ledger.Store {
		f = &failing{Store: s}
		f.left.Store(1) // the grant
		return f
	})
	a := b.account(t, 1_000_000)
	var holds []*ledger.Hold
	for range 64 {
		h, err := b.Reserve(b.call(a, false, 1))
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	var wg sync.WaitGroup
	for _, h := range holds {
		wg.Go(func() {
			if _, err := h.Settle(done(1)); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, errDisk) {
				t.Errorf("Settle gives %v, want ErrUnavailable", err)
			}
		})
	}
	wg.Wait()
	select {
	case <-b.Failed():
	default:
		t.Error("Failed is not closed")
	}
	calls := f.calls.Load()
	if _, err := b.Reserve(b.call(a, false, 1)); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Reserve gives %v, want ErrUnavailable", err)
	}
	if _, err := b.Grant(context.Background(), ledger.Grant{AccountID: a, Amount: 1}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Grant gives %v, want ErrUnavailable", err)
	}
	if f.calls.Load() != calls || calls != 2 {
		t.Errorf("%d commits, want 2: the store must not be asked after a failure", f.calls.Load())
	}
	if err := b.Close(); !errors.Is(err, errDisk) {
		t.Errorf("Close gives %v", err)
	}
	if got := len(b.receipts(t, a)); got != 0 {
		t.Errorf("%d charges on the disk, want 0", got)
	}
}
