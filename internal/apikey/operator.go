package apikey

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/ident"
)

// operatorPrefix begins the tokens of operators, which are made like keys: "op-parley-",
// 43 random characters (256 bits) and a checksum of 6.
const operatorPrefix = "op-parley-"

// Token is what is known of an operator's token; its text is not. Zero times mean never.
type Token struct {
	ID         string
	Name       string
	Prefix     string // the text's first characters
	Hash       [sha256.Size]byte
	CreatedAt  time.Time
	CreatedBy  string
	ExpiresAt  time.Time
	RevokedAt  time.Time
	LastUsedAt time.Time // to the minute
}

// Status is "active", "expired" or "revoked" at that time.
func (t *Token) Status(now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked"
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return "expired"
	}
	return "active"
}

// ErrToken means a text that is no operator's token, or one that does not work any more.
var ErrToken = errors.New("no such operator token")

// TokenStore keeps the tokens of operators.
type TokenStore interface {
	Tokens(ctx context.Context) ([]Token, error)
	CreateToken(ctx context.Context, t Token) error
	// RevokeToken sets the time of revocation of a token that has none.
	RevokeToken(ctx context.Context, id string, at time.Time) error
	// TouchToken records when a token was last used.
	TouchToken(ctx context.Context, id string, at time.Time) error
}

// Tokens is every operator's token in memory. It is safe for concurrent use.
type Tokens struct {
	store  TokenStore
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*Token
}

// NewTokens returns no tokens over store.
func NewTokens(store TokenStore) *Tokens {
	return &Tokens{store: store, byHash: map[[sha256.Size]byte]*Token{}}
}

// Load reads every token from the store.
func (s *Tokens) Load(ctx context.Context) error {
	all, err := s.store.Tokens(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range all {
		s.byHash[t.Hash] = &t
	}
	return nil
}

// Create makes a token and returns its text, which nothing can show again. Zero expires is
// never. It fails with [ErrName] or [ErrExpiry].
func (s *Tokens) Create(ctx context.Context, name, by string, expires time.Time) (Token, string, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if !printable(name) {
		return Token{}, "", ErrName
	}
	expires = expires.UTC().Truncate(time.Microsecond)
	if !expires.IsZero() && !canEnd(expires, now) {
		return Token{}, "", ErrExpiry
	}
	text := mintToken(operatorPrefix)
	t := Token{ID: ident.New(ident.Token), Name: name, Prefix: text.Prefix(), Hash: text.Hash(), CreatedAt: now, CreatedBy: by, ExpiresAt: expires}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.CreateToken(ctx, t); err != nil {
		return Token{}, "", err
	}
	s.byHash[t.Hash] = &t
	return t, string(text), nil
}

// Revoke refuses the token from the moment it returns. One that is revoked already keeps
// the time of its first revocation. It fails with [ErrToken].
func (s *Tokens) Revoke(ctx context.Context, id string) (Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byHash {
		if t.ID != id {
			continue
		}
		if t.RevokedAt.IsZero() {
			at := time.Now().UTC().Truncate(time.Microsecond)
			if err := s.store.RevokeToken(ctx, id, at); err != nil {
				return Token{}, err
			}
			t.RevokedAt = at
		}
		return *t, nil
	}
	return Token{}, fmt.Errorf("%w: %.64s", ErrToken, id)
}

// List returns every token, oldest first.
func (s *Tokens) List() []Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Token, 0, len(s.byHash))
	for _, t := range s.byHash {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Token) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Authenticate says whose token the values of an Authorization header present. It fails
// with [ErrToken] whatever is wrong.
func (s *Tokens) Authenticate(ctx context.Context, values []string, now time.Time) (Token, error) {
	text, err := bearer(values)
	if err != nil {
		return Token{}, ErrToken
	}
	secret, ok := parseSecret(operatorPrefix, text)
	if !ok {
		return Token{}, ErrToken
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.byHash[secret.Hash()]
	if !ok || t.Status(now) != "active" {
		return Token{}, ErrToken
	}
	if minute := now.UTC().Truncate(time.Minute); minute.After(t.LastUsedAt) {
		if err := s.store.TouchToken(ctx, t.ID, minute); err != nil {
			return Token{}, err
		}
		t.LastUsedAt = minute
	}
	return *t, nil
}
