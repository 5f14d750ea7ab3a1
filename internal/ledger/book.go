package ledger

import (
	"math"
	"sync"

	"github.com/parley-ai/parley/internal/money"
)

// book is one account in memory.
type book struct {
	mu      sync.Mutex
	pools   [2]pool // by their units
	running map[*Hold]struct{}
}

// reserve sets aside what h needs: included tokens first, and credit of the account and
// of h's budget for the rest. When the whole is not there, the output shrinks to what
// is, but not below least tokens.
func (b *book) reserve(h *Hold, least int) error {
	price, prompt := h.receipt.Price, h.receipt.PromptTokens
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := int(min(b.pools[Tokens].available(), math.MaxInt32))
	need, err := cover(price, money.Tokens{Prompt: prompt, Completion: h.receipt.OutputLimit}, tokens)
	if err != nil {
		return err
	}
	available, left := b.pools[Credit].available(), money.Amount(math.MaxInt64)
	if h.spending != nil {
		left = h.spending.Left(h.receipt.Budget.Amount)
	}
	if need.cost > min(available, left) {
		floor, err := cover(price, money.Tokens{Prompt: prompt, Completion: least}, tokens)
		if err != nil {
			return err
		}
		if floor.cost > available {
			return &InsufficientError{Need: floor.cost, Available: available, Held: b.pools[Credit].held, Tokens: int64(tokens)}
		}
		if floor.cost > left {
			return &BudgetError{InsufficientError{Need: floor.cost, Available: left, Held: h.spending.Held, Tokens: int64(tokens)}}
		}
		// The floor is paid for and the whole is not, so the output price is above 0.
		h.receipt.OutputLimit = max(least, Fits(price, prompt, int64(tokens), min(available, left)))
		if need, err = cover(price, money.Tokens{Prompt: prompt, Completion: h.receipt.OutputLimit}, tokens); err != nil {
			return err
		}
	}
	h.receipt.Hold, h.receipt.PlanTokens = need.cost, need.tokens
	b.hold(h, need.cost, need.tokens)
	if b.running == nil {
		b.running = map[*Hold]struct{}{}
	}
	b.running[h] = struct{}{}
	return nil
}

// hold sets aside more for h. The caller has locked b.
func (b *book) hold(h *Hold, credit money.Amount, tokens int) {
	b.pools[Credit].held += credit
	b.pools[Tokens].held += money.Amount(tokens)
	h.spending.hold(credit)
}

// price says what of t, which costs more than h holds, is paid for: by what h holds, by
// more included tokens, and by what is left of the balance and of the budget. That is set
// aside, so that nobody else spends it before the charge is posted. The caller knows that
// an amount can say what t costs.
func (b *book) price(h *Hold, t money.Tokens) (paid covered, writtenOff money.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &h.receipt
	most := r.PlanTokens + int(min(b.pools[Tokens].available(), math.MaxInt32))
	due, _ := cover(r.Price, t, most) // which more tokens cannot make dearer
	extra := min(max(0, due.cost-r.Hold), b.pools[Credit].available())
	if h.spending != nil {
		extra = min(extra, h.spending.Left(r.Budget.Amount))
	}
	b.hold(h, extra, max(0, due.tokens-r.PlanTokens))
	charge := min(due.cost, r.Hold+extra)
	return covered{due.tokens, charge}, due.cost - charge
}

// post ends h: what it holds is released and what was charged is spent. It reports
// whether something waits for that to expire.
func (b *book) post(h *Hold, held, charged covered) (expiring bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools[Credit].post(held.cost, charged.cost)
	b.pools[Tokens].post(money.Amount(held.tokens), money.Amount(charged.tokens))
	h.spending.post(held.cost, charged.cost)
	delete(b.running, h)
	return b.pools[Credit].expiring > 0 || b.pools[Tokens].expiring > 0
}

// take sets aside n of the credit for a debit.
func (b *book) take(n money.Amount) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pools[Credit]
	if available := p.available(); n > available {
		return &InsufficientError{Need: n, Available: available, Held: p.held}
	}
	p.held += n
	return nil
}

// takeUpTo sets aside n of the credit, or what is available of it.
func (b *book) takeUpTo(n money.Amount) money.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pools[Credit]
	n = min(n, p.available())
	p.held += n
	return n
}

// reverse posts what was taken of what takeUpTo has set aside, and grants what was returned of
// what was announced.
func (b *book) reverse(aside, taken, announced, returned money.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pools[Credit]
	p.post(aside, taken)
	p.grant(announced, false)
	p.granted += returned
}

// spend posts what take has set aside.
func (b *book) spend(n money.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools[Credit].post(n, n)
}

func (b *book) setAside(u Unit, most money.Amount) money.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pools[u].setAside(most)
}

func (b *book) expire(u Unit, aside, taken, left money.Amount) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pools[u].expire(aside, taken, left)
}

// announce makes room for grants on their way, or for none of them.
func (b *book) announce(credit, tokens money.Amount) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.pools[Credit].announce(credit); err != nil {
		return err
	}
	if err := b.pools[Tokens].announce(tokens); err != nil {
		b.pools[Credit].grant(credit, false)
		return err
	}
	return nil
}

func (b *book) grant(credit, tokens money.Amount, added bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools[Credit].grant(credit, added)
	b.pools[Tokens].grant(tokens, added)
}

func (b *book) balance() Balance {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, t := &b.pools[Credit], &b.pools[Tokens]
	return Balance{
		Granted: c.granted, Posted: c.posted, Held: c.held, Expiring: c.expiring, Running: len(b.running),
		Tokens: TokenBalance{Granted: int64(t.granted), Posted: int64(t.posted), Held: int64(t.held), Expiring: int64(t.expiring)},
	}
}

func (b *book) receipts() []Receipt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rs []Receipt
	for h := range b.running {
		rs = append(rs, h.sofar())
	}
	return rs
}

// find returns the receipt so far of a call that is under way.
func (b *book) find(requestID string) (Receipt, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.running {
		if h.receipt.RequestID == requestID {
			return h.sofar(), true
		}
	}
	return Receipt{}, false
}
