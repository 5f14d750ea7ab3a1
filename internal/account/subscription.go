package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/subscription"
)

// turner writes changes of subscriptions with what they include. It fails with
// [subscription.ErrChanged] when another process was first.
type turner interface {
	Turn(ctx context.Context, t subscription.Turn) error
}

// Subscriptions changes the subscriptions of a directory's accounts, and lets them go on
// when their time has come. It is safe for concurrent use, also by several over one
// store: every period begins once.
type Subscriptions struct {
	directory *Directory
	ledger    turner
	changed   chan struct{} // one token
	frozen    bool
}

// NewSubscriptions returns those of d's accounts, which ledger writes.
func NewSubscriptions(d *Directory, ledger turner) *Subscriptions {
	return &Subscriptions{directory: d, ledger: ledger, changed: make(chan struct{}, 1)}
}

// ErrFrozen means that the subscriptions were frozen.
var ErrFrozen = errors.New("the plans of the subscriptions are not known")

// Freeze leaves all subscriptions as they are: [Subscriptions.Due] does nothing from then on,
// and every change fails with [ErrFrozen]. It is called before anything else, where the
// directory's plans may not be those that the subscriptions are to.
func (s *Subscriptions) Freeze() { s.frozen = true }

// Changed receives when [Subscriptions.Due] should be called before the time that it has
// returned.
func (s *Subscriptions) Changed() <-chan struct{} { return s.changed }

// When says when a change of plan takes effect.
type When string

// The times of a change.
const (
	AtOnce      When = "now"
	AtPeriodEnd When = "period_end"
	// ByRank is at once for a plan that stands behind the present one in the
	// configuration, and with the next period for one before it.
	ByRank When = ""
)

// ErrWhen means a time that is none of those.
var ErrWhen = errors.New("a plan changes now or at period_end")

// Set gives the account of that id a subscription to plan. Where one to the same plan
// runs, only how it ends is changed; one to another plan ends at once, with what it
// includes. It fails with [ErrNotFound], [ErrPlan], [subscription.ErrUntil],
// [subscription.ErrFixed] or an error of the ledger.
func (s *Subscriptions) Set(ctx context.Context, id, plan string, o subscription.Options, now time.Time) (*Account, error) {
	return s.change(ctx, id, now, func(a *Account) (subscription.Turn, error) {
		p, ok := s.directory.Plan(plan)
		if !ok {
			return subscription.Turn{}, fmt.Errorf("%w: %s", ErrPlan, plan)
		}
		sub := &a.Subscription
		if sub.Applies(now) && sub.Plan == plan {
			return sub.Limited(o, now)
		}
		return subscription.Begin(a.ID, *sub, p.terms(), o, now)
	})
}

// Renew says that the next period of a subscription is paid for, or takes back that it
// was canceled. Where the period is over, the next one begins. It fails with
// [ErrNotFound], [subscription.ErrNone], [subscription.ErrRenews],
// [subscription.ErrFixed], [subscription.ErrPaid] or an error of the ledger.
func (s *Subscriptions) Renew(ctx context.Context, id string, now time.Time) (*Account, error) {
	_, err := s.change(ctx, id, now, func(a *Account) (subscription.Turn, error) { return a.Subscription.Renewed(now) })
	if err != nil {
		return nil, err
	}
	return s.change(ctx, id, now, nil) // what is due by then
}

// Cancel ends a subscription with its period, or at once with what it includes. It fails
// with [ErrNotFound], [subscription.ErrNone] or an error of the ledger.
func (s *Subscriptions) Cancel(ctx context.Context, id string, atOnce bool, now time.Time) (*Account, error) {
	return s.change(ctx, id, now, func(a *Account) (subscription.Turn, error) { return a.Subscription.Canceling(atOnce, now) })
}

// Change moves a subscription to another plan. It fails with [ErrNotFound], [ErrPlan],
// [ErrWhen], [subscription.ErrNone], [subscription.ErrDiffers] or an error of the ledger.
func (s *Subscriptions) Change(ctx context.Context, id, plan string, when When, now time.Time) (*Account, error) {
	return s.change(ctx, id, now, func(a *Account) (subscription.Turn, error) {
		p, ok := s.directory.Plan(plan)
		if !ok {
			return subscription.Turn{}, fmt.Errorf("%w: %s", ErrPlan, plan)
		}
		sub := &a.Subscription
		if when == ByRank {
			when = AtPeriodEnd
			if present, ok := s.directory.Plan(sub.Plan); !ok || p.Rank > present.Rank {
				when = AtOnce
			}
		}
		switch when {
		case AtOnce:
			return sub.Changing(p.terms(), now)
		case AtPeriodEnd:
			return sub.ChangingLater(plan, now)
		}
		return subscription.Turn{}, ErrWhen
	})
}

// Due lets every subscription go on whose time has come by now, and returns when the next
// one's will, zero for none. It may be called at any time, any number of times, by any
// number of processes. What went wrong with one subscription does not hinder the others.
func (s *Subscriptions) Due(ctx context.Context, now time.Time) (next time.Time, err error) {
	for err == nil && !s.frozen {
		ids := s.directory.takeDue(now)
		if len(ids) == 0 {
			break
		}
		var looked, late []string
		for i, id := range ids {
			_, failed := s.change(ctx, id, now, nil)
			if failed == nil {
				looked = append(looked, id)
				continue
			}
			err = errors.Join(err, fmt.Errorf("subscription of %s: %w", id, failed))
			late = append(late, id)
			if ctx.Err() != nil {
				late = append(late, ids[i+1:]...)
				break
			}
		}
		s.directory.giveBack(looked, late)
	}
	return s.directory.nextDue(), err
}

// mostTries bounds how often a change is made anew from what another process has written.
const mostTries = 100

// change writes what is due of an account's subscription, and then what is asked for, if
// anything is.
func (s *Subscriptions) change(ctx context.Context, id string, now time.Time, asked func(*Account) (subscription.Turn, error)) (*Account, error) {
	d := s.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.ByID(id)
	switch {
	case !ok:
		return nil, ErrNotFound
	case s.frozen:
		return nil, ErrFrozen
	}
	for range mostTries {
		t, more := a.Subscription.Due(s.terms, now)
		if !more {
			if asked == nil {
				return a, nil
			}
			var err error
			if t, err = asked(a); err != nil {
				return nil, err
			}
		}
		err := s.ledger.Turn(ctx, t)
		next := *a
		next.Subscription = t.Next
		if errors.Is(err, subscription.ErrChanged) {
			next.Subscription, err = d.store.Subscription(ctx, id)
			more = true
		}
		if err != nil {
			return nil, err
		}
		a = &next
		d.put(a)
		select {
		case s.changed <- struct{}{}:
		default: // somebody will look
		}
		if !more {
			return a, nil
		}
	}
	return nil, subscription.ErrChanged
}

// terms are those of a plan on offer.
func (s *Subscriptions) terms(plan string) (subscription.Terms, bool) {
	p, ok := s.directory.Plan(plan)
	if !ok {
		return subscription.Terms{}, false
	}
	return p.terms(), true
}

// terms are the plan's, with its name.
func (p *Plan) terms() subscription.Terms {
	t := p.Terms
	t.Plan, t.Version = p.ID, p.Version
	return t
}
