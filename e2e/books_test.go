package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver of the checker, which reads the file beside the server

	"github.com/parley-ai/parley/internal/store/storetest"
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
	// account called, target answered.
	account, target string
	streamed        bool
	begun, ended    time.Time
}

// What is wrong with the charge of a call; anything else is a wrong amount.
var (
	errLost   = errors.New("delivered and not charged")
	errDouble = errors.New("charged more than once")
)

// charged is a row of the view charge.
type charged struct {
	id, completionID, model, state string
	in, out, held, amount, off     int64
	plan                           int64 // tokens that the plan included
	priceIn, priceOut              int64
}

// unbalanced counts the accounts that are not the sum of their charges.
const unbalanced = `SELECT count(*) FROM account a
	LEFT JOIN (SELECT account_id, sum(amount) AS total FROM charge GROUP BY account_id) c ON c.account_id = a.id
	WHERE a.posted <> coalesce(c.total, 0)`

// openBooks opens the database as an outsider who can only read.
func openBooks(t *testing.T, data string) *sql.DB {
	t.Helper()
	return storetest.PlainReader(t, filepath.Join(data, "parley.db"))
}

func count(db *sql.DB, query string, args ...any) (int64, error) {
	var n sql.NullInt64
	err := db.QueryRowContext(context.Background(), query, args...).Scan(&n)
	return n.Int64, err
}

