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

type topupCreate struct {
	directory
	Account string `required:"" help:"Name or id of the account." placeholder:"NAME"`
	Price   string `required:"" help:"Price, as the configuration's payment names it." placeholder:"ID"`
}

func (topupCreate) Help() string {
	return "Makes a page on which the price can be paid and prints its address. The credit is added when the payment has been made."
}

func (t *topupCreate) Run(e *env) error {
	return e.with(t.directory, false, func(c *admin.Client) error {
		page, err := c.CreateTopup(e.ctx, t.Account, admin.NewTopup{Price: t.Price})
		if err != nil {
			return e.named(c, t.Account, err)
		}
		return e.answer(page, func() {
			e.print("%s", page.URL)
			e.note("Paid, it adds %s IU.", credit(page.Credit))
		})
	})
}
