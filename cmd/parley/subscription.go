package main

import (
	"strings"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type subscriptionSet struct {
	directory
	Name   string  `arg:"" help:"Name or id of the account."`
	Plan   string  `required:"" help:"Plan that applies while it runs." placeholder:"PLAN"`
	Until  *string `xor:"end" help:"When it ends, as 2026-12-31T00:00:00Z. The account then has its own plan again." placeholder:"TIME"`
	Manual bool    `xor:"end" help:"Each period begins only when it was renewed: parley subscription renew."`
}

func (subscriptionSet) Help() string {
	return `Without --until it renews itself, period by period, until it is canceled. A subscription
to another plan ends at once; of one to the same plan only the end changes.

Examples:
  parley subscription set "Example Lab" --plan pro
  parley subscription set "Example Lab" --plan pro --until 2026-12-31T00:00:00Z`
}

func (s *subscriptionSet) Run(e *env) error {
	in := admin.NewSubscription{Plan: s.Plan, Manual: s.Manual}
	if s.Until != nil {
		until, err := moment("--until", *s.Until)
		if err != nil {
			return err
		}
		in.Until = &until
	}
	return e.with(s.directory, false, func(c *admin.Client) error {
		account, err := c.Subscribe(e.ctx, s.Name, in)
		if err != nil {
			return e.named(c, s.Name, err)
		}
		return e.answer(account, func() {
			sub := account.Subscription
			switch {
			case in.Until != nil:
				e.print("%s is on plan %s until %s, then on %s.", account.Name, sub.Plan, date(sub.Until), account.Plan)
			case s.Manual:
				e.print("%s is on plan %s; the period ends on %s and has to be renewed.", account.Name, sub.Plan, date(sub.Until))
			default:
				e.print("%s is on plan %s; it renews on %s.", account.Name, sub.Plan, date(sub.Until))
			}
		})
	})
}

type subscriptionShow struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
}

func (subscriptionShow) Help() string { return `Example: parley subscription show "Example Lab"` }

func (s *subscriptionShow) Run(e *env) error {
	return e.with(s.directory, false, func(c *admin.Client) error {
		got, err := c.Subscription(e.ctx, s.Name)
		if err != nil {
			return e.named(c, s.Name, err)
		}
		return e.answer(got, func() { e.subscription(got) })
	})
}

// subscription shows a subscription and what is left of its period.
func (e *env) subscription(s admin.SubscriptionDetail) {
	e.print("%s    plan %s    %s", s.Account, s.Plan, e.status(strings.ReplaceAll(s.Status, "_", " ")))
	e.print("  period    %s, from %s to %s", english.Count(s.Period.Number), date(s.Period.Start), date(s.Period.End))
	e.print("  included  %s", included(s.Period.IncludedTokens, s.Period.IncludedCredit))
	if s.Period.IncludedTokens > 0 || s.TokensLeft > 0 {
		held := ""
		if s.TokensHeld > 0 {
			held = ", " + english.Count(s.TokensHeld) + " held by running calls"
		}
		e.print("  left      %s%s", included(s.TokensLeft, s.CreditLeft), held)
	} else {
		e.print("  left      %s IU", credit(s.CreditLeft))
	}
	e.print("  then      %s", next(s))
}

// included says what a period brings.
func included(tokens int64, amount string) string {
	if tokens == 0 {
		return credit(amount) + " IU"
	}
	return english.Count(tokens) + " tokens, " + credit(amount) + " IU"
}

// next says what follows the period of a subscription.
func next(s admin.SubscriptionDetail) string {
	change := ""
	if s.NextPlan != "" {
		change = ", on plan " + s.NextPlan
	}
	switch {
	case s.Status == "canceled", s.Status == "expired":
		return "ended on " + date(s.Until)
	case s.Status == "past_due" && s.GraceUntil != nil:
		return "not renewed; ends on " + date(*s.GraceUntil)
	case s.Renews == "auto":
		return "renews every " + every(s.PeriodEvery) + change
	case s.Renews == "manual" && s.Until.After(s.Period.End):
		return "renewed until " + date(s.Until) + change
	case s.Renews == "manual":
		return "has to be renewed by " + date(s.Until) + change
	}
	return "ends on " + date(s.Until)
}

type subscriptionRenew struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
}

func (subscriptionRenew) Help() string {
	return `Says that the next period is paid for: one period ahead, not more. Of a subscription
that was to end with its period, it takes that back.

Example: parley subscription renew "Example Lab"`
}

func (s *subscriptionRenew) Run(e *env) error {
	return e.with(s.directory, false, func(c *admin.Client) error {
		got, err := c.RenewSubscription(e.ctx, s.Name)
		if err != nil {
			return e.named(c, s.Name, err)
		}
		return e.answer(got, func() { e.print("%s is on plan %s until %s.", got.Account, got.Plan, date(got.Until)) })
	})
}

type subscriptionCancel struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
	Now  bool   `help:"End it at once and take back what is left of what it includes."`
}

func (subscriptionCancel) Help() string {
	return `It ends with its period; parley subscription renew takes that back until then.

Example: parley subscription cancel "Example Lab"`
}

func (s *subscriptionCancel) Run(e *env) error {
	return e.with(s.directory, false, func(c *admin.Client) error {
		got, err := c.CancelSubscription(e.ctx, s.Name, admin.Cancellation{Now: s.Now})
		if err != nil {
			return e.named(c, s.Name, err)
		}
		return e.answer(got, func() {
			if got.Status == "canceled" {
				e.print("The subscription of %s has ended.", got.Account)
				return
			}
			e.print("The subscription of %s ends on %s.", got.Account, date(got.Until))
		})
	})
}

type subscriptionChange struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
	Plan string `required:"" help:"The other plan." placeholder:"PLAN"`
	At   string `help:"now or period-end; default: now for a plan that stands later in the configuration, else period-end." enum:"now,period-end," default:"" placeholder:"WHEN"`
}

func (subscriptionChange) Help() string {
	return `At once, the period stays and what the new plan includes beyond the old one is added
for the time that is left. The present plan takes back a change that is to come.

Example: parley subscription change "Example Lab" --plan pro`
}

func (s *subscriptionChange) Run(e *env) error {
	return e.with(s.directory, false, func(c *admin.Client) error {
		got, err := c.ChangeSubscription(e.ctx, s.Name, admin.PlanChange{Plan: s.Plan, When: strings.ReplaceAll(s.At, "-", "_")})
		if err != nil {
			return e.named(c, s.Name, err)
		}
		return e.answer(got, func() {
			if got.NextPlan != "" {
				e.print("%s is on plan %s until %s, then on %s.", got.Account, got.Plan, date(got.Period.End), got.NextPlan)
				return
			}
			e.print("%s is on plan %s.", got.Account, got.Plan)
		})
	})
}
