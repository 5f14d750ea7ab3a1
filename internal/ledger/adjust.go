package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

// Errors of refunds.
var (
	// ErrNoCharge means a refund of a call that is not in the books or has not ended.
	ErrNoCharge = errors.New("no such charge")
	// ErrRefunded means that so much was not charged, or was given back already.
	ErrRefunded = errors.New("a refund is at most what was charged")
)

// Debit is credit that is taken from an account, as a charge is, by an operator.
type Debit struct {
	ID        string
	AccountID string
	Amount    money.Amount
	Reason    string
	Actor     string
	Origin    string // see [audit.Entry]
	CreatedAt time.Time
}

// Charged is one charge and what was given back of it.
type Charged struct {
	AccountID        string
	Charge, Refunded money.Amount
}

// Adjust corrects the credit of an account: above 0 it grants, below 0 it takes, at most
// what is available. The actor is that of ctx. It returns when that is durable and
// fails with [ErrAmount], [ErrAccount], [*InsufficientError] or [ErrUnavailable].
func (l *Ledger) Adjust(ctx context.Context, accountID string, amount money.Amount, reason string) error {
	if amount >= 0 { // no grant is of 0
		_, err := l.Grant(ctx, Grant{AccountID: accountID, Kind: Adjust, Amount: amount, Note: reason})
		return err
	}
	if amount < -money.MaxAmount {
		return ErrAmount
	}
	b := l.book(accountID)
	if err := b.take(-amount); err != nil {
		return err
	}
	d := &Debit{ID: ident.New(ident.Debit), AccountID: accountID, Amount: -amount, Reason: reason, Actor: audit.Actor(ctx), Origin: audit.Origin(ctx), CreatedAt: now()}
	_, err := l.do(Op{Debit: d}, func(Result) { b.spend(d.Amount) })
	return err
}

// Refund gives back amount of the charge of a call, all that is left of it when amount
// is 0, to the account that paid. The actor is that of ctx. It returns the
// charge with what was given back of it, and fails with [ErrNoCharge], [ErrRefunded] or [ErrUnavailable].
func (l *Ledger) Refund(ctx context.Context, requestID string, amount money.Amount, reason string) (Charged, error) {
	c, err := l.store.Charged(ctx, requestID)
	if err != nil {
		return c, err
	}
	if amount == 0 {
		amount = c.Charge - c.Refunded
	}
	if amount <= 0 || amount > c.Charge-c.Refunded {
		return c, fmt.Errorf("%w: %s of %s is left", ErrRefunded, c.Charge-c.Refunded, c.Charge)
	}
	// Whether that is still so is asked again where it is written.
	if _, err := l.Grant(ctx, Grant{AccountID: c.AccountID, Kind: Refund, Amount: amount, Note: reason, RequestID: requestID}); err != nil {
		return c, err
	}
	// It is not read anew: who was told of a failure would give it back again.
	c.Refunded += amount
	return c, nil
}
