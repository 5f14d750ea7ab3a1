package main

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type keyCreate struct {
	directory
	Account string   `required:"" help:"Name or id of the account that pays." placeholder:"NAME"`
	Name    string   `help:"Name of the key." default:"default" placeholder:"NAME"`
	RPM     *int64   `help:"Most requests in any minute, within the plan's limit." placeholder:"N"`
	TPM     *int64   `help:"Most tokens in any minute, within the plan's limit." placeholder:"N"`
	Budget  *string  `help:"Most IU that it may spend, in all or by the month, as 25 or 25/month." placeholder:"AMOUNT"`
	Expires *string  `help:"When it expires, as 2026-12-31T00:00:00Z; never without." placeholder:"TIME"`
	Models  []string `help:"The only models it may use; all of the plan without." placeholder:"A,B"`
	Scopes  []string `help:"What it may do: chat, models, usage:read, keys:write, billing; the first two without." placeholder:"A,B"`
	Allow   []string `help:"The only networks it may be used from, as 10.0.0.0/8 or 2001:db8::/32." placeholder:"A,B"`
}

func (keyCreate) Help() string {
	return `The secret is the only thing on standard output:

  export PARLEY_API_KEY=$(parley key create --account "Example Lab" --name web)`
}

func (k *keyCreate) Run(e *env) error {
	if err := k.empty(); err != nil {
		return err
	}
	in := admin.NewKey{Name: k.Name, Models: k.Models, Scopes: k.Scopes, Allow: k.Allow, RPM: k.RPM, TPM: k.TPM}
	if k.Budget != nil {
		in.Budget = *k.Budget
	}
	if k.Expires != nil {
		t, err := moment("--expires", *k.Expires)
		if err != nil {
			return err
		}
		in.ExpiresAt = &t
	}
	if k.RPM != nil && *k.RPM < 1 || k.TPM != nil && *k.TPM < 1 {
		return usageError{"--rpm and --tpm must be at least 1. Leave them out for the plan's limits alone."}
	}
	return e.with(k.directory, false, func(c *admin.Client) error {
		account, err := c.Account(e.ctx, k.Account)
		if err != nil {
			return e.named(c, k.Account, err)
		}
		made, err := c.CreateKey(e.ctx, account.ID, in)
		if err != nil {
			return err
		}
		// The key works whatever this says; without it only the limits are not told.
		s, _ := c.Summary(e.ctx, account.ID)
		return e.answer(made, func() {
			e.print("%s", made.Secret)
			e.note("Key %s (%s) for %s. Shown once; store it now.", k.Name, made.ID, account.Name)
			if amount, monthly := strings.CutSuffix(in.Budget, "/month"); monthly {
				e.note("Budget %s IU a month.", credit(amount))
			} else if amount != "" {
				e.note("Budget %s IU in all.", credit(amount))
			}
			if text := keyLimits(in, s.Plan); text != "" {
				e.note("Limits %s.", text)
			}
			if len(in.Models) > 0 {
				e.note("It may use %s.", strings.Join(in.Models, ", "))
			}
			if len(in.Scopes) > 0 {
				e.note("Its scopes are %s.", strings.Join(in.Scopes, ", "))
			}
			if len(in.Allow) > 0 {
				e.note("It may be used from %s.", strings.Join(in.Allow, ", "))
			}
			if in.ExpiresAt != nil {
				e.note("It expires on %s.", date(*in.ExpiresAt))
			}
		})
	})
}

// empty refuses flags without a value, as a script gives them whose variable is not set: the
// key would be without the bound that was meant.
func (k *keyCreate) empty() error {
	for _, f := range []struct {
		empty bool
		text  string
	}{
		{k.Models != nil && len(k.Models) == 0, "--models is empty. Leave it out for all models of the plan."},
		{k.Allow != nil && len(k.Allow) == 0, "--allow is empty. Leave it out for a key that may be used from everywhere."},
		{k.Budget != nil && *k.Budget == "", "--budget is empty. Leave it out for a key without one."},
	} {
		if f.empty {
			return usageError{f.text}
		}
	}
	return nil
}

