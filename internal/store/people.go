package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
)

// People returns the members of an account, owners first, each by email.
func (d *DB) People(ctx context.Context, accountID string) ([]member.Person, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+memberColumns+`, p.role, p.created_at,
			(SELECT count(*) FROM passkey k WHERE k.member_id = m.id), (SELECT max(s.seen_at) FROM session s WHERE s.member_id = m.id AND s.stage = 'open')
		FROM membership p JOIN member m ON m.id = p.member_id WHERE p.account_id = $1 ORDER BY p.role = 'owner' DESC, m.email`, accountID)
	return rows(rs, err, func(rs *sql.Rows, p *member.Person) error {
		var since, seen sql.NullInt64
		places, done := scanMember(&p.Member)
		err := rs.Scan(append(places, &p.Role, &since, &p.Passkeys, &seen)...)
		done()
		p.Since, p.SeenAt = instant(since), instant(seen)
		return err
	})
}

// Belongings returns at most that many accounts of members whose email begins so, in whatever
// case, by email.
func (d *DB) Belongings(ctx context.Context, email string, most int) ([]member.Belonging, error) {
	email = strings.ToLower(email) // as they are kept
	rs, err := d.read.QueryContext(ctx, `SELECT m.email, p.account_id FROM member m JOIN membership p ON p.member_id = m.id
		WHERE m.email >= $1 AND m.email < $2 ORDER BY m.email, p.account_id LIMIT $3`, email, email+"\U0010FFFF", most)
	return rows(rs, err, func(rs *sql.Rows, b *member.Belonging) error { return rs.Scan(&b.Email, &b.AccountID) })
}

// Emails returns those of the members among ids.
func (d *DB) Emails(ctx context.Context, ids []string) (map[string]string, error) {
	emails := map[string]string{}
	for _, id := range ids {
		rs, err := d.read.QueryContext(ctx, `SELECT email FROM member WHERE id = $1`, id)
		found, err := rows(rs, err, func(rs *sql.Rows, email *string) error { return rs.Scan(email) })
		if err != nil {
			return nil, err
		}
		if len(found) == 1 {
			emails[id] = found[0]
		}
	}
	return emails, nil
}

// SetRole changes a member's role in an account.
func (d *DB) SetRole(ctx context.Context, m member.Membership) error {
	return d.changePlace(ctx, m.AccountID, m.MemberID, m.Role)
}

// Remove takes a member's place in an account.
func (d *DB) Remove(ctx context.Context, accountID, memberID string) error {
	return d.changePlace(ctx, accountID, memberID, member.None)
}

// changePlace gives a member another role in an account, or none, and sees that an owner is left.
func (d *DB) changePlace(ctx context.Context, accountID, memberID string, role member.Role) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var old member.Role
		err := tx.QueryRowContext(ctx, `SELECT role FROM membership WHERE account_id = $1 AND member_id = $2`, accountID, memberID).Scan(&old)
		if errors.Is(err, sql.ErrNoRows) {
			return member.ErrNotFound
		}
		if err != nil {
			return err
		}
		action := audit.MemberRole
		if role == member.None {
			action = audit.MemberRemove
			_, err = tx.ExecContext(ctx, `DELETE FROM membership WHERE account_id = $1 AND member_id = $2`, accountID, memberID)
		} else {
			_, err = tx.ExecContext(ctx, `UPDATE membership SET role = $1 WHERE account_id = $2 AND member_id = $3`, string(role), accountID, memberID)
		}
		if err != nil {
			return err
		}
		var owners int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM membership WHERE account_id = $1 AND role = 'owner'`, accountID).Scan(&owners); err != nil {
			return err
		}
		if owners == 0 && old == member.Owner {
			return member.ErrLastOwner
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: action, Target: accountID},
			map[string]any{"member": memberID, "role": string(old)}, map[string]any{"member": memberID, "role": string(role)})
	})
}

// Invitations returns those of an account that are good at that time, the last first.
func (d *DB) Invitations(ctx context.Context, accountID string, now time.Time) ([]member.Link, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+linkColumns+` FROM door_link
		WHERE account_id = $1 AND kind = 'invitation' AND used_at IS NULL AND expires_at > $2 ORDER BY id DESC`, accountID, micros(now))
	return rows(rs, err, func(rs *sql.Rows, l *member.Link) error { return scanLink(rs.Scan, l) })
}

// RevokeLink deletes an invitation of an account that nobody has used.
func (d *DB) RevokeLink(ctx context.Context, accountID, id string) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM door_link WHERE account_id = $1 AND id = $2 AND kind = 'invitation' AND used_at IS NULL`, accountID, id)
		if err := one(res, err, member.ErrLinkUnknown); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.LinkRevoke, Target: accountID}, nil, map[string]any{"link": id})
	})
}
