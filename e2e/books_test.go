package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver of the checker, which reads the file beside the server
)

// entry is what a client wrote down about one call.
type entry struct {
	requestID, completionID string
	// complete is a whole answer that parsed, or a stream that reached [DONE].
	complete bool
	// pieces counts the parts of text received: at least so many tokens were delivered.
	pieces int64
	// usage is what the answer said, nil when it did not come so far.
	usage *usage
}

// charged is a row of the table charge.
type charged struct {
	id, completionID, model, state string
	in, out, held, amount, off     int64
	priceIn, priceOut              int64
}

// openBooks opens the database as an outsider who can only read.
func openBooks(t *testing.T, data string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "parley.db")+"?mode=ro&_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func count(db *sql.DB, query string, args ...any) (int64, error) {
	var n sql.NullInt64
	err := db.QueryRowContext(context.Background(), query, args...).Scan(&n)
	return n.Int64, err
}

func readCharges(t *testing.T, db *sql.DB) []charged {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT c.id, c.completion_id, c.model, c.state, c.prompt_tokens,
		c.completion_tokens, c.held, c.amount, c.written_off, p.input, p.output
		FROM charge c JOIN model_price p ON p.id = c.price_id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []charged
	for rows.Next() {
		var c charged
		err := rows.Scan(&c.id, &c.completionID, &c.model, &c.state, &c.in, &c.out, &c.held, &c.amount, &c.off, &c.priceIn, &c.priceOut)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// checkBooks proves with plain SQL that the books and what the clients saw agree.
func checkBooks(t *testing.T, data string, log []entry) {
	t.Helper()
	db := openBooks(t, data)
	list := readCharges(t, db)
	byCompletion := map[string][]charged{}
	for _, c := range list {
		byCompletion[c.completionID] = append(byCompletion[c.completionID], c)
		p := prices[c.model]
		if c.priceIn != p.in || c.priceOut != p.out {
			t.Errorf("%s: priced at %d and %d, the configuration says %d and %d", c.id, c.priceIn, c.priceOut, p.in, p.out)
		}
		want := price(c.model, c.in, c.out)
		switch c.state {
		case "voided":
			want = 0
		case "settled", "recovered":
		default:
			t.Errorf("%s: state %q", c.id, c.state)
		}
		if c.amount != want || c.off != 0 {
			t.Errorf("%s (%s): charged %d and wrote off %d for %d and %d tokens, want %d", c.id, c.state, c.amount, c.off, c.in, c.out, want)
		}
		if c.amount > c.held {
			t.Errorf("%s: charged %d above its hold of %d", c.id, c.amount, c.held)
		}
	}
	for _, e := range log {
		if err := checkEntry(e, byCompletion[e.completionID]); err != nil {
			t.Errorf("%s (%s): %v", e.requestID, e.completionID, err)
		}
	}
	checkTotals(t, db)
}

// checkEntry compares one call as its client saw it with what was charged for it.
func checkEntry(e entry, charges []charged) error {
	if !e.complete && e.pieces == 0 {
		// Nothing billable arrived: at most one charge, for what was on its way.
		if len(charges) > 1 {
			return fmt.Errorf("charged %d times", len(charges))
		}
		return nil
	}
	if len(charges) != 1 {
		return fmt.Errorf("delivered (complete %v, %d pieces) and charged %d times", e.complete, e.pieces, len(charges))
	}
	c := charges[0]
	if c.state == "voided" || c.out < e.pieces {
		return fmt.Errorf("%s: %d tokens charged, %d pieces delivered", c.state, c.out, e.pieces)
	}
	if e.requestID != "" && !strings.HasSuffix(c.id, strings.TrimPrefix(e.requestID, "req_")) {
		return fmt.Errorf("the charge has id %s", c.id)
	}
	if e.usage != nil && (c.in != e.usage.Prompt || c.out != e.usage.Completion) {
		return fmt.Errorf("charged %d and %d tokens, the answer said %d and %d", c.in, c.out, e.usage.Prompt, e.usage.Completion)
	}
	return nil
}

// checkTotals proves the sums of the books.
func checkTotals(t *testing.T, db *sql.DB) {
	t.Helper()
	for law, query := range map[string]string{
		"posted is the sum of the charges": `SELECT count(*) FROM account a
			WHERE a.posted <> coalesce((SELECT sum(amount) FROM charge c WHERE c.account_id = a.id), 0)`,
		"granted is the sum of the grants": `SELECT count(*) FROM account a
			WHERE a.granted <> coalesce((SELECT sum(amount) FROM credit_grant g WHERE g.account_id = a.id), 0)`,
		"no account is below zero":       `SELECT count(*) FROM account WHERE posted > granted`,
		"no completion is charged twice": `SELECT count(*) - count(DISTINCT completion_id) FROM charge`,
		"no call is held and charged":    `SELECT count(*) FROM hold h JOIN charge c ON c.id = h.id`,
	} {
		n, err := count(db, query)
		if err != nil || n != 0 {
			t.Errorf("%s: broken %d times, %v", law, n, err)
		}
	}
	var sound string
	if err := db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&sound); err != nil || sound != "ok" {
		t.Errorf("integrity_check: %s, %v", sound, err)
	}
}
