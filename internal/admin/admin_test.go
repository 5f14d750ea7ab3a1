package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
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
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
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
	api := admin.New(admin.Config{
		Explain: requests, Tokens: tokens,
		Accounts: accounts, Subscriptions: account.NewSubscriptions(accounts, books), Keys: keys, Ledger: books, Store: db, Catalog: offer,
		Status: func() admin.Status { return admin.Status{Version: "test", Serving: true} },
		Engines: func() []admin.Engine {
			return []admin.Engine{{Upstream: "other"}, {Upstream: "local", Running: 3, Places: 16, TokensPerSecond: 141}}
		},
	})
	checked := describe(t, api)
	return &house{Client: admin.Direct(checked), api: checked, keys: keys, ledger: books, tokens: tokens, offer: offer, db: db}
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

func TestAccount_Life(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	c := h.lab(t)
	if c.Name != "Example Lab" || !strings.HasPrefix(c.ID, "acct_") {
		t.Fatalf("CreateAccount = %+v", c)
	}
	want := admin.Account{ID: c.ID, Name: "Example Lab", Plan: "pro", Status: "active", Balance: "12.5", Held: "0", Available: "12.5"}
	got, err := h.Account(ctx, "Example Lab")
	if err != nil || got != want {
		t.Errorf("Account = %+v, %v, want %+v", got, err, want)
	}
	if got, err := h.Account(ctx, c.ID); err != nil || got != want {
		t.Errorf("Account by id = %+v, %v", got, err)
	}
	want.Plan, want.Status = "free", "suspended"
	got, err = h.SetAccount(ctx, "Example Lab", admin.Change{Plan: new("free"), Status: new("suspended")})
	if err != nil || got != want {
		t.Errorf("SetAccount = %+v, %v, want %+v", got, err, want)
	}
	all, err := h.Accounts(ctx)
	if diff := cmp.Diff([]admin.Account{want}, all); err != nil || diff != "" {
		t.Errorf("Accounts: %v, (-want +got)\n%s", err, diff)
	}
	s, err := h.Summary(ctx, "Example Lab")
	if err != nil || s.Granted != "12.5" || s.Spent != "0" || s.Plan == nil || s.Plan.ID != "free" || *s.Plan.RPM != 20 {
		t.Errorf("Summary = %+v, %v", s, err)
	}
}

