package ledger

import (
	"math"
	"sync"

	"github.com/parley-ai/parley/internal/money"
)

// book is one account in memory. At every moment posted + held <= granted.
type book struct {
	mu        sync.Mutex
	granted   money.Amount
	announced money.Amount // grants on their way to the disk: not to be spent yet
	posted    money.Amount
	held      money.Amount
	expiring  money.Amount // of grants that have ended, to be taken when holds resolve
	running   map[*Hold]struct{}
}

// reserve sets aside what h needs, of the account and of h's budget. When the whole is
// not there, the output shrinks to what is, but not below least tokens.
func (b *book) reserve(h *Hold, least int) error {
	price, prompt := h.receipt.Price, h.receipt.PromptTokens
	need, err := price.Cost(money.Tokens{Prompt: prompt, Completion: h.receipt.OutputLimit})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	available, left := b.available(), money.Amount(math.MaxInt64)
	if h.spending != nil {
		left = h.spending.Left(h.receipt.Budget.Amount)
	}
	if need > min(available, left) {
		floor, err := price.Cost(money.Tokens{Prompt: prompt, Completion: least})
		if err != nil {
			return err
		}
		if floor > available {
			return &InsufficientError{Need: floor, Available: available, Held: b.held}
		}
		if floor > left {
			return &BudgetError{InsufficientError{Need: floor, Available: left, Held: h.spending.Held}}
		}
		// floor <= min(available, left) < need, so the output price is above 0.
		spare := (min(available, left) - floor) / price.Output
		h.receipt.OutputLimit = least + int(spare)
		need = floor + spare*price.Output
	}
	h.receipt.Hold = need
	b.held += need
	h.spending.hold(need)
	if b.running == nil {
		b.running = map[*Hold]struct{}{}
	}
	b.running[h] = struct{}{}
	return nil
}

// price returns what of cost is charged: all of it, or, when it exceeds the hold,
// what the hold and the rest of the balance, and of the budget, pay.
func (b *book) price(h *Hold, cost money.Amount) (charge, writtenOff money.Amount) {
	hold := h.receipt.Hold
	if cost <= hold {
		return cost, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	extra := min(cost-hold, b.available())
	if h.spending != nil {
		extra = min(extra, h.spending.Left(h.receipt.Budget.Amount))
	}
	b.held += extra // so that nobody else spends it before the charge is posted
	h.spending.hold(extra)
	return hold + extra, cost - hold - extra
}

// available is what a call may hold. The caller has locked b.
func (b *book) available() money.Amount { return max(0, b.granted-b.posted-b.held-b.expiring) }

// post ends h: its hold is released and charge is spent. It reports whether something
// waits for that to expire.
func (b *book) post(h *Hold, held, charge money.Amount) (expiring bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= held
	b.posted += charge
	h.spending.post(held, charge)
	delete(b.running, h)
	return b.expiring > 0
}

// setAside takes at most most out of what calls may hold.
func (b *book) setAside(most money.Amount) money.Amount {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(most, b.granted-b.posted-b.held)
	b.held += n
	return n
}

// take sets aside n for a debit.
func (b *book) take(n money.Amount) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if available := b.available(); n > available {
		return &InsufficientError{Need: n, Available: available, Held: b.held}
	}
	b.held += n
	return nil
}

// spend posts what take has set aside.
func (b *book) spend(n money.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	b.posted += n
}

// expire ends what setAside began: taken of it is gone, and left shall follow.
func (b *book) expire(aside, taken, left money.Amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= aside
	b.granted -= taken
	b.expiring = left
}

// announce makes sure that a grant on its way cannot overflow the account.
func (b *book) announce(a money.Amount) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum, err1 := b.granted.Add(b.announced)
	_, err2 := sum.Add(a)
	if err1 != nil || err2 != nil {
		return ErrAmount
	}
	b.announced += a
	return nil
}

func (b *book) grant(a money.Amount, added bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.announced -= a
	if added {
		b.granted += a
	}
}

func (b *book) balance() Balance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Balance{Granted: b.granted, Posted: b.posted, Held: b.held, Expiring: b.expiring, Running: len(b.running)}
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
