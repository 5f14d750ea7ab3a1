package store_test

import (
	stdcmp "cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/store"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	want := account.Account{ID: ident.New(ident.Account), Name: "Zoë & Söhne", Plan: "pro", Status: account.Active, CreatedAt: at}
	if err := db.CreateAccount(ctx, want); err != nil {
		t.Fatal(err)
	}
	same := want
	same.ID = ident.New(ident.Account)
	if err := db.CreateAccount(ctx, same); !errors.Is(err, account.ErrExists) {
		t.Errorf("CreateAccount with a name in use gives %v, want ErrExists", err)
	}
	same = want
	same.Name = "another"
	if err := db.CreateAccount(ctx, same); err == nil || errors.Is(err, account.ErrExists) {
		t.Errorf("CreateAccount with an id in use gives %v, want an error that does not blame the name", err)
	}
	odd := account.Account{ID: ident.New(ident.Account), Name: "odd", Plan: "pro", Status: "frozen", CreatedAt: at}
	if err := db.CreateAccount(ctx, odd); err == nil {
		t.Error("CreateAccount with an unknown status succeeds")
	}
	want.Plan, want.Status = "max", account.Suspended
	changed := want
	changed.Name, changed.CreatedAt = "is not written", at.Add(time.Hour)
	if err := db.UpdateAccount(ctx, changed); err != nil {
		t.Fatal(err)
	}
	got, err := db.Accounts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]account.Account{want}, got); diff != "" {
		t.Errorf("Accounts differ (-want +got):\n%s", diff)
	}
	if err := db.UpdateAccount(ctx, odd); !errors.Is(err, account.ErrNotFound) {
		t.Errorf("UpdateAccount of nobody gives %v, want ErrNotFound", err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	all, none, some := key(acct), key(acct), key(acct)
	none.Models, none.ExpiresAt = []string{}, at.Add(time.Hour)
	none.Budget = account.Budget{ID: "budget_a", Amount: 25 * money.IU}
	some.Models, some.Scopes = []string{"m", `odd "name", [x]`}, account.ScopeBilling|account.ScopeKeysWrite
	some.Budget = account.Budget{ID: "budget_a", Amount: 7, Monthly: true}
	some.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128")}
	want := map[string]apikey.Key{all.ID: all, none.ID: none, some.ID: some}
	for _, k := range want {
		if err := db.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	used := at.Add(time.Minute)
	if err := db.TouchKeys(ctx, map[string]time.Time{all.ID: used, some.ID: used, "key_none": used}); err != nil {
		t.Errorf("TouchKeys gives %v, want nil also for a key that is gone", err)
	}
	if err := db.TouchKeys(ctx, nil); err != nil {
		t.Errorf("TouchKeys of nothing gives %v", err)
	}
	if err := db.RevokeKey(ctx, some.ID, at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{some.ID, "key_none"} { // revoked already; not there
		if err := db.RevokeKey(ctx, id, at.Add(time.Hour)); !errors.Is(err, apikey.ErrNotFound) {
			t.Errorf("RevokeKey(%s) gives %v, want ErrNotFound", id, err)
		}
	}
	all.LastUsedAt, some.LastUsedAt, some.RevokedAt = used, used, at.Add(time.Second)
	want[all.ID], want[some.ID] = all, some
	keys, err := db.Keys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]apikey.Key{}
	for _, k := range keys {
		got[k.ID] = k
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" { // nil and empty Models differ
		t.Errorf("Keys differ (-want +got):\n%s", diff)
	}
}

func TestCreateKey_Refused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	k := key(addAccount(t, db, "Acme"))
	if err := db.CreateKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	sameHash, nobodys := k, key("acct_none")
	sameHash.ID = ident.New(ident.Key)
	for name, bad := range map[string]apikey.Key{"an id in use": k, "a hash in use": sameHash, "no such account": nobodys} {
		if err := db.CreateKey(ctx, bad); err == nil {
			t.Errorf("CreateKey with %s succeeds", name)
		}
	}
	if keys, err := db.Keys(ctx); err != nil || len(keys) != 1 {
		t.Errorf("Keys = %v, %v, want one", keys, err)
	}
}

// What can be changed of a key is written, and nothing else of it.
func TestUpdateKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	k, gone := key(acct), key(acct)
	for _, k := range []apikey.Key{k, gone} {
		if err := db.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.RevokeKey(ctx, gone.ID, at); err != nil {
		t.Fatal(err)
	}
	k.Name, k.Models, k.ExpiresAt, k.RPM, k.TPM = "phone", []string{"m"}, at.Add(time.Hour), 7, 8
	k.Scopes, k.Networks = account.ScopeBilling, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	k.Budget = account.Budget{ID: "budget_x", Amount: 5, Monthly: true}
	other := k
	other.Prefix, other.Last4, other.CreatedAt, other.LastUsedAt, other.ReplacedBy, other.RevokedAt = "x", "x", at.Add(time.Hour), at, gone.ID, at
	if err := db.UpdateKey(ctx, other); err != nil {
		t.Fatal(err)
	}
	for _, k := range []apikey.Key{gone, key(acct)} {
		if err := db.UpdateKey(ctx, k); !errors.Is(err, apikey.ErrNotFound) {
			t.Errorf("UpdateKey of %s gives %v, want ErrNotFound", k.ID, err)
		}
	}
	gone.RevokedAt = at
	keys, err := db.Keys(ctx)
	byID := cmpopts.SortSlices(func(a, b apikey.Key) bool { return a.ID < b.ID })
	if diff := cmp.Diff([]apikey.Key{k, gone}, keys, byID, cmpopts.EquateComparable(netip.Prefix{})); err != nil || diff != "" {
		t.Errorf("Keys: %v (-want +got):\n%s", err, diff)
	}
}

// A key is replaced once: by both rows, or by none.
func TestReplaceKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	old, next, late := key(acct), key(acct), key(acct)
	if err := db.CreateKey(ctx, old); err != nil {
		t.Fatal(err)
	}
	old.ReplacedBy, old.ExpiresAt = next.ID, at.Add(time.Hour)
	if err := db.ReplaceKey(ctx, old, next); err != nil {
		t.Fatal(err)
	}
	if err := db.RevokeKey(ctx, next.ID, at); err != nil {
		t.Fatal(err)
	}
	for _, k := range []apikey.Key{old, next, key(acct)} { // replaced, revoked, not there
		if err := db.ReplaceKey(ctx, k, late); !errors.Is(err, apikey.ErrReplaced) {
			t.Errorf("ReplaceKey of %s gives %v, want ErrReplaced", k.ID, err)
		}
	}
	next.RevokedAt = at
	keys, err := db.Keys(ctx)
	slices.SortFunc(keys, func(a, b apikey.Key) int { return strings.Compare(a.ID, b.ID) })
	want := []apikey.Key{old, next}
	slices.SortFunc(want, func(a, b apikey.Key) int { return strings.Compare(a.ID, b.ID) })
	if diff := cmp.Diff(want, keys); err != nil || diff != "" {
		t.Errorf("Keys: %v (-want +got):\n%s", err, diff)
	}
}

