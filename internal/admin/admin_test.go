package admin_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// house is the real rooms on a real database, and a client at the door.
type house struct {
	*admin.Client
	api    http.Handler
	keys   *apikey.Keyring
	tokens *apikey.Tokens
	ledger *ledger.Ledger
	gate   *member.Gate
	offer  *catalog.Catalog
	db     *store.DB
}

func open(t *testing.T) *house {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := store.Open(ctx, dir)
	must(err)
	t.Cleanup(func() { _ = db.Close() })
	progress, err := store.OpenProgress(dir)
	must(err)
	t.Cleanup(func() { _ = progress.Close() })
	books, _, err := ledger.Open(context.WithoutCancel(ctx), db, progress)
	must(err)
	t.Cleanup(func() { _ = books.Close() })
	models := []catalog.Model{
		{
			ID: "svc-pulse", Description: "Small.", ContextWindow: 8192, MaxOutput: 2048,
			Price: money.Price{Input: 50_000, CachedInput: 50_000, Output: 100_000}, Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			Plans: []string{"free", "pro"}, Targets: []catalog.Target{{Upstream: "local", Model: "small"}},
		},
		{
			ID: "svc-titan", ContextWindow: 8192, MaxOutput: 4096, Plans: []string{"pro"},
			Targets: []catalog.Target{{Upstream: "local", Model: "small"}},
		},
	}
	plans := []account.Plan{{ID: "free", RPM: 20, TPM: 60000, Concurrency: 4}, {ID: "pro"}}
	must(db.SaveCatalog(ctx, models, plans))
	offer, err := catalog.New(models)
	must(err)
	accounts := account.NewDirectory(db)
	accounts.SetPlans(plans)
	must(accounts.Load(ctx))
	keys := apikey.NewKeyring(db, accounts)
	must(keys.Load(ctx))
	tokens := apikey.NewTokens(db)
	must(tokens.Load(ctx))
	requests := &explain.Room{Store: db, Running: books.Find, Account: accounts.ByID, Key: keys.Find, Models: offer.List, Nearest: config.Nearest}
	gate := member.NewGate(db)
	api := admin.New(admin.Config{
		Explain: requests, Tokens: tokens, Gate: gate, LowCredit: money.IU,
		Accounts: accounts, Subscriptions: account.NewSubscriptions(accounts, books), Keys: keys, Ledger: books, Store: db, Catalog: offer,
		Status: func() admin.Status {
			return admin.Status{Version: "test", Serving: true, Console: "http://localhost:8080"}
		},
		Engines: func() []admin.Engine {
			return []admin.Engine{{Upstream: "other"}, {Upstream: "local", Running: 3, Places: 16, TokensPerSecond: 141}}
		},
	})
	checked := describe(t, api)
	return &house{Client: admin.Direct(checked), api: checked, keys: keys, ledger: books, tokens: tokens, gate: gate, offer: offer, db: db}
}

