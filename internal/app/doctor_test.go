package app

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/webhook"
)

// standings is what a doctor that has free bytes of disk says at now.
func standings(t *testing.T, dir string, free uint64, now time.Time) (map[string]Standing, []Finding) {
	t.Helper()
	x := &examination{dir: dir, now: now, free: func(string) (uint64, error) { return free, nil }}
	if x.permissions() {
		running := x.lock()
		x.disk()
		x.books(t.Context(), running)
	}
	got := map[string]Standing{}
	for _, f := range x.findings {
		got[f.Check] = f.Standing
		if (f.Standing == Wrong) && f.Do == "" {
			t.Errorf("%s is wrong and nothing is said to be done", f.Check)
		}
	}
	return got, x.findings
}

// A child that is being started has all files of its parent for a moment: a lock that is given back
// must be free all the same.
func TestUnlock_BesideChild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	if err := unlock(f); err != nil {
		t.Fatal(err)
	}
	again, err := lock(dir)
	if err != nil {
		t.Fatalf("the lock was given back and is held: %v", err)
	}
	if err := unlock(again); err != nil {
		t.Error(err)
	}
}

// Who asks about a running server without its configuration is not told that it lacks what the
// built-in one needs.
func TestExamine_Weights(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Data = t.TempDir()
	for _, w := range []struct {
		source  string
		running bool
		want    Standing
	}{{config.BuiltIn, true, Noted}, {config.BuiltIn, false, Wrong}, {"parley.yaml", true, Wrong}} {
		x := &examination{dir: c.Data}
		c.Source = w.source
		x.weights(c, w.running)
		if len(x.findings) != 1 || x.findings[0].Standing != w.want || x.findings[0].Do == "" {
			t.Errorf("%s, running %v: %+v, want %s", w.source, w.running, x.findings, w.want)
		}
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	const plenty = 100 << 30
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "data")
	c := config.Default()
	c.Data = dir
	off, err := OpenOffline(t.Context(), c, true)
	if err != nil {
		t.Fatal(err)
	}
	r := off.rooms
	who, err := r.accounts.Create(t.Context(), "Acme", "pro")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ledger.Grant(t.Context(), ledger.Grant{AccountID: who.ID, Amount: money.IU, Note: "x"}); err != nil {
		t.Fatal(err)
	}
	m := r.catalog.List(now)[0]
	hold, err := r.ledger.Reserve(ledger.Call{
		RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: who.ID, KeyID: "key_x", Model: m.ID,
		PriceID: m.PriceID, Price: m.Price, PlanVersion: "v", Stream: true, CreatedAt: now, PromptTokens: 1, Output: 10, LeastOutput: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	fine := map[string]Standing{"directory": Fine, "lock": Fine, "disk": Fine, "schema": Fine, "books": Fine, "proof": Fine, "holds": Fine, "payments": Fine, "webhooks": Fine, "backup": Fine, "clock": Fine}
	expect := func(what string, free uint64, now time.Time, other map[string]Standing, words ...string) {
		t.Helper()
		want := maps.Clone(fine)
		maps.Copy(want, other)
		got, all := standings(t, dir, free, now)
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		var text strings.Builder
		for _, f := range all {
			text.WriteString(f.Text + "\n" + f.Do + "\n")
		}
		for _, w := range words {
			if !strings.Contains(text.String(), w) {
				t.Errorf("%s: nothing says %q:\n%s", what, w, &text)
			}
		}
	}
	expect("in use", plenty, now, nil, "In use by process ")
	if err := hold.Persist(); err != nil {
		t.Fatal(err)
	}
	if err := hold.Durable(); err != nil {
		t.Fatal(err)
	}
	expect("a stream", plenty, now, nil, "1 stream running")
	hold.Delivered(3)
	// The books as a kill leaves them.
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}
	expect("killed", plenty, now, map[string]Standing{"holds": Noted}, "1 stream did not end")

	if off, err = OpenOffline(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}
	expect("recovered", plenty, now, nil, "Nothing is left of the last process")
	expect("little room", leastFree+1, now, map[string]Standing{"disk": Noted})
	expect("no room", leastFree-1, now, map[string]Standing{"disk": Wrong})
	expect("a clock set back", plenty, now.Add(-time.Hour), map[string]Standing{"clock": Wrong}, "set back by 1h0m0s")

	if off, err = OpenOffline(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	back := ledger.Reversal{
		Payment: ledger.Payment{AccountID: who.ID, Source: "stripe:pi_1", Credit: money.IU}, Source: "stripe:evt_1", Claim: ledger.Claim{Part: "dp_1"},
		ByHand: true, Action: audit.PaymentDispute, Reason: "dispute dp_1: 400 cannot be compared",
	}
	if _, err := off.rooms.ledger.Grant(t.Context(), ledger.Grant{AccountID: who.ID, Amount: money.IU, Source: "stripe:pi_1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := off.rooms.ledger.Reverse(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}
	expect("a dispute in another currency", plenty, now, map[string]Standing{"payments": Wrong},
		"of account Acme: dispute dp_1: 400 cannot be compared.", "at most the 1 IU", "parley credit adjust "+who.ID+` AMOUNT --reason "dp_1"`)

	if off, err = OpenOffline(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(off.rooms.ledger.Adjust(t.Context(), who.ID, 1, "dp_1"),
		off.rooms.db.Announce(t.Context(), []webhook.Endpoint{{URL: "https://hooks.example/secret"}}, money.IU),
		off.rooms.db.Emit(t.Context(), webhook.LedgerUnbalanced, "", nil)); err != nil {
		t.Fatal(err)
	}
	expect("an event waits", plenty, now.Add(23*time.Hour), nil)
	expect("it waits for long", plenty, now.Add(25*time.Hour), map[string]Standing{"webhooks": Wrong}, "1 event waiting for https://hooks.example/#")
	if err := off.rooms.db.Announce(t.Context(), nil, money.IU); err != nil {
		t.Fatal(err)
	}
	expect("nobody sends it", plenty, now.Add(25*time.Hour), map[string]Standing{"webhooks": Noted}, "has no such webhook any more")
	if err := errors.Join(off.rooms.db.Announce(t.Context(), []webhook.Endpoint{{URL: "https://hooks.example/secret"}}, money.IU), off.Close()); err != nil {
		t.Fatal(err)
	}
	expect("no server runs", plenty, now.Add(25*time.Hour), map[string]Standing{"webhooks": Noted}, "parley serve")

	kept := filepath.Join(dir, "backups", ".parley-backup-1")
	if err := errors.Join(os.Mkdir(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect("a backup was killed", plenty, now, map[string]Standing{"backup": Noted}, kept+" (0 B) is part of a backup", "rm "+kept)

	part := filepath.Join(dir, store.FileName+".restoring")
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := standings(t, dir, plenty, now); got["books"] != Wrong {
		t.Errorf("a restore cut short: %v", got)
	}
	if _, err := OpenOffline(context.Background(), c, false); err == nil || !strings.Contains(err.Error(), "parley restore FILE --data "+dir) {
		t.Errorf("OpenOffline in a restore cut short gives %v", err)
	}
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, store.FileName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := standings(t, dir, plenty, now); got["books"] != Wrong {
		t.Errorf("half a database: %v", got)
	}
	// A disk that lost the books must not be taken for a first start.
	for what, lose := range map[string]func() error{
		"an empty database": func() error { return os.Truncate(path, 0) },
		"no database":       func() error { return os.Rename(path, path+".lost") },
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if got, _ := standings(t, dir, plenty, now); got["books"] != Wrong {
			t.Errorf("%s: %v", what, got)
		}
		if _, err := OpenOffline(context.Background(), c, true); err == nil || !strings.Contains(err.Error(), "parley restore FILE --data "+dir) {
			t.Errorf("OpenOffline with %s gives %v", what, err)
		}
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.RemoveAll(path+".lost")); err != nil {
			t.Fatal(err)
		}
	}
}
