package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/subscription"
)

// subscriptions is what the console asks of account.Subscriptions.
type subscriptions interface {
	Cancel(ctx context.Context, id string, atOnce bool, now time.Time) (*account.Account, error)
	Change(ctx context.Context, id, plan string, when account.When, now time.Time) (*account.Account, error)
}

// planPage is what templates/plan.html shows: a change of the subscription with its effect,
// before an owner makes it.
type planPage struct {
	Title, Action string
	Effect        []string
	Form          *form
	Plans         []planChoice // to move to; nil where the subscription is to be canceled
	Keep, Verb    string
	Danger        bool
}

// subscription is that of the account. It fails with errNotFound where none runs that
// an owner can change.
func (v *visit) subscription() (*subscription.Subscription, error) {
	s := &v.account.Subscription
	if !s.Applies(v.now) || s.Ending || !s.Until.IsZero() {
		return nil, errNotFound
	}
	return s, nil
}

// smaller are the plans that an owner can move the subscription to: those that stand before its
// own in the configuration, and its own. What is larger costs more, so the operator gives it.
func (v *visit) smaller(s *subscription.Subscription) []planChoice {
	own, ok := v.s.Accounts.Plan(s.Plan)
	if !ok {
		return nil
	}
	chosen := cmp.Or(s.NextPlan, s.Plan)
	var list []planChoice
	for _, p := range v.s.Operator.Accounts.Plans() {
		if p.Rank < own.Rank || p.ID == s.Plan {
			list = append(list, planChoice{p, p.ID == chosen})
		}
	}
	slices.SortFunc(list, func(a, b planChoice) int { return cmp.Compare(a.Rank, b.Rank) })
	return list
}

func (v *visit) changePlanPage(s *subscription.Subscription) planPage {
	next := longDay(s.End, v.now) + " at " + clock(s.End) + " UTC"
	return planPage{
		Title: "Change the plan", Action: "/billing/plan", Plans: v.smaller(s), Keep: "Leave it as it is", Verb: "Change plan", Form: v.form(),
		Effect: []string{
			"The " + s.Plan + " plan and what its period includes stay until " + next + ". The plan chosen here counts from then on.",
			"You can change it again until then.",
			"A larger plan is the operator’s to give: ask them, and name the account " + v.account.ID + ".",
		},
	}
}

func (s *Server) ownPlanPage(v *visit) error {
	sub, err := v.subscription()
	if err != nil {
		return v.lateForSubscription()
	}
	p := v.changePlanPage(sub)
	return v.page("plan", p.Title, p)
}

// changeOwnPlan moves the subscription to a smaller plan, from its next period on. Sent twice it
// does the same.
func (s *Server) changeOwnPlan(v *visit) error {
	sub, err := v.subscription()
	if err != nil {
		return v.lateForSubscription()
	}
	p, id := v.changePlanPage(sub), v.value("plan")
	if !slices.ContainsFunc(p.Plans, func(c planChoice) bool { return c.ID == id }) {
		p.Form.failAll("That plan is not offered to this account. Choose one of these.")
		return v.wrong("plan", p.Title, p)
	}
	if id == sub.Plan && sub.NextPlan == "" || id == sub.NextPlan {
		return v.seeOther("/billing?done=plan")
	}
	_, err = s.Subscriptions.Change(v.context(), v.account.ID, id, account.AtPeriodEnd, v.now)
	return v.changedSubscription(err, "plan")
}

func (v *visit) cancelPage(s *subscription.Subscription) planPage {
	p := planPage{
		Title: "Cancel the subscription", Action: "/billing/cancel", Keep: "Keep the subscription", Verb: "Cancel the subscription", Danger: true, Form: v.form(),
		Effect: []string{"The " + s.Plan + " plan and what its period includes stay until " + longDay(s.End, v.now) + " at " + clock(s.End) + " UTC. Nothing is renewed then."},
	}
	if !v.now.Before(s.End) {
		p.Effect[0] = "Its period is over and was not renewed, so the " + s.Plan + " plan ends at once."
	}
	after := "After that no plan applies, so calls are refused until the operator gives the account one."
	if plan, ok := v.s.Accounts.Plan(v.account.Plan); ok {
		after = "After that the " + plan.ID + " plan applies: " + limitWords(plan) + "."
	}
	p.Effect = append(p.Effect, after, "Credit that was bought stays. Only the operator can take the cancellation back.")
	return p
}

func (s *Server) cancelOwnPage(v *visit) error {
	sub, err := v.subscription()
	if err != nil {
		return v.lateForSubscription()
	}
	p := v.cancelPage(sub)
	return v.page("plan", p.Title, p)
}

// cancelOwn ends the subscription with its period. A form that is sent twice finds it done.
func (s *Server) cancelOwn(v *visit) error {
	if v.account.Subscription.Ending {
		return v.seeOther("/billing?done=canceled")
	}
	if _, err := v.subscription(); err != nil {
		return v.lateForSubscription()
	}
	_, err := s.Subscriptions.Cancel(v.context(), v.account.ID, false, v.now)
	return v.changedSubscription(err, "canceled")
}

// lateForSubscription answers a form or a link of a page that is older than the end of what it was
// about.
func (v *visit) lateForSubscription() error { return v.seeOther("/billing?late=subscription") }

func (v *visit) changedSubscription(err error, done string) error {
	if errors.Is(err, subscription.ErrNone) || errors.Is(err, account.ErrPlan) {
		return v.lateForSubscription() // it ended meanwhile, or its plan left the configuration
	}
	if err != nil {
		return err
	}
	return v.seeOther("/billing?done=" + done)
}
