package simulation_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

func TestCore_Share(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		credit   money.Amount
		back, of int64
		want     money.Amount
	}{
		{100, 0, 10, 0},
		{100, -1, 10, 0},
		{100, 0, 0, 0},
		{100, 1, 10, 10},
		{100, 1, 3, 33}, // rounded down
		{100, 2, 3, 66},
		{100, 9, 10, 90},
		{100, 10, 10, 100},
		{100, 11, 10, 100},
		{100, 5, 0, 100}, // nobody knows of how much: all of it
		{100, 5, -1, 100},
		{1, 999, 1000, 0},
		{1<<63 - 1, 1<<62 - 1, 1 << 62, 1<<63 - 3}, // beyond 64 bits on the way
	} {
		p := ledger.Payment{Credit: tt.credit}
		if got := p.Share(tt.back, tt.of); got != tt.want {
			t.Errorf("%d of %d of %d is %d, want %d", tt.back, tt.of, tt.credit, got, tt.want)
		}
	}
}

func TestCore_Comparable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p        ledger.Payment
		currency string
		want     bool
	}{
		{ledger.Payment{Paid: 1, Currency: "eur"}, "eur", true},
		{ledger.Payment{Paid: 1, Currency: "eur"}, "usd", false},
		{ledger.Payment{Paid: 0, Currency: "eur"}, "eur", false},
		{ledger.Payment{Paid: 1}, "", false},
		{ledger.Payment{Paid: 1}, "eur", false},
	} {
		if got := tt.p.Comparable(tt.currency); got != tt.want {
			t.Errorf("%+v and %q: %v", tt.p, tt.currency, got)
		}
	}
}

func TestCore_Merge(t *testing.T) {
	t.Parallel()
	p := ledger.Payment{Credit: 100}
	claim := func(back, of int64, failed bool) ledger.Claim {
		return ledger.Claim{Part: "r", Kind: ledger.OneBack, Back: back, Of: of, Failed: failed}
	}
	var claims []ledger.Claim
	for i, tt := range []struct {
		claim ledger.Claim
		news  bool
		want  ledger.Claim // of part r
	}{
		{claim(1, 2, false), true, claim(1, 2, false)},
		{claim(1, 2, false), false, claim(1, 2, false)},
		{claim(2, 4, false), false, claim(1, 2, false)}, // the same share
		{claim(1, 3, false), false, claim(1, 2, false)},
		{ledger.Claim{Part: "r", Back: 2, Of: 2}, false, claim(1, 2, false)}, // only noted
		{ledger.Claim{Part: "s", Kind: ledger.Dispute, Back: 2, Of: 2}, true, claim(1, 2, false)},
		{claim(1, 3, true), true, claim(1, 2, true)},
		{claim(1, 2, false), false, claim(1, 2, true)}, // it has failed for good
		{claim(3, 4, false), true, claim(3, 4, true)},
	} {
		var news bool
		if claims, news = p.Merge(claims, tt.claim); news != tt.news || claims[0] != tt.want {
			t.Errorf("%d: Merge of %+v = %+v, %v; want %+v, %v", i, tt.claim, claims, news, tt.want, tt.news)
		}
	}
	if len(claims) != 2 {
		t.Errorf("claims %+v, want one of each part", claims)
	}
}

func TestCore_Due(t *testing.T) {
	t.Parallel()
	p := ledger.Payment{Credit: 100, Paid: 3}
	dispute := func(back int64) ledger.Claim { return ledger.Claim{Kind: ledger.Dispute, Back: back, Of: 3} }
	sum := ledger.Claim{Kind: ledger.Refunds, Back: 1, Of: 2} // as its charge has it
	for i, tt := range []struct {
		claims []ledger.Claim
		want   money.Amount
	}{
		{nil, 0},
		{[]ledger.Claim{dispute(1)}, 33},
		{[]ledger.Claim{dispute(1), dispute(1)}, 66},
		{[]ledger.Claim{dispute(2), dispute(2)}, 100},
		{[]ledger.Claim{dispute(2), dispute(2), dispute(2)}, 100},
		{[]ledger.Claim{sum}, 50},
		{[]ledger.Claim{sum, dispute(1)}, 83},
		{[]ledger.Claim{dispute(2), sum}, 100},
		{[]ledger.Claim{sum, {Part: "r", Kind: ledger.OneBack, Back: 1, Of: 3, Failed: true}}, 0},
		{[]ledger.Claim{{Part: "r", Kind: ledger.OneBack, Back: 1, Of: 3}}, 33},
	} {
		if got := p.Due(tt.claims); got != tt.want {
			t.Errorf("%d: Due(%+v) = %d, want %d", i, tt.claims, got, tt.want)
		}
	}
}

