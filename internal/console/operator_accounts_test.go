package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// shown is a page as people read it: without its tags, each run of space as one.
func shown(t *testing.T, r *http.Response) string {
	t.Helper()
	body := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text(t, r), "")
	return strings.Join(strings.Fields(html.UnescapeString(body)), " ")
}

func (w *world) operator() member.Token { return w.person("op@example.test", true, nil, member.None) }

// sent sends a form and follows where it leads.
func (w *world) sent(path string, token member.Token, form url.Values) (status int, page string) {
	w.t.Helper()
	r := w.ask("POST", path, token, form)
	if r.StatusCode != http.StatusSeeOther {
		return r.StatusCode, shown(w.t, r)
	}
	return r.StatusCode, shown(w.t, w.ask("GET", r.Header.Get("Location"), token, nil))
}

var formToken = regexp.MustCompile(`name="token" value="([^"]+)"`)

// creditForm is a form as its page hands it out, filled in.
func (w *world) creditForm(a *account.Account, op member.Token, amount, expires, note string) url.Values {
	w.t.Helper()
	m := formToken.FindStringSubmatch(text(w.t, w.ask("GET", "/operator/accounts/"+a.ID+"/credit", op, nil)))
	if m == nil {
		w.t.Fatal("the form has no token")
	}
	return url.Values{"token": {m[1]}, "amount": {amount}, "expires": {expires}, "note": {note}}
}

// last is the newest entry of the audit log about the account.
func (w *world) last(a *account.Account) audit.Entry {
	w.t.Helper()
	es, err := w.db.AuditLog(w.t.Context(), a.ID, 1)
	if err != nil || len(es) != 1 {
		w.t.Fatalf("%d entries, %v", len(es), err)
	}
	return es[0]
}

// TestOperatorCredit: a form adds once however often it is sent, with its last day and note, in
// the name of the operator; what is wrong with it is said beside what was typed.
func TestOperatorCredit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	path := "/operator/accounts/" + w.lab.ID
	end := time.Now().UTC().AddDate(0, 1, 0).Format(time.DateOnly)

	form := w.creditForm(w.lab, op, "1,050.5", end, "Pilot <phase>")
	if status, page := w.sent(path+"/credit", op, form); status != http.StatusSeeOther || !strings.Contains(page, "The credit is added.") || !strings.Contains(page, "1,050.50available") || !strings.Contains(page, "Pilot <phase>") {
		t.Fatalf("%d %s", status, page)
	}
	if _, page := w.sent(path+"/credit", op, form); !strings.Contains(page, "was added once") || !strings.Contains(page, "1,050.50available") {
		t.Errorf("the same form again: %s", page)
	}
	grants, err := w.db.Grants(t.Context(), w.lab.ID)
	if err != nil || len(grants) != 1 {
		t.Fatalf("%d grants, %v", len(grants), err)
	}
	v, err := w.gate.Visit(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if g := grants[0]; g.Amount != money.IU*2101/2 || g.Actor != v.Member.ID || g.ExpiresAt.Format(time.DateTime) != nextDay(end)+" 00:00:00" {
		t.Errorf("the grant is %+v", g)
	}
	if e := w.last(w.lab); e.Actor != v.Member.ID || e.Action != audit.CreditGrant {
		t.Errorf("the audit log has %+v", e)
	}
	for _, c := range []struct{ amount, expires, note, says string }{
		{"0", "", "x", "above 0"},
		{"-5", "", "x", "above 0"},
		{"five", "", "x", "above 0"},
		{"1.0000000001", "", "x", "9 decimals"},
		{"1000000001", "", "x", "1,000,000,000 or less"},
		{"5", "2020-01-01", "x", "This day is over"},
		{"5", "soon", "x", "Enter a date"},
		{"5", "9999-12-31", "x", "Enter an earlier day"},
		{"5", "", " ", "Say why"},
	} {
		r := w.ask("POST", path+"/credit", op, w.creditForm(w.lab, op, c.amount, c.expires, c.note))
		page := text(t, r)
		if r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, c.says) || !strings.Contains(page, `value="`+c.amount+`"`) || !strings.Contains(page, "<title>Error: ") {
			t.Errorf("%+v: %s", c, r.Status)
		}
	}
	if r := w.ask("POST", path+"/credit", op, url.Values{"amount": {"5"}, "note": {"x"}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("without a token: %s", r.Status)
	}
	if g, err := w.db.Grants(t.Context(), w.lab.ID); err != nil || len(g) != 1 {
		t.Errorf("%d grants, %v", len(g), err)
	}
}

