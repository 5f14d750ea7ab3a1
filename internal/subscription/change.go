package subscription

import (
	"math/bits"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// ChangingLater is s when it goes over to a plan with its next period; to its own plan,
// when it stays after all. It fails with [ErrNone].
func (s *Subscription) ChangingLater(plan string, now time.Time) (Turn, error) {
	if !s.Applies(now) || s.Ending {
		return Turn{}, ErrNone
	}
	t := s.turn(Change, stamp(now))
	t.Next.NextPlan = plan
	if plan == s.Plan {
		t.Next.NextPlan = ""
	}
	return t, nil
}

// Changing is s when it goes over to a plan at once. The period and what is left of what
// it includes stay; what a whole period of the new plan includes beyond that of the best
// plan of this period so far is added for the time that is left, rounded down. It fails
// with [ErrNone] or [ErrDiffers].
func (s *Subscription) Changing(terms Terms, now time.Time) (Turn, error) {
	if !s.Applies(now) || s.Ending {
		return Turn{}, ErrNone
	}
	if terms.Interval == (Interval{}) {
		terms.Interval = Month
	}
	if terms.Interval != s.Interval {
		return Turn{}, ErrDiffers
	}
	now = stamp(now)
	t := s.turn(Change, now)
	next := &t.Next
	next.Plan, next.NextPlan, next.Grace, t.Version = terms.Plan, "", terms.Grace, terms.Version
	left, whole := s.End.Sub(now), s.End.Sub(s.Start)
	if left <= 0 {
		return t, nil // past due: nothing is included until it is renewed
	}
	left = min(left, whole) // the clock was set back
	t.Tokens = share(terms.Tokens-s.Tokens, left, whole)
	t.Credit = money.Amount(share(int64(terms.Credit-s.Credit), left, whole))
	next.Tokens, next.Credit = max(s.Tokens, terms.Tokens), max(s.Credit, terms.Credit)
	return t, nil
}

// share is n·left/whole, rounded down, or 0 for n below 0. left is at most whole.
func share(n int64, left, whole time.Duration) int64 {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(left))
	q, _ := bits.Div64(hi, lo, uint64(whole)) // hi < whole, because n < 2⁶³ and left ≤ whole
	return int64(q)
}
