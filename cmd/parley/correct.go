package main

import (
	"strings"

	"github.com/parley-ai/parley/internal/admin"
)

// minus is what amounts below 0 are shown with, and may be typed with.
const minus = "−"

type creditAdjust struct {
	directory
	Name   string `arg:"" help:"Name or id of the account."`
	Amount string `arg:"" help:"Amount in IU; below 0 it is taken away."`
	Reason string `required:"" help:"Why; it stays in the books." placeholder:"TEXT"`
}

func (creditAdjust) Help() string {
	return `What running calls hold cannot be taken.

Example: parley credit adjust "Example Lab" -5 --reason "added twice"`
}

func (a *creditAdjust) Run(e *env) error {
	amount := strings.Replace(a.Amount, minus, "-", 1)
	return e.with(a.directory, false, func(c *admin.Client) error {
		got, err := c.Adjust(e.ctx, a.Name, admin.NewAdjustment{Amount: amount, Reason: a.Reason})
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(got, func() {
			done, to := "Added %s IU to %s.", strings.TrimPrefix(got.Amount, "-")
			if to != got.Amount {
				done = "Took %s IU from %s."
			}
			e.print(done+" Available %s IU.", credit(to), got.Account, credit(got.Available))
		})
	})
}

type refund struct {
	directory
	Request string `arg:"" help:"Id of the call, as in receipts."`
	Amount  string `arg:"" optional:"" help:"Amount in IU; all that is left of the charge when it is not given."`
	Reason  string `required:"" help:"Why; it stays in the books." placeholder:"TEXT"`
}

func (refund) Help() string {
	return `In sum at most the charge is given back.

Example: parley refund req_0199… --reason "answer never arrived"`
}

func (r *refund) Run(e *env) error {
	return e.with(r.directory, false, func(c *admin.Client) error {
		got, err := c.Refund(e.ctx, r.Request, admin.NewRefund{Amount: r.Amount, Reason: r.Reason})
		if err != nil {
			return err
		}
		return e.answer(got, func() {
			sums := credits(got.Refunded, got.Charge)
			e.print("%s IU of the charge of %s IU are given back to %s. Available %s IU.", sums[0], sums[1], got.Account, credit(got.Available))
		})
	})
}
