package main

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type codeCreate struct {
	directory
	Amount  string  `required:"" help:"Credit of each code in IU, at most 9 decimals." placeholder:"AMOUNT"`
	Count   int     `help:"How many codes." default:"1" placeholder:"N"`
	Note    string  `required:"" help:"Why they are made; it stays with the credit." placeholder:"TEXT"`
	Kind    string  `help:"promo or prepaid; default promo." placeholder:"KIND"`
	Expires *string `help:"When they can no longer be redeemed, as 2026-12-31T00:00:00Z; default never." placeholder:"TIME"`
}

func (codeCreate) Help() string {
	return `The codes are printed once, a line each; only their hashes are kept.

Example: parley code create --amount 5 --count 100 --note "conference" > codes.txt`
}

func (a *codeCreate) Run(e *env) error {
	in := admin.NewCodes{Amount: a.Amount, Count: a.Count, Kind: a.Kind, Note: a.Note}
	if a.Expires != nil {
		at, err := moment("--expires", *a.Expires)
		if err != nil {
			return err
		}
		in.ExpiresAt = &at
	}
	return e.with(a.directory, false, func(c *admin.Client) error {
		made, err := c.CreateCodes(e.ctx, in)
		if err != nil {
			return err
		}
		return e.answer(made, func() {
			for _, m := range made {
				e.print("%s", m.Text)
			}
			e.note("%s of %s IU. Shown once; store them now.", english.Plural(len(made), "code"), credit(made[0].Amount))
		})
	})
}

type codeLs struct {
	directory
	Limit int `help:"How many at most." default:"50" placeholder:"N"`
}

func (a *codeLs) Run(e *env) error {
	if a.Limit < 1 {
		return usageError{"--limit must be at least 1."}
	}
	return e.with(a.directory, false, func(c *admin.Client) error {
		list, err := c.Codes(e.ctx, a.Limit)
		if err != nil {
			return err
		}
		return e.answer(list, func() { e.codes(list) })
	})
}

func (e *env) codes(list []admin.Code) {
	if len(list) == 0 {
		e.note("No codes yet.")
		return
	}
	amounts := make([]string, len(list))
	for i, c := range list {
		amounts[i] = c.Amount
	}
	amounts = credits(amounts...)
	rows := make([][]string, len(list))
	for i, c := range list {
		rows[i] = []string{c.ID, "…" + c.Last4, e.status(c.Status), amounts[i], c.CreatedAt.UTC().Format(time.DateOnly), day(c.ExpiresAt), c.Account, c.Note}
	}
	e.table([]column{
		{head: "ID", cut: true},
		{head: "CODE"},
		{head: "STATUS"},
		{head: "AMOUNT IU", right: true},
		{head: "MADE"},
		{head: "EXPIRES"},
		{head: "REDEEMED BY", cut: true},
		{head: "NOTE", cut: true},
	}, rows)
}

type codeRevoke struct {
	directory
	ID string `arg:"" help:"Id of the code, as in code ls."`
}

func (codeRevoke) Help() string { return `Example: parley code revoke code_0199…` }

func (a *codeRevoke) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		got, err := c.RevokeCode(e.ctx, a.ID)
		if err != nil {
			return err
		}
		return e.answer(got, func() { e.print("Revoked. Nobody can redeem %s.", got.ID) })
	})
}

type codeRedeem struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
}

func (codeRedeem) Help() string {
	return `Reads the code from standard input. Case, hyphens and blanks do not matter.

Example: parley code redeem "Example Lab" < code.txt`
}

// mostCode bounds what is read for a code.
const mostCode = 1 << 10

func (a *codeRedeem) Run(e *env) error {
	if e.asks {
		e.note("Type the code and press Enter.")
	}
	line, err := bufio.NewReader(io.LimitReader(e.stdin, mostCode)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(line) == "" {
		return usageError{"There is no code on standard input."}
	}
	return e.with(a.directory, false, func(c *admin.Client) error {
		got, err := c.Redeem(e.ctx, a.Name, admin.NewRedemption{Code: line})
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(got, func() {
			e.print("Added %s IU to %s. Available %s IU.", credit(got.Code.Amount), got.Code.Account, credit(got.Available))
		})
	})
}
