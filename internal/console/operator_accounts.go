package console

import (
	"errors"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// operatorAccountsPage is what templates/operator-accounts.html shows.
type operatorAccountsPage struct {
	Rows          []accountRow
	Query, Status string
	Plan          string
	Plans         []account.Plan
	Pager         pager
	// Of all accounts, whatever the filter.
	All, Active     int
	Available, Held money.Amount
	Running         int
}

// Filtered reports whether the list leaves accounts out.
func (p operatorAccountsPage) Filtered() bool { return p.Query+p.Status+p.Plan != "" }

// accountRow is an account in the operator's list.
type accountRow struct {
	*account.Account
	Applies string // the plan that does now
	Books   ledger.Balance
}

func (v *visit) accountRow(a *account.Account) accountRow {
	return accountRow{a, a.PlanAt(v.now), v.s.Ledger.Balance(a.ID)}
}

// Standing is the account's status in the words of the filter.
func (r accountRow) Standing() string {
	switch {
	case r.Status == account.Suspended:
		return "suspended"
	case r.Books.Available() == 0:
		return "empty"
	}
	return "active"
}

// Icon and Words are how the standing is shown.
func (r accountRow) Icon() string {
	return map[string]string{"active": "ok", "empty": "bad", "suspended": "dash"}[r.Standing()]
}

// Words say the standing.
func (r accountRow) Words() string {
	return map[string]string{"active": "Active", "empty": "No credit", "suspended": "Suspended"}[r.Standing()]
}

// accountsShown is how many accounts a page of the list has.
const accountsShown = 50

// operatorAccounts lists accounts by name. Their figures come from memory.
func (s *Server) operatorAccounts(v *visit) error {
	q := v.r.URL.Query()
	p := operatorAccountsPage{Query: strings.TrimSpace(q.Get("q")), Status: q.Get("status"), Plan: q.Get("plan"), Plans: s.Operator.Accounts.Plans()}
	behind := ""
	if id := q.Get("before"); id != "" {
		a, ok := s.Accounts.ByID(id)
		if !ok {
			return errNotFound
		}
		behind = a.Name
	}
	next := ""
	for _, a := range s.Accounts.All() {
		row := v.accountRow(a)
		p.All++
		p.Available += row.Books.Available()
		p.Held += row.Books.Held
		p.Running += row.Books.Running
		if a.Status == account.Active {
			p.Active++
		}
		switch {
		case a.Name <= behind && behind != "" || !p.shows(row):
		case len(p.Rows) == accountsShown:
			next = p.Rows[len(p.Rows)-1].ID
		default:
			p.Rows = append(p.Rows, row)
		}
	}
	p.Pager = v.pager("", next)
	return v.page("operator-accounts", "Accounts", p)
}

// shows reports whether the filter lets the row through.
func (p operatorAccountsPage) shows(r accountRow) bool {
	return (p.Query == "" || r.ID == p.Query || strings.Contains(strings.ToLower(r.Name), strings.ToLower(p.Query))) &&
		(p.Status == "" || r.Standing() == p.Status) && (p.Plan == "" || r.Applies == p.Plan)
}

// newAccountPage is what templates/operator-account-new.html shows.
type newAccountPage struct {
	Form  *form
	Plans []planChoice
	Token string
}

// planChoice is a plan that an account can be put on.
type planChoice struct {
	account.Plan
	Chosen bool
}

// planChoices are all plans; the first is chosen where chosen is none of them.
func (v *visit) planChoices(chosen string) []planChoice {
	if v.unsafe() {
		chosen = v.value("plan")
	}
	if _, ok := v.s.Accounts.Plan(chosen); !ok {
		chosen = ""
	}
	var all []planChoice
	for i, p := range v.s.Operator.Accounts.Plans() {
		all = append(all, planChoice{p, p.ID == chosen || chosen == "" && i == 0})
	}
	return all
}

func (v *visit) newAccountForm() newAccountPage {
	return newAccountPage{v.form(
		field{Name: "name", Label: "Name", Maximum: 100, Autocomplete: "off", Wide: "w3", Focus: true},
		field{Name: "credit", Label: "Credit to begin with", Unit: "IU", Inputmode: "decimal", Maximum: 24, Autocomplete: "off", Optional: true, Hint: "Empty: none. It never expires."},
	), v.planChoices(""), v.s.once.token(v)}
}

func (s *Server) newAccount(v *visit) error {
	return v.page("operator-account-new", "Create account", v.newAccountForm())
}

// createAccount makes an account.
func (s *Server) createAccount(v *visit) error {
	p := v.newAccountForm()
	d, ok := s.once.take(v)
	if !ok {
		p.Form.failAll(staleForm)
		return v.wrong("operator-account-new", "Create account", p)
	}
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		if page, ok := d.again(v.now).(string); ok {
			return v.seeOther(page)
		}
		return v.seeOther("/operator/accounts")
	}
	var credit money.Amount
	if text := v.value("credit"); text != "" {
		credit = amountOf(p.Form, "credit")
	}
	if p.Form.Failed() {
		return v.wrong("operator-account-new", "Create account", p)
	}
	a, err := s.Operator.Accounts.Create(v.context(), v.value("name"), v.value("plan"))
	switch {
	case errors.Is(err, account.ErrName):
		p.Form.fail("name", "A name has 1 to 100 printable characters.")
	case errors.Is(err, account.ErrExists):
		p.Form.fail("name", "An account of that name exists. Choose another name.")
	case errors.Is(err, account.ErrPlan):
		return errForm
	case err != nil:
		return err
	}
	if p.Form.Failed() {
		return v.wrong("operator-account-new", "Create account", p)
	}
	done := "created"
	if credit > 0 {
		_, err := s.Operator.Ledger.Grant(v.context(), ledger.Grant{AccountID: a.ID, Amount: credit, Note: "credit at creation", Source: "creation"})
		if err != nil {
			done = "bare" // the account is there; its page says what is missing
		}
	}
	page := accountPath(a) + "?done=" + done
	d.done(v.now, page)
	return v.seeOther(page)
}

// amountOf reads an amount above 0 from a field, or says in the form what is wrong with it.
func amountOf(f *form, name string) money.Amount {
	a, err := money.ParseAmount(strings.ReplaceAll(f.Field(name).Value, ",", ""))
	switch {
	case errors.Is(err, money.ErrPrecision):
		f.fail(name, "An amount has 9 decimals at most.")
	case errors.Is(err, money.ErrRange):
		f.fail(name, "Enter 1,000,000,000 or less.")
	case err != nil || a <= 0:
		f.fail(name, "Enter a number of IU above 0, such as 50 or 12.5.")
	}
	return a
}

// lastDay reads a day after which something is over: the moment when it is, zero for never.
func (v *visit) lastDay(f *form, name string) time.Time {
	text := f.Field(name).Value
	if text == "" {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		f.fail(name, "Enter a date such as "+v.now.UTC().AddDate(0, 1, 0).Format(time.DateOnly)+", or nothing.")
		return time.Time{}
	}
	end := day.AddDate(0, 0, 1)
	switch {
	case !end.After(v.now):
		f.fail(name, "This day is over. Enter a later one, or nothing.")
	case day.Equal(lastOfDays):
		f.fail(name, "Enter an earlier day, or nothing: it never expires then.")
	}
	return end
}
