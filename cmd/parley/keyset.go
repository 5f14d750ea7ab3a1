package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
)

type keySet struct {
	directory
	ID      string  `arg:"" help:"Id of the key."`
	Name    *string `help:"Name of the key." placeholder:"NAME"`
	RPM     *string `help:"Most requests in any minute, or none." placeholder:"N"`
	TPM     *string `help:"Most tokens in any minute, or none." placeholder:"N"`
	Budget  *string `help:"Most IU that it may spend, as 25 or 25/month, or none. What it has spent stays." placeholder:"AMOUNT"`
	Models  *string `help:"The only models it may use, or all." placeholder:"A,B"`
	Scopes  *string `help:"What it may do: chat, models, usage:read, keys:write, billing." placeholder:"A,B"`
	Allow   *string `help:"The only networks it may be used from, or any." placeholder:"A,B"`
	Expires *string `help:"When it expires, as 2026-12-31T00:00:00Z, or never." placeholder:"TIME"`
}

func (keySet) Help() string {
	return `What is not given stays as it is. It holds for every call from now on:

  parley key set key_01jt… --budget 40/month --rpm none`
}

func (k *keySet) Run(e *env) error {
	in, err := k.change()
	if err != nil {
		return err
	}
	if in.Name == nil && in.Scopes == nil && !in.RPM.Given && !in.TPM.Given && !in.Budget.Given && !in.Models.Given && !in.Allow.Given && !in.ExpiresAt.Given {
		return usageError{"There is nothing to change. Give --name, --rpm, --tpm, --budget, --models, --scopes, --allow or --expires."}
	}
	return e.with(k.directory, false, func(c *admin.Client) error {
		changed, err := c.SetKey(e.ctx, k.ID, in)
		if err != nil {
			return err
		}
		return e.answer(changed, func() {
			e.keys([]admin.Key{changed})
			e.note("It holds for every call from now on.")
		})
	})
}

// change reads the flags.
func (k *keySet) change() (in admin.KeyChange, err error) {
	in.Name = k.Name
	if k.Scopes != nil {
		in.Scopes = strings.Split(*k.Scopes, ",")
	}
	list := func(text string) ([]string, error) { return strings.Split(text, ","), nil }
	in.Models, _ = setting(k.Models, "all", list)
	in.Allow, _ = setting(k.Allow, "any", list)
	in.Budget, _ = setting(k.Budget, "none", func(text string) (string, error) { return text, nil })
	if in.RPM, err = setting(k.RPM, "none", limitFlag); err != nil {
		return in, err
	}
	if in.TPM, err = setting(k.TPM, "none", limitFlag); err != nil {
		return in, err
	}
	in.ExpiresAt, err = setting(k.Expires, "never", func(text string) (time.Time, error) { return moment("--expires", text) })
	return in, err
}

func limitFlag(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, usageError{"--rpm and --tpm must be at least 1, or none."}
	}
	return n, nil
}

// setting reads a flag; the word off takes away.
func setting[T any](flag *string, off string, parse func(string) (T, error)) (admin.Setting[T], error) {
	switch {
	case flag == nil:
		return admin.Setting[T]{}, nil
	case *flag == off:
		return admin.Unset[T](), nil
	}
	v, err := parse(*flag)
	return admin.Set(v), err
}
