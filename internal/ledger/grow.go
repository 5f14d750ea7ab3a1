package ledger

import "github.com/parley-ai/parley/internal/money"

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
// one when three quarters of what it covers are used, so that the next is on the disk
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
			if tokens > g.durable {
				h.ledger.wait(g.extension)
			}
			select {
			case <-g.extension.done:
				if g.extension.err != nil {
					return g.extension.err
				}
				g.durable, g.extension = g.limit, nil
				continue
			default:
				return nil
			}
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
// more than before.
func (b *book) extend(h *Hold, want, least int) error {
	r := &h.receipt
	b.mu.Lock()
	defer b.mu.Unlock()
	least = max(least, r.OutputLimit+1)
	available := b.available()
	spare := available / r.Price.Output
	floor := money.Amount(least-r.OutputLimit) * r.Price.Output
	if floor > available {
		return &InsufficientError{Need: floor, Available: available, Held: b.held}
	}
	if h.spending != nil {
		left := h.spending.Left(r.Budget.Amount)
		if floor > left {
			return &BudgetError{InsufficientError{Need: floor, Available: left, Held: h.spending.Held}}
		}
		spare = min(spare, left/r.Price.Output)
	}
	more := min(spare, money.Amount(want-r.OutputLimit))
	r.OutputLimit += int(more)
	r.Hold += more * r.Price.Output
	b.held += more * r.Price.Output
	h.spending.hold(more * r.Price.Output)
	return nil
}
