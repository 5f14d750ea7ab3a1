package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/webhook"
)

// turned is a turn as the ledger writes it.
func turned(t subscription.Turn) ledger.Op {
	op := &ledger.Turned{Turn: t, Actor: "test"}
	add := func(u ledger.Unit, amount int64) {
		if amount > 0 {
			op.Grants = append(op.Grants, ledger.Grant{
				ID: ident.New(ident.Grant), AccountID: t.Next.AccountID, Kind: ledger.Included, Unit: u, Amount: money.Amount(amount), Priority: 10,
				Note: "included", Source: t.Source(), CreatedAt: t.At, ExpiresAt: t.Next.IncludedUntil(), Subscription: t.Next.ID, Period: t.Next.Period,
			})
		}
	}
	add(ledger.Credit, int64(t.Credit))
	add(ledger.Tokens, t.Tokens)
	return ledger.Op{Turn: op}
}

var proTerms = subscription.Terms{Plan: "pro", Version: "plan_x", Tokens: 100, Credit: 40, Grace: time.Hour}

func always(string) (subscription.Terms, bool) { return proTerms, true }

func begun(t testing.TB, accountID string, old subscription.Subscription, now time.Time) subscription.Turn {
	t.Helper()
	turn, err := subscription.Begin(accountID, old, proTerms, subscription.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// subscribed is an account in its second period: the first one's 100 tokens are used for
// 10 by a charge, the rest is taken back; of the second 12 are held by a stream. A code
// was redeemed for 9.
type subscribed struct {
	*store.DB
	account, sub, charge string
}

func subscribe(t testing.TB) subscribed {
	t.Helper()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	a := addAccount(t, db, "Acme")
	first := begun(t, a, subscription.Subscription{}, at)
	whole, running := receipt(a, price, false), receipt(a, price, true)
	whole.PlanTokens, whole.Charge = 10, 220-6*10-4*5
	running.PlanTokens, running.Hold = 12, 0
	second, ok := first.Next.Due(always, first.Next.End)
	if !ok {
		t.Fatal("nothing follows")
	}
	code, _ := ledger.NewCode(ledger.Promo, 9, "test", time.Time{})
	if err := db.CreateCodes(context.Background(), []ledger.Code{code}); err != nil {
		t.Fatal(err)
	}
	results := commit(t, db, grant(a, 1000, ""), turned(first), ledger.Op{Close: &whole}, turned(second), ledger.Op{Open: &running},
		ledger.Op{Expire: &ledger.Expire{AccountID: a, Unit: ledger.Tokens, Now: second.At, Most: 1000}},
		ledger.Op{Redeem: &ledger.Redemption{Hash: code.Hash, Grant: ledger.Grant{
			ID: ident.New(ident.Grant), AccountID: a, Kind: ledger.Promo, Amount: 9, Priority: 20, Source: "code:" + code.ID, CreatedAt: at,
		}}})
	for i, r := range results {
		if !r.Applied || r.Refused != nil {
			t.Fatalf("op %d: %+v", i, r)
		}
	}
	return subscribed{db, a, first.Next.ID, whole.RequestID}
}

func TestVerify_PlansBroken(t *testing.T) {
	t.Parallel()
	const (
		included = "included tokens are the sum of their grants"
		tokens   = "no grant gave more tokens than it had"
		used     = "included tokens used are those of the charges"
		held     = "included tokens used and held are covered by what was granted"
		periods  = "what a period includes was granted once"
		codes    = "every code became credit at most once"
	)
	if k := subscribe(t); !t.Failed() {
		clean(t, k.DB)
	}
	for _, c := range []struct {
		name, tamper string
		want         []string
	}{
		{"tokens given", `UPDATE account SET tokens_granted = tokens_granted + 1`, []string{included}},
		{"a grant of tokens raised", `UPDATE token_grant SET amount = 101 WHERE period = 2`, []string{included, periods}},
		{"a grant of tokens twice", `INSERT INTO token_grant SELECT id || 'x', account_id, kind, amount, priority, note, source || 'x', actor, request_id, subscription_id, period, 0, 0, created_at, expires_at FROM token_grant WHERE period = 2`, []string{included, periods}},
		{"a grant of credit twice", `INSERT INTO credit_grant SELECT id || 'x', account_id, amount, note, source || 'x', created_at, kind, priority, expires_at, 0, 0, actor, request_id, subscription_id, period, 0, '' FROM credit_grant WHERE period = 2;
			UPDATE account SET granted = granted + 40`, []string{periods}},
		{"a period that nobody began", `UPDATE token_grant SET period = 3 WHERE period = 2`, []string{periods}},
		{"a period ahead of its subscription", `UPDATE subscription SET period = 1`, []string{periods}},
		{"tokens back", `DELETE FROM token_expiry; UPDATE account SET tokens_granted = tokens_granted + 90`, []string{included, tokens}},
		{"an expiry of no grant", `UPDATE token_expiry SET grant_id = 'none'`, []string{tokens}},
		{"burned more than was used", `UPDATE token_grant SET burned = 11 WHERE period = 2`, []string{tokens}},
		{"used less", `UPDATE account SET tokens_posted = 9`, []string{tokens, used}},
		{"a charge that used more", `UPDATE charge_row SET plan_tokens = 11`, []string{used, hourly, priced}},
		{"a charge that used more than there were", `UPDATE charge_row SET plan_tokens = 18, amount = 0; UPDATE usage_row SET plan_tokens = 18, amount = 0, most = 0;
			UPDATE account SET tokens_posted = 18, posted = 0`, []string{burned, priced}},
		{"a charge below nothing", `UPDATE charge_row SET plan_tokens = -1; UPDATE usage_row SET plan_tokens = -1`, []string{used, priced}},
		{"usage of fewer", `UPDATE usage_row SET plan_tokens = 9`, []string{hourly}},
		{"held beyond", `UPDATE hold_row SET plan_tokens = 101`, []string{held}},
		{"a code of more", `UPDATE redemption_code SET amount = 10`, []string{codes}},
		{"a code for another", `UPDATE redemption_code SET account_id = 'acct_none'`, []string{codes}},
		{"a code open again", `UPDATE redemption_code SET redeemed_at = NULL, account_id = NULL, grant_id = NULL`, []string{codes}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := subscribe(t)
			exec(t, k.DB, `PRAGMA foreign_keys = OFF`)
			exec(t, k.DB, `PRAGMA ignore_check_constraints = ON`)
			exec(t, k.DB, c.tamper)
			var broken []string
			for _, i := range verify(t, k.DB).Invariants {
				if !i.OK {
					broken = append(broken, i.Name)
					if i.Detail == "" || strings.Contains(i.Detail, "%!") {
						t.Errorf("%s: %q", i.Name, i.Detail)
					}
				}
			}
			slices.Sort(broken)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, broken); diff != "" {
				t.Errorf("broken (-want +got):\n%s", diff)
			}
		})
	}
}

