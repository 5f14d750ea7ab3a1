package store_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// used is a month of one account at its edges, and a call of another: two keys and two
// models, two calls in one hour, in one batch and in two.
func used(t testing.TB) (k kept, account string) {
	t.Helper()
	k.DB = open(t, t.TempDir())
	m, n := model(), model()
	n.ID = "n"
	prices := map[string]string{"m": savePrice(t, k.DB, m), "n": savePrice(t, k.DB, n)}
	account = addAccount(t, k.DB, "Acme")
	other := addAccount(t, k.DB, "Other")
	g := grant(account, 10_000, "")
	g.Grant.CreatedAt = time.Date(2026, 10, 31, 23, 59, 59, 999_999_000, time.UTC)
	late := grant(account, 50, "")
	late.Grant.CreatedAt = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	commit(t, k.DB, g, late, grant(other, 1000, ""))
	charge := func(who, model, key string, at time.Time) ledger.Op {
		r := receipt(who, prices[model], false)
		r.Model, r.KeyID, r.CreatedAt = model, key, at
		return ledger.Op{Close: &r}
	}
	hour := func(month time.Month, d, h int) time.Time { return time.Date(2026, month, d, h, 0, 0, 0, time.UTC) }
	commit(t, k.DB, charge(account, "m", "key_a", hour(10, 31, 23)), charge(account, "m", "key_a", hour(11, 1, 0)),
		charge(account, "m", "key_a", hour(11, 1, 0).Add(59*time.Minute)), charge(other, "m", "key_o", hour(11, 1, 0)))
	commit(t, k.DB, charge(account, "m", "key_a", hour(11, 1, 0).Add(time.Hour-1)), charge(account, "n", "key_a", hour(11, 1, 5)),
		charge(account, "m", "key_b", hour(11, 30, 23)), charge(account, "m", "key_a", hour(12, 1, 0)))
	void := charge(account, "m", "key_b", hour(11, 30, 23))
	void.Close.State, void.Close.PromptTokens, void.Close.CachedTokens, void.Close.CompletionTokens, void.Close.Charge = ledger.Voided, 0, 0, 0, 0
	commit(t, k.DB, void, void, // the same call twice counts once
		ledger.Op{Debit: &ledger.Debit{ID: ident.New(ident.Debit), AccountID: account, Amount: 30, Reason: "wrong", CreatedAt: hour(11, 2, 3)}})
	clean(t, k.DB)
	return k, account
}

func TestUsage(t *testing.T) {
	t.Parallel()
	k, account := used(t)
	from, to := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	calls := func(group string, n, voided int64) ledger.Usage {
		return ledger.Usage{Group: group, Calls: n + voided, PromptTokens: 10 * n, CachedTokens: 4 * n, CompletionTokens: 7 * n, Charge: money.Amount(220 * n)}
	}
	for by, want := range map[ledger.By][]ledger.Usage{
		ledger.ByKey:   {calls("key_a", 4, 0), calls("key_b", 1, 1)},
		ledger.ByModel: {calls("m", 4, 1), calls("n", 1, 0)},
		ledger.ByDay:   {calls("2026-11-01", 4, 0), calls("2026-11-30", 1, 1)},
		ledger.ByHour:  {calls("2026-11-01T00", 3, 0), calls("2026-11-01T05", 1, 0), calls("2026-11-30T23", 1, 1)},
	} {
		got, err := k.Usage(context.Background(), account, from, to, by)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
	}
	if _, err := k.Usage(context.Background(), account, from, to, "moon"); err == nil {
		t.Error("usage by moon")
	}
}

