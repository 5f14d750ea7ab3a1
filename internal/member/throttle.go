package member

import (
	"net/netip"
	"sync"
	"time"
)

// Tries that are allowed. Nobody is ever locked out: what grows is the wait.
const (
	// accountTries wrong ones in a row are free; each further doubles the wait.
	accountTries  = 5
	accountWait   = 12 * time.Second // five a minute
	accountLimit  = 5 * time.Minute
	accountForget = time.Hour
	// addressTries from one network in a minute.
	addressTries = 30
	// throttleSize bounds what is remembered; who is beyond it has tried longest ago.
	throttleSize = 20_000
)

// network is what is counted of an address: neighbours are one, because a person has all of
// an IPv6 /64, and a small provider all of an IPv4 /24.
func network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 24
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return address
	}
	return p.String()
}

// memory keeps a value for each of at most throttleSize keys. What was not used for keep is
// forgotten.
type memory[V any] struct {
	mu   sync.Mutex
	keep time.Duration
	all  map[string]*remembered[V]
}

type remembered[V any] struct {
	value V
	used  time.Time
}

// use calls f with the value of key, which is zero at first.
func (m *memory[V]) use(key string, now time.Time, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.all[key]
	if !ok || now.Sub(r.used) > m.keep {
		if !ok && len(m.all) >= throttleSize {
			m.shed(now)
		}
		r = &remembered[V]{}
		if m.all == nil {
			m.all = map[string]*remembered[V]{}
		}
		m.all[key] = r
	}
	r.used = now
	f(&r.value)
}

// shed forgets what is old, or else the oldest of a few: Go gives them in random order.
func (m *memory[V]) shed(now time.Time) {
	var oldest string
	seen := 0
	for key, r := range m.all {
		if now.Sub(r.used) > m.keep {
			delete(m.all, key)
			continue
		}
		if o, ok := m.all[oldest]; !ok || r.used.Before(o.used) {
			oldest = key
		}
		if seen++; seen == 64 {
			break
		}
	}
	if len(m.all) >= throttleSize {
		delete(m.all, oldest)
	}
}

// accountThrottle slows down who guesses at one member, whoever guesses.
type accountThrottle struct{ memory[guesses] }

type guesses struct {
	wrong int
	next  time.Time // before it no try counts
}

// try allows one try, which counts as wrong until right says otherwise: tries at once are
// as many as tries one after the other. It fails with [*ThrottledError].
func (a *accountThrottle) try(email string, now time.Time) (err error) {
	a.use(email, now, func(g *guesses) {
		if now.Before(g.next) {
			err = &ThrottledError{Until: g.next}
			return
		}
		if g.wrong++; g.wrong >= accountTries {
			wait := min(accountLimit, accountWait<<min(g.wrong-accountTries, 10))
			g.next = now.Add(wait)
		}
	})
	return err
}

// right forgets the tries.
func (a *accountThrottle) right(email string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, email)
}

// Guesses slows down who guesses at codes: of one account, and from one network. Make one
// with [NewGuesses]; it is safe for concurrent use.
type Guesses struct {
	accounts  accountThrottle
	addresses addressThrottle
}

// NewGuesses returns guesses of which none was made.
func NewGuesses() *Guesses {
	return &Guesses{
		accounts:  accountThrottle{memory[guesses]{keep: accountForget}},
		addresses: addressThrottle{memory[time.Time]{keep: 2 * time.Minute}},
	}
}

// Try allows one guess, which counts as wrong until [Guesses.Right] says otherwise. It fails
// with [*ThrottledError].
func (g *Guesses) Try(accountID string, from From, now time.Time) error {
	if err := g.addresses.try(network(from.Address), now); err != nil {
		return err
	}
	return g.accounts.try(accountID, now)
}

// Right forgets the guesses of an account.
func (g *Guesses) Right(accountID string) { g.accounts.right(accountID) }

// addressThrottle bounds the tries of one network: a bucket that fills up in a minute.
type addressThrottle struct{ memory[time.Time] }

// try fails with [*ThrottledError].
func (a *addressThrottle) try(network string, now time.Time) (err error) {
	const each = time.Minute / addressTries
	a.use(network, now, func(full *time.Time) {
		at := *full
		if at.Before(now) {
			at = now
		}
		if at = at.Add(each); at.Sub(now) > time.Minute {
			err = &ThrottledError{Until: now.Add(at.Sub(now) - time.Minute)}
			return
		}
		*full = at
	})
	return err
}
