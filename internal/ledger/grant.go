package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

// Kind says why credit was granted.
type Kind string

// The kinds of grants.
const (
	Prepaid  Kind = "prepaid"
	Included Kind = "included" // in a plan
	Promo    Kind = "promo"
	Refund   Kind = "refund" // of a charge
	Adjust   Kind = "adjust"
)

// Priority is the one that a grant of the kind has when none is given: what ends
// soonest and was not paid for burns first.
func (k Kind) Priority() int {
	switch k {
	case Included:
		return 10
	case Promo:
		return 20
	case Refund, Adjust:
		return 30
	}
	return 50
}

// ErrExpiry means a grant that would end before it begins, or after the year 9999.
var ErrExpiry = errors.New("a grant must expire in the future, by the year 9999")

// CanExpire reports whether a grant or a code that is made at now can end at t: later, and in a year
// of four digits, as RFC 3339 writes them. A list with another could not be answered as JSON.
func CanExpire(t, now time.Time) bool { return t.After(now) && t.UTC().Year() <= 9999 }

// Grant is credit, or tokens that a plan includes, given to an account. A Source that was
// granted before adds nothing.
type Grant struct {
	ID        string
	AccountID string
	Kind      Kind // empty is Prepaid
	Unit      Unit
	Amount    money.Amount // of its unit
	Priority  int          // lower burns first; 0 is that of the kind
	Note      string
	Source    string // unique per account; empty for a grant that may repeat
	RequestID string // of the charge that a Refund gives back
	Paid      int64  // for it, in the smallest unit of Currency; 0 where nobody says
	Currency  string // of Paid: three letters, in lower case
	Actor     string // set by Grant
	Origin    string // the same; only the audit log keeps it
	CreatedAt time.Time
	ExpiresAt time.Time // zero is never
	// Subscription and Period say which paid period includes it; empty for what an
	// operator has granted.
	Subscription string
	Period       int64
}

// Granted says what became of a grant.
type Granted struct {
	Added bool
	At    time.Time // when it was added, now or before
}

// GrantBalance is a grant and what became of it.
type GrantBalance struct {
	Grant
	Burned  money.Amount // by charges
	Expired money.Amount // taken back
}

// Remaining is what can still be spent or expire.
func (g *GrantBalance) Remaining() money.Amount { return g.Amount - g.Burned - g.Expired }

// due reports whether the grant has ended.
func (g *GrantBalance) due(now time.Time) bool {
	return !g.ExpiresAt.IsZero() && !now.Before(g.ExpiresAt)
}

// Allocate adds to Burned how posted falls on grants, all those of one account that
// have something left: lower priority first, then the one that ends first, then the
// oldest. burned is what all grants of the account had burned before. It orders grants
// in the same way.
func Allocate(grants []GrantBalance, burned, posted money.Amount) {
	slices.SortFunc(grants, func(a, b GrantBalance) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), compareExpiry(a.ExpiresAt, b.ExpiresAt),
			a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	rest := posted - burned
	for i := range grants {
		n := min(rest, grants[i].Remaining())
		grants[i].Burned += n
		rest -= n
	}
}

