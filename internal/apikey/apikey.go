// Package apikey mints, keeps and checks the keys that callers present.
//
// [Keyring] answers from memory: a key that is unknown costs one hash and one map
// lookup and never touches the database.
package apikey

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// Key is what is known of a key; its secret is not. A value is never changed; a
// change makes another. Zero times mean never.
type Key struct {
	ID         string
	AccountID  string
	CreatedBy  string // the id of a member; empty where it was the operator, at the command line
	Name       string
	Prefix     string // the secret's first characters
	Last4      string // and its last
	Hash       [sha256.Size]byte
	Models     []string // the models it is restricted to; nil allows all
	Scopes     account.Scopes
	Networks   []netip.Prefix // those it may be used from, as ParseNetworks makes them; nil is everywhere
	Budget     account.Budget
	RPM        int64 // requests in any minute, in addition to the plan's; 0 is no limit
	TPM        int64 // tokens
	CreatedAt  time.Time
	ExpiresAt  time.Time
	RevokedAt  time.Time
	LastUsedAt time.Time
	ReplacedBy string // the id of the key that Rotate made
	// CountedAs is the id that its limits are counted under, of the first of the keys that
	// have taken each other's place: a limit is the key's, however many secrets it has. The
	// keyring sets it.
	CountedAs string
}

// Status is "active", "expired" or "revoked" at that time.
func (k *Key) Status(now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked"
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return "expired"
	}
	return "active"
}

// Errors of [Keyring.Authenticate] and of changes to keys.
var (
	ErrMissing   = errors.New("no API key given")
	ErrMalformed = errors.New("malformed API key")
	ErrRevoked   = account.ErrRevoked
	ErrExpired   = errors.New("API key expired")
	ErrSuspended = account.ErrSuspended
	ErrNotFound  = errors.New("no such key")
	ErrName      = errors.New("key name must have 1 to 100 printable characters")
	ErrExpiry    = errors.New("expiry lies in the past or after the year 9999")
	ErrLimit     = errors.New("a limit of a key lies between 1 and the limit of its account's plan")
)

// UnknownError is a key that nobody has: mistyped, deleted or invented.
type UnknownError struct {
	Token string // as presented, printable ASCII, at most 512 bytes; to be masked before it is shown
}

func (e *UnknownError) Error() string { return "unknown API key" }

// DeniedError is a key that is known and does not work: Err is [ErrSuspended], [ErrRevoked]
// or [ErrExpired].
type DeniedError struct {
	KeyID, AccountID string
	Err              error
}

func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *DeniedError) Unwrap() error { return e.Err }

// Store keeps keys.
type Store interface {
	Keys(ctx context.Context) ([]Key, error)
	CreateKey(ctx context.Context, k Key) error
	// UpdateKey writes what [Keyring.Change] can change of a key that is not revoked.
	UpdateKey(ctx context.Context, k Key) error
	// RevokeKey sets the time of revocation of a key that has none.
	RevokeKey(ctx context.Context, id string, at time.Time) error
	// ReplaceKey adds the key by and writes the end of old, which it replaces. It fails
	// with [ErrReplaced] when old has an end already.
	ReplaceKey(ctx context.Context, old, by Key) error
	// TouchKeys records when keys were last used.
	TouchKeys(ctx context.Context, used map[string]time.Time) error
}

// entry is a key in memory with the one thing about it that changes in place.
type entry struct {
	Key
	used *minute
	life *account.Life // ends when the key is revoked
}

// Keyring is every key in memory. It is safe for concurrent use; Authenticate
// takes no lock.
type Keyring struct {
	store    Store
	accounts *account.Directory
	byHash   sync.Map   // [32]byte -> *entry
	mu       sync.Mutex // held over every change
	byID     map[string]*entry
}

// NewKeyring returns an empty keyring over store.
func NewKeyring(store Store, accounts *account.Directory) *Keyring {
	return &Keyring{store: store, accounts: accounts, byID: map[string]*entry{}}
}