// A turn that does not follow what is there changes nothing, and nothing else with it.
func TestTurn_Refused(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	a := addAccount(t, db, "Acme")
	first := begun(t, a, subscription.Subscription{}, at)
	second := begun(t, a, subscription.Subscription{}, at)
	foreign := begun(t, "acct_none", subscription.Subscription{}, at)
	next, _ := first.Next.Due(always, first.Next.End)
	got := commit(t, db, turned(foreign), turned(next), turned(first), turned(second), turned(first), turned(next), turned(next), grant(a, 5, ""))
	want := []error{ledger.ErrAccount, subscription.ErrChanged, nil, subscription.ErrChanged, subscription.ErrChanged, nil, subscription.ErrChanged, nil}
	for i, r := range got {
		if r.Refused != want[i] || r.Applied != (want[i] == nil) {
			t.Errorf("op %d: %+v, want %v", i, r, want[i])
		}
	}
	replaced := begun(t, a, next.Next, next.At)
	late := begun(t, a, first.Next, next.At) // made before the renewal was known
	if got := commit(t, db, turned(late), turned(replaced)); got[0].Refused != subscription.ErrChanged || !got[1].Applied {
		t.Errorf("%+v", got)
	}
	s, err := db.Subscription(context.Background(), a)
	if err != nil || s != replaced.Next {
		t.Errorf("Subscription = %+v, %v, want %+v", s, err, replaced.Next)
	}
	if n := query[int](t, db, `SELECT count(*) FROM subscription WHERE ended_at IS NULL`); n != 1 {
		t.Errorf("%d subscriptions run", n)
	}
	// What the replaced one included ends with it, at once.
	ended := query[int64](t, db, `SELECT max(expires_at) FROM token_grant WHERE subscription_id = ?`, next.Next.ID)
	if ended != next.At.UnixMicro() {
		t.Errorf("its tokens end at %d, want %d", ended, next.At.UnixMicro())
	}
	clean(t, db)
}

