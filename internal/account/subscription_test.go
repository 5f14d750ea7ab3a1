package account_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/subscription"
)

// paid is a process that keeps the calendar of a database.
type paid struct {
	*account.Subscriptions
	directory *account.Directory
	ledger    *ledger.Ledger
	db        *store.DB
}

func process(t testing.TB, dir string) *paid {
	t.Helper()
	d, db := open(t, dir)
	d.SetPlans([]account.Plan{
		{ID: "pro", Terms: subscription.Terms{Tokens: 1000, Credit: 7, Grace: time.Hour}},
		{ID: "max", Rank: 1, Terms: subscription.Terms{Tokens: 3000, Credit: 9}},
	})
	progress, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := ledger.Open(context.Background(), db, progress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), progress.Close() })
	return &paid{account.NewSubscriptions(d, l), d, l, db}
}

// verify proves the books.
func (p *paid) verify(t testing.TB) {
	t.Helper()
	rep, err := p.db.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range rep.Invariants {
		if !i.OK {
			t.Errorf("%s: %s", i.Name, i.Detail)
		}
	}
}

// anchors are beginnings that calendars are hard on.
func anchors() []time.Time {
	var all []time.Time
	for _, d := range []struct {
		month time.Month
		day   int
	}{{1, 31}, {1, 30}, {1, 29}, {2, 29}, {2, 1}, {3, 31}, {10, 31}, {12, 31}, {3, 26}} {
		all = append(all, time.Date(2027, d.month, d.day, 1, 30, 0, 0, time.UTC)) // 29 February 2027 is 1 March
	}
	return append(all, time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(2027, 12, 31, 23, 59, 59, 999_999_000, time.UTC))
}

// Four executors renew every subscription three times each, over month ends, the 31st and
// a leap day: a period begins once and is granted once. The executors are of one process,
// or four processes, each with its own memory.
func TestDue_Executors(t *testing.T) {
	t.Parallel()
	for name, processes := range map[string]int{"one process": 1, "four processes": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := process(t, dir)
			var last time.Time
			for i, at := range anchors() {
				a := create(t, first.directory, fmt.Sprint("subscriber ", i))
				if _, err := first.Set(t.Context(), a.ID, "pro", subscription.Options{}, at); err != nil {
					t.Fatal(err)
				}
				if at.After(last) {
					last = at
				}
			}
			executors := []*paid{first}
			for len(executors) < 4 {
				if processes == 1 {
					executors = append(executors, first)
				} else {
					executors = append(executors, process(t, dir))
				}
			}
			months := 14
			for _, now := range boundaries(last, months) {
				var wg sync.WaitGroup
				for _, e := range executors {
					wg.Go(func() {
						for range 3 {
							if _, err := e.Due(context.Background(), now); err != nil {
								t.Errorf("Due(%v): %v", now, err)
							}
						}
					})
				}
				wg.Wait()
			}
			for _, e := range executors {
				if e != first {
					_ = e.ledger.Close()
				}
			}
			checkPeriods(t, dir, boundaries(last, months))
			if !t.Failed() {
				t.Attr("proof", fmt.Sprintf("T13; %s: %d subscriptions at %d moments, 12 renewals each; lost 0; duplicate 0; wrong 0; negative 0",
					name, len(anchors()), len(boundaries(last, months))))
			}
		})
	}
}

