package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// statements are what the committer runs, prepared once on the writing connection.
type statements struct {
	open, closeHold, charge, post, grant, addGrant, granted *sql.Stmt
}

const chargeColumns = `id, completion_id, account_id, key_id, model, price_id, plan_version, stream, created_at,
	prompt_tokens, cached_tokens, completion_tokens, output_limit, held, amount, written_off,
	status, error_code, state, ending, usage_source, target, attempts, first_token_us, total_us`

// prepare binds by position where it can: SQLite takes $1 for a name, and names are
// sought at every use.
func (s *statements) prepare(ctx context.Context, db *sql.DB) error {
	var errs []error
	p := func(text string) *sql.Stmt {
		st, err := db.PrepareContext(ctx, text)
		errs = append(errs, err)
		return st
	}
	s.open = p(`INSERT INTO hold (id, completion_id, account_id, key_id, model, price_id, plan_version, prompt_tokens, output_limit, amount, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	s.closeHold = p(`DELETE FROM hold WHERE id = ?`)
	s.charge = p(`INSERT INTO charge (` + chargeColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`)
	s.post = p(`UPDATE account SET posted = posted + ? WHERE id = ?`)
	s.grant = p(`INSERT INTO credit_grant (id, account_id, amount, note, source, created_at)
		SELECT $1, id, $3, $4, $5, $6 FROM account WHERE id = $2
		ON CONFLICT (account_id, source) DO NOTHING`)
	s.addGrant = p(`UPDATE account SET granted = granted + ? WHERE id = ?`)
	s.granted = p(`SELECT created_at FROM credit_grant WHERE account_id = ? AND source = ?`)
	return errors.Join(errs...)
}

func (s *statements) close() error {
	var errs []error
	for _, st := range []*sql.Stmt{s.open, s.closeHold, s.charge, s.post, s.grant, s.addGrant, s.granted} {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}

// Totals returns the books of every account.
func (d *DB) Totals(ctx context.Context) ([]ledger.Totals, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, granted, posted FROM account`)
	return rows(rs, err, func(rs *sql.Rows, t *ledger.Totals) error { return rs.Scan(&t.AccountID, &t.Granted, &t.Posted) })
}

// OpenHolds returns the streams that were running when the last process ended.
func (d *DB) OpenHolds(ctx context.Context) ([]ledger.Receipt, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT h.id, h.completion_id, h.account_id, h.key_id, h.model, h.price_id, h.plan_version,
			h.prompt_tokens, h.output_limit, h.amount, h.created_at, p.input, p.cached, p.output
		FROM hold h JOIN model_price p ON p.id = h.price_id ORDER BY h.id`)
	return rows(rs, err, func(rs *sql.Rows, r *ledger.Receipt) error {
		var created sql.NullInt64
		err := rs.Scan(&r.RequestID, &r.CompletionID, &r.AccountID, &r.KeyID, &r.Model, &r.PriceID, &r.PlanVersion,
			&r.PromptTokens, &r.OutputLimit, &r.Hold, &created, &r.Price.Input, &r.Price.CachedInput, &r.Price.Output)
		r.Stream, r.CreatedAt, r.State = true, instant(created), ledger.Running
		return err
	})
}

// Commit applies all ops or none, in one transaction that is on the disk when it
// returns.
func (d *DB) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	results := make([]ledger.Result, len(ops))
	err := d.tx(ctx, func(tx *sql.Tx) error {
		b := batch{tx: tx, stmts: &d.stmts, bound: map[*sql.Stmt]*sql.Stmt{}, posted: map[string]money.Amount{}}
		for i, op := range ops {
			var err error
			switch {
			case op.Open != nil:
				results[i], err = b.open(ctx, op.Open)
			case op.Close != nil:
				results[i], err = b.close(ctx, op.Close)
			case op.Grant != nil:
				results[i], err = b.grant(ctx, op.Grant)
			}
			if err != nil {
				return err
			}
		}
		return b.post(ctx)
	})
	return results, err
}

// batch is one transaction of the committer. It adds up what each account spends, so
// that a busy account is one update.
type batch struct {
	tx     *sql.Tx
	stmts  *statements
	bound  map[*sql.Stmt]*sql.Stmt // to tx: a batch runs few statements many times
	posted map[string]money.Amount
}

