package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/telemetry"
)

// password is everybody's.
const password = "correct horse battery"

// world is a console over a real database, with people in it.
type world struct {
	t        *testing.T
	db       *store.DB
	gate     *member.Gate
	accounts *account.Directory
	keys     *apikey.Keyring
	tokens   *apikey.Tokens
	books    *ledger.Ledger
	limiter  *ratelimit.Limiter
	catalog  *catalog.Catalog
	console  *console.Server
	log      *strings.Builder

	lab, other *account.Account

	proofs *proofs
	health console.Health
	hour   telemetry.Hour
	system console.System
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	progress, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatal(err)
	}
	books, _, err := ledger.Open(context.WithoutCancel(t.Context()), db, progress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		books.Close()
		progress.Close()
		db.Close()
	})
	w := &world{t: t, db: db, books: books, gate: member.NewGate(db), accounts: account.NewDirectory(db), log: &strings.Builder{}}
	w.accounts.SetPlans([]account.Plan{{ID: "pro", RPM: 600, TPM: 600_000, Concurrency: 64}})
	w.tokens = apikey.NewTokens(db)
	w.keys, w.limiter = apikey.NewKeyring(db, w.accounts), ratelimit.New(time.Now())
	w.offer()
	w.lab, w.other = w.account("Example Lab"), w.account("Other Works")
	w.proofs = &proofs{db: db}
	public, _ := url.Parse("http://localhost:8080")
	w.console, err = console.New(console.Config{
		Gate: w.gate, Accounts: w.accounts, Ledger: books, PublicURL: public,
		Keys: w.keys, Models: w.catalog, Limits: w.limiter, Records: db, PartLimit: time.Minute, LowCredit: money.IU, Subscriptions: account.NewSubscriptions(w.accounts, books),
		Explain: &explain.Room{Store: db, Running: books.Find, Account: w.accounts.ByID, Key: w.keys.Find, Models: w.catalog.List, Nearest: config.Nearest},
		Address: func(r *http.Request) netip.Addr {
			a, _ := netip.ParseAddrPort(r.RemoteAddr)
			return a.Addr()
		},
		Secure:   func(r *http.Request) bool { return r.Header.Get("X-Forwarded-Proto") == "https" },
		Operator: console.Operator{Accounts: w.accounts, Ledger: books, Store: db, Prover: w.proofs, Catalog: operatorOffer(t), Tokens: w.tokens, Settings: []console.Setting{{Name: "Address", Key: "listen", Value: "127.0.0.1:8080"}}, Health: func() console.Health { return w.health }, Hour: &w.hour, System: func() console.System { return w.system }},
		Log:      telemetry.NewLines(w.log, false), Now: func() time.Time { return w.gate.Now() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// offer has two models of the plan, and one of another.
func (w *world) offer() {
	w.t.Helper()
	targets := []catalog.Target{{Upstream: "local", Model: "m"}}
	models := []catalog.Model{
		{ID: "svc-titan", Description: "Large.", ContextWindow: 8192, MaxOutput: 4096, Price: money.Price{Input: 12_000, CachedInput: 3_000, Output: 36_000}, Plans: []string{"pro"}, Targets: targets},
		{ID: "svc-pulse", Description: "Small and quick.", ContextWindow: 4096, MaxOutput: 1024, Price: money.Price{Input: 2_000, CachedInput: 2_000, Output: 4_001}, Plans: []string{"pro"}, Targets: targets},
		{ID: "house-70b", Description: "Ours.", ContextWindow: 32768, MaxOutput: 4096, Price: money.Price{Input: 12_000, Output: 36_000}, Plans: []string{"scale"}, Targets: targets},
	}
	if err := w.db.SaveCatalog(w.t.Context(), models, nil); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if w.catalog, err = catalog.New(models); err != nil {
		w.t.Fatal(err)
	}
	w.keys = apikey.NewKeyring(w.db, w.accounts)
}

func (w *world) account(name string) *account.Account {
	w.t.Helper()
	a, err := w.accounts.Create(w.t.Context(), name, "pro")
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// person makes a member, in an account where a role is given, and signs it in.
func (w *world) person(email string, operator bool, a *account.Account, role member.Role) member.Token {
	w.t.Helper()
	l := member.Link{ID: "link_" + email, Hash: member.Token(email).Hash(), Kind: member.Invitation, Role: role, Email: email, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}
	if a != nil {
		l.AccountID = a.ID
	}
	if operator {
		l.Kind = member.OperatorLink
	}
	if err := w.db.CreateLink(w.t.Context(), l); err != nil {
		w.t.Fatal(err)
	}
	token, err := w.gate.Join(w.t.Context(), member.Token(email), password, member.From{Address: "192.0.2.1"})
	if operator {
		token, err = w.gate.Claim(w.t.Context(), member.Token(email), member.Credentials{Email: email, Password: password}, member.From{Address: "192.0.2.1"})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// ask sends a request as a browser would that has the token.
func (w *world) ask(method, path string, token member.Token, form url.Values, header ...string) *http.Response {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://localhost:8080"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Accept", "text/html")
	r.RemoteAddr = "192.0.2.7:1234"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if token != "" {
		r.AddCookie(&http.Cookie{Name: "__Host-session", Value: string(token)})
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.console.ServeHTTP(rec, r)
	return rec.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// session is the token that an answer sets; empty when it sets none.
func session(r *http.Response) member.Token {
	for _, c := range r.Cookies() {
		if c.Name == "__Host-session" {
			return member.Token(c.Value)
		}
	}
	return ""
}
