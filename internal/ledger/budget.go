package ledger

import (
	"fmt"

	"github.com/parley-ai/parley/internal/money"
)

// Budget bounds what a call may spend beside what its account has. The zero value is
// none. Calls of one account share a budget by its ID and count together that have one
// Period; all of them count for that of everything. Each may have an Amount of its own.
type Budget struct {
	ID     string
	Period int64 // a month, as 202611, or 0 for everything
	Amount money.Amount
}

// Spending is what calls have spent of a budget and what those under way hold of it.
type Spending struct {
	Spent, Held money.Amount
}

// Left is what a new call could hold of amount.
func (s Spending) Left(amount money.Amount) money.Amount { return max(0, amount-s.Spent-s.Held) }

// BudgetError is a call that the account's balance covers and its budget does not.
type BudgetError struct{ InsufficientError }

func (e *BudgetError) Error() string {
	return fmt.Sprintf("budget exceeded: %s needed, %s left, %s held", e.Need, e.Available, e.Held)
}

// BudgetTotal is what a budget has spent in a period, at rest.
type BudgetTotal struct {
	ID     string
	Period int64
	Spent  money.Amount
}

// budgetKey is a period of a budget.
type budgetKey struct {
	id     string
	period int64
}

// counter is the spending of a period of a budget, and of everything where that is another; nil
// is of no budget.
type counter struct {
	Spending
	all *counter
}

// Spending is the state of a budget of the account; one that nobody has spent from is zero.
func (l *Ledger) Spending(accountID string, b Budget) Spending {
	c := l.counter(b)
	book := l.book(accountID)
	book.mu.Lock()
	defer book.mu.Unlock()
	return c.Spending
}

// counter returns the counter of b, which is guarded by the book of its account.
func (l *Ledger) counter(b Budget) *counter {
	key := budgetKey{b.ID, b.Period}
	if c, ok := l.budgets.Load(key); ok {
		return c.(*counter)
	}
	fresh := new(counter)
	if b.Period != 0 {
		fresh.all = l.counter(Budget{ID: b.ID})
	}
	c, _ := l.budgets.LoadOrStore(key, fresh)
	return c.(*counter)
}

// hold adds to what is held of the budget, where there is one.
func (c *counter) hold(a money.Amount) {
	for ; c != nil; c = c.all {
		c.Held += a
	}
}

// post turns held into spent.
func (c *counter) post(held, charge money.Amount) {
	for ; c != nil; c = c.all {
		c.Held -= held
		c.Spent += charge
	}
}