// keyLimits says what binds a key that has limits of its own: those, else the plan's.
func keyLimits(in admin.NewKey, plan *admin.Plan) string {
	if in.RPM == nil && in.TPM == nil {
		return ""
	}
	bound := admin.Plan{RPM: in.RPM, TPM: in.TPM}
	if plan != nil {
		bound.RPM, bound.TPM = cmp.Or(in.RPM, plan.RPM), cmp.Or(in.TPM, plan.TPM)
	}
	return limits(bound)
}

type keyLs struct {
	directory
	Account string `required:"" help:"Name or id of the account." placeholder:"NAME"`
}

func (k *keyLs) Run(e *env) error {
	return e.with(k.directory, false, func(c *admin.Client) error {
		keys, err := c.Keys(e.ctx, k.Account)
		if err != nil {
			return e.named(c, k.Account, err)
		}
		return e.answer(keys, func() { e.keys(keys) })
	})
}

// keys lists keys; columns that would be empty are left out.
func (e *env) keys(keys []admin.Key) {
	if len(keys) == 0 {
		e.note("No keys yet.")
		return
	}
	columns := []column{{head: "NAME", cut: true}, {head: "ID", cut: true}, {head: "PREFIX"}, {head: "STATUS"}, {head: "LAST USED"}}
	rows := make([][]string, len(keys))
	for i, k := range keys {
		rows[i] = []string{k.Name, k.ID, k.Prefix + "…", e.status(k.Status), ago(k.LastUsedAt, e.now())}
	}
	for _, c := range keyColumns() {
		if !slices.ContainsFunc(keys, c.has) {
			continue
		}
		columns = append(columns, c.column)
		for i, k := range keys {
			rows[i] = append(rows[i], c.text(k))
		}
	}
	e.table(columns, rows)
}

// keyColumn is a column that is shown when a key has something for it.
type keyColumn struct {
	column
	has  func(admin.Key) bool
	text func(admin.Key) string
}

func keyColumns() []keyColumn {
	limited := func(k admin.Key) bool { return k.RPM != nil || k.TPM != nil }
	budgeted := func(k admin.Key) bool { return k.Budget != nil }
	return []keyColumn{
		{column{head: "REQUESTS/MIN", right: true}, limited, func(k admin.Key) string { return limitOr(k.RPM, "plan's") }},
		{column{head: "TOKENS/MIN", right: true}, limited, func(k admin.Key) string { return limitOr(k.TPM, "plan's") }},
		{column{head: "SPENT IU", right: true}, budgeted, func(k admin.Key) string {
			if k.Budget == nil {
				return "-"
			}
			return credit(k.Budget.Spent)
		}},
		{column{head: "BUDGET IU", right: true}, budgeted, func(k admin.Key) string {
			switch {
			case k.Budget == nil:
				return "-"
			case k.Budget.Period == "month":
				return credit(k.Budget.Amount) + "/month"
			}
			return credit(k.Budget.Amount)
		}},
		{column{head: "EXPIRES"}, func(k admin.Key) bool { return k.ExpiresAt != nil }, func(k admin.Key) string {
			if k.ExpiresAt == nil {
				return "never"
			}
			return k.ExpiresAt.UTC().Format("2 Jan 2006")
		}},
		{column{head: "REPLACED BY"}, func(k admin.Key) bool { return k.ReplacedBy != nil }, func(k admin.Key) string {
			if k.ReplacedBy == nil {
				return "-"
			}
			return *k.ReplacedBy
		}},
		{column{head: "MODELS"}, func(k admin.Key) bool { return len(k.Models) > 0 }, func(k admin.Key) string { return listOr(k.Models, "all") }},
		{column{head: "SCOPES"}, func(k admin.Key) bool { return !slices.Equal(k.Scopes, defaultScopes) }, func(k admin.Key) string { return listOr(k.Scopes, "none") }},
		{column{head: "ALLOWED FROM"}, func(k admin.Key) bool { return len(k.Allow) > 0 }, func(k admin.Key) string { return listOr(k.Allow, "anywhere") }},
	}
}

// defaultScopes are not worth a column.
var defaultScopes = []string{"chat", "models"}

