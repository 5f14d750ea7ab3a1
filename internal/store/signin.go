package store

import (
	"context"
	"database/sql"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
)

// UseCode opens a session by a code that nobody has used.
func (d *DB) UseCode(ctx context.Context, hash member.Hash, s member.Session, p member.Proof) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var res sql.Result
		var err error
		if p.Recovery != (member.Hash{}) {
			res, err = tx.ExecContext(ctx, `UPDATE recovery_code SET used_at = $1 WHERE member_id = $2 AND hash = $3 AND used_at IS NULL`, micros(s.SeenAt), s.MemberID, p.Recovery[:])
		} else {
			res, err = tx.ExecContext(ctx, `UPDATE member SET totp_step = $1 WHERE id = $2 AND totp_step < $1`, p.Step, s.MemberID)
		}
		if err := one(res, err, member.ErrWrong); err != nil {
			return err
		}
		res, err = tx.ExecContext(ctx, `DELETE FROM session WHERE hash = $1 AND stage = 'code'`, hash[:])
		if err := one(res, err, member.ErrNoSession); err != nil {
			return err
		}
		return insertSession(audit.WithActor(ctx, s.MemberID), tx, s)
	})
}

// SetCodes gives a member the secret of one-time codes, or none, and recovery codes.
func (d *DB) SetCodes(ctx context.Context, memberID, sessionID string, secret []byte, step int64, recovery []member.Hash) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		state, kept := "off", any(nil)
		if secret != nil {
			state, kept = "on", secret
		}
		res, err := tx.ExecContext(ctx, `UPDATE member SET totp = $1, totp_step = $2 WHERE id = $3`, kept, step, memberID)
		if err := one(res, err, member.ErrNotFound); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM recovery_code WHERE member_id = $1`, memberID); err != nil {
			return err
		}
		for _, h := range recovery {
			if _, err := tx.ExecContext(ctx, `INSERT INTO recovery_code (member_id, hash) VALUES ($1, $2)`, memberID, h[:]); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM session WHERE member_id = $1 AND id <> $2`, memberID, sessionID); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.MemberUpdate, memberID, map[string]any{"codes": state})
	})
}

// Passkeys returns those of a member, the first made first.
func (d *DB) Passkeys(ctx context.Context, memberID string) ([]member.Passkey, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, member_id, name, credential, created_at, last_used_at FROM passkey WHERE member_id = $1 ORDER BY created_at, id`, memberID)
	return rows(rs, err, func(rs *sql.Rows, p *member.Passkey) error {
		var created, used sql.NullInt64
		err := rs.Scan(&p.ID, &p.MemberID, &p.Name, &p.Credential, &created, &used)
		p.CreatedAt, p.UsedAt = instant(created), instant(used)
		return err
	})
}

// AddPasskey adds a passkey.
func (d *DB) AddPasskey(ctx context.Context, p member.Passkey) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO passkey (id, member_id, name, credential, created_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`,
			p.ID, p.MemberID, p.Name, p.Credential, micros(p.CreatedAt))
		if err := one(res, err, member.ErrWrong); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.MemberUpdate, p.MemberID, map[string]any{"passkey": p.Name, "change": "added"})
	})
}

// RemovePasskey deletes a passkey of a member who has another way to sign in.
func (d *DB) RemovePasskey(ctx context.Context, memberID string, id []byte) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM passkey WHERE member_id = $1 AND id = $2`, memberID, id)
		if err := one(res, err, member.ErrNotFound); err != nil {
			return err
		}
		var ways int
		if err := tx.QueryRowContext(ctx, `SELECT (password <> '') + (SELECT count(*) FROM passkey WHERE member_id = $1) FROM member WHERE id = $1`, memberID).Scan(&ways); err != nil {
			return err
		}
		if ways == 0 {
			return member.ErrLastMethod
		}
		return recordMember(ctx, tx, audit.MemberUpdate, memberID, map[string]any{"passkey": "", "change": "removed"})
	})
}
