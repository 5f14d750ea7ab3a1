package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// usagePage is what templates/usage.html shows.
type usagePage struct {
	Span     span
	Ranges   []tab
	From, To string // dates, both in it
	Range    string // as the form carries it; empty when the dates count
	Keys     []pick
	Models   []pick
	Chips    []chip
	Figures  usageFigures
	Chart    chart
	Measures []tab
	Groups   []tab
	By       string
	Columns  []column
	Rows     []usageRow
	Total    ledger.Usage
	LastCall time.Time // of the account, where the range has none
	Settled  time.Time // up to when calls are in it
	// Addresses of files.
	TableCSV, CallsCSV string
}

// tab is one of a few views of a page: a link to it.
type tab struct {
	Name, Link string
	Current    bool
}

// column is the head of a sortable column.
type column struct {
	Name, Class, Link string
	Sort              string // "ascending", "descending" or not by this one
}

// usageRow is one group, and where its calls are.
type usageRow struct {
	Name, Link string
	ledger.Usage
}

// usageFigures are those above the chart.
type usageFigures struct {
	ledger.Usage
	Change string // of the spend, to the period before
	Before string // its name
	Mean   money.Amount
}

// usageRanges are those with a name. The first is the one without a choice.
var usageRanges = []pick{{Value: "period", Name: "This month"}, {Value: "last", Name: "Last month"}, {Value: "7d", Name: "7 days"}, {Value: "today", Name: "Today"}}

// longest is how many years a range can have: more are cut at their beginning.
const longest = 5

// usageRange reads the range of the address: dates where both are given, else a name.
func usageRange(q url.Values, now time.Time) (name string, s span) {
	if s := spanOf(q.Get("from")+".."+q.Get("to"), now); s.name != "" && q.Get("range") == "" {
		last := s.to.AddDate(0, 0, -1)
		if least := last.AddDate(-longest, 0, 1); s.from.Before(least) {
			s = days(least, last, now)
		}
		return "", s
	}
	today := now.UTC().Truncate(24 * time.Hour)
	month := today.AddDate(0, 0, 1-today.Day())
	switch name = q.Get("range"); name {
	case "today":
		return name, days(today, today, now)
	case "7d":
		return name, days(today.AddDate(0, 0, -6), today, now)
	case "last":
		return name, days(month.AddDate(0, -1, 0), month.AddDate(0, 0, -1), now)
	}
	return "period", days(month, today, now)
}

// usage shows what calls used and cost, as a chart over time and in groups.
func (s *Server) usage(v *visit) error {
	p, f, err := v.usagePage()
	if err != nil {
		return err
	}
	if p.Total.Calls == 0 {
		last, err := s.Records.ReceiptPage(v.context(), ledger.Filter{AccountID: v.account.ID, Limit: 1})
		if err != nil {
			return err
		}
		if len(last.Receipts) > 0 {
			p.LastCall = last.Receipts[0].CreatedAt
		}
		return v.page("usage", "Usage", p)
	}
	if p.Figures, err = v.usageFigures(f, p.Total); err != nil {
		return err
	}
	if p.Chart, err = v.usageChart(f, p.Span); err != nil {
		return err
	}
	return v.page("usage", "Usage", p)
}

// groupings are what usage is grouped by.
var groupings = []pick{{Value: string(ledger.ByModel), Name: "Model"}, {Value: string(ledger.ByKey), Name: "Key"}, {Value: string(ledger.ByDay), Name: "Day"}, {Value: string(byMember), Name: "Member"}}

// byMember is by who made the keys. It is added up of usage by key.
const byMember ledger.By = "member"

