package ledger

import (
	"fmt"

	"github.com/parley-ai/parley/internal/money"
)

// Budget bounds what a call may spend beside what its account has. The zero value is
// none. Calls of one account share a budget by its ID and count together that have one
// Period; each may have an Amount of its own.
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

// Spending is the state of a budget of the account; one that nobody has spent from is zero.
func (l *Ledger) Spending(accountID string, b Budget) Spending {
	s := l.spending(b)
	book := l.book(accountID)
	book.mu.Lock()
	defer book.mu.Unlock()
	return *s
}

// spending returns the counter of b, which is guarded by the book of its account.
func (l *Ledger) spending(b Budget) *Spending {
	key := budgetKey{b.ID, b.Period}
	if s, ok := l.budgets.Load(key); ok {
		return s.(*Spending)
	}
	s, _ := l.budgets.LoadOrStore(key, new(Spending))
	return s.(*Spending)
}

// hold adds to what is held of the budget, where there is one.
func (s *Spending) hold(a money.Amount) {
	if s != nil {
		s.Held += a
	}
}

// post turns held into spent.
func (s *Spending) post(held, charge money.Amount) {
	if s != nil {
		s.Held -= held
		s.Spent += charge
	}
}