func TestKeys_DamagedRow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tamper := range []string{
		`UPDATE api_key SET hash = x'00112233'`,
		`UPDATE api_key SET hash = hash || x'00'`,
		`UPDATE api_key SET models = 'm'`,
		`UPDATE api_key SET scopes = 'chat root'`,
		`UPDATE api_key SET scopes = ''`,
		`UPDATE api_key SET networks = '10.0.0.0/8 anywhere'`,
	} {
		db := open(t, t.TempDir())
		if err := db.CreateKey(ctx, key(addAccount(t, db, "Acme"))); err != nil {
			t.Fatal(err)
		}
		exec(t, db, tamper)
		if keys, err := db.Keys(ctx); err == nil {
			t.Errorf("after %s Keys = %v, want an error: a key that opens the wrong things is worse than none", tamper, keys)
		}
	}
}

func TestSaveCatalog(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	save := func(price money.Amount, tpm int64) (priceID, version string) {
		t.Helper()
		m := model()
		m.Price.Output = price
		models, plans := []catalog.Model{m}, []account.Plan{{ID: "pro", RPM: 60, TPM: tpm}}
		if err := db.SaveCatalog(ctx, models, plans); err != nil {
			t.Fatalf("SaveCatalog: %v", err)
		}
		return models[0].PriceID, plans[0].Version
	}
	price, version := save(20, 1000)
	if p, v := save(20, 1000); p != price || v != version {
		t.Errorf("the same again has rows %s and %s, want %s and %s", p, v, price, version)
	}
	if got := query[int](t, db, `SELECT count(*) FROM model_price`) + query[int](t, db, `SELECT count(*) FROM plan_version`); got != 2 {
		t.Errorf("%d rows for one price and one plan, want 2", got)
	}
	dearer, version2 := save(21, 1000)
	if dearer == price || version2 != version {
		t.Errorf("a changed price has rows %s and %s, want a new price and %s", dearer, version2, version)
	}
	_, faster := save(21, 1001)
	if faster == version {
		t.Error("a changed limit keeps its row")
	}
	if p, v := save(20, 1000); p != price || v != version {
		t.Errorf("changed back it has rows %s and %s, want the old %s and %s", p, v, price, version)
	}
	if got := query[int](t, db, `SELECT output FROM model_price WHERE id = $1`, price); got != 20 {
		t.Errorf("the first price says %d, want 20 for ever", got)
	}
}

