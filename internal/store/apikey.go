package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/audit"
)

// Keys returns every key.
func (d *DB) Keys(ctx context.Context) ([]apikey.Key, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, account_id, name, prefix, last4, hash, models, created_at, expires_at, revoked_at, last_used_at, rpm, tpm FROM api_key`)
	return rows(rs, err, func(rs *sql.Rows, k *apikey.Key) error {
		var (
			hash                            []byte
			models                          string
			created, expires, revoked, used sql.NullInt64
		)
		if err := rs.Scan(&k.ID, &k.AccountID, &k.Name, &k.Prefix, &k.Last4, &hash, &models, &created, &expires, &revoked, &used, &k.RPM, &k.TPM); err != nil {
			return err
		}
		if copy(k.Hash[:], hash) != len(k.Hash) || len(hash) != len(k.Hash) {
			return fmt.Errorf("key %s: a hash of %d bytes", k.ID, len(hash))
		}
		k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.LastUsedAt = instant(created), instant(expires), instant(revoked), instant(used)
		if models == "" {
			return nil
		}
		return json.Unmarshal([]byte(models), &k.Models)
	})
}

// CreateKey adds a key.
func (d *DB) CreateKey(ctx context.Context, k apikey.Key) error {
	models := ""
	if k.Models != nil {
		b, err := json.Marshal(k.Models)
		if err != nil {
			return err
		}
		models = string(b)
	}
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO api_key (id, account_id, name, prefix, last4, hash, models, created_at, expires_at, rpm, tpm)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			k.ID, k.AccountID, k.Name, k.Prefix, k.Last4, k.Hash[:], models, micros(k.CreatedAt), micros(k.ExpiresAt), k.RPM, k.TPM)
		if err := one(res, err, apikey.ErrNotFound); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.KeyCreate, Target: k.ID}, nil, map[string]any{
			"account_id": k.AccountID, "name": k.Name, "models": k.Models, "rpm": k.RPM, "tpm": k.TPM, "expires_at": moment(k.ExpiresAt),
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
