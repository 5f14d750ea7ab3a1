package simulation_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// begun is a stream of at most output tokens whose hold grows by slice, on the disk.
func (b *bench) begun(t *testing.T, c ledger.Call, slice int) *ledger.Hold {
	t.Helper()
	c.Stream, c.Slice = true, slice
	h := b.reserve(t, c)
	if err := errors.Join(h.Persist(), h.Durable()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // the committer sleeps again
	return h
}

// A hold grows when a quarter of a slice is left of it. Nobody waits for the disk before what
// it covers is used up, and it never covers more than the answer may have.
func TestCore_CoverAhead(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		h := b.begun(t, b.call("req_1", 50, 1), 8)
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		for _, step := range []struct {
			tokens, held int
			waits        bool
		}{
			{6, 8, false},
			{7, 16, false},
			{8, 16, false},
			{9, 16, true},
			{14, 16, false},
			{15, 24, false},
			{16, 24, false},
			{40, 40, true}, // late twice: it asks for no more than it needs
			{41, 48, true},
			{60, 50, true},
			{61, 50, false},
		} {
			begun := time.Now()
			if err := h.Cover(step.tokens); err != nil {
				t.Fatalf("Cover(%d) = %v", step.tokens, err)
			}
			if waited := time.Since(begun) > 0; waited != step.waits {
				t.Errorf("Cover(%d) waits: %v", step.tokens, waited)
			}
			if held := b.Balance(account).Held; held != money.Amount(100+20*step.held) {
				t.Errorf("Cover(%d) holds %d, want %d tokens", step.tokens, held, step.held)
			}
			if covered := b.disk.holds["req_1"].OutputLimit; covered < min(step.tokens, 50) {
				t.Errorf("Cover(%d) came back and the disk covers %d", step.tokens, covered)
			}
			if h.OutputLimit() != 50 {
				t.Errorf("OutputLimit = %d", h.OutputLimit())
			}
		}
		if r, err := h.Settle(used(50)); err != nil || r.Charge != 1100 || r.OutputLimit != 50 {
			t.Errorf("Settle = %+v, %v", r, err)
		}
	})
}

// The last tokens that are paid for are covered, be they less than a slice, and what
// refuses the next one says exactly what is missing, until it comes.
func TestCore_CoverToTheLast(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]money.Amount{"account": 0, "budget": 280} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			credit, paid := money.Amount(320), 11
			if limit > 0 {
				credit, paid = 10_000, 9
			}
			inBubble(t, credit, func(b *bench) {
				t := b.t
				c := b.call("req_1", 50, 1)
				if limit > 0 {
					c.Budget = ledger.Budget{ID: "b", Amount: limit}
				}
				h := b.begun(t, c, 8)
				for n := 1; n <= paid; n++ {
					if err := h.Cover(n); err != nil {
						t.Fatalf("Cover(%d) = %v", n, err)
					}
					h.Delivered(n)
				}
				want := ledger.InsufficientError{Need: 60, Available: 0, Held: money.Amount(100 + 20*paid)}
				err := h.Cover(paid + 3)
				if short, ok := errors.AsType[*ledger.InsufficientError](err); limit == 0 && (!ok || *short != want) {
					t.Errorf("beyond the account: %#v", err)
				}
				if over, ok := errors.AsType[*ledger.BudgetError](err); limit > 0 && (!ok || over.InsufficientError != want) {
					t.Errorf("beyond the budget: %#v", err)
				}
				if limit == 0 {
					b.grant(t, ledger.Grant{Amount: 20})
					if err := h.Cover(12); err != nil {
						t.Errorf("Cover after exactly another token was granted: %v", err)
					}
				}
			})
		})
	}
}

// A store that fails ends what grows, at once and for good.
func TestCore_CoverFails(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		h := b.begun(t, b.call("req_1", 50, 1), 8)
		other := b.begun(t, b.call("req_2", 50, 1), 8)
		if err := other.Cover(8); err != nil {
			t.Error(err)
		}
		synctest.Wait() // nobody waits for the extension, and it is written all the same
		if covered := b.disk.holds["req_2"].OutputLimit; covered != 16 {
			t.Errorf("the disk covers %d", covered)
		}
		b.disk.fates = func() fate { return refused }
		if err := h.Cover(7); err != nil {
			t.Errorf("what the disk covers: %v", err)
		}
		synctest.Wait()
		for range 2 {
			if err := h.Cover(7); !errors.Is(err, ledger.ErrUnavailable) {
				t.Errorf("Cover on a failed disk gives %v", err)
			}
		}
	})
}

// A hold is whole, and never grows, where its call is no longer than a slice, costs
// nothing, or found less than a slice.
func TestCore_CoverWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		credit, output money.Amount
		slice, most    int
		limit          int
	}{
		"no slices":         {1000, 20, 0, 20, 20},
		"as long as one":    {1000, 20, 20, 20, 20},
		"shorter than one":  {1000, 20, 30, 20, 20},
		"less than a slice": {200, 20, 8, 50, 5},
		"free":              {1000, 0, 4, 20, 20},
		"one longer":        {1000, 20, 19, 20, 20},
	} {
		inBubble(t, tt.credit, func(b *bench) {
			t := b.t
			c := b.call("req_1", tt.most, 1)
			c.Price.Output = tt.output
			h := b.begun(t, c, tt.slice)
			if h.OutputLimit() != tt.limit {
				t.Errorf("%s: OutputLimit = %d, want %d", name, h.OutputLimit(), tt.limit)
			}
			want := 100 + money.Amount(tt.limit)*tt.output
			if err := h.Cover(tt.limit + 1); err != nil || b.Balance(account).Held != want {
				t.Errorf("%s: Cover = %v, held %d, want %d", name, err, b.Balance(account).Held, want)
			}
			synctest.Wait()
			if grew := b.disk.extended > 0; grew != (name == "one longer") {
				t.Errorf("%s: the hold grew: %v", name, grew)
			}
		})
	}
	inBubble(t, 1000, func(b *bench) { // the smallest slice of the cheapest answer
		c := b.call("req_1", 20, 1)
		c.Price.Output = 1
		if h := b.begun(b.t, c, 1); b.Balance(account).Held != 101 || h.Cover(2) != nil || b.Balance(account).Held != 102 {
			b.t.Errorf("slices of one token at 1: %+v", b.Balance(account))
		}
	})
	inBubble(t, 1000, func(b *bench) { // what no number can say is refused, however small its first slice
		c := b.call("req_1", 1<<40, 1)
		c.Price.Output, c.Slice = money.MaxPerToken, 1
		if _, err := b.Reserve(c); !errors.Is(err, money.ErrOverflow) {
			b.t.Errorf("Reserve gives %v", err)
		}
	})
}
