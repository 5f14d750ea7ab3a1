package console

import (
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/subscription"
)

// billingPage is what templates/billing.html shows.
type billingPage struct {
	ledger.Balance
	Sum        sum
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
	AddCredit  string // where that is done
	// Subscription says how it stands, in a sentence; empty without one.
	Subscription string
	billingForms
	// Below is the balance below which credit is low.
	Below money.Amount
	// Changeable says that an owner can change the subscription; Next is the plan of its next
	// period, where that is another.
	Changeable bool
	Next       string
}

// billingForms are those of the page, nil as nobody has filled them in: adding credit, where
// only what went wrong is of interest, a code, and when to warn.
type billingForms struct{ pay, code, alert *form }

// Pay, Code and Alert are for the template.
func (f billingForms) Pay() *form   { return f.pay }
func (f billingForms) Code() *form  { return f.code }
func (f billingForms) Alert() *form { return f.alert }

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
	v.done(map[string]string{"redeemed": "The code's credit is added.", "alert": v.alertWords(), "canceled": "The subscription is canceled.", "plan": "The plan is changed, from the next period on.", "paid": "The credit is added here when the payment provider has confirmed the payment."})
	v.late(map[string]string{"subscription": "No subscription runs that could be changed here."})
	return v.billingPage(billingForms{})
}

// paymentHost is where a checkout session sends the browser: the form's own policy must
// allow it.
const paymentHost = "https://checkout.stripe.com"

// addCredit is where the visitor adds credit to the account: who looks into it as an operator does
// so in the operator's area, its members do here.
func (v *visit) addCredit(here string) string {
	if !v.looking() {
		return here
	}
	return v.linked("/operator/accounts/{id}/credit", "/operator/accounts/"+v.account.ID+"/credit")
}

func (v *visit) billingPage(f billingForms) error {
	wrong := f.pay != nil && f.pay.Failed() || f.code != nil && f.code.Failed() || f.alert != nil && f.alert.Failed()
	if f.code == nil {
		f.code = v.redemptionForm()
	}
	if f.alert == nil {
		f.alert = v.alertForm()
	}
	p := billingPage{Owner: v.role == member.Owner, AccountID: v.account.ID, AddCredit: v.addCredit("#h-add"), billingForms: f, Below: v.lowCredit(), Subscription: standing(&v.account.Subscription, v.now)}
	if v.s.Payments != nil {
		p.Prices = v.s.Payments.Prices()
		v.maySendToPayment()
	}
	b := v.s.Ledger.Balance(v.account.ID)
	p.Balance, p.Sum = b, booksSum(b, sumLinks{spent: "/billing/entries", held: "/requests?result=running"})
	id := v.account.PlanAt(v.now)
	if plan, ok := v.s.Accounts.Plan(id); ok {
		p.Plan = plan
	}
	if id != v.account.Plan {
		p.Without = v.account.Plan
	}
	if sub, err := v.subscription(); err == nil {
		p.Changeable, p.Next = p.Owner, sub.NextPlan
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
	if wrong {
		return v.wrong("billing", "Billing", p)
	}
	return v.page("billing", "Billing", p)
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
		used.Name = english.Plural(n, "grant") + ", used up or ended"
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
	return v.billingPage(billingForms{pay: f})
}

// standing says how a subscription stands; empty for none.
func standing(s *subscription.Subscription, now time.Time) string {
	on := func() string { return longDay(s.LastsUntil(), now) }
	switch s.Status(now) {
	case subscription.Active:
		if s.Ending || !s.Until.IsZero() {
			return "Runs until " + on() + " and then ends."
		}
		return "Paid until " + on() + "."
	case subscription.PastDue:
		return "The period is over and the next was not renewed; the plan ends on " + longDay(s.Ends(), now) + "."
	case subscription.Canceled:
		return "Canceled; it ended on " + on() + "."
	case subscription.Expired:
		return "It ended on " + on() + "."
	}
	return ""
}

func (v *visit) redemptionForm() *form {
	return v.form(field{Name: "code", Label: "Code", Autocomplete: "off", Maximum: 64, Hint: "20 letters and digits. Case and hyphens do not matter.", Wide: "w3"})
}

// redeem turns a code into credit. A code counts once, so a form that is sent twice changes
// nothing twice; guesses are slowed down for the account and for the network they come from.
func (s *Server) redeem(v *visit) error {
	f := v.redemptionForm()
	throttled := s.guesses.Try(v.account.ID, v.from(), v.now)
	if e, ok := errors.AsType[*member.ThrottledError](throttled); ok {
		f.fail("code", tooManyTries(e))
		return v.billingPage(billingForms{code: f})
	}
	c, err := s.Ledger.Redeem(v.context(), v.account.ID, v.value("code"))
	switch {
	case err == nil, errors.Is(err, ledger.ErrCodeRedeemed) && c.AccountID == v.account.ID:
		s.guesses.Right(v.account.ID)
		return v.seeOther("/billing?done=redeemed")
	case errors.Is(err, ledger.ErrCode):
		f.fail("code", "There is no such code. Copy all of it.")
	case errors.Is(err, ledger.ErrCodeRedeemed):
		f.fail("code", "Another account has redeemed this code.")
	case errors.Is(err, ledger.ErrCodeRevoked):
		f.fail("code", "The operator has revoked this code.")
	case errors.Is(err, ledger.ErrCodeExpired):
		f.fail("code", "This code expired on "+longDay(c.ExpiresAt, v.now)+".")
	default:
		return err
	}
	return v.billingPage(billingForms{code: f})
}
