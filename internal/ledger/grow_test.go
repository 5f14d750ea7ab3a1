package ledger_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// inSlices is a stream of at most most tokens whose hold grows by slice.
func (b *books) inSlices(account string, slice, most int) ledger.Call {
	c := b.call(account, true, most)
	c.Slice, c.LeastOutput = slice, 1
	return c
}

// begin reserves c and puts its hold on the disk.
func (b *books) begin(t testing.TB, c ledger.Call) *ledger.Hold {
	t.Helper()
	h, err := b.Reserve(c)
	if err == nil {
		err = errors.Join(h.Persist(), h.Durable())
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A hold of slices has so much set aside as it needs soon, on the disk before it is used,
// and ends where the credit does.
func TestCover(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 100+20*21)
	h := b.begin(t, b.inSlices(a, 8, 50))
	if h.OutputLimit() != 50 {
		t.Errorf("OutputLimit = %d, want what the answer may come to", h.OutputLimit())
	}
	for n, want := range map[int]money.Amount{1: 260, 6: 260} {
		if err := h.Cover(n); err != nil || b.Balance(a).Held != want {
			t.Errorf("Cover(%d) = %v, held %d, want %d", n, err, b.Balance(a).Held, want)
		}
	}
	row := func() int {
		t.Helper()
		open, err := b.db.OpenHolds(context.Background())
		if err != nil || len(open) != 1 || open[0].Hold != 100+20*money.Amount(open[0].OutputLimit) {
			t.Fatalf("OpenHolds = %+v, %v", open, err)
		}
		return open[0].OutputLimit
	}
	for n := 7; n <= 21; n++ {
		if err := h.Cover(n); err != nil {
			t.Fatalf("Cover(%d) = %v", n, err)
		}
		if covered := row(); covered < n {
			t.Fatalf("Cover(%d) came back and the disk has %d", n, covered)
		}
		if b := b.Balance(a); b.Held > b.Granted || n == 7 && b.Held != 420 {
			t.Fatalf("Cover(%d) holds %d", n, b.Held)
		}
	}
	short, ok := errors.AsType[*ledger.InsufficientError](h.Cover(22))
	if !ok || short.Need != 20 || short.Available != 0 {
		t.Errorf("Cover beyond the credit gives %v", short)
	}
	// Credit that comes meanwhile counts, and so does what is charged of it.
	if _, err := b.Grant(context.Background(), ledger.Grant{AccountID: a, Amount: 30}); err != nil {
		t.Fatal(err)
	}
	if err := h.Cover(22); err != nil {
		t.Errorf("Cover after a grant: %v", err)
	}
	h.Delivered(22)
	if r, err := h.Settle(done(22)); err != nil || r.Charge != 540 || r.WrittenOff != 0 {
		t.Errorf("Settle = %+v, %v", r, err)
	}
	if got, want := b.Balance(a), (ledger.Balance{Granted: 550, Posted: 540}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	b.verify(t)
}

// A hold that covers everything does not grow, nor one whose first slice was not there.
func TestCover_WithoutSlices(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	for _, c := range []struct {
		credit                    money.Amount
		slice, most, limit, price int
	}{
		{1000, 0, 20, 20, 20}, {1000, 20, 20, 20, 20}, {1000, 30, 20, 20, 20}, {200, 8, 50, 5, 20}, {1000, 4, 20, 20, 0},
	} {
		call := b.inSlices(b.account(t, c.credit), c.slice, c.most)
		call.Price.Output = money.Amount(c.price)
		h := b.begin(t, call)
		held := b.Balance(call.AccountID).Held
		if h.OutputLimit() != c.limit {
			t.Errorf("%+v: OutputLimit = %d", c, h.OutputLimit())
		}
		if err := h.Cover(c.limit + 1); err != nil || b.Balance(call.AccountID).Held != held {
			t.Errorf("%+v: Cover = %v, held %d, before %d", c, err, b.Balance(call.AccountID).Held, held)
		}
		if err := h.Void(done(0)); err != nil {
			t.Error(err)
		}
	}
}

// A budget ends an answer as credit does.
func TestCover_Budget(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, money.IU)
	h := b.begin(t, of(b.inSlices(a, 4, 50), "budget_x", 0, 100+20*10))
	n := 1
	for ; h.Cover(n) == nil; n++ {
		h.Delivered(n)
	}
	if _, ok := errors.AsType[*ledger.BudgetError](h.Cover(n)); !ok || n != 11 {
		t.Errorf("it ended before token %d with %v, want a BudgetError before 11", n, h.Cover(n))
	}
	if _, err := h.Settle(done(n - 1)); err != nil {
		t.Error(err)
	}
	if s := b.Spending(a, ledger.Budget{ID: "budget_x"}); s != (ledger.Spending{Spent: 300}) {
		t.Errorf("Spending = %+v", s)
	}
	b.verify(t)
}

// Streams without an end share the last of an account's credit: none goes beyond it, at no
// moment is more held than there is, and less is left than another token costs.
func TestCover_Storm(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	const streams = 40
	for range 5 {
		a := b.account(t, money.Amount(streams*(100+20*4)+rand.IntN(20_000)))
		var wg sync.WaitGroup
		var ended atomic.Int32
		var holds []*ledger.Hold
		for range streams {
			holds = append(holds, b.begin(t, b.inSlices(a, 4, 1_000_000)))
		}
		tokens := make([]int, streams)
		for i, h := range holds {
			wg.Go(func() {
				for {
					err := h.Cover(tokens[i] + 1)
					if _, short := errors.AsType[*ledger.InsufficientError](err); short {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
					tokens[i]++
					h.Delivered(tokens[i])
					if b := b.Balance(a); b.Posted+b.Held > b.Granted {
						t.Errorf("posted %d and held %d of %d", b.Posted, b.Held, b.Granted)
					}
				}
				ended.Add(1)
			})
		}
		wg.Wait()
		if left := b.Balance(a).Available(); left >= 20 {
			t.Errorf("every stream has ended and %d are left", left)
		}
		b.verify(t) // with all holds on the disk
		for i, h := range holds {
			if r, err := h.Settle(done(tokens[i])); err != nil || r.WrittenOff != 0 || r.Charge != money.Amount(100+20*tokens[i]) {
				t.Errorf("Settle of %d tokens = %+v, %v", tokens[i], r, err)
			}
		}
		if ended.Load() != streams {
			t.Errorf("%d of %d streams ended by credit", ended.Load(), streams)
		}
	}
	b.verify(t)
}

// What is not on the disk is not covered: a disk that fails ends the stream before it
// shows what nobody would be charged for.
func TestCover_DiskFails(t *testing.T) {
	t.Parallel()
	f := &failing{}
	f.left.Store(2) // the grant and the hold
	b := open(t, t.TempDir(), func(s ledger.Store) ledger.Store { f.Store = s; return f })
	h := b.begin(t, b.inSlices(b.account(t, 10_000), 4, 50))
	n := 1
	for ; h.Cover(n) == nil; n++ {
	}
	if err := h.Cover(n); n > 5 || !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("covered until %d, then %v, want ErrUnavailable after the first slice", n, err)
	}
}

// A hold that the store does not have cannot be extended in silence.
func TestExtend_NoHold(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	if _, err := b.db.Commit(context.Background(), []ledger.Op{{Extend: &ledger.Receipt{RequestID: ident.RequestID()}}}); err == nil {
		t.Error("an extension of nothing succeeds")
	}
}
