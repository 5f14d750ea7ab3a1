package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// The laws by the names that an operator reads.
const (
	granted = "granted is the sum of the grants"
	burned  = "no grant gave more than it had"
	expired = "what a grant lost is the sum of its expiries"
	posted  = "posted is the sum of the charges and debits"
	hourly  = "usage by the hour is the sum of the charges"
	back    = "no charge was given back more than once"
	covered = "posted and held are covered by what was granted"
	once    = "no call is both running and ended"
	priced  = "every charge is its tokens at its price"
	cites   = "every entry cites rows that are there"
	found   = "every charge is found from the usage of its hour"
	voided  = "what was voided cost nothing"
	budgets = "what budgets spent is the sum of their charges"
	trial   = "all balances add up to all entries"
)

func verify(t testing.TB, db *store.DB) ledger.Report {
	t.Helper()
	rep, err := db.Verify(context.Background())
	if err != nil {
		t.Fatalf("Verify: %v", err)
	}
	return rep
}

// clean fails unless every law holds and SQLite finds its own structures whole.
func clean(t testing.TB, db *store.DB) {
	t.Helper()
	rep := verify(t, db)
	for _, i := range rep.Invariants {
		if !i.OK || i.Detail != "" {
			t.Errorf("%s: %s", i.Name, i.Detail)
		}
	}
	if !rep.OK() || len(rep.Invariants) != 22 {
		t.Errorf("Verify proves %d laws, OK() = %v, want 22 and true", len(rep.Invariants), rep.OK())
	}
	if got := query[string](t, db, `PRAGMA integrity_check`); got != "ok" {
		t.Errorf("integrity_check says %s", got)
	}
}

// kept is an account with 1,000 granted in two grants and 440 posted in two charges,
// one voided call and one running stream that holds 500. Its streams count for a budget.
type kept struct {
	*store.DB
	account, stream, whole, void, running string
}

func keep(t testing.TB) kept {
	t.Helper()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	k := kept{DB: db, account: addAccount(t, db, "Acme")}
	other := addAccount(t, db, "Other")
	stream, whole, void, running := receipt(k.account, price, true), receipt(k.account, price, false), receipt(k.account, price, false), receipt(k.account, price, true)
	void.State, void.PromptTokens, void.CachedTokens, void.CompletionTokens, void.Charge = ledger.Voided, 0, 0, 0, 0
	stream.Budget, running.Budget = ledger.Budget{ID: "budget_k", Period: 202611}, ledger.Budget{ID: "budget_k", Period: 202611}
	k.stream, k.whole, k.void, k.running = stream.RequestID, whole.RequestID, void.RequestID, running.RequestID
	commit(t, db, grant(k.account, 900, ""), grant(k.account, 100, ""), grant(other, 77, ""),
		ledger.Op{Open: &stream}, ledger.Op{Open: &running}, ledger.Op{Close: &stream}, ledger.Op{Close: &whole}, ledger.Op{Close: &void})
	return k
}

func TestVerify_Clean(t *testing.T) {
	t.Parallel()
	clean(t, open(t, t.TempDir()))
	k := keep(t)
	clean(t, k.DB)
	if rep := verify(t, k.DB); rep.Accounts != 2 || rep.Entries != 6 || rep.Took <= 0 {
		t.Errorf("Verify counts %d accounts and %d entries in %v, want 2 and 6", rep.Accounts, rep.Entries, rep.Took)
	}
}

