package ledger_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// of is the call on a budget of amount.
func of(c ledger.Call, id string, period int64, amount money.Amount) ledger.Call {
	c.Budget = ledger.Budget{ID: id, Period: period, Amount: amount}
	return c
}

// A budget for exactly k calls and 1,000 at once, of two keys that share it: k are
// admitted and at no moment is more than the budget spent and held.
func TestBudget_Storm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir, nil)
	const k, callers = 137, 1000
	a := b.account(t, money.IU)
	whole := ledger.Budget{ID: "budget_storm", Amount: k * 500}
	var admitted, refused atomic.Int32
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c := of(b.call(a, i%2 == 0, 20), whole.ID, 0, whole.Amount)
			c.KeyID = []string{"key_x", "key_y"}[i%3/2]
			h, err := b.Reserve(c)
			if err != nil {
				if _, ok := errors.AsType[*ledger.BudgetError](err); !ok {
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
			if s := b.Spending(a, whole); s.Spent+s.Held > whole.Amount {
				t.Errorf("%d is spent and %d held of %d", s.Spent, s.Held, whole.Amount)
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
	b.verify(t)
	b.stop()
	b = open(t, dir, nil)
	if got := b.Spending(a, whole); got != (ledger.Spending{Spent: k * 500}) || b.Balance(a).Posted != k*500 {
		t.Errorf("after a restart %+v and %+v", got, b.Balance(a))
	}
	if _, err := b.Reserve(of(b.call(a, false, 1), whole.ID, 0, whole.Amount)); err == nil {
		t.Error("after a restart a call is admitted")
	}
}

func TestBudget_Refuses(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 10_000)
	reserve := func(period int64, amount money.Amount, least, most int) (*ledger.Hold, error) {
		c := of(b.call(a, false, most), "budget_x", period, amount)
		c.LeastOutput = least
		return b.Reserve(c)
	}
	first, err := reserve(202611, 700, 20, 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = reserve(202611, 700, 20, 20)
	if short, ok := errors.AsType[*ledger.BudgetError](err); !ok || short.InsufficientError != (ledger.InsufficientError{Need: 500, Available: 200, Held: 500}) {
		t.Errorf("the second call gives %v", err)
	}
	if _, ok := errors.AsType[*ledger.InsufficientError](err); ok {
		t.Error("a budget's refusal is taken for the balance's")
	}
	// The longest answer that the rest covers.
	second, err := reserve(202611, 700, 1, 20)
	if err != nil || second.OutputLimit() != 5 {
		t.Fatalf("a shorter call gives %v, %v, want 5 tokens", second, err)
	}
	// Another month is another count; another amount counts together with the first.
	if h, err := reserve(202612, 700, 20, 20); err != nil {
		t.Errorf("in another month: %v", err)
	} else if err := h.Void(done(0)); err != nil {
		t.Error(err)
	}
	if h, err := reserve(202611, 1200, 20, 20); err != nil {
		t.Errorf("with a larger amount: %v", err)
	} else if err := h.Void(done(0)); err != nil {
		t.Error(err)
	}
	free := of(b.call(a, false, 20), "budget_x", 202611, 1)
	free.Price = money.Price{}
	if _, err := b.Reserve(free); err != nil {
		t.Errorf("a call that costs nothing gives %v", err)
	}
	poor := of(b.call(b.account(t, 100), false, 20), "budget_poor", 0, 1)
	if _, err := b.Reserve(poor); err != nil {
		if _, ok := errors.AsType[*ledger.InsufficientError](err); !ok {
			t.Errorf("with too little of both %v, want what the account lacks", err)
		}
	} else {
		t.Error("with too little of both a call is admitted")
	}
	// What was not used is free again, in the books too.
	if _, err := first.Settle(done(1)); err != nil {
		t.Fatal(err)
	}
	if err := second.Void(done(0)); err != nil {
		t.Fatal(err)
	}
	if got := b.Spending(a, ledger.Budget{ID: "budget_x", Period: 202611}); got != (ledger.Spending{Spent: 120}) {
		t.Errorf("Spending = %+v, want 120 spent", got)
	}
	b.verify(t)
}

// A charge above the hold takes no more than what is left of the budget.
func TestBudget_SettleAboveHold(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 10_000)
	h, err := b.Reserve(of(b.call(a, true, 20), "budget_x", 0, 600))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Persist(); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Settle(done(100)); err != nil || r.Charge != 600 || r.WrittenOff != 1500 { // 2100
		t.Errorf("Settle = charge %d, written off %d, %v, want 600 and 1500", r.Charge, r.WrittenOff, err)
	}
	if got := b.Spending(a, ledger.Budget{ID: "budget_x"}); got != (ledger.Spending{Spent: 600}) {
		t.Errorf("Spending = %+v, want 600 spent", got)
	}
	if got, want := b.Balance(a), (ledger.Balance{Granted: 10_000, Posted: 600}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	b.verify(t)
}
