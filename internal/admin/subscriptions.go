package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// subscriptions is what admin asks of account.Subscriptions.
type subscriptions interface {
	Set(ctx context.Context, id, plan string, o subscription.Options, now time.Time) (*account.Account, error)
	Renew(ctx context.Context, id string, now time.Time) (*account.Account, error)
	Cancel(ctx context.Context, id string, atOnce bool, now time.Time) (*account.Account, error)
	Change(ctx context.Context, id, plan string, when account.When, now time.Time) (*account.Account, error)
}

// How a subscription goes on after its period.
const (
	renewsItself = "auto"
	renewsByHand = "manual"
	renewsNever  = "no"
)

func renewal(s *subscription.Subscription) string {
	switch {
	case !s.EndedAt.IsZero(), s.Ending, !s.Until.IsZero():
		return renewsNever
	case s.Manual:
		return renewsByHand
	}
	return renewsItself
}

func (s *service) showSubscription(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return s.subscriptionView(r.Context(), a)
}

// subscriptionView is everything about the last subscription of an account.
func (s *service) subscriptionView(ctx context.Context, a *account.Account) (any, error) {
	sub, now := &a.Subscription, time.Now()
	if sub.Status(now) == subscription.None {
		return nil, missing("subscription_not_found", "%s never had a subscription.\nBegin one: parley subscription set", a.Name)
	}
	periods, err := s.Store.Periods(ctx, sub.ID)
	if err != nil {
		return nil, err
	}
	grants, err := s.Store.Grants(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	v := SubscriptionDetail{
		ID: sub.ID, Account: a.Name, Plan: sub.Plan, Status: string(sub.Status(now)), Renews: renewal(sub), Until: sub.LastsUntil(), NextPlan: sub.NextPlan,
		Period: Period{Number: sub.Period, Start: sub.Start, End: sub.End}, PeriodEvery: sub.Interval.String(),
	}
	if v.Status == string(subscription.PastDue) {
		v.GraceUntil = new(sub.Ends())
	}
	if n := len(periods); n > 0 && periods[n-1].Number == sub.Period {
		v.Period.IncludedTokens, v.Period.IncludedCredit = periods[n-1].Tokens, periods[n-1].Credit.String()
	} else {
		v.Period.IncludedCredit = "0"
	}
	var left money.Amount
	for i := range grants {
		if g := &grants[i]; g.Subscription == sub.ID && g.Period == sub.Period {
			left += g.Remaining()
		}
	}
	tokens := s.Ledger.Balance(a.ID).Tokens
	v.CreditLeft, v.TokensLeft, v.TokensHeld = left.String(), tokens.Balance(), tokens.Held
	return v, nil
}

// subscribe gives an account a subscription, or changes how the one it has ends.
func (s *service) subscribe(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in NewSubscription
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if _, err := s.plan(in.Plan, http.StatusBadRequest); err != nil {
		return nil, err
	}
	o := subscription.Options{Manual: in.Manual}
	if in.Until != nil {
		o.Until = *in.Until
		if o.Until.IsZero() {
			return nil, subscription.ErrUntil
		}
	}
	if a, err = s.Subscriptions.Set(r.Context(), a.ID, in.Plan, o, time.Now()); err != nil {
		return nil, err
	}
	return s.view(a), nil
}

func (s *service) renewSubscription(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	paid := a.Subscription.LastsUntil()
	if a, err = s.Subscriptions.Renew(r.Context(), a.ID, time.Now()); errors.Is(err, subscription.ErrPaid) {
		return nil, &Error{Status: http.StatusConflict, Code: "already_renewed", Message: fmt.Sprintf("The next period is renewed already, until %s.", paid.UTC().Format(time.RFC3339))}
	}
	if err != nil {
		return nil, err
	}
	return s.subscriptionView(r.Context(), a)
}

func (s *service) cancelSubscription(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in Cancellation
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if a, err = s.Subscriptions.Cancel(r.Context(), a.ID, in.Now, time.Now()); err != nil {
		return nil, err
	}
	return s.subscriptionView(r.Context(), a)
}

func (s *service) changeSubscription(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in PlanChange
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if _, err := s.plan(in.Plan, http.StatusBadRequest); err != nil {
		return nil, err
	}
	if a, err = s.Subscriptions.Change(r.Context(), a.ID, in.Plan, account.When(in.When), time.Now()); err != nil {
		return nil, err
	}
	return s.subscriptionView(r.Context(), a)
}
