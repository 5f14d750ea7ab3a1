// Package member knows the people who sign in to the console: what they prove
// themselves with, the accounts they belong to and in which role, and their sessions.
//
// [Gate] lets them in. Secrets leave it once, when they are made, and are kept as
// hashes: a password as argon2id, tokens of 256 random bits as SHA-256.
package member

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// Role is what a member may do in an account.
type Role string

// The roles, from least to most.
const (
	None    Role = ""
	Regular Role = "member"
	Owner   Role = "owner"
)

// Valid reports whether somebody can have the role.
func (r Role) Valid() bool { return r == Regular || r == Owner }

// Member is a person who signs in.
type Member struct {
	ID       string
	Email    string // as [Email] makes it
	Operator bool   // may do everything, in every account
	// Password is a PHC string of argon2id; empty where a passkey is all there is.
	Password string
	// TOTP is the secret of one-time codes; nil where none are asked for.
	TOTP      []byte
	TOTPStep  int64  // of the last code that was used
	Theme     string // "light", "dark", or empty as the system has it
	Shortcuts bool   // single keys act
	CreatedAt time.Time
}

// Membership is a member's place in an account.
type Membership struct {
	AccountID string
	MemberID  string
	Role      Role
	CreatedAt time.Time
}

// Belonging is an account of whoever has the email.
type Belonging struct{ Email, AccountID string }

// Person is a member as those it works with see it.
type Person struct {
	Member
	Role     Role
	Since    time.Time // that it belongs to the account
	Passkeys int
	SeenAt   time.Time // zero for who is signed in nowhere
}

// Methods says how the person signs in.
func (p Person) Methods() string {
	var all []string
	if p.Passkeys > 0 {
		all = append(all, "passkey")
	}
	if p.Password != "" {
		all = append(all, "password")
	}
	if p.TOTP != nil {
		all = append(all, "codes")
	}
	return strings.Join(all, ", ")
}

// Errors of this package.
var (
	ErrNotFound = errors.New("no such member")
	ErrEmail    = errors.New("an email address has a name, an @ and a domain, 254 characters at most")
	ErrWeak     = errors.New("a password has 12 to 256 characters")
	ErrRole     = errors.New("a role is owner or member")
	// ErrWrong means that what was given does not prove the member; it never says what was wrong.
	ErrWrong = errors.New("email or password is wrong")
	// ErrBusy means that too many proofs are being computed.
	ErrBusy = errors.New("too many sign-ins at once")
	// ErrNoSession means that a token opens nothing: it is unknown, has ended, or was never one.
	ErrNoSession = errors.New("not signed in")
	// ErrLinkUnknown, ErrLinkExpired and [*UsedError] say why a link leads nowhere.
	ErrLinkUnknown = errors.New("no such link")
	ErrLinkExpired = errors.New("the link has expired")
	// ErrKnown means that an invitation is for a member, who must sign in to accept it.
	ErrKnown = errors.New("a member of that email exists")
	// ErrLastOwner means that an account would have nobody left who may change it.
	ErrLastOwner = errors.New("the last owner of an account")
	// ErrLastMethod means that the member could not sign in any more.
	ErrLastMethod = errors.New("the last way to sign in")
)

// UsedError is a link that has let somebody in already.
type UsedError struct{ At time.Time }

func (e *UsedError) Error() string { return "the link was used at " + e.At.Format(time.RFC3339) }

// ThrottledError refuses a try that comes too soon after others.
type ThrottledError struct{ Until time.Time }

func (e *ThrottledError) Error() string {
	return "too many tries until " + e.Until.Format(time.RFC3339)
}

// Email is the address as members are found by it: trimmed and in lower case, so that one
// person is one member. It fails with [ErrEmail]. Whether it exists only mail can tell.
func Email(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	name, domain, ok := strings.Cut(s, "@")
	if !ok || name == "" || domain == "" || len(s) > 254 || !utf8.ValidString(s) || strings.ContainsAny(s, " \t\r\n<>,;:\\\"()") || strings.Contains(domain, "@") {
		return "", ErrEmail
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return "", ErrEmail
		}
	}
	return s, nil
}

