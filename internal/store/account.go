package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/webhook"
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

// accountState is what the audit log says of an account.
type accountState struct {
	Name              string `json:"name,omitzero"`
	Plan              string `json:"plan"`
	Status            string `json:"status"`
	SubscriptionPlan  string `json:"subscription_plan,omitzero"`
	SubscriptionUntil string `json:"subscription_until,omitzero"`
}

func stateOf(a account.Account) accountState {
	return accountState{Plan: a.Plan, Status: string(a.Status), SubscriptionPlan: a.Subscription.Plan, SubscriptionUntil: moment(a.Subscription.Until)}
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

// UpdateAccount writes plan, status and subscription. It fails with [account.ErrNotFound].
func (d *DB) UpdateAccount(ctx context.Context, a account.Account) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var before account.Account
		var until sql.NullInt64
		err := tx.QueryRowContext(ctx, `SELECT plan, status, sub_plan, sub_until FROM account WHERE id = $1`, a.ID).
			Scan(&before.Plan, &before.Status, &before.Subscription.Plan, &until)
		if errors.Is(err, sql.ErrNoRows) {
			return account.ErrNotFound
		}
		if err != nil {
			return err
		}
		before.Subscription.Until = instant(until)
		res, err := tx.ExecContext(ctx, `UPDATE account SET plan = $1, status = $2, sub_plan = $3, sub_until = $4 WHERE id = $5`,
			a.Plan, string(a.Status), a.Subscription.Plan, micros(a.Subscription.Until), a.ID)
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
	if before.Status != after.Status {
		kind := webhook.AccountActivated
		if after.Status == account.Suspended {
			kind = webhook.AccountSuspended
		}
		if err := emit(ctx, q, kind, after.ID, nil); err != nil {
			return err
		}
	}
	if before.Subscription.Plan == after.Subscription.Plan && before.Subscription.Until.Equal(after.Subscription.Until) {
		return nil
	}
	return emit(ctx, q, webhook.SubscriptionChanged, after.ID, map[string]any{
		"plan": after.Subscription.Plan, "until": moment(after.Subscription.Until),
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
