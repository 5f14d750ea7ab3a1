package store

import (
	"context"
	"database/sql"

	"github.com/parley-ai/parley/internal/account"
)

// Accounts returns every account.
func (d *DB) Accounts(ctx context.Context) ([]account.Account, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, name, plan, status, created_at FROM account`)
	return rows(rs, err, func(rs *sql.Rows, a *account.Account) error {
		var created sql.NullInt64
		err := rs.Scan(&a.ID, &a.Name, &a.Plan, &a.Status, &created)
		a.CreatedAt = instant(created)
		return err
	})
}

// CreateAccount adds an account with empty books. It fails with [account.ErrExists].
func (d *DB) CreateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO account (id, name, plan, status, created_at) VALUES ($1, $2, $3, $4, $5)`,
			a.ID, a.Name, a.Plan, string(a.Status), micros(a.CreatedAt))
		if unique(err) {
			return account.ErrExists
		}
		return err
	})
}

// UpdateAccount writes plan and status. It fails with [account.ErrNotFound].
func (d *DB) UpdateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE account SET plan = $1, status = $2 WHERE id = $3`, a.Plan, string(a.Status), a.ID)
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
