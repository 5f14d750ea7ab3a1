package account

import (
	"errors"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// Budget bounds what a key may spend of its account's credit. The zero value is none.
type Budget struct {
	ID      string // of what is counted; keys that take each other's place share it
	Amount  money.Amount
	Monthly bool // it begins anew with every month, in UTC
}

// ErrBudget means a budget that is no amount.
var ErrBudget = errors.New("a budget is an amount of IU above 0, or one with /month")

const perMonth = "/month"

// ParseBudget reads "25" or "25/month" as a budget without an id. It fails with
// [ErrBudget].
func ParseBudget(text string) (Budget, error) {
	text, monthly := strings.CutSuffix(text, perMonth)
	amount, err := money.ParseAmount(text)
	if err != nil || amount <= 0 {
		return Budget{}, ErrBudget
	}
	return Budget{Amount: amount, Monthly: monthly}, nil
}

// String is what [ParseBudget] reads.
func (b Budget) String() string {
	if b.Monthly {
		return b.Amount.String() + perMonth
	}
	return b.Amount.String()
}

// Period is what is counted together with a call of that time: the month as 202611, or
// 0, which is everything.
func (b Budget) Period(t time.Time) int64 {
	if !b.Monthly {
		return 0
	}
	year, month, _ := t.UTC().Date()
	return int64(year)*100 + int64(month)
}
