// Package ratelimit keeps requests, tokens and calls at once within what plans and
// keys allow. Each limit is a sliding window: in any 60 seconds never more than the
// limit is let in, and not 1 % less.
//
// A call passes all of its limits or none: what is refused leaves no trace.
package ratelimit

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// Limits bind an account or a key. 0 is no limit.
type Limits struct {
	Requests    int64 // in any minute
	Tokens      int64 // in any minute
	Concurrency int64 // calls at once
}

// Claim is what a call asks for.
type Claim struct {
	Account, Key string // ids
	// The account's limits bind all its keys together, the key's bind it in addition.
	AccountLimits, KeyLimits Limits
	// ModelLimits bind the account's calls of the model, all its keys together, too.
	Model       string
	ModelLimits Limits
	Tokens      int64 // the most that the call can use
}

// Kind is what was short.
type Kind string

// The kinds of limits.
const (
	Requests    Kind = "requests"
	Tokens      Kind = "tokens"
	Concurrency Kind = "concurrency"
)

// Scope is whose limit it is.
type Scope string

// The scopes of limits.
const (
	AccountScope Scope = "account"
	KeyScope     Scope = "key"
	ModelScope   Scope = "model" // of the account's calls of one model
)

// scopes are those of places.
var scopes = [...]Scope{AccountScope, KeyScope, ModelScope}

// DeniedError is a call that would break a limit.
type DeniedError struct {
	Scope      Scope
	Kind       Kind
	Limit      int64
	Used       int64
	Requested  int64
	RetryAfter time.Duration // when there is room, if nobody else takes it; at most a minute
	Never      bool          // the call alone is above the limit
}

func (d *DeniedError) Error() string {
	return fmt.Sprintf("limit of %d %s: %d used, %d requested", d.Limit, d.Kind, d.Used, d.Requested)
}

// Window is the state of one limit, for the caller to see.
type Window struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until the window is empty
}

// Status is what is left to a caller, of the scope that leaves it least. A Limit of 0
// is none.
type Status struct {
	Requests, Tokens Window
}

// Limiter counts for all accounts of one process. It is safe for concurrent use.
type Limiter struct {
	start time.Time // a minute before New: numbers of slots are never negative

	mu       sync.RWMutex
	accounts map[string]*account
}

// account is an account and its keys, under one lock: a call is checked against all of
// them and then counted in all of them.
type account struct {
	mu    sync.Mutex
	dead  bool // no longer in the limiter's map
	scope scope
	// Models are counted where they are limited, and after a restart.
	keys, models map[string]*scope
}

type scope struct {
	window  window
	running int64
}

// New returns a limiter that has counted nothing. No time given to its methods may be
// more than a minute before now.
func New(now time.Time) *Limiter {
	return &Limiter{start: now.Add(-span), accounts: map[string]*account{}}
}

// Ticket is a call that was let in. Exactly one of Done and Cancel must be called.
type Ticket struct {
	limiter *Limiter
	account *account
	tokens  int64 // claimed
	places  places
}

// places are the scopes that a call is counted in: the account's, the key's and, where it
// is limited, the model's; that of others is nil.
type places [3]place

type place struct {
	scope  *scope
	limits Limits
	in     entry
}

// all calls do for each of them.
func (p *places) all(do func(*place)) {
	for i := range p {
		if p[i].scope != nil {
			do(&p[i])
		}
	}
}

// lock returns the account, locked.
func (l *Limiter) lock(id string) *account {
	for {
		l.mu.RLock()
		a := l.accounts[id]
		l.mu.RUnlock()
		if a == nil {
			l.mu.Lock()
			if a = l.accounts[id]; a == nil {
				a = &account{keys: map[string]*scope{}, models: map[string]*scope{}}
				l.accounts[id] = a
			}
			l.mu.Unlock()
		}
		a.mu.Lock()
		if !a.dead {
			return a
		}
		a.mu.Unlock() // swept between the two locks
	}
}

func scopeOf(scopes map[string]*scope, id string) *scope {
	s := scopes[id]
	if s == nil {
		s = new(scope)
		scopes[id] = s
	}
	return s
}

// places are those of a call, up to now.
func (a *account) places(now time.Duration, c Claim) places {
	p := places{{scope: &a.scope, limits: c.AccountLimits}, {scope: scopeOf(a.keys, c.Key), limits: c.KeyLimits}}
	if c.ModelLimits != (Limits{}) {
		p[2] = place{scope: scopeOf(a.models, c.Model), limits: c.ModelLimits}
	}
	p.all(func(p *place) { p.scope.window.advance(now) })
	return p
}

