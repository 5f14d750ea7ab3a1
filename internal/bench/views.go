package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
)

// seen is what addresses of pages name, of one account.
type seen struct {
	accounts, keys, people []string // ids; accounts are any
	calls                  []ledger.Receipt
	invitation             string
	operatorToken          string
	begin                  time.Time
}

// see reads what addresses can name of the account of that rank.
func (f *filled) see(ctx context.Context, gate *member.Gate, rank int) (*seen, error) {
	id := f.accounts[rank].ID
	s := &seen{begin: f.begin}
	for i := range f.accounts {
		s.accounts = append(s.accounts, f.accounts[i*7%len(f.accounts)].ID)
	}
	for _, k := range f.keys[rank] {
		s.keys = append(s.keys, k.ID)
	}
	people, err := f.db.People(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, p := range people {
		s.people = append(s.people, p.ID)
	}
	for day := range filledDays {
		page, err := f.db.ReceiptPage(ctx, ledger.Filter{AccountID: id, To: f.begin.AddDate(0, 0, day+1), Limit: 3})
		if err != nil {
			return nil, err
		}
		s.calls = append(s.calls, page.Receipts...)
	}
	tokens, err := f.db.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	s.operatorToken = tokens[0].ID
	token, _, err := gate.Invite(ctx, id, fmt.Sprintf("invited%d@example.test", rank), member.Regular)
	s.invitation = member.JoinPath(token)
	return s, err
}

// pick is the n-th of all, over and over.
func pick[T any](all []T, n int) T { return all[n%len(all)] }

// view is one way in which a page is looked at.
type view struct {
	what      string // in words
	link      func(s *seen, n int) string
	find      func(s *seen, n int) string // what is typed into Find, in the place of a link
	signedOut bool
	elsewhere bool // it leads to another page
	absent    bool // there is nothing of it
	older     bool // each load is the next page of the list
	skip      int  // loads that are not measured
	opens     bool // a file: only its first line is waited for
}

// at is a view of a fixed address.
func at(what, link string) view {
	return view{what: what, link: func(*seen, int) string { return link }}
}

// viewsOf are the views of the page of that path in the console's table. A path with a
// wildcard must be known here; another one is loaded as it is, if nothing else.
func viewsOf(path string) ([]view, error) {
	all, known := knownViews()[path]
	if !known && strings.Contains(path, "{") {
		return nil, fmt.Errorf("nobody knows addresses of %s: add a line to knownViews", path)
	}
	if !known {
		all = []view{at("", path)}
	}
	return all, nil
}

// byID are addresses of a page with the id of one thing in it.
func byID(path string, id func(s *seen, n int) string) []view {
	return []view{{link: func(s *seen, n int) string { return strings.Replace(path, "{id}", id(s, n), 1) }}}
}

// Ids of things.
func keyID(s *seen, n int) string     { return pick(s.keys, n) }
func personID(s *seen, n int) string  { return pick(s.people, n) }
func callID(s *seen, n int) string    { return pick(s.calls, n).RequestID }
func accountID(s *seen, n int) string { return pick(s.accounts, n) }
func tokenID(s *seen, _ int) string   { return s.operatorToken }
func modelID(_ *seen, n int) string   { return fmt.Sprint("model-", n%filledModels) }

// date is a day of those that are filled.
func date(s *seen, n int) string { return s.begin.AddDate(0, 0, n%filledDays).Format(time.DateOnly) }

func knownViews() map[string][]view {
	all := map[string][]view{
		"/sign-in":                              {{link: func(*seen, int) string { return "/sign-in" }, signedOut: true}},
		"/sign-in/check":                        {{link: func(*seen, int) string { return "/sign-in/check" }, signedOut: true}},
		"/sign-in/code":                         {{link: func(*seen, int) string { return "/sign-in/code" }, signedOut: true, elsewhere: true}},
		"/claim":                                {{link: func(*seen, int) string { return "/claim" }, signedOut: true}},
		"/join/{token}":                         {{link: func(s *seen, _ int) string { return s.invitation }, signedOut: true}},
		"/operator/settings/tokens/{id}/revoke": byID("/operator/settings/tokens/{id}/revoke", tokenID),
		"/billing/plan":                         {{what: "without a subscription", link: func(*seen, int) string { return "/billing/plan" }, absent: true}},
		"/billing/cancel":                       {{what: "without a subscription", link: func(*seen, int) string { return "/billing/cancel" }, absent: true}},
		"/operator/accounts": {
			at("", "/operator/accounts"),
			at("of a name", "/operator/accounts?q=Account+4"),
		},
		"/operator/audit": {
			at("", "/operator/audit"),
			{what: "next pages", link: func(*seen, int) string { return "/operator/audit" }, older: true},
			{what: "of a target", link: func(s *seen, n int) string { return "/operator/audit?target=" + pick(s.accounts, n) }},
			{what: "of an actor by id", link: func(s *seen, n int) string { return "/operator/audit?actor=" + pick(s.people, n) }},
			at("of an actor by email", "/operator/audit?actor=person7.0%40example.test"),
			at("of a rare kind", "/operator/audit?kind=books"),
			at("of a kind", "/operator/audit?kind=member"),
		},
	}
	for path, id := range map[string]func(*seen, int) string{
		"/keys/{id}": keyID, "/keys/{id}/edit": keyID, "/keys/{id}/rotate": keyID, "/keys/{id}/revoke": keyID, "/models/{id}": modelID,
		"/members/{id}": personID, "/requests/{id}": callID, "/requests/{id}/json": callID, "/operator/accounts/{id}": accountID,
		"/operator/accounts/{id}/credit": accountID, "/operator/accounts/{id}/adjust": accountID, "/operator/accounts/{id}/plan": accountID,
		"/operator/accounts/{id}/suspend": accountID, "/operator/accounts/{id}/resume": accountID, "/operator/accounts/{id}/invite": accountID,
	} {
		all[path] = byID(path, id)
	}
	maps.Copy(all, listViews())
	return all
}

// query is a view of a path with values behind it.
func query(what, path string, values func(s *seen, n int) url.Values) view {
	return view{what: what, link: func(s *seen, n int) string { return path + "?" + values(s, n).Encode() }}
}

// requestViews are lists of calls.
func requestViews() []view {
	requests := func(what string, values func(s *seen, n int) url.Values) view {
		return query(what, "/requests", values)
	}
	// somewhen goes on in the middle of a list.
	somewhen := func(s *seen, n int) string {
		return strconv.FormatInt(s.begin.Add(time.Duration(n+1)*10*time.Hour).Unix()/3600, 10) + "~end"
	}
	return []view{
		at("", "/requests"),
		{what: "pages 901 to 1,000", link: func(*seen, int) string { return "/requests" }, older: true, skip: 900},
		requests("somewhere in the middle", func(s *seen, n int) url.Values { return url.Values{"before": {somewhen(s, n)}} }),
		requests("of a key", func(s *seen, n int) url.Values { return url.Values{"key": {pick(s.keys, n)}} }),
		requests("of a model", func(s *seen, n int) url.Values {
			return url.Values{"model": {modelID(s, n)}, "before": {somewhen(s, n)}}
		}),
		requests("that failed (1 %)", func(s *seen, n int) url.Values { return url.Values{"result": {"failed"}, "before": {somewhen(s, n)}} }),
		requests("that were refused", func(s *seen, n int) url.Values { return url.Values{"result": {"refused"}} }),
		requests("of a day", func(s *seen, n int) url.Values { return url.Values{"time": {date(s, n) + ".." + date(s, n)}} }),
		requests("of a day, a key, failed", func(s *seen, n int) url.Values {
			return url.Values{"time": {date(s, n) + ".." + date(s, n)}, "key": {pick(s.keys, n)}, "result": {"failed"}}
		}),
		requests("that cost much (0.1 %)", func(s *seen, n int) url.Values { return url.Values{"least": {"0.008"}, "before": {somewhen(s, n)}} }),
		requests("that cost more than any", func(*seen, int) url.Values { return url.Values{"least": {"1"}} }),
		{what: "by id", link: func(s *seen, n int) string { return "/requests?id=" + callID(s, n) }, elsewhere: true},
	}
}

// listViews are those of what was done and what it cost.
func listViews() map[string][]view {
	usage := func(what string, values func(s *seen, n int) url.Values) view { return query(what, "/usage", values) }
	month := func(what, path string) view {
		return query(what, path, func(s *seen, n int) url.Values {
			return url.Values{"month": {s.begin.AddDate(0, 1+n%3, 0).Format("2006-01")}}
		})
	}
	file := func(v view) view { v.opens = true; return v }
	return map[string][]view{
		"/requests": requestViews(),
		"/requests/csv": {
			file(at("first line", "/requests/csv")),
			file(at("of what failed, first line", "/requests/csv?result=failed")),
		},
		"/usage": {
			at("this month by default", "/usage"),
			usage("last month by key", func(*seen, int) url.Values { return url.Values{"range": {"last"}, "by": {"key"}} }),
			usage("90 days by day", func(s *seen, _ int) url.Values {
				return url.Values{"from": {date(s, 0)}, "to": {date(s, filledDays-1)}, "by": {"day"}}
			}),
			usage("90 days of a key", func(s *seen, n int) url.Values {
				return url.Values{"from": {date(s, 0)}, "to": {date(s, filledDays-1)}, "key": {pick(s.keys, n)}}
			}),
			at("today", "/usage?range=today"),
		},
		"/usage/csv": {file(at("last month", "/usage/csv?range=last"))},
		"/billing":   {at("", "/billing"), at("of an earlier month", "/billing?before=2026-10")},
		"/billing/entries": {
			at("this month", "/billing/entries"), month("of a month", "/billing/entries"),
		},
		"/billing/entries/csv": {month("of a month", "/billing/entries/csv")},
		"/audit": {
			at("", "/audit"),
			{what: "next pages", link: func(*seen, int) string { return "/audit" }, older: true},
			query("of a member", "/audit", func(s *seen, n int) url.Values { return url.Values{"who": {pick(s.people, n)}} }),
			at("of a rare change", "/audit?action=key.revoke"),
			query("of a day", "/audit", func(s *seen, n int) url.Values { return url.Values{"time": {date(s, n) + ".." + date(s, n)}} }),
		},
		"/audit/csv": {file(at("first line", "/audit/csv"))},
		"/find": {
			{what: "a request", find: callID, elsewhere: true},
			{what: "a completion", find: func(s *seen, n int) string { return pick(s.calls, n).CompletionID }, elsewhere: true},
			{what: "a key by its name", find: func(_ *seen, n int) string { return fmt.Sprint("service ", n%3) }},
			{what: "nothing", find: func(*seen, int) string { return "there is no such thing" }},
		},
	}
}