// What is there is taken, what running calls hold and what has ended is not, and the rest is
// written off.
func TestCore_Reverse(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 1000, Source: "pay"})
		pay := ledger.Payment{AccountID: account, Source: "pay", Credit: 1000}
		reverse := func(source, part string, back int64) ledger.Reversed {
			t.Helper()
			got, err := b.Reverse(t.Context(), ledger.Reversal{Payment: pay, Source: source, Claim: ledger.Claim{Part: part, Kind: ledger.Dispute, Back: back, Of: 10}})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		want := func(got, want ledger.Reversed, balance ledger.Balance) {
			t.Helper()
			if got != want || b.Balance(account) != balance {
				t.Errorf("Reverse = %+v, Balance %+v; want %+v, %+v", got, b.Balance(account), want, balance)
			}
		}
		want(reverse("1", "a", 3), ledger.Reversed{Added: true, Taken: 300}, ledger.Balance{Granted: 1000, Posted: 300})
		if v := b.disk.reversed[0].message; v.DebitID == "" || v.Actor != "system" || !v.CreatedAt.Equal(time.Now()) {
			t.Errorf("the debit is %+v", v)
		}
		want(reverse("1", "a", 3), ledger.Reversed{}, ledger.Balance{Granted: 1000, Posted: 300})
		want(reverse("2", "a", 2), ledger.Reversed{Added: true}, ledger.Balance{Granted: 1000, Posted: 300})
		want(reverse("3", "b", 0), ledger.Reversed{Added: true}, ledger.Balance{Granted: 1000, Posted: 300})
		h := b.reserve(t, b.call("req_1", 20, 20)) // 500
		want(reverse("4", "b", 3), ledger.Reversed{Added: true, Taken: 200, WrittenOff: 100}, ledger.Balance{Granted: 1000, Posted: 500, Held: 500, Running: 1})
		if err := h.Void(used(0)); err != nil {
			t.Fatal(err)
		}
		want(reverse("5", "a", 10), ledger.Reversed{Added: true, Taken: 400}, ledger.Balance{Granted: 1000, Posted: 900})
		want(reverse("6", "c", 10), ledger.Reversed{Added: true}, ledger.Balance{Granted: 1000, Posted: 900})
		for _, c := range []ledger.Claim{
			{Kind: ledger.Dispute, Back: -1, Of: 10},
			{Kind: ledger.Dispute, Back: 1, Of: -1},
			{Kind: ledger.Dispute, Back: 1, Of: 0},
			{Kind: ledger.Dispute, Back: ledger.MaxBack + 1, Of: 10},
			{Kind: ledger.Dispute, Back: 1, Of: ledger.MaxBack + 1},
		} {
			if _, err := b.Reverse(t.Context(), ledger.Reversal{Payment: pay, Source: "7", Claim: c}); !errors.Is(err, ledger.ErrAmount) {
				t.Errorf("Reverse of %+v gives %v", c, err)
			}
		}
		most := ledger.Reversal{Payment: pay, Source: "7", Claim: ledger.Claim{Part: "a", Kind: ledger.Dispute, Back: ledger.MaxBack, Of: ledger.MaxBack}}
		if got, err := b.Reverse(t.Context(), most); err != nil || got != (ledger.Reversed{Added: true}) {
			t.Errorf("Reverse of the most = %+v, %v", got, err)
		}
		noted := ledger.Reversal{Payment: pay, Source: "8", Claim: ledger.Claim{Part: "d", Back: 10, Of: 10}, ByHand: true}
		if got, err := b.Reverse(t.Context(), noted); err != nil || got != (ledger.Reversed{Added: true}) {
			t.Errorf("Reverse of what is only noted = %+v, %v", got, err)
		}
	})
}

