package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// A proof beside calls finds what Verify finds, whatever they write meanwhile.
func TestProve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	account, price := addAccount(t, db, "Acme"), savePrice(t, db, model())
	commit(t, db, grant(account, money.IU, ""))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			r := receipt(account, price, false)
			if _, err := db.Commit(context.Background(), []ledger.Op{{Close: &r}}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	rep, err := db.Prove(t.Context())
	close(done)
	wg.Wait()
	whole := prove(t, db)
	if err != nil || !rep.OK() || len(rep.Invariants) != len(whole.Invariants) || rep.Accounts != 1 || rep.Entries < 1 || rep.Took <= 0 {
		t.Errorf("Prove = %+v, %v", rep, err)
	}
	exec(t, db, `UPDATE account SET posted = posted + 1`)
	rep, err = db.Prove(t.Context())
	if again, _ := db.Verify(t.Context()); err != nil || rep.OK() || rep.Broken() != again.Broken() {
		t.Errorf("Prove of broken books = %+v, %v, Verify says %+v", rep, err, again.Broken())
	}
	if err := db.NoteProof(t.Context(), rep); err != nil {
		t.Fatal(err)
	}
	if i, err := store.Inspect(t.Context(), dir); !errors.Is(err, store.ErrUnbalanced) || i.Report.OK() || i.Proof.Law != rep.Broken().Name {
		t.Errorf("Inspect = %+v, %v", i, err)
	}
	exec(t, db, `UPDATE account SET posted = posted - 1`)
	if i, err := store.Inspect(t.Context(), dir); err != nil || i.Proof.Law != rep.Broken().Name || i.Proof.Entries != rep.Entries || i.Proof.At.IsZero() {
		t.Errorf("Inspect = %+v, %v, want what was noted", i, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Prove(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Prove for nobody gives %v", err)
	}
}
