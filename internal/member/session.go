package member

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/parley-ai/parley/internal/ident"
)

// How long sessions last (OWASP's figures for what money depends on).
const (
	IdleLimit = 12 * time.Hour
	LifeLimit = 7 * 24 * time.Hour
	// CodeLimit is how long a password waits for its code.
	CodeLimit = 10 * time.Minute
	// ProofLimit is how old the last proof may be for what is sensitive.
	ProofLimit = 10 * time.Minute
	// touchEvery bounds how often a session that is in use is written.
	touchEvery = time.Minute
)

// Token is the secret of a session or a link: 256 random bits in 43 characters.
type Token string

// Hash is what is kept of a token. The zero Hash is that of none.
type Hash [sha256.Size]byte

func newToken() Token {
	var b [32]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return Token(base64.RawURLEncoding.EncodeToString(b[:]))
}

// Hash is the token's SHA-256: 256 random bits have no dictionary, so nothing slower is needed.
func (t Token) Hash() Hash { return sha256.Sum256([]byte(t)) }

// Stage says how far a session has come.
type Stage string

// The stages of a session.
const (
	Open Stage = "open" // signed in
	Code Stage = "code" // the password was right, a one-time code is missing
)

// Session is one browser that is signed in, or about to be.
type Session struct {
	ID        string
	Hash      Hash
	MemberID  string
	AccountID string // that is looked at; empty is none
	Stage     Stage
	From      From
	CreatedAt time.Time
	SeenAt    time.Time // to a minute
	ProvedAt  time.Time // when the member last proved who it is
}

// Arrival is a sign-in.
type Arrival struct {
	Session Session
	// Replaces is the session that it takes the place of; the zero Hash is none.
	Replaces Hash
	// Password, where it is not empty, takes the place of the member's: the same one with a
	// better hash.
	Password string
	// Passkey is the one that was used, as it is now; nil is none.
	Passkey *Passkey
}

// From says where a request comes from, for lists that people read.
type From struct {
	Address string // without a port
	Agent   string // as the browser calls itself
}

// Ended reports whether the session is over at that time.
func (s *Session) Ended(now time.Time) bool {
	if s.Stage == Code {
		return now.After(s.CreatedAt.Add(CodeLimit))
	}
	return now.After(s.SeenAt.Add(IdleLimit)) || now.After(s.CreatedAt.Add(LifeLimit))
}

// EndsAt is when the session ends if nothing more is asked.
func (s *Session) EndsAt() time.Time {
	idle, life := s.SeenAt.Add(IdleLimit), s.CreatedAt.Add(LifeLimit)
	if idle.Before(life) {
		return idle
	}
	return life
}

// Proved reports whether the member has proved itself recently enough for what is sensitive.
func (s *Session) Proved(now time.Time) bool { return now.Before(s.ProvedAt.Add(ProofLimit)) }

// Visitor is who presents a session.
type Visitor struct {
	Session     Session
	Member      Member
	Memberships []Membership // in the order of the accounts' ids, which is that of their age
}

// Role is the member's in an account, [None] where it has no place.
func (v *Visitor) Role(accountID string) Role {
	for _, m := range v.Memberships {
		if m.AccountID == accountID {
			return m.Role
		}
	}
	return None
}

// newSession begins a session of a member.
func newSession(memberID, accountID string, stage Stage, from From, now time.Time) (Token, Session) {
	t := newToken()
	now = now.UTC().Truncate(time.Microsecond) // as it is stored
	return t, Session{
		ID: ident.New(ident.Session), Hash: t.Hash(), MemberID: memberID, AccountID: accountID, Stage: stage,
		From: from.clip(), CreatedAt: now, SeenAt: now, ProvedAt: now,
	}
}

// clip bounds what a client says of itself.
func (f From) clip() From {
	return From{Address: f.Address[:min(len(f.Address), 64)], Agent: f.Agent[:min(len(f.Agent), 256)]}
}
