// Package console is the web pages of Parley: for the people of an account at /, for
// operators under /operator.
//
// # Adding a page
//
// A page is a handler in a file of its own and a template of the same name:
//
//  1. internal/console/keys.go has `func (s *Server) keys(v *visit) error`. It reads what
//     it needs through small interfaces of [Config], and ends with
//     `return v.page("keys", "API keys", keysPage{...})`.
//  2. templates/keys.html has `{{define "content"}}…{{end}}`. Its dot is a [frame]: what the
//     handler handed over is .Page, the account is .Account, the clock is .Now. parts.html has
//     the components (account, errors, field, sum, chart, secret, code, pager; their dots are
//     form, sum, chart, … of form.go, parts.go and chart.go), and templates.go lists the
//     functions (icon, status, pill, balance, spent, row, exact, count, ago, meter, spark, …).
//  3. routes.go gets one line: method, path, who may, handler. The test of routes asks it as
//     everybody, and the browser test loads it at every width in both themes, by itself.
//  4. nav.go names every page of the design; the entry appears when its path has a route.
//  5. finders in find.go gets a line where Find should find what the page shows.
//
// A handler that changes something answers `return v.seeOther("/keys?done=revoked")`; the
// page then says so: `v.say(ok, "…")`. Its form begins with {{template "account" $}}, which
// the frame checks: a form filled in for another account is refused, and so are forms of an
// operator who looks into an account. What needs a fresh proof of who asks is wrapped in the
// table: proved((*Server).createKey).
//
// Errors are returned; errors.go is the one table from errors to pages. What it does not know
// is 500, and only the log learns more. A form that is wrong is no error: it is the page once
// more, with `form.fail(name, sentence)`.
//
// # What every page keeps
//
// The content security policy allows no inline script, no style attribute and no on…
// attribute: geometry goes into attributes of SVG, which chart.go and parts.html make. Texts of
// callers pass through html/template only. Amounts are integers until format.go prints them.
package console

import (
	"context"
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/telemetry"
)

// accounts is what the console asks of account.Directory.
type accounts interface {
	ByID(id string) (*account.Account, bool)
	All() []*account.Account
	Plan(id string) (*account.Plan, bool)
	Change(ctx context.Context, id string, c account.Change) (*account.Account, error)
}

// books is what the console asks of ledger.Ledger.
type books interface {
	Balance(accountID string) ledger.Balance
	Spending(accountID string, b ledger.Budget) ledger.Spending
	Running(accountID string) []ledger.Receipt
	Redeem(ctx context.Context, accountID, text string) (ledger.Code, error)
}

// keyring is what the console asks of apikey.Keyring.
type keyring interface {
	List(accountID string) []apikey.Key
	Search(most int, match func(*apikey.Key) bool) []apikey.Key
	Find(id string) (apikey.Key, bool)
	Create(ctx context.Context, n apikey.NewKey) (apikey.Key, apikey.Secret, error)
	Change(ctx context.Context, id string, c apikey.Change) (apikey.Key, error)
	Revoke(ctx context.Context, id string) (apikey.Key, error)
	Rotate(ctx context.Context, id string, overlap time.Duration) (fresh apikey.Key, s apikey.Secret, old apikey.Key, err error)
}

// models is what the console asks of catalog.Catalog.
type models interface {
	List(now time.Time) []*catalog.Model
}

// limits is what the console asks of ratelimit.Limiter.
type limits interface {
	InUse(now time.Time, accountID string) ratelimit.InUse
}

// records is what the console asks of the store about calls that were made and credit.
type records interface {
	ReceiptPage(ctx context.Context, f ledger.Filter) (ledger.Page, error)
	Refusals(ctx context.Context, f refusal.Filter) ([]refusal.Record, error)
	UsageOf(ctx context.Context, f ledger.UsageFilter, by ledger.By) ([]ledger.Usage, error)
	Grants(ctx context.Context, accountID string) ([]ledger.GrantBalance, error)
	Pace(ctx context.Context, accountID string, now time.Time) (ledger.Pace, error)
	Statement(ctx context.Context, accountID string, from, to time.Time) (ledger.Statement, error)
	MonthlyStatement(ctx context.Context, accountID string, from, to time.Time) (ledger.Statement, error)
	AuditPage(ctx context.Context, f audit.Filter) ([]audit.Entry, error)
}