// Each month begins where the one before ended, and the last ends at the balance.
func TestStatement(t *testing.T) {
	t.Parallel()
	k, account := used(t)
	var closing money.Amount
	lines := map[time.Month]int{}
	for month := time.September; month <= time.December; month++ {
		from := time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC)
		s, err := k.Statement(context.Background(), account, from, from.AddDate(0, 1, 0))
		if err != nil {
			t.Fatal(err)
		}
		if s.Opening != closing {
			t.Errorf("%s opens with %d after %d", month, s.Opening, closing)
		}
		for _, l := range s.Lines {
			if l.At.Month() != month {
				t.Errorf("%s has a line of %s", month, l.At)
			}
			closing += l.Amount
		}
		if s.Closing != closing {
			t.Errorf("%s closes with %d, its lines with %d", month, s.Closing, closing)
		}
		lines[month] = len(s.Lines)
		whole, err := k.MonthlyStatement(context.Background(), account, from, from.AddDate(0, 1, 0))
		if err != nil || whole.Opening != s.Opening || whole.Closing != s.Closing || len(whole.Lines) > len(s.Lines) {
			t.Errorf("%s by months: %+v, %v, want the sums of %+v", month, whole, err, s)
		}
	}
	if diff := cmp.Diff(map[time.Month]int{9: 0, 10: 2, 11: 5, 12: 1}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if balance := query[money.Amount](t, k.DB, `SELECT granted - posted FROM account WHERE name = 'Acme'`); closing != balance {
		t.Errorf("the statements end at %d, the balance is %d", closing, balance)
	}
}

// Usage is filtered by key and model, and says how calls ended.
func TestUsageOf(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	all := someCalls(t, db, rand.New(rand.NewPCG(3, 4)), []string{acct}, 400)
	from, to := at.Truncate(time.Hour), at.Truncate(time.Hour).Add(8*time.Hour)
	for _, f := range []ledger.UsageFilter{{}, {KeyID: "key_1"}, {Model: "n"}, {KeyID: "key_2", Model: "m"}, {KeyID: "key_9"}} {
		f.AccountID, f.From, f.To = acct, from, to
		want := map[string]ledger.Usage{}
		for _, r := range all {
			if r.CreatedAt.Before(from) || !r.CreatedAt.Before(to) || f.KeyID != "" && f.KeyID != r.KeyID || f.Model != "" && f.Model != r.Model {
				continue
			}
			u := want[r.Model]
			u.Group = r.Model
			u.Calls++
			u.PromptTokens += int64(r.PromptTokens)
			u.CachedTokens += int64(r.CachedTokens)
			u.CompletionTokens += int64(r.CompletionTokens)
			u.Charge += r.Charge
			switch r.Class() {
			case ledger.Failed:
				u.Failed++
			case ledger.Refused:
				u.Refused++
			case ledger.Left:
				u.Left++
			}
			want[r.Model] = u
		}
		list, err := db.UsageOf(ctx, f, ledger.ByModel)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]ledger.Usage{}
		for _, u := range list {
			got[u.Group] = u
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", f, diff)
		}
	}
}

// The pace is the mean of full days: not of today, and not of the day of the first call.
func TestPace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	today := at.Truncate(24 * time.Hour)
	commit(t, db, grant(acct, 1_000_000, ""))
	for _, c := range []struct {
		day  int // of the call, before today
		want ledger.Pace
	}{
		{0, ledger.Pace{}},
		{1, ledger.Pace{}},
		{2, ledger.Pace{PerDay: 220, Days: 1}},
		{4, ledger.Pace{PerDay: 440 / 3, Days: 3}},
		{30, ledger.Pace{PerDay: 660 / 7, Days: 7}},
		{8, ledger.Pace{PerDay: 660 / 7, Days: 7}},
		{7, ledger.Pace{PerDay: 880 / 7, Days: 7}},
	} {
		r := receipt(acct, price, false)
		r.CreatedAt = today.AddDate(0, 0, -c.day).Add(23 * time.Hour)
		commit(t, db, ledger.Op{Close: &r})
		got, err := db.Pace(ctx, acct, today.Add(23*time.Hour+59*time.Minute))
		if err != nil || got != c.want {
			t.Errorf("with a call %d days ago: %+v, %v, want %+v", c.day, got, err, c.want)
		}
	}
	if got, err := db.Pace(ctx, "acct_none", at); err != nil || got != (ledger.Pace{}) {
		t.Errorf("the pace of nobody: %+v, %v", got, err)
	}
}
