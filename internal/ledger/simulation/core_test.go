package simulation_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// bench is a ledger over sound maps, in a bubble, whose account was granted something.
type bench struct {
	t *testing.T
	*ledger.Ledger
	disk     *disk
	progress *memory
}

// inBubble runs f in a bubble of its own.
func inBubble(t *testing.T, credit money.Amount, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, disk: &disk{rows: newRows(account)}, progress: newMemory(nil)}
		b.open(t)
		if credit > 0 {
			b.grant(t, ledger.Grant{Amount: credit})
		}
		f(b)
		_ = b.Close() // a case that cares has asked
		for _, law := range b.disk.broken {
			t.Error(law)
		}
	})
}

func (b *bench) open(t *testing.T) ledger.Recovery {
	t.Helper()
	l, rec, err := ledger.Open(context.Background(), b.disk, b.progress)
	if err != nil {
		t.Fatal(err)
	}
	b.Ledger = l
	return rec
}

func (b *bench) grant(t *testing.T, g ledger.Grant) {
	t.Helper()
	g.AccountID = account
	if got, err := b.Grant(context.Background(), g); err != nil || !got.Added {
		t.Fatalf("Grant = %+v, %v", got, err)
	}
}

func (b *bench) call(id string, output, least int) ledger.Call {
	return ledger.Call{RequestID: id, AccountID: account, Price: price, PromptTokens: 10, Output: output, LeastOutput: least, CreatedAt: time.Now()}
}

func (b *bench) reserve(t *testing.T, c ledger.Call) *ledger.Hold {
	t.Helper()
	h, err := b.Reserve(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func used(n int) ledger.Outcome { return ledger.Outcome{PromptTokens: 10, CompletionTokens: n} }

// The smallest corrections are made, and what cannot be says how much is left.
func TestCore_SmallestAmounts(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		ctx := context.Background()
		if err := errors.Join(b.Adjust(ctx, account, 1, ""), b.Adjust(ctx, account, -1, "")); err != nil {
			t.Error(err)
		}
		if err := b.Adjust(ctx, account, 0, ""); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("Adjust by 0 gives %v", err)
		}
		if err := b.Adjust(ctx, account, -1001, ""); err == nil {
			t.Error("more than there is was taken")
		}
		if _, err := b.reserve(t, b.call("req_1", 5, 5)).Settle(used(5)); err != nil { // 200
			t.Fatal(err)
		}
		if _, err := b.Refund(ctx, "req_1", 1, ""); err != nil {
			t.Error(err)
		}
		_, err := b.Refund(ctx, "req_1", 200, "")
		if !errors.Is(err, ledger.ErrRefunded) || !strings.Contains(err.Error(), "0.000000199 of 0.0000002 is left") {
			t.Errorf("Refund of more than is left gives %v", err)
		}
		if c, err := b.Refund(ctx, "req_1", 0, ""); err != nil || c.Refunded != 200 {
			t.Errorf("Refund of the rest = %+v, %v", c, err)
		}
		if _, err := b.Refund(ctx, "req_1", 0, ""); !errors.Is(err, ledger.ErrRefunded) {
			t.Errorf("Refund of nothing gives %v", err)
		}
		if _, err := b.Refund(ctx, "req_none", 0, ""); !errors.Is(err, ledger.ErrNoCharge) {
			t.Errorf("Refund of no call gives %v", err)
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 1201, Posted: 201}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	})
}

// What was given back was given back, also when nobody can read it afterwards: who is told that
// it failed gives it back again.
func TestCore_RefundUnread(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		if _, err := b.reserve(t, b.call("req_1", 5, 5)).Settle(used(5)); err != nil { // 200
			t.Fatal(err)
		}
		l, _, err := ledger.Open(t.Context(), blind{b.disk, "refunded"}, b.progress)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		want := ledger.Charged{AccountID: account, Charge: 200, Refunded: 50}
		if c, err := l.Refund(t.Context(), "req_1", 50, ""); err != nil || c != want {
			t.Errorf("Refund = %+v, %v, want %+v", c, err, want)
		}
	})
}

