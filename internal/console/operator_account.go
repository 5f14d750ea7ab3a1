package console

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// operatorAccountPage is what templates/operator-account.html shows.
type operatorAccountPage struct {
	accountRow
	Sum     sum
	Limits  string
	Below   money.Amount          // below which its credit is low
	Grants  []ledger.GrantBalance // with something left, in the order in which they burn
	Used    int                   // grants of which nothing is left
	People  []member.Person
	Changes []changeRow // the last of the account itself
	Invited invitations
}

// changesShown is how many changes an account's page has.
const changesShown = 10

// operated is the account that the path names.
func (v *visit) operated() (*account.Account, error) {
	a, ok := v.s.Accounts.ByID(v.r.PathValue("id"))
	if !ok {
		return nil, errNotFound
	}
	return a, nil
}

func (s *Server) operatorAccount(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	v.done(map[string]string{
		"created":       "The account is created.",
		"credit":        "The credit is added.",
		"again":         "This form was sent before. The credit was added once.",
		"adjusted":      "The credit is corrected.",
		"adjusted-once": "This form was sent before. The credit was corrected once.",
		"plan":          "The plan is changed. It counts for every call from now on.",
		"suspended":     a.Name + " is suspended. New calls get 401.",
		"resumed":       a.Name + " may make calls again.",
		"revoked":       "The invitation is revoked. Its link leads nowhere from now on.",
	})
	v.late(map[string]string{"invitation": closedInvitation})
	if v.r.URL.Query().Get("done") == "bare" {
		v.say(noteWarn, "The account is created, its credit is not.", "The books could not be written. Look at the sum below, then add it.")
	}
	row := v.accountRow(a)
	p := operatorAccountPage{accountRow: row, Sum: booksSum(row.Books, sumLinks{}), Below: a.LowCredit.Or(s.LowCredit), Limits: "no plan of the configuration: no model may be used"}
	if plan, ok := s.Accounts.Plan(row.Applies); ok {
		p.Limits = limitWords(plan)
	}
	all, err := s.Operator.Store.Grants(v.context(), a.ID)
	if err != nil {
		return err
	}
	for _, g := range all {
		if g.Remaining() > 0 {
			p.Grants = append(p.Grants, g)
		}
	}
	p.Used = len(all) - len(p.Grants)
	if p.People, err = s.Gate.Store.People(v.context(), a.ID); err != nil {
		return err
	}
	if p.Invited, err = v.invitations(a, p.People); err != nil {
		return err
	}
	changes, err := s.Operator.Store.AuditPage(v.context(), audit.Filter{Targets: []string{a.ID}, Limit: changesShown})
	if err != nil {
		return err
	}
	if p.Changes, err = v.changeRows(changes); err != nil {
		return err
	}
	return v.page("operator-account", a.Name, p)
}

// limitWords are the limits of a plan for people.
func limitWords(p *account.Plan) string {
	var words []string
	for _, l := range []struct {
		n    int64
		what string
	}{{p.RPM, "requests a minute"}, {p.TPM, "tokens a minute"}, {p.Concurrency, "calls at once"}} {
		if l.n > 0 {
			words = append(words, count(l.n)+" "+l.what)
		}
	}
	if words == nil {
		return "no limits"
	}
	return strings.Join(words, ", ")
}

// operatorActionPage is what templates/operator-action.html shows: a change of an account with
// its effect, before it is made.
type operatorActionPage struct {
	Of     *account.Account
	Action string // the last part of the path
	Title  string
	Effect []string
	Form   *form
	Token  string // so that a form that is sent twice adds once
	Plans  []planChoice
	Verb   string
	Danger bool
}

// Words are a plan's limits.
func (p planChoice) Words() string { return limitWords(&p.Plan) }

func (v *visit) action(p operatorActionPage) error {
	return v.page("operator-action", p.Title, p)
}

