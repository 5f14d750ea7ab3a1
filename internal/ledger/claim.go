package ledger

import (
	"math/bits"

	"github.com/parley-ai/parley/internal/money"
)

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

// ClaimKind says what a [Claim] counts.
type ClaimKind string

// The kinds of claims. The sum of all refunds and single ones tell of the same money.
const (
	Noted   ClaimKind = ""        // nothing: the message is only noted
	Refunds ClaimKind = "refunds" // the sum of all refunds so far, also of those that failed
	OneBack ClaimKind = "refund"  // one refund
	Dispute ClaimKind = "dispute" // one that was lost
)

// Claim is a part of a payment that went back to who paid: Back of Of, both in the smallest unit
// of one currency.
type Claim struct {
	Part     string // of the payment: its refunds, one refund or one dispute
	Kind     ClaimKind
	Back, Of int64
	Failed   bool // a refund that has not arrived, and never will
}

// MaxBack is the largest sum of a claim: sums of thousands of them are still far from an overflow.
const MaxBack = 1_000_000_000_000_000

// Merge adds c to the claims that the payment has, in place, and reports whether it says anything
// new. Of what is told of one part the largest share counts, and that it failed is never taken
// back, so neither repeats nor their order matter.
func (p *Payment) Merge(claims []Claim, c Claim) ([]Claim, bool) {
	if c.Kind == Noted {
		return claims, false
	}
	for i := range claims {
		old := &claims[i]
		if old.Part != c.Part {
			continue
		}
		before := *old
		if p.Share(c.Back, c.Of) > p.Share(old.Back, old.Of) {
			old.Back, old.Of = c.Back, c.Of
		}
		old.Failed = old.Failed || c.Failed
		return claims, *old != before
	}
	return append(claims, c), true
}

// Due is the credit that all claims take together, at most what the payment has brought. Of
// refunds that is what was refunded, by their sum or by those that are known, whichever is more,
// less what failed: a charge's sum may or may not go down when one of its refunds fails.
func (p *Payment) Due(claims []Claim) money.Amount {
	var told, known, failed, of int64
	var due money.Amount
	for _, c := range claims {
		switch c.Kind {
		case Refunds:
			told, of = c.Back, c.Of
		case OneBack:
			known += c.Back
			if c.Failed {
				failed += c.Back
			}
		case Dispute:
			due = min(p.Credit, due+p.Share(c.Back, c.Of))
		}
	}
	if of == 0 {
		of = p.Paid // single refunds are compared with what was paid
	}
	return min(p.Credit, due+p.Share(max(told, known)-failed, of))
}
