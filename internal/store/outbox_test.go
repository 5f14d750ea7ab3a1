package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/webhook"
)

// outbox is a database with an event for each hour of now, at most ages old: a has taken those of
// even ages, b none.
func outbox(t *testing.T, now time.Time, ages ...int) (*store.DB, string) {
	t.Helper()
	dir := t.TempDir()
	db := open(t, dir)
	if err := db.Announce(t.Context(), []webhook.Endpoint{{URL: "https://a.example/secret"}, {URL: "https://b.example/secret"}}, money.IU); err != nil {
		t.Fatal(err)
	}
	for i, age := range ages {
		if err := db.Emit(t.Context(), webhook.LedgerUnbalanced, "", nil); err != nil {
			t.Fatal(err)
		}
		exec(t, db, `UPDATE event SET created_at = $1 WHERE number = $2`, now.Add(-time.Duration(age)*time.Hour).UnixMicro(), i+1)
		if age%2 == 0 {
			exec(t, db, `UPDATE delivery SET state = 'delivered', ended_at = 1 WHERE event = $1 AND endpoint LIKE 'https://a.%'`, i+1)
		}
	}
	return db, dir
}

// What is forgotten while it waits is told, with where it should have gone, and noted.
func TestForgetEvents_Lost(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Microsecond).UTC()
	db, _ := outbox(t, now, 50, 41, 40, 31, 30, 1)
	exec(t, db, `UPDATE delivery SET state = 'failed', ended_at = 1 WHERE event IN (1, 5) AND endpoint LIKE 'https://b.%'`)
	ended, never := now.Add(-10*time.Hour), now.Add(-100*time.Hour)
	left := func() string {
		t.Helper()
		return query[string](t, db, `SELECT coalesce(group_concat(number), '') FROM (SELECT number FROM event ORDER BY number)`)
	}
	n, lost, err := db.ForgetEvents(t.Context(), ended, never, 100)
	if n != 2 || len(lost) != 0 || err != nil || left() != "2,3,4,6" { // of 1 and 5 nothing waits
		t.Errorf("ForgetEvents of what does not wait = %d, %v, %v; left %s", n, lost, err, left())
	}
	n, lost, err = db.ForgetEvents(t.Context(), ended, ended, 2)
	if n != 2 || err != nil || left() != "4,6" {
		t.Errorf("ForgetEvents = %d, %v; left %s", n, err, left())
	}
	var addresses []string
	for i := range lost {
		addresses = append(addresses, lost[i].Address)
		lost[i].Address, _, _ = strings.Cut(lost[i].Address, "#")
	}
	want := []webhook.Lost{
		{Address: "https://a.example/", Events: 1, Oldest: now.Add(-41 * time.Hour)},
		{Address: "https://b.example/", Events: 2, Oldest: now.Add(-41 * time.Hour)},
	}
	if diff := cmp.Diff(want, lost); diff != "" {
		t.Fatalf("lost (-want +got):\n%s", diff)
	}
	if n := query[int](t, db, `SELECT count(*) FROM delivery`); n != 4 {
		t.Errorf("%d deliveries are left of two events", n)
	}
	log, err := db.AuditLog(t.Context(), "webhooks", 10)
	if err != nil || len(log) != 3 || log[0].Action != audit.WebhookLose || log[0].Actor != audit.System ||
		log[0].After != fmt.Sprintf(`{"events":2,"oldest":%q,"url":%q}`, now.Add(-41*time.Hour).Format(time.RFC3339Nano), addresses[1]) {
		t.Errorf("the audit log: %+v, %v", log, err)
	}
	if n, lost, err := db.ForgetEvents(t.Context(), never, never, 100); n != 0 || lost != nil || err != nil {
		t.Errorf("ForgetEvents of nothing = %d, %v, %v", n, lost, err)
	}
	prove(t, db)
}

// A data directory says what waits for whom, and whether anybody will send it.
func TestInspect_Waiting(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Microsecond).UTC()
	db, dir := outbox(t, now, 50, 41, 40)
	if err := db.Announce(t.Context(), []webhook.Endpoint{{URL: "https://b.example/secret"}}, money.IU); err != nil {
		t.Fatal(err)
	}
	i, err := store.Inspect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range i.Waiting {
		i.Waiting[n].Address, _, _ = strings.Cut(i.Waiting[n].Address, "#")
	}
	want := []store.WaitingEvents{
		{Address: "https://a.example/", Events: 1, Oldest: now.Add(-41 * time.Hour)},
		{Address: "https://b.example/", Events: 3, Oldest: now.Add(-50 * time.Hour), Wanted: true},
	}
	if diff := cmp.Diff(want, i.Waiting); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
}
