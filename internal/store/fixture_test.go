package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// at is a time that the database can hold exactly.
var at = time.Date(2026, 3, 14, 15, 9, 26, 535_897_000, time.UTC)

// open opens the database of dir until the test ends.
func open(t testing.TB, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(context.Background(), dir)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() }) // a test that cares has closed it already
	return db
}

// exec runs plain SQL behind the back of the store.
func exec(t testing.TB, db *store.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Writer().ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// query is one value that plain SQL finds.
func query[T any](t testing.TB, db *store.DB, q string, args ...any) T {
	t.Helper()
	var v T
	if err := db.Writer().QueryRowContext(context.Background(), q, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return v
}

// addAccount adds an account of that name and returns its id.
func addAccount(t testing.TB, db *store.DB, name string) string {
	t.Helper()
	a := account.Account{ID: ident.New(ident.Account), Name: name, Plan: "pro", Status: account.Active, CreatedAt: at}
	if err := db.CreateAccount(context.Background(), a); err != nil {
		t.Fatalf("CreateAccount: %v", err)
	}
	return a.ID
}

// key is a key of the account as Create makes them, with a hash of its own.
func key(accountID string) apikey.Key {
	k := apikey.Key{ID: ident.New(ident.Key), AccountID: accountID, Name: "laptop", Prefix: "sk-parley-abcd", Last4: "wxyz", Scopes: account.DefaultScopes, CreatedAt: at}
	copy(k.Hash[:], ident.RequestID())
	return k
}

// model costs 10 for a token of prompt, 5 for a cached one and 20 for one of answer.
func model() catalog.Model {
	return catalog.Model{ID: "m", Price: money.Price{Input: 10, CachedInput: 5, Output: 20}, Plans: []string{"pro"}}
}

// savePrice saves the price of the model and returns its row's id.
func savePrice(t testing.TB, db *store.DB, m catalog.Model) string {
	t.Helper()
	models := []catalog.Model{m}
	if err := db.SaveCatalog(context.Background(), models, nil); err != nil {
		t.Fatalf("SaveCatalog: %v", err)
	}
	return models[0].PriceID
}

// commit applies ops that must not fail.
func commit(t testing.TB, db *store.DB, ops ...ledger.Op) []ledger.Result {
	t.Helper()
	results, err := db.Commit(context.Background(), ops)
	if err != nil {
		t.Fatalf("Commit of %d ops: %v", len(ops), err)
	}
	return results
}

func grant(accountID string, amount money.Amount, source string) ledger.Op {
	return ledger.Op{Grant: &ledger.Grant{ID: ident.New(ident.Grant), AccountID: accountID, Kind: ledger.Prepaid, Priority: 50, Amount: amount, Note: "test", Source: source, CreatedAt: at}}
}

// receipt is a settled call of 10 tokens of prompt, 4 of them cached, and 7 of answer:
// 220 nano-IU of a hold of 500.
func receipt(accountID, priceID string, stream bool) ledger.Receipt {
	return ledger.Receipt{
		RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: accountID, KeyID: "key_x",
		Model: "m", PriceID: priceID, PlanVersion: "plan_x", Stream: stream, CreatedAt: at,
		PromptTokens: 10, CachedTokens: 4, CompletionTokens: 7, OutputLimit: 20, Hold: 500, Charge: 220,
		Status: 200, State: ledger.Settled, Ending: ledger.EndStop, UsageSource: ledger.UsageCounted,
		Target: "local/m", Attempts: 1, FirstToken: 1500 * time.Microsecond, Total: 9 * time.Millisecond,
	}
}

// plainSQL runs statements on the database of dir, which nobody has open.
func plainSQL(t testing.TB, dir string, statements ...string) {
	t.Helper()
	db := storetest.Plain(t, filepath.Join(dir, store.FileName))
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
