package console

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
)

const (
	topShown = 5
	// firstTokensOf is how many calls the time to the first token is taken of.
	firstTokensOf = 200
	// watchFor is how long the page that waits for the first call asks again by itself.
	watchFor   = 5 * time.Minute
	watchEvery = "5"
	// dayFormat is how usage names days, hourFormat hours.
	dayFormat  = "2006-01-02"
	hourFormat = "2006-01-02T15"
)

// overviewPage is what templates/overview.html shows.
type overviewPage struct {
	Balance ledger.Balance
	Sum     sum
	Lasts   string // how long the credit does, in a sentence
	New     bool   // nothing was ever called
	Keys    bool   // whether there is one
	Waiting bool   // for the first call, by asking again
	Watch   string // the address that waits
	Figures *todays
	Spend   *chart
	Limits  []limitRow
	Models  []topRow // nil when they could not be read
	TopKeys []topRow
	Read    bool // whether Models and TopKeys could be
	Quick   snippet
	// Addresses of other pages, empty where there is none.
	AddCredit, Usage, Requests string
}

// topRow is a model or a key with what was spent on it.
type topRow struct {
	Name, Link string
	Calls      int64
	Spent      money.Amount
	PlanTokens int64
}

// todays are the figures of today, beside what they are compared with.
type todays struct {
	Today, Yesterday ledger.Usage // yesterday until the hour that it is now
	Until            string       // that hour
	Month            ledger.Usage
	DaysLeft, Days   int
	Requests         []int64 // of each hour of today
	Tokens           []int64
	Errors           []int64
	First, Slow      time.Duration // median and 95 % of the time to the first token
	Unread           bool          // these could not be read
	Denied           int64         // calls of today that were refused before they began
	More             bool          // and there are more of them
}

// Refused are the calls of today that were refused, by us or by the upstream.
func (f *todays) Refused() int64 { return f.Today.Refused + f.Denied }

// Failed are the calls of today that did not end well.
func (f *todays) Failed() int64 { return f.Today.Failed + f.Refused() }

// TokensToday are those in and out.
func (f *todays) TokensToday() int64 { return f.Today.PromptTokens + f.Today.CompletionTokens }

// overview is the first page of an account: what is left, until when, and what went on.
func (s *Server) overview(v *visit) error {
	if v.account == nil {
		return v.seeOther("/security")
	}
	b := s.Ledger.Balance(v.account.ID)
	p := overviewPage{
		Balance: b, Sum: booksSum(b, sumLinks{"/billing", "/usage", ""}), AddCredit: v.addCredit(v.linked("/billing", "/billing")), Usage: v.linked("/usage", "/usage"), Requests: v.linked("/requests", "/requests"),
		Quick: v.samplePage("quick", v.exampleModel(nil)), Watch: "/?watch=" + strconv.FormatInt(v.now.Unix(), 10),
	}
	p.Keys = slices.ContainsFunc(s.Keys.List(v.account.ID), func(k apikey.Key) bool { return k.Status(v.now) == "active" })
	last, ok := partial(v, func(ctx context.Context) (ledger.Page, error) {
		return s.Records.ReceiptPage(ctx, ledger.Filter{AccountID: v.account.ID, Limit: firstTokensOf})
	})
	p.New = ok && len(last.Receipts) == 0 && last.Next == "" && b.Running == 0
	if p.New {
		p.Waiting = v.waits()
		return v.page("overview", "Overview", p)
	}
	grants, granted := partial(v, func(ctx context.Context) ([]ledger.GrantBalance, error) {
		return s.Records.Grants(ctx, v.account.ID)
	})
	pace, paced := partial(v, func(ctx context.Context) (ledger.Pace, error) {
		return s.Records.Pace(ctx, v.account.ID, v.now)
	})
	p.Lasts = "How long it lasts could not be read at " + clock(v.now) + " UTC."
	if granted && paced {
		p.Lasts = lasts(grants, b.Held, pace, v.now)
	}
	v.warn(grants, pace, b)
	p.Figures = v.today(last.Receipts)
	if p.Figures != nil {
		p.Figures.Unread = !ok
	}
	if days, ok := v.usageBy(ledger.ByDay, firstOfMonth(v.now)); ok {
		c := v.spendChart(days)
		p.Spend = &c
		if p.Figures != nil {
			p.Figures.Month = total(days)
		}
	}
	if plan, ok := s.Accounts.Plan(v.account.PlanAt(v.now)); ok {
		p.Limits = limitRows("", plan.Limits(), s.Limits.InUse(v.now, v.account.ID).Account)
	}
	models, okModels := v.usageBy(ledger.ByModel, firstOfMonth(v.now))
	keys, okKeys := v.usageBy(ledger.ByKey, firstOfMonth(v.now))
	p.Models, p.TopKeys, p.Read = v.top(models, v.nameModel), v.top(keys, v.nameKey), okModels && okKeys
	return v.page("overview", "Overview", p)
}

