package simulation_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// What ends soonest and was not paid for burns first.
func TestKind_Priority(t *testing.T) {
	t.Parallel()
	for kind, want := range map[ledger.Kind]int{ledger.Included: 10, ledger.Promo: 20, ledger.Refund: 30, ledger.Adjust: 30, ledger.Prepaid: 50, "": 50} {
		if got := kind.Priority(); got != want {
			t.Errorf("%q has priority %d, want %d", kind, got, want)
		}
	}
}

// What is there for a call is never less than nothing, whatever is held and has ended.
func TestBalance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		granted, posted, held, expiring int64
		balance, available              int64
	}{
		{100, 20, 30, 0, 80, 50},
		{100, 20, 30, 5, 80, 45},
		{100, 20, 30, 50, 80, 0},
		{100, 20, 80, 60, 80, 0},
	} {
		b := ledger.Balance{
			Granted: money.Amount(tt.granted), Posted: money.Amount(tt.posted), Held: money.Amount(tt.held), Expiring: money.Amount(tt.expiring),
			Tokens: ledger.TokenBalance{Granted: tt.granted, Posted: tt.posted, Held: tt.held, Expiring: tt.expiring},
		}
		if int64(b.Balance()) != tt.balance || int64(b.Available()) != tt.available {
			t.Errorf("%+v: balance %d, available %d, want %d and %d", tt, b.Balance(), b.Available(), tt.balance, tt.available)
		}
		if b.Tokens.Balance() != tt.balance || b.Tokens.Available() != tt.available {
			t.Errorf("%+v: %d tokens, %d available, want %d and %d", tt, b.Tokens.Balance(), b.Tokens.Available(), tt.balance, tt.available)
		}
	}
}

// Lower priority burns first, then what ends first, then the oldest; what was lost cannot
// burn, and what has burned does not burn again.
func TestAllocate(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	grant := func(id string, priority int, created, expires time.Time) ledger.GrantBalance {
		return ledger.GrantBalance{Grant: ledger.Grant{ID: id, Amount: 10, Priority: priority, CreatedAt: created, ExpiresAt: expires}}
	}
	gs := []ledger.GrantBalance{
		grant("never later", 20, day(2), time.Time{}), grant("never", 20, day(1), time.Time{}), grant("late", 50, day(1), day(9)), grant("young", 20, day(3), day(8)),
		grant("old", 20, day(2), day(8)), grant("soon", 20, day(4), day(7)), grant("first", 10, day(5), time.Time{}),
	}
	gs[2].Expired = 4
	burned := func() (order []string, all map[string]money.Amount) {
		all = map[string]money.Amount{}
		for _, g := range gs {
			all[g.ID], order = g.Burned, append(order, g.ID)
		}
		return order, all
	}
	ledger.Allocate(gs, 0, 47)
	order, all := burned()
	if diff := cmp.Diff([]string{"first", "soon", "old", "young", "never", "never later", "late"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	want := map[string]money.Amount{"first": 10, "soon": 10, "old": 10, "young": 10, "never": 7, "never later": 0, "late": 0}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("burned (-want +got):\n%s", diff)
	}
	ledger.Allocate(gs, 47, 65)
	want["never"], want["never later"], want["late"] = 10, 10, 5
	if _, all = burned(); !cmp.Equal(want, all) {
		t.Errorf("18 more burn (-want +got):\n%s", cmp.Diff(want, all))
	}
}

// An expiry takes what is left of the grants that have ended, at most what nobody holds,
// and says what waits.
func TestExpire_Take(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	grants := func() []ledger.GrantBalance {
		return []ledger.GrantBalance{
			{Grant: ledger.Grant{Amount: 10, ExpiresAt: end}, Burned: 3},
			{Grant: ledger.Grant{Amount: 10, ExpiresAt: end.Add(time.Microsecond)}},
			{Grant: ledger.Grant{Amount: 10}},
			{Grant: ledger.Grant{Amount: 10, ExpiresAt: end.Add(-time.Hour)}, Burned: 4, Expired: 1},
			{Grant: ledger.Grant{Amount: 10, ExpiresAt: end}, Burned: 10},
		}
	}
	for _, tt := range []struct {
		most  money.Amount
		taken []money.Amount
		left  money.Amount
	}{
		{99, []money.Amount{7, 0, 0, 5, 0}, 0},
		{12, []money.Amount{7, 0, 0, 5, 0}, 0},
		{9, []money.Amount{7, 0, 0, 2, 0}, 3},
		{6, []money.Amount{6, 0, 0, 0, 0}, 6},
		{0, []money.Amount{0, 0, 0, 0, 0}, 12},
	} {
		e := ledger.Expire{Now: end, Most: tt.most}
		taken, left := e.Take(grants())
		if !cmp.Equal(tt.taken, taken) || left != tt.left {
			t.Errorf("at most %d: %v and %d left, want %v and %d", tt.most, taken, left, tt.taken, tt.left)
		}
	}
}

// A grant is what was asked for, with what nobody said filled in.
func TestCore_Grant(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		ctx := audit.WithActor(t.Context(), "ann")
		first := time.Now().UTC().Truncate(time.Microsecond)
		if got, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: 1, Source: "s"}); err != nil || got != (ledger.Granted{Added: true, At: first}) {
			t.Errorf("Grant = %+v, %v", got, err)
		}
		if g := b.disk.grants[0]; g.Kind != ledger.Prepaid || g.Priority != 50 || g.Actor != "ann" || g.ID == "" {
			t.Errorf("granted %+v", g)
		}
		pass(time.Second)
		if got, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: 1, Source: "s"}); err != nil || got != (ledger.Granted{At: first}) {
			t.Errorf("the same source again = %+v, %v", got, err)
		}
		if _, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: money.MaxAmount, Kind: ledger.Promo, Priority: 7}); err != nil {
			t.Error(err)
		}
		if g := b.disk.grants[1]; g.Kind != ledger.Promo || g.Priority != 7 || g.Amount != money.MaxAmount {
			t.Errorf("granted %+v", g)
		}
		now := time.Now().UTC()
		for _, tt := range []struct {
			g    ledger.Grant
			want error
		}{
			{ledger.Grant{AccountID: account}, ledger.ErrAmount},
			{ledger.Grant{AccountID: account, Amount: -1}, ledger.ErrAmount},
			{ledger.Grant{AccountID: account, Amount: money.MaxAmount + 1}, ledger.ErrAmount},
			{ledger.Grant{AccountID: account, Amount: 1, Unit: ledger.Tokens}, ledger.ErrAmount},
			{ledger.Grant{AccountID: account, Amount: 1, ExpiresAt: now}, ledger.ErrExpiry},
			{ledger.Grant{AccountID: account, Amount: 1, ExpiresAt: now.Add(-time.Hour)}, ledger.ErrExpiry},
			{ledger.Grant{AccountID: account, Amount: 1, ExpiresAt: now.Add(time.Microsecond)}, nil},
			{ledger.Grant{AccountID: "acct_none", Amount: 1}, ledger.ErrAccount},
			{ledger.Grant{AccountID: account, Amount: 1, Kind: ledger.Refund, RequestID: "req_none"}, ledger.ErrRefunded},
		} {
			if _, err := b.Grant(ctx, tt.g); !errors.Is(err, tt.want) {
				t.Errorf("Grant of %+v gives %v, want %v", tt.g, err, tt.want)
			}
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: money.MaxAmount + 2}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	})
}

