package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
)

// TestUsageOf_Remembered: whatever ranges were asked for before, and with charges that come
// late, usage is what the rows by the hour add up to.
func TestUsageOf_Remembered(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	accounts := []string{addAccount(t, db, "Acme"), addAccount(t, db, "Other")}
	commit(t, db, grant(accounts[0], 1_000_000, ""), grant(accounts[1], 1_000_000, ""))
	rng := rand.New(rand.NewPCG(3, 4))
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -100)
	charge := func() {
		r := receipt(accounts[rng.IntN(2)], price, false)
		r.CreatedAt = begin.Add(time.Duration(rng.Int64N(int64(101 * 24 * time.Hour)))).Truncate(time.Microsecond)
		r.RequestID = fmt.Sprintf("%s7000%016x", ident.RequestIDsSince(r.CreatedAt), rng.Uint64())
		r.CompletionID, r.KeyID = ident.CompletionOf(r.RequestID), fmt.Sprint("key_", rng.IntN(3))
		commit(t, db, ledger.Op{Close: &r})
	}
	for range 200 {
		charge()
	}
	for range 300 {
		from := begin.AddDate(0, 0, rng.IntN(100))
		to := from.AddDate(0, 0, 1+rng.IntN(40))
		if rng.IntN(4) == 0 { // no whole days
			from, to = from.Add(time.Duration(rng.Int64N(24))*time.Hour+1), to.Add(time.Duration(rng.Int64N(24))*time.Hour+1)
		}
		f := ledger.UsageFilter{AccountID: accounts[rng.IntN(2)], From: from, To: to, KeyID: []string{"", "key_1"}[rng.IntN(2)]}
		by := []ledger.By{ledger.ByKey, ledger.ByModel, ledger.ByDay, ledger.ByHour}[rng.IntN(4)]
		got, err := db.UsageOf(t.Context(), f, by)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(counted(t, db, f), sumOf(got), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%+v by %s (-rows +got):\n%s", f, by, diff)
		}
		if rng.IntN(3) == 0 {
			charge()
		}
	}
}

// dying is a context that ends when it has been looked at so often.
type dying struct {
	context.Context
	end  context.CancelFunc
	left atomic.Int64
}

func (d *dying) Done() <-chan struct{} {
	if d.left.Add(-1) == 0 {
		d.end()
	}
	return d.Context.Done()
}

// TestUsageOf_OutOfTime: wherever a reader runs out of time, the next one is told the right keys.
func TestUsageOf_OutOfTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	price := savePrice(t, db, model())
	account := addAccount(t, db, "Acme")
	commit(t, db, grant(account, 1_000_000, ""))
	r := receipt(account, price, false)
	commit(t, db, ledger.Op{Close: &r})
	f := ledger.UsageFilter{AccountID: account, From: r.CreatedAt.Add(-time.Hour), To: r.CreatedAt.Add(time.Hour)}
	failed := 0
	for looks := int64(1); ; looks++ {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, dir)
		ctx, end := context.WithCancel(t.Context())
		short := &dying{Context: ctx, end: end}
		short.left.Store(looks)
		_, err := db.UsageOf(short, f, ledger.ByKey)
		end()
		got, again := db.UsageOf(t.Context(), f, ledger.ByKey)
		if again != nil || len(got) != 1 || got[0].Group != r.KeyID {
			t.Fatalf("after %d looks and %v: %+v, %v", looks, err, got, again)
		}
		if err == nil {
			break
		}
		failed++
	}
	if failed == 0 {
		t.Error("no reader ran out of time")
	}
}

// counted is what the charges themselves add up to.
func counted(t *testing.T, db *store.DB, f ledger.UsageFilter) ledger.Usage {
	t.Helper()
	const hour = time.Hour
	where := fmt.Sprintf(`FROM charge WHERE account_id = '%s' AND created_at >= %d AND created_at < %d AND ('%[4]s' = '' OR key_id = '%[4]s')`,
		f.AccountID, f.From.Truncate(hour).UnixMicro(), f.To.Truncate(hour).UnixMicro(), f.KeyID)
	return ledger.Usage{
		Calls:        query[int64](t, db, `SELECT count(*) `+where),
		PromptTokens: query[int64](t, db, `SELECT coalesce(sum(prompt_tokens), 0) `+where),
	}
}

func sumOf(us []ledger.Usage) ledger.Usage {
	var sum ledger.Usage
	for i := range us {
		sum.Add(&us[i])
	}
	return ledger.Usage{Calls: sum.Calls, PromptTokens: sum.PromptTokens}
}

// TestUsageOf_WhileCharging: who asks again after a charge of a day that is over sees it.
func TestUsageOf_WhileCharging(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	commit(t, db, grant(acct, 1_000_000, ""))
	f := ledger.UsageFilter{AccountID: acct, From: at.AddDate(0, 0, -1).Truncate(24 * time.Hour), To: at.AddDate(0, 0, 2).Truncate(24 * time.Hour)}
	var group sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := db.UsageOf(t.Context(), f, ledger.ByModel); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := int64(1); n <= 200; n++ {
		r := receipt(acct, price, false)
		commit(t, db, ledger.Op{Close: &r})
		if got, err := db.UsageOf(t.Context(), f, ledger.ByModel); err != nil || len(got) != 1 || got[0].Calls != n {
			t.Errorf("after %d charges usage is %+v, %v", n, got, err)
			break
		}
	}
	close(done)
	group.Wait()
}
