package main

import (
	"strconv"

	"github.com/parley-ai/parley/internal/admin"
)

type webhookLs struct{ directory }

func (w *webhookLs) Run(e *env) error {
	return e.with(w.directory, false, func(c *admin.Client) error {
		list, err := c.Deliveries(e.ctx)
		if err != nil {
			return err
		}
		return e.answer(list, func() {
			if len(list) == 0 {
				e.note("Nothing was to be told yet.")
				return
			}
			rows := make([][]string, len(list))
			for i, d := range list {
				rows[i] = []string{strconv.FormatInt(d.ID, 10), clock(d.CreatedAt, e.now()), d.Type, e.status(d.State), strconv.Itoa(d.Attempts), d.URL, d.LastError}
			}
			e.table([]column{
				{head: "ID", right: true},
				{head: "TIME"},
				{head: "EVENT"},
				{head: "STATE"},
				{head: "TRIES", right: true},
				{head: "URL", cut: true},
				{head: "LAST ERROR", cut: true},
			}, rows)
		})
	})
}

type webhookRetry struct {
	directory
	ID int64 `arg:"" help:"Id of the delivery, as webhook ls shows it."`
}

func (w *webhookRetry) Run(e *env) error {
	return e.with(w.directory, false, func(c *admin.Client) error {
		if err := c.RetryDelivery(e.ctx, w.ID); err != nil {
			return err
		}
		return e.answer(struct{}{}, func() { e.print("It waits for its turn.") })
	})
}
