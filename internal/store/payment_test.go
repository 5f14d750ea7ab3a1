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

// wentBack is a database with a payment half of which went back, and could be taken in part, and
// with one that was refunded, which failed.
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
	got, err := l.Reverse(t.Context(), ledger.Reversal{Payment: p, Source: "stripe:evt_1", Claim: ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: 1, Of: 2}, Action: "payment.refund", Reason: "refund"})
	if want := (ledger.Reversed{Added: true, Taken: 20, WrittenOff: 30}); err != nil || got != want {
		t.Fatalf("Reverse = %+v, %v, want %+v", got, err, want)
	}
	if _, err := l.Grant(t.Context(), *grant(who, 40, "stripe:pi_3").Grant); err != nil {
		t.Fatal(err)
	}
	p, err = db.Payment(t.Context(), "stripe:pi_3")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []ledger.Reversed{{Added: true, Taken: 40}, {Added: true, Returned: 40}} {
		r := ledger.Reversal{
			Payment: p, Source: fmt.Sprint("stripe:evt_3", i), Action: "payment.refund", Reason: "refund",
			Claim: ledger.Claim{Part: "re_1", Kind: ledger.OneBack, Back: 1, Of: 1, Failed: i == 1},
		}
		r.Payment.Paid = 1
		if got, err := l.Reverse(t.Context(), r); err != nil || got != want {
			t.Fatalf("Reverse = %+v, %v, want %+v", got, err, want)
		}
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
		r := ledger.Reversal{Payment: p, Source: fmt.Sprint("stripe:evt_", i), Claim: ledger.Claim{Part: part}, ByHand: true, Action: audit.PaymentDispute, Reason: "dispute " + part}
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

// What went back before its parts were known one by one stays taken, and counts for its part.
func TestMigrate_ClaimsOfPayments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := store.Migrate(t.Context(), dir, steps(t, "0019", nil)); err != nil {
		t.Fatal(err)
	}
	plainSQL(t, dir,
		`INSERT INTO account (number, id, name, plan, status, granted, posted, created_at) VALUES (1, 'acct_1', 'Acme', 'pro', 'active', 100, 60, 1)`,
		`INSERT INTO credit_grant (id, account_id, amount, note, source, created_at, paid, currency) VALUES ('grant_1', 'acct_1', 100, 'x', 'stripe:pi_1', 1, 1000, '')`,
		`INSERT INTO debit VALUES ('debit_1', 'acct_1', 40, 'dispute', 'stripe', 1), ('debit_2', 'acct_1', 20, 'refund', 'stripe', 1)`,
		`INSERT INTO payment_event (source, account_id, payment, part, reason, taken, written_off, debit_id, created_at) VALUES
			('stripe:evt_1', 'acct_1', 'stripe:pi_1', 'dp_1', 'dispute', 40, 0, 'debit_1', 1),
			('stripe:evt_2', 'acct_1', 'stripe:pi_1', 'refunds', 'refund', 20, 5, 'debit_2', 1),
			('stripe:evt_3', 'acct_1', 'stripe:pi_1', 'refunds', 'refund', 0, 0, NULL, 1)`,
	)
	db := open(t, dir)
	l, _ := openLedger(t, db, dir)
	p, err := db.Payment(t.Context(), "stripe:pi_1")
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		claim ledger.Claim
		taken money.Amount
	}{
		{ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: 250, Of: 1000}, 0},
		{ledger.Claim{Part: "dp_1", Kind: ledger.Dispute, Back: 400, Of: 1000}, 0},
		{ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: 350, Of: 1000}, 10},
		{ledger.Claim{Part: "dp_2", Kind: ledger.Dispute, Back: 1000, Of: 1000}, 25},
	} {
		got, err := l.Reverse(t.Context(), ledger.Reversal{Payment: p, Source: fmt.Sprint("stripe:evt_1", i), Claim: tt.claim, Action: audit.PaymentRefund, Reason: "x"})
		if want := (ledger.Reversed{Added: true, Taken: tt.taken}); err != nil || got != want {
			t.Errorf("%+v: %+v, %v, want %+v", tt.claim, got, err, want)
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
		"taken twice":           `INSERT INTO payment_event SELECT source || 'x', account_id, payment, part, reason, 0, 51, NULL, created_at, by_hand, 0, 0, NULL FROM payment_event WHERE source = 'stripe:evt_1'`,
		"of no payment":         `UPDATE payment_event SET payment = 'stripe:pi_2' WHERE source = 'stripe:evt_1'`,
		"of another's":          `UPDATE payment_event SET account_id = 'acct_none'`,
		"more than the debit":   `UPDATE payment_event SET taken = 21 WHERE taken = 20`,
		"without its debit":     `UPDATE payment_event SET debit_id = NULL`,
		"from another account":  `UPDATE debit SET account_id = 'acct_none' WHERE id = (SELECT debit_id FROM payment_event WHERE taken = 20)`,
		"of a payment that was": `UPDATE credit_grant SET amount = 49 WHERE source = 'stripe:pi_1'`,
		"returned twice":        `UPDATE payment_event SET returned = 80 WHERE returned = 40`,
		"more than the grant":   `UPDATE payment_event SET returned = 39 WHERE returned = 40`,
		"without its grant":     `UPDATE payment_event SET grant_id = NULL`,
		"to another account":    `UPDATE credit_grant SET account_id = 'acct_none' WHERE id = (SELECT grant_id FROM payment_event WHERE returned > 0)`,
		"returned, never taken": `UPDATE payment_event SET taken = 0, written_off = 40, debit_id = NULL WHERE source = 'stripe:evt_30'`,
		"written back only":     `UPDATE payment_event SET written_back = 31 WHERE source = 'stripe:evt_1'`,
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
