package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// someCalls commits n calls of each account over the hours from at, of which the second has
// most, and returns them. Ids sort as times do, but for calls at the turn of an hour.
func someCalls(t testing.TB, db *store.DB, rng *rand.Rand, accounts []string, n int) (all []ledger.Receipt) {
	t.Helper()
	price := savePrice(t, db, model())
	endings := []struct {
		state  ledger.State
		ending ledger.Ending
		status int
	}{
		{ledger.Settled, ledger.EndStop, 200},
		{ledger.Settled, ledger.EndStop, 200},
		{ledger.Settled, ledger.EndLength, 200},
		{ledger.Settled, ledger.EndClientGone, 200},
		{ledger.Settled, ledger.EndUpstreamCut, 200},
		{ledger.Settled, ledger.EndKeyRevoked, 200},
		{ledger.Voided, ledger.EndUpstreamError, 502},
		{ledger.Voided, ledger.EndUpstreamError, 400},
		{ledger.Voided, ledger.EndClientGone, 499},
		{ledger.Voided, ledger.EndShutdown, 503},
		{ledger.Recovered, ledger.EndCrash, 200},
	}
	for _, a := range accounts {
		commit(t, db, grant(a, money.IU, ""))
		var ops []ledger.Op
		for range n {
			h := []int{0, 1, 1, 1, 1, 2, 7, 30}[rng.IntN(8)]
			when := at.Truncate(time.Hour).Add(time.Duration(h)*time.Hour + time.Duration(rng.IntN(3_600_000_000))*time.Microsecond)
			r := receipt(a, price, false)
			r.RequestID = fmt.Sprintf("%s7000%016x", ident.RequestIDsSince(when.Add(-time.Duration(rng.IntN(2))*5*time.Millisecond)), rng.Uint64())
			r.CompletionID, r.CreatedAt = ident.CompletionOf(r.RequestID), when
			r.KeyID, r.Model = fmt.Sprint("key_", rng.IntN(3)), []string{"m", "n"}[rng.IntN(2)]
			e := endings[rng.IntN(len(endings))]
			if r.State, r.Ending, r.Status = e.state, e.ending, e.status; e.state == ledger.Voided {
				r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.Charge = 0, 0, 0, 0
			} else {
				r.CompletionTokens = rng.IntN(50)
				r.Charge = money.Amount(80 + 20*r.CompletionTokens)
			}
			all = append(all, r)
			ops = append(ops, ledger.Op{Close: &r})
		}
		for batch := range slices.Chunk(ops, 500) {
			commit(t, db, batch...)
		}
	}
	return all
}

// meant is what f lists of all, in order.
func meant(f ledger.Filter, all []ledger.Receipt) (ids []string) {
	var list []ledger.Receipt
	for _, r := range all {
		if r.AccountID == f.AccountID && (f.KeyID == "" || r.KeyID == f.KeyID) && (f.Model == "" || r.Model == f.Model) &&
			(f.Class == "" || r.Class() == f.Class) && r.Charge >= f.Least && !r.CreatedAt.Before(f.From) && (f.To.IsZero() || r.CreatedAt.Before(f.To)) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b ledger.Receipt) int {
		return cmp.Or(b.CreatedAt.Truncate(time.Hour).Compare(a.CreatedAt.Truncate(time.Hour)), cmp.Compare(b.RequestID, a.RequestID))
	})
	for _, r := range list {
		ids = append(ids, r.RequestID)
	}
	return ids
}

