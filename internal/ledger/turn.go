package ledger

import (
	"context"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// Turned is a [subscription.Turn] as the store writes it: with who made it and the
// grants that it brings.
type Turned struct {
	subscription.Turn
	Actor  string
	Origin string // see [audit.Entry]
	Grants []Grant
}

// Period is a paid period that has begun and what it has included so far.
type Period struct {
	Number int64
	Start  time.Time
	Tokens int64
	Credit money.Amount
}

// Turn writes one change of a subscription with what it includes, in one transaction,
// and returns when that is durable. The actor is that of ctx. What the change has ended is
// taken back. It fails with [subscription.ErrChanged] when somebody
// else was first, [ErrAmount], [ErrAccount] or [ErrUnavailable].
func (l *Ledger) Turn(ctx context.Context, t subscription.Turn) error {
	if t.Credit < 0 || t.Credit > money.MaxAmount || t.Tokens < 0 || t.Tokens > int64(money.MaxAmount) {
		return ErrAmount
	}
	op := &Turned{Turn: t, Actor: audit.Actor(ctx), Origin: audit.Origin(ctx)}
	for u, amount := range [...]money.Amount{Credit: t.Credit, Tokens: money.Amount(t.Tokens)} {
		if amount > 0 {
			op.Grants = append(op.Grants, Grant{
				ID: ident.New(ident.Grant), AccountID: t.Next.AccountID, Kind: Included, Unit: Unit(u), Amount: amount,
				Priority: Included.Priority(), Note: "included in " + t.Next.Plan, Source: t.Source(), Actor: op.Actor, Origin: op.Origin,
				CreatedAt: t.At, ExpiresAt: t.Next.IncludedUntil(), Subscription: t.Next.ID, Period: t.Next.Period,
			})
		}
	}
	b := l.book(t.Next.AccountID)
	if err := b.announce(t.Credit, money.Amount(t.Tokens)); err != nil {
		return err
	}
	res, err := l.do(Op{Turn: op}, func(r Result) { b.grant(t.Credit, money.Amount(t.Tokens), r.Applied) })
	if err != nil {
		return err
	}
	l.lookForExpiry()
	if res.Refused != nil {
		return res.Refused
	}
	if t.Replaced != nil || !t.Next.EndedAt.IsZero() {
		// The turn is on the disk: nobody may go on from what was before it, whoever has hung up and
		// whatever cannot be read. What is not taken back here is looked for again.
		_, _ = l.ExpireDue(context.WithoutCancel(ctx), t.At)
	}
	return nil
}
