package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
)

const memberColumns = `m.id, m.email, m.operator, m.password, m.totp, m.totp_step, m.theme, m.shortcuts, m.created_at`

// scanMember returns where the columns of memberColumns go, and what is to be done when
// they are there.
func scanMember(m *member.Member) (places []any, done func()) {
	var created sql.NullInt64
	places = []any{&m.ID, &m.Email, &m.Operator, &m.Password, &m.TOTP, &m.TOTPStep, &m.Theme, &m.Shortcuts, &created}
	return places, func() { m.CreatedAt = instant(created) }
}

// MemberByEmail returns the member of that address, or [member.ErrNotFound].
func (d *DB) MemberByEmail(ctx context.Context, email string) (m member.Member, err error) {
	return memberBy(d.read.QueryRowContext(ctx, `SELECT `+memberColumns+` FROM member m WHERE m.email = $1`, email))
}

func memberBy(row *sql.Row) (m member.Member, err error) {
	places, done := scanMember(&m)
	if err = row.Scan(places...); errors.Is(err, sql.ErrNoRows) {
		return member.Member{}, member.ErrNotFound
	}
	done()
	return m, err
}

// Member returns the member of that id, or [member.ErrNotFound].
func (d *DB) Member(ctx context.Context, id string) (m member.Member, err error) {
	return memberBy(d.read.QueryRowContext(ctx, `SELECT `+memberColumns+` FROM member m WHERE m.id = $1`, id))
}

// memberships returns the accounts of a member, the oldest first.
func memberships(ctx context.Context, q interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}, memberID string,
) ([]member.Membership, error) {
	rs, err := q.QueryContext(ctx, `SELECT account_id, member_id, role, created_at FROM membership WHERE member_id = $1 ORDER BY account_id`, memberID)
	return rows(rs, err, func(rs *sql.Rows, m *member.Membership) error {
		var created sql.NullInt64
		err := rs.Scan(&m.AccountID, &m.MemberID, &m.Role, &created)
		m.CreatedAt = instant(created)
		return err
	})
}

// SetPassword changes a member's password and ends its sessions but the one of that id.
func (d *DB) SetPassword(ctx context.Context, memberID, password, sessionID string) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE member SET password = $1 WHERE id = $2`, password, memberID)
		if err := one(res, err, member.ErrNotFound); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM session WHERE member_id = $1 AND id <> $2`, memberID, sessionID); err != nil {
			return err
		}
		return recordMember(ctx, tx, audit.MemberUpdate, memberID, map[string]any{"password": "changed"})
	})
}