// When the next grant ends is said of both units, whichever is sooner.
func TestCore_NextExpiry(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ credit, tokens, want time.Duration }{
		"neither":        {},
		"credit only":    {3 * time.Hour, 0, 3 * time.Hour},
		"tokens only":    {0, time.Hour, time.Hour},
		"tokens sooner":  {3 * time.Hour, time.Hour, time.Hour},
		"credit sooner":  {time.Minute, time.Hour, time.Minute},
		"both at a time": {time.Hour, time.Hour, time.Hour},
	} {
		inBubble(t, 5, func(b *bench) {
			t := b.t
			now := time.Now().UTC()
			if tt.credit > 0 {
				b.grant(t, ledger.Grant{Amount: 5, ExpiresAt: now.Add(tt.credit)})
			}
			if tt.tokens > 0 {
				turn := included(1, 5, 0)
				turn.Next.End = now.Add(tt.tokens)
				if err := b.Turn(t.Context(), turn); err != nil {
					t.Fatal(err)
				}
			}
			next, err := b.ExpireDue(t.Context(), now)
			if err != nil || tt.want == 0 && !next.IsZero() || tt.want > 0 && !next.Equal(now.Add(tt.want)) {
				t.Errorf("%s: the next ends %v, %v, want in %v", name, next, err, tt.want)
			}
		})
	}
}