// readCharges reads the charges that a condition leaves.
func readCharges(ctx context.Context, db *sql.DB, where string, args ...any) ([]charged, error) {
	rows, err := db.QueryContext(ctx, `SELECT c.id, c.completion_id, c.model, c.state, c.prompt_tokens,
		c.completion_tokens, c.held, c.amount, c.written_off, c.plan_tokens, p.input, p.output
		FROM charge c JOIN model_price p ON p.id = c.price_id `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []charged
	for rows.Next() {
		var c charged
		err := rows.Scan(&c.id, &c.completionID, &c.model, &c.state, &c.in, &c.out, &c.held, &c.amount, &c.off, &c.plan, &c.priceIn, &c.priceOut)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

// checkBooks fails the test for everything that audit finds.
func checkBooks(t *testing.T, data string, log []entry) {
	t.Helper()
	problems, err := audit(t.Context(), openBooks(t, data), log)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// audit compares with plain SQL what the books say and what the clients saw, and returns every
// contradiction.
func audit(ctx context.Context, db *sql.DB, log []entry) ([]string, error) {
	list, err := readCharges(ctx, db, "")
	if err != nil {
		return nil, err
	}
	var problems []string
	found := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	byCompletion := map[string][]charged{}
	for _, c := range list {
		byCompletion[c.completionID] = append(byCompletion[c.completionID], c)
		p := prices[c.model]
		if c.priceIn != p.in || c.priceOut != p.out {
			found("%s: priced at %d and %d, the configuration says %d and %d", c.id, c.priceIn, c.priceOut, p.in, p.out)
		}
		if c.plan < 0 || c.plan > c.in+c.out || c.state == "voided" && c.plan != 0 {
			found("%s (%s): the plan paid for %d of %d and %d tokens", c.id, c.state, c.plan, c.in, c.out)
		}
		// Included tokens pay for the prompt first.
		want := price(c.model, c.in-min(c.plan, c.in), c.out-max(c.plan-c.in, 0))
		if c.state == "voided" {
			want = 0
		}
		if c.amount != want || c.off != 0 {
			found("%s (%s): charged %d and wrote off %d for %d and %d tokens, want %d", c.id, c.state, c.amount, c.off, c.in, c.out, want)
		}
		if c.amount > c.held {
			found("%s: charged %d above its hold of %d", c.id, c.amount, c.held)
		}
	}
	for _, e := range log {
		if err := checkEntry(e, byCompletion[e.completionID]); err != nil {
			found("%s (%s): %v", e.requestID, e.completionID, err)
		}
	}
	for law, query := range map[string]string{
		"posted is the sum of the charges": unbalanced,
		"granted is the sum of the grants": `SELECT count(*) FROM account a
			WHERE a.granted <> coalesce((SELECT sum(amount - expired) FROM credit_grant g WHERE g.account_id = a.id), 0)`,
		"included tokens used are those of the charges": `SELECT count(*) FROM account a
			WHERE a.tokens_posted <> coalesce((SELECT sum(plan_tokens) FROM charge c WHERE c.account_id = a.id), 0)`,
		"included tokens are those of the periods": `SELECT count(*) FROM account a
			WHERE a.tokens_granted <> coalesce((SELECT sum(p.tokens) FROM subscription_period p JOIN subscription s ON s.id = p.subscription_id WHERE s.account_id = a.id), 0)
				- coalesce((SELECT sum(e.amount) FROM token_expiry e JOIN token_grant g ON g.id = e.grant_id WHERE g.account_id = a.id), 0)`,
		"no account used more than its plan included": `SELECT count(*) FROM account a WHERE tokens_posted < 0
			OR tokens_posted + coalesce((SELECT sum(plan_tokens) FROM hold h WHERE h.account_id = a.id), 0) > tokens_granted`,
		"one subscription of an account runs": `SELECT count(*) - count(DISTINCT account_id) FROM subscription WHERE ended_at IS NULL`,
		"no account is below zero":            `SELECT count(*) FROM account WHERE posted > granted`,
		"no completion is charged twice":      `SELECT count(*) - count(DISTINCT completion_id) FROM charge`,
		"no call is held and charged":         `SELECT count(*) FROM hold h JOIN charge c ON c.id = h.id`,
	} {
		n, err := count(db, query)
		if err != nil {
			return nil, err
		}
		if n != 0 {
			found("%s: broken %d times", law, n)
		}
	}
	var sound string
	if err := db.QueryRowContext(ctx, `PRAGMA integrity_check`).Scan(&sound); err != nil || sound != "ok" {
		found("integrity_check: %s, %v", sound, err)
	}
	return problems, nil
}

// checkEntry compares one call as its client saw it with what was charged for it.
func checkEntry(e entry, charges []charged) error {
	if !e.complete && e.pieces == 0 {
		// Nothing billable arrived: at most one charge, for what was on its way.
		if len(charges) > 1 {
			return fmt.Errorf("%w: %d times", errDouble, len(charges))
		}
		return nil
	}
	if len(charges) == 0 {
		return fmt.Errorf("%w: complete %v, %d pieces", errLost, e.complete, e.pieces)
	}
	if len(charges) > 1 {
		return fmt.Errorf("%w: complete %v, %d pieces, %d times", errDouble, e.complete, e.pieces, len(charges))
	}
	c := charges[0]
	if c.state == "voided" || c.out < e.pieces {
		return fmt.Errorf("%s: %d tokens charged, %d pieces delivered", c.state, c.out, e.pieces)
	}
	if e.requestID != "" && c.id != e.requestID {
		return fmt.Errorf("the charge has id %s", c.id)
	}
	if e.usage != nil && (c.in != e.usage.Prompt || c.out != e.usage.Completion) {
		return fmt.Errorf("charged %d and %d tokens, the answer said %d and %d", c.in, c.out, e.usage.Prompt, e.usage.Completion)
	}
	return nil
}

// TestAudit_Catches proves the checker itself: each doctored copy of good books is found out.
func TestAudit_Catches(t *testing.T) {
	t.Parallel()
	s := start(t)
	var log []entry
	for range 3 {
		c := wantCompletion(t, post(t, s, s.Key, body("")))
		log = append(log, entry{completionID: c.ID, complete: true, usage: c.Usage})
	}
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	checkBooks(t, s.Options.Data, log)
	books, err := os.ReadFile(filepath.Join(s.Options.Data, "parley.db"))
	if err != nil {
		t.Fatal(err)
	}
	const one = `WHERE id = (SELECT max(id) FROM charge)`
	for name, doctor := range map[string]string{
		"free answer":       `DELETE FROM charge_row ` + one,
		"free and balanced": `UPDATE account SET posted = posted - (SELECT amount FROM charge ` + one + `); DELETE FROM charge_row ` + one,
		"wrong amount":      `UPDATE charge_row SET amount = amount - 1 ` + one + `; UPDATE account SET posted = posted - 1`,
		"above the hold":    `UPDATE charge_row SET held = amount - 1 ` + one,
		"too few tokens":    `UPDATE charge_row SET completion_tokens = completion_tokens - 1 ` + one,
		"voided": `INSERT INTO outcome SELECT 99, stream, status, error_code, 'voided', ending, usage_source, target, attempts FROM outcome LIMIT 1;
			UPDATE charge_row SET amount = 0, outcome = 99 ` + one,
		"posted differs":     `UPDATE account SET posted = posted + 1`,
		"granted differs":    `UPDATE account SET granted = granted + 1`,
		"charged twice":      `UPDATE charge_row SET completion_id = (SELECT min(completion_id) FROM charge)`,
		"used of a plan":     `UPDATE charge_row SET plan_tokens = 1 ` + one + `; UPDATE account SET tokens_granted = 1, tokens_posted = 1`,
		"included by nobody": `UPDATE account SET tokens_granted = 1`,
		"another price":      `UPDATE model_price SET output = output + 1`,
		"held and charged":   `INSERT INTO hold_row (id, completion_id, account, terms, prompt_tokens, output_limit, amount, created_at) SELECT id, completion_id, account, terms, 1, 1, 0, 0 FROM charge_row ` + one,
		"written off":        `UPDATE charge_row SET written_off = 1 ` + one,
		"another request id": `UPDATE charge_row SET id = 'req_0' ` + one,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "parley.db"), books, 0o600); err != nil {
				t.Fatal(err)
			}
			db := storetest.Plain(t, filepath.Join(dir, "parley.db"))
			if _, err := db.ExecContext(t.Context(), doctor); err != nil {
				t.Fatal(err)
			}
			seen := log
			if name == "another request id" {
				seen = nil
				for _, c := range log {
					c.requestID = "req_that_the_client_saw"
					seen = append(seen, c)
				}
			}
			problems, err := audit(t.Context(), db, seen)
			if err != nil {
				t.Fatal(err)
			}
			if len(problems) == 0 {
				t.Error("the checker found nothing")
			}
		})
	}
}