func (v *visit) actionWrong(p operatorActionPage) error {
	return v.wrong("operator-action", p.Title, p)
}

// acted leads back to the account.
func (v *visit) acted(a *account.Account, done string) error {
	return v.seeOther("/operator/accounts/" + a.ID + "?done=" + done)
}

// available says what there is to change.
func (v *visit) available(a *account.Account) string {
	return "Available now: " + decimals(v.s.Ledger.Balance(a.ID).Available(), 2, 2, down) + " IU."
}

func (v *visit) creditAction(a *account.Account) operatorActionPage {
	token := v.value("token")
	if token == "" {
		token = rand.Text()
	}
	return operatorActionPage{Of: a, Action: "credit", Title: "Add credit to " + a.Name, Verb: "Add credit", Token: token, Form: v.form(
		field{Name: "amount", Label: "Amount", Unit: "IU", Inputmode: "decimal", Maximum: 24, Autocomplete: "off", Focus: true, Hint: v.available(a)},
		field{Name: "expires", Label: "Last day", Type: "date", Optional: true, Hint: "Empty: it never expires."},
		field{Name: "note", Label: "Note", Maximum: 200, Autocomplete: "off", Wide: "w6", Hint: "Why it is added. It is in the books and in the account’s statement."},
	)}
}

func (s *Server) creditPage(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	return v.action(v.creditAction(a))
}

// addCredit grants once for each form: its token is the source of the grant.
func (s *Server) addCredit(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	token := v.value("token")
	if token == "" {
		return errForm
	}
	p := v.creditAction(a)
	g := ledger.Grant{AccountID: a.ID, Kind: ledger.Prepaid, Amount: amountOf(p.Form, "amount"), ExpiresAt: v.lastDay(p.Form, "expires"), Note: v.noteOf(p.Form, "note"), Source: "form:" + token}
	if p.Form.Failed() {
		return v.actionWrong(p)
	}
	granted, err := s.Operator.Ledger.Grant(v.context(), g)
	switch {
	case refusedByBooks(p.Form, err):
		return v.actionWrong(p)
	case err != nil:
		return err
	case !granted.Added:
		return v.acted(a, "again")
	}
	return v.acted(a, "credit")
}

// noteOf reads why a change is made; there is none without.
func (v *visit) noteOf(f *form, name string) string {
	note := f.Field(name).Value
	if note == "" {
		f.fail(name, "Say why: it is in the books for ever.")
	}
	return note
}

// refusedByBooks says in the form why the ledger has not done what was asked.
func refusedByBooks(f *form, err error) bool {
	short, insufficient := errors.AsType[*ledger.InsufficientError](err)
	switch {
	case insufficient:
		f.fail("amount", fmt.Sprintf("%s IU are available and can be taken; running calls hold %s IU.", decimals(short.Available, 2, 9, down), decimals(short.Held, 2, 9, down)))
	case errors.Is(err, ledger.ErrAmount):
		f.fail("amount", "The balance would be more than an account can have. Enter less.")
	case errors.Is(err, ledger.ErrUnavailable):
		f.failAll("The books cannot be written now, so nothing was changed. Look at System.")
	default:
		return false
	}
	return true
}

func (v *visit) adjustAction(a *account.Account) operatorActionPage {
	return operatorActionPage{
		Of: a, Action: "adjust", Title: "Adjust the credit of " + a.Name, Verb: "Adjust credit", Token: v.s.once.token(v),
		Effect: []string{"An amount above 0 is given, one below 0, such as -5, is taken: at most what is available. Both are entries of the books with your name."},
		Form: v.form(
			field{Name: "amount", Label: "Amount", Unit: "IU", Maximum: 24, Autocomplete: "off", Focus: true, Hint: v.available(a)},
			field{Name: "reason", Label: "Reason", Maximum: 200, Autocomplete: "off", Wide: "w6", Hint: "What is corrected. It is in the account’s statement."},
		),
	}
}

