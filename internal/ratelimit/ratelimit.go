// Package ratelimit keeps requests, tokens and calls at once within what plans and
// keys allow. Each limit is a sliding window: in any 60 seconds never more than the
// limit is let in, and not 1 % less.
//
// A call passes all of its limits or none: what is refused leaves no trace.
package ratelimit

import (
	"fmt"
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
	Tokens                   int64 // the most that the call can use
}

// Kind is what was short.
type Kind string

// The kinds of limits.
const (
	Requests    Kind = "requests"
	Tokens      Kind = "tokens"
	Concurrency Kind = "concurrency"
)

// DeniedError is a call that would break a limit.
type DeniedError struct {
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
	keys  map[string]*scope
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
	limiter      *Limiter
	account      *account
	key          *scope
	claim        Claim
	inAcct, inKy entry
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
				a = &account{keys: map[string]*scope{}}
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

func (a *account) key(id string) *scope {
	k := a.keys[id]
	if k == nil {
		k = new(scope)
		a.keys[id] = k
	}
	return k
}

// Take lets the call in, counting it against every limit, or refuses it with
// [*DeniedError], counting nothing. The status is after the decision.
func (l *Limiter) Take(now time.Time, c Claim) (*Ticket, Status, error) {
	at := now.Sub(l.start)
	a := l.lock(c.Account)
	defer a.mu.Unlock()
	k := a.key(c.Key)
	a.scope.window.advance(at)
	k.window.advance(at)
	for _, s := range []struct {
		scope  *scope
		limits Limits
	}{{&a.scope, c.AccountLimits}, {k, c.KeyLimits}} {
		if d := s.scope.check(at, s.limits, c.Tokens); d != nil {
			return nil, a.status(at, k, c), d
		}
	}
	t := &Ticket{limiter: l, account: a, key: k, claim: c}
	t.inAcct = a.scope.window.add(at, 1, c.Tokens, c.AccountLimits)
	t.inKy = k.window.add(at, 1, c.Tokens, c.KeyLimits)
	a.scope.running++
	k.running++
	return t, a.status(at, k, c), nil
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
func (a *account) status(at time.Duration, k *scope, c Claim) (s Status) {
	least := func(dst *Window, w *window, limit, used int64) {
		if left := max(0, limit-used); limit > 0 && (dst.Limit == 0 || left < dst.Remaining) {
			*dst = Window{Limit: limit, Remaining: left, Reset: w.empty(at)}
		}
	}
	acct, key := &a.scope.window, &k.window
	least(&s.Requests, acct, c.AccountLimits.Requests, acct.requests)
	least(&s.Requests, key, c.KeyLimits.Requests, key.requests)
	least(&s.Tokens, acct, c.AccountLimits.Tokens, acct.tokens)
	least(&s.Tokens, key, c.KeyLimits.Tokens, key.tokens)
	return s
}

// Peek is the status of a caller who takes nothing.
func (l *Limiter) Peek(now time.Time, c Claim) Status {
	at := now.Sub(l.start)
	a := l.lock(c.Account)
	defer a.mu.Unlock()
	k := a.key(c.Key)
	a.scope.window.advance(at)
	k.window.advance(at)
	return a.status(at, k, c)
}

// Sweep forgets scopes that hold nothing, so that a minute after its last call an
// account takes no memory. It is to be called now and then.
func (l *Limiter) Sweep(now time.Time) {
	at := now.Sub(l.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.accounts {
		a.mu.Lock()
		for id, k := range a.keys {
			if k.idle(at) {
				delete(a.keys, id)
			}
		}
		if len(a.keys) == 0 && a.scope.idle(at) {
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
	a := t.account
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range []struct {
		scope  *scope
		in     entry
		limits Limits
	}{{&a.scope, t.inAcct, t.claim.AccountLimits}, {t.key, t.inKy, t.claim.KeyLimits}} {
		w := &s.scope.window
		w.advance(at)
		s.scope.running--
		if over := tokens - t.claim.Tokens; over > 0 {
			w.add(at, 0, over, s.limits)
		} else {
			w.correct(s.in, 0, over)
		}
	}
}

// Cancel takes the call back as if it had never been let in.
func (t *Ticket) Cancel() {
	a := t.account
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range []struct {
		scope *scope
		in    entry
	}{{&a.scope, t.inAcct}, {t.key, t.inKy}} {
		s.scope.running--
		s.scope.window.forget(s.in, 1, t.claim.Tokens)
	}
}

// Past is a call of the last minute, from before a restart.
type Past struct {
	Account, Key string
	At           time.Time
	Tokens       int64
}

// Restore counts calls of before the limiter was made, in the order of their times.
// Those more than a minute older than it have no effect.
func (l *Limiter) Restore(calls []Past) {
	for _, c := range calls {
		at := c.At.Sub(l.start)
		if at <= 0 {
			continue
		}
		a := l.lock(c.Account)
		for _, s := range []*scope{&a.scope, a.key(c.Key)} {
			s.window.add(at, 1, c.Tokens, Limits{Requests: 1, Tokens: 1}) // each a group of its own
		}
		a.mu.Unlock()
	}
}
