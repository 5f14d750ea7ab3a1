package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// ErrCursor means a [Filter.Before] that no [Page] gave.
var ErrCursor = errors.New("the list cannot go on from there")

// Filter says which ended calls of an account are listed. What is zero does not filter.
type Filter struct {
	AccountID string // must be given
	KeyID     string
	Model     string
	Class     Class
	From, To  time.Time    // of admission; To is not in it
	Least     money.Amount // that was charged
	// Before goes on behind the Next of the page before.
	Before string
	Limit  int // 0 is DefaultPage, at most MostPage
}

// Sizes of pages.
const (
	DefaultPage = 50
	MostPage    = 1000
)

// Page is some receipts, newest first. Next is empty when there are no more. A page may
// have fewer receipts than were asked for, even none, and yet a Next: then that much was
// searched, and what is wanted is rare.
type Page struct {
	Receipts []Receipt
	Next     string
}

// Cursor is the [Filter.Before] that goes on behind r.
func (r *Receipt) Cursor() string {
	return strconv.FormatInt(r.CreatedAt.Unix()/3600, 10) + "." + r.RequestID
}

// Part is one line of a charge: Count tokens of a kind at Price are Amount.
type Part struct {
	Kind   PartKind
	Count  int
	Price  money.Amount // of a token
	Amount money.Amount
}

// PartKind is what a [Part] counts.
type PartKind string

// The kinds of parts.
const (
	PartPrompt     PartKind = "prompt"
	PartCached     PartKind = "cached prompt"
	PartCompletion PartKind = "completion"
)

// Parts explains the charge: the amounts add up to what was charged and written off. It
// fails with an error of package money for a receipt of no price that there can be.
func (r *Receipt) Parts() ([]Part, error) {
	parts := []Part{
		{Kind: PartPrompt, Count: r.PromptTokens - r.CachedTokens, Price: r.Price.Input},
		{Kind: PartCached, Count: r.CachedTokens, Price: r.Price.CachedInput},
		{Kind: PartCompletion, Count: r.CompletionTokens, Price: r.Price.Output},
	}
	for i := range parts {
		p := &parts[i]
		tokens := money.Tokens{Completion: p.Count}
		cost, err := money.Price{Output: p.Price}.Cost(tokens)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", p.Kind, r.RequestID, err)
		}
		p.Amount = cost
	}
	return parts, nil
}

// Refunded is credit that was given back of a charge.
type Refunded struct {
	Amount money.Amount
	Reason string
	At     time.Time
}
