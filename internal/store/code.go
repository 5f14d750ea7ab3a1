package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

const codeColumns = `id, hash, last4, kind, amount, note, created_at, expires_at, revoked_at, redeemed_at, coalesce(account_id, '')`

// scanCode reads a row of codeColumns.
func scanCode(row []any) (c ledger.Code, err error) {
	text := func(i int) string { v, _ := row[i].(string); return v }
	at := func(i int) time.Time {
		if v, ok := row[i].(int64); ok {
			return time.UnixMicro(v).UTC()
		}
		return time.Time{}
	}
	amount, _ := row[4].(int64)
	c = ledger.Code{
		ID: text(0), Last4: text(2), Kind: ledger.Kind(text(3)), Amount: money.Amount(amount), Note: text(5),
		CreatedAt: at(6), ExpiresAt: at(7), RevokedAt: at(8), RedeemedAt: at(9), AccountID: text(10),
	}
	hash, _ := row[1].([]byte)
	if copy(c.Hash[:], hash) != len(c.Hash) || len(hash) != len(c.Hash) {
		return c, fmt.Errorf("code %s: a hash of %d bytes", c.ID, len(hash))
	}
	return c, nil
}

// Code finds a code by its hash. It fails with [ledger.ErrCode].
func (d *DB) Code(ctx context.Context, hash [32]byte) (ledger.Code, error) {
	return findCode(ctx, sqlTx{d.read}, `hash`, hash[:])
}

func findCode(ctx context.Context, q querier, column string, value any) (c ledger.Code, err error) {
	list, err := q.list(ctx, `SELECT `+codeColumns+` FROM redemption_code WHERE `+column+` = ?`, value)
	if err != nil {
		return c, err
	}
	if len(list) == 0 {
		return c, ledger.ErrCode
	}
	return scanCode(list[0])
}

// Codes returns at most limit codes, the newest first.
func (d *DB) Codes(ctx context.Context, limit int) ([]ledger.Code, error) {
	list, err := sqlTx{d.read}.list(ctx, `SELECT `+codeColumns+` FROM redemption_code ORDER BY created_at DESC, id DESC LIMIT ?`, int64(limit))
	if err != nil {
		return nil, err
	}
	codes := make([]ledger.Code, len(list))
	for i, row := range list {
		if codes[i], err = scanCode(row); err != nil {
			return nil, err
		}
	}
	return codes, nil
}

// codeShape is what the audit log says of a code.
type codeShape struct {
	Amount    string `json:"amount"`
	Kind      string `json:"kind"`
	Note      string `json:"note"`
	ExpiresAt string `json:"expires_at,omitzero"`
	AccountID string `json:"account_id,omitzero"`
	GrantID   string `json:"grant_id,omitzero"`
}

// CreateCodes adds codes, all or none.
func (d *DB) CreateCodes(ctx context.Context, codes []ledger.Code) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, c := range codes {
			_, err := tx.ExecContext(ctx, `INSERT INTO redemption_code (id, hash, last4, kind, amount, note, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
				c.ID, c.Hash[:], c.Last4, string(c.Kind), int64(c.Amount), c.Note, micros(c.CreatedAt), micros(c.ExpiresAt))
			if err != nil {
				return err
			}
			err = record(ctx, sqlTx{tx}, audit.Entry{At: c.CreatedAt, Actor: audit.Actor(ctx), Action: audit.CodeCreate, Target: c.ID}, nil,
				codeShape{Amount: c.Amount.String(), Kind: string(c.Kind), Note: c.Note, ExpiresAt: moment(c.ExpiresAt)})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// RevokeCode makes sure that a code is never redeemed. One that was revoked before keeps
// its time. It fails with [ledger.ErrCode] or [ledger.ErrCodeRedeemed].
func (d *DB) RevokeCode(ctx context.Context, id string, at time.Time) (c ledger.Code, err error) {
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if c, err = findCode(ctx, sqlTx{tx}, `id`, id); err != nil {
			return err
		}
		switch {
		case !c.RedeemedAt.IsZero():
			return ledger.ErrCodeRedeemed
		case !c.RevokedAt.IsZero():
			return nil
		}
		c.RevokedAt = at
		if _, err := tx.ExecContext(ctx, `UPDATE redemption_code SET revoked_at = $1 WHERE id = $2`, micros(at), id); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{At: at, Actor: audit.Actor(ctx), Action: audit.CodeRevoke, Target: id}, nil, map[string]any{"revoked_at": moment(at)})
	})
	return c, err
}

// redeem turns a code into a grant, unless somebody was first.
func (b *batch) redeem(ctx context.Context, r *ledger.Redemption) (res ledger.Result, err error) {
	g := &r.Grant
	if _, found, err := b.find(ctx, b.account, g.AccountID); err != nil || !found {
		return ledger.Result{Refused: ledger.ErrAccount}, err
	}
	c, err := findCode(ctx, b, `hash`, r.Hash[:])
	if err != nil {
		return res, err // it was there when the redemption was made, and codes stay
	}
	if refused := c.Check(g.CreatedAt); refused != nil {
		return ledger.Result{Refused: refused}, nil //nolint:nilerr // a refusal is an answer, not a failure
	}
	if err := b.addGrant(ctx, g); err != nil {
		return res, err
	}
	_, err = b.run(ctx, `UPDATE redemption_code SET redeemed_at = ?, account_id = ?, grant_id = ? WHERE id = ?`, micros(g.CreatedAt), g.AccountID, g.ID, c.ID)
	if err != nil {
		return res, err
	}
	err = record(ctx, b, audit.Entry{At: g.CreatedAt, Actor: g.Actor, Origin: g.Origin, Action: audit.CodeRedeem, Target: c.ID}, nil,
		codeShape{Amount: g.Amount.String(), Kind: string(g.Kind), Note: g.Note, AccountID: g.AccountID, GrantID: g.ID})
	return ledger.Result{Applied: true, At: g.CreatedAt}, err
}