// Each law is found broken when somebody changes a row by hand. What else breaks with
// it is named too, and nothing that still holds.
func TestVerify_Broken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		tamper func(k kept) string
		want   map[string][]string // law -> what its detail says
	}{
		{
			"granted raised", func(k kept) string { return `UPDATE account SET granted = granted + 5 WHERE id = '` + k.account + `'` },
			map[string][]string{granted: {"ACCOUNT", "books say 0.000001005", "should be 0.000001", "difference 0.000000005"}, trial: {"all accounts", "differ by 0.000000005"}},
		},
		{
			"a grant deleted", func(k kept) string { return `DELETE FROM credit_grant WHERE amount = 100` },
			map[string][]string{granted: {"ACCOUNT", "difference 0.0000001"}, trial: {"differ by 0.0000001"}},
		},
		{"a grant moved", func(k kept) string {
			return `UPDATE credit_grant SET account_id = '` + k.account + `' WHERE amount = 77`
		}, map[string][]string{granted: {"acct_", "difference"}}},
		{
			"posted lowered", func(k kept) string { return `UPDATE account SET posted = posted - 40 WHERE id = '` + k.account + `'` },
			map[string][]string{posted: {"ACCOUNT", "books say 0.0000004", "should be 0.00000044", "difference -0.00000004"}, trial: {"differ by 0.00000004"}},
		},
		{
			"a charge deleted", func(k kept) string { return `DELETE FROM charge_row WHERE id = '` + k.whole + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, posted: {"ACCOUNT", "difference 0.00000022"}, trial: {"differ by -0.00000022"}, cites: {"VOID", "not there"}, found: {"STREAM"}},
		},
		{
			"a charge raised", func(k kept) string { return `UPDATE charge_row SET amount = 221 WHERE id = '` + k.whole + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, posted: {"ACCOUNT", "difference -0.000000001"}, priced: {"WHOLE", "books say 0.000000221", "should be 0.00000022", "difference 0.000000001"}, trial: {"differ by 0.000000001"}},
		},
		{
			"a hold raised", func(k kept) string { return `UPDATE hold_row SET amount = 561` },
			map[string][]string{covered: {"ACCOUNT", "books say 0.000001001", "should be 0.000001", "difference 0.000000001"}},
		},
		{
			"an ended call runs again", func(k kept) string { return `UPDATE hold_row SET id = '` + k.stream + `'` },
			map[string][]string{once: {"STREAM", "holds 0.0000005", "charge of 0.00000022"}},
		},
		{
			"tokens changed", func(k kept) string {
				return `UPDATE charge_row SET completion_tokens = 8 WHERE id = '` + k.stream + `'`
			},
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, priced: {"STREAM", "books say 0.00000022", "should be 0.00000024", "difference -0.00000002"}},
		},
		{
			"cached tokens changed", func(k kept) string { return `UPDATE charge_row SET cached_tokens = 3 WHERE id = '` + k.stream + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, priced: {"STREAM", "difference -0.000000005"}},
		},
		{"tokens beyond the range", func(k kept) string {
			return `UPDATE charge_row SET completion_tokens = 9000000000000000000 WHERE id = '` + k.stream + `'`
		}, map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, priced: {"STREAM", "should be 9223372036.85477"}}},
		{
			"a price changed", func(k kept) string { return `UPDATE model_price SET input = 11` },
			map[string][]string{priced: {"req_", "difference -0.000000006"}},
		},
		{
			"a price deleted", func(k kept) string { return `DELETE FROM model_price` },
			map[string][]string{priced: {"req_", "should be 0"}},
		},
		{
			"a voided call charged", func(k kept) string { return `UPDATE charge_row SET written_off = 3 WHERE id = '` + k.void + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, voided: {"VOID", "books say 0.000000003", "should be 0", "difference 0.000000003"}, priced: {"VOID", "difference 0.000000003"}},
		},
		{
			"a charged call voided", func(k kept) string {
				return `UPDATE charge_row SET outcome = (SELECT number FROM outcome WHERE state = 'voided') WHERE id = '` + k.whole + `'`
			},
			map[string][]string{voided: {"WHOLE", "difference 0.00000022"}},
		},
		{
			"the last charge deleted", func(k kept) string { return `DELETE FROM charge_row WHERE id = '` + k.void + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, cites: {"VOID", "not there"}, found: {"WHOLE"}},
		},
		{
			"usage led to an older charge", func(k kept) string { return `UPDATE usage_row SET last = '` + k.whole + `'` },
			map[string][]string{found: {"VOID"}},
		},
		{
			"the chain led to another hour", func(k kept) string {
				return `UPDATE charge_row SET created_at = created_at + 3600000000 WHERE id = '` + k.whole + `'`
			},
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, cites: {"not there"}},
		},
		{
			"an outcome deleted", func(k kept) string { return `DELETE FROM outcome WHERE state = 'voided'` },
			map[string][]string{cites: {"VOID", "not there"}},
		},
		{
			"the terms of a hold changed", func(k kept) string { return `UPDATE hold_row SET terms = 77` },
			map[string][]string{cites: {"RUNNING", "not there"}},
		},
		{
			"the account of a hold changed", func(k kept) string { return `UPDATE hold_row SET account = 77` },
			map[string][]string{cites: {"RUNNING", "not there"}},
		},
		{
			"the terms of a charge changed", func(k kept) string { return `UPDATE charge_row SET terms = 77 WHERE id = '` + k.whole + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, cites: {"WHOLE", "not there"}, priced: {"WHOLE", "should be 0"}},
		},
		{
			"a charge moved", func(k kept) string { return `UPDATE charge_row SET account = 77 WHERE id = '` + k.whole + `'` },
			map[string][]string{hourly: {"in the hour from 2026-03-14T15:00Z"}, cites: {"req_", "not there"}, posted: {"ACCOUNT", "difference 0.00000022"}},
		},
		{
			"a budget's spending lowered", func(kept) string { return `UPDATE budget SET spent = spent - 20` },
			map[string][]string{budgets: {"budget_k in 202611", "books say 0.0000002", "should be 0.00000022", "difference -0.00000002"}},
		},
		{
			"a charge counted for a budget", func(k kept) string {
				return `UPDATE charge_row SET budget = (SELECT number FROM budget) WHERE id = '` + k.whole + `'`
			},
			map[string][]string{budgets: {"budget_k in 202611", "difference -0.00000022"}},
		},
		{
			"a charge no longer counted", func(k kept) string { return `UPDATE charge_row SET budget = NULL WHERE id = '` + k.stream + `'` },
			map[string][]string{budgets: {"should be 0", "difference 0.00000022"}},
		},
		{
			"the budget of a charge changed", func(k kept) string { return `UPDATE charge_row SET budget = 77 WHERE id = '` + k.stream + `'` },
			map[string][]string{budgets: {"should be 0"}, cites: {"STREAM", "not there"}},
		},
		{
			"the budget of a hold changed", func(k kept) string { return `UPDATE hold_row SET budget = 77` },
			map[string][]string{cites: {"RUNNING", "not there"}},
		},
		{
			"an entry without an account", func(k kept) string { return `UPDATE credit_grant SET account_id = 'acct_none' WHERE amount = 77` },
			map[string][]string{granted: {"difference 0.000000077"}},
		},
		{
			"a grant burned beyond the charges", func(k kept) string { return `UPDATE credit_grant SET burned = 900 WHERE amount = 900` },
			map[string][]string{burned: {"ACCOUNT", "books say 0.0000009", "should be 0.00000044"}},
		},
		{
			"a grant expired without an entry", func(k kept) string { return `UPDATE credit_grant SET expired = 7 WHERE amount = 900` },
			map[string][]string{granted: {"ACCOUNT"}, expired: {"grant_", "should be 0, difference 0.000000007"}},
		},
		{
			"an expiry without a grant", func(k kept) string { return `INSERT INTO grant_expiry VALUES ('grant_none', 1, 7, 1)` },
			map[string][]string{expired: {"grant_none"}, trial: {"all accounts"}},
		},
		{
			"usage lowered", func(k kept) string { return `UPDATE usage_row SET calls = calls - 1, amount = amount - 220` },
			map[string][]string{hourly: {"ACCOUNT in the hour from 2026-03-14T15:00Z", "the amount is 0.00000022, it should be 0.00000044"}},
		},
		{
			"usage deleted", func(k kept) string { return `DELETE FROM usage_row` },
			map[string][]string{hourly: {"ACCOUNT", "is 0, it should be 0.00000044"}, found: {"VOID"}},
		},
		{
			"usage of nobody", func(k kept) string {
				return `INSERT INTO usage_row VALUES (77, 1, 1, 1, 0, 0, 0, 5, 0, 0, 0, 0, 5, NULL, 0)`
			},
			map[string][]string{hourly: {"account 77 in the hour from 1970-01-01T01:00Z", "is 0.000000005, it should be 0"}, cites: {"usage of account 77"}},
		},
		{
			"a refund raised", func(k kept) string {
				return `UPDATE credit_grant SET kind = 'refund', request_id = '` + k.whole + `' WHERE amount = 900`
			},
			map[string][]string{back: {"WHOLE", "0.0000009 was given back of 0.00000022"}},
		},
		{
			"a refund moved", func(k kept) string {
				return `UPDATE credit_grant SET kind = 'refund', request_id = '` + k.whole + `' WHERE amount = 77`
			},
			map[string][]string{back: {"WHOLE", "or not to who paid"}},
		},
		{
			"a debit that was never posted", func(k kept) string {
				return `INSERT INTO debit SELECT 'debit_x', id, 7, 'r', 'me', 1 FROM account WHERE name = 'Acme'`
			},
			map[string][]string{posted: {"ACCOUNT", "difference -0.000000007"}, trial: {"all accounts"}},
		},
		{
			"an account deleted", func(k kept) string { return `DELETE FROM account WHERE name = 'Other'` },
			map[string][]string{trial: {"all accounts", "differ by -0.000000077"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := keep(t)
			exec(t, k.DB, `PRAGMA foreign_keys = OFF`)
			exec(t, k.DB, c.tamper(k))
			names := strings.NewReplacer("ACCOUNT", k.account, "STREAM", k.stream, "WHOLE", k.whole, "VOID", k.void, "RUNNING", k.running)
			rep := verify(t, k.DB)
			if rep.OK() {
				t.Error("Verify finds nothing")
			}
			for _, i := range rep.Invariants {
				says, broken := c.want[i.Name]
				if i.OK == broken {
					t.Errorf("%s: OK = %v, want %v (%s)", i.Name, i.OK, !broken, i.Detail)
				}
				for _, s := range says {
					if s = names.Replace(s); !strings.Contains(i.Detail, s) {
						t.Errorf("%s: the detail %q does not say %q", i.Name, i.Detail, s)
					}
				}
			}
		})
	}
}