// Two plans or prices that say different things never share a row.
func TestSaveCatalog_RowsAreDistinct(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	versions := map[string]account.Plan{}
	n := []int64{0, 1, 10, 0xd800, 0xd801, 1_114_111, 1_114_112, 2_000_000, 3_000_000, 1 << 62}
	for _, rpm := range n {
		for _, tpm := range n {
			plans := []account.Plan{{ID: "pro", RPM: rpm, TPM: tpm}, {ID: "p", RPM: rpm, TPM: tpm}, {ID: "pro", RPM: rpm, Concurrency: tpm + 1}, {ID: "pro", RPM: rpm, ModelLimits: map[string]ratelimit.Limits{"m": {Tokens: tpm + 1}}}}
			if err := db.SaveCatalog(ctx, nil, plans); err != nil {
				t.Fatal(err)
			}
			for _, p := range plans {
				if other, ok := versions[p.Version]; ok {
					t.Errorf("%+v and %+v share a row", p, other)
				}
				versions[p.Version] = p
			}
		}
	}
	prices := map[string]money.Price{}
	for _, p := range []money.Price{{}, {Input: 1}, {CachedInput: 1}, {Output: 1}, {Input: 2_000_000}, {Input: 3_000_000}, {Input: 12, Output: 3}, {Input: 1, Output: 23}} {
		m := model()
		m.Price = p
		id := savePrice(t, db, m)
		if other, ok := prices[id]; ok {
			t.Errorf("%+v and %+v share a row", p, other)
		}
		prices[id] = p
	}
}

// A plan's version says which models it opens, in whatever order they are configured.
func TestSaveCatalog_PlanModels(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	a, b, c := model(), model(), model()
	a.ID, b.ID, c.ID, c.Plans = "a", "b", "c", []string{"max"}
	version := func(models ...catalog.Model) string {
		t.Helper()
		plans := []account.Plan{{ID: "pro"}}
		if err := db.SaveCatalog(ctx, models, plans); err != nil {
			t.Fatal(err)
		}
		return plans[0].Version
	}
	ab := version(a, b, c)
	if got := query[string](t, db, `SELECT models FROM plan_version WHERE id = $1`, ab); got != `["a","b"]` {
		t.Errorf("the row says %s, want a and b", got)
	}
	if got := version(c, b, a); got != ab {
		t.Error("the order of the configuration makes another version")
	}
	if got := version(a, c); got == ab {
		t.Error("a plan that lost a model keeps its version")
	}
}

