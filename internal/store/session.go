package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
)

const sessionColumns = `s.id, s.hash, s.member_id, s.account_id, s.stage, s.address, s.agent, s.created_at, s.seen_at, s.proved_at`

// scanSession is like scanMember.
func scanSession(s *member.Session) (places []any, done func()) {
	var hash []byte
	var created, seen, proved sql.NullInt64
	places = []any{&s.ID, &hash, &s.MemberID, &s.AccountID, &s.Stage, &s.From.Address, &s.From.Agent, &created, &seen, &proved}
	return places, func() {
		copy(s.Hash[:], hash)
		s.CreatedAt, s.SeenAt, s.ProvedAt = instant(created), instant(seen), instant(proved)
	}
}

// Visitor returns the session of that hash with its member and the member's accounts. It
// fails with [member.ErrNoSession].
func (d *DB) Visitor(ctx context.Context, hash member.Hash) (v member.Visitor, err error) {
	places, sessionDone := scanSession(&v.Session)
	more, memberDone := scanMember(&v.Member)
	err = d.read.QueryRowContext(ctx, `SELECT `+sessionColumns+`, `+memberColumns+` FROM session s JOIN member m ON m.id = s.member_id WHERE s.hash = $1`, hash[:]).
		Scan(append(places, more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return v, member.ErrNoSession
	}
	if err != nil {
		return v, err
	}
	sessionDone()
	memberDone()
	v.Memberships, err = memberships(ctx, d.read, v.Member.ID)
	return v, err
}

// SignIn adds a session in the place of another. Sessions of the member that have ended go
// with it.
func (d *DB) SignIn(ctx context.Context, a member.Arrival) error {
	s := a.Session
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM session WHERE hash = $1 OR member_id = $2 AND (seen_at < $3 OR created_at < $4)`,
			a.Replaces[:], s.MemberID, micros(s.CreatedAt.Add(-member.IdleLimit)), micros(s.CreatedAt.Add(-member.LifeLimit))); err != nil {
			return err
		}
		if a.Password != "" {
			res, err := tx.ExecContext(ctx, `UPDATE member SET password = $1 WHERE id = $2`, a.Password, s.MemberID)
			if err := one(res, err, member.ErrNotFound); err != nil {
				return err
			}
		}
		if p := a.Passkey; p != nil {
			res, err := tx.ExecContext(ctx, `UPDATE passkey SET credential = $1, last_used_at = $2 WHERE id = $3 AND member_id = $4`, p.Credential, micros(p.UsedAt), p.ID, p.MemberID)
			if err := one(res, err, member.ErrWrong); err != nil { // it was removed meanwhile
				return err
			}
		}
		return insertSession(ctx, tx, s)
	})
}

// insertSession adds a session and, where somebody is signed in with it, says so.
func insertSession(ctx context.Context, tx *sql.Tx, s member.Session) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO session (id, hash, member_id, account_id, stage, address, agent, created_at, seen_at, proved_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		s.ID, s.Hash[:], s.MemberID, s.AccountID, string(s.Stage), s.From.Address, s.From.Agent, micros(s.CreatedAt), micros(s.SeenAt), micros(s.ProvedAt))
	if err != nil || s.Stage != member.Open {
		return err
	}
	return recordMember(ctx, tx, audit.MemberSignIn, s.MemberID, map[string]any{"session": s.ID, "address": s.From.Address})
}

// TouchSession notes when a session was used.
func (d *DB) TouchSession(ctx context.Context, hash member.Hash, at time.Time) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// One that has ended meanwhile stays ended.
		_, err := tx.ExecContext(ctx, `UPDATE session SET seen_at = $1 WHERE hash = $2`, micros(at), hash[:])
		return err
	})
}

// TurnSession gives the session of hash the token, account, stage and proof of s. It fails
// with [member.ErrNoSession].
func (d *DB) TurnSession(ctx context.Context, hash member.Hash, s member.Session) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE session SET hash = $1, account_id = $2, stage = $3, proved_at = $4 WHERE hash = $5`,
			s.Hash[:], s.AccountID, string(s.Stage), micros(s.ProvedAt), hash[:])
		return one(res, err, member.ErrNoSession)
	})
}

// EndSession deletes the session of that id where it is one of the member's.
func (d *DB) EndSession(ctx context.Context, memberID, id string) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM session WHERE id = $1 AND member_id = $2`, id, memberID)
		if err := one(res, err, member.ErrNoSession); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.SessionEnd, memberID, map[string]any{"session": id})
	})
}

// EndOthers deletes all sessions of a member but the one of that id.
func (d *DB) EndOthers(ctx context.Context, memberID, id string) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM session WHERE member_id = $1 AND id <> $2`, memberID, id); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.SessionEnd, memberID, map[string]any{"all_but": id})
	})
}

// Sessions returns those of a member, the last used first.
func (d *DB) Sessions(ctx context.Context, memberID string) ([]member.Session, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+sessionColumns+` FROM session s WHERE s.member_id = $1 ORDER BY s.seen_at DESC, s.id DESC`, memberID)
	return rows(rs, err, func(rs *sql.Rows, s *member.Session) error {
		places, done := scanSession(s)
		err := rs.Scan(places...)
		done()
		return err
	})
}