func (s *Server) adjustPage(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	return v.action(v.adjustAction(a))
}

func (s *Server) adjust(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	p := v.adjustAction(a)
	d, ok := s.once.take(v)
	if !ok {
		p.Form.failAll(staleForm)
		return v.actionWrong(p)
	}
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		return v.acted(a, "adjusted-once")
	}
	value := v.signedAmount(p.Form)
	reason := v.noteOf(p.Form, "reason")
	if p.Form.Failed() {
		return v.actionWrong(p)
	}
	err = s.Operator.Ledger.Adjust(v.context(), a.ID, value, reason)
	switch {
	case refusedByBooks(p.Form, err):
		return v.actionWrong(p)
	case err != nil:
		return err
	}
	d.done(v.now, nil)
	return v.acted(a, "adjusted")
}

// signedAmount reads an amount that may be below 0.
func (v *visit) signedAmount(f *form) money.Amount {
	x := f.Field("amount")
	typed := x.Value
	digits := strings.TrimPrefix(strings.Replace(typed, minus, "-", 1), "-")
	taken := digits != typed
	x.Value = digits
	value := amountOf(f, "amount")
	x.Value = typed
	if taken {
		return -value
	}
	return value
}

func (s *Server) planPage(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	p := operatorActionPage{
		Of: a, Action: "plan", Title: "Change the plan of " + a.Name, Verb: "Change plan", Plans: v.planChoices(a.Plan),
		Effect: []string{"The limits and models of the plan count for every call from the moment you confirm. Running calls go on as they began."},
	}
	if a.Subscription.Applies(v.now) {
		p.Effect = append(p.Effect, fmt.Sprintf("A subscription to %s runs until %s, %s UTC. Its plan counts until then, this one afterwards.", a.Subscription.Plan, day(a.Subscription.LastsUntil(), v.now), clock(a.Subscription.LastsUntil())))
	}
	return v.action(p)
}

func (s *Server) changePlan(v *visit) error {
	plan := v.value("plan")
	return v.changed("plan", account.Change{Plan: &plan})
}

// changed makes a change of the account that the path names.
func (v *visit) changed(done string, c account.Change) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	if c.Plan != nil && *c.Plan == a.Plan || c.Status != nil && *c.Status == string(a.Status) {
		return v.acted(a, done) // a form that was sent twice
	}
	_, err = v.s.Operator.Accounts.Change(v.context(), a.ID, c)
	if errors.Is(err, account.ErrPlan) {
		return errForm
	}
	if err != nil {
		return err
	}
	return v.acted(a, done)
}

func (s *Server) suspendPage(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	running := "No call is running."
	switch n := s.Ledger.Balance(a.ID).Running; {
	case n == 1:
		running = "1 running call is cut and charged for what was delivered."
	case n > 1:
		running = count(n) + " running calls are cut and charged for what was delivered."
	}
	return v.action(operatorActionPage{
		Of: a, Action: "suspend", Title: "Suspend " + a.Name, Verb: "Suspend account", Danger: true,
		Effect: []string{"New calls get 401 within 2 seconds.", running, "Its credit stays, its members can sign in and read. You can resume it at any time."},
	})
}

func (s *Server) suspend(v *visit) error {
	status := string(account.Suspended)
	return v.changed("suspended", account.Change{Status: &status})
}

func (s *Server) resumePage(v *visit) error {
	a, err := v.operated()
	if err != nil {
		return err
	}
	return v.action(operatorActionPage{
		Of: a, Action: "resume", Title: "Resume " + a.Name, Verb: "Resume account",
		Effect: []string{"Its keys work again at once, within the plan and " + decimals(s.Ledger.Balance(a.ID).Available(), 2, 2, down) + " IU of credit."},
	})
}

func (s *Server) resume(v *visit) error {
	status := string(account.Active)
	return v.changed("resumed", account.Change{Status: &status})
}
