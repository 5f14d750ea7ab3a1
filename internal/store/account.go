package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/webhook"
)

// Accounts returns every account with its last subscription.
func (d *DB) Accounts(ctx context.Context) ([]account.Account, error) {
	last, err := lastSubscriptions(ctx, sqlTx{d.read})
	if err != nil {
		return nil, err
	}
	rs, err := d.read.QueryContext(ctx, `SELECT id, name, plan, status, created_at, low_credit FROM account`)
	return rows(rs, err, func(rs *sql.Rows, a *account.Account) error {
		var created, low sql.NullInt64
		err := rs.Scan(&a.ID, &a.Name, &a.Plan, &a.Status, &created, &low)
		a.CreatedAt, a.LowCredit, a.Subscription = instant(created), threshold(low), last[a.ID]
		return err
	})
}

func threshold(n sql.NullInt64) account.Threshold {
	return account.Threshold{Own: n.Valid, Amount: money.Amount(n.Int64)}
}

// accountState is what the audit log says of an account.
type accountState struct {
	Name   string `json:"name,omitzero"`
	Plan   string `json:"plan"`
	Status string `json:"status"`
	// LowCredit is the threshold of its own, empty without one.
	LowCredit string `json:"low_credit,omitzero"`
}

func stateOf(a account.Account) accountState {
	s := accountState{Plan: a.Plan, Status: string(a.Status)}
	if a.LowCredit.Own {
		s.LowCredit = a.LowCredit.Amount.String()
	}
	return s
}

// CreateAccount adds an account with empty books. It fails with [account.ErrExists].
func (d *DB) CreateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO account (id, name, plan, status, created_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name) DO NOTHING`,
			a.ID, a.Name, a.Plan, string(a.Status), micros(a.CreatedAt))
		if err := one(res, err, account.ErrExists); err != nil {
			return err
		}
		after := stateOf(a)
		after.Name = a.Name
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.AccountCreate, Target: a.ID}, nil, after)
	})
}

// UpdateAccount writes plan, status and threshold. Where a threshold makes credit low that was
// not, the trigger of [DB.Announce] tells of it. It fails with [account.ErrNotFound].
func (d *DB) UpdateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var before account.Account
		var low sql.NullInt64
		err := tx.QueryRowContext(ctx, `SELECT plan, status, low_credit FROM account WHERE id = $1`, a.ID).Scan(&before.Plan, &before.Status, &low)
		if errors.Is(err, sql.ErrNoRows) {
			return account.ErrNotFound
		}
		if err != nil {
			return err
		}
		before.LowCredit = threshold(low)
		low = sql.NullInt64{Valid: a.LowCredit.Own, Int64: int64(a.LowCredit.Amount)}
		res, err := tx.ExecContext(ctx, `UPDATE account SET plan = $1, status = $2, low_credit = $3 WHERE id = $4`, a.Plan, string(a.Status), low, a.ID)
		if err := one(res, err, account.ErrNotFound); err != nil {
			return err
		}
		if err := tellAccount(ctx, sqlTx{tx}, before, a); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.AccountUpdate, Target: a.ID}, stateOf(before), stateOf(a))
	})
}

// tellAccount writes the events of an account that has changed.
func tellAccount(ctx context.Context, q querier, before, after account.Account) error {
	if before.Status == after.Status {
		return nil
	}
	kind := webhook.AccountActivated
	if after.Status == account.Suspended {
		kind = webhook.AccountSuspended
	}
	return emit(ctx, q, kind, after.ID, nil)
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
