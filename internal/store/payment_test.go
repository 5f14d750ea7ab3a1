package store_test

import (
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
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

// The law of payments that went back finds what contradicts it.
func TestVerify_PaymentsBroken(t *testing.T) {
	t.Parallel()
	const law = "no payment was taken back more than once"
	prove(t, wentBack(t))
	for name, tamper := range map[string]string{
		"taken twice":           `INSERT INTO payment_event SELECT source || 'x', account_id, payment, part, reason, 0, 51, NULL, created_at FROM payment_event`,
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