// Other systems are told of each change once, in its transaction.
func TestTurn_Told(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	a := addAccount(t, db, "Acme")
	const all = "https://a.example"
	if err := db.Announce(context.Background(), []webhook.Endpoint{{URL: all}}, 0); err != nil {
		t.Fatal(err)
	}
	first := begun(t, a, subscription.Subscription{}, at)
	next, _ := first.Next.Due(always, first.Next.End)
	gone := func(string) (subscription.Terms, bool) { return subscription.Terms{}, false }
	late, _ := next.Next.Due(gone, next.Next.End)
	over, _ := late.Next.Due(gone, next.Next.End.Add(time.Hour))
	commit(t, db, turned(first), turned(first), turned(next), turned(next), turned(late), turned(over), turned(over))
	var kinds []string
	for _, e := range told(t, db, all) {
		kind, _, _ := strings.Cut(e, " ")
		kinds = append(kinds, kind)
	}
	if diff := cmp.Diff([]string{webhook.SubscriptionChanged, webhook.SubscriptionRenewed, webhook.SubscriptionPastDue, webhook.SubscriptionEnded}, kinds); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A subscription of the schema before, a plan until a time, goes on as it was.
func TestMigrate_Subscriptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := store.Migrate(t.Context(), dir, steps(t, "0005", nil)); err != nil {
		t.Fatal(err)
	}
	until, now := at.AddDate(1, 0, 0), at.Add(time.Hour)
	plainSQL(t, dir,
		fmt.Sprintf(`INSERT INTO account (id, name, plan, status, created_at, sub_plan, sub_until) VALUES ('acct_1', 'One', 'free', 'active', %d, 'pro', %d)`, at.UnixMicro(), until.UnixMicro()),
		fmt.Sprintf(`INSERT INTO account (id, name, plan, status, created_at) VALUES ('acct_2', 'Two', 'free', 'active', %d)`, at.UnixMicro()),
		fmt.Sprintf(`INSERT INTO account (id, name, plan, status, created_at, sub_plan, sub_until) VALUES ('acct_3', 'Three', 'free', 'active', %d, 'pro', %d)`, at.UnixMicro(), at.UnixMicro()-1),
	)
	db := open(t, dir)
	clean(t, db)
	for _, c := range []struct {
		account string
		status  subscription.Status
		until   time.Time
	}{{"acct_1", subscription.Active, until}, {"acct_2", subscription.None, time.Time{}}, {"acct_3", subscription.Expired, at.Add(-time.Microsecond)}} {
		s, err := db.Subscription(t.Context(), c.account)
		if err != nil || s.Status(now) != c.status || !s.Until.Equal(c.until) {
			t.Errorf("%s: %+v, %v is %s, want %s until %v", c.account, s, err, s.Status(now), c.status, c.until)
		}
		if turn, due := s.Due(always, now); due {
			if got := commit(t, db, turned(turn)); !got[0].Applied || turn.Tokens > 0 {
				t.Errorf("%s: what is due is %+v: %+v", c.account, turn, got)
			}
		} else if c.status == subscription.Expired {
			t.Errorf("%s: its end is not due", c.account)
		}
	}
	clean(t, db)
}
