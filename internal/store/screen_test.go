package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
)

// busy is a database with calls of several hours, of every ending, some of them at once.
func busy(t *testing.T) *store.DB {
	t.Helper()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	accounts := []string{addAccount(t, db, "Acme"), addAccount(t, db, "Other")}
	running := receipt(accounts[0], price, true)
	running.Budget = ledger.Budget{ID: "budget_k", Period: 202611}
	commit(t, db, grant(accounts[0], 100_000, ""), grant(accounts[1], 100_000, ""), ledger.Op{Open: &running})
	var calls []ledger.Op
	for i := range 24 {
		r := receipt(accounts[i%2], price, false)
		r.CreatedAt = at.Add(time.Duration(i) * 20 * time.Minute)
		r.RequestID = fmt.Sprintf("%s7000%016x", ident.RequestIDsSince(r.CreatedAt), i)
		r.CompletionID = ident.CompletionOf(r.RequestID)
		switch i % 6 {
		case 0:
			r.Budget = ledger.Budget{ID: "budget_k", Period: 202611}
		case 1:
			r.State, r.Ending, r.Status = ledger.Voided, ledger.EndUpstreamError, 502
			r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.Charge = 0, 0, 0, 0
		case 2:
			r.Ending = ledger.EndClientGone
		}
		calls = append(calls, ledger.Op{Close: &r})
	}
	commit(t, db, calls...)
	return db
}

// TestScreen_Clean: of books that are in order the screen leaves nothing to the queries that
// read every charge.
func TestScreen_Clean(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]*store.DB{"empty": open(t, t.TempDir()), "kept": keep(t).DB, "busy": busy(t)} {
		clean(t, db)
		if asked, err := db.Asked(t.Context()); err != nil || len(asked) > 0 {
			t.Errorf("%s: the screen does not prove %q, %v", name, asked, err)
		}
	}
}

// TestScreen_SameVerdict changes values by hand, one at a time: with the screen the proof finds
// broken what the laws' queries alone do, and nothing else, in the same words.
func TestScreen_SameVerdict(t *testing.T) {
	t.Parallel()
	db := busy(t)
	exec(t, db, `PRAGMA foreign_keys = OFF`)
	rng := rand.New(rand.NewPCG(7, 7))
	columns := map[string][]string{
		"charge_row": {"id", "account", "terms", "outcome", "previous", "created_at", "prompt_tokens", "cached_tokens", "completion_tokens", "amount", "written_off", "plan_tokens", "budget"},
		"usage_row":  {"account", "hour", "terms", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "plan_tokens", "failed", "refused", "gone", "amount", "written_off", "most", "last"},
		"hold_row":   {"id", "account", "terms", "budget", "amount"}, "account": {"number", "posted", "granted", "tokens_posted"}, "budget": {"number", "spent"},
		"terms": {"number", "price_id"}, "outcome": {"number", "state", "ending", "status"}, "model_price": {"input", "cached", "output"}, "credit_grant": {"amount"},
	}
	tables := []string{"charge_row", "usage_row", "hold_row", "account", "budget", "terms", "outcome", "model_price", "credit_grant"}
	tried, broken := 0, map[string]bool{}
	for range 8 {
		for _, table := range tables {
			for _, column := range columns[table] {
				undo, ok := tamper(t, db, rng, table, column)
				if !ok {
					continue
				}
				tried++
				want, errWant := db.Unscreened(t.Context())
				got, errGot := db.Verify(t.Context())
				if diff := cmp.Diff(want, got.Invariants); (errWant == nil) != (errGot == nil) || errWant == nil && diff != "" {
					t.Fatalf("%s of %s: %v and %v (-queries +screen):\n%s", column, table, errWant, errGot, diff)
				}
				for _, i := range want {
					broken[i.Name] = broken[i.Name] || !i.OK
				}
				undo()
			}
		}
	}
	clean(t, db)
	// Were a law never broken here, the comparison would say nothing of it.
	for _, law := range []string{budgets, posted, hourly, priced, cites, found, voided, trial} {
		if !broken[law] {
			t.Errorf("%d changes have not broken: %s", tried, law)
		}
	}
}

// tamper gives a column of some row another value. It reports false where the database
// refuses it.
func tamper(t *testing.T, db *store.DB, rng *rand.Rand, table, column string) (undo func(), ok bool) {
	t.Helper()
	ctx := context.Background()
	keys := map[string]string{"charge_row": "id", "usage_row": "account || '.' || hour || '.' || terms", "hold_row": "id", "credit_grant": "id", "model_price": "id"}
	key, named := keys[table]
	if !named {
		key = "rowid"
	}
	// What is kept is a copy of the row: its key may be what is changed.
	if _, err := db.Writer().ExecContext(ctx, `CREATE TEMP TABLE kept AS SELECT * FROM main.`+table); err != nil {
		t.Fatal(err)
	}
	values := []string{
		column + ` + 1`, column + ` - 1`, `-` + column, `0`, `77`, column + ` + 3600000000`, `9000000000000000000`, `NULL`, `'x'`, column + ` || 'x'`,
		`(SELECT ` + column + ` FROM main.` + table + ` ORDER BY random() LIMIT 1)`,
	}
	value := values[rng.IntN(len(values))]
	_, err := db.Writer().ExecContext(ctx, `UPDATE `+table+` SET `+column+` = `+value+` WHERE `+key+` = (SELECT `+key+` FROM `+table+` ORDER BY `+key+` LIMIT 1 OFFSET $1)`,
		rng.IntN(query[int](t, db, `SELECT count(*) FROM `+table)))
	drop := func() { exec(t, db, `DROP TABLE kept`) }
	if err != nil {
		drop()
		return nil, false
	}
	return func() {
		names := query[string](t, db, `SELECT group_concat(name, ', ') FROM pragma_table_info('`+table+`')`) // but those that are computed
		exec(t, db, `DELETE FROM `+table)
		exec(t, db, `INSERT INTO `+table+` (`+names+`) SELECT `+names+` FROM kept`)
		drop()
	}, true
}
