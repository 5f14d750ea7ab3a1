package store_test

import (
	stdcmp "cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
)

func TestCommit_Results(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct, other := addAccount(t, db, "Acme"), addAccount(t, db, "Other")
	stream, whole := receipt(acct, price, true), receipt(acct, price, false)
	once := grant(acct, 1000, "invoice 1")
	again := grant(acct, 999, "invoice 1")
	again.Grant.CreatedAt = at.Add(time.Hour)
	got := commit(t, db,
		once, again, grant(other, 7, "invoice 1"), grant(acct, 1, ""), grant(acct, 1, ""), grant("acct_none", 5, "x"),
		ledger.Op{Open: &stream}, ledger.Op{Close: &stream}, ledger.Op{Close: &stream},
		ledger.Op{Close: &whole}, ledger.Op{Close: &whole},
	)
	yes, no := ledger.Result{Applied: true}, ledger.Result{}
	granted := ledger.Result{Applied: true, At: at}
	want := []ledger.Result{granted, {At: at}, granted, granted, granted, no, yes, yes, no, yes, no}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Commit differs (-want +got):\n%s", diff)
	}
	totals, err := db.Totals(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(totals, func(a, b ledger.Totals) int { return strings.Compare(a.AccountID, b.AccountID) })
	if want := []ledger.Totals{{AccountID: acct, Granted: 1002, Posted: 440}, {AccountID: other, Granted: 7}}; !slices.Equal(totals, want) {
		t.Errorf("Totals = %+v, want %+v", totals, want)
	}
	if n := query[int](t, db, `SELECT count(*) FROM hold`); n != 0 {
		t.Errorf("%d holds are left, want 0", n)
	}
	clean(t, db)
}

// A charge counts for the budget that it cites, once, in its period and no other.
func TestCommit_Budgets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, 10_000, ""))
	on := func(id string, period int64) ledger.Op {
		r := receipt(acct, price, false)
		r.Budget = ledger.Budget{ID: id, Period: period, Amount: 1} // admission has decided
		return ledger.Op{Close: &r}
	}
	twice := on("a", 202611)
	none := receipt(acct, price, false)
	stream := receipt(acct, price, true)
	stream.Budget = ledger.Budget{ID: "held", Period: 0}
	commit(t, db, on("a", 202611), twice, twice, on("a", 202612), on("b", 0), ledger.Op{Close: &none}, ledger.Op{Open: &stream})
	commit(t, db, on("a", 202611), twice)
	got, err := db.Budgets(ctx)
	slices.SortFunc(got, func(a, b ledger.BudgetTotal) int {
		return stdcmp.Or(stdcmp.Compare(a.ID, b.ID), stdcmp.Compare(a.Period, b.Period))
	})
	want := []ledger.BudgetTotal{{ID: "a", Period: 202611, Spent: 660}, {ID: "a", Period: 202612, Spent: 220}, {ID: "b", Spent: 220}, {ID: "held"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Budgets: %v (-want +got):\n%s", err, diff)
	}
	clean(t, db)
}

func TestCommit_Nothing(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	if got := commit(t, db); len(got) != 0 {
		t.Errorf("Commit of no op = %v", got)
	}
}

