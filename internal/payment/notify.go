package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// message is what is read of an event.
type message struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		Object json.RawMessage `json:"object"`
	} `json:"data"`
}

// session is a page, paid or not.
type session struct {
	ID            string            `json:"id"`
	PaymentIntent string            `json:"payment_intent"`
	PaymentStatus string            `json:"payment_status"`
	AmountTotal   int64             `json:"amount_total"`
	Currency      string            `json:"currency"`
	Metadata      map[string]string `json:"metadata"`
}

// charge is a payment some of which was refunded: AmountRefunded is the sum of all refunds.
type charge struct {
	PaymentIntent  string            `json:"payment_intent"`
	Amount         int64             `json:"amount"`
	AmountRefunded int64             `json:"amount_refunded"`
	Metadata       map[string]string `json:"metadata"`
}

// refund is one refund of a charge.
type refund struct {
	ID            string `json:"id"`
	PaymentIntent string `json:"payment_intent"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	Status        string `json:"status"`
	FailureReason string `json:"failure_reason"`
}

// dispute is a payment that its payer's bank wants back.
type dispute struct {
	ID            string `json:"id"`
	PaymentIntent string `json:"payment_intent"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	Reason        string `json:"reason"`
	Status        string `json:"status"`
}

const (
	lost = "lost" // of a dispute whose money is gone
	// Of a refund whose money comes back: the bank did not take it, or the payer never said where to.
	failed, canceled = "failed", "canceled"
)

// Notify takes a message with its header Stripe-Signature. A payment of a page of ours
// becomes credit, and what of it was refunded, or lost in a dispute, is taken back, and
// given back when the refund fails; each once however often it is told, and in whichever
// order. Everything else is nothing to us. It fails with [ErrSignature], [ErrMessage],
// [ledger.ErrPayment] for a refund whose payment is still to be told, or the errors of
// [ledger.Ledger.Grant] and [ledger.Ledger.Reverse]: the message is then sent again.
func (r *Room) Notify(ctx context.Context, signature string, body []byte, now time.Time) error {
	if !signed(r.options.WebhookSecret, signature, body, now) {
		return ErrSignature
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	ctx = audit.WithActor(ctx, actor)
	switch m.Type {
	case "checkout.session.completed", "checkout.session.async_payment_succeeded":
		return r.paid(ctx, &m)
	case "charge.refunded":
		return r.refunded(ctx, &m)
	case "refund.created", "refund.updated", "refund.failed", "charge.refund.updated":
		return r.oneRefund(ctx, &m)
	case "charge.dispute.created", "charge.dispute.closed":
		return r.disputed(ctx, &m)
	}
	return nil
}

// object reads what m is about.
func (m *message) object(v any) error {
	if err := json.Unmarshal(m.Data.Object, v); err != nil {
		return fmt.Errorf("%w: %s %s: %w", ErrMessage, m.Type, m.ID, err)
	}
	return nil
}

// source names a payment, or a message, in the books.
func source(id string) string { return "stripe:" + id }

// sum is so much of a currency as people read it. How many digits of it are behind a point
// depends on the currency, so there is none.
func sum(amount int64, currency string) string {
	if currency == "" {
		currency = "an unknown currency"
	}
	return fmt.Sprintf("%d of the smallest unit of %s", amount, currency)
}

func (r *Room) paid(ctx context.Context, m *message) error {
	var s session
	if err := m.object(&s); err != nil {
		return err
	}
	account := s.Metadata[metaAccount]
	if s.PaymentStatus != "paid" || account == "" {
		return nil // not yet, or no page of ours
	}
	credit, err := money.ParseAmount(s.Metadata[metaCredit])
	if err != nil || s.ID == "" {
		return fmt.Errorf("%w: session %q, credit %q", ErrMessage, s.ID, s.Metadata[metaCredit])
	}
	id := s.PaymentIntent
	if id == "" {
		id = s.ID
	}
	g := ledger.Grant{
		AccountID: account, Kind: ledger.Prepaid, Amount: credit, Note: "payment " + id, Source: source(id),
		Paid: max(0, s.AmountTotal), Currency: strings.ToLower(s.Currency),
	}
	if _, err := r.ledger.Grant(ctx, g); err != nil {
		return fmt.Errorf("payment %s for %s of %s IU: %w", id, account, credit, err)
	}
	return nil
}

func (r *Room) refunded(ctx context.Context, m *message) error {
	var c charge
	if err := m.object(&c); err != nil {
		return err
	}
	if c.PaymentIntent == "" {
		return nil // no page of ours: theirs have one
	}
	p, err := r.records.Payment(ctx, source(c.PaymentIntent))
	if errors.Is(err, ledger.ErrPayment) && c.Metadata[metaFor] == "" {
		return nil // another business at the same Stripe account
	}
	if err != nil {
		return fmt.Errorf("a refund of payment %s: %w", c.PaymentIntent, err)
	}
	if m.ID == "" || c.Amount <= 0 || c.AmountRefunded < 0 || c.AmountRefunded > c.Amount || c.Amount > ledger.MaxBack {
		return fmt.Errorf("%w: %q: %d of %d were refunded of payment %s", ErrMessage, m.ID, c.AmountRefunded, c.Amount, c.PaymentIntent)
	}
	_, err = r.ledger.Reverse(ctx, ledger.Reversal{
		Payment: p, Source: source(m.ID), Claim: ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: c.AmountRefunded, Of: c.Amount},
		Action: audit.PaymentRefund, Reason: "refund of payment " + c.PaymentIntent,
	})
	return err
}