// usagePage reads the table and everything that chooses it.
func (v *visit) usagePage() (p usagePage, f ledger.UsageFilter, err error) {
	q := v.r.URL.Query()
	p.Range, p.Span = usageRange(q, v.now)
	p.From, p.To = p.Span.from.Format(time.DateOnly), p.Span.to.AddDate(0, 0, -1).Format(time.DateOnly)
	f = ledger.UsageFilter{AccountID: v.account.ID, KeyID: q.Get("key"), Model: q.Get("model"), From: p.Span.from, To: p.Span.to}
	p.Keys, p.Models = v.keyOptions(f.KeyID), v.modelOptions(f.Model)
	if name := chosen(p.Keys); name != "" {
		p.Chips = append(p.Chips, chip{"Key " + name, v.with("key", "")})
	}
	if f.Model != "" {
		p.Chips = append(p.Chips, chip{"Model " + f.Model, v.with("model", "")})
	}
	for _, r := range usageRanges {
		u := url.Values{"range": {r.Value}}
		for _, name := range []string{"key", "model", "by", "show"} {
			if q.Get(name) != "" {
				u.Set(name, q.Get(name))
			}
		}
		p.Ranges = append(p.Ranges, tab{r.Name, "/usage?" + u.Encode(), p.Range == r.Value})
	}
	by := ledger.By(q.Get("by"))
	if !slices.ContainsFunc(groupings, func(g pick) bool { return g.Value == string(by) }) {
		by = ledger.ByModel
	}
	p.Groups, p.By = v.tabs("by", groupings, string(by)), string(by)
	p.Measures = v.tabs("show", measureNames, v.measure())
	p.TableCSV = (&url.URL{Path: "/usage/csv", RawQuery: q.Encode()}).String()
	p.CallsCSV = "/requests/csv?" + v.callsOf(f, by, "").Encode()
	p.Settled = v.now
	if by == byMember {
		p.Rows, err = v.usageOfMembers(f)
	} else {
		p.Rows, err = v.usageRows(f, by)
	}
	for i := range p.Rows {
		p.Total.Add(&p.Rows[i].Usage)
	}
	p.Columns = v.sortUsage(p.Rows, by)
	return p, f, err
}

// usageRows reads what was used in groups of that kind.
func (v *visit) usageRows(f ledger.UsageFilter, by ledger.By) ([]usageRow, error) {
	groups, err := v.s.Records.UsageOf(v.context(), f, by)
	var rows []usageRow
	for _, u := range groups {
		rows = append(rows, usageRow{v.groupName(u.Group, by), "/requests?" + v.callsOf(f, by, u.Group).Encode(), u})
	}
	return rows, err
}

// usageOfMembers is what was used with the keys that each member has made. Its rows lead to
// those keys.
func (v *visit) usageOfMembers(f ledger.UsageFilter) ([]usageRow, error) {
	groups, err := v.s.Records.UsageOf(v.context(), f, ledger.ByKey)
	people := v.owners()
	at := map[string]int{}
	var rows []usageRow
	for _, u := range groups {
		k, ok := v.s.Keys.Find(u.Group)
		name := v.owner(&k, people)
		if !ok || k.AccountID != v.account.ID {
			name, k.CreatedBy = "keys that are gone", none
		}
		i, ok := at[k.CreatedBy]
		if !ok {
			i = len(rows)
			at[k.CreatedBy] = i
			rows = append(rows, usageRow{Name: name, Link: "/keys?status=all&q=" + url.QueryEscape(name), Usage: ledger.Usage{Group: k.CreatedBy}})
		}
		rows[i].Add(&u)
	}
	return rows, err
}

// tabs are links to the views of a page, of which the first needs no parameter.
func (v *visit) tabs(name string, choices []pick, current string) []tab {
	var tabs []tab
	for i, c := range choices {
		value := c.Value
		if i == 0 {
			value = ""
		}
		tabs = append(tabs, tab{c.Name, v.with(name, value), c.Value == current})
	}
	return tabs
}

// groupName is a group's name for people.
func (v *visit) groupName(group string, by ledger.By) string {
	switch by {
	case ledger.ByKey:
		return v.keyName(group)
	case ledger.ByDay:
		if t, err := time.Parse(time.DateOnly, group); err == nil {
			return day(t, v.now)
		}
	}
	return group
}

// callsOf is the filter of the calls in a group, as the page of requests has it.
func (v *visit) callsOf(f ledger.UsageFilter, by ledger.By, group string) url.Values {
	q := url.Values{"time": {f.From.Format(time.DateOnly) + ".." + f.To.AddDate(0, 0, -1).Format(time.DateOnly)}}
	if f.KeyID != "" {
		q.Set("key", f.KeyID)
	}
	if f.Model != "" {
		q.Set("model", f.Model)
	}
	if group != "" {
		switch by {
		case ledger.ByKey, ledger.ByModel:
			q.Set(string(by), group)
		case ledger.ByDay:
			q.Set("time", group+".."+group)
		}
	}
	return q
}

