package main

import (
	"fmt"
	"strings"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type explain struct {
	directory
	ID string `arg:"" help:"Request id (x-request-id of an answer) or completion id."`
}

func (explain) Help() string {
	return `Prints how a call was charged, with the arithmetic, or why it was refused, when
that clears and what to do. Refusals are kept for 7 days.

Example: parley explain req_01a2006abe5c73b48104869ca4980be7`
}

func (x *explain) Run(e *env) error {
	return e.with(x.directory, false, func(c *admin.Client) error {
		got, err := c.Request(e.ctx, x.ID)
		if err != nil {
			return err
		}
		return e.answer(got, func() {
			if got.Refusal != nil {
				e.refusal(got)
			} else {
				e.charge(got)
			}
		})
	})
}

// refusal prints why, when it clears and what to do.
func (e *env) refusal(x admin.Explained) {
	r := x.Refusal
	e.print("%s", e.paint(red, r.Heading))
	e.fact("", r.Why)
	e.fact("clears", r.Clears)
	label := "what to do"
	for i, step := range r.Do {
		e.print("  %s%d  %s", pad(label, 14), i+1, step)
		label = ""
	}
	e.print("")
	e.fact("time", r.At.UTC().Format("2 Jan 2006 15:04:05.000 UTC"))
	e.whose(x)
	e.fact("model", r.Model)
	e.fact("answer", fmt.Sprintf("%d %s", r.Status, r.Code))
	e.fact("message", r.Message)
	if r.PromptTokens > 0 {
		e.fact("prompt", english.Plural(r.PromptTokens, "token"))
	}
	if r.MaxTokens > 0 {
		e.fact("max_tokens", english.Count(r.MaxTokens))
	}
	e.fact("request", r.RequestID)
}

// charge prints the arithmetic of a charge.
func (e *env) charge(x admin.Explained) {
	c := x.Charge
	r := c.Receipt
	plan := ""
	if r.PlanTokens > 0 && r.State != "running" {
		plan = " and " + english.Plural(r.PlanTokens, "plan token")
	}
	e.print("%s, %s IU%s    %s", r.Model, credit(r.Charge), plan, e.result(r))
	for _, s := range c.Sentences {
		e.fact("", s)
	}
	e.print("")
	if r.State != "voided" {
		e.parts(c)
		e.print("")
	}
	e.fact("hold", fmt.Sprintf("%s IU set aside, %s charged, %s released", credit(r.Hold), credit(r.Charge), credit(c.Released)))
	for _, b := range c.Refunds {
		e.fact("given back", fmt.Sprintf("%s IU on %s: %s", credit(b.Amount), date(b.At), b.Reason))
	}
	e.fact("time", r.CreatedAt.UTC().Format("2 Jan 2006 15:04:05.000 UTC"))
	if c.FirstToken > 0 {
		e.fact("first token", fmt.Sprintf("%.0f ms", c.FirstToken))
	}
	if c.Total > 0 {
		e.fact("in all", fmt.Sprintf("%.0f ms", c.Total))
	}
	e.whose(x)
	if r.Attempts > 0 {
		e.fact("target", r.Target+", "+english.Plural(r.Attempts, "attempt"))
	}
	e.fact("ending", r.Ending)
	e.fact("price", c.PriceID)
	e.fact("request", r.RequestID)
	e.fact("completion", r.CompletionID)
}

// parts prints a sum that closes: what the tokens cost, less what was not charged of it.
func (e *env) parts(c *admin.ChargeMade) {
	r := c.Receipt
	free, tokens := []string{"  not charged", "", ""}, 0
	if r.PlanTokens > 0 {
		free = []string{"  paid by plan", english.Count(r.PlanTokens), ""}
	}
	amounts := []string{r.Charge, c.Free, r.WrittenOff}
	for _, p := range c.Parts {
		amounts = append(amounts, p.Amount)
	}
	amounts = credits(amounts...)
	var rows [][]string
	for i, p := range c.Parts {
		tokens += p.Count
		rows = append(rows, []string{"  " + p.Kind, english.Count(p.Count), p.Price, amounts[3+i]})
	}
	if c.Free != "0" {
		rows = append(rows, append(free, "−"+amounts[1]))
	}
	if r.WrittenOff != "0" {
		rows = append(rows, []string{"  written off", "", "", "−" + amounts[2]})
	}
	rows = append(rows, []string{"  charge", english.Count(tokens), "", amounts[0]})
	e.table([]column{{head: "  TOKENS"}, {head: "COUNT", right: true}, {head: "IU PER 1K", right: true}, {head: "AMOUNT IU", right: true}}, rows)
}

// whose prints account and key, as far as they are known.
func (e *env) whose(x admin.Explained) {
	if x.Account != "" {
		e.fact("account", x.Account+"  "+e.paint(dim, x.AccountID))
	}
	if x.Key != "" {
		e.fact("key", x.Key+"  "+e.paint(dim, x.KeyID))
	}
}

// fact prints one line behind its label; nothing where there is nothing to say.
func (e *env) fact(label, text string) {
	if text == "" {
		return
	}
	if label == "" {
		e.print("  %s", text)
		return
	}
	e.print("%s", strings.TrimRight("  "+pad(label, 14)+text, " "))
}