// Messages that are told again take nothing and leave what they could have taken to others: what
// two set aside at once was written off by the second.
func TestCore_ReverseTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 1000, Source: "pay"})
		message := func(source string, back int64) ledger.Reversal {
			return ledger.Reversal{
				Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 1000}, Source: source,
				Claim: ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: back, Of: 10},
			}
		}
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		var wg sync.WaitGroup
		var added atomic.Int64
		for range 3 {
			wg.Go(func() {
				got, err := b.Reverse(t.Context(), message("1", 3))
				if got.Added {
					added.Add(1)
				}
				if err != nil || got != (ledger.Reversed{}) && got != (ledger.Reversed{Added: true, Taken: 300}) {
					t.Errorf("one of three told at once: %+v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() {
			if _, err := b.ExpireDue(t.Context(), time.Now()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if got, err := b.Reverse(t.Context(), message("2", 9)); err != nil || got != (ledger.Reversed{Added: true, Taken: 600}) {
			t.Errorf("Reverse = %+v, %v; want all of 600 taken", got, err)
		}
		wg.Wait()
		if n := added.Load(); n != 1 {
			t.Errorf("%d of three told at once were new", n)
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 1000, Posted: 900}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	})
}

// What an expiry sets aside may be more than is left to take when it is written: a reversal waits
// for that, and does not write off what is there.
func TestCore_ReverseBesideExpiry(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 500, ExpiresAt: time.Now().Add(time.Minute)})
		b.grant(t, ledger.Grant{Amount: 500, Source: "pay"})
		h := b.reserve(t, b.call("req_1", 10, 10)) // 300
		pass(time.Minute)
		end := time.Now()
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		results := make(chan error, 4)
		for _, do := range []func() error{ // the first is being written while the others come, in their order
			func() error { return b.Adjust(t.Context(), account, 1, "") },
			func() error { _, err := h.Settle(used(10)); return err }, // 299 of what has ended
			func() error { _, err := b.ExpireDue(t.Context(), end); return err },
			func() error {
				got, err := b.Reverse(t.Context(), ledger.Reversal{
					Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 500}, Source: "1",
					Claim: ledger.Claim{Part: "a", Kind: ledger.Dispute, Back: 10, Of: 10},
				})
				if got.Taken != 500 || got.WrittenOff != 0 {
					t.Errorf("Reverse = %+v, want all of 500 taken", got)
				}
				return err
			},
		} {
			go func() { results <- do() }()
			synctest.Wait()
		}
		for range 4 {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 800, Posted: 800}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	})
}

// While it is on its way nobody else spends what it takes; a disk that fails frees nothing.
func TestCore_ReverseOnItsWay(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 1000, Source: "pay"})
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		r := ledger.Reversal{Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 1000}, Source: "1", Claim: ledger.Claim{Part: "a", Kind: ledger.Dispute, Back: 3, Of: 10}}
		ended := make(chan error)
		go func() {
			_, err := b.Reverse(t.Context(), r)
			ended <- err
		}()
		synctest.Wait()
		if got := b.Balance(account).Held; got != 300 {
			t.Errorf("%d are set aside, want 300", got)
		}
		if _, err := b.Reserve(b.call("req_1", 31, 31)); err == nil {
			t.Error("a call was admitted on credit that is being taken")
		}
		select {
		case <-b.ExpiryChanged():
			t.Error("told to look before it was taken")
		default:
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		select {
		case <-b.ExpiryChanged(): // what it had set aside and not taken may have ended
		default:
			t.Error("nobody is told to look for what ends")
		}
		b.disk.fates = func() fate { return refused }
		r.Source = "2"
		if got, err := b.Reverse(t.Context(), r); !errors.Is(err, ledger.ErrUnavailable) || got != (ledger.Reversed{}) {
			t.Errorf("Reverse on a failed disk = %+v, %v", got, err)
		}
	})
}