// Calls burn the last of what was waited for, of several accounts and in both units: then
// nothing waits any more, and looking again takes no transaction.
func TestCore_ExpireBurnedMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		ctx := t.Context()
		accounts := []string{account, "acct_2", "acct_3"}
		var holds []*ledger.Hold
		for i, id := range accounts {
			b.disk.granted[purse{id, ledger.Credit}], b.disk.granted[purse{id, ledger.Tokens}] = 0, 0
			turn := included(1, 1, 0) // of one account the token, of the others credit
			turn.Next.AccountID, turn.Next.ID = id, "sub_"+id
			var err error
			if i == 0 {
				err = b.Turn(ctx, turn)
			} else {
				_, err = b.Grant(ctx, ledger.Grant{AccountID: id, Amount: 1, ExpiresAt: turn.Next.End})
			}
			if err != nil {
				t.Fatal(err)
			}
			c := b.call("req_"+id, 0, 0)
			c.AccountID, c.PromptTokens, c.Price = id, 1, money.Price{Input: 1, CachedInput: 1, Output: 1}
			holds = append(holds, b.reserve(t, c))
		}
		pass(2 * time.Hour)
		expire := func() {
			t.Helper()
			if _, err := b.ExpireDue(ctx, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		expire()
		told := func() bool {
			select {
			case <-b.ExpiryChanged():
				return true
			default:
				return false
			}
		}
		told() // that something ends at all
		for i, h := range holds {
			if got := b.Balance(accounts[i]); got.Expiring+money.Amount(got.Tokens.Expiring) != 1 {
				t.Errorf("%s waits for its call with %+v", accounts[i], got)
			}
			if _, err := h.Settle(ledger.Outcome{PromptTokens: 1}); err != nil {
				t.Fatal(err)
			}
			if !told() {
				t.Errorf("the call of %s has ended and nobody is told to look", accounts[i])
			}
			for _, u := range []ledger.Unit{ledger.Credit, ledger.Tokens} { // whoever asks has it noted: the store sees nothing left
				if _, err := b.disk.GrantsOf(ctx, accounts[i], u); err != nil {
					t.Fatal(err)
				}
			}
		}
		expire()
		for _, id := range accounts {
			if got := b.Balance(id); got.Expiring != 0 || got.Tokens.Expiring != 0 {
				t.Errorf("%s still waits: %+v", id, got)
			}
		}
		b.disk.trace = nil
		expire()
		if slices.ContainsFunc(b.disk.trace, commits) {
			t.Errorf("nothing waits and yet: %q", b.disk.trace)
		}
	})
}

// While what has ended is being taken, the rest can be held.
func TestCore_ExpireOnItsWay(t *testing.T) {
	t.Parallel()
	inBubble(t, 120, func(b *bench) {
		t := b.t
		end := time.Now().Add(time.Minute).UTC()
		b.grant(t, ledger.Grant{Amount: 500, ExpiresAt: end})
		b.grant(t, ledger.Grant{Amount: 300, ExpiresAt: end.Add(-time.Second)})
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		ended := make(chan error)
		go func() {
			_, err := b.ExpireDue(t.Context(), end)
			ended <- err
		}()
		synctest.Wait()
		if got := b.Balance(account).Available(); got != 120 {
			t.Errorf("%d can be held while 800 of 920 are taken", got)
		}
		if err := <-ended; err != nil || b.Balance(account) != (ledger.Balance{Granted: 120}) {
			t.Errorf("in the end: %+v, %v", b.Balance(account), err)
		}
	})
}

// A call that ends while what has ended is on its way to be taken leaves nobody who would look
// again for the rest: whoever takes it does.
func TestCore_ExpireBesideTheLastCall(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		b.grant(t, ledger.Grant{Amount: 500, ExpiresAt: time.Now().Add(time.Minute)})
		<-b.ExpiryChanged() // that something ends at all
		c := b.call("req_1", 10, 10)
		c.Price = money.Price{Input: 1, CachedInput: 1, Output: 1}
		h := b.reserve(t, c)
		pass(time.Minute)
		end := time.Now()
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		results := make(chan error, 3)
		for _, do := range []func() error{ // the first is being written while the others come, in their order
			func() error { _, err := b.Grant(t.Context(), ledger.Grant{AccountID: account, Amount: 7}); return err },
			func() error { _, err := h.Settle(used(9)); return err }, // 19 of 20
			func() error { _, err := b.ExpireDue(t.Context(), end); return err },
		} {
			go func() { results <- do() }()
			synctest.Wait()
		}
		for range 3 {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 27, Posted: 19, Expiring: 1}); got != want {
			t.Fatalf("Balance = %+v, want %+v: the call has left more since", got, want)
		}
		select {
		case <-b.ExpiryChanged():
		default:
			t.Fatal("1 waits for nobody, and nobody is told to look")
		}
		if _, err := b.ExpireDue(t.Context(), end); err != nil || b.Balance(account) != (ledger.Balance{Granted: 26, Posted: 19}) {
			t.Errorf("in the end: %+v, %v", b.Balance(account), err)
		}
		select {
		case <-b.ExpiryChanged():
			t.Error("nothing waits, and somebody is told to look")
		default:
		}
	})
}

// What cannot be read has not expired.
func TestCore_ExpireUnread(t *testing.T) {
	t.Parallel()
	d := &disk{rows: newRows(account)}
	d.add(&ledger.Grant{ID: "a", AccountID: account, Amount: 7, ExpiresAt: time.Unix(1, 0)})
	if _, _, err := ledger.Open(t.Context(), blind{d, "grants"}, newMemory(nil)); !errors.Is(err, errDisk) || d.granted[purse{account, ledger.Credit}] != 7 {
		t.Errorf("Open gives %v with %v", err, d.granted)
	}
}
