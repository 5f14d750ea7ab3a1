package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// blind is a store of which something cannot be read.
type blind struct {
	*disk
	what string
}

func (b blind) may(what string) error {
	if b.what == what {
		return errDisk
	}
	return nil
}

func (b blind) Totals(ctx context.Context) ([]ledger.Totals, error) {
	all, err := b.disk.Totals(ctx)
	return all, errors.Join(err, b.may("totals"))
}

func (b blind) Budgets(ctx context.Context) ([]ledger.BudgetTotal, error) {
	all, err := b.disk.Budgets(ctx)
	return all, errors.Join(err, b.may("budgets"))
}

func (b blind) OpenHolds(ctx context.Context) ([]ledger.Receipt, error) {
	all, err := b.disk.OpenHolds(ctx)
	return all, errors.Join(err, b.may("holds"))
}

// Books that cannot all be read are not opened.
func TestCore_OpenReadsAll(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"totals", "budgets", "holds", ""} {
		l, _, err := ledger.Open(t.Context(), blind{&disk{rows: newRows(account)}, what}, newMemory(nil))
		if (what == "") != (err == nil) || err != nil && !errors.Is(err, errDisk) {
			t.Errorf("without %q Open gives %v", what, err)
		}
		if err == nil {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A hold whose charge no amount can say stops the start: it is neither charged wrongly nor
// given away.
func TestCore_OpenOverflow(t *testing.T) {
	t.Parallel()
	d := &disk{rows: newRows(account)}
	d.holds["req_1"] = ledger.Receipt{RequestID: "req_1", AccountID: account, OutputLimit: 1 << 40, Price: money.Price{Output: money.MaxPerToken}}
	before := newMemory(nil)
	before.now["req_1"] = 1 << 40
	if _, _, err := ledger.Open(t.Context(), d, newMemory(before)); !errors.Is(err, money.ErrOverflow) || len(d.charges) != 0 {
		t.Errorf("Open gives %v and %d charges", err, len(d.charges))
	}
}

// A call is found whosever it is.
func TestCore_Find(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		const accounts = 20
		name := func(n int) (id, account string) { return fmt.Sprint("req_", n), fmt.Sprint("acct_", n) }
		for n := range accounts {
			c := b.call("", 5, 5)
			c.RequestID, c.AccountID = name(n)
			c.Price = money.Price{}
			b.reserve(b.t, c)
		}
		for n := range accounts {
			id, of := name(n)
			if r, ok := b.Find(id); !ok || r.RequestID != id || r.AccountID != of {
				b.t.Errorf("Find(%s) = %+v, %v", id, r, ok)
			}
		}
		if r, ok := b.Find("req_none"); ok {
			b.t.Errorf("Find of no call = %+v", r)
		}
	})
}