// What a refund has taken that failed is granted again: less what was written off for it, once, and
// no more than nothing else of the payment makes due.
func TestCore_ReverseFailed(t *testing.T) {
	t.Parallel()
	all := func(back int64) ledger.Claim {
		return ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: back, Of: 3}
	}
	one := func(part string, back int64, failed bool) ledger.Claim {
		return ledger.Claim{Part: part, Kind: ledger.OneBack, Back: back, Of: 3, Failed: failed}
	}
	lost := ledger.Claim{Part: "dp", Kind: ledger.Dispute, Back: 2, Of: 3}
	for _, tt := range []struct {
		name   string
		spent  money.Amount // before
		claims []ledger.Claim
		last   ledger.Reversed // what became of the last one
		left   money.Amount
	}{
		{"taken and given back", 0, []ledger.Claim{all(3), one("r", 3, true)}, ledger.Reversed{Returned: 100}, 100},
		{"told again", 0, []ledger.Claim{all(3), one("r", 3, true), one("r", 3, true), all(3)}, ledger.Reversed{}, 100},
		{"told before", 0, []ledger.Claim{one("r", 3, true), all(3)}, ledger.Reversed{}, 100},
		{"never taken", 0, []ledger.Claim{one("r", 3, true)}, ledger.Reversed{}, 100},
		{"it does not arrive later", 0, []ledger.Claim{one("r", 3, true), one("r", 3, false)}, ledger.Reversed{}, 100},
		{"a third of it", 0, []ledger.Claim{all(2), one("r", 1, true)}, ledger.Reversed{Returned: 33}, 67},
		{"each third", 0, []ledger.Claim{all(3), one("r", 1, true), one("s", 1, true), one("t", 1, true)}, ledger.Reversed{Returned: 33}, 100},
		{"the sum has gone down", 0, []ledger.Claim{all(3), one("r", 2, false), one("r", 2, true), one("s", 2, false), all(3)}, ledger.Reversed{}, 34},
		{"the sum goes on", 0, []ledger.Claim{all(1), one("r", 1, true), all(2)}, ledger.Reversed{Taken: 33}, 67},
		{"known before the sum", 0, []ledger.Claim{one("r", 3, false), all(3)}, ledger.Reversed{}, 0},
		{"one more by rounding", 0, []ledger.Claim{one("r", 1, false), one("s", 1, false)}, ledger.Reversed{Taken: 33}, 34},
		{"nothing was there", 100, []ledger.Claim{all(3), one("r", 3, true)}, ledger.Reversed{}, 0},
		{"some was there", 60, []ledger.Claim{all(3), one("r", 2, true)}, ledger.Reversed{Returned: 7}, 7},
		{"it was disputed too", 0, []ledger.Claim{all(3), lost, one("r", 3, true)}, ledger.Reversed{Returned: 34}, 34},
		{"disputed after it", 0, []ledger.Claim{all(3), one("r", 3, true), lost}, ledger.Reversed{Taken: 66}, 34},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 0, func(b *bench) {
				b.grant(b.t, ledger.Grant{Amount: 100, Source: "pay"})
				if tt.spent > 0 {
					if err := b.Adjust(b.t.Context(), account, -tt.spent, "spent"); err != nil {
						b.t.Fatal(err)
					}
				}
				var got ledger.Reversed
				for i, c := range tt.claims {
					var err error
					r := ledger.Reversal{Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 100, Paid: 3}, Source: fmt.Sprint("evt_", i), Claim: c}
					if got, err = b.Reverse(b.t.Context(), r); err != nil {
						b.t.Fatal(err)
					}
				}
				got.Added, got.WrittenOff = false, 0
				if got != tt.last || b.Balance(account).Available() != tt.left || b.Balance(account).Held != 0 {
					b.t.Errorf("the last gives %+v, %+v; want %+v and %d left", got, b.Balance(account), tt.last, tt.left)
				}
				b.disk.check()
				if len(b.disk.broken) > 0 {
					b.t.Error(b.disk.broken)
				}
			})
		})
	}
}

