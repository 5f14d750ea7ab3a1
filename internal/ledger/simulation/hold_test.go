package simulation_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// A call ends once: whatever is said of it later changes nothing, nor sets anything aside.
func TestCore_EndsOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*ledger.Hold) error{
		"settled": func(h *ledger.Hold) error { return second(h.Settle(used(5))) },
		"voided":  func(h *ledger.Hold) error { return h.Void(used(5)) },
	} {
		inBubble(t, 10_000, func(b *bench) {
			t := b.t
			h := b.reserve(t, b.call("req_1", 5, 5))
			if err := end(h); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := b.Balance(account)
			for range 2 {
				if _, err := h.Settle(used(100)); !errors.Is(err, ledger.ErrResolved) {
					t.Errorf("%s: Settle gives %v, want ErrResolved", name, err)
				}
				if err := h.Void(used(0)); !errors.Is(err, ledger.ErrResolved) {
					t.Errorf("%s: Void gives %v, want ErrResolved", name, err)
				}
			}
			synctest.Wait()
			if got := b.Balance(account); got != want || got.Held != 0 || len(b.disk.charges) != 1 {
				t.Errorf("%s: Balance = %+v with %d charges, want %+v", name, got, len(b.disk.charges), want)
			}
		})
	}
}

// A charge that the books have already is no second one.
func TestCore_ChargedBefore(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		if _, err := b.reserve(t, b.call("req_1", 5, 5)).Settle(used(5)); err != nil {
			t.Fatal(err)
		}
		again := b.reserve(t, b.call("req_1", 5, 5))
		if _, err := again.Settle(used(5)); !errors.Is(err, ledger.ErrResolved) {
			t.Errorf("Settle under an id that was charged gives %v, want ErrResolved", err)
		}
		if got := b.Balance(account); got.Posted != 200 {
			t.Errorf("posted %d, want the one charge of 200", got.Posted)
		}
	})
}

// A void is written though nobody waits for it, and counts nothing, whatever was computed.
func TestCore_Void(t *testing.T) {
	t.Parallel()
	inBubble(t, 10_000, func(b *bench) {
		t := b.t
		h := b.reserve(t, b.call("req_1", 5, 5))
		h.Delivered(3) // of a whole answer, which notes no progress
		pass(time.Second)
		err := h.Void(ledger.Outcome{
			PromptTokens: 10, CachedTokens: 4, CompletionTokens: 3, Status: 502, ErrorCode: "c", Ending: ledger.EndUpstreamError,
			UsageSource: ledger.UsageProvider, Target: "t", Attempts: 2, FirstToken: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r := b.disk.charges["req_1"]
		want := ledger.Receipt{
			RequestID: "req_1", AccountID: account, Price: price, CreatedAt: r.CreatedAt, OutputLimit: 5, Hold: 200, Status: 502, ErrorCode: "c",
			State: ledger.Voided, Ending: ledger.EndUpstreamError, UsageSource: ledger.UsageNone, Target: "t", Attempts: 2, FirstToken: time.Millisecond, Total: time.Second,
		}
		if r != want {
			t.Errorf("the books have %+v, want %+v", r, want)
		}
	})
}

// A call is charged as it was admitted: included tokens that come while it runs are for
// others, unless it uses more than it holds.
func TestCore_SettleAsHeld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ tokens, plan, charge int }{
		"less than held": {4, 0, 180},
		"all of it":      {5, 0, 200},
		"more":           {6, 16, 0},
	} {
		inBubble(t, 10_000, func(b *bench) {
			t := b.t
			h := b.reserve(t, b.call("req_1", 5, 5))
			if err := b.Turn(t.Context(), included(1, 100, 0)); err != nil {
				t.Fatal(err)
			}
			if r, err := h.Settle(used(tt.tokens)); err != nil || r.PlanTokens != tt.plan || int(r.Charge) != tt.charge {
				t.Errorf("%s: the plan pays for %d tokens, the charge is %d, %v; want %d and %d", name, r.PlanTokens, r.Charge, err, tt.plan, tt.charge)
			}
		})
	}
}
