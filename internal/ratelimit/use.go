package ratelimit

import "time"

// Use is what stands in the windows of one scope at a moment. What clears says when the
// window is empty, if nothing is added.
type Use struct {
	Requests, Tokens           int64 // of the last minute
	Running                    int64 // calls
	RequestsClear, TokensClear time.Duration
}

// InUse is the use of an account and, by their ids, of its keys and of the models for
// which it is limited. Scopes that hold nothing are not in it.
type InUse struct {
	Account      Use
	Keys, Models map[string]Use
}

// InUse returns what is in use of an account's limits, counting nothing.
func (l *Limiter) InUse(now time.Time, accountID string) InUse {
	u := InUse{Keys: map[string]Use{}, Models: map[string]Use{}}
	l.mu.RLock()
	a := l.accounts[accountID]
	l.mu.RUnlock()
	if a == nil {
		return u
	}
	at := now.Sub(l.start)
	a.mu.Lock()
	defer a.mu.Unlock()
	u.Account = a.scope.use(at)
	for _, of := range []struct {
		scopes map[string]*scope
		uses   map[string]Use
	}{{a.keys, u.Keys}, {a.models, u.Models}} {
		for id, s := range of.scopes {
			if use := s.use(at); use != (Use{}) {
				of.uses[id] = use
			}
		}
	}
	return u
}

func (s *scope) use(at time.Duration) Use {
	w := &s.window
	w.advance(at)
	return Use{
		Requests: w.requests, Tokens: w.tokens, Running: s.running,
		RequestsClear: w.empty(at, func(g *group) bool { return g.requests != 0 }),
		TokensClear:   w.empty(at, func(g *group) bool { return g.tokens != 0 }),
	}
}
