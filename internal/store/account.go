package store

import (
	"context"
	"database/sql"

	"github.com/parley-ai/parley/internal/account"
)

// Accounts returns every account.
func (d *DB) Accounts(ctx context.Context) ([]account.Account, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, name, plan, status, created_at, sub_plan, sub_until FROM account`)
	return rows(rs, err, func(rs *sql.Rows, a *account.Account) error {
		var created, until sql.NullInt64
		err := rs.Scan(&a.ID, &a.Name, &a.Plan, &a.Status, &created, &a.Subscription.Plan, &until)
		a.CreatedAt, a.Subscription.Until = instant(created), instant(until)
		return err
	})
}

// CreateAccount adds an account with empty books. It fails with [account.ErrExists].
func (d *DB) CreateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO account (id, name, plan, status, created_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name) DO NOTHING`,
			a.ID, a.Name, a.Plan, string(a.Status), micros(a.CreatedAt))
		return one(res, err, account.ErrExists)
	})
}

// UpdateAccount writes plan, status and subscription. It fails with [account.ErrNotFound].
func (d *DB) UpdateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE account SET plan = $1, status = $2, sub_plan = $3, sub_until = $4 WHERE id = $5`,
			a.Plan, string(a.Status), a.Subscription.Plan, micros(a.Subscription.Until), a.ID)
		return one(res, err, account.ErrNotFound)
	})
}

// one returns missing unless exactly one row was changed: a write that is lost is an
// error, never a silence.
func one(res sql.Result, err, missing error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		return missing
	}
	return err
}
