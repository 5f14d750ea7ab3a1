package simulation_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// Every number of usage is added up, whichever there will be.
func TestUsage_Add(t *testing.T) {
	t.Parallel()
	var sum, o, want ledger.Usage
	sum.Group, o.Group, want.Group = "mine", "other", "mine"
	for i := range reflect.TypeFor[ledger.Usage]().NumField() {
		field := func(u *ledger.Usage) reflect.Value { return reflect.ValueOf(u).Elem().Field(i) }
		if field(&sum).CanInt() {
			field(&sum).SetInt(int64(100 * i))
			field(&o).SetInt(int64(i))
			field(&want).SetInt(int64(102 * i))
		}
	}
	sum.Add(&o)
	sum.Add(&o)
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("Add (-want +got):\n%s", diff)
	}
}

// The parts of a receipt are what was counted at the prices that it cites.
func TestReceipt_Parts(t *testing.T) {
	t.Parallel()
	r := ledger.Receipt{PromptTokens: 10, CachedTokens: 4, CompletionTokens: 3, Price: price}
	want := []ledger.Part{
		{Kind: ledger.PartPrompt, Count: 6, Price: 10, Amount: 60},
		{Kind: ledger.PartCached, Count: 4, Price: 5, Amount: 20},
		{Kind: ledger.PartCompletion, Count: 3, Price: 20, Amount: 60},
	}
	got, err := r.Parts()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Parts (-want +got), %v:\n%s", err, diff)
	}
	r.Price.CachedInput = 1 << 62
	if got, err := r.Parts(); got != nil || !errors.Is(err, money.ErrOverflow) {
		t.Errorf("Parts of a price that cannot be = %+v, %v", got, err)
	}
}

// Pages go on by the hour of a call and its id.
func TestReceipt_Cursor(t *testing.T) {
	t.Parallel()
	for hour, at := range map[string]time.Time{
		"0":      time.Unix(3599, 0),
		"1":      time.Unix(3600, 0),
		"494532": time.Date(2026, 6, 1, 12, 59, 59, 0, time.UTC),
	} {
		r := ledger.Receipt{RequestID: "req_x", CreatedAt: at}
		if got := r.Cursor(); got != hour+".req_x" {
			t.Errorf("Cursor at %v = %q, want %s.req_x", at, got, hour)
		}
	}
}
