package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/audit"
)

var _ apikey.TokenStore = (*DB)(nil)

// Tokens returns every operator's token.
func (d *DB) Tokens(ctx context.Context) ([]apikey.Token, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, name, prefix, hash, created_at, created_by, expires_at, revoked_at, last_used_at FROM operator_token`)
	return rows(rs, err, func(rs *sql.Rows, t *apikey.Token) error {
		var hash []byte
		var created, expires, revoked, used sql.NullInt64
		if err := rs.Scan(&t.ID, &t.Name, &t.Prefix, &hash, &created, &t.CreatedBy, &expires, &revoked, &used); err != nil {
			return err
		}
		if copy(t.Hash[:], hash) != len(t.Hash) || len(hash) != len(t.Hash) {
			return fmt.Errorf("operator token %s: a hash of %d bytes", t.ID, len(hash))
		}
		t.CreatedAt, t.ExpiresAt, t.RevokedAt, t.LastUsedAt = instant(created), instant(expires), instant(revoked), instant(used)
		return nil
	})
}

// CreateToken adds an operator's token.
func (d *DB) CreateToken(ctx context.Context, t apikey.Token) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO operator_token (id, name, prefix, hash, created_at, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			t.ID, t.Name, t.Prefix, t.Hash[:], micros(t.CreatedAt), t.CreatedBy, micros(t.ExpiresAt))
		if err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.TokenCreate, Target: t.ID}, nil,
			map[string]any{"name": t.Name, "prefix": t.Prefix, "expires_at": moment(t.ExpiresAt)})
	})
}

// RevokeToken revokes a token that is not revoked. It fails with [apikey.ErrToken].
func (d *DB) RevokeToken(ctx context.Context, id string, at time.Time) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE operator_token SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL`, micros(at), id)
		if err := one(res, err, apikey.ErrToken); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{At: at, Actor: audit.Actor(ctx), Action: audit.TokenRevoke, Target: id}, nil, map[string]any{"revoked_at": moment(at)})
	})
}

// TouchToken records when a token was last used.
func (d *DB) TouchToken(ctx context.Context, id string, at time.Time) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE operator_token SET last_used_at = $1 WHERE id = $2`, micros(at), id)
		return err
	})
}
