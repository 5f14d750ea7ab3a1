package account_test

import (
	"errors"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/money"
)

func TestParseBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want string // want is empty for what is no budget
		amount   money.Amount
		monthly  bool
	}{
		{"25", "25", 25 * money.IU, false},
		{"25.50/month", "25.5/month", 25*money.IU + money.IU/2, true},
		{"0.000000001", "0.000000001", 1, false},
		{"1000000000", "1000000000", 1_000_000_000 * money.IU, false},
		{"0", "", 0, false},
		{"0/month", "", 0, false},
		{"-1", "", 0, false},
		{"1000000001", "", 0, false},
		{"25/week", "", 0, false},
		{"25 / month", "", 0, false},
		{"/month", "", 0, false},
		{"", "", 0, false},
		{"none", "", 0, false},
	} {
		b, err := account.ParseBudget(c.in)
		if c.want == "" {
			if !errors.Is(err, account.ErrBudget) || b != (account.Budget{}) {
				t.Errorf("ParseBudget(%q) = %+v, %v, want ErrBudget", c.in, b, err)
			}
			continue
		}
		if err != nil || b != (account.Budget{Amount: c.amount, Monthly: c.monthly}) || b.String() != c.want {
			t.Errorf("ParseBudget(%q) = %+v, %v, as text %s", c.in, b, err, b)
		}
	}
}

// A month is one in UTC, wherever the server stands.
func TestBudget_Period(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("east", 14*3600)
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{time.Date(2026, 11, 30, 23, 59, 59, 999_999_999, time.UTC), 202611},
		{time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), 202612},
		{time.Date(2027, 1, 1, 13, 59, 59, 0, east), 202612},
		{time.Date(2027, 1, 1, 14, 0, 0, 0, east), 202701},
	} {
		if got := (account.Budget{Monthly: true}).Period(c.at); got != c.want {
			t.Errorf("%s is in %d, want %d", c.at, got, c.want)
		}
		if got := (account.Budget{}).Period(c.at); got != 0 {
			t.Errorf("of a whole budget %s is in %d, want 0", c.at, got)
		}
	}
}