func nextDay(day string) string {
	d, _ := time.Parse(time.DateOnly, day)
	return d.AddDate(0, 0, 1).Format(time.DateOnly)
}

// TestOperatorAdjust gives and takes, and takes no more than there is.
func TestOperatorAdjust(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	path := "/operator/accounts/" + w.lab.ID + "/adjust"
	for _, c := range []struct {
		amount, reason string
		status         int
		says           string
	}{
		{"10", "goodwill", 303, "10.00available"},
		{"-4", "typo", 303, "6.00available"},
		{"\u22121", "a minus as it is printed", 303, "5.00available"},
		{"-5.5", "too much", 422, "5.00 IU are available"},
		{"--1", "x", 422, "above 0"},
		{"1", "", 422, "Say why"},
	} {
		m := formToken.FindStringSubmatch(text(t, w.ask("GET", path, op, nil)))
		if m == nil {
			t.Fatal("the form has no token")
		}
		form := url.Values{"token": {m[1]}, "amount": {c.amount}, "reason": {c.reason}}
		if status, page := w.sent(path, op, form); status != c.status || !strings.Contains(page, c.says) {
			t.Errorf("%+v: %d %s", c, status, page)
		}
		if c.status != http.StatusSeeOther {
			continue
		}
		if status, page := w.sent(path, op, form); status != http.StatusSeeOther || !strings.Contains(page, c.says) || !strings.Contains(page, "corrected once") {
			t.Errorf("%+v sent twice: %d %s", c, status, page)
		}
	}
	if status, page := w.sent(path, op, url.Values{"amount": {"1"}, "reason": {"of another start"}}); status != http.StatusUnprocessableEntity || !strings.Contains(page, "Nothing was changed") {
		t.Errorf("a form without a token: %d %s", status, page)
	}
	if e := w.last(w.lab); e.Action != audit.CreditAdjust || !strings.HasPrefix(e.Actor, "mem") {
		t.Errorf("the audit log has %+v", e)
	}
}

// TestOperatorStatus: plan and status change with the operator as the actor, once for each.
func TestOperatorStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accounts.SetPlans([]account.Plan{{ID: "pro", RPM: 600}, {ID: "max", TPM: 5000}})
	op := w.operator()
	path := "/operator/accounts/" + w.lab.ID
	if page := shown(t, w.ask("GET", path+"/suspend", op, nil)); !strings.Contains(page, "New calls get 401 within 2 seconds.") || !strings.Contains(page, "No call is running.") {
		t.Errorf("the effect is not said: %s", page)
	}
	for _, c := range []struct {
		action string
		form   url.Values
		want   account.Account
		says   string
	}{
		{"plan", url.Values{"plan": {"max"}}, account.Account{Plan: "max", Status: account.Active}, "max: 5,000 tokens a minute"},
		{"suspend", nil, account.Account{Plan: "max", Status: account.Suspended}, "Example Lab is suspended"},
		{"suspend", nil, account.Account{Plan: "max", Status: account.Suspended}, "Example Lab is suspended"},
		{"resume", nil, account.Account{Plan: "max", Status: account.Active}, "may make calls again"},
	} {
		before := w.last(w.lab).Seq
		old, _ := w.accounts.ByID(w.lab.ID)
		status, page := w.sent(path+"/"+c.action, op, c.form)
		now, _ := w.accounts.ByID(w.lab.ID)
		if status != http.StatusSeeOther || !strings.Contains(page, c.says) || now.Plan != c.want.Plan || now.Status != c.want.Status {
			t.Errorf("%s: %d, %+v: %s", c.action, status, now, page)
		}
		e := w.last(w.lab)
		if changed := *old != *now; changed != (e.Seq > before) || changed && !strings.HasPrefix(e.Actor, "mem") {
			t.Errorf("%s: the audit log has %+v", c.action, e)
		}
	}
	if r := w.ask("POST", path+"/plan", op, url.Values{"plan": {"none"}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a plan that there is not: %s", r.Status)
	}
	for _, action := range []string{"", "/credit", "/adjust", "/plan", "/suspend", "/resume"} {
		if r := w.ask("GET", "/operator/accounts/acct_none"+action, op, nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s of nobody: %s", action, r.Status)
		}
	}
}

