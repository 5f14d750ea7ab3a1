package proof_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// Laws whose breaches are counted by themselves.
const (
	lawDebt = "nobody spent more than was granted"
	lawOnce = "no completion is charged twice"
)

// laws are what must hold in the database at rest, by plain SQL: how often each is broken.
var laws = map[string]string{
	"nothing is held": `SELECT count(*) FROM hold_row`,
	"posted is the sum of the charges": `SELECT count(*) FROM account a
		WHERE a.posted <> (SELECT coalesce(sum(amount), 0) FROM charge_row c WHERE c.account = a.number)`,
	"granted is the sum of the grants": `SELECT count(*) FROM account a
		WHERE a.granted <> (SELECT coalesce(sum(amount - expired), 0) FROM credit_grant g WHERE g.account_id = a.id)`,
	lawDebt: `SELECT count(*) FROM account WHERE posted > granted OR posted < 0`,
	"a charge is its tokens at the price": `SELECT count(*) FROM charge
		WHERE amount <> CASE state WHEN 'voided' THEN 0 ELSE prompt_tokens * 10 + completion_tokens * 20 END`,
	lawOnce: `SELECT count(*) - count(DISTINCT completion_id) FROM charge_row`,
}

// receipt is what the books say of a call.
type receipt struct {
	state           string
	in, out, amount int64
}

// books opens the database in dir as an outsider who can only read.
func books(t testing.TB, dir string) *sql.DB {
	t.Helper()
	return storetest.PlainReader(t, filepath.Join(dir, store.FileName))
}

// check compares the books in dir with what the callers saw. Where the power failed, tokens
// of streams that were cut may be missing: they are counted.
func (f *figures) check(t *testing.T, dir string, ws *witnesses, power bool) {
	t.Helper()
	db := books(t, dir)
	defer db.Close()
	var sound string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&sound); err != nil || sound != "ok" {
		f.found("%s: integrity_check: %s, %v", dir, sound, err)
		return
	}
	f.obey(db)
	charges := receipts(t, db)
	f.ofStarts = 0
	for _, r := range charges {
		if r.state == "recovered" {
			f.ofStarts++
		}
	}
	for _, w := range ws.list {
		r, charged := charges[w.id]
		delete(charges, w.id)
		f.compare(w, r, charged, power)
		w.counted = true
	}
	// Whoever was told no id, because the server died, may be charged all the same.
	f.unheard = len(charges)
	if f.unheard > ws.inFlight*f.rounds {
		f.counted(&f.duplicate, "round %d: %d calls are charged and nobody made them", f.rounds, f.unheard)
	}
}

// obey holds the database to the laws.
func (f *figures) obey(db *sql.DB) {
	for law, query := range laws {
		kind := new(int)
		switch law {
		case lawDebt:
			kind = &f.negative
		case lawOnce:
			kind = &f.duplicate
		}
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil || n != 0 {
			f.counted(kind, "round %d: %s: broken %d times, %v", f.rounds, law, n, err)
		}
	}
}

// compare holds one call against its charge.
func (f *figures) compare(w *witness, r receipt, charged, power bool) {
	pieces := w.pieces.Load()
	switch {
	case w.finished.Load():
		f.finished += once(w)
		if !charged {
			f.counted(&f.lost, "round %d: %s was received whole and has no charge", f.rounds, w.id)
		} else if r.state != "settled" || r.in != int64(w.usage.PromptTokens) || r.out != int64(w.usage.CompletionTokens) {
			f.found("round %d: %s was received whole with %d+%d tokens; the books have %+v", f.rounds, w.id, w.usage.PromptTokens, w.usage.CompletionTokens, r)
		}
	case pieces > 0:
		f.streams += once(w)
		switch missing := pieces - r.out; {
		case !charged:
			f.counted(&f.lost, "round %d: %s had %d pieces and has no charge", f.rounds, w.id, pieces)
		case missing > 0 && !power:
			f.counted(&f.lost, "round %d: %s had %d pieces and was charged for %d (%s)", f.rounds, w.id, pieces, r.out, r.state)
		case missing > 0 && r.state == "settled":
			f.counted(&f.lost, "round %d: %s ended with %d pieces and was charged for %d", f.rounds, w.id, pieces, r.out)
		case missing > 0:
			f.lostTokens += int(missing) * once(w)
		case -missing > 1:
			f.found("round %d: %s had %d pieces and was charged for %d (%s)", f.rounds, w.id, pieces, r.out, r.state)
		default:
			f.ahead = max(f.ahead, int(-missing))
		}
	}
}

// once is 1 the first time that w is compared: later losses compare it again.
func once(w *witness) int {
	if w.counted {
		return 0
	}
	return 1
}

func receipts(t *testing.T, db *sql.DB) map[string]receipt {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `SELECT id, state, prompt_tokens, completion_tokens, amount FROM charge`)
	must(t, err)
	defer rows.Close()
	all := map[string]receipt{}
	for rows.Next() {
		var id string
		var r receipt
		must(t, rows.Scan(&id, &r.state, &r.in, &r.out, &r.amount))
		all[id] = r
	}
	must(t, rows.Err())
	return all
}

// verify is the server's own proof.
func (f *figures) verify(t *testing.T, l *line) {
	t.Helper()
	rep, err := l.db.Verify(t.Context())
	must(t, err)
	for _, i := range rep.Invariants {
		if !i.OK {
			f.found("round %d: ledger verify: %s: %s", f.rounds, i.Name, i.Detail)
		}
	}
}
