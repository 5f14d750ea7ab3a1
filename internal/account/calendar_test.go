package account_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/subscription"
)

// Whatever is done to subscriptions, whichever plans there are and wherever the clock is, nothing is
// due when Due has been there, and it says when something will be: as who asks each of them finds.
func TestDue_LeavesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(seed, 5))
			p := process(t, t.TempDir())
			offers := [][]account.Plan{p.directory.Plans(), {{ID: "pro", Terms: subscription.Terms{Tokens: 10, Grace: 50 * 24 * time.Hour}}}, nil}
			now := time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)
			var ids []string
			for i := range 8 {
				ids = append(ids, create(t, p.directory, fmt.Sprint("a", i)).ID)
			}
			for range 100 {
				id := ids[chance.IntN(len(ids))]
				ctx, plan := t.Context(), []string{"pro", "max"}[chance.IntN(2)]
				switch chance.IntN(10) { // what is refused changes nothing
				case 0, 1, 2:
					o := subscription.Options{Manual: chance.IntN(2) == 0}
					if !o.Manual && chance.IntN(3) == 0 {
						o.Until = now.Add(time.Duration(chance.Int64N(int64(90 * 24 * time.Hour))))
					}
					_, _ = p.Set(ctx, id, plan, o, now)
				case 3:
					_, _ = p.Renew(ctx, id, now)
				case 4:
					_, _ = p.Cancel(ctx, id, chance.IntN(2) == 0, now)
				case 5:
					_, _ = p.Change(ctx, id, plan, account.ByRank, now)
				case 6:
					p.directory.SetPlans(offers[chance.IntN(len(offers))])
				case 7:
					canceled, cancel := context.WithCancel(ctx) // a process that is stopping
					cancel()
					_, _ = p.Due(canceled, now)
				default:
					now = now.Add(time.Duration(chance.Int64N(int64(25*24*time.Hour))) - 2*24*time.Hour)
				}
				next, err := p.Due(ctx, now)
				if err != nil {
					t.Fatal(err)
				}
				checkNothingDue(t, p, now, next)
			}
			p.verify(t)
		})
	}
}

// A subscription that ends with a period that is paid for, whose plan is gone, is past due until
// its grace is over, also where that is behind the period: nothing is due in between, and Due ends.
func TestDue_GoneAhead(t *testing.T) {
	t.Parallel()
	p, ctx := process(t, t.TempDir()), t.Context()
	const day = 24 * time.Hour
	p.directory.SetPlans([]account.Plan{{ID: "pro", Terms: subscription.Terms{Tokens: 10, Grace: 50 * day}}})
	id, now := create(t, p.directory, "a").ID, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err1 := p.Set(ctx, id, "pro", subscription.Options{Manual: true}, now)
	_, err2 := p.Renew(ctx, id, now)
	_, err3 := p.Cancel(ctx, id, false, now)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	p.directory.SetPlans(nil)
	over := time.Date(2030, 2, 1, 0, 0, 0, 0, time.UTC).Add(50 * day)
	for _, days := range []int{32, 65, 80} { // the paid period ends on the 59th
		next, err := p.Due(ctx, now.AddDate(0, 0, days))
		if err != nil || !next.Equal(over) {
			t.Errorf("on day %d Due = %v, %v, want %v", days, next, err, over)
		}
	}
	if next, err := p.Due(ctx, over); err != nil || !next.IsZero() {
		t.Errorf("when the grace is over Due = %v, %v, want never", next, err)
	}
}

// The calendar has an entry for each subscription, however often it was looked at, and however many
// look at once.
func TestDue_CalendarStaysSmall(t *testing.T) {
	t.Parallel()
	p := process(t, t.TempDir())
	now := time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)
	const accounts = 5
	for i := range accounts {
		a := create(t, p.directory, fmt.Sprint("a", i))
		if _, err := p.Set(t.Context(), a.ID, "pro", subscription.Options{}, now); err != nil {
			t.Fatal(err)
		}
	}
	for range 24 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := p.Due(context.Background(), now); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := p.directory.Appointments(); n < accounts || n > 2*accounts { // two that look at once may both note it
			t.Errorf("%d entries for %d subscriptions", n, accounts)
		}
		now = now.AddDate(0, 1, 0)
	}
	for _, a := range p.directory.All() {
		if _, err := p.Cancel(t.Context(), a.ID, true, now); err != nil {
			t.Fatal(err)
		}
	}
	if next, err := p.Due(t.Context(), now); err != nil || !next.IsZero() || p.directory.Appointments() != 0 {
		t.Errorf("Due = %v, %v with %d entries, want none when all have ended", next, err, p.directory.Appointments())
	}
}

// checkNothingDue asks every account.
func checkNothingDue(t *testing.T, p *paid, now, next time.Time) {
	t.Helper()
	terms := func(plan string) (subscription.Terms, bool) {
		found, ok := p.directory.Plan(plan)
		if !ok {
			return subscription.Terms{}, false
		}
		terms := found.Terms
		terms.Plan, terms.Version = found.ID, found.Version
		return terms, true
	}
	var want time.Time
	for _, a := range p.directory.All() {
		if turn, due := a.Subscription.Due(terms, now); due {
			t.Errorf("at %v %s of %+v is due", now, turn.Action, a.Subscription)
		}
		if at := a.Subscription.Next(); !at.IsZero() && (want.IsZero() || at.Before(want)) {
			want = at
		}
	}
	if !next.Equal(want) {
		t.Errorf("at %v Due says %v, want %v", now, next, want)
	}
}

// A look at the clock where nothing is due costs the same whatever the number of accounts.
func BenchmarkDue(b *testing.B) {
	for _, n := range []int{1000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			p := process(b, dir)
			subscribe(b, dir, n)
			if err := p.directory.Load(b.Context()); err != nil {
				b.Fatal(err)
			}
			now := time.Date(2027, 1, 15, 0, 0, 0, 0, time.UTC)
			if _, err := p.Due(b.Context(), now); err != nil { // a start looks at all
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Due(b.Context(), now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// subscribe adds so many accounts, each with a period that ends in February 2027.
func subscribe(b *testing.B, dir string, n int) {
	b.Helper()
	db := storetest.Plain(b, filepath.Join(dir, store.FileName))
	defer db.Close()
	start, end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	for _, s := range []string{
		fmt.Sprintf(`INSERT INTO account (number, id, name, plan, status, created_at)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, 'acct_' || i, 'a' || i, 'pro', 'active', 1 FROM n`, n),
		fmt.Sprintf(`INSERT INTO subscription (id, account_id, revision, status, plan, every, anchor, base, period, starts_at, ends_at, paid, tokens, credit, created_at)
			SELECT 'sub_' || number, id, 1, 'active', 'pro', 'month', %d + number, 1, 1, %d + number, %d + number, 1, 1000, 7, 1 FROM account`, start, start, end),
	} {
		if _, err := db.ExecContext(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}
