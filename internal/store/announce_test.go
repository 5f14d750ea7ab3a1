package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/webhook"
)

// told is what waits for an endpoint, in order: kind and data.
func told(t *testing.T, db *store.DB, endpoint string) (list []string) {
	t.Helper()
	ctx := context.Background()
	all, err := db.Deliveries(ctx, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, d := range slices.Backward(all) {

		if d.Endpoint != endpoint {
			continue
		}
		var body struct {
			ID      string
			Type    string
			Created int64
			Data    map[string]any
		}
		if err := json.Unmarshal(d.Body, &body); err != nil {
			t.Fatalf("%s: %v", d.Body, err)
		}
		if body.ID != d.EventID || len(body.ID) != 36 || ids[body.ID] || body.Type != d.Kind || body.Created < 1_700_000_000 || d.State != webhook.Waiting {
			t.Errorf("delivery %+v with the body %s", d, d.Body)
		}
		ids[body.ID] = true
		who := body.Data["account"].(map[string]any)
		delete(body.Data, "account")
		rest, err := json.Marshal(body.Data)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %s %s", body.Type, who["name"], rest))
	}
	return list
}

func TestAnnounce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	db := open(t, dir)
	a := account.Account{ID: addAccount(t, db, `A"c'me`), Plan: "pro", Status: account.Active}
	price := savePrice(t, db, model())
	const all, some = "https://a.example/it's?x=1", "https://b.example/"
	endpoints := []webhook.Endpoint{{URL: all}, {URL: some, Events: []string{webhook.AccountSuspended}}}
	commit(t, db, grant(a.ID, 1_000_000_500, "")) // nobody is told yet
	announce := func(e []webhook.Endpoint) {
		t.Helper()
		if err := db.Announce(ctx, e, money.IU); err != nil {
			t.Fatal(err)
		}
	}
	announce(endpoints)
	announce(endpoints) // as every start does
	exec(t, db, `DROP TRIGGER announce_credit_low`)
	announce(endpoints) // as the first start of a build whose triggers are others
	charge := func(amount money.Amount) ledger.Op {
		r := receipt(a.ID, price, false)
		r.Charge, r.WrittenOff = amount, 220-amount
		return ledger.Op{Close: &r}
	}
	commit(t, db, charge(220), charge(220)) // 1.00000006 are left
	commit(t, db, charge(60))               // exactly the threshold
	commit(t, db, charge(1))
	commit(t, db, charge(220)) // it was low before
	if _, err := db.Commit(ctx, []ledger.Op{grant(a.ID, money.IU, "x"), {Close: &ledger.Receipt{AccountID: "none"}}}); err == nil {
		t.Fatal("a commit for no account succeeds")
	}
	update := func(a account.Account) {
		t.Helper()
		if err := db.UpdateAccount(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	update(a) // nothing changes
	a.Status = account.Suspended
	update(a)
	a.Status, a.Plan = account.Active, "free"
	update(a)
	want := []string{
		`credit.low A"c'me {"balance":"0.999999999","threshold":"1"}`,
		`account.suspended A"c'me {}`,
		`account.activated A"c'me {}`,
	}
	if diff := cmp.Diff(want, told(t, db, all)); diff != "" {
		t.Errorf("told to all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:2], told(t, db, some)); diff != "" {
		t.Errorf("told to some (-want +got):\n%s", diff)
	}
	// Who is told of what is a change like others; a path may be a secret.
	log, err := db.AuditLog(ctx, "webhooks", 10)
	if err != nil || len(log) != 1 || log[0].Before != "" || strings.Contains(log[0].After, "it's") || !strings.Contains(log[0].After, `{"url":"https://b.example/#`) {
		t.Errorf("the audit log of the endpoints: %+v, %v, want one entry without paths", log, err)
	}
	// Without endpoints nobody writes.
	announce(nil)
	a.Status = account.Suspended
	update(a)
	if n := query[int](t, db, `SELECT count(*) FROM event`); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	soon := time.Now().Add(time.Hour)
	if n, _, err := db.ForgetEvents(ctx, soon, soon, 2); n != 2 || err != nil {
		t.Errorf("ForgetEvents = %d, %v, want 2", n, err)
	}
	if diff := cmp.Diff(want[2:], told(t, db, all)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// Credit that expires or is taken away can be low too.
func TestAnnounce_CreditLowWithoutACharge(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	const all = "https://a.example"
	if err := db.Announce(context.Background(), []webhook.Endpoint{{URL: all}}, money.IU); err != nil {
		t.Fatal(err)
	}
	for _, how := range []func(id string) ledger.Op{
		func(id string) ledger.Op {
			return ledger.Op{Debit: &ledger.Debit{ID: ident.New(ident.Debit), AccountID: id, Amount: money.IU, Reason: "wrong", CreatedAt: at}}
		},
		func(id string) ledger.Op {
			return ledger.Op{Expire: &ledger.Expire{AccountID: id, Now: at.Add(2 * time.Hour), Most: money.IU}}
		},
	} {
		id := addAccount(t, db, ident.New("account "))
		g := grant(id, money.IU, "")
		g.Grant.ExpiresAt = at.Add(time.Hour)
		before := len(told(t, db, all))
		commit(t, db, g)
		commit(t, db, how(id))
		if got := told(t, db, all)[before:]; len(got) != 1 || !strings.HasPrefix(got[0], "credit.low ") {
			t.Errorf("told %v, want that credit is low", got)
		}
	}
}

// An account's own threshold takes the place of the configuration's. A threshold that makes
// credit low is told of with the change itself, and only then.
func TestAnnounce_OwnThreshold(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	db := open(t, dir)
	a := account.Account{ID: addAccount(t, db, "Acme"), Plan: "pro", Status: account.Active}
	const all = "https://a.example"
	if err := db.Announce(ctx, []webhook.Endpoint{{URL: all}}, money.IU); err != nil {
		t.Fatal(err)
	}
	commit(t, db, grant(a.ID, 10*money.IU, ""))
	set := func(own bool, amount money.Amount) {
		t.Helper()
		a.LowCredit = account.Threshold{Own: own, Amount: amount}
		if err := db.UpdateAccount(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	take := func(amount money.Amount) {
		t.Helper()
		commit(t, db, ledger.Op{Debit: &ledger.Debit{ID: ident.New(ident.Debit), AccountID: a.ID, Amount: amount, Reason: "wrong", CreatedAt: at}})
	}
	set(true, 5*money.IU)
	take(4 * money.IU)
	take(money.IU)     // exactly the threshold
	take(money.IU / 2) // below
	set(true, 20*money.IU)
	set(true, money.IU/4) // not low any more
	take(4 * money.IU)    // below the configuration's, not below its own
	set(true, money.IU/2) // exactly what is left
	exec(t, db, `CREATE TRIGGER no BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'no'); END`)
	a.LowCredit.Amount = 2 * money.IU
	if err := db.UpdateAccount(ctx, a); err == nil {
		t.Fatal("a threshold without its audit entry is set")
	}
	exec(t, db, `DROP TRIGGER no`)
	set(false, 0)
	set(true, 0)
	take(money.IU / 2) // nothing is left
	want := []string{
		`credit.low Acme {"balance":"4.5","threshold":"5"}`,
		`credit.low Acme {"balance":"0.5","threshold":"1"}`,
	}
	if diff := cmp.Diff(want, told(t, db, all)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	accounts, err := open(t, dir).Accounts(ctx)
	if err != nil || len(accounts) != 1 || accounts[0].LowCredit != a.LowCredit {
		t.Errorf("read again: %+v, %v, want the threshold %+v", accounts, err, a.LowCredit)
	}
}

// Charges and a change of the threshold at once tell of each crossing once, and of none that
// was not: whoever was first, credit was low once.
func TestAnnounce_ThresholdBesideCharges(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	const all = "https://a.example"
	if err := db.Announce(ctx, []webhook.Endpoint{{URL: all}}, money.IU); err != nil {
		t.Fatal(err)
	}
	a := account.Account{ID: addAccount(t, db, "Acme"), Plan: "pro", Status: account.Active}
	price := savePrice(t, db, model())
	commit(t, db, grant(a.ID, 10*money.IU, ""))
	charged := make(chan error, 1)
	go func() {
		var err error
		for range 50 {
			r := receipt(a.ID, price, false)
			_, more := db.Commit(ctx, []ledger.Op{{Close: &r}})
			err = errors.Join(err, more)
		}
		charged <- err
	}()
	a.LowCredit = account.Threshold{Own: true, Amount: 10*money.IU - 25*220}
	if err := db.UpdateAccount(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := <-charged; err != nil {
		t.Fatal(err)
	}
	if got := told(t, db, all); len(got) != 1 || !strings.HasSuffix(got[0], `"threshold":"9.9999945"}`) {
		t.Errorf("told %v, want once that credit is low", got)
	}
	prove(t, db)
}

// A budget is told of when a tenth of it is left, and again when a hundredth is; of keys
// that took each other's place the last one says how much it is.
func TestAnnounce_Budgets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	who, price := addAccount(t, db, "Acme"), savePrice(t, db, model())
	commit(t, db, grant(who, money.IU, ""))
	const all = "https://a.example"
	if err := db.Announce(ctx, []webhook.Endpoint{{URL: all, Events: []string{webhook.BudgetLow, webhook.BudgetSpent}}}, 0); err != nil {
		t.Fatal(err)
	}
	k := key(who)
	k.Budget = account.Budget{ID: "budget_a", Amount: 1000, Monthly: true}
	if err := db.CreateKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	spend := func(amount money.Amount, period int64) {
		t.Helper()
		r := receipt(who, price, false)
		r.Charge, r.WrittenOff, r.Budget = amount, 220-amount, ledger.Budget{ID: "budget_a", Period: period}
		commit(t, db, ledger.Op{Close: &r})
	}
	for range 4 {
		spend(220, 202610)
	}
	spend(20, 202610) // 900
	spend(89, 202610) // 989
	spend(1, 202610)
	spend(10, 202610)
	spend(220, 202611)
	// In all, what was spent by the month counts.
	k.Budget = account.Budget{ID: "budget_a", Amount: 2000}
	if err := db.UpdateKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		spend(220, 0)
	}
	spend(140, 0)      // 1,800
	spend(179, 202611) // of a call that began before
	spend(1, 202611)
	want := []string{
		`budget.low Acme {"budget":"0.000001","key":{"id":"` + k.ID + `","name":"laptop"},"month":"2026-10","spent":"0.0000009"}`,
		`budget.spent Acme {"budget":"0.000001","key":{"id":"` + k.ID + `","name":"laptop"},"month":"2026-10","spent":"0.00000099"}`,
		`budget.low Acme {"budget":"0.000002","key":{"id":"` + k.ID + `","name":"laptop"},"month":null,"spent":"0.0000018"}`,
		`budget.spent Acme {"budget":"0.000002","key":{"id":"` + k.ID + `","name":"laptop"},"month":null,"spent":"0.00000198"}`,
	}
	if diff := cmp.Diff(want, told(t, db, all)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	prove(t, db)
}

// An event is of its change: of one that is rolled back nobody hears.
func TestEmit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	who := addAccount(t, db, "Acme")
	const all = "https://a.example"
	emit := func() error {
		return db.Emit(ctx, webhook.SubscriptionChanged, who, map[string]any{"plan": "pro"})
	}
	if err := emit(); err != nil || query[int](t, db, `SELECT count(*) FROM event`) != 0 {
		t.Errorf("Emit without endpoints: %v, and it writes", err)
	}
	if err := db.Announce(ctx, []webhook.Endpoint{{URL: all}}, 0); err != nil {
		t.Fatal(err)
	}
	if err := emit(); err != nil {
		t.Fatal(err)
	}
	if err := db.Emit(ctx, webhook.SubscriptionChanged, "acct_none", nil); err == nil {
		t.Error("an event of an account that does not exist is written")
	}
	exec(t, db, `CREATE TRIGGER no BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'no'); END`)
	if err := db.UpdateAccount(ctx, account.Account{ID: who, Plan: "pro", Status: account.Suspended}); err == nil {
		t.Fatal("a change without its audit entry is made")
	}
	if diff := cmp.Diff([]string{`subscription.changed Acme {"plan":"pro"}`}, told(t, db, all)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A migration changes tables that triggers name: it meets none, and the next Announce
// makes them anew.
func TestAnnounce_Migration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	if err := db.Announce(context.Background(), []webhook.Endpoint{{URL: "https://a.example"}}, money.IU); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	more := map[string]string{"9000_later.sql": `ALTER TABLE account DROP COLUMN tokens_posted`}
	if _, err := store.Migrate(context.Background(), dir, steps(t, "8999", more)); err != nil {
		t.Errorf("a migration of what triggers name: %v", err)
	}
}
