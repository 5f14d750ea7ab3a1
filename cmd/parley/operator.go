package main

import (
	"time"

	"github.com/parley-ai/parley/internal/admin"
)

type operatorLink struct {
	directory
}

func (operatorLink) Help() string {
	return `Whoever opens the link within an hour chooses an email and a password and is an
operator of the console. With the email of a member that exists, that member gets the
new password: it is also the way back in for who has lost theirs.`
}

func (o *operatorLink) Run(e *env) error {
	return e.with(o.directory, false, func(c *admin.Client) error {
		link, err := c.MakeOperatorLink(e.ctx)
		if err != nil {
			return err
		}
		return e.answer(link, func() {
			e.print("%s", link.URL)
			e.note("Works once, until %s UTC.", link.ExpiresAt.UTC().Format(time.TimeOnly))
		})
	})
}
