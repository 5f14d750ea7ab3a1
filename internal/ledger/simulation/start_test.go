package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

func (b blind) Expiring(ctx context.Context, u ledger.Unit, t time.Time) ([]string, time.Time, error) {
	accounts, next, err := b.disk.Expiring(ctx, u, t)
	return accounts, next, errors.Join(err, b.may("expiring"))
}

func (b blind) GrantsOf(ctx context.Context, id string, u ledger.Unit) ([]ledger.GrantBalance, error) {
	grants, err := b.disk.GrantsOf(ctx, id, u)
	return grants, errors.Join(err, b.may("grants"))
}

func (b blind) Charged(ctx context.Context, id string) (ledger.Charged, error) {
	c, err := b.disk.Charged(ctx, id)
	if c.Refunded > 0 {
		err = errors.Join(err, b.may("refunded"))
	}
	return c, err
}

func (b blind) Owed(ctx context.Context, r *ledger.Reversal) (money.Amount, error) {
	owed, err := b.disk.Owed(ctx, r)
	return owed, errors.Join(err, b.may("owed"))
}

// Books that cannot all be read are not opened, and opening those that are at rest writes
// nothing.
func TestCore_OpenReadsAll(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"totals", "budgets", "holds", "expiring", ""} {
		d := &disk{rows: newRows(account)}
		l, _, err := ledger.Open(t.Context(), blind{d, what}, newMemory(nil))
		if (what == "") != (err == nil) || err != nil && !errors.Is(err, errDisk) {
			t.Errorf("without %q Open gives %v", what, err)
		}
		if slices.ContainsFunc(d.trace, commits) {
			t.Errorf("without %q Open writes %q", what, d.trace)
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

// A start charges what the last process delivered, to the token and never more than a hold
// covers, and charges nothing for what has delivered nothing.
func TestCore_Recovers(t *testing.T) {
	t.Parallel()
	began := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	held := func(id string, plan int, hold money.Amount) ledger.Receipt {
		return ledger.Receipt{
			RequestID: id, AccountID: account, Price: price, Stream: true, CreatedAt: began, State: ledger.Running,
			PromptTokens: 10, OutputLimit: 20, PlanTokens: plan, Hold: hold, UsageSource: ledger.UsageNone,
		}
	}
	recovered := func(r ledger.Receipt, tokens, plan int, charge money.Amount) ledger.Receipt {
		r.State, r.Ending, r.UsageSource, r.Status = ledger.Recovered, ledger.EndCrash, ledger.UsageProgress, 200
		r.CompletionTokens, r.PlanTokens, r.Charge = tokens, plan, charge
		return r
	}
	voided := held("req_5", 3, 470)
	voided.State, voided.Ending, voided.PromptTokens, voided.PlanTokens = ledger.Voided, ledger.EndCrash, 0, 0
	want := map[string]ledger.Receipt{
		"req_1": recovered(held("req_1", 0, 500), 7, 0, 240),
		"req_2": recovered(held("req_2", 0, 500), 1, 0, 120),
		"req_3": recovered(held("req_3", 0, 500), 20, 0, 500), // it noted more than was covered
		"req_4": recovered(held("req_4", 12, 360), 3, 12, 20),
		"req_5": voided,
	}
	d := &disk{rows: newRows(account)}
	d.add(&ledger.Grant{ID: "a", AccountID: account, Amount: 3000})
	d.add(&ledger.Grant{ID: "b", AccountID: account, Amount: 50, Unit: ledger.Tokens})
	before := newMemory(nil)
	before.now = map[string]int{"req_1": 7, "req_2": 1, "req_3": 30, "req_4": 3, "req_5": 0}
	for id, r := range want {
		d.holds[id] = held(id, map[string]int{"req_4": 12, "req_5": 3}[id], r.Hold)
	}
	progress := newMemory(before)
	l, rec, err := ledger.Open(t.Context(), d, progress)
	if err != nil || rec != (ledger.Recovery{Settled: 4, Voided: 1}) || progress.last != nil {
		t.Fatalf("Open recovers %+v, %v, and keeps %v of the progress", rec, err, progress.last)
	}
	if diff := cmp.Diff(want, d.charges); diff != "" || len(d.holds) != 0 {
		t.Errorf("charges, with %d holds (-want +got):\n%s", len(d.holds), diff)
	}
	if got, want := l.Balance(account), (ledger.Balance{Granted: 3000, Posted: 880, Tokens: ledger.TokenBalance{Granted: 50, Posted: 12}}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, law := range d.broken {
		t.Error(law)
	}
}

// A start that cannot resolve what was left does not begin, and forgets nothing of it.
func TestCore_RecoversNot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(*disk)
		want    error
	}{
		"charged before": {func(d *disk) { d.charges["req_1"] = ledger.Receipt{} }, ledger.ErrResolved},
		"a failed disk":  {func(d *disk) { d.fates = func() fate { return refused } }, errDisk},
	} {
		d := &disk{rows: newRows(account)}
		d.holds["req_1"] = ledger.Receipt{RequestID: "req_1", AccountID: account, Price: price, PromptTokens: 10, OutputLimit: 2}
		tt.prepare(d)
		before := newMemory(nil)
		before.now["req_1"] = 2
		progress := newMemory(before)
		if _, _, err := ledger.Open(t.Context(), d, progress); !errors.Is(err, tt.want) || progress.last["req_1"] != 2 {
			t.Errorf("%s: Open gives %v and keeps %v, want %v", name, err, progress.last, tt.want)
		}
	}
}

// monthly is a store whose budgets have periods.
type monthly struct{ *disk }

func (monthly) Budgets(context.Context) ([]ledger.BudgetTotal, error) {
	return []ledger.BudgetTotal{{ID: "b", Period: 202611, Spent: 40}, {ID: "b", Spent: 7}}, nil
}

// What was spent of a budget is known after a start, of each period and of all.
func TestCore_OpenBudgets(t *testing.T) {
	t.Parallel()
	l, _, err := ledger.Open(t.Context(), monthly{&disk{rows: newRows(account)}}, newMemory(nil))
	if err != nil {
		t.Fatal(err)
	}
	for period, want := range map[int64]money.Amount{202611: 40, 0: 47, 202612: 0} {
		if got := l.Spending(account, ledger.Budget{ID: "b", Period: period}); got != (ledger.Spending{Spent: want}) {
			t.Errorf("Spending in %d = %+v, want %d", period, got, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
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
