package simulation_test

import (
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

func TestRunOut(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	in := func(days float64) time.Time { return now.Add(time.Duration(days * 24 * float64(time.Hour))) }
	grant := func(amount money.Amount, days float64) ledger.GrantBalance {
		g := ledger.GrantBalance{Grant: ledger.Grant{Amount: amount * money.IU}}
		if days != 0 {
			g.ExpiresAt = in(days)
		}
		return g
	}
	used := grant(10, 0)
	used.Burned, used.Expired = 7*money.IU, 2*money.IU
	for _, c := range []struct {
		name   string
		grants []ledger.GrantBalance
		held   money.Amount
		perDay money.Amount
		days   float64 // 0 is beyond the horizon, -1 now
	}{
		{"one grant", []ledger.GrantBalance{grant(10, 0)}, 0, 2 * money.IU, 5},
		{"part of a day", []ledger.GrantBalance{grant(5, 0)}, 0, 2 * money.IU, 2.5},
		{"what is left of it", []ledger.GrantBalance{used}, 0, 2 * money.IU, 0.5},
		{"what is held is spent", []ledger.GrantBalance{grant(10, 0)}, 4 * money.IU, 2 * money.IU, 3},
		{"held over two grants", []ledger.GrantBalance{grant(3, 0), grant(10, 0)}, 5 * money.IU, 2 * money.IU, 4},
		{"it expires before it is used", []ledger.GrantBalance{grant(100, 3)}, 0, 2 * money.IU, 3},
		{"it is used before it expires", []ledger.GrantBalance{grant(4, 3)}, 0, 2 * money.IU, 2},
		{"the next lasts on", []ledger.GrantBalance{grant(100, 3), grant(10, 0)}, 0, 2 * money.IU, 8},
		{"the next expires while the first burns", []ledger.GrantBalance{grant(10, 0), grant(10, 4)}, 0, 2 * money.IU, 5},
		{"ended already", []ledger.GrantBalance{grant(10, -1), grant(2, 0)}, 0, 2 * money.IU, 1},
		{"nothing is left", []ledger.GrantBalance{grant(2, 0)}, 2 * money.IU, 1, -1},
		{"no grants", nil, 0, 1, -1},
		{"nothing is spent", []ledger.GrantBalance{grant(2, 0)}, 0, 0, 0},
		{"nothing is spent and it expires", []ledger.GrantBalance{grant(2, 9)}, 0, 0, 9},
		{"all is held and nothing is spent", []ledger.GrantBalance{grant(2, 0)}, 2 * money.IU, 0, -1},
		{"all of the first is held", []ledger.GrantBalance{grant(2, 30), grant(4, 0)}, 2 * money.IU, 2 * money.IU, 2},
		{"it ends as the first is used up", []ledger.GrantBalance{grant(10, 0), grant(10, 5), grant(2, 0)}, 0, 2 * money.IU, 6},
		{"the longest that is told", []ledger.GrantBalance{grant(179, 0)}, 0, 2 * money.IU, 89.5},
		{"as far as the horizon", []ledger.GrantBalance{grant(180, 0)}, 0, 2 * money.IU, 0},
		{"the least that is spent", []ledger.GrantBalance{{Grant: ledger.Grant{Amount: 45}}}, 0, 1, 45},
		{"less than a day's", []ledger.GrantBalance{grant(1, 0)}, 0, 4 * money.IU, 0.25},
		{"beyond the horizon", []ledger.GrantBalance{grant(181, 0)}, 0, 2 * money.IU, 0},
		{"the largest amounts", []ledger.GrantBalance{{Grant: ledger.Grant{Amount: money.MaxAmount}}}, 0, money.MaxAmount/2 + 1, 2},
	} {
		got, ok := ledger.RunOut(now, c.grants, c.held, c.perDay)
		switch {
		case c.days == 0:
			if ok {
				t.Errorf("%s: %v, want beyond the horizon", c.name, got)
			}
		case c.days < 0:
			if !ok || !got.Equal(now) {
				t.Errorf("%s: %v, %v, want now", c.name, got, ok)
			}
		default:
			if d := got.Sub(in(c.days)); !ok || d < -time.Second || d > time.Second {
				t.Errorf("%s: %v, %v, want %v", c.name, got, ok, in(c.days))
			}
		}
	}
}

func TestPrevious(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, wantFrom, wantTo string }{
		{"2026-11-01T00", "2026-11-21T15", "2026-10-01T00", "2026-10-21T15"},
		{"2026-11-01T00", "2026-12-01T00", "2026-10-01T00", "2026-11-01T00"},
		{"2026-03-01T00", "2026-03-31T00", "2026-02-01T00", "2026-03-01T00"}, // February is shorter
		{"2026-01-01T00", "2026-02-01T00", "2025-12-01T00", "2026-01-01T00"},
		{"2026-11-21T00", "2026-11-21T15", "2026-11-20T09", "2026-11-21T00"},
		{"2026-11-14T00", "2026-11-21T00", "2026-11-07T00", "2026-11-14T00"},
		{"2026-11-01T00", "2026-12-01T12", "2026-10-01T12", "2026-11-01T00"}, // more than a month
		{"2026-11-01T12", "2026-11-01T15", "2026-11-01T09", "2026-11-01T12"}, // not its beginning
		{"2026-11-01T00", "2027-01-01T00", "2026-09-01T00", "2026-11-01T00"},
	} {
		hour := func(text string) time.Time {
			at, err := time.Parse("2006-01-02T15", text)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		from, to := ledger.Previous(hour(c.from), hour(c.to))
		if !from.Equal(hour(c.wantFrom)) || !to.Equal(hour(c.wantTo)) {
			t.Errorf("before %s to %s lies %v to %v, want %s to %s", c.from, c.to, from, to, c.wantFrom, c.wantTo)
		}
	}
}