func (b *batch) exec(ctx context.Context, st *sql.Stmt, args ...any) (int64, error) {
	bound := b.bound[st]
	if bound == nil {
		bound = b.tx.StmtContext(ctx, st)
		b.bound[st] = bound
	}
	res, err := bound.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (b *batch) open(ctx context.Context, r *ledger.Receipt) (ledger.Result, error) {
	_, err := b.exec(ctx, b.stmts.open, r.RequestID, r.CompletionID, r.AccountID, r.KeyID, r.Model, r.PriceID, r.PlanVersion,
		r.PromptTokens, r.OutputLimit, int64(r.Hold), micros(r.CreatedAt))
	return ledger.Result{Applied: true}, err
}

func (b *batch) close(ctx context.Context, r *ledger.Receipt) (ledger.Result, error) {
	if r.Stream {
		// A stream that ended before its hold was sent has none: the charge row decides.
		if _, err := b.exec(ctx, b.stmts.closeHold, r.RequestID); err != nil {
			return ledger.Result{}, err
		}
	}
	n, err := b.exec(ctx, b.stmts.charge, r.RequestID, r.CompletionID, r.AccountID, r.KeyID, r.Model, r.PriceID, r.PlanVersion, r.Stream, micros(r.CreatedAt),
		r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.OutputLimit, int64(r.Hold), int64(r.Charge), int64(r.WrittenOff),
		r.Status, r.ErrorCode, string(r.State), string(r.Ending), string(r.UsageSource), r.Target, r.Attempts, r.FirstToken.Microseconds(), r.Total.Microseconds())
	if err != nil || n == 0 {
		return ledger.Result{}, err
	}
	if r.Charge != 0 {
		b.posted[r.AccountID] += r.Charge
	}
	return ledger.Result{Applied: true}, nil
}

func (b *batch) grant(ctx context.Context, g *ledger.Grant) (ledger.Result, error) {
	source := sql.NullString{String: g.Source, Valid: g.Source != ""}
	n, err := b.exec(ctx, b.stmts.grant, g.ID, g.AccountID, int64(g.Amount), g.Note, source, micros(g.CreatedAt))
	if err != nil {
		return ledger.Result{}, err
	}
	if n == 0 {
		var at sql.NullInt64
		err := b.tx.StmtContext(ctx, b.stmts.granted).QueryRowContext(ctx, g.AccountID, g.Source).Scan(&at)
		if errors.Is(err, sql.ErrNoRows) { // no such account
			err = nil
		}
		return ledger.Result{At: instant(at)}, err
	}
	n, err = b.exec(ctx, b.stmts.addGrant, int64(g.Amount), g.AccountID)
	if err == nil && n != 1 {
		err = fmt.Errorf("grant %s: no account %s", g.ID, g.AccountID)
	}
	return ledger.Result{Applied: true, At: g.CreatedAt}, err
}

func (b *batch) post(ctx context.Context) error {
	for id, sum := range b.posted {
		n, err := b.exec(ctx, b.stmts.post, int64(sum), id)
		if err == nil && n != 1 {
			err = fmt.Errorf("charge: no account %s", id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Receipts returns the ended calls of an account, newest first, at most limit.
func (d *DB) Receipts(ctx context.Context, accountID string, limit int) ([]ledger.Receipt, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+chargeColumns+` FROM charge WHERE account_id = $1 ORDER BY id DESC LIMIT $2`, accountID, limit)
	return rows(rs, err, scanReceipt)
}

// ReceiptsSince returns the ended calls of all accounts that were made at that time or
// later, in the order of their times. It finds them by their ids, which carry the time
// and are made just before it is taken: an index on times would cost every charge.
func (d *DB) ReceiptsSince(ctx context.Context, t time.Time) ([]ledger.Receipt, error) {
	const slack = 10 * time.Second // between the id and the time, on a machine that stalls
	rs, err := d.read.QueryContext(ctx, `SELECT `+chargeColumns+` FROM charge WHERE id >= $1 AND created_at >= $2 ORDER BY created_at, id`,
		ident.RequestIDsSince(t.Add(-slack)), micros(t))
	return rows(rs, err, scanReceipt)
}

func scanReceipt(rs *sql.Rows, r *ledger.Receipt) error {
	var created sql.NullInt64
	var first, total int64
	err := rs.Scan(&r.RequestID, &r.CompletionID, &r.AccountID, &r.KeyID, &r.Model, &r.PriceID, &r.PlanVersion, &r.Stream, &created,
		&r.PromptTokens, &r.CachedTokens, &r.CompletionTokens, &r.OutputLimit, &r.Hold, &r.Charge, &r.WrittenOff,
		&r.Status, &r.ErrorCode, &r.State, &r.Ending, &r.UsageSource, &r.Target, &r.Attempts, &first, &total)
	r.CreatedAt = instant(created)
	r.FirstToken, r.Total = time.Duration(first)*time.Microsecond, time.Duration(total)*time.Microsecond
	return err
}