// TestOperatorCreatesAccount with credit, and says what is wrong with a name.
func TestOperatorCreatesAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	token := func() []string {
		return []string{formToken.FindStringSubmatch(text(t, w.ask("GET", "/operator/accounts/new", op, nil)))[1]}
	}
	form := url.Values{"token": token(), "name": {"New Works"}, "plan": {"pro"}, "credit": {"12.5"}}
	for range 2 { // as a double click does
		if _, page := w.sent("/operator/accounts", op, form); !strings.Contains(page, "The account is created.") || !strings.Contains(page, "12.50available") {
			t.Errorf("created: %s", page)
		}
	}
	for says, form := range map[string]url.Values{
		"An account of that name exists": form,
		"1 to 100 printable":             {"name": {"a\u200bb"}, "plan": {"pro"}},
		"above 0":                        {"name": {"Third"}, "plan": {"pro"}, "credit": {"none"}},
	} {
		form["token"] = token()
		if status, page := w.sent("/operator/accounts", op, form); status != http.StatusUnprocessableEntity || !strings.Contains(page, says) {
			t.Errorf("%q: %d %s", says, status, page)
		}
	}
	if _, ok := w.accounts.ByName("Third"); ok {
		t.Error("an account was made of a form that was wrong")
	}
}

// TestOperatorAccounts goes through a list of several pages and filters it.
func TestOperatorAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	for i := range 60 {
		w.account(fmt.Sprintf("Shop %02d", i))
	}
	page := w.ask("GET", "/operator/accounts", op, nil)
	first := text(t, page)
	if !strings.Contains(first, "Shop 47<") || strings.Contains(first, "Shop 48<") || !strings.Contains(first, "of 62") {
		t.Error("the first page does not end after 50")
	}
	older := regexp.MustCompile(`href="([^"]+)">Older`).FindStringSubmatch(first)
	if older == nil {
		t.Fatal("there is no next page")
	}
	second := text(t, w.ask("GET", html.UnescapeString(older[1]), op, nil))
	if !strings.Contains(second, "Shop 48<") || strings.Contains(second, "Shop 47<") || strings.Contains(second, ">Older") {
		t.Error("the second page is not the rest")
	}
	for query, want := range map[string]string{
		"?q=sHOp+59": "Shop 59", "?q=" + w.lab.ID: "Example Lab", "?status=suspended": "No account is like that", "?q=zzz": "No account is like that",
		"?status=empty&plan=pro&q=works": "Other Works", "?plan=none": "No account is like that",
	} {
		if got := shown(t, w.ask("GET", "/operator/accounts"+query, op, nil)); !strings.Contains(got, want) {
			t.Errorf("%s does not show %q: %s", query, want, got)
		}
	}
	r := w.ask("POST", "/find", op, url.Values{"q": {"Example Lab"}})
	if got := r.Header.Get("Location"); got != "/operator/accounts/"+w.lab.ID {
		t.Errorf("Find leads to %q", got)
	}
}
