package console

import (
	"errors"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
)

// billingPage is what templates/billing.html shows.
type billingPage struct {
	Available  money.Amount
	Sum        sum
	Running    int // calls that hold something
	Held       money.Amount
	Lasts      string // until when, in words
	Plan       *account.Plan
	Without    string // the plan that applies without the subscription
	Grants     []grantRow
	GrantTotal grantRow
	Months     []month
	Earlier    string // the address of earlier statements
	Prices     []payment.Price
	Owner      bool
	AccountID  string
	// Form says what went wrong with adding credit.
	Form *form
}

// grantRow is a grant, or several that are used up.
type grantRow struct {
	Name, Kind              string
	Expires                 time.Time
	Soon                    bool // it ends within 14 days
	First                   bool // it is spent first
	Amount, Spent, Gone     money.Amount
	Left                    money.Amount
	Ended, Aggregate, Never bool
}

// billing shows what the account has, where it came from and where it went.
func (s *Server) billing(v *visit) error {
	v.done(map[string]string{"paid": "The credit is added here when the payment provider has confirmed the payment."})
	return v.billingPage(nil)
}

// paymentHost is where a checkout session sends the browser: the form's own policy must
// allow it.
const paymentHost = "https://checkout.stripe.com"

func (v *visit) billingPage(f *form) error {
	p := billingPage{Owner: v.role == member.Owner, AccountID: v.account.ID, Form: f}
	if v.s.Payments != nil {
		p.Prices = v.s.Payments.Prices()
		v.w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'self'", "form-action 'self' "+paymentHost, 1))
	}
	p.sums(v.s.Ledger.Balance(v.account.ID))
	id := v.account.PlanAt(v.now)
	if plan, ok := v.s.Accounts.Plan(id); ok {
		p.Plan = plan
	}
	if id != v.account.Plan {
		p.Without = v.account.Plan
	}
	grants, err := v.s.Records.Grants(v.context(), v.account.ID)
	if err != nil {
		return err
	}
	p.grants(grants, v.now)
	pace, err := v.s.Records.Pace(v.context(), v.account.ID, v.now)
	if err != nil {
		return err
	}
	p.Lasts = lasts(grants, p.Held, pace, v.now)
	if p.Months, p.Earlier, err = v.months(); err != nil {
		return err
	}
	if f != nil && f.Failed() {
		return v.wrong("billing", "Billing", p)
	}
	return v.page("billing", "Billing", p)
}

// sums makes the sum line: all its terms are of one moment.
func (p *billingPage) sums(b ledger.Balance) {
	terms := []term{
		{"", b.Granted, "granted", ""},
		{minus, b.Posted, "spent", "/billing/entries"},
		{minus, b.Held, "held", "/requests?result=running"},
	}
	if b.Expiring > 0 {
		terms = append(terms, term{minus, b.Expiring, "ended", ""})
	}
	p.Available = b.Granted - b.Posted - b.Held - b.Expiring
	p.Sum = newSum(append(terms, term{"=", p.Available, "available", ""})...)
	p.Held, p.Running = b.Held, b.Running
}

// grants makes the rows: those with something left in the order in which they are spent,
// and one for all that are used up, so that the total is of every grant.
func (p *billingPage) grants(all []ledger.GrantBalance, now time.Time) {
	used := grantRow{Aggregate: true}
	n := 0
	for i := range all {
		g := &all[i]
		r := grantRow{
			Name: g.Note, Kind: kindNames[g.Kind], Expires: g.ExpiresAt, Never: g.ExpiresAt.IsZero(), Amount: g.Amount, Spent: g.Burned, Gone: g.Expired,
			Left: g.Remaining(), Ended: !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(now), Soon: !g.ExpiresAt.IsZero() && g.ExpiresAt.Before(now.Add(endsSoon)),
		}
		if r.Name == "" {
			r.Name = r.Kind
		}
		p.GrantTotal.add(r)
		if r.Left == 0 {
			used.add(r)
			n++
			continue
		}
		r.First = len(p.Grants) == 0
		p.Grants = append(p.Grants, r)
	}
	if n > 0 {
		used.Name = plural(n, "grant") + ", used up or ended"
		p.Grants = append(p.Grants, used)
	}
}

func (r *grantRow) add(o grantRow) {
	r.Amount, r.Spent, r.Gone, r.Left = r.Amount+o.Amount, r.Spent+o.Spent, r.Gone+o.Gone, r.Left+o.Left
}

// kindNames are the kinds of grants for people.
var kindNames = map[ledger.Kind]string{
	ledger.Prepaid: "Credit", ledger.Included: "Included in the plan", ledger.Promo: "Gift", ledger.Refund: "Refund", ledger.Adjust: "Correction",
}

// lasts says until when the credit lasts at the pace of the last full days.
func lasts(grants []ledger.GrantBalance, held money.Amount, pace ledger.Pace, now time.Time) string {
	if pace.Days == 0 {
		return "How long it lasts is not known yet: there is less than one full day of use."
	}
	at, ok := ledger.RunOut(now, grants, held, pace.PerDay)
	perDay := decimals(pace.PerDay, 2, 2, halfUp) + " IU a day"
	switch {
	case !ok:
		return "At " + perDay + " it lasts more than 90 days."
	case !at.After(now):
		return "Nothing is left. The last days used " + perDay + "."
	}
	return "Lasts until " + longDay(at, now) + " at " + perDay + "."
}

// checkout sends an owner to the page of the payment provider. Nothing is changed here: the
// credit comes with the provider's message, once for each payment.
func (s *Server) checkout(v *visit) error {
	if s.Payments == nil {
		return errNotFound
	}
	page, err := s.Payments.Checkout(v.context(), v.account.ID, v.value("price"))
	f := &form{}
	switch {
	case err == nil:
		return v.seeOther(page.URL)
	case errors.Is(err, payment.ErrPrice):
		f.failAll("This amount is not offered any more. Choose another.")
	case errors.Is(err, payment.ErrRefused):
		v.err = err
		f.failAll("The payment provider did not answer. Nothing was paid. Try again in a minute.")
	default:
		return err
	}
	return v.billingPage(f)
}