// compareExpiry orders by time, never last.
func compareExpiry(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// Expire takes back, at most Most, what is left of an account's grants of a unit that
// ended by Now.
type Expire struct {
	AccountID string
	Unit      Unit
	Now       time.Time
	Most      money.Amount
}

// Take distributes e over grants, which [Allocate] has brought up to date: how much of
// each is taken, and how much is due and cannot be taken yet.
func (e *Expire) Take(grants []GrantBalance) (taken []money.Amount, left money.Amount) {
	taken = make([]money.Amount, len(grants))
	most := e.Most
	for i := range grants {
		if g := &grants[i]; g.due(e.Now) {
			taken[i] = min(most, g.Remaining())
			most -= taken[i]
			left += g.Remaining() - taken[i]
		}
	}
	return taken, left
}

// Grant adds credit and returns when it is durable. The actor is that of ctx. Tokens are
// granted by [Ledger.Turn]. It fails with [ErrAmount], [ErrExpiry], [ErrAccount], [ErrRefunded] or [ErrUnavailable].
func (l *Ledger) Grant(ctx context.Context, g Grant) (Granted, error) {
	if g.Amount <= 0 || g.Amount > money.MaxAmount || g.Unit != Credit {
		return Granted{}, ErrAmount
	}
	if g.Kind == "" {
		g.Kind = Prepaid
	}
	if g.Priority == 0 {
		g.Priority = g.Kind.Priority()
	}
	g.ID, g.Actor, g.Origin, g.CreatedAt = ident.New(ident.Grant), audit.Actor(ctx), audit.Origin(ctx), now()
	if !g.ExpiresAt.IsZero() && !CanExpire(g.ExpiresAt, g.CreatedAt) {
		return Granted{}, ErrExpiry
	}
	b := l.book(g.AccountID)
	// The reservation of room keeps concurrent grants from overflowing together.
	if err := b.announce(g.Amount, 0); err != nil {
		return Granted{}, err
	}
	res, err := l.do(Op{Grant: &g}, func(r Result) { b.grant(g.Amount, 0, r.Applied) })
	if err = cmp.Or(err, res.Refused); err != nil {
		return Granted{}, err
	}
	if res.At.IsZero() {
		return Granted{}, ErrAccount
	}
	if !g.ExpiresAt.IsZero() {
		l.lookForExpiry()
	}
	return Granted{Added: res.Applied, At: res.At}, nil
}

// now is a time that the database holds exactly.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// ExpireDue takes back what is left of the grants that have ended by t and returns when
// the next one will, zero for none. What running calls hold is not touched: it is taken
// when they have ended, and is not there for others. It may be called at any time, any
// number of times. It fails with [ErrUnavailable].
func (l *Ledger) ExpireDue(ctx context.Context, t time.Time) (next time.Time, err error) {
	for _, u := range []Unit{Credit, Tokens} {
		accounts, after, err := l.store.Expiring(ctx, u, t)
		if err != nil {
			return next, err
		}
		if next.IsZero() || !after.IsZero() && after.Before(next) {
			next = after
		}
		// Calls may have burned what was waited for, and the store sees nothing left of it.
		l.expiring.Range(func(key, _ any) bool {
			if w := key.(waiting); w.unit == u {
				accounts = append(accounts, w.accountID)
			}
			return true
		})
		slices.Sort(accounts)
		for _, id := range slices.Compact(accounts) {
			if err := l.expire(ctx, id, u, t); err != nil {
				return next, err
			}
		}
	}
	return next, nil
}

// takeBack waits until nobody else takes credit back: how much that is says the database, and what
// is set aside for it meanwhile is more, so of two at once one would find too little. The result
// ends it.
func (l *Ledger) takeBack() func() {
	l.taking <- struct{}{}
	return func() { <-l.taking }
}

// waiting is what of an account expires when running calls have ended.
type waiting struct {
	accountID string
	unit      Unit
}

func (l *Ledger) expire(ctx context.Context, accountID string, u Unit, t time.Time) error {
	defer l.takeBack()()
	grants, err := l.store.GrantsOf(ctx, accountID, u)
	if err != nil {
		return err
	}
	var most money.Amount // no more than this: charges that follow can only burn some of it
	for i := range grants {
		if grants[i].due(t) {
			most += grants[i].Remaining()
		}
	}
	b := l.book(accountID)
	aside := b.setAside(u, most)
	_, err = l.do(Op{Expire: &Expire{AccountID: accountID, Unit: u, Now: t, Most: aside}}, func(r Result) {
		if b.expire(u, aside, r.Amount, r.Left) {
			l.lookForExpiry() // a call has ended meanwhile, and it may have been the last
		}
		if r.Left > 0 {
			l.expiring.Store(waiting{accountID, u}, nil)
		} else {
			l.expiring.Delete(waiting{accountID, u})
		}
	})
	return err
}

// ExpiryChanged receives when [Ledger.ExpireDue] should be called before the time that
// it has returned.
func (l *Ledger) ExpiryChanged() <-chan struct{} { return l.expiry }

func (l *Ledger) lookForExpiry() {
	select {
	case l.expiry <- struct{}{}:
	default: // somebody will
	}
}
