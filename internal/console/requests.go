package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
)

// requestsPage is what templates/requests.html shows.
type requestsPage struct {
	Filter  callFilter
	Results []pick
	Keys    []pick
	Models  []pick
	Times   []pick
	Chips   []chip
	Days    []callDay
	Pager   pager
	More    bool // were not looked at
	Refresh string
	CSV     string
}

// callDay is the calls of one day in UTC.
type callDay struct {
	Name  string
	Calls []callRow
}

// running is the result of calls that have none yet.
const running = "running"

// results are the words of the filter on how calls ended, and what they ask of the store.
var results = []pick{
	{Value: "", Name: "Every result"},
	{Value: running, Name: "Running"},
	{Value: string(ledger.Answered), Name: "Answered"},
	{Value: string(ledger.Refused), Name: "Refused (4xx)"},
	{Value: string(ledger.Failed), Name: "Failed (5xx)"},
	{Value: string(ledger.Left), Name: "Client left"},
}

// callFilter is which calls are shown.
type callFilter struct {
	ID, Result, Key, Model, Time, Least string

	span  span
	least money.Amount
}

// readCallFilter reads the filter of the address. What it does not know filters nothing.
func (v *visit) readCallFilter() callFilter {
	q := v.r.URL.Query()
	get := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	f := callFilter{ID: get("id"), Result: get("result"), Key: get("key"), Model: get("model"), Time: get("time"), Least: get("least")}
	f.span = spanOf(f.Time, v.now)
	if f.span.name == "" {
		f.Time = ""
	}
	if !slices.ContainsFunc(results, func(o pick) bool { return o.Value == f.Result }) {
		f.Result = ""
	}
	if n, err := money.ParseAmount(f.Least); err == nil && n > 0 {
		f.least = n
	} else {
		f.Least = ""
	}
	return f
}

// receipts is what the filter asks of those that were admitted.
func (f *callFilter) receipts(accountID string) ledger.Filter {
	return ledger.Filter{
		AccountID: accountID, KeyID: f.Key, Model: f.Model, Class: ledger.Class(f.Result), From: f.span.from, To: f.span.to, Least: f.least,
	}
}

// mayBeRefused reports whether calls that were refused can be among those asked for.
func (f *callFilter) mayBeRefused() bool {
	return f.least == 0 && (f.Result == "" || f.Result == string(ledger.Refused) || f.Result == string(ledger.Failed))
}

// refused reports whether that one is.
func (f *callFilter) refused(r *refusal.Record) bool {
	return f.Result == "" || (f.Result == string(ledger.Failed)) == (r.Status >= http.StatusInternalServerError)
}

// requests lists every call of the account, also those that were refused.
func (s *Server) requests(v *visit) error {
	f := v.readCallFilter()
	if f.ID != "" {
		x, err := v.explained(f.ID)
		if err == nil {
			return v.seeOther("/requests/" + x.RequestID)
		}
		if !errors.Is(err, errNotFound) {
			return err
		}
		return v.page("requests", "Requests", v.requestsPage(f, nil, ""))
	}
	calls, older, err := v.calls(f)
	if err != nil {
		return err
	}
	return v.page("requests", "Requests", v.requestsPage(f, calls, older))
}

func (v *visit) requestsPage(f callFilter, calls []callRow, older string) requestsPage {
	p := requestsPage{Filter: f, Results: slices.Clone(results), Keys: v.keyOptions(f.Key), Models: v.modelOptions(f.Model), Times: timeOptions(f.Time, v.now)}
	choose(p.Results, f.Result)
	for _, o := range calls {
		day := longDay(o.At, v.now)
		if n := len(p.Days); n == 0 || p.Days[n-1].Name != day {
			p.Days = append(p.Days, callDay{Name: day})
		}
		d := &p.Days[len(p.Days)-1]
		d.Calls = append(d.Calls, o)
	}
	add := func(name, label, value string) {
		if value != "" {
			p.Chips = append(p.Chips, chip{label + value, v.with(name, "")})
		}
	}
	add("id", "Id ", f.ID)
	add("result", "", chosen(p.Results))
	add("key", "Key ", chosen(p.Keys))
	add("model", "Model ", f.Model)
	add("time", "", f.span.name)
	add("least", "At least IU ", f.Least)
	p.Pager, p.More, p.Refresh = v.pager("", older), older != "", v.with("", "")
	p.CSV = (&url.URL{Path: "/requests/csv", RawQuery: v.r.URL.RawQuery}).String()
	return p
}

// explained is what is known of a request of the account. It fails with errNotFound, also
// for those of others.
func (v *visit) explained(id string) (explain.Explained, error) {
	x, err := v.s.Explain.Request(v.context(), id, v.now)
	switch {
	case errors.Is(err, explain.ErrNotFound):
		return x, errNotFound
	case err != nil:
		return x, err
	case x.Account == nil || x.Account.ID != v.account.ID:
		return explain.Explained{}, errNotFound
	}
	return x, nil
}
