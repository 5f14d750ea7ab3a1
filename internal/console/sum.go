package console

import (
	"html/template"

	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// term is a part of a sum.
type term struct {
	Op     string // before it: "", "+", minus or "="
	Amount money.Amount
	Name   string // under it: "granted"
	Link   string // to what it is made of; empty is none
}

// sum is a calculation that a reader can follow: the last term is the result of those before
// it. The template "sum" shows it. Make one with newSum, rowSum or exactSum.
type sum struct {
	Terms []term
	// Rounded says that the figures as they are shown give another result, because each has
	// lost decimals.
	Rounded      bool
	show, result func(money.Amount) template.HTML
}

// newSum makes a sum of terms, whose amounts must be of one moment: the sum is exact then. It is
// shown with two decimals.
func newSum(terms ...term) sum {
	const cent = money.IU / 100
	var shown money.Amount
	last := len(terms) - 1
	for _, t := range terms[:last] {
		n := (t.Amount + cent/2) / cent * cent
		if t.Op == minus {
			n = -n
		}
		shown += n
	}
	return sum{terms, shown != terms[last].Amount/cent*cent, spent, balance}
}

// rowSum is a sum shown with the decimals of rows, exactSum one with all there are.
func rowSum(terms ...term) sum   { return sum{terms, false, row, row} }
func exactSum(terms ...term) sum { return sum{terms, false, exact, exact} }

// Last reports whether the term of that place is the result.
func (s sum) Last(i int) bool { return i == len(s.Terms)-1 }

// Figure is the amount of the term of that place as it is shown.
func (s sum) Figure(i int) template.HTML {
	if s.Last(i) {
		return s.result(s.Terms[i].Amount)
	}
	return s.show(s.Terms[i].Amount)
}

// sumLinks are where the terms of an account's sum lead; empty is nowhere.
type sumLinks struct{ granted, spent, held string }

// booksSum is what an account has: granted − spent − held = available, of one moment.
func booksSum(b ledger.Balance, to sumLinks) sum {
	held := "held"
	if b.Running > 0 {
		held = "held by " + english.Plural(b.Running, "running call")
	}
	terms := []term{{"", b.Granted, "granted", to.granted}, {minus, b.Posted, "spent", to.spent}, {minus, b.Held, held, to.held}}
	if b.Expiring > 0 {
		terms = append(terms, term{minus, b.Expiring, "expired, when calls end", ""})
	}
	return newSum(append(terms, term{"=", b.Granted - b.Posted - b.Held - b.Expiring, "available", ""})...)
}

// Sum is how the balance came from that of the month before.
func (m month) Sum() sum {
	terms := []term{{"", m.Opening, "opening", ""}, {"+", m.Credit, "credit", ""}, {minus, m.Spent, "spent", ""}}
	for _, t := range []term{{minus, m.Taken, "taken", ""}, {minus, m.Expired, "expired", ""}} {
		if t.Amount != 0 {
			terms = append(terms, t)
		}
	}
	closing := "closing"
	if m.Open {
		closing = "so far"
	}
	return rowSum(append(terms, term{"=", m.Closing, closing, ""})...)
}

// HoldSum is what became of the credit that was set aside for a call.
func (p receiptPage) HoldSum() sum {
	r := p.Receipt
	if r.State == ledger.Running {
		return exactSum(term{"", r.Hold, "held", ""})
	}
	return exactSum(term{"", r.Hold, "held", ""}, term{minus, r.Charge, "charged", ""}, term{"=", p.Released, "released", ""})
}