// usageColumn is one that the table can be sorted by.
type usageColumn struct {
	value, name, class string
	of                 func(*ledger.Usage) int64
}

var usageColumns = []usageColumn{
	{"calls", "Requests", "num c-sm", func(u *ledger.Usage) int64 { return u.Calls }},
	{"input", "Input", "num c-lg", func(u *ledger.Usage) int64 { return u.PromptTokens }},
	{"cached", "Cached", "num c-lg", func(u *ledger.Usage) int64 { return u.CachedTokens }},
	{"output", "Output", "num c-md", func(u *ledger.Usage) int64 { return u.CompletionTokens }},
	{"failed", "Failed", "num c-md", func(u *ledger.Usage) int64 { return u.Failed }},
	{"spend", "Spend, IU", "num", func(u *ledger.Usage) int64 { return int64(u.Charge) }},
}

// sortUsage sorts as the address says: most spent first, or days in their order.
func (v *visit) sortUsage(rows []usageRow, by ledger.By) []column {
	q := v.r.URL.Query()
	at := slices.IndexFunc(usageColumns, func(c usageColumn) bool { return c.value == q.Get("sort") })
	if at < 0 && by != ledger.ByDay {
		at = len(usageColumns) - 1
	}
	up := q.Get("dir") == "asc"
	if at >= 0 {
		slices.SortStableFunc(rows, func(a, b usageRow) int {
			n := cmp.Compare(usageColumns[at].of(&b.Usage), usageColumns[at].of(&a.Usage))
			if up {
				n = -n
			}
			return n
		})
	}
	var heads []column
	for i, c := range usageColumns {
		to := maps.Clone(q)
		to.Set("sort", c.value)
		to.Del("dir")
		head := column{Name: c.name, Class: c.class}
		if i == at {
			head.Sort = "descending"
			if up {
				head.Sort = "ascending"
			} else {
				to.Set("dir", "asc")
			}
		}
		head.Link = "/usage?" + to.Encode()
		heads = append(heads, head)
	}
	return heads
}

// usageFigures compares the total with as long a time before.
func (v *visit) usageFigures(f ledger.UsageFilter, total ledger.Usage) (usageFigures, error) {
	g := usageFigures{Usage: total}
	if total.Calls > 0 {
		g.Mean = total.Charge / money.Amount(total.Calls)
	}
	f.From, f.To = ledger.Previous(f.From, f.To)
	g.Before = days(f.From, f.To.AddDate(0, 0, -1), v.now).name
	before, err := v.s.Records.UsageOf(v.context(), f, ledger.ByModel)
	var was ledger.Usage
	for _, u := range before {
		was.Add(&u)
	}
	if was.Charge > 0 {
		change := 100 * (float64(total.Charge) - float64(was.Charge)) / float64(was.Charge)
		sign := "+"
		if change < 0 {
			sign, change = minus, -change
		}
		g.Change = sign + strconv.FormatFloat(change, 'f', 1, 64) + "\u2009%"
	}
	return g, err
}

// usageCSV is the table of the page as a file.
func (s *Server) usageCSV(v *visit) error {
	p, _, err := v.usagePage()
	if err != nil {
		return err
	}
	w := v.csvFile("usage.csv")
	_ = w.Write([]string{
		p.By, "name", "calls", "failed", "refused", "client_left", "prompt_tokens", "cached_tokens", "completion_tokens", "plan_tokens",
		"charge_iu", "charge_niu", "written_off_iu", "written_off_niu",
	}) // errors stay with w
	for _, r := range p.Rows {
		line := []string{cell(r.Group), cell(r.Name)}
		for _, n := range []int64{r.Calls, r.Failed, r.Refused, r.Left, r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.PlanTokens} {
			line = append(line, strconv.FormatInt(n, 10))
		}
		_ = w.Write(append(append(line, amountColumns(r.Charge)...), amountColumns(r.WrittenOff)...))
	}
	w.Flush()
	return nil
}