// A hold that no number can say is refused and holds nothing.
func TestCore_Overflow(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		c := b.call("req_1", 1<<40, 1)
		c.Price.Output = money.MaxPerToken
		if _, err := b.Reserve(c); !errors.Is(err, money.ErrOverflow) {
			t.Errorf("Reserve gives %v", err)
		}
		h := b.reserve(t, b.call("req_2", 1, 1))
		if _, err := h.Settle(ledger.Outcome{PromptTokens: 1 << 62}); !errors.Is(err, money.ErrOverflow) {
			t.Errorf("Settle gives %v", err)
		}
		if err := h.Void(ledger.Outcome{}); err != nil { // it was not resolved
			t.Error(err)
		}
		if err := b.Turn(t.Context(), included(1, 100, 0)); err != nil { // included tokens do not hide it
			t.Fatal(err)
		}
		if _, err := b.Reserve(c); !errors.Is(err, money.ErrOverflow) {
			t.Errorf("Reserve with included tokens gives %v", err)
		}
		if got := b.Balance(account); got.Held != 0 || got.Posted != 0 {
			t.Errorf("Balance = %+v", got)
		}
	})
}

// Exactly as much as there is: of the account, of the budget, for the least answer.
func TestCore_ToTheLast(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		credit, budget money.Amount
		output, least  int
		limit          int // 0: refused
		refusal        string
	}{
		"all of the account":            {300, 0, 10, 10, 10, ""},
		"one less":                      {299, 0, 10, 10, 0, "insufficient credit: 0.0000003 needed, 0.000000299 available, 0 held"},
		"shrunk by the account":         {299, 0, 10, 9, 9, ""},
		"the least of the account":      {120, 0, 10, 1, 1, ""},
		"less than the least":           {119, 0, 10, 1, 0, "insufficient credit"},
		"all of the budget":             {1000, 300, 10, 10, 10, ""},
		"the least of the budget":       {1000, 120, 10, 1, 1, ""},
		"shrunk by the budget":          {1000, 299, 10, 9, 9, ""},
		"less than that of the budget":  {1000, 119, 10, 1, 0, "budget exceeded"},
		"the account before the budget": {119, 100, 10, 1, 0, "insufficient credit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, tt.credit, func(b *bench) {
				t := b.t
				c := b.call("req_1", tt.output, tt.least)
				if tt.budget > 0 {
					c.Budget = ledger.Budget{ID: "b", Amount: tt.budget}
				}
				h, err := b.Reserve(c)
				if (err == nil) != (tt.limit > 0) || err != nil && !strings.Contains(err.Error(), tt.refusal) {
					t.Fatalf("Reserve gives %v, want %q", err, tt.refusal)
				}
				if err == nil && h.OutputLimit() != tt.limit {
					t.Errorf("OutputLimit = %d, want %d", h.OutputLimit(), tt.limit)
				}
			})
		})
	}
}

// A slot of progress is given back when its stream has ended, and a stream without one is
// not begun.
func TestCore_Slots(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		h := b.reserve(t, b.call("req_1", 5, 5))
		v := b.reserve(t, b.call("req_2", 5, 5))
		if err := errors.Join(h.Persist(), v.Persist(), h.Durable(), v.Durable()); err != nil {
			t.Fatal(err)
		}
		h.Delivered(3)
		if b.progress.claims != 2 || b.progress.now["req_1"] != 3 || len(b.disk.holds) != 2 {
			t.Errorf("%d slots with %v, %d holds", b.progress.claims, b.progress.now, len(b.disk.holds))
		}
		if n := len(b.Running(account)); n != 2 || b.Balance(account).Running != 2 {
			t.Errorf("%d calls run, want 2", n)
		}
		for _, r := range b.Running(account) {
			if want := map[string]int{"req_1": 3}[r.RequestID]; r.CompletionTokens != want || r.State != ledger.Running {
				t.Errorf("%s is %s with %d tokens, want %d", r.RequestID, r.State, r.CompletionTokens, want)
			}
		}
		if _, err := h.Settle(used(3)); err != nil {
			t.Fatal(err)
		}
		if err := v.Void(used(9)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // nobody waits for the void, and it is written all the same
		if b.progress.claims != 0 || len(b.disk.holds) != 0 || len(b.disk.charges) != 2 || b.disk.charges["req_2"].CompletionTokens != 0 {
			t.Errorf("%d slots, %d holds, %d charges", b.progress.claims, len(b.disk.holds), len(b.disk.charges))
		}
		b.progress.err = errDisk
		n := b.reserve(t, b.call("req_3", 5, 5))
		if err := n.Persist(); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, errDisk) {
			t.Errorf("Persist without a slot gives %v", err)
		}
	})
}

