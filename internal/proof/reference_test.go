package proof_test

import (
	"cmp"
	"slices"

	"github.com/parley-ai/parley/internal/ledger"
)

// reference is what one account's books should say, in plain integers and as simply as it
// can be said: every charge burns grants at once, and nothing is kept in two places.
type reference struct {
	grants   []*refGrant
	posted   int64
	expiring int64 // of grants that have ended and that running calls may still burn
	calls    []*refCall
	budgets  map[string]int64 // spent
	charges  []refCharge
}

type refGrant struct {
	id              string
	amount, gone    int64 // gone: burned or expired
	expired         int64
	priority, order int
	ends            int64 // 0 for never
}

type refCall struct {
	hold      *ledger.Hold
	id        string
	held      int64
	limit     int
	stream    bool
	persisted bool
	delivered int
	budget    string
	most      int64 // of the budget
}

type refCharge struct {
	id               string
	amount, refunded int64
}

func (r *reference) granted() (sum int64) {
	for _, g := range r.grants {
		sum += g.amount - g.expired
	}
	return sum
}

func (r *reference) held(budget string) (sum int64) {
	for _, c := range r.calls {
		if budget == "" || c.budget == budget {
			sum += c.held
		}
	}
	return sum
}

func (r *reference) available() int64 {
	return max(0, r.granted()-r.posted-r.held("")-r.expiring)
}

func (r *reference) left(c *refCall) int64 {
	if c.budget == "" {
		return 1 << 62
	}
	return max(0, c.most-r.budgets[c.budget]-r.held(c.budget))
}

func (r *reference) add(id string, amount int64, priority int, ends int64) {
	r.grants = append(r.grants, &refGrant{id: id, amount: amount, priority: priority, ends: ends, order: len(r.grants)})
}

// burned are the grants in the order in which they burn.
func (r *reference) burning() []*refGrant {
	return slices.SortedFunc(slices.Values(r.grants), func(a, b *refGrant) int {
		never := func(g *refGrant) int64 {
			if g.ends == 0 {
				return 1 << 62
			}
			return g.ends
		}
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(never(a), never(b)), cmp.Compare(a.order, b.order))
	})
}

func (r *reference) spend(n int64) {
	r.posted += n
	for _, g := range r.burning() {
		part := min(n, g.amount-g.gone)
		g.gone += part
		n -= part
	}
}

// reserve fills in what c holds and may write, and reports which limit refuses it.
func (r *reference) reserve(c *refCall, output, least int) string {
	cost := func(n int) int64 { return prompt*inPrice + int64(n)*outPrice }
	available, left := r.available(), r.left(c)
	c.limit = output
	if room := min(available, left); cost(output) > room {
		if cost(least) > available {
			return "balance"
		}
		if cost(least) > left {
			return "budget"
		}
		for c.limit = least; cost(c.limit+1) <= room; c.limit++ {
		}
	}
	c.held = cost(c.limit)
	r.calls = append(r.calls, c)
	return ""
}

// end takes c off the running calls and charges what it used, as far as it is paid for.
func (r *reference) end(c *refCall, cost int64) (charge int64) {
	extra := min(max(0, cost-c.held), r.available(), r.left(c))
	charge = min(cost, c.held+extra)
	r.calls = slices.DeleteFunc(r.calls, func(o *refCall) bool { return o == c })
	r.spend(charge)
	if c.budget != "" {
		r.budgets[c.budget] += charge
	}
	r.charges = append(r.charges, refCharge{id: c.id, amount: charge})
	return charge
}

// expire takes what has ended by now and nobody holds.
func (r *reference) expire(now int64) {
	free := r.granted() - r.posted - r.held("")
	r.expiring = 0
	for _, g := range r.burning() {
		if g.ends != 0 && g.ends <= now {
			part := min(free, g.amount-g.gone)
			g.gone, g.expired, free = g.gone+part, g.expired+part, free-part
			r.expiring += g.amount - g.gone
		}
	}
}

// crash is a process that ends: streams are charged for what was delivered.
func (r *reference) crash() {
	r.expiring = 0
	for _, c := range slices.Clone(r.calls) {
		switch {
		case c.persisted && c.delivered > 0:
			r.end(c, prompt*inPrice+int64(min(c.delivered, c.limit))*outPrice)
		case c.persisted:
			r.end(c, 0)
		default: // nobody ever heard of it
			r.calls = slices.DeleteFunc(r.calls, func(o *refCall) bool { return o == c })
		}
	}
}