// What is given back makes room in the balance first, and takes it only when it is written.
func TestCore_ReverseFailedOnItsWay(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		pay := ledger.Payment{AccountID: account, Source: "pay", Credit: 100, Paid: 2}
		b.grant(t, ledger.Grant{Amount: 100, Source: "pay"})
		reverse := func(source string, c ledger.Claim) (ledger.Reversed, error) {
			return b.Reverse(t.Context(), ledger.Reversal{Payment: pay, Source: source, Claim: c})
		}
		failed := func(part string) ledger.Claim {
			return ledger.Claim{Part: part, Kind: ledger.OneBack, Back: 1, Of: 2, Failed: true}
		}
		sum := func(back int64) ledger.Claim {
			return ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: back, Of: 2}
		}
		if got, err := reverse("1", sum(1)); err != nil || got != (ledger.Reversed{Added: true, Taken: 50}) {
			t.Fatalf("Reverse = %+v, %v", got, err)
		}
		if got, err := reverse("2", failed("r")); err != nil || got != (ledger.Reversed{Added: true, Returned: 50}) {
			t.Fatalf("Reverse = %+v, %v", got, err)
		}
		for range 9 { // all the room there is, is free again
			b.grant(t, ledger.Grant{Amount: money.MaxAmount})
		}
		b.grant(t, ledger.Grant{Amount: math.MaxInt64 - 9*money.MaxAmount - 150})
		for n := range int64(9) { // and that of tokens was never taken
			if err := b.Turn(t.Context(), included(n, int64(money.MaxAmount), 0)); err != nil {
				t.Error(err)
			}
		}
		if err := b.Turn(t.Context(), included(9, math.MaxInt64-9*int64(money.MaxAmount), 0)); err != nil {
			t.Error(err)
		}
		if got, err := reverse("3", sum(2)); err != nil || got != (ledger.Reversed{Added: true, Taken: 50}) {
			t.Fatalf("Reverse = %+v, %v", got, err)
		}
		if got, err := reverse("4", failed("r")); err != nil || got.Returned != 0 {
			t.Errorf("what is given back already takes room: %+v, %v", got, err)
		}
		if _, err := reverse("5", failed("s")); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("without room: %v", err)
		}
		if got := b.Balance(account).Available(); got != math.MaxInt64-100 {
			t.Errorf("%d available", got)
		}
	})
}

// A message that is told again sets nothing aside while that is written: neither calls are refused
// for it, nor is a provider's own count written off.
func TestCore_ReverseToldAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 1000, Source: "pay"})
		claim := ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: 5, Of: 10}
		for i, source := range []string{"1", "1", "2", "3"} { // the same message, and others that say the same
			r := ledger.Reversal{Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 1000}, Source: source, Claim: claim}
			if source == "3" {
				r.Claim = ledger.Claim{Part: "re_1", Kind: ledger.OneBack, Back: 5, Of: 10}
			}
			ended := make(chan error)
			go func() {
				_, err := b.Reverse(t.Context(), r)
				ended <- err
			}()
			synctest.Wait()
			if got := b.Balance(account).Available(); got != 500 {
				t.Errorf("message %d: %d are available while it is written, want 500", i, got)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 1000, Posted: 500}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	})
}

// What of a payment is owed and cannot be read is not taken, and holds up nobody.
func TestCore_ReverseUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &blind{&disk{rows: newRows(account)}, "owed"}
		l, _, err := ledger.Open(t.Context(), store, newMemory(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := l.Grant(t.Context(), ledger.Grant{AccountID: account, Amount: 1, Source: "pay"}); err != nil {
			t.Fatal(err)
		}
		r := ledger.Reversal{
			Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 1}, Source: "1",
			Claim: ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: 1, Of: 1},
		}
		if got, err := l.Reverse(t.Context(), r); !errors.Is(err, errDisk) || got != (ledger.Reversed{}) || l.Balance(account).Available() != 1 {
			t.Errorf("Reverse = %+v, %v, %+v", got, err, l.Balance(account))
		}
		store.what = ""
		if got, err := l.Reverse(t.Context(), r); err != nil || got != (ledger.Reversed{Added: true, Taken: 1}) {
			t.Errorf("told again: %+v, %v", got, err)
		}
	})
}
