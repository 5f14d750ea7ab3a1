package ledger

import (
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// By says what usage is added up by.
type By string

// The groups of usage.
const (
	ByKey   By = "key"
	ByModel By = "model"
	ByDay   By = "day"
	ByHour  By = "hour"
)

// Usage is what ended calls used. A call counts in the hour in which it was admitted.
type Usage struct {
	Group            string // a key's id, a model, a day or hour in UTC: "2026-11-21", "2026-11-21T14"
	Calls            int64  // voided ones too
	PromptTokens     int64
	CachedTokens     int64 // of the prompt tokens
	CompletionTokens int64
	PlanTokens       int64 // of all of them, those that a plan included
	Charge           money.Amount
	WrittenOff       money.Amount
	// Failed, Refused and Left are the calls that did not end well, by their [Class].
	Failed, Refused, Left int64
}

// Add adds what o counts; the group stays.
func (u *Usage) Add(o *Usage) {
	u.Calls += o.Calls
	u.PromptTokens += o.PromptTokens
	u.CachedTokens += o.CachedTokens
	u.CompletionTokens += o.CompletionTokens
	u.PlanTokens += o.PlanTokens
	u.Charge += o.Charge
	u.WrittenOff += o.WrittenOff
	u.Failed += o.Failed
	u.Refused += o.Refused
	u.Left += o.Left
}

// UsageFilter says which usage of an account is added up. What is empty does not filter.
type UsageFilter struct {
	AccountID string // must be given
	KeyID     string
	Model     string
	From, To  time.Time // full hours; To is not in it
}

// Statement is how the balance of an account went from Opening to Closing: every line
// adds its Amount.
type Statement struct {
	From, To         time.Time
	Opening, Closing money.Amount
	Lines            []Line
}

// Line is one entry of the books, or the usage of a day by one key of one model.
type Line struct {
	At     time.Time // of usage, the day
	Kind   string    // usage, debit, expiry or a Kind of grant
	Text   string
	KeyID  string // of usage, as what follows
	Model  string
	Usage  Usage
	Amount money.Amount // below 0 when the balance falls
}