// Page by page every list shows what it should, once and in order, whatever it filters by
// and however many calls an hour has.
func TestReceiptPage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	db := open(t, t.TempDir())
	accounts := []string{addAccount(t, db, "Quiet"), addAccount(t, db, "Busy")}
	all := append(someCalls(t, db, rng, accounts[:1], 300), someCalls(t, db, rng, accounts[1:], 11_000)...)
	clean(t, db)
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for range 30 {
		f := ledger.Filter{
			AccountID: pick(accounts...), KeyID: pick("", "key_0", "key_1", "key_9"), Model: pick("", "", "m"),
			Class: ledger.Class(pick("", "", "answered", "left", "refused", "failed")), Least: money.Amount(rng.IntN(3) * 500),
			Limit: []int{1, 7, 50, 1000}[rng.IntN(4)],
		}
		if rng.IntN(2) == 0 {
			f.From = at.Add(time.Duration(rng.IntN(4)-1) * time.Hour)
		}
		if rng.IntN(2) == 0 {
			f.To = at.Add(time.Duration(rng.IntN(9)) * time.Hour)
		}
		want := meant(f, all)
		const pages = 30 // enough to cross hours; the rest is the same again
		var got []string
		n := 0
		for ; n == 0 || f.Before != "" && n < pages; n++ {
			page, err := db.ReceiptPage(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Receipts {
				got = append(got, r.RequestID)
			}
			if len(page.Receipts) > f.Limit {
				t.Fatalf("%+v: %d receipts on a page", f, len(page.Receipts))
			}
			f.Before = page.Next
		}
		if n == pages {
			want = want[:min(len(want), len(got))]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d receipts in %d pages, want %d\n%.400q\n%.400q", f, len(got), n, len(want), got, want)
		}
	}
	for _, bad := range []string{"x", "-1", "0", "1.", "1.acct_", "99999999999"} {
		if _, err := db.ReceiptPage(ctx, ledger.Filter{AccountID: accounts[0], Before: bad}); !errors.Is(err, ledger.ErrCursor) {
			t.Errorf("a list that goes on from %q: %v, want ErrCursor", bad, err)
		}
	}
}

// A receipt is read with its price, whose parts are its charge, and with what was given back.
func TestReceipt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	price := savePrice(t, db, model())
	acct := addAccount(t, db, "Acme")
	r := receipt(acct, price, true)
	commit(t, db, grant(acct, 1000, ""), ledger.Op{Close: &r})
	got, err := db.Receipt(ctx, r.RequestID)
	if err != nil || got.Charge != r.Charge || got.Price != model().Price || got.Class() != ledger.Answered {
		t.Fatalf("Receipt = %+v, %v", got, err)
	}
	parts, err := got.Parts()
	if err != nil || len(parts) != 3 {
		t.Fatalf("Parts = %+v, %v", parts, err)
	}
	want := []ledger.Part{
		{Kind: ledger.PartPrompt, Count: 6, Price: 10, Amount: 60},
		{Kind: ledger.PartCached, Count: 4, Price: 5, Amount: 20},
		{Kind: ledger.PartCompletion, Count: 7, Price: 20, Amount: 140},
	}
	if !slices.Equal(parts, want) {
		t.Errorf("Parts = %+v, want %+v", parts, want)
	}
	if list, err := db.Refunds(ctx, r.RequestID); err != nil || len(list) != 0 {
		t.Errorf("Refunds before there are any: %v, %v", list, err)
	}
	back := grant(acct, 20, "")
	back.Grant.Kind, back.Grant.RequestID, back.Grant.Note = ledger.Refund, r.RequestID, "too slow"
	commit(t, db, back)
	list, err := db.Refunds(ctx, r.RequestID)
	if err != nil || len(list) != 1 || list[0] != (ledger.Refunded{Amount: 20, Reason: "too slow", At: at}) {
		t.Errorf("Refunds = %+v, %v", list, err)
	}
	if _, err := db.Receipt(ctx, "req_none"); !errors.Is(err, ledger.ErrNoCharge) {
		t.Errorf("a receipt of no call: %v, want ErrNoCharge", err)
	}
}

// What the database and the ledger call the end of a call is the same word.
func TestReceipt_Class(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[ledger.Class]bool{}
	for _, r := range someCalls(t, db, rng, []string{acct}, 200) {
		seen[r.Class()] = true
		if got := query[string](t, db, `SELECT class FROM charge WHERE id = $1`, r.RequestID); got != string(r.Class()) {
			t.Fatalf("%s %s %d is %s in the database, %s in the ledger", r.State, r.Ending, r.Status, got, r.Class())
		}
	}
	if len(seen) != 4 {
		t.Errorf("only %v were seen", seen)
	}
}