// A price that the database refuses leaves no plan and no other price behind.
func TestSaveCatalog_AllOrNothing(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	good, bad := model(), model()
	bad.ID, bad.Price.Input = "bad", -1
	if err := db.SaveCatalog(context.Background(), []catalog.Model{good, bad}, []account.Plan{{ID: "pro"}}); err == nil {
		t.Error("SaveCatalog of a negative price succeeds")
	}
	if got := query[int](t, db, `SELECT (SELECT count(*) FROM model_price) + (SELECT count(*) FROM plan_version)`); got != 0 {
		t.Errorf("%d rows are left, want 0", got)
	}
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct, other := addAccount(t, db, "Acme"), addAccount(t, db, "Other")
	commit(t, db, grant(acct, 10_000, ""), grant(other, 10_000, ""))
	var want []ledger.Receipt
	for i := range 5 {
		r := receipt(acct, price, i%2 == 0)
		r.RequestID = fmt.Sprintf("req_%032x", 0x0190_0000+i) // ids sort as the calls began
		want = append(want, r)
		o := receipt(other, price, false)
		commit(t, db, ledger.Op{Close: &r}, ledger.Op{Close: &o})
	}
	slices.Reverse(want) // newest first
	for _, c := range []struct{ limit, want int }{{0, 0}, {1, 1}, {3, 3}, {5, 5}, {100, 5}} {
		got, err := db.Receipts(ctx, acct, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[:c.want], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Receipts of limit %d differ (-want +got):\n%s", c.limit, diff)
		}
	}
	if got, err := db.Receipts(ctx, "acct_none", 10); err != nil || len(got) != 0 {
		t.Errorf("Receipts of nobody = %v, %v, want none", got, err)
	}
}

// Limits are counted again from the receipts of all accounts, in the order of the calls.
func TestReceiptsSince(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	accounts := []string{addAccount(t, db, "Acme"), addAccount(t, db, "Other")}
	commit(t, db, grant(accounts[0], 10_000, ""), grant(accounts[1], 10_000, ""))
	var all []ledger.Receipt
	for i := range 6 {
		r := receipt(accounts[i%2], price, false)
		r.CreatedAt = at.Add(time.Duration(i) * time.Second)
		all = append(all, r)
	}
	for _, i := range []int{3, 0, 5, 1, 4, 2} { // they end in another order than they begin
		commit(t, db, ledger.Op{Close: &all[i]})
	}
	for after, want := range map[time.Duration][]ledger.Receipt{
		-time.Second: all, 0: all, time.Microsecond: all[1:], 3 * time.Second: all[3:], time.Minute: nil,
	} {
		got, err := db.ReceiptsSince(ctx, at.Add(after))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("ReceiptsSince %s later: %v (-want +got):\n%s", after, err, diff)
		}
	}
}

func TestOpenHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, 10_000, ""))
	first, second := receipt(acct, price, true), receipt(acct, price, true)
	second.Budget = ledger.Budget{ID: "budget_x", Period: 202611}
	commit(t, db, ledger.Op{Open: &second}, ledger.Op{Open: &first})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).OpenHolds(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var want []ledger.Receipt
	for _, r := range []ledger.Receipt{first, second} {
		want = append(want, ledger.Receipt{
			RequestID: r.RequestID, CompletionID: r.CompletionID, AccountID: acct, KeyID: "key_x", Model: "m",
			PriceID: price, Price: model().Price, PlanVersion: "plan_x", Stream: true, CreatedAt: at,
			PromptTokens: 10, OutputLimit: 20, Hold: 500, State: ledger.Running, Budget: r.Budget,
		})
	}
	slices.SortFunc(want, func(a, b ledger.Receipt) int { return strings.Compare(a.RequestID, b.RequestID) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("OpenHolds after reopening differ (-want +got):\n%s", diff)
	}
}

func TestCommit_Results(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct, other := addAccount(t, db, "Acme"), addAccount(t, db, "Other")
	stream, whole := receipt(acct, price, true), receipt(acct, price, false)
	once := grant(acct, 1000, "invoice 1")
	again := grant(acct, 999, "invoice 1")
	again.Grant.CreatedAt = at.Add(time.Hour)
	got := commit(t, db,
		once, again, grant(other, 7, "invoice 1"), grant(acct, 1, ""), grant(acct, 1, ""), grant("acct_none", 5, "x"),
		ledger.Op{Open: &stream}, ledger.Op{Close: &stream}, ledger.Op{Close: &stream},
		ledger.Op{Close: &whole}, ledger.Op{Close: &whole},
	)
	yes, no := ledger.Result{Applied: true}, ledger.Result{}
	granted := ledger.Result{Applied: true, At: at}
	want := []ledger.Result{granted, {At: at}, granted, granted, granted, no, yes, yes, no, yes, no}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Commit differs (-want +got):\n%s", diff)
	}
	totals, err := db.Totals(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(totals, func(a, b ledger.Totals) int { return strings.Compare(a.AccountID, b.AccountID) })
	if want := []ledger.Totals{{AccountID: acct, Granted: 1002, Posted: 440}, {AccountID: other, Granted: 7}}; !slices.Equal(totals, want) {
		t.Errorf("Totals = %+v, want %+v", totals, want)
	}
	if n := query[int](t, db, `SELECT count(*) FROM hold`); n != 0 {
		t.Errorf("%d holds are left, want 0", n)
	}
	clean(t, db)
}

// A charge counts for the budget that it cites, once, in its period and no other.
func TestCommit_Budgets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, 10_000, ""))
	on := func(id string, period int64) ledger.Op {
		r := receipt(acct, price, false)
		r.Budget = ledger.Budget{ID: id, Period: period, Amount: 1} // admission has decided
		return ledger.Op{Close: &r}
	}
	twice := on("a", 202611)
	none := receipt(acct, price, false)
	stream := receipt(acct, price, true)
	stream.Budget = ledger.Budget{ID: "held", Period: 0}
	commit(t, db, on("a", 202611), twice, twice, on("a", 202612), on("b", 0), ledger.Op{Close: &none}, ledger.Op{Open: &stream})
	commit(t, db, on("a", 202611), twice)
	got, err := db.Budgets(ctx)
	slices.SortFunc(got, func(a, b ledger.BudgetTotal) int {
		return stdcmp.Or(stdcmp.Compare(a.ID, b.ID), stdcmp.Compare(a.Period, b.Period))
	})
	want := []ledger.BudgetTotal{{ID: "a", Period: 202611, Spent: 660}, {ID: "a", Period: 202612, Spent: 220}, {ID: "b", Spent: 220}, {ID: "held"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Budgets: %v (-want +got):\n%s", err, diff)
	}
	clean(t, db)
}

func TestCommit_Nothing(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	if got := commit(t, db); len(got) != 0 {
		t.Errorf("Commit of no op = %v", got)
	}
}

