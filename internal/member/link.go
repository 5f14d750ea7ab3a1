package member

import (
	"context"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
)

// How long links let somebody in.
const (
	OperatorLinkLimit = time.Hour
	InvitationLimit   = 7 * 24 * time.Hour
)

// LinkKind is what a link is for.
type LinkKind string

// The kinds of links.
const (
	// OperatorLink makes its user an operator. Who has it has the server's own word.
	OperatorLink LinkKind = "operator"
	// Invitation gives its user a place in an account.
	Invitation LinkKind = "invitation"
)

// Link lets somebody in, once.
type Link struct {
	ID        string
	Hash      Hash
	Kind      LinkKind
	AccountID string // that it leads into; empty is none
	Role      Role   // in it
	Email     string // of who is invited; an operator's link asks for it
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    time.Time // zero while it is good
}

// ClaimURL is where an operator's link leads, of the console at base. The token stands behind
// the #, which browsers keep to themselves.
func ClaimURL(base string, t Token) string { return base + "/claim#" + string(t) }

// Check says why the link leads nowhere at that time: [*UsedError], [ErrLinkExpired], or nil.
func (l *Link) Check(now time.Time) error {
	switch {
	case !l.UsedAt.IsZero():
		return &UsedError{At: l.UsedAt}
	case now.After(l.ExpiresAt):
		return ErrLinkExpired
	}
	return nil
}

// Entry is what a link's user becomes.
type Entry struct {
	// Member has the link's email, or the one that was given. Where a member of that email
	// exists only its id counts.
	Member Member
	// Known means that the member exists and has proved itself, so nothing of it changes but
	// its place. Otherwise a known member is one who takes the door again: it gets the
	// password, and loses one-time codes and all sessions.
	Known   bool
	Session Session
	// Replaces is the session that the new one takes the place of.
	Replaces Hash
}

// MakeOperatorLink returns a link that makes its user an operator and, where accountID is
// not empty, an owner of that account.
func (g *Gate) MakeOperatorLink(ctx context.Context, accountID string) (Token, Link, error) {
	l := Link{Kind: OperatorLink, AccountID: accountID, CreatedBy: audit.Actor(ctx)}
	if accountID != "" {
		l.Role = Owner
	}
	return g.makeLink(ctx, l, OperatorLinkLimit)
}

func (g *Gate) makeLink(ctx context.Context, l Link, limit time.Duration) (Token, Link, error) {
	t := newToken()
	now := g.Now().UTC().Truncate(time.Microsecond)
	l.ID, l.Hash, l.CreatedAt, l.ExpiresAt = ident.New(ident.Link), t.Hash(), now, now.Add(limit)
	return t, l, g.Store.CreateLink(ctx, l)
}

// OpenLink returns the link of a token that still leads somewhere. It fails with
// [ErrLinkUnknown], [ErrLinkExpired] or [*UsedError].
func (g *Gate) OpenLink(ctx context.Context, t Token, kind LinkKind) (Link, error) {
	l, err := g.Store.Link(ctx, t.Hash())
	if err != nil {
		return Link{}, err
	}
	if l.Kind != kind {
		return Link{}, ErrLinkUnknown
	}
	return l, l.Check(g.Now())
}

// Claim uses an operator's link: the member of that email signs in with that password from
// now on, whoever it was before, and is an operator. It fails with what [Gate.OpenLink] and
// [Gate.CheckPassword] fail with, and [ErrEmail].
func (g *Gate) Claim(ctx context.Context, t Token, c Credentials, from From) (Token, error) {
	l, err := g.OpenLink(ctx, t, OperatorLink)
	if err != nil {
		return "", err
	}
	return g.enter(ctx, l, c, from)
}

// Join uses an invitation: a new member of the email that was invited, with that password.
// It fails as [Gate.Claim] does, and with [ErrKnown].
func (g *Gate) Join(ctx context.Context, t Token, password string, from From) (Token, error) {
	l, err := g.OpenLink(ctx, t, Invitation)
	if err != nil {
		return "", err
	}
	return g.enter(ctx, l, Credentials{Email: l.Email, Password: password}, from)
}

// Accept uses an invitation for a member who is signed in, and gives its session another
// token. It fails with what [Gate.OpenLink] fails with, and [ErrWrong] for somebody else's.
func (g *Gate) Accept(ctx context.Context, t Token, v *Visitor, from From) (Token, error) {
	l, err := g.OpenLink(ctx, t, Invitation)
	if err != nil {
		return "", err
	}
	if l.Email != v.Member.Email {
		return "", ErrWrong
	}
	token, s := newSession(v.Member.ID, l.AccountID, Open, from, g.Now())
	s.ProvedAt = v.Session.ProvedAt
	return token, g.Store.Enter(ctx, l.Hash, Entry{Member: v.Member, Known: true, Session: s, Replaces: v.Session.Hash})
}

// Invite returns a link that gives whoever has that email a place in an account. It fails
// with [ErrEmail] or [ErrRole].
func (g *Gate) Invite(ctx context.Context, accountID, email string, role Role) (Token, Link, error) {
	email, err := Email(email)
	if err != nil {
		return "", Link{}, err
	}
	if !role.Valid() {
		return "", Link{}, ErrRole
	}
	return g.makeLink(ctx, Link{Kind: Invitation, AccountID: accountID, Role: role, Email: email, CreatedBy: audit.Actor(ctx)}, InvitationLimit)
}

// JoinPath is where an invitation leads.
func JoinPath(t Token) string { return "/join/" + string(t) }

// enter makes the member that a link was for and signs it in.
func (g *Gate) enter(ctx context.Context, l Link, c Credentials, from From) (Token, error) {
	email, err := Email(c.Email)
	if err != nil {
		return "", err
	}
	if err := CheckPassword(c.Password); err != nil {
		return "", err
	}
	if err := g.addresses.try(network(from.Address), g.Now()); err != nil {
		return "", err
	}
	hash, err := g.hasher.hash(ctx, c.Password)
	if err != nil {
		return "", err
	}
	m := Member{ID: ident.New(ident.Member), Email: email, Operator: l.Kind == OperatorLink, Password: hash, Shortcuts: true, CreatedAt: g.Now().UTC().Truncate(time.Microsecond)}
	token, s := newSession(m.ID, l.AccountID, Open, from, g.Now())
	return token, g.Store.Enter(ctx, l.Hash, Entry{Member: m, Session: s})
}
