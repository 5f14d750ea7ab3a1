// Package subscription is the calendar and the states of paid periods: when each begins
// and ends, what it includes, and what follows it. It has no I/O and no clock: every
// change is a [Turn], which somebody writes.
package subscription

import (
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

// Status is where a subscription stands.
type Status string

// The states of a subscription. The last two are final.
const (
	None     Status = "none"
	Active   Status = "active"
	PastDue  Status = "past_due" // the period is over, the next was not renewed, and grace runs
	Canceled Status = "canceled"
	Expired  Status = "expired"
)

// Errors of this package.
var (
	// ErrNone means that no subscription runs.
	ErrNone = errors.New("no subscription runs")
	// ErrRenews means a renewal of what renews itself.
	ErrRenews = errors.New("the subscription renews itself")
	// ErrPaid means a renewal for the second time in one period.
	ErrPaid = errors.New("the next period is renewed already")
	// ErrDiffers means a change at once to a plan whose periods have another length.
	ErrDiffers = errors.New("the periods of the two plans differ")
	// ErrUntil means a subscription that would end in the past, or after the year 9999.
	ErrUntil = errors.New("a subscription must end in the future, by the year 9999")
	// ErrFixed means what a subscription with a fixed end cannot have.
	ErrFixed = errors.New("a subscription with a fixed end is not renewed by hand")
	// ErrChanged means that somebody else has changed the subscription meanwhile.
	ErrChanged = errors.New("the subscription was changed meanwhile")
)

// Terms are what a plan gives its subscribers. The zero value is a month that includes
// nothing.
type Terms struct {
	Plan     string
	Version  string // of the plan, for the record
	Interval Interval
	Tokens   int64        // included in each period
	Credit   money.Amount // the same
	// Grace is how long the plan goes on applying when a period was not renewed.
	Grace time.Duration
}

// Subscription is a paid period and what follows it. The zero value is none. A value is
// never changed; a change makes another.
type Subscription struct {
	ID        string
	AccountID string
	Revision  int64 // from 1; every change adds 1
	CreatedAt time.Time

	Plan     string
	NextPlan string // from the next period on; empty is no change
	Interval Interval
	Grace    time.Duration

	Anchor     time.Time // the beginning of period Base, from which all later ones are counted
	Base       int64
	Period     int64 // the number of the current one, from 1
	Start, End time.Time

	Until    time.Time // a fixed end; zero is none
	Manual   bool      // a period only begins when it was renewed
	Paid     int64     // the last period that was renewed, where Manual
	Ending   bool      // canceled at the end of the period
	PastDue  bool
	EndedAt  time.Time // zero while it runs
	Canceled bool      // why it has ended

	// Tokens and Credit are what a whole period of the best plan of this period includes.
	Tokens int64
	Credit money.Amount
}

// Ends is when the plan ceases to apply unless something is done; zero is never.
func (s *Subscription) Ends() time.Time {
	end := s.Until
	earlier := func(t time.Time) {
		if end.IsZero() || t.Before(end) {
			end = t
		}
	}
	switch {
	case !s.EndedAt.IsZero():
		earlier(s.EndedAt)
	case s.Ending:
		earlier(s.PaidUntil())
	case s.PastDue:
		earlier(s.End.Add(s.Grace))
	case s.Manual:
		earlier(s.PaidUntil().Add(s.Grace))
	}
	return end
}

// PaidUntil is the end of the last period that is sure to come.
func (s *Subscription) PaidUntil() time.Time {
	if s.ahead() {
		return s.boundary(s.Paid)
	}
	return s.End
}

// LastsUntil is when it ends or has ended or, where nobody can know, until when it is sure.
func (s *Subscription) LastsUntil() time.Time {
	switch {
	case !s.EndedAt.IsZero():
		return s.EndedAt
	case !s.Until.IsZero() && !s.Ending:
		return s.Until
	}
	return s.PaidUntil()
}

// ahead reports whether the next period was renewed by hand.
func (s *Subscription) ahead() bool { return s.Manual && s.Paid > s.Period }

// Status is the state at that time, whether somebody has written it down by then or not.
func (s *Subscription) Status(now time.Time) Status {
	if s.Plan == "" {
		return None
	}
	ends := s.Ends()
	switch {
	case !ends.IsZero() && !now.Before(ends):
		if s.Canceled || s.EndedAt.IsZero() && s.Ending {
			return Canceled
		}
		return Expired
	case s.PastDue, s.Manual && !now.Before(s.PaidUntil()):
		return PastDue
	}
	return Active
}

// Applies reports whether the plan of the subscription is that of its account.
func (s *Subscription) Applies(now time.Time) bool {
	st := s.Status(now)
	return st == Active || st == PastDue
}

// Next is when [Subscription.Due] will have something to say if it has nothing now; zero
// is never.
func (s *Subscription) Next() time.Time {
	switch {
	case s.ID == "" || !s.EndedAt.IsZero():
		return time.Time{}
	case !s.PastDue:
		return s.End
	}
	// Not Ends: one that ends with periods that are paid for, whose plan is gone, waits for it
	// as long as any other.
	ends := s.End.Add(s.Grace)
	if !s.Until.IsZero() && s.Until.Before(ends) {
		return s.Until
	}
	return ends
}

// boundary is the end of period n, not before Base.
func (s *Subscription) boundary(n int64) time.Time {
	end := s.Interval.After(s.Anchor, n-s.Base+1)
	if !s.Until.IsZero() && s.Until.Before(end) {
		return s.Until
	}
	return end
}

// Action names a turn for the record.
type Action string

// The actions.
const (
	Create Action = "create"
	Renew  Action = "renew" // a period begins
	Pay    Action = "pay"   // the next period will
	Change Action = "change"
	Cancel Action = "cancel"
	Resume Action = "resume"
	Lapse  Action = "past_due"
	Expire Action = "expire"
)

// Turn is one change of a subscription and what it brings. It is written in one
// transaction, or refused with [ErrChanged] when Next does not follow what is there.
type Turn struct {
	Action Action
	At     time.Time
	Next   Subscription
	// Replaced is a subscription of the account that ends with this.
	Replaced *Subscription
	// Begins says that Next.Period does; Version is the plan's.
	Begins  bool
	Version string
	// Tokens and Credit are granted until the end of the period.
	Tokens int64
	Credit money.Amount
}

// Source names what a turn grants: the same grant is added once, whoever makes it.
func (t *Turn) Source() string {
	if t.Begins {
		return fmt.Sprintf("sub:%s:%d", t.Next.ID, t.Next.Period)
	}
	return fmt.Sprintf("sub:%s:%d:%d", t.Next.ID, t.Next.Period, t.Next.Revision)
}

// IncludedUntil is when what the current period includes ends.
func (s *Subscription) IncludedUntil() time.Time {
	if !s.EndedAt.IsZero() && s.EndedAt.Before(s.End) {
		return s.EndedAt
	}
	return s.End
}

// turn is s after an action.
func (s *Subscription) turn(a Action, now time.Time) Turn {
	t := Turn{Action: a, At: now, Next: *s}
	t.Next.Revision++
	return t
}

// Options say how a subscription ends: at Until, or when a period was not renewed by
// hand; the zero value renews itself until it is canceled.
type Options struct {
	Until  time.Time
	Manual bool
}

// canEnd reports whether a subscription can end as they say: later than now, and in a year of four
// digits, as RFC 3339 writes them.
func (o Options) canEnd(now time.Time) bool {
	return o.Until.IsZero() || o.Until.After(now) && o.Until.UTC().Year() <= 9999
}

// Begin starts a subscription at now, in place of old where that runs. It fails with
// [ErrUntil] or [ErrFixed].
func Begin(accountID string, old Subscription, terms Terms, o Options, now time.Time) (Turn, error) {
	if !o.canEnd(now) {
		return Turn{}, ErrUntil
	}
	if o.Manual && !o.Until.IsZero() {
		return Turn{}, ErrFixed
	}
	now = stamp(now)
	s := Subscription{
		ID: ident.New(ident.Subscription), AccountID: accountID, CreatedAt: now, Until: stamp(o.Until), Manual: o.Manual,
		Anchor: now, Base: 1, End: now,
	}
	t := s.turn(Create, now)
	t.begin(terms, 1)
	if old.ID != "" && old.EndedAt.IsZero() {
		ended := old.turn(Cancel, now).Next
		ended.end(now, true)
		t.Replaced = &ended
	}
	return t, nil
}

// stamp is a time that the database holds exactly.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

func (s *Subscription) end(at time.Time, canceled bool) {
	s.EndedAt, s.Canceled, s.PastDue = at, canceled, false
}

// begin makes period n of the terms the current one. Nothing is granted for one that is
// over: nobody could have used it.
func (t *Turn) begin(terms Terms, n int64) {
	s := &t.Next
	if terms.Interval == (Interval{}) {
		terms.Interval = Month
	}
	if s.Interval != terms.Interval {
		s.Anchor, s.Base, s.Interval = s.End, n, terms.Interval
	}
	s.Start = s.Anchor
	if n > s.Base {
		s.Start = s.boundary(n - 1)
	}
	s.Period, s.End = n, s.boundary(n)
	s.Plan, s.NextPlan, s.Grace, s.PastDue = terms.Plan, "", terms.Grace, false
	s.Paid = max(s.Paid, n)
	s.Tokens, s.Credit = terms.Tokens, terms.Credit
	t.Begins, t.Version = true, terms.Version
	if s.End.After(t.At) {
		t.Tokens, t.Credit = terms.Tokens, terms.Credit
	}
}

// Due is what follows by itself at that time, if anything does: the next period, grace or
// the end. It is asked again until nothing does. terms finds those of a plan, which may
// have left the configuration.
func (s *Subscription) Due(terms func(plan string) (Terms, bool), now time.Time) (Turn, bool) {
	if s.ID == "" || !s.EndedAt.IsZero() || now.Before(s.End) {
		return Turn{}, false
	}
	now = stamp(now)
	over := func(a Action, at time.Time, canceled bool) (Turn, bool) {
		t := s.turn(a, now)
		t.Next.end(at, canceled)
		return t, true
	}
	switch {
	case s.Ending && !s.ahead():
		return over(Cancel, s.End, true)
	case !s.Until.IsZero() && !now.Before(s.Until):
		return over(Expire, s.Until, false)
	}
	plan := s.Plan
	if s.NextPlan != "" {
		plan = s.NextPlan
	}
	if found, ok := terms(plan); ok && (!s.Manual || s.ahead()) {
		t := s.turn(Renew, now)
		t.begin(found, s.Period+1)
		// Periods that passed while nobody looked are passed over.
		if n := t.Next.Base + t.Next.Interval.since(t.Next.Anchor, now); n > t.Next.Period {
			if s.Manual {
				n = min(n, s.Paid)
			}
			t.begin(found, n)
		}
		return t, true
	}
	if ends := s.End.Add(s.Grace); !now.Before(ends) {
		return over(Expire, ends, false)
	}
	if s.PastDue {
		return Turn{}, false
	}
	t := s.turn(Lapse, now)
	t.Next.PastDue = true
	return t, true
}

// Renewed is s when its next period is paid for, or when it is not to be canceled after
// all. It fails with [ErrNone], [ErrRenews], [ErrFixed] or [ErrPaid]. What is due then
// is asked of [Subscription.Due].
func (s *Subscription) Renewed(now time.Time) (Turn, error) {
	switch {
	case !s.Applies(now):
		return Turn{}, ErrNone
	case s.Ending:
		t := s.turn(Resume, stamp(now))
		t.Next.Ending = false
		return t, nil
	case !s.Until.IsZero():
		return Turn{}, ErrFixed
	case !s.Manual:
		return Turn{}, ErrRenews
	case s.ahead():
		return Turn{}, ErrPaid
	}
	t := s.turn(Pay, stamp(now))
	t.Next.Paid++
	t.Next.PastDue = false
	return t, nil
}

// Canceling is s when it is canceled: now, or at the end of the period. It fails with
// [ErrNone].
func (s *Subscription) Canceling(atOnce bool, now time.Time) (Turn, error) {
	if !s.Applies(now) {
		return Turn{}, ErrNone
	}
	t := s.turn(Cancel, stamp(now))
	if atOnce || !now.Before(s.End) {
		t.Next.end(stamp(now), true)
	} else {
		t.Next.Ending, t.Next.NextPlan = true, ""
	}
	return t, nil
}

// Limited is s with another end. It fails with [ErrNone], [ErrUntil] or [ErrFixed].
func (s *Subscription) Limited(o Options, now time.Time) (Turn, error) {
	switch {
	case !s.Applies(now):
		return Turn{}, ErrNone
	case !o.canEnd(now):
		return Turn{}, ErrUntil
	case o.Manual && !o.Until.IsZero():
		return Turn{}, ErrFixed
	}
	t := s.turn(Change, stamp(now))
	t.Next.Until, t.Next.Manual, t.Next.Ending = stamp(o.Until), o.Manual, false
	t.Next.Paid = max(s.Paid, s.Period)
	t.Next.End = t.Next.boundary(s.Period)
	return t, nil
}
