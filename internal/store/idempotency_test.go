package store_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// What a killed process left of a call with a key: charged, the key stands for it;
// voided, the key is free.
func TestIdempotency_Recovery(t *testing.T) {
	t.Parallel()
	for _, delivered := range []int{0, 3} {
		dir := t.TempDir()
		db := open(t, dir)
		account, price := addAccount(t, db, "Acme"), savePrice(t, db, model())
		r := receipt(account, price, true)
		r.State, r.Idempotency = ledger.Running, &ledger.Idempotency{Key: [32]byte{1}, Body: [32]byte{2}}
		commit(t, db, grant(account, money.IU, ""), ledger.Op{Open: &r})
		progress, err := store.OpenProgress(dir)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := progress.Claim(r.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		slot.Set(delivered)
		if rec, found, err := db.FindIdempotent(context.Background(), account, [32]byte{1}); err != nil || !found || !rec.Running {
			t.Fatalf("while it runs: %+v, %v, %v", rec, found, err)
		}
		// A running call is never forgotten, however old.
		if n, _, err := db.ForgetIdempotent(context.Background(), time.Now(), 10); n != 0 || err != nil {
			t.Errorf("%d forgotten, %v, want none", n, err)
		}
		openLedger(t, db, dir)
		rec, found, err := db.FindIdempotent(context.Background(), account, [32]byte{1})
		if err != nil || found != (delivered > 0) {
			t.Fatalf("%d delivered: found %v, %v", delivered, found, err)
		}
		if found && (rec.Running || rec.Body != [32]byte{2} || rec.CompletionID != r.CompletionID || rec.Answer != nil) {
			t.Errorf("recovered: %+v", rec)
		}
		prove(t, db)
	}
}

// A charge under a key that stands for another call is a fault: all of it is refused.
func TestIdempotency_OneChargeForAKey(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	account, price := addAccount(t, db, "Acme"), savePrice(t, db, model())
	other := addAccount(t, db, "Other")
	commit(t, db, grant(account, money.IU, ""), grant(other, money.IU, ""))
	call := func(account string, at time.Time) ledger.Op {
		r := receipt(account, price, false)
		r.RequestID, r.CreatedAt = ident.RequestID(), at
		r.Idempotency = &ledger.Idempotency{Key: [32]byte{1}, Answer: []byte("sealed"), FreeBefore: at.Add(-time.Hour)}
		return ledger.Op{Close: &r}
	}
	commit(t, db, call(account, at), call(other, at))
	if _, err := db.Commit(context.Background(), []ledger.Op{call(account, at.Add(time.Hour-time.Microsecond))}); err == nil {
		t.Error("a second charge under the key is accepted")
	}
	if n := query[int](t, db, `SELECT count(*) FROM charge`); n != 2 {
		t.Errorf("%d charges, want 2", n)
	}
	commit(t, db, call(account, at.Add(time.Hour))) // the first use has expired
	rec, found, err := db.FindIdempotent(context.Background(), account, [32]byte{1})
	if err != nil || !found || !bytes.Equal(rec.Answer, []byte("sealed")) || !rec.CreatedAt.Equal(at.Add(time.Hour)) {
		t.Errorf("FindIdempotent = %+v, %v, %v", rec, found, err)
	}
	prove(t, db)

	kept, err := db.KeptAnswers(context.Background())
	if err != nil || kept[account] != 6 || kept[other] != 6 {
		t.Errorf("KeptAnswers = %v, %v, want 6 bytes each", kept, err)
	}
	n, freed, err := db.ForgetIdempotent(context.Background(), at.Add(time.Minute), 10)
	if err != nil || n != 1 || freed[other] != 6 || len(freed) != 1 {
		t.Errorf("ForgetIdempotent = %d, %v, %v, want that of the other account", n, freed, err)
	}
}
