// Package account knows who pays: accounts, the plans they are on, and the
// principal that a request acts for.
//
// [Directory] answers from memory, without a lock; the store is the truth.
package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/subscription"
)

// Status says whether an account may make calls.
type Status string

// The states of an account.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// Account is one customer: it owns keys and credit. A value is never changed;
// a change makes another.
type Account struct {
	ID        string
	Name      string
	Plan      string // the id of a Plan
	Status    Status
	CreatedAt time.Time
	// LowCredit is the balance below which its credit is low.
	LowCredit Threshold
	// Subscription is the last one, whether it still runs or not.
	Subscription subscription.Subscription
}

// PlanAt is the id of the plan that applies at that time: the subscription's while it
// runs, else the account's own.
func (a *Account) PlanAt(now time.Time) string {
	if a.Subscription.Applies(now) {
		return a.Subscription.Plan
	}
	return a.Plan
}

// Threshold is an amount that an account has chosen. The zero value is none: what the
// configuration says applies.
type Threshold struct {
	Own    bool
	Amount money.Amount // 0 or more; at 0 nothing is ever below
}

// Or is the amount that applies, where all is what does without one.
func (t Threshold) Or(all money.Amount) money.Amount {
	if t.Own {
		return t.Amount
	}
	return all
}

// Change is what is to be different about an account; nil leaves it.
type Change struct {
	Plan, Status *string
	LowCredit    *Threshold
}

// Plan says what an account may use. Limits of 0 are not set. Plans come from
// the configuration; Version names the immutable row that receipts cite.
type Plan struct {
	ID          string
	RPM         int64 // requests in any minute
	TPM         int64 // tokens in any minute
	Concurrency int64 // calls at once
	// ModelLimits are limits on the calls of a model, in addition; one that is not in it has none.
	ModelLimits map[string]ratelimit.Limits
	// MaxOutput is the most tokens of an answer, beside what its model allows.
	MaxOutput int
	// Terms are what subscribers get. Their Plan and Version are this one's.
	Terms   subscription.Terms
	Rank    int // its place in the configuration: bigger plans come later
	Version string
}

// Limits is what binds an account on the plan, all its keys together.
func (p *Plan) Limits() ratelimit.Limits {
	return ratelimit.Limits{Requests: p.RPM, Tokens: p.TPM, Concurrency: p.Concurrency}
}

// Principal is the caller of one request: a key and the account it spends from.
type Principal struct {
	Account *Account
	Plan    *Plan
	KeyID   string
	KeyName string
	Models  []string // what the key is restricted to; nil allows all
	Scopes  Scopes
	// Networks are those that the key may be used from; nil is everywhere.
	Networks []netip.Prefix
	// KeyLimits bind the key in addition to the plan's, which bind the account. They are
	// counted under CountedAs, an id that a key shares with those whose place it took.
	KeyLimits ratelimit.Limits
	CountedAs string
	Budget    Budget // of the key
	// KeyLife ends when the key is revoked, AccountLife when the account is suspended.
	// A nil Life does not end.
	KeyLife, AccountLife *Life
}

// Watch calls end, once and in a goroutine of its own, when the principal loses the
// right to what it is doing: with [ErrRevoked] or [ErrSuspended]. It is at once if
// that was before. The caller calls stop when it no longer cares.
func (p *Principal) Watch(end func(cause error)) (stop func()) {
	w := &watch{end: end}
	w.key.watch, w.account.watch = w, w
	p.KeyLife.enter(&w.key)
	p.AccountLife.enter(&w.account)
	return w.stop
}

// May reports whether the caller's key allows the model.
func (p *Principal) May(model string) bool {
	return p.Models == nil || slices.Contains(p.Models, model)
}

// Errors of this package.
var (
	ErrExists   = errors.New("an account of that name exists")
	ErrNotFound = errors.New("no such account")
	ErrName     = errors.New("account name must have 1 to 100 printable characters without spaces at its ends")
	ErrPlan     = errors.New("no such plan")
	ErrStatus   = errors.New("status is active or suspended")
	// ErrThreshold is a threshold below 0.
	ErrThreshold = errors.New("a threshold is an amount of 0 or more")
	// ErrSuspended and ErrRevoked say why a principal may not go on.
	ErrSuspended = errors.New("account suspended")
	ErrRevoked   = errors.New("API key revoked")
)

// Store keeps accounts. CreateAccount fails with [ErrExists] for a name in use.
type Store interface {
	Accounts(ctx context.Context) ([]Account, error)
	CreateAccount(ctx context.Context, a Account) error
	// UpdateAccount writes plan, status and threshold.
	UpdateAccount(ctx context.Context, a Account) error
	// Subscription is the last one of an account, the zero value for none.
	Subscription(ctx context.Context, accountID string) (subscription.Subscription, error)
}

