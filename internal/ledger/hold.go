package ledger

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// Call is what a hold is reserved for.
type Call struct {
	RequestID    string
	CompletionID string
	AccountID    string
	KeyID        string
	Model        string
	PriceID      string
	Price        money.Price
	PlanVersion  string
	Stream       bool
	CreatedAt    time.Time
	Budget       Budget // of the key; the zero value is none
	PromptTokens int
	// Output is the most tokens that the answer may have. When the balance does not
	// cover it, the hold covers fewer, but not fewer than LeastOutput.
	Output, LeastOutput int
	// Slice, above 0, makes the hold of a stream cover so many tokens of answer at first
	// and grow with it; see [Hold.Cover].
	Slice       int
	Idempotency *Idempotency // nil for a call without a key
}

// Outcome is how a call ended. Tokens that were not computed are not counted.
type Outcome struct {
	PromptTokens     int // as the provider counted them, or as they were reserved
	CachedTokens     int
	CompletionTokens int
	Status           int // of the HTTP answer
	ErrorCode        string
	Ending           Ending
	UsageSource      UsageSource
	Target           string
	Attempts         int
	FirstToken       time.Duration
}

// Hold is the credit that one running call has set aside. Its methods are for one
// goroutine; Settle or Void must be called exactly once.
type Hold struct {
	ledger    *Ledger
	book      *book
	spending  *counter // of the budget, guarded by the book; nil without one
	receipt   Receipt  // changed by Cover only, under the lock of the book
	delivered atomic.Int64
	slot      Slot
	opened    *pending
	growth    growth
	resolved  bool
}

// Reserve sets aside included tokens, then credit, for a whole call: its prompt and as
// much output as the hold's OutputLimit says. Nothing is written. It fails with [*InsufficientError],
// [*BudgetError] or [ErrUnavailable]; calls that cost nothing are never insufficient.
func (l *Ledger) Reserve(c Call) (*Hold, error) {
	if err := l.Available(); err != nil {
		return nil, err
	}
	h := &Hold{ledger: l, book: l.book(c.AccountID), receipt: Receipt{
		RequestID: c.RequestID, CompletionID: c.CompletionID, AccountID: c.AccountID, KeyID: c.KeyID,
		Model: c.Model, PriceID: c.PriceID, Price: c.Price, PlanVersion: c.PlanVersion, Stream: c.Stream,
		CreatedAt: c.CreatedAt, Budget: c.Budget, PromptTokens: c.PromptTokens, OutputLimit: c.Output,
		State: Running, UsageSource: UsageNone, Idempotency: c.Idempotency,
	}}
	if c.Budget.ID != "" {
		h.spending = l.counter(c.Budget)
	}
	if c.Slice > 0 && c.Slice < c.Output && c.Price.Output > 0 {
		if _, err := c.Price.Cost(money.Tokens{Prompt: c.PromptTokens, Completion: c.Output}); err != nil {
			return nil, err
		}
		h.receipt.OutputLimit = c.Slice
	}
	first := h.receipt.OutputLimit
	if err := h.book.reserve(h, min(c.LeastOutput, first)); err != nil {
		return nil, err
	}
	if h.receipt.OutputLimit == first && first < c.Output {
		h.growth = growth{slice: first, most: c.Output, durable: first}
	}
	return h, nil
}

// OutputLimit is how many tokens of answer the hold covers, or will when it has grown.
func (h *Hold) OutputLimit() int { return max(h.receipt.OutputLimit, h.growth.most) }

// PromptTokens is how many tokens of prompt the hold covers.
func (h *Hold) PromptTokens() int { return h.receipt.PromptTokens }

// Persist sends the hold to the disk, so that a crash can charge what was delivered.
// It does not wait; Durable does. It fails when there is no room to note progress.
func (h *Hold) Persist() error {
	slot, err := h.ledger.progress.Claim(h.receipt.RequestID)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	h.slot = slot
	open := h.receipt
	h.opened = &pending{op: Op{Open: &open}, done: make(chan struct{})}
	h.ledger.send(h.opened, true)
	return nil
}

