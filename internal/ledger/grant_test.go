package ledger_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// burned is what each grant of the account has burned and lost, by its note.
func (b *books) burned(t testing.TB, account string) map[string][2]money.Amount {
	t.Helper()
	grants, err := b.db.Grants(context.Background(), account)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][2]money.Amount{}
	for _, g := range grants {
		m[g.Note] = [2]money.Amount{g.Burned, g.Expired}
	}
	return m
}

func (b *books) grant(t testing.TB, g ledger.Grant) {
	t.Helper()
	if got, err := b.Grant(context.Background(), g); err != nil || !got.Added {
		t.Fatalf("Grant = %+v, %v", got, err)
	}
}

// spend charges the price of a prompt of 10 and n tokens: 100 + 20·n.
func (b *books) spend(t testing.TB, account string, n int) {
	t.Helper()
	h, err := b.Reserve(b.call(account, false, n))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Settle(done(n)); err != nil {
		t.Fatal(err)
	}
}

func (b *books) expire(t testing.TB, at time.Time) time.Time {
	t.Helper()
	next, err := b.ExpireDue(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// tamper runs plain SQL on the database of dir, which nobody has open.
func tamper(t testing.TB, dir, statement string) {
	t.Helper()
	db := storetest.Plain(t, filepath.Join(dir, store.FileName))
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// What was spent before a grant came does not burn it, however early it is in the order:
// else a later gift would take what was paid for.
func TestGrant_BurnsFromNowOn(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	b.grant(t, ledger.Grant{AccountID: a, Amount: 300, Note: "paid", ExpiresAt: time.Now().Add(time.Hour)})
	b.spend(t, a, 10)
	b.grant(t, ledger.Grant{AccountID: a, Amount: 500, Note: "gift", Kind: ledger.Promo})
	if diff := cmp.Diff(map[string][2]money.Amount{"paid": {300, 0}, "gift": {0, 0}}, b.burned(t, a)); diff != "" {
		t.Errorf("after the gift (-want +got):\n%s", diff)
	}
	b.spend(t, a, 0)
	b.expire(t, time.Now().Add(2*time.Hour))
	if diff := cmp.Diff(map[string][2]money.Amount{"paid": {300, 0}, "gift": {100, 0}}, b.burned(t, a)); diff != "" {
		t.Errorf("after a charge (-want +got):\n%s", diff)
	}
	b.verify(t)
}

func TestGrant_Refuses(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	if _, err := b.Grant(context.Background(), ledger.Grant{AccountID: a, Amount: 1, ExpiresAt: time.Now().Add(-time.Second)}); !errors.Is(err, ledger.ErrExpiry) {
		t.Errorf("a grant that has ended gives %v, want ErrExpiry", err)
	}
}

// What running calls hold of a grant that ends is theirs until they end; nobody else
// can hold it, and what they leave is taken then, once.
func TestExpire(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	b.grant(t, ledger.Grant{AccountID: a, Amount: 1000, Note: "promo", Kind: ledger.Promo, ExpiresAt: time.Now().Add(time.Hour)})
	b.grant(t, ledger.Grant{AccountID: a, Amount: 200, Note: "paid"})
	b.spend(t, a, 5) // 200
	h, err := b.Reserve(b.call(a, false, 20))
	if err != nil {
		t.Fatal(err)
	}
	if next := b.expire(t, time.Now()); !next.After(time.Now().Add(59 * time.Minute)) {
		t.Errorf("the next grant ends %v", next)
	}
	late := time.Now().Add(2 * time.Hour)
	b.expire(t, late)
	// 800 are left of the promo; 500 of 1,000 are held.
	if got, want := b.Balance(a), (ledger.Balance{Granted: 700, Posted: 200, Held: 500, Expiring: 300, Running: 1}); got != want || got.Available() != 0 {
		t.Errorf("Balance = %+v, want %+v with nothing available", got, want)
	}
	b.verify(t)
	if _, err := b.Reserve(b.call(a, false, 0)); err == nil {
		t.Error("what expires as soon as it is free could be held")
	}
	if _, err := h.Settle(done(5)); err != nil { // 200 of 500
		t.Fatal(err)
	}
	select {
	case <-b.ExpiryChanged():
	default:
		t.Error("nobody is told that the rest can be taken")
	}
	if got := b.Balance(a).Available(); got != 0 {
		t.Errorf("%d are available before the rest is taken, want 0", got)
	}
	for range 3 {
		b.expire(t, late)
	}
	if got, want := b.Balance(a), (ledger.Balance{Granted: 600, Posted: 400}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	if diff := cmp.Diff(map[string][2]money.Amount{"promo": {400, 600}, "paid": {0, 0}}, b.burned(t, a)); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	b.verify(t)
}

// A call burns what was waited for, and that is noted before anybody looks again: the
// credit that was kept from others for it is theirs.
func TestExpire_BurnedMeanwhile(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	b.grant(t, ledger.Grant{AccountID: a, Amount: 140, Note: "promo", Kind: ledger.Promo, ExpiresAt: time.Now().Add(time.Hour)})
	h, err := b.Reserve(b.call(a, false, 2))
	if err != nil {
		t.Fatal(err)
	}
	late := time.Now().Add(2 * time.Hour)
	b.expire(t, late)
	if got := b.Balance(a).Expiring; got != 140 {
		t.Errorf("%d wait for the call, want 140", got)
	}
	if _, err := h.Settle(done(2)); err != nil { // all of it
		t.Fatal(err)
	}
	b.grant(t, ledger.Grant{AccountID: a, Amount: 500, Note: "paid"})
	b.expire(t, late)
	if got, want := b.Balance(a), (ledger.Balance{Granted: 640, Posted: 140}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	b.verify(t)
}

// What ended while no process ran is gone before the first call.
func TestExpire_AtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir, nil)
	a := b.account(t, 70)
	b.grant(t, ledger.Grant{AccountID: a, Amount: 1000, ExpiresAt: time.Now().Add(time.Hour)})
	b.spend(t, a, 5)
	b.stop()
	tamper(t, dir, `UPDATE credit_grant SET expires_at = 1 WHERE expires_at > 1`)
	for range 2 {
		b = open(t, dir, nil)
		if got, want := b.Balance(a), (ledger.Balance{Granted: 270, Posted: 200}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
		b.verify(t)
		b.stop()
	}
}

// Grants come, are spent and end while many calls run: credit is never used twice, and
// in the end everything that has ended is gone, to the last digit.
func TestExpire_Storm(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 5_000)
	var wg, expirer sync.WaitGroup
	stop := make(chan struct{})
	expirer.Go(func() {
		for {
			b.expire(t, time.Now().Add(30*time.Minute)) // half of the grants have ended by then
			if got := b.Balance(a); got.Posted+got.Held > got.Granted {
				t.Errorf("posted and held exceed granted: %+v", got)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for range 60 {
				life := time.Duration(1+r.IntN(2)*59) * time.Minute
				b.grant(t, ledger.Grant{AccountID: a, Amount: money.Amount(1 + r.IntN(900)), Priority: 1 + r.IntN(3), ExpiresAt: time.Now().Add(life)})
				h, err := b.Reserve(b.call(a, false, r.IntN(20)))
				if err != nil {
					continue // others have it
				}
				if r.IntN(4) == 0 {
					err = h.Void(done(0))
				} else {
					_, err = h.Settle(done(r.IntN(h.OutputLimit() + 1)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	expirer.Wait()
	b.expire(t, time.Now().Add(2*time.Hour))
	grants, err := b.db.Grants(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	var left, lost money.Amount
	for _, g := range grants {
		if !g.ExpiresAt.IsZero() && g.Remaining() != 0 {
			t.Errorf("%d are left of a grant that has ended", g.Remaining())
		}
		left, lost = left+g.Remaining(), lost+g.Expired
	}
	if got := b.Balance(a); got.Available() != left || got.Held != 0 || got.Expiring != 0 || lost == 0 {
		t.Errorf("Balance = %+v with %d left of the grants and %d lost", got, left, lost)
	}
	b.verify(t)
}
