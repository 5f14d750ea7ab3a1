package ledger_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// books is a ledger over a real database in a directory of its own.
type books struct {
	*ledger.Ledger
	dir      string
	db       *store.DB
	progress *store.Progress
	recovery ledger.Recovery
	price    catalog.Model
}

func open(t testing.TB, dir string, wrap func(ledger.Store) ledger.Store) *books {
	t.Helper()
	ctx := context.Background()
	b := &books{dir: dir}
	var err error
	if b.db, err = store.Open(ctx, dir); err != nil {
		t.Fatal(err)
	}
	if b.progress, err = store.OpenProgress(dir); err != nil {
		t.Fatal(err)
	}
	models := []catalog.Model{{ID: "m", Price: money.Price{Input: 10, CachedInput: 10, Output: 20}}}
	if err := b.db.SaveCatalog(ctx, models, nil); err != nil {
		t.Fatal(err)
	}
	b.price = models[0]
	var s ledger.Store = b.db
	if wrap != nil {
		s = wrap(s)
	}
	if b.Ledger, b.recovery, err = ledger.Open(ctx, s, b.progress); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	return b
}

func (b *books) stop() {
	_ = b.Ledger.Close() // tests that care have asked already
	_ = b.progress.Close()
	_ = b.db.Close()
}