// boundaries are the moments before and at each possible end of a period, in order.
func boundaries(from time.Time, months int) []time.Time {
	var all []time.Time
	for _, at := range anchors() {
		for n := int64(1); ; n++ {
			end := subscription.Month.After(at, n)
			if end.After(from.AddDate(0, months, 0)) {
				break
			}
			all = append(all, end.Add(-time.Microsecond), end)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.Compact(all)
}

// checkPeriods takes back what has ended and counts by the calendar, and by plain SQL, what
// each account must have been granted.
func checkPeriods(t *testing.T, dir string, passed []time.Time) {
	t.Helper()
	now := passed[len(passed)-1]
	p := process(t, dir)
	if _, err := p.ledger.ExpireDue(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
	db := storetest.PlainReader(t, filepath.Join(dir, store.FileName))
	defer db.Close()
	for i, at := range anchors() {
		want := int64(1)
		for subscription.Month.After(at, want).Compare(now) <= 0 {
			want++
		}
		// What was left of the periods before is gone.
		var id string
		var periods, tokenGrants, creditGrants, tokens, credit int64
		if err := db.QueryRow(`SELECT id, tokens_granted - tokens_posted, granted - posted,
			(SELECT count(*) FROM subscription_period p JOIN subscription s ON s.id = p.subscription_id WHERE s.account_id = account.id),
			(SELECT count(*) FROM token_grant WHERE account_id = account.id), (SELECT count(*) FROM credit_grant WHERE account_id = account.id)
			FROM account WHERE name = ?`, fmt.Sprint("subscriber ", i)).Scan(&id, &tokens, &credit, &periods, &tokenGrants, &creditGrants); err != nil {
			t.Fatal(err)
		}
		if periods != want || tokenGrants != want || creditGrants != want || tokens != 1000 || credit != 7 {
			t.Errorf("since %v there were %d periods, %d grants of tokens and %d of credit, want %d; %d tokens and %d credit are left", at, periods, tokenGrants, creditGrants, want, tokens, credit)
		}
		for n := range want {
			// The period, and what it includes, once.
			var found int64
			if err := db.QueryRow(`SELECT count(*) FROM subscription_period p JOIN subscription s ON s.id = p.subscription_id
				JOIN token_grant t ON t.subscription_id = s.id AND t.account_id = s.account_id AND t.period = p.number
				JOIN credit_grant c ON c.subscription_id = s.id AND c.account_id = s.account_id AND c.period = p.number
				WHERE s.account_id = ? AND p.number = ? AND p.starts_at = ? AND p.tokens = 1000 AND p.credit = 7 AND t.amount = 1000 AND c.amount = 7
				AND t.expires_at = ? AND c.expires_at = ?`,
				id, n+1, subscription.Month.After(at, n).UnixMicro(), subscription.Month.After(at, n+1).UnixMicro(), subscription.Month.After(at, n+1).UnixMicro()).Scan(&found); err != nil || found != 1 {
				t.Errorf("since %v: period %d from %v is there %d times with what it includes, %v", at, n+1, subscription.Month.After(at, n), found, err)
			}
		}
	}
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	p := process(t, t.TempDir())
	a := create(t, p.directory, "Acme")
	ctx, now := t.Context(), time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC)
	tokens := func(want int64, credit money.Amount) {
		t.Helper()
		if b := p.ledger.Balance(a.ID); b.Tokens.Available() != want || b.Available() != credit {
			t.Errorf("%d tokens and %d credit, want %d and %d", b.Tokens.Available(), b.Available(), want, credit)
		}
		p.verify(t)
	}
	must := func(got *account.Account, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if in, _ := p.directory.ByID(a.ID); in != got {
			t.Error("the directory has another account")
		}
	}
	must(p.Set(ctx, a.ID, "pro", subscription.Options{}, now))
	tokens(1000, 7)
	must(p.Set(ctx, a.ID, "pro", subscription.Options{}, now)) // again: nothing new
	tokens(1000, 7)
	if a, _ := p.directory.ByID(a.ID); a.PlanAt(now) != "pro" || a.PlanAt(now.AddDate(1, 0, 0)) != "pro" {
		t.Error("its plan does not apply")
	}
	// A bigger plan at once: 15.5 of 31 days are left.
	now = time.Date(2030, 1, 25, 12, 0, 0, 0, time.UTC)
	must(p.Change(ctx, a.ID, "max", account.ByRank, now))
	tokens(1000+1000, 7+1)
	// A smaller one with the next period, which is of it.
	must(p.Change(ctx, a.ID, "pro", account.ByRank, now))
	if a, _ := p.directory.ByID(a.ID); a.PlanAt(now) != "max" || a.Subscription.NextPlan != "pro" {
		t.Errorf("on %s, then %s", a.PlanAt(now), a.Subscription.NextPlan)
	}
	now = time.Date(2030, 2, 10, 0, 0, 0, 0, time.UTC)
	if _, err := p.Due(ctx, now); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ledger.ExpireDue(ctx, now); err != nil {
		t.Fatal(err)
	}
	tokens(1000, 7)
	if a, _ := p.directory.ByID(a.ID); a.PlanAt(now) != "pro" {
		t.Errorf("on %s", a.PlanAt(now))
	}
	// An earlier end takes what it includes with it.
	must(p.Set(ctx, a.ID, "pro", subscription.Options{Until: now.Add(time.Hour)}, now))
	next, err := p.Due(ctx, now)
	if err != nil || !next.Equal(now.Add(time.Hour)) {
		t.Errorf("Due = %v, %v", next, err)
	}
	now = now.Add(time.Hour)
	if _, err := p.Due(ctx, now); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ledger.ExpireDue(ctx, now); err != nil {
		t.Fatal(err)
	}
	tokens(0, 0)
	// Another plan takes the place of the one that runs; canceling at once takes back.
	must(p.Set(ctx, a.ID, "pro", subscription.Options{Manual: true}, now))
	must(p.Set(ctx, a.ID, "max", subscription.Options{}, now.Add(time.Hour)))
	tokens(3000, 9)
	must(p.Cancel(ctx, a.ID, true, now.Add(2*time.Hour)))
	tokens(0, 0)
	if a, _ := p.directory.ByID(a.ID); a.Subscription.Status(now.Add(2*time.Hour)) != subscription.Canceled || a.PlanAt(now.Add(2*time.Hour)) != "pro" {
		t.Errorf("after it: %+v", a)
	}
	for _, c := range []struct {
		err  error
		want error
	}{
		{second(p.Set(ctx, "acct_no", "pro", subscription.Options{}, now)), account.ErrNotFound},
		{second(p.Set(ctx, a.ID, "gold", subscription.Options{}, now)), account.ErrPlan},
		{second(p.Set(ctx, a.ID, "pro", subscription.Options{Until: now}, now)), subscription.ErrUntil},
		{second(p.Change(ctx, a.ID, "gold", account.AtOnce, now)), account.ErrPlan},
		{second(p.Change(ctx, a.ID, "pro", "soon", now)), account.ErrWhen},
		{second(p.Cancel(ctx, a.ID, true, now.Add(3*time.Hour))), subscription.ErrNone},
		{second(p.Renew(ctx, a.ID, now.Add(3*time.Hour))), subscription.ErrNone},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A start has what the last process wrote.
func TestSubscriptions_Kept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := process(t, dir)
	a := create(t, p.directory, "Acme")
	now := time.Date(2030, 1, 31, 1, 2, 3, 456_000, time.UTC)
	_, err := p.Set(t.Context(), a.ID, "pro", subscription.Options{Manual: true}, now)
	if err == nil {
		_, err = p.Renew(t.Context(), a.ID, now)
	}
	if err == nil {
		_, err = p.Change(t.Context(), a.ID, "max", account.AtPeriodEnd, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	before, _ := p.directory.ByID(a.ID)
	again := process(t, dir)
	if after, _ := again.directory.ByID(a.ID); after.Subscription != before.Subscription {
		t.Errorf("after a start\n%+v, before\n%+v", after.Subscription, before.Subscription)
	}
	// The first process has changed it meanwhile; the second one finds out.
	if _, err := p.Cancel(t.Context(), a.ID, false, now); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Cancel(t.Context(), a.ID, true, now); err != nil {
		t.Fatal(err)
	}
	if sub, err := p.db.Subscription(t.Context(), a.ID); err != nil || sub.Revision != 5 || !sub.Canceled {
		t.Errorf("%+v, %v", sub, err)
	}
}

// Who hangs up while a subscription ends leaves nobody with the plan: memory says what the books say.
func TestCancel_HungUp(t *testing.T) {
	t.Parallel()
	p := process(t, t.TempDir())
	a, err := p.directory.Create(t.Context(), "acme", "pro")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err := p.Set(t.Context(), a.ID, "max", subscription.Options{}, now); err != nil {
		t.Fatal(err)
	}
	hungUp, hangUp := context.WithCancel(t.Context())
	hangUp()
	_, err = p.Cancel(hungUp, a.ID, true, now)
	written, failed := p.db.Subscription(t.Context(), a.ID)
	if failed != nil {
		t.Fatal(failed)
	}
	known, _ := p.directory.ByID(a.ID)
	if !known.Subscription.EndedAt.Equal(written.EndedAt) || written.EndedAt.IsZero() == (err == nil) {
		t.Errorf("Cancel gives %v, the books say that it ended %v, and the plan is %s", err, written.EndedAt, known.PlanAt(now))
	}
	if got := p.ledger.Balance(a.ID); err == nil && (got.Granted != 0 || got.Tokens.Granted != 0) {
		t.Errorf("what the period included is left: %+v", got)
	}
	p.verify(t)
}
