package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
)

// books are a database with an account.
func books(t *testing.T) (db *store.DB, accountID, priceID string) {
	t.Helper()
	db, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	a := account.Account{ID: ident.New(ident.Account), Name: "a", Plan: "pro", Status: account.Active, CreatedAt: time.Now()}
	models := []catalog.Model{{ID: "m", Plans: []string{"pro"}}}
	if err := errors.Join(db.CreateAccount(t.Context(), a), db.SaveCatalog(t.Context(), models, nil)); err != nil {
		t.Fatal(err)
	}
	return db, a.ID, models[0].PriceID
}

// Of one account 32 MiB of answers are kept; room that is given back is used again,
// also after a restart.
func TestRoom_Bound(t *testing.T) {
	t.Parallel()
	db, who, price := books(t)
	room, err := idempotency.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	answer := make([]byte, 9<<20)
	keep := func(key string, charge bool) bool {
		t.Helper()
		ticket, err := room.Begin(t.Context(), who, key, []byte("body"), now)
		if err != nil {
			t.Fatal(err)
		}
		r := ledger.Receipt{
			RequestID: ident.RequestID(), AccountID: who, PriceID: price, CreatedAt: now,
			State: ledger.Settled, Idempotency: ticket.Record(),
		}
		sealed, err := ticket.Seal(r.RequestID, answer)
		if err != nil {
			t.Fatal(err)
		}
		if charge {
			r.Idempotency.Answer = sealed
			if _, err := db.Commit(context.Background(), []ledger.Op{{Close: &r}}); err != nil {
				t.Fatal(err)
			}
		}
		ticket.End(charge)
		return sealed != nil
	}
	if got := []bool{keep("a", true), keep("b", true), keep("c", false), keep("d", true), keep("e", true)}; !got[0] || !got[1] || !got[2] || !got[3] || got[4] {
		t.Errorf("kept %v, want all but the last: what was not charged gives its room back", got)
	}
	if room, err = idempotency.Open(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if keep("f", true) {
		t.Error("after a restart there is room again")
	}
	var done *idempotency.CompletedError
	if _, err := room.Begin(t.Context(), who, "a", []byte("body"), now); !errors.As(err, &done) || !bytes.Equal(done.Answer, answer) {
		t.Errorf("the kept answer: %v", err)
	}
	if _, err := room.Begin(t.Context(), who, "f", []byte("body"), now); !errors.As(err, &done) || done.Answer != nil {
		t.Errorf("an answer that was not kept: %v, want it to be done without", err)
	}
	now = now.Add(idempotency.Lifetime)
	if got := []bool{keep("a", true), keep("b", true), keep("h", true)}; !got[0] || !got[1] || got[2] {
		t.Errorf("kept %v of keys that come again a day later, and of another, want theirs: they take the room they had", got)
	}
	now = now.Add(idempotency.Lifetime)
	if err := room.Sweep(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if !keep("g", true) {
		t.Error("after the sweep there is no room")
	}
}
