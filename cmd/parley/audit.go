package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type auditLs struct {
	directory
	Target string `help:"Only changes of this account, by name or id, or of this key, plan or model." placeholder:"NAME"`
	Limit  int    `help:"How many at most." default:"50" placeholder:"N"`
}

func (auditLs) Help() string {
	return `Lists what was changed, by whom, the last change first. parley ledger verify proves
that no entry was changed or left out. --json has what was there before, and the hashes.`
}

func (a *auditLs) Run(e *env) error {
	if a.Limit < 1 {
		return usageError{"--limit must be at least 1."}
	}
	return e.with(a.directory, false, func(c *admin.Client) error {
		list, err := c.AuditLog(e.ctx, a.Target, a.Limit)
		if err != nil {
			return err
		}
		return e.answer(list, func() { e.auditLog(list) })
	})
}

func (e *env) auditLog(list []admin.AuditEntry) {
	if len(list) == 0 {
		e.note("No changes yet.")
		return
	}
	rows := make([][]string, len(list))
	for i, x := range list {
		rows[i] = []string{english.Count(x.Seq), clock(x.At, e.now()), x.Actor, x.Action, x.Target, changed(x)}
	}
	e.table([]column{
		{head: "SEQ", right: true},
		{head: "TIME"},
		{head: "ACTOR"},
		{head: "ACTION"},
		{head: "TARGET", cut: true},
		{head: "CHANGE", cut: true},
	}, rows)
}

// changed says in one line what is not as it was before.
func changed(x admin.AuditEntry) string {
	var before, after map[string]any
	if json.Unmarshal(x.After, &after) != nil {
		return string(x.After)
	}
	_ = json.Unmarshal(x.Before, &before) // nothing was there before
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, known := before[name]
		now := fmt.Sprint(after[name])
		if now == "" || after[name] == nil || known && fmt.Sprint(was) == now {
			continue
		}
		parts = append(parts, name+" "+now)
	}
	return strings.Join(parts, ", ")
}
