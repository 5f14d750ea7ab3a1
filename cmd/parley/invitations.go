package main

import "github.com/parley-ai/parley/internal/admin"

type invitationLs struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
}

func (invitationLs) Help() string {
	return `Only those that nobody has used and that have not expired. Their links cannot be
shown again.

Example: parley invitation ls "Example Lab"`
}

func (a *invitationLs) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		open, err := c.Invitations(e.ctx, a.Name)
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(open, func() { e.invitations(open) })
	})
}

func (e *env) invitations(open []admin.Invitation) {
	if len(open) == 0 {
		e.note("No open invitations.")
		return
	}
	rows := make([][]string, len(open))
	for i, v := range open {
		rows[i] = []string{v.Email, v.Role, date(v.ExpiresAt), v.CreatedBy, v.ID}
	}
	e.table([]column{{head: "EMAIL", cut: true}, {head: "ROLE"}, {head: "GOOD UNTIL"}, {head: "MADE BY", cut: true}, {head: "ID"}}, rows)
}

type invitationRevoke struct {
	directory
	Name string `arg:"" help:"Name or id of the account."`
	ID   string `arg:"" help:"Id of the invitation, as in invitation ls."`
}

func (invitationRevoke) Help() string {
	return `Example: parley invitation revoke "Example Lab" link_0199…`
}

func (a *invitationRevoke) Run(e *env) error {
	return e.with(a.directory, false, func(c *admin.Client) error {
		gone, err := c.RevokeInvitation(e.ctx, a.Name, a.ID)
		if err != nil {
			return e.named(c, a.Name, err)
		}
		return e.answer(gone, func() { e.print("Revoked. The link for %s leads nowhere.", gone.Email) })
	})
}