// waits has the browser ask again while it waits for the first call. That begins when the
// person asks for it, because a page that reloads by itself takes the focus away.
func (v *visit) waits() bool {
	since, err := strconv.ParseInt(v.r.URL.Query().Get("watch"), 10, 64)
	if err != nil || v.now.Sub(time.Unix(since, 0)).Abs() > watchFor {
		return false
	}
	v.w.Header().Set("Refresh", watchEvery)
	return true
}

// usageBy adds up the account's usage since then; false when it cannot be read.
func (v *visit) usageBy(by ledger.By, from time.Time) ([]ledger.Usage, bool) {
	return partial(v, func(ctx context.Context) ([]ledger.Usage, error) {
		return v.s.Records.UsageOf(ctx, ledger.UsageFilter{AccountID: v.account.ID, From: from, To: midnight(v.now).AddDate(0, 0, 1)}, by)
	})
}

func total(us []ledger.Usage) (sum ledger.Usage) {
	for i := range us {
		sum.Add(&us[i])
	}
	return sum
}

// today is the figures of today, or nil when usage cannot be read.
func (v *visit) today(last []ledger.Receipt) *todays {
	today := midnight(v.now)
	hours, ok := v.usageBy(ledger.ByHour, today.AddDate(0, 0, -1))
	if !ok {
		return nil
	}
	now := v.now.UTC().Hour()
	f := &todays{Until: clock(today.Add(time.Duration(now+1) * time.Hour)), Requests: make([]int64, now+1), Tokens: make([]int64, now+1), Errors: make([]int64, now+1)}
	for i := range hours {
		u := &hours[i]
		at, err := time.Parse(hourFormat, u.Group)
		switch {
		case err != nil:
		case !at.Before(today):
			f.Today.Add(u)
			h := min(at.Hour(), now)
			f.Requests[h] += u.Calls
			f.Tokens[h] += u.PromptTokens + u.CompletionTokens
			f.Errors[h] += u.Failed + u.Refused
		case at.Hour() <= now:
			f.Yesterday.Add(u)
		}
	}
	v.denied(f)
	first := firstOfMonth(v.now)
	f.Days = int(first.AddDate(0, 1, 0).Sub(first).Hours()) / 24
	f.DaysLeft = f.Days - v.now.UTC().Day()
	f.First, f.Slow = firstTokens(last)
	return f
}

// denied counts what was refused today before it began, which no usage has.
func (v *visit) denied(f *todays) {
	refused, ok := partial(v, func(ctx context.Context) ([]refusal.Record, error) {
		return v.s.Records.Refusals(ctx, refusal.Filter{AccountID: v.account.ID, From: midnight(v.now), Limit: refusalsCounted})
	})
	if !ok {
		return
	}
	f.Denied, f.More = int64(len(refused)), len(refused) == refusalsCounted
	for i := range refused {
		f.Errors[min(refused[i].At.UTC().Hour(), len(f.Errors)-1)]++
	}
}

// firstTokens is the median and the 95 % of calls' times to their first token.
func firstTokens(calls []ledger.Receipt) (median, slow time.Duration) {
	var times []time.Duration
	for i := range calls {
		if d := calls[i].FirstToken; d > 0 {
			times = append(times, d)
		}
	}
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return times[(len(times)-1)/2], times[(len(times)-1)*95/100]
}

// spendChart has a bar for every day of the month so far.
func (v *visit) spendChart(days []ledger.Usage) chart {
	spent := map[string]int64{}
	for _, u := range days {
		spent[u.Group] = int64(u.Charge)
	}
	var bars []bar
	today := midnight(v.now)
	for d := firstOfMonth(v.now); !d.After(today); d = d.AddDate(0, 0, 1) {
		bars = append(bars, bar{Name: d.Format("2 Jan"), Value: spent[d.Format(dayFormat)], Open: d.Equal(today)})
	}
	return newChart("Spend per day", "IU", bars, func(n int64) string { return spendText(money.Amount(n)) })
}

// top are the groups on which most was spent, as name names them.
func (v *visit) top(us []ledger.Usage, name func(string) topRow) []topRow {
	us = slices.Clone(us)
	slices.SortStableFunc(us, func(a, b ledger.Usage) int { return cmp.Compare(b.Charge, a.Charge) })
	var rows []topRow
	for _, u := range us[:min(len(us), topShown)] {
		r := name(u.Group)
		r.Calls, r.Spent, r.PlanTokens = u.Calls, u.Charge, u.PlanTokens
		rows = append(rows, r)
	}
	return rows
}

func (v *visit) nameModel(id string) topRow {
	return topRow{Name: id, Link: v.linked("/models/{id}", "/models/"+id)}
}

func (v *visit) nameKey(id string) topRow {
	k, ok := v.s.Keys.Find(id)
	if !ok {
		return topRow{Name: middle(id)}
	}
	if !v.mayKey(&k) {
		return topRow{Name: k.Name}
	}
	return topRow{Name: k.Name, Link: "/keys/" + id}
}

// linked is path where the console has pages of that pattern, else nothing.
func (v *visit) linked(pattern, path string) string {
	if !v.s.paths[pattern] {
		return ""
	}
	return path
}
