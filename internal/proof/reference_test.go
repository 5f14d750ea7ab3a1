package proof_test

import (
	"cmp"
	"slices"

	"github.com/parley-ai/parley/internal/ledger"
)

// reference is what one account's books should say, in plain integers and as simply as it
// can be said: every charge burns grants at once, and nothing is kept in two places.
type reference struct {
	credit, tokens refPool // nano-IU; tokens that periods include
	calls          []*refCall
	budgets        map[string]int64 // spent
	charges        []refCharge
}

// refPool is what the account has of one unit.
type refPool struct {
	grants   []*refGrant
	posted   int64
	expiring int64 // of grants that have ended and that running calls may still burn
}

type refGrant struct {
	id              string
	amount, gone    int64 // gone: burned or expired
	expired         int64
	priority, order int
	ends            int64 // 0 for never
}

type refCall struct {
	hold         *ledger.Hold
	id           string
	held, tokens int64 // credit and included tokens set aside
	limit        int   // tokens of answer that they pay for
	most         int   // that it may grow to
	slice        int   // 0 for a hold that does not grow
	stream       bool
	persisted    bool
	delivered    int
	budget       string
	budgetMost   int64
}

type refCharge struct {
	id                       string
	amount, tokens, refunded int64
}

func (p *refPool) granted() (sum int64) {
	for _, g := range p.grants {
		sum += g.amount - g.expired
	}
	return sum
}

func (p *refPool) available(held int64) int64 {
	return max(0, p.granted()-p.posted-held-p.expiring)
}

func (p *refPool) add(id string, amount int64, priority int, ends int64) {
	p.grants = append(p.grants, &refGrant{id: id, amount: amount, priority: priority, ends: ends, order: len(p.grants)})
}

// burning are the grants in the order in which they burn.
func (p *refPool) burning() []*refGrant {
	return slices.SortedFunc(slices.Values(p.grants), func(a, b *refGrant) int {
		never := func(g *refGrant) int64 {
			if g.ends == 0 {
				return 1 << 62
			}
			return g.ends
		}
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(never(a), never(b)), cmp.Compare(a.order, b.order))
	})
}

func (p *refPool) spend(n int64) {
	p.posted += n
	for _, g := range p.burning() {
		part := min(n, g.amount-g.gone)
		g.gone += part
		n -= part
	}
}

// expire takes what has ended by now and nobody holds.
func (p *refPool) expire(now, held int64) {
	free := p.granted() - p.posted - held
	p.expiring = 0
	for _, g := range p.burning() {
		if g.ends != 0 && g.ends <= now {
			part := min(free, g.amount-g.gone)
			g.gone, g.expired, free = g.gone+part, g.expired+part, free-part
			p.expiring += g.amount - g.gone
		}
	}
}

func (r *reference) held(budget string) (sum int64) {
	for _, c := range r.calls {
		if budget == "" || c.budget == budget {
			sum += c.held
		}
	}
	return sum
}

func (r *reference) tokensHeld() (sum int64) {
	for _, c := range r.calls {
		sum += c.tokens
	}
	return sum
}

func (r *reference) available() int64 { return r.credit.available(r.held("")) }
func (r *reference) free() int64      { return r.tokens.available(r.tokensHeld()) }

func (r *reference) left(c *refCall) int64 {
	if c.budget == "" {
		return 1 << 62
	}
	return max(0, c.budgetMost-r.budgets[c.budget]-r.held(c.budget))
}

// bill is what a call costs beyond at most so many included tokens, and how many of them it
// uses, token by token: they pay for the prompt, then for its cached part, then for the answer.
func bill(in, cached, out int, included int64) (cost, used int64) {
	for i := range in + out {
		switch {
		case used < included:
			used++
		case i < in-cached:
			cost += inPrice
		case i < in:
			cost += cachedPrice
		default:
			cost += outPrice
		}
	}
	return cost, used
}

// reserve fills in what c holds and may write, and reports which limit refuses it.
func (r *reference) reserve(c *refCall, output, least int) string {
	c.limit, c.most = output, output
	if c.slice > 0 && c.slice < output {
		c.limit = c.slice
	} else {
		c.slice = 0
	}
	first := c.limit
	least = min(least, first)
	available, left, free := r.available(), r.left(c), r.free()
	fits := func(n int) bool {
		cost, _ := bill(prompt, 0, n, free)
		return cost <= min(available, left)
	}
	if !fits(c.limit) {
		if cost, _ := bill(prompt, 0, least, free); cost > available {
			return "balance"
		}
		if !fits(least) {
			return "budget"
		}
		for c.limit = least; fits(c.limit + 1); c.limit++ {
		}
	}
	if c.limit < first { // less than a slice is never more
		c.slice = 0
	}
	if c.slice == 0 {
		c.most = c.limit
	}
	c.held, c.tokens = bill(prompt, 0, c.limit, free)
	r.calls = append(r.calls, c)
	return ""
}

// grow sets aside what c needs to cover limit tokens, with all that is free of the included ones,
// and reports which limit refuses it.
func (r *reference) grow(c *refCall, limit int) string {
	if limit <= c.limit {
		return ""
	}
	cost, used := bill(prompt, 0, limit, c.tokens+r.free())
	switch more := cost - c.held; {
	case more > r.available():
		return "balance"
	case more > r.left(c):
		return "budget"
	}
	c.held, c.tokens, c.limit = max(c.held, cost), used, limit
	return ""
}

// end takes c off the running calls and charges what it used, as far as it is paid for: by what
// it holds, and beyond that by what is free. It returns what it cost beyond included tokens too.
func (r *reference) end(c *refCall, in, cached, out int) (charge, due int64) {
	due, used := bill(in, cached, out, c.tokens)
	charge = due
	if due > c.held {
		due, used = bill(in, cached, out, c.tokens+r.free())
		charge = min(due, c.held+min(max(0, due-c.held), r.available(), r.left(c)))
	}
	r.calls = slices.DeleteFunc(r.calls, func(o *refCall) bool { return o == c })
	r.credit.spend(charge)
	r.tokens.spend(used)
	if c.budget != "" {
		r.budgets[c.budget] += charge
	}
	r.charges = append(r.charges, refCharge{id: c.id, amount: charge, tokens: used})
	return charge, due
}

// crash is a process that ends: streams are charged for what was delivered.
func (r *reference) crash() {
	r.credit.expiring, r.tokens.expiring = 0, 0
	for _, c := range slices.Clone(r.calls) {
		switch {
		case c.persisted && c.delivered > 0:
			r.end(c, prompt, 0, min(c.delivered, c.limit))
		case c.persisted:
			r.end(c, 0, 0, 0)
		default: // nobody ever heard of it
			r.calls = slices.DeleteFunc(r.calls, func(o *refCall) bool { return o == c })
		}
	}
}
