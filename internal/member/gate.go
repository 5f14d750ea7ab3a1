package member

import (
	"context"
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/audit"
)

// Credentials are what a person types at the door.
type Credentials struct{ Email, Password string }

// Gate lets members in and knows who is in. Make one with [NewGate]; it is safe for
// concurrent use.
type Gate struct {
	Store Store
	// Now is the clock.
	Now func() time.Time

	hasher    *hasher
	accounts  accountThrottle
	addresses addressThrottle
	pending   memory[CodeSecret] // of members who are turning codes on
}

// NewGate returns a gate over store.
func NewGate(store Store) *Gate {
	return &Gate{
		Store: store, Now: time.Now, hasher: newHasher(),
		accounts:  accountThrottle{memory[guesses]{keep: accountForget}},
		addresses: addressThrottle{memory[time.Time]{keep: 2 * time.Minute}},
		pending:   memory[CodeSecret]{keep: pendingKeep},
	}
}

// SignIn proves a member by its password and begins a session, in the place of the one of
// replaces, if any. The session's stage is [Code] where the member has one-time codes. It
// fails with [ErrWrong], for members that do not exist after as long a time, with
// [*ThrottledError] or with [ErrBusy].
func (g *Gate) SignIn(ctx context.Context, c Credentials, from From, replaces Token) (Token, Session, error) {
	email, err := Email(c.Email)
	if err != nil {
		email = "" // nobody's: it is checked like any other
	}
	now := g.Now()
	if err := g.addresses.try(network(from.Address), now); err != nil {
		return "", Session{}, err
	}
	if err := g.accounts.try(email, now); err != nil {
		return "", Session{}, err
	}
	m, err := g.Store.MemberByEmail(ctx, email)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", Session{}, err
	}
	right, stale, err := g.hasher.verify(ctx, m.Password, c.Password)
	if err != nil {
		return "", Session{}, err
	}
	if !right {
		return "", Session{}, ErrWrong
	}
	better := ""
	if stale {
		if better, err = g.hasher.hash(ctx, c.Password); err != nil {
			return "", Session{}, err
		}
	}
	stage := Open
	if m.TOTP != nil {
		stage = Code
	} else {
		g.accounts.right(email)
	}
	token, s := newSession(m.ID, "", stage, from, now)
	return token, s, g.Store.SignIn(audit.WithActor(ctx, m.ID), Arrival{Session: s, Replaces: replaces.Hash(), Password: better})
}

// Visit returns who presents the token. It fails with [ErrNoSession], or with the store's
// error when it cannot be known.
func (g *Gate) Visit(ctx context.Context, t Token) (*Visitor, error) {
	if len(t) != 43 {
		return nil, ErrNoSession
	}
	v, err := g.Store.Visitor(ctx, t.Hash())
	if err != nil {
		return nil, err
	}
	now := g.Now()
	if v.Session.Ended(now) {
		return nil, ErrNoSession
	}
	if v.Session.Stage == Open && now.Sub(v.Session.SeenAt) > touchEvery {
		v.Session.SeenAt = now.UTC().Truncate(time.Microsecond)
		if err := g.Store.TouchSession(ctx, v.Session.Hash, v.Session.SeenAt); err != nil {
			return nil, err
		}
	}
	return &v, nil
}

// SignOut ends the visitor's session.
func (g *Gate) SignOut(ctx context.Context, v *Visitor) error {
	return g.Store.EndSession(ctx, v.Member.ID, v.Session.ID)
}

// Look chooses the account that the visitor looks at.
func (g *Gate) Look(ctx context.Context, v *Visitor, accountID string) error {
	s := v.Session
	s.AccountID = accountID
	return g.Store.TurnSession(ctx, s.Hash, s)
}

// Prove asks the visitor for its password again and gives its session another token.
// It fails as [Gate.SignIn] does.
func (g *Gate) Prove(ctx context.Context, v *Visitor, password string, from From) (Token, error) {
	if err := g.password(ctx, v, password, from); err != nil {
		return "", err
	}
	return g.proved(ctx, v)
}

// proved notes a proof of the visitor and gives its session another token.
func (g *Gate) proved(ctx context.Context, v *Visitor) (Token, error) {
	s := v.Session
	s.ProvedAt = g.Now().UTC().Truncate(time.Microsecond)
	return g.turn(ctx, s)
}

// password checks the visitor's password.
func (g *Gate) password(ctx context.Context, v *Visitor, password string, from From) error {
	now := g.Now()
	if err := g.addresses.try(network(from.Address), now); err != nil {
		return err
	}
	if err := g.accounts.try(v.Member.Email, now); err != nil {
		return err
	}
	right, _, err := g.hasher.verify(ctx, v.Member.Password, password)
	if err != nil {
		return err
	}
	if !right {
		return ErrWrong
	}
	g.accounts.right(v.Member.Email)
	return nil
}

// turn gives a session another token.
func (g *Gate) turn(ctx context.Context, s Session) (Token, error) {
	old, t := s.Hash, newToken()
	s.Hash = t.Hash()
	return t, g.Store.TurnSession(ctx, old, s)
}

// SetPassword gives the visitor, who has proved itself, another password. Its other sessions
// end, this one gets another token. It fails with [ErrWeak] or [ErrBusy].
func (g *Gate) SetPassword(ctx context.Context, v *Visitor, password string) (Token, error) {
	if err := CheckPassword(password); err != nil {
		return "", err
	}
	hash, err := g.hasher.hash(ctx, password)
	if err != nil {
		return "", err
	}
	if err := g.Store.SetPassword(ctx, v.Member.ID, hash, v.Session.ID); err != nil {
		return "", err
	}
	return g.turn(ctx, v.Session)
}
