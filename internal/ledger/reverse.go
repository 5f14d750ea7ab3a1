package ledger

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

// ErrPayment means a payment that has become no grant.
var ErrPayment = errors.New("no such payment")

// Payment is the grant that a payment has become.
type Payment struct {
	AccountID string
	Source    string // of the grant
	Credit    money.Amount
	Paid      int64  // in the smallest unit of Currency; 0 where nobody has said
	Currency  string // three letters, in lower case; empty where nobody has said
}

// Comparable reports whether sums of that currency can be compared with what was paid.
func (p *Payment) Comparable(currency string) bool {
	return p.Paid > 0 && p.Currency != "" && p.Currency == currency
}

// Share is the credit of so much of the payment, rounded down: all of it when of is not above 0
// or back is not below it.
func (p *Payment) Share(back, of int64) money.Amount {
	switch {
	case back <= 0:
		return 0
	case back >= of:
		return p.Credit
	}
	hi, lo := bits.Mul64(uint64(p.Credit), uint64(back))
	share, _ := bits.Div64(hi, lo, uint64(of)) // back is below of: it is below Credit
	return money.Amount(share)
}

// Reversal says that some of a payment went back to who paid, or that a dispute of it has begun
// or ended.
type Reversal struct {
	Payment   Payment
	Source    string       // of the message that says so: told again it changes nothing
	Part      string       // of the payment: its refunds, or one dispute
	Due       money.Amount // the credit of the whole part by now, what was taken for it before included
	ByHand    bool         // how much is due is not known, and nothing taken: somebody has to decide
	Action    audit.Action
	Reason    string
	DebitID   string       // set by Reverse, as what follows
	Most      money.Amount // that can be taken
	Actor     string
	CreatedAt time.Time
}

// Reversed is what became of a reversal.
type Reversed struct {
	Added      bool         // false: it was told before
	Taken      money.Amount // from the account
	WrittenOff money.Amount // that the account does not have, or running calls hold
}

// Reverse takes back the credit of what went back of a payment, as far as the account has it:
// never what running calls hold, and never below zero. The rest is written off, for good. In
// sum no more is taken for a part than is due, and for a payment than it has brought, in
// whichever order its messages come. It returns when that is durable. The actor is that of ctx.
// It fails with [ErrAmount] or [ErrUnavailable].
func (l *Ledger) Reverse(ctx context.Context, r Reversal) (Reversed, error) {
	if r.Due < 0 || r.Due > r.Payment.Credit {
		return Reversed{}, ErrAmount
	}
	b := l.book(r.Payment.AccountID)
	r.DebitID, r.Actor, r.CreatedAt = ident.New(ident.Debit), audit.Actor(ctx), now()
	r.Most = b.takeUpTo(r.Due)
	res, err := l.do(Op{Reverse: &r}, func(res Result) { b.reverse(r.Most, res.Amount) })
	if err != nil {
		return Reversed{}, err
	}
	l.lookForExpiry() // what was set aside and not taken may have ended meanwhile
	return Reversed{Added: res.Applied, Taken: res.Amount, WrittenOff: res.Left}, nil
}
