package ledger_test

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// Random operations against a reference of a few lines.
func TestAgainstReference(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	rapid.Check(t, func(rt *rapid.T) {
		a := b.account(t, 0)
		var granted, posted, held int64
		type running struct {
			h    *ledger.Hold
			held int64
			// Of a stream in slices of 4: what it has delivered, may come to and has covered.
			tokens, most, limit int
			asked               bool // with its last token
		}
		var calls []*running
		rt.Repeat(map[string]func(*rapid.T){
			"grant": func(rt *rapid.T) {
				n := rapid.Int64Range(1, 5000).Draw(rt, "amount")
				if _, err := b.Grant(context.Background(), ledger.Grant{AccountID: a, Amount: money.Amount(n)}); err != nil {
					rt.Fatal(err)
				}
				granted += n
			},
			"reserve": func(rt *rapid.T) {
				n := rapid.IntRange(1, 60).Draw(rt, "output")
				stream := rapid.Bool().Draw(rt, "stream")
				need := int64(100 + 20*n)
				h, err := b.Reserve(b.call(a, stream, n))
				if (err == nil) != (need <= granted-posted-held) {
					rt.Fatalf("Reserve of %d with %d gives %v", need, granted-posted-held, err)
				}
				if err != nil {
					return
				}
				if stream {
					if err := h.Persist(); err != nil {
						rt.Fatal(err)
					}
				}
				held += need
				calls = append(calls, &running{h: h, held: need})
			},
			"begin in slices": func(rt *rapid.T) {
				most := rapid.IntRange(5, 60).Draw(rt, "most")
				const need = 100 + 20*4
				c := b.inSlices(a, 4, most)
				c.LeastOutput = 4
				h, err := b.Reserve(c)
				if (err == nil) != (need <= granted-posted-held) {
					rt.Fatalf("Reserve of %d with %d gives %v", need, granted-posted-held, err)
				}
				if err != nil {
					return
				}
				if err := h.Persist(); err != nil {
					rt.Fatal(err)
				}
				held += need
				calls = append(calls, &running{h: h, held: need, most: most, limit: 4})
			},
			"deliver": func(rt *rapid.T) {
				var open []*running
				for _, c := range calls {
					if c.tokens < c.most {
						open = append(open, c)
					}
				}
				if len(open) == 0 {
					rt.Skip()
				}
				c := open[rapid.IntRange(0, len(open)-1).Draw(rt, "call")]
				// The last token of what is covered asks for more. The one after it waits for that and
				// asks for nothing, were it the last again; without credit it is what asks.
				more := min(4, int64(c.most-c.limit), (granted-posted-held)/20)
				switch last := c.tokens+1 == c.limit; {
				case c.asked:
					c.asked = false
				case c.tokens+1 >= c.limit && more > 0:
					held, c.held, c.limit, c.asked = held+20*more, c.held+20*more, c.limit+int(more), last
				}
				if err := c.h.Cover(c.tokens + 1); (err == nil) != (c.tokens < c.limit) {
					rt.Fatalf("Cover(%d) of %d gives %v", c.tokens+1, c.limit, err)
				} else if err == nil {
					c.tokens++
				}
			},
			"end": func(rt *rapid.T) {
				if len(calls) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
				c := calls[i]
				calls = append(calls[:i], calls[i+1:]...)
				used := c.tokens
				if c.most == 0 {
					used = rapid.IntRange(0, c.h.OutputLimit()).Draw(rt, "used")
				}
				held -= c.held
				if used == 0 {
					if err := c.h.Void(done(0)); err != nil {
						rt.Fatal(err)
					}
					return
				}
				posted += int64(100 + 20*used)
				if _, err := c.h.Settle(done(used)); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) {
				got := b.Balance(a)
				if int64(got.Granted) != granted || int64(got.Posted) != posted || int64(got.Held) != held || got.Running != len(calls) {
					rt.Fatalf("Balance = %+v, want granted %d, posted %d, held %d, running %d", got, granted, posted, held, len(calls))
				}
			},
		})
		for _, c := range calls {
			if err := c.h.Void(done(0)); err != nil {
				rt.Fatal(err)
			}
		}
	})
	b.verify(t)
}