// Take lets the call in, counting it against every limit, or refuses it with
// [*DeniedError], counting nothing. The status is after the decision.
func (l *Limiter) Take(now time.Time, c Claim) (*Ticket, Status, error) {
	at := now.Sub(l.start)
	a := l.lock(c.Account)
	defer a.mu.Unlock()
	t := &Ticket{limiter: l, account: a, tokens: c.Tokens, places: a.places(at, c)}
	for i := range t.places {
		p := &t.places[i]
		if p.scope == nil {
			continue
		}
		if d := p.scope.check(at, p.limits, c.Tokens); d != nil {
			d.Scope = scopes[i]
			return nil, t.places.status(at), d
		}
	}
	t.places.all(func(p *place) {
		p.in = p.scope.window.add(at, 1, c.Tokens, p.limits)
		p.scope.running++
	})
	return t, t.places.status(at), nil
}

// check says which limit a call of that many tokens would break.
func (s *scope) check(at time.Duration, l Limits, tokens int64) *DeniedError {
	w := &s.window
	switch {
	case l.Requests > 0 && w.requests+1 > l.Requests:
		return &DeniedError{
			Kind: Requests, Limit: l.Requests, Used: w.requests, Requested: 1,
			RetryAfter: w.wait(at, w.requests, 1, l.Requests, func(g *group) int64 { return int64(g.requests) }),
		}
	case l.Tokens > 0 && tokens > l.Tokens:
		return &DeniedError{Kind: Tokens, Limit: l.Tokens, Used: w.tokens, Requested: tokens, Never: true}
	case l.Tokens > 0 && w.tokens+tokens > l.Tokens:
		return &DeniedError{
			Kind: Tokens, Limit: l.Tokens, Used: w.tokens, Requested: tokens,
			RetryAfter: w.wait(at, w.tokens, tokens, l.Tokens, func(g *group) int64 { return g.tokens }),
		}
	case l.Concurrency > 0 && s.running+1 > l.Concurrency:
		return &DeniedError{Kind: Concurrency, Limit: l.Concurrency, Used: s.running, Requested: 1, RetryAfter: time.Second}
	}
	return nil
}

// status tells of the scope with the least remaining.
func (p *places) status(at time.Duration) (s Status) {
	least := func(dst *Window, w *window, limit, used int64) {
		if left := max(0, limit-used); limit > 0 && (dst.Limit == 0 || left < dst.Remaining) {
			*dst = Window{Limit: limit, Remaining: left, Reset: w.empty(at, (*group).holds)}
		}
	}
	p.all(func(p *place) {
		w := &p.scope.window
		least(&s.Requests, w, p.limits.Requests, w.requests)
		least(&s.Tokens, w, p.limits.Tokens, w.tokens)
	})
	return s
}

// Peek is the status of a caller who takes nothing.
func (l *Limiter) Peek(now time.Time, c Claim) Status {
	at := now.Sub(l.start)
	a := l.lock(c.Account)
	defer a.mu.Unlock()
	p := a.places(at, c)
	return p.status(at)
}

// Sweep forgets scopes that hold nothing, so that a minute after its last call an
// account takes no memory. It is to be called now and then.
func (l *Limiter) Sweep(now time.Time) {
	at := now.Sub(l.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.accounts {
		a.mu.Lock()
		for _, scopes := range []map[string]*scope{a.keys, a.models} {
			maps.DeleteFunc(scopes, func(_ string, s *scope) bool { return s.idle(at) })
		}
		if len(a.keys) == 0 && len(a.models) == 0 && a.scope.idle(at) {
			a.dead = true
			delete(l.accounts, id)
		}
		a.mu.Unlock()
	}
}

func (s *scope) idle(at time.Duration) bool {
	s.window.advance(at)
	return s.running == 0 && s.window.oldest == s.window.next
}

// Done ends a call that used tokens. What it had claimed beyond them is given back
// where it was counted; what it used beyond its claim counts now.
func (t *Ticket) Done(now time.Time, tokens int64) {
	at := now.Sub(t.limiter.start)
	t.account.mu.Lock()
	defer t.account.mu.Unlock()
	t.places.all(func(p *place) {
		w := &p.scope.window
		w.advance(at)
		p.scope.running--
		if over := tokens - t.tokens; over > 0 {
			w.add(at, 0, over, p.limits)
		} else {
			w.correct(p.in, 0, over)
		}
	})
}

// Cancel takes the call back as if it had never been let in.
func (t *Ticket) Cancel() {
	t.account.mu.Lock()
	defer t.account.mu.Unlock()
	t.places.all(func(p *place) {
		p.scope.running--
		p.scope.window.forget(p.in, 1, t.tokens)
	})
}

// Past is a call of the last minute, from before a restart.
type Past struct {
	Account, Key, Model string
	At                  time.Time
	Tokens              int64
}

// Restore counts calls of before the limiter was made, in the order of their times.
// Those more than a minute older than it have no effect.
func (l *Limiter) Restore(calls []Past) {
	for _, c := range calls {
		when := c.At.Sub(l.start)
		if when <= 0 {
			continue
		}
		a := l.lock(c.Account)
		for _, s := range []*scope{&a.scope, scopeOf(a.keys, c.Key), scopeOf(a.models, c.Model)} {
			s.window.add(when, 1, c.Tokens, Limits{Requests: 1, Tokens: 1}) // each a group of its own
		}
		a.mu.Unlock()
	}
}