func (b *books) account(t testing.TB, credit money.Amount) string {
	t.Helper()
	a := account.Account{ID: ident.New(ident.Account), Name: ident.New("name "), Plan: "p", Status: account.Active, CreatedAt: time.Now()}
	if err := b.db.CreateAccount(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	if credit > 0 {
		if _, err := b.Grant(context.Background(), ledger.Grant{AccountID: a.ID, Amount: credit}); err != nil {
			t.Fatal(err)
		}
	}
	return a.ID
}

// call is one of prompt 10 and at most output tokens: 100 + 20·output nano-IU.
func (b *books) call(account string, stream bool, output int) ledger.Call {
	return ledger.Call{
		RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: account, KeyID: "key_x",
		Model: "m", PriceID: b.price.PriceID, Price: b.price.Price, PlanVersion: "plan_x", Stream: stream,
		CreatedAt: time.Now(), PromptTokens: 10, Output: output, LeastOutput: output,
	}
}

func done(n int) ledger.Outcome {
	return ledger.Outcome{PromptTokens: 10, CompletionTokens: n, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageCounted, Target: "local/m", Attempts: 1}
}

func (b *books) verify(t testing.TB) {
	t.Helper()
	rep, err := b.db.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range rep.Invariants {
		if !i.OK {
			t.Errorf("%s: %s", i.Name, i.Detail)
		}
	}
}

func (b *books) receipts(t testing.TB, account string) []ledger.Receipt {
	t.Helper()
	rs, err := b.db.Receipts(context.Background(), account, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestSettle(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		b := open(t, t.TempDir(), nil)
		a := b.account(t, 1000)
		h, err := b.Reserve(b.call(a, stream, 20))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := b.Balance(a), (ledger.Balance{Granted: 1000, Held: 500, Running: 1}); got != want {
			t.Errorf("stream %v: Balance after Reserve = %+v, want %+v", stream, got, want)
		}
		if r, ok := b.Find(b.Running(a)[0].RequestID); !ok || r.AccountID != a || r.State != ledger.Running {
			t.Errorf("Find of a running call = %+v, %v", r, ok)
		}
		if r, ok := b.Find("req_none"); ok {
			t.Errorf("Find of no call = %+v", r)
		}
		if rs := b.Running(a); len(rs) != 1 || rs[0].State != ledger.Running {
			t.Errorf("stream %v: Running = %+v, want one receipt", stream, rs)
		}
		if stream {
			if err := h.Persist(); err != nil {
				t.Fatal(err)
			}
			if err := h.Durable(); err != nil {
				t.Fatal(err)
			}
		}
		h.Delivered(7)
		if _, err := h.Settle(done(7)); err != nil {
			t.Fatal(err)
		}
		if got, want := b.Balance(a), (ledger.Balance{Granted: 1000, Posted: 240}); got != want {
			t.Errorf("stream %v: Balance after Settle = %+v, want %+v", stream, got, want)
		}
		rs := b.receipts(t, a)
		if len(rs) != 1 || rs[0].Charge != 240 || rs[0].Hold != 500 || rs[0].CompletionTokens != 7 || rs[0].State != ledger.Settled {
			t.Errorf("stream %v: receipts = %+v", stream, rs)
		}
		if _, err := h.Settle(done(7)); !errors.Is(err, ledger.ErrResolved) {
			t.Errorf("stream %v: a second Settle gives %v, want ErrResolved", stream, err)
		}
		if err := h.Void(done(0)); !errors.Is(err, ledger.ErrResolved) {
			t.Errorf("stream %v: Void after Settle gives %v, want ErrResolved", stream, err)
		}
		b.verify(t)
	}
}

func TestVoid(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 1000)
	h, err := b.Reserve(b.call(a, true, 20))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Persist(); err != nil {
		t.Fatal(err)
	}
	if err := h.Void(ledger.Outcome{Status: 502, ErrorCode: "upstream_error", Ending: ledger.EndUpstreamError}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.Balance(a), (ledger.Balance{Granted: 1000}); got != want {
		t.Errorf("Balance after Void = %+v, want %+v: the credit is free at once", got, want)
	}
	if err := b.Close(); err != nil { // waits for the receipt
		t.Fatal(err)
	}
	rs := b.receipts(t, a)
	if len(rs) != 1 || rs[0].State != ledger.Voided || rs[0].Charge != 0 || rs[0].Status != 502 {
		t.Errorf("receipts = %+v", rs)
	}
	b.verify(t)
}

func TestReserveRefuses(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 499)
	_, err := b.Reserve(b.call(a, false, 20))
	short, ok := errors.AsType[*ledger.InsufficientError](err)
	if !ok || *short != (ledger.InsufficientError{Need: 500, Available: 499}) {
		t.Fatalf("Reserve of 500 with 499 gives %v", err)
	}
	c := b.call(a, false, 20)
	c.LeastOutput = 16
	h, err := b.Reserve(c)
	if err != nil || h.OutputLimit() != 19 {
		t.Fatalf("Reserve of 16 to 20 tokens with 499 = %v, %v, want a hold of 19 tokens", h, err)
	}
	if got := b.Balance(a); got.Held != 480 {
		t.Errorf("it holds %d, want 480", got.Held)
	}
	free := b.call(b.account(t, 0), false, 20)
	free.Price = money.Price{}
	if _, err := b.Reserve(free); err != nil {
		t.Errorf("a call that costs nothing gives %v", err)
	}
}

// A charge above the hold takes what the account still has; the rest is the operator's.
func TestSettleAboveHold(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 700)
	h, err := b.Reserve(b.call(a, false, 20))
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Settle(done(100)) // 2100
	if err != nil || r.Charge != 700 || r.WrittenOff != 1400 {
		t.Errorf("Settle of 2100 = charge %d, written off %d, %v, want 700, 1400", r.Charge, r.WrittenOff, err)
	}
	if got, want := b.Balance(a), (ledger.Balance{Granted: 700, Posted: 700}); got != want {
		t.Errorf("Balance = %+v, want %+v", got, want)
	}
	if _, err := b.Grant(context.Background(), ledger.Grant{AccountID: a, Amount: 50}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Settle(done(100)); !errors.Is(err, ledger.ErrResolved) || b.Balance(a).Held != 0 {
		t.Errorf("a second Settle gives %v and leaves %+v", err, b.Balance(a))
	}
	b.verify(t)
}

func TestGrant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	var added atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			g, err := b.Grant(ctx, ledger.Grant{AccountID: a, Amount: 5, Source: "case-1"})
			if err != nil || g.At.IsZero() {
				t.Errorf("Grant = %+v, %v", g, err)
			}
			if g.Added {
				added.Add(1)
			}
		})
	}
	wg.Wait()
	if added.Load() != 1 || b.Balance(a).Granted != 5 {
		t.Errorf("32 grants of one source added %d times, balance %+v", added.Load(), b.Balance(a))
	}
	for _, amount := range []money.Amount{0, -1, money.MaxAmount + 1} {
		if _, err := b.Grant(ctx, ledger.Grant{AccountID: a, Amount: amount}); !errors.Is(err, ledger.ErrAmount) {
			t.Errorf("Grant of %d gives %v, want ErrAmount", amount, err)
		}
	}
	if _, err := b.Grant(ctx, ledger.Grant{AccountID: "acct_none", Amount: 5}); !errors.Is(err, ledger.ErrAccount) {
		t.Errorf("Grant to nobody gives %v, want ErrAccount", err)
	}
	for range 9 { // 9.2e9 IU is the end of an int64
		if _, err := b.Grant(ctx, ledger.Grant{AccountID: a, Amount: money.MaxAmount}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Grant(ctx, ledger.Grant{AccountID: a, Amount: money.MaxAmount}); !errors.Is(err, ledger.ErrAmount) {
		t.Errorf("Grant past the end of the number gives %v, want ErrAmount", err)
	}
	b.verify(t)
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 1000)
	h, err := b.Reserve(b.call(a, false, 1))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	b.SetAdmission(full)
	if _, err := b.Reserve(b.call(a, false, 1)); !errors.Is(err, ledger.ErrUnavailable) || !errors.Is(err, full) {
		t.Errorf("Reserve while closed gives %v", err)
	}
	if _, err := h.Settle(done(1)); err != nil {
		t.Errorf("a running call: %v", err)
	}
	b.SetAdmission(nil)
	if _, err := b.Reserve(b.call(a, false, 1)); err != nil {
		t.Errorf("Reserve after opening again: %v", err)
	}
}
