package audit_test

import (
	"context"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/audit"
)

func TestEntry_Check(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 1, 2, 3, 4000, time.UTC)
	e := audit.Entry{At: at, Actor: "ann", Action: audit.KeyRevoke, Target: "key_x", Origin: "192.0.2.7", Before: `{"a":1}`, After: `{"a":2}`}
	e.Follow(7, "abc")
	if err := e.Check(7, "abc"); err != nil || e.Seq != 8 {
		t.Fatalf("entry %d: %v", e.Seq, err)
	}
	for what, change := range map[string]func(*audit.Entry){
		"seq":    func(e *audit.Entry) { e.Seq++ },
		"at":     func(e *audit.Entry) { e.At = e.At.Add(time.Microsecond) },
		"actor":  func(e *audit.Entry) { e.Actor = "bob" },
		"action": func(e *audit.Entry) { e.Action = audit.KeyCreate },
		"target": func(e *audit.Entry) { e.Target = "key_y" },
		"before": func(e *audit.Entry) { e.Before = `{"a":2}` },
		"after":  func(e *audit.Entry) { e.After = "" },
		"origin": func(e *audit.Entry) { e.Origin = "192.0.2.8" },
		"lost":   func(e *audit.Entry) { e.Origin = "" },
		"moved":  func(e *audit.Entry) { e.Actor, e.Action = "annk", "ey.revoke" }, // the same letters
		"prev":   func(e *audit.Entry) { e.Prev = "abd" },
		"hash":   func(e *audit.Entry) { e.Hash = e.Hash[1:] + "0" },
	} {
		changed := e
		change(&changed)
		if changed.Check(7, "abc") == nil {
			t.Errorf("a change of %s is not seen", what)
		}
	}
	if e.Check(7, "abd") == nil || e.Check(6, "abc") == nil {
		t.Error("it follows anything")
	}
}

func TestActor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if got := audit.Actor(ctx); got != audit.System {
		t.Errorf("nobody is %q", got)
	}
	if got := audit.Actor(audit.WithActor(ctx, "ann")); got != "ann" {
		t.Errorf("ann is %q", got)
	}
	if got := audit.Actor(audit.WithActor(ctx, "")); got != audit.System {
		t.Errorf("an empty name is %q", got)
	}
}

// TestEntry_SumOfOld: an entry without an address has the hash that it had before addresses were
// recorded.
func TestEntry_SumOfOld(t *testing.T) {
	t.Parallel()
	e := audit.Entry{At: time.UnixMicro(1), Actor: "ann", Action: audit.KeyRevoke, Target: "key_x"}
	e.Follow(0, "")
	const want = "266597c3bfa461c62fe54795cfbd84de41196fc6a263d71e0becf42c7700fd97"
	if e.Hash != want {
		t.Errorf("the hash is %s, want %s", e.Hash, want)
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if got := audit.Origin(ctx); got != "" {
		t.Errorf("nowhere is %q", got)
	}
	if got := audit.Origin(audit.WithOrigin(ctx, "192.0.2.7")); got != "192.0.2.7" {
		t.Errorf("the address is %q", got)
	}
}
