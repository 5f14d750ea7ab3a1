package money_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/money"
)

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want money.Amount
		err  error
	}{
		{"0", 0, nil},
		{"12.5", 12_500_000_000, nil},
		{"0.000000001", 1, nil},
		{"007", 7_000_000_000, nil},
		{"1000000000", money.MaxAmount, nil},
		{"1000000000.000000001", 0, money.ErrRange},
		{"99999999999999999999999999", 0, money.ErrRange},
		{"0.0000000001", 0, money.ErrPrecision},
		{"", 0, money.ErrSyntax},
		{".5", 0, money.ErrSyntax},
		{"5.", 0, money.ErrSyntax},
		{"-1", 0, money.ErrSyntax},
		{"+1", 0, money.ErrSyntax},
		{"1e3", 0, money.ErrSyntax},
		{"1,5", 0, money.ErrSyntax},
		{"1.2.3", 0, money.ErrSyntax},
		{" 1", 0, money.ErrSyntax},
		{"١", 0, money.ErrSyntax},
	} {
		got, err := money.ParseAmount(c.in)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("ParseAmount(%q) = %d, %v, want %d, %v", c.in, got, err, c.want, c.err)
		}
	}
}

func TestPerThousand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want money.Amount
		err  error
	}{
		{"0.05", 50_000, nil},
		{"0.000001", 1, nil},
		{"0.0000001", 0, money.ErrPrecision},
		{"1000000", money.MaxPerToken, nil},
		{"1000000.000001", 0, money.ErrRange},
	} {
		got, err := money.ParsePerThousand(c.in)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("ParsePerThousand(%q) = %d, %v, want %d, %v", c.in, got, err, c.want, c.err)
		}
		if err == nil && got.PerThousand() != c.in {
			t.Errorf("PerThousand() of %q prints %q", c.in, got.PerThousand())
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a              money.Amount
		exact, display string
	}{
		{0, "0", "0.00"},
		{1, "0.000000001", "<0.000001"},
		{999, "0.000000999", "<0.000001"},
		{1_000, "0.000001", "0.000001"},
		{1_999, "0.000001999", "0.000001"},
		{285_623_170_482, "285.623170482", "285.62317"},
		{100 * money.IU, "100", "100.00"},
		{-12_500_000_000, "-12.5", "-12.50"},
		{math.MaxInt64, "9223372036.854775807", "9223372036.854775"},
		{math.MinInt64, "-9223372036.854775808", "-9223372036.854775808"},
	} {
		if got := c.a.String(); got != c.exact {
			t.Errorf("Amount(%d).String() = %q, want %q", int64(c.a), got, c.exact)
		}
		if got := c.a.Display(); got != c.display {
			t.Errorf("Amount(%d).Display() = %q, want %q", int64(c.a), got, c.display)
		}
	}
}

// Cost agrees with arbitrary precision, or says that it overflows.
func TestCostAgainstBig(t *testing.T) {
	t.Parallel()
	price := rapid.Custom(func(t *rapid.T) money.Price {
		p := rapid.Int64Range(0, int64(money.MaxPerToken))
		return money.Price{Input: money.Amount(p.Draw(t, "in")), CachedInput: money.Amount(p.Draw(t, "cached")), Output: money.Amount(p.Draw(t, "out"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		p := price.Draw(t, "price")
		u := money.Tokens{Prompt: rapid.IntRange(0, 1<<40).Draw(t, "prompt"), Completion: rapid.IntRange(0, 1<<40).Draw(t, "completion")}
		u.Cached = rapid.IntRange(0, u.Prompt).Draw(t, "cached")
		want := new(big.Int)
		for _, term := range [][2]int64{{int64(p.Input), int64(u.Prompt - u.Cached)}, {int64(p.CachedInput), int64(u.Cached)}, {int64(p.Output), int64(u.Completion)}} {
			want.Add(want, new(big.Int).Mul(big.NewInt(term[0]), big.NewInt(term[1])))
		}
		got, err := p.Cost(u)
		if want.IsInt64() != (err == nil) {
			t.Fatalf("Cost(%+v) of %+v = %d, %v; exactly it is %s", u, p, got, err, want)
		}
		if err == nil && want.Int64() != int64(got) {
			t.Fatalf("Cost(%+v) of %+v = %d, want %s", u, p, got, want)
		}
	})
}

func TestCostRange(t *testing.T) {
	t.Parallel()
	for _, u := range []money.Tokens{{Prompt: -1}, {Completion: -1}, {Cached: -1}, {Prompt: 1, Cached: 2}} {
		if _, err := (money.Price{}).Cost(u); !errors.Is(err, money.ErrRange) {
			t.Errorf("Cost(%+v) gives %v, want ErrRange", u, err)
		}
	}
}

// With an error comes nothing that could be taken for a result.
func TestErrorsCarryNothing(t *testing.T) {
	t.Parallel()
	if got, err := money.Amount(math.MaxInt64).Add(1); got != 0 || !errors.Is(err, money.ErrOverflow) {
		t.Errorf("Add past the end = %d, %v", got, err)
	}
	if got, err := (money.Price{Input: 1}).Cost(money.Tokens{Prompt: -1}); got != 0 || !errors.Is(err, money.ErrRange) {
		t.Errorf("Cost of less than nothing = %d, %v", got, err)
	}
	if got, err := (money.Price{Input: 1 << 40}).Cost(money.Tokens{Prompt: 1 << 40}); got != 0 || !errors.Is(err, money.ErrOverflow) {
		t.Errorf("Cost past the end = %d, %v", got, err)
	}
	long := strings.Repeat("9", 100)
	if _, err := money.ParseAmount(long + "x"); err == nil || !strings.Contains(err.Error(), `"`+long[:40]+`"`) {
		t.Errorf("the error repeats all that was given: %v", err)
	}
}

func TestCost_ToTheEnd(t *testing.T) {
	t.Parallel()
	if got, err := (money.Price{Output: 1}).Cost(money.Tokens{Completion: math.MaxInt64}); got != math.MaxInt64 || err != nil {
		t.Errorf("Cost = %d, %v, want the last number that fits", got, err)
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	for p, want := range map[money.Price]bool{{}: true, {Input: 1}: false, {CachedInput: 1}: false, {Output: 1}: false} {
		if got := p.Free(); got != want {
			t.Errorf("%+v: Free() = %v", p, got)
		}
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		want := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
		got, err := money.Amount(a).Add(money.Amount(b))
		if want.IsInt64() != (err == nil) || err == nil && want.Int64() != int64(got) {
			t.Fatalf("%d.Add(%d) = %d, %v; exactly it is %s", a, b, got, err, want)
		}
	})
}

// What is printed is read back.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := money.Amount(rapid.Int64Range(0, int64(money.MaxAmount)).Draw(t, "a"))
		if got, err := money.ParseAmount(a.String()); got != a || err != nil {
			t.Fatalf("ParseAmount(%q) = %d, %v, want %d", a.String(), got, err, a)
		}
	})
}
