package simulation_test

import (
	"errors"
	"math/rand/v2"
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

// What is there is taken, what running calls hold and what has ended is not, and the rest is
// written off.
func TestCore_Reverse(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 1000, Source: "pay"})
		pay := ledger.Payment{AccountID: account, Source: "pay", Credit: 1000}
		reverse := func(source, part string, due money.Amount) ledger.Reversed {
			t.Helper()
			got, err := b.Reverse(t.Context(), ledger.Reversal{Payment: pay, Source: source, Part: part, Due: due})
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
		want(reverse("1", "a", 300), ledger.Reversed{Added: true, Taken: 300}, ledger.Balance{Granted: 1000, Posted: 300})
		if v := b.disk.reversed[0].message; v.DebitID == "" || v.Actor != "system" || !v.CreatedAt.Equal(time.Now()) {
			t.Errorf("the debit is %+v", v)
		}
		want(reverse("1", "a", 300), ledger.Reversed{}, ledger.Balance{Granted: 1000, Posted: 300})
		want(reverse("2", "a", 299), ledger.Reversed{Added: true}, ledger.Balance{Granted: 1000, Posted: 300})
		want(reverse("3", "b", 0), ledger.Reversed{Added: true}, ledger.Balance{Granted: 1000, Posted: 300})
		h := b.reserve(t, b.call("req_1", 20, 20)) // 500
		want(reverse("4", "b", 300), ledger.Reversed{Added: true, Taken: 200, WrittenOff: 100}, ledger.Balance{Granted: 1000, Posted: 500, Held: 500, Running: 1})
		if err := h.Void(used(0)); err != nil {
			t.Fatal(err)
		}
		want(reverse("5", "a", 1000), ledger.Reversed{Added: true, Taken: 400}, ledger.Balance{Granted: 1000, Posted: 900})
		want(reverse("6", "c", 1000), ledger.Reversed{Added: true}, ledger.Balance{Granted: 1000, Posted: 900})
		for _, due := range []money.Amount{-1, 1001} {
			if _, err := b.Reverse(t.Context(), ledger.Reversal{Payment: pay, Source: "7", Due: due}); !errors.Is(err, ledger.ErrAmount) {
				t.Errorf("Reverse of %d gives %v", due, err)
			}
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
		r := ledger.Reversal{Payment: ledger.Payment{AccountID: account, Source: "pay", Credit: 1000}, Source: "1", Part: "a", Due: 1000}
		ended := make(chan error)
		go func() {
			_, err := b.Reverse(t.Context(), r)
			ended <- err
		}()
		synctest.Wait()
		if _, err := b.Reserve(b.call("req_1", 1, 1)); err == nil {
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