// lab makes the account that most tests work on.
func (h *house) lab(t *testing.T) admin.Created {
	t.Helper()
	c, err := h.CreateAccount(t.Context(), admin.NewAccount{Name: "Example Lab", Plan: "pro", Credit: "12.5"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func code(err error) string {
	if e, ok := errors.AsType[*admin.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	create := func(name, plan, credit string) error {
		_, err := h.CreateAccount(ctx, admin.NewAccount{Name: name, Plan: plan, Credit: credit})
		return err
	}
	credit := func(in admin.NewCredit) error { _, err := h.AddCredit(ctx, "Example Lab", in); return err }
	key := func(in admin.NewKey) error { _, err := h.CreateKey(ctx, "Example Lab", in); return err }
	set := func(in admin.Change) error { _, err := h.SetAccount(ctx, "Example Lab", in); return err }
	invite := func(name, email, role string) error {
		_, err := h.Invite(ctx, name, admin.NewInvitation{Email: email, Role: role})
		return err
	}
	subscribe := func(in admin.NewSubscription) error { _, err := h.Subscribe(ctx, "Example Lab", in); return err }
	for _, c := range []struct {
		name   string
		err    error
		code   string
		status int
	}{
		{"name taken", create("Example Lab", "pro", ""), "account_exists", 409},
		{"no name", create("", "pro", ""), "invalid_name", 400},
		{"no such scope", key(admin.NewKey{Name: "k", Scopes: []string{"chat", "root"}}), "invalid_scope", 400},
		{"no scope", key(admin.NewKey{Name: "k", Scopes: []string{}}), "invalid_scope", 400},
		{"no budget", key(admin.NewKey{Name: "k", Budget: "25/week"}), "invalid_budget", 400},
		{"no network", key(admin.NewKey{Name: "k", Allow: []string{"10.0.0.5/8"}}), "invalid_network", 400},
		{"no such plan", create("x", "gold", ""), "plan_not_found", 400},
		{"negative credit", create("x", "pro", "-1"), "invalid_amount", 400},
		{"zero credit", create("x", "pro", "0"), "invalid_amount", 400},
		{"no account", func() error { _, err := h.Account(ctx, "x"); return err }(), "account_not_found", 404},
		{"no threshold", set(admin.Change{LowCredit: admin.Set("-1")}), "invalid_amount", 400},
		{"account to no plan", set(admin.Change{Plan: new("gold")}), "plan_not_found", 400},
		{"account to no status", set(admin.Change{Status: new("asleep")}), "invalid_status", 400},
		{"credit without note", credit(admin.NewCredit{Amount: "1"}), "invalid_note", 400},
		{"credit of ten decimals", credit(admin.NewCredit{Amount: "0.0000000001", Note: "n"}), "invalid_amount", 400},
		{"credit beyond the end", credit(admin.NewCredit{Amount: "99999999999", Note: "n"}), "invalid_amount", 400},
		{"key without name", key(admin.NewKey{}), "invalid_name", 400},
		{"key that has expired", key(admin.NewKey{Name: "k", ExpiresAt: new(time.Unix(1, 0))}), "invalid_expiry", 400},
		{"key of no requests", key(admin.NewKey{Name: "k", RPM: new(int64(0))}), "invalid_limit", 400},
		{"key of less than no tokens", key(admin.NewKey{Name: "k", TPM: new(int64(-1))}), "invalid_limit", 400},
		{"subscription to no plan", subscribe(admin.NewSubscription{Plan: "gold", Until: new(time.Now().Add(time.Hour))}), "plan_not_found", 400},
		{"subscription that has ended", subscribe(admin.NewSubscription{Plan: "pro", Until: new(time.Unix(1, 0))}), "invalid_until", 400},
		{"key for no model", key(admin.NewKey{Name: "k", Models: []string{"svc-x"}}), "model_not_found", 400},
		{"no key", func() error { _, err := h.RevokeKey(ctx, "key_x"); return err }(), "key_not_found", 404},
		{"no plan", func() error { _, err := h.Plan(ctx, "gold"); return err }(), "plan_not_found", 404},
		{"invitation to no account", invite("x", "ada@example.test", ""), "account_not_found", 404},
		{"invitation of nobody", invite("Example Lab", "ada", ""), "invalid_email", 400},
		{"invitation to no role", invite("Example Lab", "ada@example.test", "admin"), "invalid_role", 400},
		{"no receipts", func() error { _, err := h.Receipts(ctx, "Example Lab", 0); return err }(), "invalid_limit", 400},
	} {
		e, ok := errors.AsType[*admin.Error](c.err)
		if !ok || e.Code != c.code || e.Status != c.status || e.Message == "" {
			t.Errorf("%s: %#v, want %d %s", c.name, c.err, c.status, c.code)
		}
	}
	// A refused creation leaves nothing.
	if all, err := h.Accounts(ctx); err != nil || len(all) != 1 {
		t.Errorf("after the refusals there are %d accounts, %v", len(all), err)
	}
}

func TestReceipts_RunningAndEnded(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	c := h.lab(t)
	key, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	model, ok := h.offer.Lookup("svc-pulse", time.Now())
	if !ok {
		t.Fatal("svc-pulse is not on offer")
	}
	reserve := func(id string) *ledger.Hold {
		t.Helper()
		hold, err := h.ledger.Reserve(ledger.Call{
			RequestID: "req_" + strings.Repeat("0", 31) + id, AccountID: c.ID, KeyID: key.ID, Model: model.ID, PriceID: model.PriceID, Price: model.Price,
			CreatedAt: time.Now(), PromptTokens: 10, Output: 20, LeastOutput: 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		return hold
	}
	ended := reserve("1")
	if _, err := ended.Settle(ledger.Outcome{PromptTokens: 10, CompletionTokens: 5, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageCounted, Target: "local/small", Attempts: 1}); err != nil {
		t.Fatal(err)
	}
	running := reserve("2")
	list, err := h.Receipts(ctx, "Example Lab", 50)
	if err != nil || len(list) != 2 || list[0].State != "running" || list[1].State != "settled" {
		t.Fatalf("Receipts = %+v, %v, want one running, then one settled", list, err)
	}
	if list[1].Charge != "0.001" || list[1].PromptTokens != 10 || list[1].Target != "local/small" || list[1].Ending != "stop" {
		t.Errorf("settled receipt %+v", list[1])
	}
	if list, err := h.Receipts(ctx, "Example Lab", 1); err != nil || len(list) != 1 || list[0].State != "running" {
		t.Errorf("Receipts of 1 = %+v, %v, want the newest", list, err)
	}
	if a, err := h.Account(ctx, "Example Lab"); err != nil || a.Held != "0.0025" || a.Available != "12.4965" || a.Balance != "12.499" {
		t.Errorf("Account while a call runs = %+v, %v", a, err)
	}
	if err := running.Void(ledger.Outcome{Status: 502, Ending: ledger.EndUpstreamError}); err != nil {
		t.Fatal(err)
	}
	if v, err := h.Verify(ctx); err != nil || !v.OK || v.Accounts != 1 || len(v.Invariants) == 0 {
		t.Errorf("Verify = %+v, %v", v, err)
	}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	models, err := h.Models(ctx)
	if err != nil || len(models) != 2 || models[0].Pricing.Input != "0.05" || models[0].State != "ready" || models[0].Targets[0] != "local/small" ||
		len(models[0].Engines) != 1 || models[0].Engines[0] != (admin.Engine{Upstream: "local", Running: 3, Places: 16, TokensPerSecond: 141}) {
		t.Errorf("Models = %+v, %v", models, err)
	}
	plans, err := h.Plans(ctx)
	if err != nil || len(plans) != 2 {
		t.Fatalf("Plans = %+v, %v", plans, err)
	}
	if p := plans[0]; p.ID != "free" || *p.RPM != 20 || !cmp.Equal(p.Models, []string{"svc-pulse"}) {
		t.Errorf("plan free = %+v", p)
	}
	if p, err := h.Plan(ctx, "pro"); err != nil || p.RPM != nil || len(p.Models) != 2 {
		t.Errorf("Plan pro = %+v, %v", p, err)
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	h := open(t)
	for name, dir := range map[string]string{
		"short": t.TempDir(),
		"long":  filepath.Join(t.TempDir(), strings.Repeat("a-long-directory-name/", 8)),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Dial(t.Context(), dir); !errors.Is(err, admin.ErrNoServer) {
			t.Errorf("%s: Dial without a server gives %v", name, err)
		}
		// What a killed process leaves must not be in the way.
		if err := os.WriteFile(filepath.Join(dir, admin.Socket), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := admin.Listen(dir)
		if err != nil {
			t.Fatalf("%s: Listen: %v", name, err)
		}
		if fi, err := os.Stat(filepath.Join(dir, admin.Socket)); err != nil || fi.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: socket is %v, %v, want 0600", name, fi.Mode(), err)
		}
		server := &http.Server{Handler: h.api, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }()
		c, err := admin.Dial(t.Context(), dir)
		if err != nil {
			t.Fatalf("%s: Dial: %v", name, err)
		}
		if s, err := c.Status(t.Context()); err != nil || s.Version != "test" {
			t.Errorf("%s: Status = %+v, %v", name, s, err)
		}
		if _, err := c.Account(t.Context(), "nobody"); code(err) != "account_not_found" {
			t.Errorf("%s: Account of nobody gives %v", name, err)
		}
		c.Close()
		if err := errors.Join(server.Close(), admin.Remove(dir), admin.Remove(dir)); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: the server left %v", name, entries)
		}
	}
}
