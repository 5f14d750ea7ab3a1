package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// refused is a refusal at that time, whose id sorts by it.
func refused(accountID string, when time.Time, n int) refusal.Record {
	return refusal.Record{
		RequestID: fmt.Sprintf("%s7000%016x", ident.RequestIDsSince(when), n), AccountID: accountID, KeyID: fmt.Sprint("key_", n%2), Model: "m", At: when,
		Status: 429, Code: []string{"rate_limit_exceeded", "insufficient_quota"}[n%2], Rule: wire.RuleTokens, Scope: refusal.Key,
		Limit: 30_000, Used: 29_937, Held: 3, Asked: 385, Fits: 7, Clears: 644 * time.Millisecond, PromptTokens: 181, MaxTokens: 204, Param: "p", Message: "words",
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	var all []refusal.Record
	for n := range 20 {
		all = append(all, refused("acct_a", at.Add(time.Duration(n)*10*time.Minute), n))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(db.AddRefusals(ctx, append([]refusal.Record{refused("", at, 999)}, all...)))
	must(db.AddRefusals(ctx, all[3:5])) // a second time is none
	got, err := db.Refusal(ctx, all[7].RequestID)
	if diff := cmp.Diff(all[7], got); err != nil || diff != "" {
		t.Errorf("Refusal: %v (-want +got)\n%s", err, diff)
	}
	if _, err := db.Refusal(ctx, "req_none"); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("a refusal of no call: %v", err)
	}
	slices.Reverse(all)
	for _, c := range []struct {
		name   string
		filter refusal.Filter
		want   []refusal.Record
	}{
		{"newest", refusal.Filter{Limit: 3}, all[:3]},
		{"the page behind", refusal.Filter{Limit: 3, Before: all[2].RequestID}, all[3:6]},
		{"of a time", refusal.Filter{Limit: 100, From: at.Add(20 * time.Minute), To: at.Add(40 * time.Minute)}, all[16:18]},
		{"of a key", refusal.Filter{Limit: 1, KeyID: "key_0"}, all[1:2]},
		{"of a code", refusal.Filter{Limit: 1, Code: "insufficient_quota", Before: all[0].RequestID}, all[2:3]},
		{"of another model", refusal.Filter{Limit: 1, Model: "n"}, nil},
	} {
		c.filter.AccountID = "acct_a"
		got, err := db.Refusals(ctx, c.filter)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.name, err, diff)
		}
	}
	counts, err := db.RefusalCounts(ctx, "acct_a", at.Truncate(time.Hour), at.Truncate(time.Hour).Add(2*time.Hour))
	want := []refusal.Count{{KeyID: "key_0", Model: "m", Code: "rate_limit_exceeded", Calls: 6}, {KeyID: "key_1", Model: "m", Code: "insufficient_quota", Calls: 6}}
	if diff := cmp.Diff(want, counts); err != nil || diff != "" {
		t.Errorf("RefusalCounts: %v (-want +got)\n%s", err, diff)
	}
}

// Old refusals go, and of an account all but its newest, no more at a time than was asked.
func TestPruneRefusals(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	var all []refusal.Record
	for n := range 30 {
		all = append(all, refused("acct_a", at.Add(time.Duration(n)*time.Minute), n), refused("acct_b", at.Add(time.Duration(n)*time.Minute), 100+n))
	}
	if err := db.AddRefusals(ctx, all); err != nil {
		t.Fatal(err)
	}
	left := func(account string) int {
		return query[int](t, db, `SELECT count(*) FROM refusal WHERE account_id = $1`, account)
	}
	for _, c := range []struct{ limit, deleted, a, b int }{{4, 4, 28, 28}, {100, 6 + 5, 20, 25}, {100, 0, 20, 25}} {
		n, err := db.PruneRefusals(ctx, at.Add(5*time.Minute), []string{"acct_a"}, 20, c.limit)
		if err != nil || n != c.deleted || left("acct_a") != c.a || left("acct_b") != c.b {
			t.Errorf("at most %d: %d deleted, %v, leaving %d and %d, want %+v", c.limit, n, err, left("acct_a"), left("acct_b"), c)
		}
	}
	got, err := db.Refusals(ctx, refusal.Filter{AccountID: "acct_a", Limit: 100})
	if err != nil || len(got) != 20 || !got[19].At.Equal(at.Add(10*time.Minute)) {
		t.Errorf("%d are left, %v, the oldest %+v", len(got), err, got[len(got)-1])
	}
	if n := query[int](t, db, `SELECT sum(calls) FROM refusal_hour`); n != 60 {
		t.Errorf("%d are counted, want all 60", n)
	}
}