// payments is what the console asks of payment.Room.
type payments interface {
	Prices() []payment.Price
	Checkout(ctx context.Context, accountID, price string) (payment.Page, error)
}

// explainer is what the console asks of explain.Room.
type explainer interface {
	Request(ctx context.Context, id string, now time.Time) (explain.Explained, error)
}

// Config is the rooms behind the console. All fields but Passkeys and Payments are required.
type Config struct {
	Gate     *member.Gate
	Passkeys *member.Passkeys // nil where browsers make none for the public URL
	Accounts accounts
	Ledger   books
	Keys     keyring
	Models   models
	Limits   limits
	Records  records
	Explain  explainer
	Payments payments // nil where nobody can pay
	// Subscriptions changes the account's own.
	Subscriptions subscriptions
	// PartLimit bounds the time for each part of a page that is read from the database and
	// that the page can do without: it is missing rather than late.
	PartLimit time.Duration
	// LowCredit is the balance below which the credit of an account without a threshold of
	// its own is low.
	LowCredit money.Amount
	// PublicURL is where people reach the console: scheme and host. Links and passkeys are of
	// it.
	PublicURL *url.URL
	// Address is who sent a request, behind proxies too.
	Address func(*http.Request) netip.Addr
	// Secure reports whether a proxy that is believed received the request over TLS.
	Secure func(*http.Request) bool
	// Log gets one line a request.
	Log *telemetry.Lines
	// Now is the clock.
	Now func() time.Time
	// Operator is what only the operator's pages need.
	Operator Operator
}

// Server answers for the console. Make one with [New]; it is safe for concurrent use.
type Server struct {
	Config
	mux     *http.ServeMux
	pages   map[string]*template.Template
	assets  *assets
	foreign *http.CrossOriginProtection
	paths   map[string]bool // of pages, for the navigation
	once    *once
	guesses *member.Guesses // at codes
	play    *playground
}

// New returns the console. It fails when a template or an asset is broken, which a test
// would have told, or when the public URL is no origin.
func New(c Config) (*Server, error) {
	s := &Server{Config: c, mux: http.NewServeMux(), foreign: http.NewCrossOriginProtection(), paths: map[string]bool{}, once: newOnce(), guesses: member.NewGuesses(), play: &playground{keys: c.Keys, held: map[string]heldKey{}}}
	// Behind a proxy that asks with another Host, a browser's Origin is the public one.
	if err := s.foreign.AddTrustedOrigin(c.PublicURL.Scheme + "://" + c.PublicURL.Host); err != nil {
		return nil, err
	}
	var err error
	if s.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if s.pages, err = s.loadPages(); err != nil {
		return nil, err
	}
	for _, rt := range routes() {
		s.mux.HandleFunc(rt.method+" "+rt.pattern(), s.serve(rt))
		if rt.method == http.MethodGet {
			s.paths[rt.path] = true
		}
	}
	s.mux.Handle("GET /assets/", s.assets)
	s.mux.HandleFunc("/", s.serve(route{path: "unknown", who: forAnyone, serve: func(*Server, *visit) error { return errNotFound }}))
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Takes reports whether a request is for the console, not for the API: its path is one of a
// page, or a browser asks for a page that there is not.
func (s *Server) Takes(r *http.Request) bool {
	if _, pattern := s.mux.Handler(r); pattern != "/" && pattern != "" {
		return true
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html") &&
		!strings.HasPrefix(r.URL.Path, "/v1/")
}

// deadline bounds the time that an answer may take to make.
const deadline = 10 * time.Second

// maxBody bounds a form: the largest has a few texts of some hundred characters.
const maxBody = 64 << 10

// serve answers the requests of a route.
func (s *Server) serve(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), deadline)
		defer cancel()
		v := s.newVisit(w, r.WithContext(ctx), rt)
		defer v.close()
		if err := v.admit(); err != nil {
			v.fail(err)
			return
		}
		if err := rt.serve(s, v); err != nil {
			v.fail(err)
		}
	}
}
