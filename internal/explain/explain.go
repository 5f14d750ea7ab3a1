// Package explain tells what became of one request: how its charge was made, or why it was
// refused. Console, operator's API and command line show what it finds.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// ErrNotFound means a request that nothing is known of: it never was, it was refused before
// anybody could say whose it was and is forgotten, or its record was dropped.
var ErrNotFound = errors.New("nothing is known of the request")

// Store is what package store keeps of requests.
type Store interface {
	Receipt(ctx context.Context, requestID string) (ledger.Receipt, error)
	Refunds(ctx context.Context, requestID string) ([]ledger.Refunded, error)
	Refusal(ctx context.Context, requestID string) (refusal.Record, error)
}

// Room knows where to look. Every field is required.
type Room struct {
	Store   Store
	Running func(requestID string) (ledger.Receipt, bool) // of a call that is under way
	Account func(id string) (*account.Account, bool)
	Key     func(id string) (apikey.Key, bool)
	Models  func(now time.Time) []*catalog.Model
	Nearest func(word string, candidates []string) string // the most like it, or ""
}

// Explained is what is known of a request. Exactly one of Receipt and Refusal is not nil.
type Explained struct {
	RequestID string
	Account   *account.Account // nil where nobody knows
	Key       *apikey.Key      // nil where nobody knows, or it is gone

	Receipt   *ledger.Receipt // with its price; Running says that it is not final
	Parts     []ledger.Part   // of what its tokens cost
	Refunds   []ledger.Refunded
	Sentences []string // by which rule it was charged, and who counted

	Refusal *refusal.Record
	Reason  wire.Reason
}

// Free is what the parts of an ended call cost together and nobody owes: what the tokens of the
// plan have paid for, or all of a call that is not charged. What was written off is not in it.
func (x *Explained) Free() money.Amount {
	r := x.Receipt
	if r == nil || r.State == ledger.Running {
		return 0
	}
	rest := -r.Charge - r.WrittenOff
	for _, p := range x.Parts {
		rest += p.Amount
	}
	return rest
}

// Request explains the request of that id, or the one that a completion of that id was the
// answer to. It fails with [ErrNotFound].
func (r *Room) Request(ctx context.Context, id string, now time.Time) (Explained, error) {
	if strings.HasPrefix(id, ident.Completion) {
		request, ok := ident.RequestOf(id)
		if !ok {
			return Explained{}, fmt.Errorf("%w: %.64s is no completion's id of this server", ErrNotFound, id)
		}
		id = request
	}
	// A call that ends in between is in the books by the time that it is not running.
	if c, ok := r.Running(id); ok {
		return r.receipt(c)
	}
	c, err := r.Store.Receipt(ctx, id)
	switch {
	case err == nil:
		x, err := r.receipt(c)
		if err == nil {
			x.Refunds, err = r.Store.Refunds(ctx, id)
		}
		return x, err
	case !errors.Is(err, ledger.ErrNoCharge):
		return Explained{}, err
	}
	f, err := r.Store.Refusal(ctx, id)
	if errors.Is(err, refusal.ErrNotFound) {
		return Explained{}, fmt.Errorf("%w: %.64s", ErrNotFound, id)
	}
	if err != nil {
		return Explained{}, err
	}
	return r.refused(f, now), nil
}

// who fills in whose request it was.
func (r *Room) who(x *Explained, accountID, keyID string) {
	if a, ok := r.Account(accountID); ok {
		x.Account = a
	}
	if k, ok := r.Key(keyID); ok {
		x.Key = &k
	}
}

func (r *Room) receipt(c ledger.Receipt) (x Explained, err error) {
	x = Explained{RequestID: c.RequestID, Receipt: &c}
	r.who(&x, c.AccountID, c.KeyID)
	ended := wire.Ended{State: string(c.State), Ending: string(c.Ending), UsageSource: string(c.UsageSource), Tokens: c.CompletionTokens}
	if c.WrittenOff > 0 {
		ended.WrittenOff = c.WrittenOff.String()
	}
	x.Sentences = ended.Sentences()
	if c.ErrorCode != "" {
		if s, ok := wire.Explain(c.ErrorCode); ok {
			x.Sentences = append(x.Sentences, s)
		}
	}
	x.Parts, err = c.Parts()
	return x, err
}

func (r *Room) refused(f refusal.Record, now time.Time) Explained {
	x := Explained{RequestID: f.RequestID, Refusal: &f}
	r.who(&x, f.AccountID, f.KeyID)
	with := wire.Refused{Now: now}
	switch f.Scope {
	case refusal.Account:
		with.Owner = "the account"
	case refusal.Model:
		with.Owner = "the account for " + f.Model
	case refusal.Key:
		with.Owner = "key " + f.KeyID
		if x.Key != nil {
			with.Owner = "key " + x.Key.Name
		}
	}
	switch f.Rule {
	case wire.RuleBudget:
		if x.Key != nil && x.Key.Budget.Monthly {
			at := f.At.UTC()
			with.Until = time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		}
	case wire.RuleSubscription:
		if x.Account != nil {
			with.Until = x.Account.Subscription.LastsUntil()
		}
	case wire.RulePlan, wire.RuleModel:
		r.offer(&with, f.Model, now)
	}
	x.Reason = f.Reason(with)
	return x
}

// offer fills in what there is beside the model that was asked for.
func (r *Room) offer(with *wire.Refused, model string, now time.Time) {
	var ids []string
	for _, m := range r.Models(now) {
		ids = append(ids, m.ID)
		if m.ID == model {
			with.Plans = strings.Join(slices.Sorted(slices.Values(m.Plans)), ", ")
		}
	}
	with.Nearest = r.Nearest(model, ids)
}