// SetTaste writes a member's theme and shortcuts. It is no change that anybody else must
// be able to follow.
func (d *DB) SetTaste(ctx context.Context, m member.Member) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE member SET theme = $1, shortcuts = $2 WHERE id = $3`, m.Theme, m.Shortcuts, m.ID)
		return one(res, err, member.ErrNotFound)
	})
}

// recordMember adds to the audit log what has become of a member.
func recordMember(ctx context.Context, tx *sql.Tx, what audit.Action, id string, after any) error {
	return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: what, Target: id}, nil, after)
}

// CreateLink adds a link.
func (d *DB) CreateLink(ctx context.Context, l member.Link) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO door_link (hash, id, kind, account_id, role, email, created_by, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			l.Hash[:], l.ID, string(l.Kind), l.AccountID, string(l.Role), l.Email, l.CreatedBy, micros(l.CreatedAt), micros(l.ExpiresAt))
		if err != nil {
			return err
		}
		target := l.AccountID
		if target == "" {
			target = l.ID
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.LinkCreate, Target: target}, nil, linkFacts(l))
	})
}

// linkFacts are what the audit log says of a link.
func linkFacts(l member.Link) map[string]any {
	return map[string]any{"link": l.ID, "kind": string(l.Kind), "email": l.Email, "role": string(l.Role), "expires_at": moment(l.ExpiresAt)}
}

const linkColumns = `hash, id, kind, account_id, role, email, created_by, created_at, expires_at, used_at`

func scanLink(scan func(...any) error, l *member.Link) error {
	var hash []byte
	var created, expires, used sql.NullInt64
	if err := scan(&hash, &l.ID, &l.Kind, &l.AccountID, &l.Role, &l.Email, &l.CreatedBy, &created, &expires, &used); err != nil {
		return err
	}
	copy(l.Hash[:], hash)
	l.CreatedAt, l.ExpiresAt, l.UsedAt = instant(created), instant(expires), instant(used)
	return nil
}

// Link returns the link of that hash, or [member.ErrLinkUnknown].
func (d *DB) Link(ctx context.Context, hash member.Hash) (l member.Link, err error) {
	err = scanLink(d.read.QueryRowContext(ctx, `SELECT `+linkColumns+` FROM door_link WHERE hash = $1`, hash[:]).Scan, &l)
	if errors.Is(err, sql.ErrNoRows) {
		return member.Link{}, member.ErrLinkUnknown
	}
	return l, err
}

// Enter uses a link, which must be good at that time.
func (d *DB) Enter(ctx context.Context, hash member.Hash, e member.Entry) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var l member.Link
		err := scanLink(tx.QueryRowContext(ctx, `SELECT `+linkColumns+` FROM door_link WHERE hash = $1`, hash[:]).Scan, &l)
		if errors.Is(err, sql.ErrNoRows) {
			return member.ErrLinkUnknown
		}
		if err != nil {
			return err
		}
		at := e.Session.CreatedAt
		if err := l.Check(at); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE door_link SET used_at = $1 WHERE hash = $2`, micros(at), hash[:]); err != nil {
			return err
		}
		id, err := welcome(ctx, tx, e, l.Kind)
		if err != nil {
			return err
		}
		ctx = audit.WithActor(ctx, id)
		if l.Role != member.None {
			if err := join(ctx, tx, member.Membership{AccountID: l.AccountID, MemberID: id, Role: l.Role, CreatedAt: at}); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM session WHERE hash = $1`, e.Replaces[:]); err != nil {
			return err
		}
		e.Session.MemberID = id
		return insertSession(ctx, tx, e.Session)
	})
}

// welcome makes the member of an entry, or gives the one of its email what the entry says,
// and returns its id.
func welcome(ctx context.Context, tx *sql.Tx, e member.Entry, kind member.LinkKind) (string, error) {
	m := e.Member
	old, err := memberBy(tx.QueryRowContext(ctx, `SELECT `+memberColumns+` FROM member m WHERE m.email = $1`, m.Email))
	if errors.Is(err, member.ErrNotFound) {
		_, err := tx.ExecContext(ctx, `INSERT INTO member (id, email, operator, password, created_at) VALUES ($1, $2, $3, $4, $5)`,
			m.ID, m.Email, m.Operator, m.Password, micros(m.CreatedAt))
		if err != nil {
			return "", err
		}
		return m.ID, recordMember(audit.WithActor(ctx, m.ID), tx, audit.MemberCreate, m.ID, map[string]any{"email": m.Email, "operator": m.Operator})
	}
	if err != nil || e.Known {
		return old.ID, err
	}
	if kind != member.OperatorLink {
		return "", member.ErrKnown
	}
	if _, err := tx.ExecContext(ctx, `UPDATE member SET password = $1, operator = operator OR $2, totp = NULL WHERE id = $3`, m.Password, m.Operator, old.ID); err != nil {
		return "", err
	}
	for _, text := range []string{`DELETE FROM session WHERE member_id = $1`, `DELETE FROM recovery_code WHERE member_id = $1`} {
		if _, err := tx.ExecContext(ctx, text, old.ID); err != nil {
			return "", err
		}
	}
	return old.ID, recordMember(audit.WithActor(ctx, old.ID), tx, audit.MemberUpdate, old.ID,
		map[string]any{"password": "changed", "operator": old.Operator || m.Operator, "codes": "off"})
}

// join gives a member a place in an account; a lesser place than it has changes nothing.
func join(ctx context.Context, tx *sql.Tx, m member.Membership) error {
	if !m.Role.Valid() {
		return fmt.Errorf("%w: %s", member.ErrRole, m.Role)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO membership (account_id, member_id, role, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (account_id, member_id) DO UPDATE SET role = excluded.role WHERE excluded.role = 'owner'`,
		m.AccountID, m.MemberID, string(m.Role), micros(m.CreatedAt))
	if err != nil {
		return err
	}
	return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.MemberJoin, Target: m.AccountID}, nil,
		map[string]any{"member": m.MemberID, "role": string(m.Role)})
}
