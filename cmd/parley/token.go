package main

import (
	"fmt"

	"github.com/parley-ai/parley/internal/admin"
)

type tokenCreate struct {
	directory
	Name    string  `arg:"" help:"What it is for."`
	Expires *string `help:"When it stops working; default never." placeholder:"TIME"`
}

func (tokenCreate) Help() string {
	return `Whoever has the token may do through /admin/v1 on the public address whatever the
command line can. Use it over TLS only.

Example: export PARLEY_OPERATOR_TOKEN=$(parley operator token create deploy)`
}

func (t *tokenCreate) Run(e *env) error {
	in := admin.NewToken{Name: t.Name}
	if t.Expires != nil {
		at, err := moment("--expires", *t.Expires)
		if err != nil {
			return err
		}
		in.ExpiresAt = &at
	}
	return e.with(t.directory, false, func(c *admin.Client) error {
		made, err := c.CreateToken(e.ctx, in)
		if err != nil {
			return err
		}
		return e.answer(made, func() {
			e.print("%s", made.Token)
			e.note("Token %s (%s). Shown once; store it now.", t.Name, made.ID)
		})
	})
}

type tokenLs struct{ directory }

func (t *tokenLs) Run(e *env) error {
	return e.with(t.directory, false, func(c *admin.Client) error {
		all, err := c.Tokens(e.ctx)
		if err != nil {
			return err
		}
		return e.answer(all, func() { e.tokens(all) })
	})
}

func (e *env) tokens(all []admin.Token) {
	if len(all) == 0 {
		e.note("No tokens yet.")
		return
	}
	rows := make([][]string, 0, len(all))
	for _, t := range all {
		rows = append(rows, []string{t.Name, t.ID, t.Prefix + "…", e.status(t.Status), t.CreatedBy, ago(t.LastUsedAt, e.now())})
	}
	e.table([]column{{head: "NAME", cut: true}, {head: "ID"}, {head: "PREFIX"}, {head: "STATUS"}, {head: "MADE BY", cut: true}, {head: "LAST USED"}}, rows)
}

type tokenRevoke struct {
	directory
	ID  string `arg:"" help:"Id of the token."`
	Yes bool   `help:"Do not ask."`
}

func (t *tokenRevoke) Run(e *env) error {
	return e.with(t.directory, false, func(c *admin.Client) error {
		if e.asks && !t.Yes && !e.confirm(fmt.Sprintf("Revoke %s?", t.ID)) {
			return coded{"not_confirmed", "Nothing was changed."}
		}
		gone, err := c.RevokeToken(e.ctx, t.ID)
		if err != nil {
			return err
		}
		return e.answer(gone, func() {
			e.print("%s is revoked since %s.", gone.Name, gone.RevokedAt.UTC().Format("15:04:05 UTC"))
		})
	})
}