// Store keeps members. Each method is one transaction; what changes something is in the
// audit log, with the actor of its context.
type Store interface {
	// MemberByEmail fails with [ErrNotFound].
	MemberByEmail(ctx context.Context, email string) (Member, error)
	// Visitor returns the session of that hash and whose it is; [ErrNoSession] without one.
	Visitor(ctx context.Context, hash Hash) (Visitor, error)
	// Member fails with [ErrNotFound].
	Member(ctx context.Context, id string) (Member, error)
	// SignIn adds a session, and deletes the one that it replaces and those that have ended.
	SignIn(ctx context.Context, a Arrival) error
	// UseCode opens the session of hash as s, by a proof that nobody has used. It fails with
	// [ErrWrong] or [ErrNoSession].
	UseCode(ctx context.Context, hash Hash, s Session, p Proof) error
	// SetCodes gives a member the secret of one-time codes, or none, and recovery codes, and
	// ends all its sessions but the one of that id.
	SetCodes(ctx context.Context, memberID, sessionID string, secret []byte, step int64, recovery []Hash) error
	// Passkeys returns those of a member, the first made first.
	Passkeys(ctx context.Context, memberID string) ([]Passkey, error)
	// AddPasskey adds a passkey. It fails with [ErrWrong] for one that somebody has.
	AddPasskey(ctx context.Context, p Passkey) error
	// RemovePasskey fails with [ErrNotFound], and with [ErrLastMethod] where the member could
	// not sign in without it.
	RemovePasskey(ctx context.Context, memberID string, id []byte) error
	// TouchSession notes that a session was used.
	TouchSession(ctx context.Context, hash Hash, at time.Time) error
	// TurnSession gives the session of hash the token, account, stage and proof of s.
	TurnSession(ctx context.Context, hash Hash, s Session) error
	// EndSession deletes the session of that id where it is one of the member's.
	EndSession(ctx context.Context, memberID, id string) error
	// EndOthers deletes all sessions of a member but the one of that id.
	EndOthers(ctx context.Context, memberID, id string) error
	// Sessions returns those of a member, the last used first.
	Sessions(ctx context.Context, memberID string) ([]Session, error)
	// CreateLink adds a link.
	CreateLink(ctx context.Context, l Link) error
	// Link fails with [ErrLinkUnknown].
	Link(ctx context.Context, hash Hash) (Link, error)
	// Enter uses the link of that hash: it makes the member of that email, or changes it where
	// the link is an operator's, gives it the link's place in the account, and adds the
	// session. It fails with [ErrLinkUnknown], [*UsedError], [ErrLinkExpired] or [ErrKnown].
	Enter(ctx context.Context, hash Hash, e Entry) error
	// People returns the members of an account, owners first, each by email.
	Belongings(ctx context.Context, email string, most int) ([]Belonging, error)
	People(ctx context.Context, accountID string) ([]Person, error)
	// SetRole changes a member's role in an account. It fails with [ErrNotFound], and with
	// [ErrLastOwner] where no owner would be left.
	SetRole(ctx context.Context, m Membership) error
	// Remove takes a member's place in an account. It fails as SetRole does.
	Remove(ctx context.Context, accountID, memberID string) error
	// Invitations returns those of an account that are good at that time, the last first.
	Invitations(ctx context.Context, accountID string, now time.Time) ([]Link, error)
	// RevokeLink makes an invitation of an account worthless. It fails with [ErrLinkUnknown]
	// for one that was used.
	RevokeLink(ctx context.Context, accountID, id string) error
	// SetPassword changes a member's password and ends all its sessions but the one of that id.
	SetPassword(ctx context.Context, memberID, password, sessionID string) error
	// SetTaste writes how a member likes the console: its theme and shortcuts.
	SetTaste(ctx context.Context, m Member) error
}