// Durable waits until the hold that [Hold.Persist] sent is on the disk. It fails with
// [ErrUnavailable]; nothing may then be released.
func (h *Hold) Durable() error {
	h.ledger.wait(h.opened)
	return h.opened.err
}

// Delivered notes that tokens of answer are about to be released. After a kill of the
// process the call is charged for exactly the number noted last.
func (h *Hold) Delivered(tokens int) {
	h.delivered.Store(int64(tokens))
	if h.slot != nil {
		h.slot.Set(tokens)
	}
}

// sofar is the receipt of the call while it runs. The caller has locked the book.
func (h *Hold) sofar() Receipt {
	r := h.receipt
	r.CompletionTokens = int(h.delivered.Load())
	return r
}

// Settle charges what o used, the included tokens of the hold first and the rest at the
// price of the reservation, and returns when the
// charge is durable: only then may the end of the answer be released. The rest of the
// hold returns to the account. It fails with [ErrUnavailable] or [ErrResolved].
func (h *Hold) Settle(o Outcome) (Receipt, error) {
	r := h.finish(o)
	r.State = Settled
	if h.resolved { // before anything beyond the hold is set aside for it
		return r, fmt.Errorf("%w: %s", ErrResolved, r.RequestID)
	}
	held := covered{h.receipt.PlanTokens, h.receipt.Hold}
	charged, err := cover(r.Price, r.Tokens(), held.tokens)
	if err != nil {
		return r, fmt.Errorf("charge of %s: %w", r.RequestID, err)
	}
	if charged.cost > held.cost {
		charged, r.WrittenOff = h.book.price(h, r.Tokens())
		held = covered{max(held.tokens, charged.tokens), max(held.cost, charged.cost)}
	}
	r.Charge, r.PlanTokens = charged.cost, charged.tokens
	p := h.resolve(&r, held)
	h.ledger.wait(p)
	return r, p.err
}

// Void ends the call without a charge: no answer was computed for it. The credit is
// free at once; the receipt follows. It fails with [ErrResolved].
func (h *Hold) Void(o Outcome) error {
	o.PromptTokens, o.CachedTokens, o.CompletionTokens, o.UsageSource = 0, 0, 0, UsageNone
	r := h.finish(o)
	r.State, r.PlanTokens = Voided, 0
	if h.resolved {
		return fmt.Errorf("%w: %s", ErrResolved, r.RequestID)
	}
	h.resolve(&r, covered{h.receipt.PlanTokens, h.receipt.Hold})
	return nil
}

// finish fills a receipt with the outcome.
func (h *Hold) finish(o Outcome) Receipt {
	r := h.receipt
	r.PromptTokens, r.CachedTokens, r.CompletionTokens = o.PromptTokens, o.CachedTokens, o.CompletionTokens
	r.Status, r.ErrorCode, r.Ending, r.UsageSource = o.Status, o.ErrorCode, o.Ending, o.UsageSource
	r.Target, r.Attempts = o.Target, o.Attempts
	r.FirstToken, r.Total = o.FirstToken, time.Since(r.CreatedAt)
	return r
}

// resolve sends the end of the call to the disk. The books in memory follow the
// commit, so that nobody spends what a crash would still charge; what was not charged
// needs no such care.
func (h *Hold) resolve(r *Receipt, held covered) *pending {
	h.resolved = true
	p := &pending{op: Op{Close: r}, done: make(chan struct{})}
	p.apply = func(res Result) {
		if !res.Applied {
			p.err = fmt.Errorf("%w: %s", ErrResolved, r.RequestID)
			return
		}
		if r.State != Voided {
			h.end(held, covered{r.PlanTokens, r.Charge})
		}
		if h.slot != nil {
			h.slot.Release()
		}
	}
	h.ledger.send(p, r.State == Voided)
	if r.State == Voided {
		// Only now, so that a hold that takes this credit is behind it in the queue and
		// the rows never hold more than was granted.
		h.end(held, covered{})
	}
	return p
}

// end brings the book up to date with the end of the call.
func (h *Hold) end(held, charged covered) {
	if h.book.post(h, held, charged) {
		h.ledger.lookForExpiry()
	}
}