// Each account is within its bounds and all together are beyond an int64.
func TestVerify_LargeBooks(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	for i := range 3 {
		a := addAccount(t, db, fmt.Sprint("rich ", i))
		for range 9 {
			commit(t, db, grant(a, money.MaxAmount-1, ""))
		}
	}
	clean(t, db)
	exec(t, db, `UPDATE account SET granted = granted - 2 WHERE name = 'rich 1'`)
	for _, i := range verify(t, db).Invariants {
		if broken := i.Name == granted || i.Name == trial; i.OK == broken {
			t.Errorf("%s: OK = %v: %s", i.Name, i.OK, i.Detail)
		} else if broken && !strings.Contains(i.Detail, "-0.000000002") {
			t.Errorf("%s: %q does not say -0.000000002", i.Name, i.Detail)
		}
	}
}

// The proof reads one snapshot: what is being written is in it wholly or not at all.
func TestVerify_WhileCommitting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, money.MaxAmount, ""))
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			var ops []ledger.Op
			for range 20 {
				r := receipt(acct, price, true)
				ops = append(ops, ledger.Op{Open: &r}, ledger.Op{Close: &r}, grant(acct, 3, ident.New("source ")))
			}
			if _, err := db.Commit(ctx, ops); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Commit: %v", err)
				return
			}
		}
	})
	var last int64
	for proofs := 0; proofs < 20 || last < 300; proofs++ {
		rep := verify(t, db)
		if !rep.OK() {
			t.Errorf("proof %d: %+v", proofs, rep.Invariants)
			break
		}
		if rep.Entries < last {
			t.Errorf("proof %d counts %d entries after %d", proofs, rep.Entries, last)
		}
		last = rep.Entries
		if t.Failed() {
			break
		}
	}
	cancel()
	wg.Wait()
	clean(t, db)
}
