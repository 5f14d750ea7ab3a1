package ledger_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

func TestAdjust(t *testing.T) {
	t.Parallel()
	ctx := audit.WithActor(context.Background(), "ann")
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 1000)
	h, err := b.Reserve(b.call(a, false, 20)) // holds 500
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Adjust(ctx, a, -501, "too much"); err == nil {
		t.Error("what a call holds was taken")
	} else if short, ok := errors.AsType[*ledger.InsufficientError](err); !ok || *short != (ledger.InsufficientError{Need: 501, Available: 500, Held: 500}) {
		t.Errorf("taking what a call holds gives %v", err)
	}
	for _, n := range []money.Amount{-500, 30} {
		if err := b.Adjust(ctx, a, n, "added twice"); err != nil {
			t.Fatalf("Adjust(%d): %v", n, err)
		}
	}
	for _, n := range []money.Amount{0, -money.MaxAmount - 1, money.MaxAmount + 1} {
		if err := b.Adjust(ctx, a, n, "no"); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("Adjust(%d) gives %v, want ErrAmount", n, err)
		}
	}
	if _, err := h.Settle(done(20)); err != nil {
		t.Fatal(err)
	}
	want := ledger.Balance{Granted: 1030, Posted: 1000}
	if got := b.Balance(a); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	b.verify(t)
	b.stop()
	b = open(t, b.dir, nil)
	if got := b.Balance(a); got != want {
		t.Errorf("after a start Balance = %+v, want %+v", got, want)
	}
	grants, err := b.db.Grants(ctx, a)
	if err != nil || len(grants) != 2 || grants[0].Kind != ledger.Adjust || grants[0].Actor != "ann" || grants[0].Note != "added twice" {
		t.Errorf("Grants = %+v, %v", grants, err)
	}
}

// Many take and spend at once: exactly what was there goes.
func TestAdjust_Storm(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 10_050)
	var taken, spent atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if b.Adjust(context.Background(), a, -100, "storm") == nil {
					taken.Add(1)
				}
				h, err := b.Reserve(b.call(a, false, 0))
				if err != nil {
					continue
				}
				if _, err := h.Settle(done(0)); err != nil {
					t.Error(err)
				}
				spent.Add(1)
			}
		})
	}
	wg.Wait()
	if n := taken.Load() + spent.Load(); n != 100 || b.Balance(a).Available() != 50 {
		t.Errorf("%d debits and %d calls of 100 from 10,050 leave %+v", taken.Load(), spent.Load(), b.Balance(a))
	}
	b.verify(t)
}

func TestRefund(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 1000)
	b.spend(t, a, 20) // 500
	id := b.receipts(t, a)[0].RequestID
	if c, err := b.Refund(ctx, id, 100, "half"); err != nil || c != (ledger.Charged{AccountID: a, Charge: 500, Refunded: 100}) {
		t.Errorf("Refund of 100 = %+v, %v", c, err)
	}
	if c, err := b.Refund(ctx, id, 401, "too much"); !errors.Is(err, ledger.ErrRefunded) || c.Refunded != 100 {
		t.Errorf("Refund of 401 of 400 = %+v, %v, want ErrRefunded", c, err)
	}
	if c, err := b.Refund(ctx, id, 0, "the rest"); err != nil || c.Refunded != 500 {
		t.Errorf("Refund of the rest = %+v, %v", c, err)
	}
	if _, err := b.Refund(ctx, id, 0, "again"); !errors.Is(err, ledger.ErrRefunded) {
		t.Errorf("Refund of nothing gives %v, want ErrRefunded", err)
	}
	if _, err := b.Refund(ctx, "req_none", 1, "whose"); !errors.Is(err, ledger.ErrNoCharge) {
		t.Errorf("Refund of no call gives %v, want ErrNoCharge", err)
	}
	if got, want := b.Balance(a), (ledger.Balance{Granted: 1500, Posted: 500}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	b.verify(t)
}

// However many give back at once, a charge is given back once.
func TestRefund_Storm(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 1000)
	b.spend(t, a, 20)
	id := b.receipts(t, a)[0].RequestID
	var given atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			switch _, err := b.Refund(context.Background(), id, 30, "storm"); {
			case err == nil:
				given.Add(1)
			case !errors.Is(err, ledger.ErrRefunded):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if given.Load() != 16 || b.Balance(a).Granted != 1480 {
		t.Errorf("%d refunds of 30 were given of 500, leaving %+v; want 16", given.Load(), b.Balance(a))
	}
	b.expire(t, time.Now().Add(time.Hour)) // refunds do not end
	if got := b.Balance(a).Granted; got != 1480 {
		t.Errorf("%d are granted after an hour, want 1480", got)
	}
	b.verify(t)
}
