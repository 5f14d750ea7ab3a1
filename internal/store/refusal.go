package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/refusal"
)

var _ refusal.Store = (*DB)(nil)

const refusalColumns = `id, account_id, key_id, model, created_at, status, code, rule, scope, most, used, held, asked, fits,
	clears_us, prompt_tokens, max_tokens, param, message`

// AddRefusals writes refusals and counts them.
func (d *DB) AddRefusals(ctx context.Context, rs []refusal.Record) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		add, err := tx.PrepareContext(ctx, `INSERT INTO refusal (`+refusalColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) ON CONFLICT (id) DO NOTHING`)
		if err != nil {
			return err
		}
		defer add.Close()
		count, err := tx.PrepareContext(ctx, `INSERT INTO refusal_hour (account_id, hour, key_id, model, code, calls) VALUES ($1, $2, $3, $4, $5, 1)
			ON CONFLICT (account_id, hour, key_id, model, code) DO UPDATE SET calls = calls + 1`)
		if err != nil {
			return err
		}
		defer count.Close()
		for _, r := range rs {
			res, err := add.ExecContext(ctx, r.RequestID, r.AccountID, r.KeyID, r.Model, micros(r.At), r.Status, r.Code, string(r.Rule), string(r.Scope),
				r.Limit, r.Used, r.Held, r.Asked, r.Fits, r.Clears.Microseconds(), r.PromptTokens, r.MaxTokens, r.Param, r.Message)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			if n == 0 {
				continue // it was counted when it was written
			}
			model := r.Model
			if r.Code == "model_not_found" {
				model = "" // a caller's own words are nothing to count by
			}
			if _, err := count.ExecContext(ctx, r.AccountID, r.At.UnixMicro()/hour, r.KeyID, model, r.Code); err != nil {
				return err
			}
		}
		return nil
	})
}

// PruneRefusals deletes what [refusal.Store] says.
func (d *DB) PruneRefusals(ctx context.Context, t time.Time, accounts []string, most, limit int) (deleted int, err error) {
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		remove := func(these string, args ...any) error {
			if deleted >= limit {
				return nil
			}
			res, err := tx.ExecContext(ctx, `DELETE FROM refusal WHERE id IN (SELECT id FROM refusal WHERE `+these+`)`, append(args, limit-deleted)...)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			deleted += int(n)
			return err
		}
		if err := remove(`id < $1 ORDER BY id LIMIT $2`, ident.RequestIDsSince(t)); err != nil {
			return err
		}
		for _, id := range accounts {
			if err := remove(fmt.Sprintf(`account_id = $1 ORDER BY id DESC LIMIT $2 OFFSET %d`, most), id); err != nil {
				return err
			}
		}
		return nil
	})
	return deleted, err
}

// Refusal returns why a call was refused. It fails with [refusal.ErrNotFound].
func (d *DB) Refusal(ctx context.Context, requestID string) (refusal.Record, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+refusalColumns+` FROM refusal WHERE id = $1`, requestID)
	list, err := rows(rs, err, scanRefusal)
	if err != nil {
		return refusal.Record{}, err
	}
	if len(list) == 0 {
		return refusal.Record{}, fmt.Errorf("%w: %.64s", refusal.ErrNotFound, requestID)
	}
	return list[0], nil
}

// Refusals lists refused calls, newest first, as [refusal.Filter] says.
func (d *DB) Refusals(ctx context.Context, f refusal.Filter) ([]refusal.Record, error) {
	before, from := f.Before, ""
	if before == "" {
		before = "req~" // behind every id
	}
	if !f.To.IsZero() {
		before = min(before, ident.RequestIDsSince(f.To))
	}
	if !f.From.IsZero() {
		from = ident.RequestIDsSince(f.From)
	}
	rs, err := d.read.QueryContext(ctx, `SELECT `+refusalColumns+` FROM refusal WHERE account_id = $1 AND id < $2 AND id >= $3
		AND ($4 = '' OR key_id = $4) AND ($5 = '' OR model = $5) AND ($6 = '' OR code = $6) ORDER BY id DESC LIMIT $7`,
		f.AccountID, before, from, f.KeyID, f.Model, f.Code, f.Limit)
	return rows(rs, err, scanRefusal)
}

// RefusalCounts adds up the refusals of an account from the hour of from to before the
// hour of to.
func (d *DB) RefusalCounts(ctx context.Context, accountID string, from, to time.Time) ([]refusal.Count, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT key_id, model, code, sum(calls) FROM refusal_hour
		WHERE account_id = $1 AND hour >= $2 AND hour < $3 GROUP BY key_id, model, code ORDER BY 4 DESC, 1, 2, 3`,
		accountID, from.UnixMicro()/hour, to.UnixMicro()/hour)
	return rows(rs, err, func(rs *sql.Rows, c *refusal.Count) error { return rs.Scan(&c.KeyID, &c.Model, &c.Code, &c.Calls) })
}

func scanRefusal(rs *sql.Rows, r *refusal.Record) error {
	var created sql.NullInt64
	var clears int64
	err := rs.Scan(&r.RequestID, &r.AccountID, &r.KeyID, &r.Model, &created, &r.Status, &r.Code, &r.Rule, &r.Scope, &r.Limit, &r.Used, &r.Held,
		&r.Asked, &r.Fits, &clears, &r.PromptTokens, &r.MaxTokens, &r.Param, &r.Message)
	r.At, r.Clears = instant(created), time.Duration(clears)*time.Microsecond
	return err
}
