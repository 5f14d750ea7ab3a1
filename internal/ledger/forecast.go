package ledger

import (
	"math/bits"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// Horizon is how far [RunOut] looks.
const Horizon = 90 * 24 * time.Hour

const day = 24 * time.Hour

// Pace is what an account spends in a day: the mean of its last full days in UTC.
type Pace struct {
	PerDay money.Amount
	Days   int // that it is the mean of, at most PaceDays; 0 is too short a time to say
}

// PaceDays is how many days a [Pace] looks back at most.
const PaceDays = 7

// RunOut says when available credit is used up when perDay is spent evenly. Grants burn in
// the order given, as [Store.Grants] has them, and what is left of one at its end is lost.
// What running calls hold counts as spent. ok is false when credit lasts beyond [Horizon],
// which it does for ever when nothing is spent and nothing expires.
func RunOut(now time.Time, grants []GrantBalance, held, perDay money.Amount) (at time.Time, ok bool) {
	end := now.Add(Horizon)
	at = now
	for i := range grants {
		g := &grants[i]
		n := g.Remaining()
		expires := !g.ExpiresAt.IsZero()
		if expires && !g.ExpiresAt.After(at) {
			continue
		}
		taken := min(n, held)
		n, held = n-taken, held-taken
		if n == 0 {
			continue
		}
		until := at.Add(lasts(n, perDay))
		if expires && g.ExpiresAt.Before(until) {
			until = g.ExpiresAt
		}
		if at = until; !at.Before(end) {
			return time.Time{}, false
		}
	}
	return at, true
}

// lasts is how long n is enough, at most a little more than the horizon.
func lasts(n, perDay money.Amount) time.Duration {
	if perDay <= 0 || n/perDay > money.Amount(Horizon/day) {
		return Horizon + day
	}
	whole := time.Duration(n/perDay) * day
	hi, lo := bits.Mul64(uint64(n%perDay), uint64(day))
	rest, _ := bits.Div64(hi, lo, uint64(perDay)) // below a day: the remainder is below perDay
	return whole + time.Duration(rest)
}

// Previous is the period to compare one with: of a month, or of the beginning of one, as
// much of the month before; else as long a time right before it. Times are UTC.
func Previous(from, to time.Time) (time.Time, time.Time) {
	first := from.Day() == 1 && from.Equal(from.Truncate(day))
	if next := from.AddDate(0, 1, 0); !first || to.After(next) {
		return from.Add(-to.Sub(from)), from
	}
	before := from.AddDate(0, -1, 0)
	if to.Equal(from.AddDate(0, 1, 0)) {
		return before, from
	}
	end := before.Add(to.Sub(from)) // the month before may be shorter
	if end.After(from) {
		end = from
	}
	return before, end
}
