package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

// ErrPayment means a payment that has become no grant.
var ErrPayment = errors.New("no such payment")

// Reversal says that some of a payment went back to who paid, that a refund of it has failed, or
// that a dispute of it has begun or ended.
type Reversal struct {
	Payment   Payment
	Source    string // of the message that says so: told again it changes nothing
	Claim     Claim
	ByHand    bool // how much it is of the payment is not known: nothing moves, and somebody has to decide
	Action    audit.Action
	Reason    string
	DebitID   string       // set by Reverse, as what follows
	Most      money.Amount // that can be taken
	GrantID   string
	Actor     string
	CreatedAt time.Time
}

// Reversed is what became of a reversal.
type Reversed struct {
	Added      bool         // false: it says nothing new
	Taken      money.Amount // from the account
	WrittenOff money.Amount // that the account does not have, or running calls hold
	Returned   money.Amount // to the account: it was taken for a refund that failed
}

// Reverse takes back the credit of what went back of a payment, as far as the account has it:
// never what running calls hold, and never below zero. The rest is written off, for good. What a
// refund has taken that failed is granted again, at most what was taken for the payment and is due
// no more. In sum no more is taken for a payment than is due, in whichever order its messages
// come. It returns when that is durable. The actor is that of ctx. It fails with [ErrAmount] or
// [ErrUnavailable].
func (l *Ledger) Reverse(ctx context.Context, r Reversal) (Reversed, error) {
	c := &r.Claim
	if c.Kind != Noted && (c.Back < 0 || c.Back > MaxBack || c.Of <= 0 || c.Of > MaxBack) {
		return Reversed{}, ErrAmount
	}
	defer l.takeBack()()
	// Nobody else changes it meanwhile. What is set aside is not there for calls, so it is no more
	// than that: most messages are told several times, and change nothing.
	owed, err := l.store.Owed(ctx, &r)
	if err != nil {
		return Reversed{}, err
	}
	b := l.book(r.Payment.AccountID)
	r.DebitID, r.GrantID, r.Actor, r.CreatedAt = ident.New(ident.Debit), ident.New(ident.Grant), audit.Actor(ctx), now()
	var room money.Amount
	switch {
	case c.Kind == Noted:
	case owed > 0:
		r.Most = b.takeUpTo(owed)
	case c.Failed:
		room = -owed
		if err := b.announce(room, 0); err != nil {
			return Reversed{}, err
		}
	}
	res, err := l.do(Op{Reverse: &r}, func(res Result) { b.reverse(r.Most, res.Amount, room, res.Returned) })
	if err != nil {
		return Reversed{}, err
	}
	l.lookForExpiry() // what was set aside and not taken may have ended meanwhile
	return Reversed{Added: res.Applied, Taken: res.Amount, WrittenOff: res.Left, Returned: res.Returned}, nil
}
