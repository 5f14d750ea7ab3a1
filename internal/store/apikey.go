package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/money"
)

// Keys returns every key.
func (d *DB) Keys(ctx context.Context) ([]apikey.Key, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, account_id, name, prefix, last4, hash, models, created_at, expires_at, revoked_at, last_used_at, rpm, tpm, scopes, networks, replaced_by, budget_id, budget, budget_monthly, created_by FROM api_key`)
	return rows(rs, err, func(rs *sql.Rows, k *apikey.Key) error {
		var (
			hash                            []byte
			models, scopes, networks        string
			created, expires, revoked, used sql.NullInt64
			replacedBy, budgetID            sql.NullString
			budget                          sql.NullInt64
		)
		if err := rs.Scan(&k.ID, &k.AccountID, &k.Name, &k.Prefix, &k.Last4, &hash, &models, &created, &expires, &revoked, &used, &k.RPM, &k.TPM, &scopes, &networks, &replacedBy, &budgetID, &budget, &k.Budget.Monthly, &k.CreatedBy); err != nil {
			return err
		}
		if copy(k.Hash[:], hash) != len(k.Hash) || len(hash) != len(k.Hash) {
			return fmt.Errorf("key %s: a hash of %d bytes", k.ID, len(hash))
		}
		k.ReplacedBy = replacedBy.String
		k.Budget.ID, k.Budget.Amount = budgetID.String, money.Amount(budget.Int64)
		k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.LastUsedAt = instant(created), instant(expires), instant(revoked), instant(used)
		var err error
		if k.Scopes, err = account.ParseScopes(strings.Fields(scopes)); err != nil {
			return fmt.Errorf("key %s: %w", k.ID, err)
		}
		if k.Networks, err = apikey.ParseNetworks(strings.Fields(networks)); err != nil {
			return fmt.Errorf("key %s: %w", k.ID, err)
		}
		if models == "" {
			return nil
		}
		return json.Unmarshal([]byte(models), &k.Models)
	})
}

// CreateKey adds a key.
func (d *DB) CreateKey(ctx context.Context, k apikey.Key) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return insertKey(ctx, tx, k) })
}

func insertKey(ctx context.Context, tx *sql.Tx, k apikey.Key) error {
	models, err := modelList(k.Models)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO api_key (id, account_id, name, prefix, last4, hash, models, created_at, expires_at, rpm, tpm, scopes, networks, budget_id, budget, budget_monthly, created_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
		k.ID, k.AccountID, k.Name, k.Prefix, k.Last4, k.Hash[:], models, micros(k.CreatedAt), micros(k.ExpiresAt), k.RPM, k.TPM,
		strings.Join(k.Scopes.Names(), " "), strings.Join(apikey.Networks(k.Networks), " "), orNull(k.Budget.ID), orNull(int64(k.Budget.Amount)), k.Budget.Monthly, k.CreatedBy)
	if err != nil {
		return err
	}
	after := keyFacts(k)
	after["account_id"] = k.AccountID
	return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.KeyCreate, Target: k.ID}, nil, after)
}

// keyFacts are what the audit log says of a key.
func keyFacts(k apikey.Key) map[string]any {
	return map[string]any{
		"name": k.Name, "models": k.Models, "rpm": k.RPM, "tpm": k.TPM, "expires_at": moment(k.ExpiresAt), "scopes": k.Scopes.Names(),
		"networks": apikey.Networks(k.Networks), "budget": k.Budget.Amount.String(), "budget_monthly": k.Budget.Monthly,
	}
}

// modelList is a list of models as it is stored: nil, which is all, is empty.
func modelList(models []string) (string, error) {
	if models == nil {
		return "", nil
	}
	b, err := json.Marshal(models)
	return string(b), err
}

// UpdateKey writes what [apikey.Keyring.Change] can change of a key that is not revoked.
// It fails with [apikey.ErrNotFound].
func (d *DB) UpdateKey(ctx context.Context, k apikey.Key) error {
	models, err := modelList(k.Models)
	if err != nil {
		return err
	}
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE api_key SET name = $1, models = $2, expires_at = $3, rpm = $4, tpm = $5, scopes = $6, networks = $7,
			budget_id = $8, budget = $9, budget_monthly = $10 WHERE id = $11 AND revoked_at IS NULL`,
			k.Name, models, micros(k.ExpiresAt), k.RPM, k.TPM, strings.Join(k.Scopes.Names(), " "), strings.Join(apikey.Networks(k.Networks), " "),
			orNull(k.Budget.ID), orNull(int64(k.Budget.Amount)), k.Budget.Monthly, k.ID)
		if err := one(res, err, apikey.ErrNotFound); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.KeyUpdate, Target: k.ID}, nil, keyFacts(k))
	})
}

// orNull is NULL for a zero value.
func orNull[T comparable](v T) sql.Null[T] {
	var zero T
	return sql.Null[T]{V: v, Valid: v != zero}
}

// ReplaceKey adds the key by and writes the end of old, which it replaces. It fails
// with [apikey.ErrReplaced] when old has an end already.
func (d *DB) ReplaceKey(ctx context.Context, old, by apikey.Key) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := insertKey(ctx, tx, by); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `UPDATE api_key SET replaced_by = $1, expires_at = $2, revoked_at = $3
			WHERE id = $4 AND replaced_by IS NULL AND revoked_at IS NULL`,
			by.ID, micros(old.ExpiresAt), micros(old.RevokedAt), old.ID)
		if err := one(res, err, apikey.ErrReplaced); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.KeyRotate, Target: old.ID}, nil, map[string]any{
			"replaced_by": by.ID, "expires_at": moment(old.ExpiresAt), "revoked_at": moment(old.RevokedAt),
		})
	})
}

// RevokeKey sets the time of revocation of a key that has none. It fails with
// [apikey.ErrNotFound].
func (d *DB) RevokeKey(ctx context.Context, id string, at time.Time) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE api_key SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL`, micros(at), id)
		if err := one(res, err, apikey.ErrNotFound); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.KeyRevoke, Target: id}, nil, map[string]any{"revoked_at": moment(at)})
	})
}

// TouchKeys records when keys were last used.
func (d *DB) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for id, at := range used {
			if _, err := tx.ExecContext(ctx, `UPDATE api_key SET last_used_at = $1 WHERE id = $2`, micros(at), id); err != nil {
				return err
			}
		}
		return nil
	})
}