// Names are free text: whatever a path could mistake for its own must come through.
func TestAccount_OddNames(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	for _, name := range []string{"..", ".", "a/b", "50% off?", "a#b&c=d", "summary", "Ünïcode 実験"} {
		if _, err := h.CreateAccount(ctx, admin.NewAccount{Name: name, Plan: "pro"}); err != nil {
			t.Errorf("CreateAccount(%q): %v", name, err)
			continue
		}
		if a, err := h.Account(ctx, name); err != nil || a.Name != name {
			t.Errorf("Account(%q) = %q, %v", name, a.Name, err)
		}
		if _, err := h.Receipts(ctx, name, 1); err != nil {
			t.Errorf("Receipts(%q): %v", name, err)
		}
	}
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

func TestCredit_SameRefAddsOnce(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	in := admin.NewCredit{Amount: "50", Note: "support case 118", Ref: "case-118"}
	first, err := h.AddCredit(ctx, "Example Lab", in)
	if err != nil || !first.Added || first.Available != "62.5" {
		t.Fatalf("AddCredit = %+v, %v", first, err)
	}
	second, err := h.AddCredit(ctx, "Example Lab", in)
	if err != nil || second.Added || second.Available != "62.5" || !second.At.Equal(first.At) {
		t.Errorf("again = %+v, %v, want what was added at %s", second, err, first.At)
	}
	// A reference cannot stand for what Parley itself granted.
	if c, err := h.AddCredit(ctx, "Example Lab", admin.NewCredit{Amount: "1", Note: "n", Ref: "creation"}); err != nil || !c.Added {
		t.Errorf("ref creation = %+v, %v", c, err)
	}
	in.Ref = ""
	for range 2 {
		if c, err := h.AddCredit(ctx, "Example Lab", in); err != nil || !c.Added {
			t.Errorf("without ref = %+v, %v", c, err)
		}
	}
}

func TestKey_Life(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web", ExpiresAt: &expires, Models: []string{"svc-pulse"}})
	if err != nil || !strings.HasPrefix(minted.Secret, minted.Prefix) {
		t.Fatalf("CreateKey = %+v, %v", minted, err)
	}
	bearer := []string{"Bearer " + minted.Secret}
	if _, err := h.keys.Authenticate(bearer, time.Now()); err != nil {
		t.Errorf("the new key is refused: %v", err)
	}
	list, err := h.Keys(ctx, "Example Lab")
	if err != nil || len(list) != 1 || list[0].Status != "active" || !list[0].ExpiresAt.Equal(expires) || !cmp.Equal(list[0].Models, []string{"svc-pulse"}) {
		t.Errorf("Keys = %+v, %v", list, err)
	}
	use, err := h.Key(ctx, minted.ID)
	if err != nil || use.Account != "Example Lab" || use.Running != 0 {
		t.Errorf("Key = %+v, %v", use, err)
	}
	gone, err := h.RevokeKey(ctx, minted.ID)
	if err != nil || gone.Status != "revoked" || gone.Confirmed != 1 || gone.Servers != 1 || gone.RevokedAt.IsZero() {
		t.Errorf("RevokeKey = %+v, %v", gone, err)
	}
	if _, err := h.keys.Authenticate(bearer, time.Now()); !errors.Is(err, apikey.ErrRevoked) {
		t.Errorf("the revoked key gives %v", err)
	}
	if again, err := h.RevokeKey(ctx, minted.ID); err != nil || !again.RevokedAt.Equal(gone.RevokedAt) {
		t.Errorf("RevokeKey again = %+v, %v, want the first time", again, err)
	}
}

func TestKey_Rotate(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := h.RotateKey(ctx, minted.ID, admin.Rotation{})
	if err != nil || first.Replaces != minted.ID || first.ID == minted.ID || first.Until == nil || !strings.HasPrefix(first.Secret, first.Prefix) {
		t.Fatalf("RotateKey = %+v, %v", first, err)
	}
	if left := time.Until(*first.Until); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the old key works for %s more, want a day", left)
	}
	second, err := h.RotateKey(ctx, first.ID, admin.Rotation{Overlap: "0s"})
	if err != nil || second.Until != nil {
		t.Fatalf("RotateKey without overlap = %+v, %v", second, err)
	}
	for secret, want := range map[string]error{minted.Secret: nil, first.Secret: apikey.ErrRevoked, second.Secret: nil} {
		if _, err := h.keys.Authenticate([]string{"Bearer " + secret}, time.Now()); !errors.Is(err, want) {
			t.Errorf("the key %s gives %v, want %v", secret[:14], err, want)
		}
	}
	list, err := h.Keys(ctx, "Example Lab")
	if err != nil || len(list) != 3 || *list[0].ReplacedBy != first.ID || *list[1].ReplacedBy != second.ID || list[2].ReplacedBy != nil {
		t.Errorf("Keys = %+v, %v", list, err)
	}
	for _, c := range []struct {
		id, overlap, code string
		status            int
	}{
		{minted.ID, "", "key_replaced", 409},
		{"key_none", "", "key_not_found", 404},
		{second.ID, "a day", "invalid_overlap", 400},
		{second.ID, "-1s", "invalid_overlap", 400},
		{second.ID, "2161h", "invalid_overlap", 400},
	} {
		_, err := h.RotateKey(ctx, c.id, admin.Rotation{Overlap: c.overlap})
		if e, ok := errors.AsType[*admin.Error](err); !ok || e.Code != c.code || e.Status != c.status {
			t.Errorf("RotateKey(%s, %q) gives %v, want %d %s", c.id, c.overlap, err, c.status, c.code)
		}
	}
}

