package ledger

import (
	"math"

	"github.com/parley-ai/parley/internal/money"
)

// growth is how the hold of a stream that has no end yet becomes larger. The zero value
// is a hold that covers everything from the beginning.
type growth struct {
	slice, most int      // tokens of answer
	durable     int      // tokens that the row on the disk covers
	extension   *pending // on its way to the disk
	limit       int      // what the row covers then
}

// Cover makes sure that the hold covers that many tokens of answer, in all choices, before
// they are noted and released. A hold that was reserved in slices is extended by another
// one when a quarter of a slice is left of what it covers, so that the next is on the disk
// before it is needed; when it is not, Cover waits. Nothing that a crash would not charge
// is ever covered, and no extension takes what others hold.
//
// It comes after [Hold.Durable] and fails with [*InsufficientError] or [*BudgetError] when
// there is no credit for those tokens: the answer ends with the tokens before. It fails
// with [ErrUnavailable], and does nothing to a hold that covers everything.
func (h *Hold) Cover(tokens int) error {
	g := &h.growth
	tokens = min(tokens, g.most) // beyond it no hold ever covers
	for g.durable < g.most {
		if g.extension != nil {
			waits := tokens > g.durable
			if waits {
				h.ledger.wait(g.extension)
			}
			select {
			case <-g.extension.done:
			default:
				return nil
			}
			if g.extension.err != nil {
				return g.extension.err
			}
			g.durable, g.extension = g.limit, nil
			// Whoever has waited is late: the next slice is asked for with the next token.
			if waits && tokens <= g.durable {
				return nil
			}
			continue
		}
		if tokens <= g.durable-g.slice/4 {
			return nil
		}
		if err := h.extend(tokens); err != nil {
			if tokens <= g.durable {
				return nil // until then there may be credit again
			}
			return err
		}
	}
	return nil
}

// extend sets credit aside for another slice and sends the larger hold to the disk.
func (h *Hold) extend(tokens int) error {
	g := &h.growth
	want := min(g.most, max(g.durable+g.slice, tokens))
	if err := h.book.extend(h, want, tokens); err != nil {
		return err
	}
	larger := h.receipt
	g.limit = larger.OutputLimit
	g.extension = &pending{op: Op{Extend: &larger}, done: make(chan struct{})}
	h.ledger.send(g.extension, tokens <= g.durable)
	return nil
}

// extend makes h cover want tokens, or as many as are paid for, but at least least and
// more than before. What is paid for is asked of the whole call: included tokens that
// have become free pay for its prompt first, as they will when it is charged.
func (b *book) extend(h *Hold, want, least int) error {
	r := &h.receipt
	b.mu.Lock()
	defer b.mu.Unlock()
	least = max(least, r.OutputLimit+1)
	free := min(b.pools[Tokens].available(), math.MaxInt32)
	tokens := r.PlanTokens + int(free)
	whole := func(output int) (covered, error) {
		return cover(r.Price, money.Tokens{Prompt: r.PromptTokens, Completion: output}, tokens)
	}
	available, left := b.pools[Credit].available(), money.Amount(math.MaxInt64)
	if h.spending != nil {
		left = h.spending.Left(r.Budget.Amount)
	}
	floor, err := whole(least)
	if err != nil {
		return err
	}
	if more := floor.cost - r.Hold; more > available {
		return &InsufficientError{Need: more, Available: available, Held: b.pools[Credit].held, Tokens: int64(free)}
	} else if more > left {
		return &BudgetError{InsufficientError{Need: more, Available: left, Held: h.spending.Held, Tokens: int64(free)}}
	}
	output := max(least, min(want, Fits(r.Price, r.PromptTokens, int64(tokens), r.Hold+min(available, left))))
	need, err := whole(output)
	if err != nil {
		return err
	}
	b.hold(h, max(0, need.cost-r.Hold), need.tokens-r.PlanTokens)
	r.OutputLimit, r.Hold, r.PlanTokens = output, max(r.Hold, need.cost), need.tokens
	return nil
}
