package store_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ledger"
)

// Receipts are found by a chain through the charges of the account, within a batch and
// across; a charge that was there before is in it once.
func TestReceipts_Chain(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	a, b := addAccount(t, db, "Acme"), addAccount(t, db, "Other")
	commit(t, db, grant(a, 1_000_000, ""), grant(b, 1_000_000, ""))
	want := map[string][]string{}
	for size := range 6 {
		var ops []ledger.Op
		for i := range size {
			for _, acct := range []string{a, b}[:1+i%2] {
				r := receipt(acct, price, false)
				ops = append(ops, ledger.Op{Close: &r}, ledger.Op{Close: &r})
				want[acct] = append(want[acct], r.RequestID)
			}
		}
		commit(t, db, append(ops, ops...)...)
		commit(t, db, ops...)
	}
	for acct, ids := range want {
		slices.Reverse(ids)
		rs, err := db.Receipts(context.Background(), acct, 1000)
		var got []string
		for _, r := range rs {
			got = append(got, r.RequestID)
		}
		if diff := cmp.Diff(ids, got); err != nil || diff != "" {
			t.Errorf("Receipts: %v (-want +got):\n%s", err, diff)
		}
	}
	clean(t, db)
}

// database/sql may give up the writing connection, and what is prepared on it.
func TestCommit_OnANewConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	for range 3 {
		r := receipt(acct, price, true)
		commit(t, db, grant(acct, 1000, ""), ledger.Op{Open: &r}, ledger.Op{Close: &r})
		conn, err := db.Writer().Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
			t.Fatal(err)
		}
	}
	clean(t, db)
}

// What a batch that failed has written is in no chain, even if it was written before the op
// that failed.
func TestReceipts_ChainAfterAFailure(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, 1_000_000, ""))
	first, lost, second, none := receipt(acct, price, false), receipt(acct, price, false), receipt(acct, price, false), receipt(acct, price, true)
	commit(t, db, ledger.Op{Close: &first})
	// A grant writes what was used so far.
	ops := []ledger.Op{{Close: &lost}, grant(acct, 1, ""), {Extend: &none}}
	if _, err := db.Commit(context.Background(), ops); err == nil {
		t.Fatal("a hold that is not there was extended")
	}
	commit(t, db, ledger.Op{Close: &second})
	rs, err := db.Receipts(context.Background(), acct, 1000)
	var got []string
	for _, r := range rs {
		got = append(got, r.RequestID)
	}
	if diff := cmp.Diff([]string{second.RequestID, first.RequestID}, got); err != nil || diff != "" {
		t.Errorf("Receipts: %v (-want +got):\n%s", err, diff)
	}
	clean(t, db)
}