// One op that cannot be written takes back those before it and stops those after it.
func TestCommit_AllOrNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		bad  func(acct, price string) ledger.Op
	}{
		{"a hold of nobody", func(_, price string) ledger.Op {
			r := receipt("acct_none", price, true)
			return ledger.Op{Open: &r}
		}},
		{"a hold twice", func(acct, price string) ledger.Op {
			r := receipt(acct, price, true)
			r.RequestID = "req_taken"
			return ledger.Op{Open: &r}
		}},
		{"a charge without a price", func(acct, _ string) ledger.Op {
			r := receipt(acct, "price_none", false)
			return ledger.Op{Close: &r}
		}},
		{"a charge of nobody", func(_, price string) ledger.Op {
			r := receipt("acct_none", price, false)
			return ledger.Op{Close: &r}
		}},
		{"a charge below zero", func(acct, price string) ledger.Op {
			r := receipt(acct, price, false)
			r.Charge = -1
			return ledger.Op{Close: &r}
		}},
		{"a charge above the credit", func(acct, price string) ledger.Op {
			r := receipt(acct, price, false)
			r.Charge = 1_000_000
			return ledger.Op{Close: &r}
		}},
		{"a state that is not final", func(acct, price string) ledger.Op {
			r := receipt(acct, price, false)
			r.State = ledger.Running
			return ledger.Op{Close: &r}
		}},
		{"a grant of nothing", func(acct, _ string) ledger.Op { return grant(acct, 0, "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := open(t, t.TempDir())
			price := savePrice(t, db, model())
			acct := addAccount(t, db, "Acme")
			taken := receipt(acct, price, true)
			taken.RequestID = "req_taken"
			commit(t, db, grant(acct, 5000, ""), ledger.Op{Open: &taken})
			before := books(t, db)

			stream, whole := receipt(acct, price, true), receipt(acct, price, false)
			whole.Budget = ledger.Budget{ID: "budget_x"}
			ops := []ledger.Op{grant(acct, 1000, "x"), {Open: &stream}, {Close: &whole}, c.bad(acct, price), {Close: &stream}}
			if _, err := db.Commit(context.Background(), ops); err == nil {
				t.Fatal("Commit succeeds")
			}
			if diff := cmp.Diff(before, books(t, db)); diff != "" {
				t.Errorf("the books changed (-before +after):\n%s", diff)
			}
			ops = slices.Delete(ops, 3, 4)
			commit(t, db, ops...) // the connection is as good as before
			clean(t, db)
		})
	}
}

func TestCommit_ContextEnded(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := db.Commit(ctx, []ledger.Op{grant(acct, 5, "")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit gives %v, want context.Canceled", err)
	}
	if got := commit(t, db, grant(acct, 6, "")); !got[0].Applied {
		t.Errorf("Commit afterwards = %+v", got)
	}
	if got := query[int](t, db, `SELECT granted FROM account`); got != 6 {
		t.Errorf("granted = %d, want 6", got)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Accounts":      func() error { _, err := db.Accounts(ctx); return err },
		"CreateAccount": func() error { return db.CreateAccount(ctx, account.Account{}) },
		"UpdateAccount": func() error { return db.UpdateAccount(ctx, account.Account{}) },
		"Keys":          func() error { _, err := db.Keys(ctx); return err },
		"CreateKey":     func() error { return db.CreateKey(ctx, apikey.Key{}) },
		"ReplaceKey":    func() error { return db.ReplaceKey(ctx, apikey.Key{}, apikey.Key{}) },
		"UpdateKey":     func() error { return db.UpdateKey(ctx, apikey.Key{}) },
		"RevokeKey":     func() error { return db.RevokeKey(ctx, "", at) },
		"TouchKeys":     func() error { return db.TouchKeys(ctx, nil) },
		"SaveCatalog":   func() error { return db.SaveCatalog(ctx, nil, nil) },
		"Totals":        func() error { _, err := db.Totals(ctx); return err },
		"Budgets":       func() error { _, err := db.Budgets(ctx); return err },
		"OpenHolds":     func() error { _, err := db.OpenHolds(ctx); return err },
		"Commit":        func() error { _, err := db.Commit(ctx, nil); return err },
		"Receipts":      func() error { _, err := db.Receipts(ctx, "", 1); return err },
		"ReceiptsSince": func() error { _, err := db.ReceiptsSince(ctx, at); return err },
		"Verify":        func() error { _, err := db.Verify(ctx); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s of a closed database succeeds", name)
		}
	}
}

// books is every row that Commit can touch.
func books(t testing.TB, db *store.DB) map[string][][]any {
	t.Helper()
	all := map[string][][]any{}
	for _, table := range []string{"account", "credit_grant", "terms", "outcome", "hold_row", "charge_row", "budget"} {
		rs, err := db.Writer().QueryContext(context.Background(), `SELECT * FROM `+table+` ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		all[table] = scan(t, rs)
	}
	return all
}

func scan(t testing.TB, rs *sql.Rows) (rows [][]any) {
	t.Helper()
	defer rs.Close()
	columns, err := rs.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rs.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rs.Scan(into...); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := rs.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}
