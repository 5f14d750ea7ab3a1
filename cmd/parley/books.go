package main

import (
	"slices"
	"strconv"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type receipts struct {
	directory
	Account string `required:"" help:"Name or id of the account." placeholder:"NAME"`
	Limit   int    `help:"How many at most." default:"50" placeholder:"N"`
}

func (r *receipts) Run(e *env) error {
	if r.Limit < 1 {
		return usageError{"--limit must be at least 1."}
	}
	return e.with(r.directory, false, func(c *admin.Client) error {
		list, err := c.Receipts(e.ctx, r.Account, r.Limit)
		if err != nil {
			return e.named(c, r.Account, err)
		}
		return e.answer(list, func() { e.receipts(list) })
	})
}

func (e *env) receipts(list []admin.Receipt) {
	if len(list) == 0 {
		e.note("No calls yet.")
		return
	}
	charges := make([]string, len(list))
	for i, r := range list {
		charges[i] = r.Charge
	}
	charges = credits(charges...)
	rows := make([][]string, len(list))
	for i, r := range list {
		if r.State == "running" {
			charges[i] = "-"
		}
		rows[i] = []string{
			clock(r.CreatedAt, e.now()), e.result(r), r.Model,
			english.Count(r.PromptTokens), english.Count(r.CompletionTokens), english.Count(r.PlanTokens), charges[i], r.RequestID,
		}
	}
	none := !slices.ContainsFunc(list, func(r admin.Receipt) bool { return r.PlanTokens > 0 })
	e.table(withoutPlan(none, []column{
		{head: "TIME"},
		{head: "RESULT"},
		{head: "MODEL", cut: true},
		{head: "IN", right: true},
		{head: "OUT", right: true},
		{head: ofPlan, right: true},
		{head: "CHARGE IU", right: true},
		{head: "REQUEST", cut: true},
	}, rows))
}

// result is a receipt's end in few words.
func (e *env) result(r admin.Receipt) string {
	switch {
	case r.State == "running":
		return "running"
	case r.State == "recovered":
		return e.paint(yellow, "recovered")
	case r.State == "voided":
		return strconv.Itoa(r.Status) + " not charged"
	case r.Ending == "stop":
		return strconv.Itoa(r.Status)
	default:
		return strconv.Itoa(r.Status) + " " + r.Ending
	}
}

type ledgerVerify struct{ directory }

func (ledgerVerify) Help() string {
	return "Proves, from the entries alone, that nothing was lost or charged twice. Exit code 1 when an invariant is broken."
}

func (l *ledgerVerify) Run(e *env) error {
	return e.with(l.directory, false, func(c *admin.Client) error {
		var v admin.Verification
		err := e.patiently("Proving the books", func() (err error) {
			v, err = c.Verify(e.ctx)
			return err
		})
		if err != nil {
			return err
		}
		err = e.answer(v, func() {
			word := e.paint(green, "Balanced.")
			if !v.OK {
				word = e.paint(red, "Not balanced.")
			}
			took := strconv.FormatFloat(v.Seconds, 'f', 1, 64)
			e.print("%s %s, %s, %s, %s s.", word, english.Plural(v.Accounts, "account"), english.Plural(v.Entries, "entry"), english.Plural(len(v.Invariants), "invariant"), took)
			for _, i := range v.Invariants {
				if !i.OK {
					e.print("  %s: %s", i.Name, i.Detail)
				}
			}
		})
		if err == nil && !v.OK {
			return exitError(exitFailed)
		}
		return err
	})
}
