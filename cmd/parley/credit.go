package main

import (
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/admin"
)

type creditAdd struct {
	directory
	Name     string  `arg:"" help:"Name or id of the account."`
	Amount   string  `arg:"" help:"Amount in IU, at most 9 decimals."`
	Note     string  `required:"" help:"Why it is added." placeholder:"TEXT"`
	Ref      string  `help:"Reference of the payment. The same reference adds once." placeholder:"REF"`
	Kind     string  `help:"prepaid, included or promo; default prepaid." placeholder:"KIND"`
	Priority int     `help:"From 1 to 100; lower burns first. Default by kind: included 10, promo 20, prepaid 50." placeholder:"N"`
	Expires  *string `help:"When what is left of it is taken back, as 2026-12-31T00:00:00Z; default never." placeholder:"TIME"`
}

func (creditAdd) Help() string {
	return `Examples:
  parley credit add "Example Lab" 50 --note "support case 118" --ref case-118
  parley credit add "Example Lab" 5 --note "welcome" --kind promo --expires 2026-12-31T00:00:00Z`
}

func (a *creditAdd) Run(e *env) error {
	in := admin.NewCredit{Amount: a.Amount, Note: a.Note, Ref: a.Ref, Kind: a.Kind, Priority: a.Priority}
	if a.Expires != nil {
		at, err := moment("--expires", *a.Expires)
		if err != nil {
			return err
		}
		in.ExpiresAt = &at
	}
	return e.with(a.directory, false, func(c *admin.Client) error {
		got, err := c.AddCredit(e.ctx, a.Name, in)
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(got, func() {
			if !got.Added {
				e.print("Nothing added: %s was already added on %s.", a.Ref, date(got.At))
				return
			}
			e.print("Added %s IU to %s. Available %s IU.", credit(got.Amount), got.Account, credit(got.Available))
		})
	})
}

type creditLs struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
}

func (creditLs) Help() string {
	return `Grants burn in the order of the list: by priority, then the one that ends first, then the oldest.

Example: parley credit ls "Example Lab"`
}

func (a *creditLs) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		list, err := c.Credits(e.ctx, a.Name)
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(list, func() { e.grants(list) })
	})
}

func (e *env) grants(list []admin.GrantBalance) {
	if len(list) == 0 {
		e.note("No credit yet.")
		return
	}
	var amounts []string
	for _, g := range list {
		amounts = append(amounts, g.Amount, g.Burned, g.Expired, g.Remaining)
	}
	amounts = credits(amounts...)
	rows := make([][]string, len(list))
	for i, g := range list {
		rows[i] = append([]string{g.CreatedAt.UTC().Format(time.DateOnly), g.Kind, strconv.Itoa(g.Priority), day(g.ExpiresAt)}, amounts[4*i:4*i+4]...)
		rows[i] = append(rows[i], g.Note)
	}
	e.table([]column{
		{head: "ADDED"},
		{head: "KIND"},
		{head: "PRIORITY", right: true},
		{head: "EXPIRES"},
		{head: "AMOUNT IU", right: true},
		{head: "BURNED", right: true},
		{head: "EXPIRED", right: true},
		{head: "LEFT", right: true},
		{head: "NOTE", cut: true},
	}, rows)
}

// day is a date for people, in UTC.
func day(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.DateOnly)
}