// A hold is written without anybody who waits, and a receipt has its times.
func TestCore_PersistDoesNotWait(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		h := b.reserve(t, b.call("req_1", 5, 5))
		if err := h.Persist(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(b.disk.holds) != 1 {
			t.Error("the hold is not on the disk")
		}
		pass(3 * time.Second)
		o := ledger.Outcome{PromptTokens: 9, CachedTokens: 4, CompletionTokens: 5, Status: 200, ErrorCode: "c", Ending: ledger.EndLength, UsageSource: ledger.UsageProvider, Target: "t", Attempts: 2, FirstToken: time.Second}
		r, err := h.Settle(o)
		want := ledger.Receipt{
			RequestID: "req_1", AccountID: account, Price: price, CreatedAt: r.CreatedAt, PromptTokens: 9, CachedTokens: 4, CompletionTokens: 5, OutputLimit: 5,
			Hold: 200, Charge: 5*10 + 4*5 + 5*20, Status: 200, ErrorCode: "c", State: ledger.Settled, Ending: ledger.EndLength, UsageSource: ledger.UsageProvider,
			Target: "t", Attempts: 2, FirstToken: time.Second, Total: 3 * time.Second,
		}
		if err != nil || r != want || b.disk.charges["req_1"] != want {
			t.Errorf("Settle = %+v, %v, want %+v", r, err, want)
		}
	})
}

// A ledger that is closed, or failed, or shut by its operator, admits nothing, says why
// and ends what waits.
func TestCore_Closed(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		full := errors.New("disk full")
		b.SetAdmission(full)
		if _, err := b.Reserve(b.call("req_1", 1, 1)); !errors.Is(err, full) || !errors.Is(b.Available(), ledger.ErrUnavailable) || b.Err() != nil {
			t.Errorf("shut: %v, %v, %v", err, b.Available(), b.Err())
		}
		b.SetAdmission(nil)
		h := b.reserve(t, b.call("req_1", 1, 1))
		for range 2 {
			if err := b.Close(); err != nil {
				t.Errorf("Close gives %v", err)
			}
		}
		if _, err := h.Settle(used(1)); !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("Settle after Close gives %v", err)
		}
	})
	for _, end := range []fate{refused, unknown, panics, tooShort} {
		inBubble(t, 10_000, func(b *bench) {
			t := b.t
			h := b.reserve(t, b.call("req_1", 1, 1))
			b.disk.fates = func() fate { return end }
			if _, err := h.Settle(used(1)); !errors.Is(err, ledger.ErrUnavailable) {
				t.Errorf("fate %d: Settle gives %v", end, err)
			}
			select {
			case <-b.Failed():
			default:
				t.Errorf("fate %d: Failed is open", end)
			}
			if _, err := b.Reserve(b.call("req_2", 1, 1)); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, b.Err()) {
				t.Errorf("fate %d: Reserve gives %v", end, err)
			}
			if got := b.Balance(account); got.Held == 0 || got.Posted != 0 {
				t.Errorf("fate %d: Balance = %+v: what may be charged was freed", end, got)
			}
			if err := b.Close(); err == nil {
				t.Errorf("fate %d: Close says nothing", end)
			}
		})
	}
}

// Whatever changes the books says when it could not be made durable.
func TestCore_NotDurable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, change := range map[string]func(*bench) error{
		"grant":       func(b *bench) error { _, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: 1}); return err },
		"adjust up":   func(b *bench) error { return b.Adjust(ctx, account, 1, "") },
		"adjust down": func(b *bench) error { return b.Adjust(ctx, account, -1, "") },
		"refund":      func(b *bench) error { _, err := b.Refund(ctx, "req_1", 1, ""); return err },
		"expire":      func(b *bench) error { _, err := b.ExpireDue(ctx, time.Now().Add(time.Hour)); return err },
	} {
		inBubble(t, 1000, func(b *bench) {
			t := b.t
			b.grant(t, ledger.Grant{Amount: 100, ExpiresAt: time.Now().Add(time.Minute)})
			if _, err := b.reserve(t, b.call("req_1", 5, 5)).Settle(used(5)); err != nil {
				t.Fatal(err)
			}
			before := b.Balance(account)
			b.disk.fates = func() fate { return refused }
			if err := change(b); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, errDisk) {
				t.Errorf("%s gives %v", name, err)
			}
			if after := b.Balance(account); after.Granted != before.Granted || after.Posted != before.Posted {
				t.Errorf("%s: Balance %+v became %+v", name, before, after)
			}
		})
	}
}

