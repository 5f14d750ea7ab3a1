package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// wentBack is a database with a payment half of which went back, and could be taken in part.
func wentBack(t *testing.T) *store.DB {
	t.Helper()
	dir := t.TempDir()
	db := open(t, dir)
	who := addAccount(t, db, "Acme")
	commit(t, db, grant(who, 100, "stripe:pi_1"))
	l, _ := openLedger(t, db, dir)
	if err := l.Adjust(t.Context(), who, -80, "spent"); err != nil {
		t.Fatal(err)
	}
	p, err := db.Payment(t.Context(), "stripe:pi_1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Reverse(t.Context(), ledger.Reversal{Payment: p, Source: "stripe:evt_1", Part: "refunds", Due: 50, Action: "payment.refund", Reason: "refund"})
	if want := (ledger.Reversed{Added: true, Taken: 20, WrittenOff: 30}); err != nil || got != want {
		t.Fatalf("Reverse = %+v, %v, want %+v", got, err, want)
	}
	return db
}

// What cannot be compared waits until a correction of the account names it, however often it is told.
func TestInspect_Undecided(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	who, other := addAccount(t, db, "Acme"), addAccount(t, db, "Lab")
	commit(t, db, grant(who, 100, "stripe:pi_1"), grant(other, 100, "stripe:pi_2"))
	l, _ := openLedger(t, db, dir)
	for i, part := range []string{"dp_1", "dp_1", "dp_2"} {
		p, err := db.Payment(t.Context(), "stripe:pi_1")
		if err != nil {
			t.Fatal(err)
		}
		r := ledger.Reversal{Payment: p, Source: fmt.Sprint("stripe:evt_", i), Part: part, ByHand: true, Action: audit.PaymentDispute, Reason: "dispute " + part}
		if got, err := l.Reverse(t.Context(), r); err != nil || got != (ledger.Reversed{Added: true}) {
			t.Fatalf("Reverse = %+v, %v", got, err)
		}
	}
	waits := func() (parts []string) {
		t.Helper()
		i, err := store.Inspect(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range i.Undecided {
			if u.AccountID != who || u.Name != "Acme" || u.Credit != 100 || u.Reason != "dispute "+u.Part || time.Since(u.At) > time.Hour {
				t.Errorf("%+v", u)
			}
			parts = append(parts, u.Part)
		}
		return parts
	}
	if got := waits(); !slices.Equal(got, []string{"dp_1", "dp_2"}) {
		t.Errorf("%v wait", got)
	}
	for _, c := range []struct {
		who    string
		amount money.Amount
		reason string
		want   []string
	}{
		{other, -10, "dispute dp_1", []string{"dp_1", "dp_2"}}, // another's
		{who, -10, "something else", []string{"dp_1", "dp_2"}},
		{who, -10, "dispute dp_2: 10 of 100", []string{"dp_1"}},
		{who, 1, "dispute dp_1: nothing of it", nil},
	} {
		if err := l.Adjust(t.Context(), c.who, c.amount, c.reason); err != nil {
			t.Fatal(err)
		}
		if got := waits(); !slices.Equal(got, c.want) {
			t.Errorf("after %q %v wait, want %v", c.reason, got, c.want)
		}
	}
	prove(t, db)
}

// The law of payments that went back finds what contradicts it.
func TestVerify_PaymentsBroken(t *testing.T) {
	t.Parallel()
	const law = "no payment was taken back more than once"
	prove(t, wentBack(t))
	for name, tamper := range map[string]string{
		"taken twice":           `INSERT INTO payment_event SELECT source || 'x', account_id, payment, part, reason, 0, 51, NULL, created_at, by_hand FROM payment_event`,
		"of no payment":         `UPDATE payment_event SET payment = 'stripe:pi_2'`,
		"of another's":          `UPDATE payment_event SET account_id = 'acct_none'`,
		"more than the debit":   `UPDATE payment_event SET taken = 21`,
		"without its debit":     `UPDATE payment_event SET debit_id = NULL`,
		"from another account":  `UPDATE debit SET account_id = 'acct_none' WHERE id = (SELECT debit_id FROM payment_event)`,
		"of a payment that was": `UPDATE credit_grant SET amount = 49`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := wentBack(t)
			exec(t, db, `PRAGMA foreign_keys = OFF`)
			exec(t, db, `PRAGMA ignore_check_constraints = ON`)
			exec(t, db, tamper)
			for _, i := range verify(t, db).Invariants {
				if i.Name == law && i.OK {
					t.Errorf("nothing says that %s is broken", law)
				}
			}
		})
	}
}