// Load reads every key from the store.
func (r *Keyring) Load(ctx context.Context) error {
	keys, err := r.store.Keys(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := map[string]string{} // by the id of the key that took its place
	for _, k := range keys {
		if k.ReplacedBy != "" {
			before[k.ReplacedBy] = k.ID
		}
	}
	for _, k := range keys {
		for k.CountedAs = k.ID; before[k.CountedAs] != ""; {
			k.CountedAs = before[k.CountedAs]
		}
		r.put(&entry{Key: k, used: newMinute(k.LastUsedAt), life: account.NewLife()})
	}
	return nil
}

func (r *Keyring) put(e *entry) {
	r.byHash.Store(e.Hash, e)
	r.byID[e.ID] = e
}

// NewKey is what its maker decides of a key. Zero ExpiresAt is never; nil Models
// is all; no Scopes are the default;
// no Networks, as [ParseNetworks] makes them, is everywhere.
type NewKey struct {
	AccountID string
	CreatedBy string // the id of a member; empty is none
	Name      string
	ExpiresAt time.Time
	Models    []string
	Scopes    account.Scopes
	Networks  []netip.Prefix
	Budget    account.Budget // without an id; no Amount is none
	RPM, TPM  int64          // 0 is no limit of the key's own
}

// Create makes a key and returns its secret, which nothing can show again. It fails
// with [account.ErrNotFound], [ErrName], [ErrLimit] or [ErrExpiry].
func (r *Keyring) Create(ctx context.Context, n NewKey) (Key, Secret, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	a, ok := r.accounts.ByID(n.AccountID)
	if !ok {
		return Key{}, "", account.ErrNotFound
	}
	if plan, ok := r.accounts.Plan(a.PlanAt(now)); ok && (!within(n.RPM, plan.RPM) || !within(n.TPM, plan.TPM)) {
		return Key{}, "", ErrLimit
	}
	if !printable(n.Name) {
		return Key{}, "", ErrName
	}
	if !n.ExpiresAt.IsZero() && !canEnd(n.ExpiresAt.UTC().Truncate(time.Microsecond), now) {
		return Key{}, "", ErrExpiry
	}
	secret, id := mint(), ident.New(ident.Key)
	k := Key{
		ID: id, CountedAs: id, AccountID: n.AccountID, CreatedBy: n.CreatedBy, Name: n.Name,
		Prefix: secret.Prefix(), Last4: secret.Last4(), Hash: secret.Hash(),
		Models: slices.Clone(n.Models), Scopes: cmp.Or(n.Scopes, account.DefaultScopes), Networks: slices.Clone(n.Networks), Budget: budgetOf(n.Budget, ""),
		RPM: n.RPM, TPM: n.TPM, CreatedAt: now,
	}
	if !n.ExpiresAt.IsZero() {
		k.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Microsecond) // as it is stored
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.store.CreateKey(ctx, k); err != nil {
		return Key{}, "", err
	}
	r.put(&entry{Key: k, used: newMinute(time.Time{}), life: account.NewLife()})
	return k, secret, nil
}

// Revoke refuses the key from the moment it returns. A key that is revoked already
// keeps the time of its first revocation. It fails with [ErrNotFound].
func (r *Keyring) Revoke(ctx context.Context, id string) (Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.byID[id]
	if !ok {
		return Key{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if !old.RevokedAt.IsZero() {
		return old.view(), nil
	}
	e := &entry{Key: old.Key, used: old.used, life: old.life}
	e.RevokedAt = time.Now().UTC().Truncate(time.Microsecond)
	// The store has no such key to revoke when an earlier revocation was written and
	// its answer lost: then memory is what is behind.
	if err := r.store.RevokeKey(ctx, id, e.RevokedAt); err != nil && !errors.Is(err, ErrNotFound) {
		return Key{}, err
	}
	r.put(e)
	e.life.End(ErrRevoked)
	return e.view(), nil
}

// Find returns the key of that id.
func (r *Keyring) Find(id string) (Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byID[id]
	if !ok {
		return Key{}, false
	}
	return e.view(), true
}

// List returns the keys of an account, oldest first.
func (r *Keyring) List(accountID string) []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ks []Key
	for _, e := range r.byID {
		if e.AccountID == accountID {
			ks = append(ks, e.view())
		}
	}
	slices.SortFunc(ks, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	return ks
}

// Search returns at most that many keys that match, of whatever account, oldest first. match
// may neither keep nor change what it is given.
func (r *Keyring) Search(most int, match func(*Key) bool) []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ks []Key
	for _, e := range r.byID {
		if match(&e.Key) {
			ks = append(ks, e.view())
		}
	}
	slices.SortFunc(ks, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	return ks[:min(most, len(ks))]
}

func (e *entry) view() Key {
	k := e.Key
	k.LastUsedAt = e.used.time()
	return k
}

// Authenticate says who presents the values of an Authorization header. It fails
// with [ErrMissing], [ErrMalformed], [*UnknownError] or [*DeniedError]; a suspended account comes before every other state of a valid key.
func (r *Keyring) Authenticate(values []string, now time.Time) (*account.Principal, error) {
	token, err := bearer(values)
	if err != nil {
		return nil, err
	}
	secret, ok := ParseSecret(token)
	if !ok {
		return nil, &UnknownError{Token: token}
	}
	// The lookup is by a hash of 256 bits that no caller can steer, so how long it
	// takes says nothing about keys that exist.
	v, ok := r.byHash.Load(secret.Hash())
	if !ok {
		return nil, &UnknownError{Token: token}
	}
	e := v.(*entry)
	life := r.accounts.Life(e.AccountID)
	a, ok := r.accounts.ByID(e.AccountID)
	if !ok {
		return nil, &UnknownError{Token: token}
	}
	if a.Status != account.Active {
		return nil, &DeniedError{KeyID: e.ID, AccountID: a.ID, Err: ErrSuspended}
	}
	switch e.Status(now) {
	case "revoked":
		return nil, &DeniedError{KeyID: e.ID, AccountID: a.ID, Err: ErrRevoked}
	case "expired":
		return nil, &DeniedError{KeyID: e.ID, AccountID: a.ID, Err: ErrExpired}
	}
	e.used.stamp(now)
	id := a.PlanAt(now)
	plan, ok := r.accounts.Plan(id)
	if !ok { // a plan that left the configuration opens nothing
		plan = &account.Plan{ID: id}
	}
	return &account.Principal{
		Account: a, Plan: plan, KeyID: e.ID, KeyName: e.Name, CountedAs: e.CountedAs, Models: e.Models, Scopes: e.Scopes, Networks: e.Networks,
		KeyLimits: ratelimit.Limits{Requests: e.RPM, Tokens: e.TPM}, Budget: e.Budget, KeyLife: e.life, AccountLife: life,
	}, nil
}

// canEnd reports whether a key can end at t, in UTC: later than now, and in a year of four digits,
// as RFC 3339 writes them. A list with another could not be answered as JSON.
func canEnd(t, now time.Time) bool { return t.After(now) && t.Year() <= 9999 }

func printable(s string) bool {
	if n := utf8.RuneCountInString(s); n < 1 || n > 100 || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