// Amounts to the end of what an operator may write, and of what an account can hold.
func TestCore_LargestAmounts(t *testing.T) {
	t.Parallel()
	inBubble(t, money.MaxAmount, func(b *bench) {
		t := b.t
		ctx := context.Background()
		for _, amount := range []money.Amount{money.MaxAmount + 1, -money.MaxAmount - 1} {
			if err := b.Adjust(ctx, account, amount, ""); !errors.Is(err, ledger.ErrAmount) {
				t.Errorf("Adjust by %s gives %v", amount, err)
			}
		}
		if err := errors.Join(b.Adjust(ctx, account, -money.MaxAmount, ""), b.Adjust(ctx, account, money.MaxAmount, "")); err != nil {
			t.Error(err)
		}
		const room = 1<<63 - 1 - 2*money.MaxAmount
		for range int(room / money.MaxAmount) {
			b.grant(t, ledger.Grant{Amount: money.MaxAmount})
		}
		if _, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: room%money.MaxAmount + 1}); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("one more than an account can hold gives %v", err)
		}
		b.grant(t, ledger.Grant{Amount: room % money.MaxAmount})
		if got := b.Balance(account).Granted; got != 1<<63-1 {
			t.Errorf("granted %d", got)
		}
	})
}

// Who ends grants is told when the next one ends, and to look again only when there is a
// reason.
func TestCore_ExpiryChanged(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		told := func() bool {
			select {
			case <-b.ExpiryChanged():
				return true
			default:
				return false
			}
		}
		if told() {
			t.Error("a grant that never ends tells to look")
		}
		end := time.Now().Add(time.Minute).UTC()
		b.grant(t, ledger.Grant{Amount: 499, Kind: ledger.Promo, ExpiresAt: end})
		b.grant(t, ledger.Grant{Amount: 1, Kind: ledger.Promo, ExpiresAt: end})
		if !told() || told() {
			t.Error("grants that end do not tell to look, once")
		}
		if next, err := b.ExpireDue(t.Context(), end.Add(-time.Microsecond)); err != nil || !next.Equal(end) || b.Balance(account).Granted != 1500 {
			t.Errorf("before its end: next %v, %v, %+v", next, err, b.Balance(account))
		}
		h := b.reserve(t, b.call("req_1", 65, 65)) // 1,400: 400 of what ends
		if next, err := b.ExpireDue(t.Context(), end); err != nil || !next.IsZero() {
			t.Errorf("at its end: next %v, %v", next, err)
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 1400, Held: 1400, Expiring: 400, Running: 1}); got != want {
			t.Errorf("at its end: %+v, want %+v", got, want)
		}
		if told() {
			t.Error("told to look though the call still runs")
		}
		if err := h.Void(used(0)); err != nil || !told() {
			t.Errorf("the call has ended, %v, and nobody is told to look", err)
		}
		if _, err := b.ExpireDue(t.Context(), end); err != nil {
			t.Error(err)
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: 1000}); got != want {
			t.Errorf("in the end: %+v, want %+v", got, want)
		}
		if b.reserve(t, b.call("req_2", 1, 1)).Void(used(0)) != nil || told() {
			t.Error("told to look though nothing waits")
		}
	})
}

// Grants that are on their way at once cannot overflow an account together.
func TestCore_GrantsOnTheirWay(t *testing.T) {
	t.Parallel()
	inBubble(t, 0, func(b *bench) {
		t := b.t
		ctx := context.Background()
		for range 8 {
			b.grant(t, ledger.Grant{Amount: money.MaxAmount})
		}
		const room = 1<<63 - 1 - 8*money.MaxAmount // more than one grant can be
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		ended := make(chan error, 2)
		for _, amount := range []money.Amount{money.MaxAmount, room - money.MaxAmount - 5} {
			go func() {
				_, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: amount})
				ended <- err
			}()
			synctest.Wait() // it waits for the disk
		}
		if _, err := b.Grant(ctx, ledger.Grant{AccountID: account, Amount: 6}); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("a grant beyond those on their way gives %v", err)
		}
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		b.grant(t, ledger.Grant{Amount: 5})
	})
}

// Close waits for the commit that is under way.
func TestCore_CloseWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		h := b.reserve(t, b.call("req_1", 5, 5))
		b.disk.chance, b.disk.slow = rand.New(rand.NewPCG(1, 1)), time.Minute
		ended := make(chan error, 1)
		go func() {
			_, err := h.Settle(used(5))
			ended <- err
		}()
		synctest.Wait() // the disk has it
		if err := b.Close(); err != nil || len(b.disk.charges) != 1 {
			t.Errorf("Close gives %v with %d charges on the disk, want the one under way", err, len(b.disk.charges))
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