// listOr is a list, or the word for one that is empty.
func listOr(list []string, word string) string {
	if len(list) == 0 {
		return word
	}
	return strings.Join(list, ", ")
}

type keyRotate struct {
	directory
	ID      string        `arg:"" help:"Id of the key."`
	Overlap time.Duration `help:"How long the old secret goes on working, as 24h; with 0s not at all." default:"24h" placeholder:"TIME"`
	Yes     bool          `help:"Do not ask."`
}

func (keyRotate) Help() string {
	return `The new key has an id of its own and the settings of the old one. Its secret is the
only thing on standard output.`
}

func (k *keyRotate) Run(e *env) error {
	return e.with(k.directory, false, func(c *admin.Client) error {
		use, err := c.Key(e.ctx, k.ID)
		if err != nil {
			return err
		}
		if k.Overlap == 0 && e.asks && !k.Yes && !e.confirm(fmt.Sprintf("Refuse the old secret of %s of %s at once?%s", use.Key.Name, use.Account, cutCalls(use))) {
			return coded{"not_confirmed", "Nothing was changed."}
		}
		made, err := c.RotateKey(e.ctx, k.ID, admin.Rotation{Overlap: k.Overlap.String()})
		if err != nil {
			return err
		}
		return e.answer(made, func() {
			e.print("%s", made.Secret)
			e.note("Key %s (%s) of %s takes the place of %s. Shown once; store it now.", use.Key.Name, made.ID, use.Account, made.Replaces)
			if made.Until == nil {
				e.note("The old secret is refused from now on.")
				return
			}
			e.note("The old secret works until %s.", date(*made.Until))
		})
	})
}

type keyRevoke struct {
	directory
	ID  string `arg:"" help:"Id of the key."`
	Yes bool   `help:"Do not ask."`
}

func (k *keyRevoke) Run(e *env) error {
	return e.with(k.directory, false, func(c *admin.Client) error {
		if e.asks && !k.Yes {
			use, err := c.Key(e.ctx, k.ID)
			if err != nil {
				return err
			}
			if !e.confirm(fmt.Sprintf("Revoke %s of %s?%s", use.Key.Name, use.Account, cutCalls(use))) {
				return coded{"not_confirmed", "Nothing was changed."}
			}
		}
		gone, err := c.RevokeKey(e.ctx, k.ID)
		if err != nil {
			return err
		}
		return e.answer(gone, func() {
			since := gone.RevokedAt.UTC().Format("15:04:05 UTC")
			if gone.Servers == 0 {
				e.print("Revoked at %s. No server is running; the next one will refuse it.", since)
			} else {
				e.print("Revoked. Refused everywhere since %s (%d of %d servers confirmed).", since, gone.Confirmed, gone.Servers)
			}
			e.noteOverlap(c, k.ID)
		})
	})
}

// noteOverlap tells of a key whose place the revoked one took and that works still: who
// revokes the one may believe that both are closed.
func (e *env) noteOverlap(c *admin.Client, revoked string) {
	use, err := c.Key(e.ctx, revoked)
	if err != nil {
		return // the key is revoked whatever this says
	}
	keys, _ := c.Keys(e.ctx, use.Account)
	for _, k := range keys {
		if k.ReplacedBy != nil && *k.ReplacedBy == revoked && k.Status == "active" && k.ExpiresAt != nil {
			e.note("The key whose place it took works until %s. To close it too: parley key revoke %s", date(*k.ExpiresAt), k.ID)
		}
	}
}

// cutCalls says what a revocation breaks off.
func cutCalls(use admin.KeyUse) string {
	noun, verb := "running call", "are"
	if use.Streams == use.Running {
		noun = "running stream"
	}
	switch use.Running {
	case 0:
		return ""
	case 1:
		verb = "is"
	}
	return " " + english.Plural(use.Running, noun) + " " + verb + " cut."
}

// confirm asks a question that only a yes answers.
func (e *env) confirm(question string) bool {
	fmt.Fprintf(e.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(e.stdin).ReadString('\n')
	if err != nil {
		e.note("")
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
