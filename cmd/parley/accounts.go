package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type accountCreate struct {
	directory
	Name   string `arg:"" help:"Name of the account."`
	Plan   string `required:"" help:"Plan of the account." placeholder:"PLAN"`
	Credit string `help:"Credit to begin with, in IU." placeholder:"AMOUNT"`
}

func (accountCreate) Help() string {
	return `Example: parley account create "Example Lab" --plan pro --credit 12.5`
}

func (a *accountCreate) Run(e *env) error {
	return e.with(a.directory, true, func(c *admin.Client) error {
		made, err := c.CreateAccount(e.ctx, admin.NewAccount{Name: a.Name, Plan: a.Plan, Credit: a.Credit})
		if err != nil {
			return err
		}
		return e.answer(made, func() {
			given := "without credit"
			if a.Credit != "" {
				given = "with " + credit(a.Credit) + " IU"
			}
			e.print("Made %s (%s) on plan %s, %s.", made.Name, made.ID, a.Plan, given)
		})
	})
}

type accountShow struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
}

func (accountShow) Help() string { return `Example: parley account show "Example Lab"` }

func (a *accountShow) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		account, err := c.Account(e.ctx, a.Name)
		if err != nil {
			return e.named(c, a.Name, err)
		}
		if e.json {
			return e.answer(account, nil)
		}
		s, err := c.Summary(e.ctx, account.ID)
		if err != nil {
			return err
		}
		e.account(account, s)
		return nil
	})
}

// account shows an account as a statement: what came in, what went out, what is left.
func (e *env) account(a admin.Account, s admin.Summary) {
	e.print("%s    %s    %s", a.Name, e.paint(dim, a.ID), e.status(a.Status))
	sums := credits(s.Granted, s.Spent, a.Held, a.Available)
	width := 0
	for _, x := range sums {
		width = max(width, len(x))
	}
	line := func(name, sign, value, unit, more string) {
		e.print("%s", strings.TrimRight("  "+pad(name, 14)+sign+strings.Repeat(" ", width-len(value)+1)+value+" "+unit+more, " "))
	}
	running := ""
	if s.Running > 0 {
		running = "   " + english.Plural(s.Running, "running call")
	}
	line("granted", " ", sums[0], "IU", "")
	line("spent", "−", sums[1], "", "")
	line("held", "−", sums[2], "", running)
	e.print("%s", strings.Repeat(" ", 16)+strings.Repeat("-", width+3))
	line("available", " ", sums[3], "IU", lasts(s))
	e.print("  plan          %s", planLine(a, s.Plan != nil))
	if s.Plan != nil {
		e.print("  limits        %s", limits(*s.Plan))
	}
	keys := []string{english.Count(s.KeysActive) + " active"}
	if s.KeysExpired > 0 {
		keys = append(keys, english.Count(s.KeysExpired)+" expired")
	}
	if s.KeysRevoked > 0 {
		keys = append(keys, english.Count(s.KeysRevoked)+" revoked")
	}
	e.print("  keys          %s", strings.Join(keys, ", "))
	switch {
	case a.OwnThreshold && a.LowCredit == "0":
		e.print("  low credit    no warning")
	case a.OwnThreshold:
		e.print("  low credit    below %s IU", credit(a.LowCredit))
	}
}

// lasts says how long the credit does, where that can be told.
func lasts(s admin.Summary) string {
	switch {
	case s.PerDay == "":
		return ""
	case s.LastsUntil == nil:
		return "    for more than 90 days, at " + perDay(s) + " IU a day"
	}
	return "    until about " + s.LastsUntil.UTC().Format("2 Jan 2006") + ", at " + perDay(s) + " IU a day"
}

// perDay is the pace with two decimals, rounded down.
func perDay(s admin.Summary) string {
	whole, digits, _ := strings.Cut(s.PerDay, ".")
	return english.Group(whole) + "." + (digits + "00")[:2]
}

// planLine says which plan applies and until when; known, whether there is such a plan.
func planLine(a admin.Account, known bool) string {
	lost := ""
	if !known {
		lost = ", which the configuration does not have"
	}
	sub := a.Subscription
	if sub == nil {
		return a.Plan + lost
	}
	day := sub.Until.UTC().Format("2 Jan 2006")
	switch {
	case !applies(sub):
		return a.Plan + lost + "; the subscription to " + sub.Plan + " ended on " + day
	case sub.Status == "past_due":
		return sub.Plan + lost + ", not renewed since " + day
	case sub.Renews:
		return sub.Plan + lost + ", renews " + day
	case sub.Plan == a.Plan:
		return a.Plan + lost + ", subscribed until " + day
	}
	return sub.Plan + lost + ", subscribed until " + day + ", then " + a.Plan
}

