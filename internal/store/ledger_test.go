package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/ledger"
)

func TestReceipts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct, other := addAccount(t, db, "Acme"), addAccount(t, db, "Other")
	commit(t, db, grant(acct, 10_000, ""), grant(other, 10_000, ""))
	var want []ledger.Receipt
	for i := range 5 {
		r := receipt(acct, price, i%2 == 0)
		r.RequestID = fmt.Sprintf("req_%032x", 0x0190_0000+i) // ids sort as the calls began
		want = append(want, r)
		o := receipt(other, price, false)
		commit(t, db, ledger.Op{Close: &r}, ledger.Op{Close: &o})
	}
	slices.Reverse(want) // newest first
	for _, c := range []struct{ limit, want int }{{0, 0}, {1, 1}, {3, 3}, {5, 5}, {100, 5}} {
		got, err := db.Receipts(ctx, acct, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[:c.want], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Receipts of limit %d differ (-want +got):\n%s", c.limit, diff)
		}
	}
	if got, err := db.Receipts(ctx, "acct_none", 10); err != nil || len(got) != 0 {
		t.Errorf("Receipts of nobody = %v, %v, want none", got, err)
	}
}

// Limits are counted again from the receipts of all accounts, in the order of the calls.
func TestReceiptsSince(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	accounts := []string{addAccount(t, db, "Acme"), addAccount(t, db, "Other")}
	commit(t, db, grant(accounts[0], 10_000, ""), grant(accounts[1], 10_000, ""))
	var all []ledger.Receipt
	for i := range 6 {
		r := receipt(accounts[i%2], price, false)
		r.CreatedAt = at.Add(time.Duration(i) * time.Second)
		all = append(all, r)
	}
	for _, i := range []int{3, 0, 5, 1, 4, 2} { // they end in another order than they begin
		commit(t, db, ledger.Op{Close: &all[i]})
	}
	for after, want := range map[time.Duration][]ledger.Receipt{
		-time.Second: all, 0: all, time.Microsecond: all[1:], 3 * time.Second: all[3:], time.Minute: nil,
	} {
		got, err := db.ReceiptsSince(ctx, at.Add(after))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("ReceiptsSince %s later: %v (-want +got):\n%s", after, err, diff)
		}
	}
}

func TestOpenHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, 10_000, ""))
	first, second := receipt(acct, price, true), receipt(acct, price, true)
	second.Budget = ledger.Budget{ID: "budget_x", Period: 202611}
	commit(t, db, ledger.Op{Open: &second}, ledger.Op{Open: &first})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).OpenHolds(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var want []ledger.Receipt
	for _, r := range []ledger.Receipt{first, second} {
		want = append(want, ledger.Receipt{
			RequestID: r.RequestID, CompletionID: r.CompletionID, AccountID: acct, KeyID: "key_x", Model: "m",
			PriceID: price, Price: model().Price, PlanVersion: "plan_x", Stream: true, CreatedAt: at,
			PromptTokens: 10, OutputLimit: 20, Hold: 500, State: ledger.Running, Budget: r.Budget,
		})
	}
	slices.SortFunc(want, func(a, b ledger.Receipt) int { return strings.Compare(a.RequestID, b.RequestID) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("OpenHolds after reopening differ (-want +got):\n%s", diff)
	}
}