// oneRefund follows a single refund, of which the charge tells the sum only: one that fails later
// gives back what it had taken.
func (r *Room) oneRefund(ctx context.Context, m *message) error {
	var f refund
	if err := m.object(&f); err != nil {
		return err
	}
	p, err := r.records.Payment(ctx, source(f.PaymentIntent))
	if errors.Is(err, ledger.ErrPayment) {
		return nil // none of ours; or not yet, and then the charge's own message comes again
	}
	if err != nil {
		return err
	}
	if m.ID == "" || f.ID == "" || f.Amount < 0 || f.Amount > ledger.MaxBack {
		return fmt.Errorf("%w: %q: refund %q of %d", ErrMessage, m.ID, f.ID, f.Amount)
	}
	v := ledger.Reversal{
		Payment: p, Source: source(m.ID), Action: audit.PaymentRefund, Reason: fmt.Sprintf("refund %s of payment %s", f.ID, f.PaymentIntent),
		Claim: ledger.Claim{Part: f.ID, Kind: ledger.OneBack, Back: f.Amount, Of: p.Paid, Failed: f.Status == failed || f.Status == canceled},
	}
	if v.Claim.Failed {
		v.Action = audit.PaymentReturn
		v.Reason += ": " + f.Status
		if f.FailureReason != "" {
			v.Reason += " (" + f.FailureReason + ")"
		}
	}
	if currency := strings.ToLower(f.Currency); !p.Comparable(currency) {
		if !v.Claim.Failed {
			return nil // the charge says how much it is of itself
		}
		v.Claim.Kind, v.ByHand = ledger.Noted, true
		v.Reason += fmt.Sprintf("; %s cannot be compared with the %s that were paid, nothing was given back", sum(f.Amount, currency), sum(p.Paid, p.Currency))
	}
	_, err = r.ledger.Reverse(ctx, v)
	return err
}

// disputed notes a dispute; one that is lost is a refund of what was disputed. Where that is of
// another currency than the payment, no share of it is known: nothing is taken, and somebody
// has to decide.
func (r *Room) disputed(ctx context.Context, m *message) error {
	var d dispute
	if err := m.object(&d); err != nil {
		return err
	}
	p, err := r.records.Payment(ctx, source(d.PaymentIntent))
	if errors.Is(err, ledger.ErrPayment) {
		return nil // none of ours: weeks lie between a payment and its dispute
	}
	if err != nil {
		return err
	}
	if m.ID == "" || d.ID == "" || d.Amount < 0 || d.Amount > ledger.MaxBack {
		return fmt.Errorf("%w: %q: dispute %q", ErrMessage, m.ID, d.ID)
	}
	v := ledger.Reversal{
		Payment: p, Source: source(m.ID), Claim: ledger.Claim{Part: d.ID}, Action: audit.PaymentDispute,
		Reason: fmt.Sprintf("dispute %s (%s) of payment %s: %s", d.ID, d.Reason, d.PaymentIntent, d.Status),
	}
	if m.Type == "charge.dispute.closed" && d.Status == lost {
		if currency := strings.ToLower(d.Currency); p.Comparable(currency) {
			v.Claim.Kind, v.Claim.Back, v.Claim.Of = ledger.Dispute, d.Amount, p.Paid
		} else {
			v.ByHand = true
			v.Reason += fmt.Sprintf("; %s cannot be compared with the %s that were paid, nothing was taken", sum(d.Amount, currency), sum(p.Paid, p.Currency))
		}
	}
	_, err = r.ledger.Reverse(ctx, v)
	return err
}
