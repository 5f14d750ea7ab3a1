package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"time"
)

// credit is what each account gets, in IU.
const credit = "100000"

type receipt struct {
	RequestID    string `json:"request_id"`
	CompletionID string `json:"completion_id"`
	Model        string `json:"model"`
	Prompt       int    `json:"prompt_tokens"`
	Cached       int    `json:"cached_tokens"`
	Completion   int    `json:"completion_tokens"`
	Charge       string `json:"charge"`
	WrittenOff   string `json:"written_off"`
	State        string `json:"state"`
	Ending       string `json:"ending"`
}

type model struct {
	ID      string
	Pricing struct {
		Input, Output string
		CachedInput   string `json:"cached_input"`
	}
}

// check reads the books and holds them to what the clients saw.
func check(ctx context.Context, o *operator, accounts []string, calls []*call) ([]string, error) {
	var models []model
	if err := o.ask(ctx, &models, "models"); err != nil {
		return nil, err
	}
	byAccount := map[string][]*call{}
	for _, c := range calls {
		byAccount[c.account] = append(byAccount[c.account], c)
	}
	var problems []string
	total := 0
	for _, name := range accounts {
		list, err := receipts(ctx, o, name)
		if err != nil {
			return nil, err
		}
		total += len(list)
		wrong, spent := compare(byAccount[name], list, models)
		problems = append(problems, wrong...)
		var a struct{ Balance, Held string }
		if err := o.ask(ctx, &a, "account", "show", name); err != nil {
			return nil, err
		}
		if want := new(big.Rat).Sub(amount(credit), spent); amount(a.Balance).Cmp(want) != 0 || a.Held != "0" {
			problems = append(problems, fmt.Sprintf("account %s: balance %s and %s held, want %s and 0", name, a.Balance, a.Held, want.FloatString(9)))
		}
	}
	var books struct{ OK bool }
	if err := o.ask(ctx, &books, "ledger", "verify"); err != nil || !books.OK {
		problems = append(problems, fmt.Sprintf("the ledger is not balanced: %v", err))
	}
	fmt.Printf("books      %d receipts of %d accounts\n", total, len(accounts))
	return problems, nil
}

// receipts lists the calls of an account when none runs any more.
func receipts(ctx context.Context, o *operator, name string) ([]receipt, error) {
	for deadline := time.Now().Add(10 * time.Second); ; pause(ctx, 50*time.Millisecond) {
		var list []receipt
		if err := o.ask(ctx, &list, "receipts", "--account", name, "--limit", "10000"); err != nil {
			return nil, err
		}
		running := slices.ContainsFunc(list, func(r receipt) bool { return r.State == "running" })
		if !running || time.Now().After(deadline) || ctx.Err() != nil {
			return list, ctx.Err()
		}
	}
}

// compare holds the receipts of one account to its calls and adds up what they charge.
func compare(calls []*call, list []receipt, models []model) (problems []string, spent *big.Rat) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	spent = new(big.Rat)
	found := map[string][]receipt{}
	for _, r := range list {
		found[r.RequestID] = append(found[r.RequestID], r)
		spent.Add(spent, amount(r.Charge))
		if err := priced(r, models); err != "" {
			wrong("request %s: %s", r.RequestID, err)
		}
	}
	for _, c := range calls {
		if c.wrong != "" {
			wrong("request %s: %s", c.requestID, c.wrong)
		}
		mine := found[c.requestID]
		delete(found, c.requestID)
		switch {
		case c.requestID == "": // no answer at all: what it cost is told below
		case len(mine) > 1:
			wrong("request %s has %d receipts", c.requestID, len(mine))
		case len(mine) == 0 && c.status == http.StatusOK:
			wrong("request %s was answered and has no receipt", c.requestID)
		case len(mine) == 1:
			if err := c.billed(mine[0]); err != "" {
				wrong("request %s: %s", c.requestID, err)
			}
		}
	}
	for _, rs := range found {
		for _, r := range rs {
			if r.State != "voided" {
				wrong("receipt %s of %s is for a request that nobody saw answered", r.RequestID, r.Charge)
			}
		}
	}
	return problems, spent
}

// billed says what is wrong with the receipt of c, or nothing.
func (c *call) billed(r receipt) string {
	switch {
	case c.answered() && (r.State != "settled" || r.CompletionID != c.completion || r.Prompt != c.usage.Prompt || r.Completion != c.usage.Completion):
		return fmt.Sprintf("the client saw %s with %+v, the receipt is %+v", c.completion, c.usage, r)
	case c.status != http.StatusOK && amount(r.Charge).Sign() != 0:
		return fmt.Sprintf("refused with %d %s and charged %s", c.status, c.code, r.Charge)
	case c.left && r.State != "settled" && r.State != "voided":
		return "a call that was left is " + r.State
	}
	return ""
}

// priced says whether a receipt charges exactly its tokens.
func priced(r receipt, models []model) string {
	want := new(big.Rat)
	if r.State != "voided" {
		i := slices.IndexFunc(models, func(m model) bool { return m.ID == r.Model })
		if i < 0 {
			return "it is for the model " + r.Model + ", which is not on offer"
		}
		p := models[i].Pricing
		for _, part := range []struct {
			tokens int
			price  string
		}{{r.Prompt - r.Cached, p.Input}, {r.Cached, p.CachedInput}, {r.Completion, p.Output}} {
			want.Add(want, new(big.Rat).Mul(big.NewRat(int64(part.tokens), 1000), amount(part.price)))
		}
	}
	if got := new(big.Rat).Add(amount(r.Charge), amount(r.WrittenOff)); got.Cmp(want) != 0 {
		return fmt.Sprintf("it charges %s, want %s for %d, %d and %d tokens", r.Charge, want.FloatString(9), r.Prompt, r.Cached, r.Completion)
	}
	return ""
}

// amount reads a decimal number; what is none is -1, which no sum expects.
func amount(s string) *big.Rat {
	if v, ok := new(big.Rat).SetString(s); ok {
		return v
	}
	return big.NewRat(-1, 1)
}

// report prints what the clients saw.
func report(w io.Writer, calls []*call, took time.Duration) {
	codes := map[string]int{}
	for _, kind := range []struct {
		name   string
		stream bool
	}{{"whole", false}, {"streams", true}} {
		var total, first []time.Duration
		left := 0
		for _, c := range calls {
			switch {
			case c.stream != kind.stream:
			case c.left:
				left++
			case c.answered():
				total, first = append(total, c.took), append(first, c.first)
			default:
				codes[cmp.Or(c.code, "wrong")]++
			}
		}
		fmt.Fprintf(w, "%-9s  %d answered, %.1f/s, p50 %s, p99 %s; first text p50 %s, p99 %s; %d left\n", kind.name, len(total), float64(len(total))/took.Seconds(),
			quantile(total, 0.5), quantile(total, 0.99), quantile(first, 0.5), quantile(first, 0.99), left)
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(w, "errors     %d %s\n", codes[code], code)
	}
}

// quantile is the q-quantile of ds, which it sorts.
func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[min(int(q*float64(len(ds))), len(ds)-1)].Round(10 * time.Microsecond)
}