// Directory is all accounts and plans in memory. It is safe for concurrent use.
type Directory struct {
	store Store
	plans atomic.Pointer[map[string]*Plan]
	byID  sync.Map   // id -> *Account
	lives sync.Map   // id -> *Life, of those who have called since they were active
	mu    sync.Mutex // held over every change, and for names
	names map[string]string
	// What follows is guarded by mu: see [calendar].
	calendar calendar
	fresh    []string          // accounts whose subscriptions have changed since they were looked at
	looked   *map[string]*Plan // with which plans all were looked at
}

// NewDirectory returns an empty directory over store.
func NewDirectory(store Store) *Directory {
	d := &Directory{store: store, names: map[string]string{}}
	d.SetPlans(nil)
	return d
}

// Load reads every account from the store.
func (d *Directory) Load(ctx context.Context) error {
	all, err := d.store.Accounts(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range all {
		d.put(&a)
	}
	return nil
}

// put makes a the account of its id. The caller has locked d.
func (d *Directory) put(a *Account) {
	old, known := d.ByID(a.ID)
	d.byID.Store(a.ID, a)
	if a.Subscription.ID != "" && (!known || old.Subscription != a.Subscription) {
		d.fresh = append(d.fresh, a.ID)
	}
	d.names[a.Name] = a.ID
}

// SetPlans replaces the plans on offer.
func (d *Directory) SetPlans(plans []Plan) {
	m := make(map[string]*Plan, len(plans))
	for _, p := range plans {
		m[p.ID] = &p
	}
	d.plans.Store(&m)
}

// Plans returns the plans on offer, the smaller ones first.
func (d *Directory) Plans() []Plan {
	var ps []Plan
	for _, p := range *d.plans.Load() {
		ps = append(ps, *p)
	}
	slices.SortFunc(ps, func(a, b Plan) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.ID, b.ID)) })
	return ps
}

// Plan returns the plan of that id. An account can be on a plan that the
// configuration no longer has; it then has access to nothing.
func (d *Directory) Plan(id string) (*Plan, bool) {
	p, ok := (*d.plans.Load())[id]
	return p, ok
}

// ByID returns the account of that id.
func (d *Directory) ByID(id string) (*Account, bool) {
	a, ok := d.byID.Load(id)
	if !ok {
		return nil, false
	}
	return a.(*Account), true
}

// Life lasts until the account is suspended. It must be asked for before the account,
// so that no suspension falls between the two.
func (d *Directory) Life(id string) *Life {
	if l, ok := d.lives.Load(id); ok {
		return l.(*Life)
	}
	l, _ := d.lives.LoadOrStore(id, NewLife())
	return l.(*Life)
}

// ByName returns the account of that name.
func (d *Directory) ByName(name string) (*Account, bool) {
	d.mu.Lock()
	id, ok := d.names[name]
	d.mu.Unlock()
	if !ok {
		return nil, false
	}
	return d.ByID(id)
}

// All returns every account in the order of names.
func (d *Directory) All() []*Account {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*Account, 0, len(d.names))
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if a, ok := d.ByID(d.names[name]); ok {
			all = append(all, a)
		}
	}
	return all
}

// Create makes an active account. It fails with [ErrName], [ErrPlan] or [ErrExists].
func (d *Directory) Create(ctx context.Context, name, plan string) (*Account, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if _, ok := d.Plan(plan); !ok {
		return nil, fmt.Errorf("%w: %s", ErrPlan, plan)
	}
	a := &Account{ID: ident.New(ident.Account), Name: name, Plan: plan, Status: Active, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.store.CreateAccount(ctx, *a); err != nil {
		return nil, err
	}
	d.put(a)
	return a, nil
}

// Change makes the changes of c to the account of that id, all or none. They hold for
// every request that is admitted after it returns. It fails with [ErrNotFound], [ErrPlan],
// [ErrStatus] or [ErrThreshold].
func (d *Directory) Change(ctx context.Context, id string, c Change) (*Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, ok := d.ByID(id)
	if !ok {
		return nil, ErrNotFound
	}
	a := *old
	if c.Plan != nil {
		if _, ok := d.Plan(*c.Plan); !ok {
			return nil, fmt.Errorf("%w: %s", ErrPlan, *c.Plan)
		}
		a.Plan = *c.Plan
	}
	if c.LowCredit != nil {
		if a.LowCredit = *c.LowCredit; a.LowCredit.Amount < 0 {
			return nil, ErrThreshold
		}
	}
	if c.Status != nil {
		if a.Status = Status(*c.Status); a.Status != Active && a.Status != Suspended {
			return nil, ErrStatus
		}
	}
	if err := d.store.UpdateAccount(ctx, a); err != nil {
		return nil, err
	}
	d.put(&a)
	if a.Status == Suspended {
		if l, ok := d.lives.LoadAndDelete(id); ok {
			l.(*Life).End(ErrSuspended)
		}
	}
	return &a, nil
}

func checkName(s string) error {
	if n := utf8.RuneCountInString(s); n < 1 || n > 100 || !utf8.ValidString(s) || s[0] == ' ' || s[len(s)-1] == ' ' {
		return ErrName
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return ErrName
		}
	}
	return nil
}