// One op that cannot be written takes back those before it and stops those after it.
func TestCommit_AllOrNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		bad  func(acct, price string) ledger.Op
	}{
		{"a hold of nobody", func(_, price string) ledger.Op {
			r := receipt("acct_none", price, true)
			return ledger.Op{Open: &r}
		}},
		{"a hold twice", func(acct, price string) ledger.Op {
			r := receipt(acct, price, true)
			r.RequestID = "req_taken"
			return ledger.Op{Open: &r}
		}},
		{"a charge without a price", func(acct, _ string) ledger.Op {
			r := receipt(acct, "price_none", false)
			return ledger.Op{Close: &r}
		}},
		{"a charge of nobody", func(_, price string) ledger.Op {
			r := receipt("acct_none", price, false)
			return ledger.Op{Close: &r}
		}},
		{"a charge below zero", func(acct, price string) ledger.Op {
			r := receipt(acct, price, false)
			r.Charge = -1
			return ledger.Op{Close: &r}
		}},
		{"a charge above the credit", func(acct, price string) ledger.Op {
			r := receipt(acct, price, false)
			r.Charge = 1_000_000
			return ledger.Op{Close: &r}
		}},
		{"a state that is not final", func(acct, price string) ledger.Op {
			r := receipt(acct, price, false)
			r.State = ledger.Running
			return ledger.Op{Close: &r}
		}},
		{"a grant of nothing", func(acct, _ string) ledger.Op { return grant(acct, 0, "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := open(t, t.TempDir())
			price := savePrice(t, db, model())
			acct := addAccount(t, db, "Acme")
			taken := receipt(acct, price, true)
			taken.RequestID = "req_taken"
			commit(t, db, grant(acct, 5000, ""), ledger.Op{Open: &taken})
			before := books(t, db)

			stream, whole := receipt(acct, price, true), receipt(acct, price, false)
			whole.Budget = ledger.Budget{ID: "budget_x"}
			ops := []ledger.Op{grant(acct, 1000, "x"), {Open: &stream}, {Close: &whole}, c.bad(acct, price), {Close: &stream}}
			if _, err := db.Commit(context.Background(), ops); err == nil {
				t.Fatal("Commit succeeds")
			}
			if diff := cmp.Diff(before, books(t, db)); diff != "" {
				t.Errorf("the books changed (-before +after):\n%s", diff)
			}
			ops = slices.Delete(ops, 3, 4)
			commit(t, db, ops...) // the connection is as good as before
			clean(t, db)
		})
	}
}

func TestCommit_ContextEnded(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := db.Commit(ctx, []ledger.Op{grant(acct, 5, "")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit gives %v, want context.Canceled", err)
	}
	if got := commit(t, db, grant(acct, 6, "")); !got[0].Applied {
		t.Errorf("Commit afterwards = %+v", got)
	}
	if got := query[int](t, db, `SELECT granted FROM account`); got != 6 {
		t.Errorf("granted = %d, want 6", got)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Accounts":      func() error { _, err := db.Accounts(ctx); return err },
		"CreateAccount": func() error { return db.CreateAccount(ctx, account.Account{}) },
		"UpdateAccount": func() error { return db.UpdateAccount(ctx, account.Account{}) },
		"Keys":          func() error { _, err := db.Keys(ctx); return err },
		"CreateKey":     func() error { return db.CreateKey(ctx, apikey.Key{}) },
		"ReplaceKey":    func() error { return db.ReplaceKey(ctx, apikey.Key{}, apikey.Key{}) },
		"UpdateKey":     func() error { return db.UpdateKey(ctx, apikey.Key{}) },
		"RevokeKey":     func() error { return db.RevokeKey(ctx, "", at) },
		"TouchKeys":     func() error { return db.TouchKeys(ctx, nil) },
		"SaveCatalog":   func() error { return db.SaveCatalog(ctx, nil, nil) },
		"Totals":        func() error { _, err := db.Totals(ctx); return err },
		"Budgets":       func() error { _, err := db.Budgets(ctx); return err },
		"OpenHolds":     func() error { _, err := db.OpenHolds(ctx); return err },
		"Commit":        func() error { _, err := db.Commit(ctx, nil); return err },
		"Receipts":      func() error { _, err := db.Receipts(ctx, "", 1); return err },
		"ReceiptsSince": func() error { _, err := db.ReceiptsSince(ctx, at); return err },
		"Verify":        func() error { _, err := db.Verify(ctx); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s of a closed database succeeds", name)
		}
	}
}

// books is every row that Commit can touch.
func books(t testing.TB, db *store.DB) map[string][][]any {
	t.Helper()
	all := map[string][][]any{}
	for _, table := range []string{"account", "credit_grant", "terms", "outcome", "hold_row", "charge_row", "budget"} {
		rs, err := db.Writer().QueryContext(context.Background(), `SELECT * FROM `+table+` ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		all[table] = scan(t, rs)
	}
	return all
}

func scan(t testing.TB, rs *sql.Rows) (rows [][]any) {
	t.Helper()
	defer rs.Close()
	columns, err := rs.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rs.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rs.Scan(into...); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := rs.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}