// applies reports whether the plan of a subscription does.
func applies(s *admin.Subscription) bool {
	return s != nil && (s.Status == "active" || s.Status == "past_due")
}

// plan is the one that applies to an account.
func plan(a admin.Account) string {
	if applies(a.Subscription) {
		return a.Subscription.Plan
	}
	return a.Plan
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-len(s))) }

// limits says what a plan allows.
func limits(p admin.Plan) string {
	var parts []string
	if p.RPM != nil {
		parts = append(parts, english.Count(*p.RPM)+" requests per minute")
	}
	if p.TPM != nil {
		parts = append(parts, english.Count(*p.TPM)+" tokens per minute")
	}
	if p.Concurrency != nil {
		parts = append(parts, english.Count(*p.Concurrency)+" at once")
	}
	if len(parts) == 0 {
		return "none"
	}
	text := strings.Join(parts, ", ")
	if p.RPM != nil && p.TPM != nil {
		text = strings.Replace(text, " requests per minute,", " requests,", 1)
	}
	return text
}

type accountSet struct {
	directory
	Name   string `arg:"" help:"Name or id of the account."`
	Plan   string `help:"New plan." placeholder:"PLAN"`
	Status string `help:"New status: active or suspended. A suspended account's keys are refused." placeholder:"STATUS"`
	// LowCredit is nil where it is not given.
	LowCredit *string `help:"Balance in IU below which its credit is low; 0 is never, default what the configuration says." placeholder:"AMOUNT"`
}

func (accountSet) Help() string {
	return `Examples:

  parley account set "Example Lab" --status suspended
  parley account set "Example Lab" --low-credit 25`
}

func (a *accountSet) Run(e *env) error {
	var change admin.Change
	if a.Plan != "" {
		change.Plan = &a.Plan
	}
	if a.Status != "" {
		change.Status = &a.Status
	}
	change.LowCredit, _ = setting(a.LowCredit, "default", func(text string) (string, error) { return text, nil })
	switch {
	case change == admin.Change{}:
		return usageError{"There is nothing to change. Give --plan, --status or --low-credit."}
	case a.Status != "" && a.Status != "active" && a.Status != "suspended":
		return usageError{"--status must be active or suspended."}
	}
	return e.with(a.directory, false, func(c *admin.Client) error {
		account, err := c.SetAccount(e.ctx, a.Name, change)
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(account, func() {
			e.print("%s is %s, on plan %s.", account.Name, e.status(account.Status), plan(account))
			if change.LowCredit.Given {
				e.print("%s", lowCredit(account))
			}
		})
	})
}

type accountInvite struct {
	directory
	Name  string `arg:"" help:"Name or id of the account."`
	Email string `arg:"" help:"Email of whoever is invited."`
	Role  string `help:"What the place is: owner or member." enum:"owner,member" default:"owner" placeholder:"ROLE"`
}

func (accountInvite) Help() string {
	return `Send the link to whoever has that email. Within 7 days a new member chooses a
password there; one that exists signs in and accepts. An owner invites others in the
console.

Example: parley account invite "Example Lab" ada@example.com`
}

func (a *accountInvite) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		made, err := c.Invite(e.ctx, a.Name, admin.NewInvitation{Email: a.Email, Role: a.Role})
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(made, func() {
			e.print("%s", made.URL)
			e.note("For %s, as %s of %s. Works once, until %s.", made.Email, made.Role, made.Account, date(made.ExpiresAt))
		})
	})
}

// lowCredit says when an account is warned.
func lowCredit(a admin.Account) string {
	switch {
	case a.LowCredit == "0":
		return "There is no warning of low credit."
	case a.OwnThreshold:
		return "Its credit is low below " + credit(a.LowCredit) + " IU."
	}
	return "Its credit is low below " + credit(a.LowCredit) + " IU, as the configuration says."
}

// moment reads the time that a flag was given.
func moment(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usageError{fmt.Sprintf("%s must be a time such as 2026-12-31T00:00:00Z, not %q.", flag, text)}
	}
	return t, nil
}

type accountLs struct{ directory }

func (a *accountLs) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		all, err := c.Accounts(e.ctx)
		if err != nil {
			return err
		}
		return e.answer(all, func() {
			amounts := make([]string, len(all))
			for i, a := range all {
				amounts[i] = a.Available
			}
			amounts = credits(amounts...)
			rows := make([][]string, len(all))
			for i, a := range all {
				rows[i] = []string{a.Name, a.ID, plan(a), e.status(a.Status), amounts[i]}
			}
			e.table([]column{{head: "NAME", cut: true}, {head: "ID", cut: true}, {head: "PLAN"}, {head: "STATUS"}, {head: "AVAILABLE IU", right: true}}, rows)
		})
	})
}