// A key shows what was spent of its budget and what is held; the key that takes its place
// goes on from there.
func TestKey_Budget(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	c := h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web", Budget: "2.50/month"})
	if err != nil {
		t.Fatal(err)
	}
	k, _ := h.keys.Find(minted.ID)
	m := h.offer.List(time.Now())[0]
	reserve := func() *ledger.Hold {
		t.Helper()
		hold, err := h.ledger.Reserve(ledger.Call{
			RequestID: ident.RequestID(), AccountID: c.ID, KeyID: k.ID, Model: m.ID, PriceID: m.PriceID, Price: m.Price, CreatedAt: time.Now(),
			PromptTokens: 10, Output: 100, LeastOutput: 100,
			Budget: ledger.Budget{ID: k.Budget.ID, Period: k.Budget.Period(time.Now()), Amount: k.Budget.Amount},
		})
		if err != nil {
			t.Fatal(err)
		}
		return hold
	}
	done, running := reserve(), reserve()
	if _, err := done.Settle(ledger.Outcome{PromptTokens: 10, CompletionTokens: 50, Status: 200, Ending: ledger.EndStop}); err != nil {
		t.Fatal(err)
	}
	rotated, err := h.RotateKey(ctx, minted.ID, admin.Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	want := admin.Budget{Amount: "2.5", Period: "month", Spent: "0.0055", Held: "0.0105"}
	for _, id := range []string{minted.ID, rotated.ID} {
		use, err := h.Key(ctx, id)
		if err != nil || use.Key.Budget == nil || *use.Key.Budget != want {
			t.Errorf("the budget of %s is %+v, %v, want %+v", id, use.Key.Budget, err, want)
		}
	}
	if err := running.Void(ledger.Outcome{}); err != nil {
		t.Fatal(err)
	}
}

func TestKey_Limits(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	if _, err := h.SetAccount(ctx, "Example Lab", admin.Change{Plan: new("free")}); err != nil {
		t.Fatal(err)
	}
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "slow", RPM: new(int64(20)), TPM: new(int64(60000))})
	if err != nil {
		t.Fatal(err)
	}
	use, err := h.Key(ctx, minted.ID)
	if err != nil || use.Key.RPM == nil || *use.Key.RPM != 20 || use.Key.TPM == nil || *use.Key.TPM != 60000 {
		t.Errorf("Key = %+v, %v", use, err)
	}
	for _, c := range []struct {
		in   admin.NewKey
		want string
	}{
		{admin.NewKey{Name: "fast", RPM: new(int64(21))}, "The plan free allows 20 requests per minute"},
		{admin.NewKey{Name: "fast", TPM: new(int64(60001))}, "The plan free allows 60000 tokens per minute"},
		{admin.NewKey{Name: "fast", RPM: new(int64(20)), TPM: new(int64(60001))}, "The plan free allows 60000 tokens per minute"},
	} {
		_, err := h.CreateKey(ctx, "Example Lab", c.in)
		if code(err) != "invalid_limit" || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("CreateKey = %v, want %s", err, c.want)
		}
	}
	// A subscription's plan applies while it runs: pro has no limits.
	if _, err := h.Subscribe(ctx, "Example Lab", admin.NewSubscription{Plan: "pro", Until: new(time.Now().Add(time.Hour))}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "fast", RPM: new(int64(1000))}); err != nil {
		t.Errorf("CreateKey on the subscription's plan: %v", err)
	}
}

// The JSON is a contract: a key that is renamed or lost breaks scripts.
func TestShapes(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value any
		want  string
	}{
		{admin.Created{}, "id name"},
		{admin.Account{}, "id name plan status balance held available subscription"},
		{admin.Subscription{}, "plan status until"},
		{minted, "id secret prefix"},
		{admin.Key{}, "id name prefix status created_at expires_at last_used_at rpm tpm models scopes allow budget replaced_by"},
		{admin.Budget{}, "amount period spent held"},
		{admin.Rotated{}, "id secret prefix replaces until"},
		{admin.Revoked{}, "id status revoked_at confirmed servers"},
		{admin.Engine{}, "upstream running places waiting tokens_per_second"},
		{admin.Receipt{}, "request_id completion_id created_at key_id model prompt_tokens cached_tokens completion_tokens plan_tokens charge hold written_off status error_code state ending usage_source target attempts"},
	} {
		text, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(fieldNames(t, text), " "); got != c.want {
			t.Errorf("%T has the keys\n%s, want\n%s", c.value, got, c.want)
		}
	}
}

// fieldNames is the keys of a flat JSON object in their order.
func fieldNames(t *testing.T, text []byte) (names []string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(text)))
	for depth, key := 0, true; ; {
		tok, err := dec.Token()
		if err != nil {
			return names
		}
		switch v := tok.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			key = true
		case string:
			if depth == 1 && key {
				names = append(names, v)
				key = false
				continue
			}
			key = true
		default:
			key = true
		}
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

func TestStrictBodies(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, body := range []string{``, `{"nmae":"x","plan":"pro"}`, `{"name":"x","plan":"pro"}{}`, `[]`} {
		if got := post(t, h.api, "/admin/v1/accounts", body); got != http.StatusBadRequest {
			t.Errorf("POST %s gives %d", body, got)
		}
	}
	if got := post(t, h.api, "/admin/v1/nothing", `{}`); got != http.StatusNotFound {
		t.Errorf("POST to no route gives %d", got)
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

func post(t *testing.T, api http.Handler, path, body string) int {
	t.Helper()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w.Code
}
