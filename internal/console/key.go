package console

import (
	"context"
	"errors"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// receiptsOfKey is how many calls the page of a key lists.
const receiptsOfKey = 20

// keyPage is what templates/key.html shows.
type keyPage struct {
	Key         apikey.Key
	Kind, State string
	Tab         string // summary, edit, rotate or revoke
	Tabs        []language
	Ended       bool // nothing can be changed any more
	Token       string
	Form        *form
	Settings    keyForm // of the tab edit
	// What follows is of the tab summary.
	Owner    string
	Facts    keyFacts
	Sum      *sum // of the budget
	Month    *ledger.Usage
	Limits   []limitRow
	Receipts []ledger.Receipt
	Read     bool // whether Receipts could be
	// Streams and Others are the calls with the key that are under way.
	Streams, Others int
	// Outlived is the key whose place this one took, where revoking this one leaves it at work.
	Outlived *apikey.Key
}

// key is the key of the address.
func (v *visit) key() (apikey.Key, error) {
	k, ok := v.s.Keys.Find(v.r.PathValue("id"))
	if !ok || !v.mayKey(&k) {
		return apikey.Key{}, errNotFound
	}
	return k, nil
}

// keyPage is the page of a key with a tab of that name, which may have a form.
func (v *visit) keyPage(k apikey.Key, tab string, f *form) keyPage {
	p := keyPage{Key: k, Tab: tab, Form: f, Token: v.s.once.token(v), Ended: k.Status(v.now) != "active"}
	p.Kind, p.State = keyState(&k, v.now)
	for _, t := range []struct{ name, path string }{{"Summary", ""}, {"Edit", "/edit"}, {"Rotate", "/rotate"}, {"Revoke", "/revoke"}} {
		if v.looking() && t.path != "" {
			break // an operator who looks changes nothing
		}
		p.Tabs = append(p.Tabs, language{t.name, "/keys/" + k.ID + t.path, t.path == "/"+tab || t.path == "" && tab == "summary"})
	}
	for _, r := range v.s.Ledger.Running(k.AccountID) {
		switch {
		case r.KeyID != k.ID:
		case r.Stream:
			p.Streams++
		default:
			p.Others++
		}
	}
	return p
}

// keySummary shows what a key may do and what was done with it.
func (s *Server) keySummary(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	v.done(map[string]string{"edited": "The key is changed. Calls that begin now have the new settings."})
	p := v.keyPage(k, "summary", nil)
	p.Owner, p.Facts = v.owner(&k, v.owners()), v.keyFacts(&k)
	if b := v.budgetUse(&k); b != nil {
		name := "budget in all"
		if b.Monthly {
			name = "budget this month"
		}
		x := newSum(term{"", b.Amount, name, ""}, term{minus, b.Spent, "spent", ""}, term{minus, b.Held, "held by running calls", ""},
			term{"=", b.Amount - b.Spent - b.Held, "left", ""})
		p.Sum = &x
	}
	p.Limits = limitRows("", ratelimit.Limits{Requests: k.RPM, Tokens: k.TPM}, s.Limits.InUse(v.now, v.account.ID).Keys[k.CountedAs])
	if us, ok := partial(v, func(ctx context.Context) ([]ledger.Usage, error) {
		return s.Records.UsageOf(ctx, ledger.UsageFilter{AccountID: v.account.ID, KeyID: k.ID, From: firstOfMonth(v.now), To: midnight(v.now).AddDate(0, 0, 1)}, ledger.ByKey)
	}); ok {
		p.Month = new(ledger.Usage)
		if len(us) > 0 {
			p.Month = &us[0]
		}
	}
	page, ok := partial(v, func(ctx context.Context) (ledger.Page, error) {
		return s.Records.ReceiptPage(ctx, ledger.Filter{AccountID: v.account.ID, KeyID: k.ID, Limit: receiptsOfKey})
	})
	p.Receipts, p.Read = page.Receipts, ok
	return v.page("key", k.Name, p)
}

func (s *Server) editKeyPage(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	p := v.keyPage(k, "edit", nil)
	p.Settings = v.keyForm(&k)
	return v.page("key", "Edit "+k.Name, p)
}

// editKey changes what a key may do. Sent twice it does the same twice.
func (s *Server) editKey(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	f := v.keyForm(&k)
	n := f.settings(v.now)
	if f.Field("expires").Value == expiryDate && f.Field("date").Value == v.keyDate(&k) {
		n.ExpiresAt = k.ExpiresAt // the day is shown, and its time stays
		f.Field("date").Error = ""
	}
	if !f.Failed() {
		c := apikey.Change{Name: &n.Name, Models: &n.Models, Networks: &n.Networks, Budget: &n.Budget, RPM: &n.RPM, TPM: &n.TPM}
		if !n.ExpiresAt.Equal(k.ExpiresAt) {
			c.ExpiresAt = &n.ExpiresAt
		}
		_, err = s.Keys.Change(v.context(), k.ID, c)
		if err == nil {
			return v.seeOther("/keys/" + k.ID + "?done=edited")
		}
		if errors.Is(err, apikey.ErrRevoked) {
			f.failAll("The key was revoked meanwhile. Nothing was changed.")
		} else if !f.refuseKey(err) {
			return err
		}
	}
	p := v.keyPage(k, "edit", nil)
	p.Settings = f
	return v.wrong("key", "Edit "+k.Name, p)
}

// keyDate is the last day of a key as its form shows it.
func (v *visit) keyDate(k *apikey.Key) string {
	if k.ExpiresAt.IsZero() {
		return ""
	}
	return k.ExpiresAt.Add(-1).UTC().Format(dateFormat)
}

func (s *Server) revokeKeyPage(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	p := v.keyPage(k, "revoke", nil)
	p.Outlived = v.outlived(&k)
	return v.page("key", "Revoke "+k.Name, p)
}

// revokeKey ends a key for good. Sent twice it does the same.
func (s *Server) revokeKey(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	if _, err := s.Keys.Revoke(v.context(), k.ID); err != nil {
		return err
	}
	return v.seeOther("/keys?done=" + k.ID)
}

// limitRow is a limit and how much of it is in use.
type limitRow struct {
	Of          string // what has the limit; empty where the page says it
	Name        string
	Used, Limit int64
	Clears      string // "4 s", or empty
}

// limitRows are the limits that there are of a scope, or, for one without any, none.
func limitRows(of string, l ratelimit.Limits, u ratelimit.Use) []limitRow {
	var rows []limitRow
	for _, r := range []limitRow{
		{of, "Requests per minute", u.Requests, l.Requests, wait(u.RequestsClear)},
		{of, "Tokens per minute", u.Tokens, l.Tokens, wait(u.TokensClear)},
		{of, "Calls at once", u.Running, l.Concurrency, ""},
	} {
		if r.Limit > 0 {
			rows = append(rows, r)
		}
	}
	return rows
}
