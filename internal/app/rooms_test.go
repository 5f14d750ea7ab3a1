package app

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/subscription"
)

// gold is a configuration that has another plan than the built-in one.
const gold = `
data: data
plans: [{id: gold, included: {tokens: 1000, credit: "5"}}]
upstreams: [{id: local, kind: local}]
models: [{id: svc-pulse, context_window: 512, pricing: {input: 1, output: 1}, plans: [gold], targets: [{upstream: local, model: x}]}]
`

// An operator who looks at the books while the server is down may leave --config out: what
// the server's plans include, and that a period is over, is then nothing to act upon.
func TestOpenOffline_WithoutTheConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(file, []byte(gold), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	more := config.Default() // and the built-in plans, new at the same moment
	more.Data, more.Source, more.Plans = filepath.Join(t.TempDir(), "data"), file, append(slices.Clone(other.Plans), more.Plans...)
	for _, its := range []*config.Config{other, more} {
		withoutTheConfiguration(t, its)
	}
}

func withoutTheConfiguration(t *testing.T, its *config.Config) {
	t.Helper()
	off, err := OpenOffline(t.Context(), its, true)
	if err != nil {
		t.Fatal(err)
	}
	who, err := off.rooms.accounts.Create(t.Context(), "Lab", "gold")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = off.rooms.subscriptions.Set(t.Context(), who.ID, "gold", subscription.Options{}, time.Now().AddDate(0, 0, -40)); err != nil {
		t.Fatal(err)
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}

	unsaid := config.Default()
	unsaid.Data = its.Data
	if off, err = OpenOffline(t.Context(), unsaid, false); err != nil {
		t.Fatal(err)
	}
	if a, _ := off.rooms.accounts.ByID(who.ID); a.Subscription.Period != 1 || !a.Subscription.EndedAt.IsZero() {
		t.Errorf("a command without the configuration leaves period %d, ended at %v; want period 1 as it was", a.Subscription.Period, a.Subscription.EndedAt)
	}
	for name, change := range map[string]func() error{
		"set": func() error {
			_, err := off.rooms.subscriptions.Set(t.Context(), who.ID, "pro", subscription.Options{}, time.Now())
			return err
		},
		"cancel": func() error {
			_, err := off.rooms.subscriptions.Cancel(t.Context(), who.ID, true, time.Now())
			return err
		},
	} {
		if err := change(); !errors.Is(err, account.ErrFrozen) {
			t.Errorf("%s without the configuration: %v, want ErrFrozen", name, err)
		}
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}

	_, err = openRooms(t.Context(), unsaid, nil, false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "plans_unknown" || !strings.Contains(err.Error(), "and would end: gold.\nName the configuration: ") {
		t.Errorf("a server without the configuration: %v", err)
	}

	if off, err = OpenOffline(t.Context(), its, false); err != nil {
		t.Fatal(err)
	}
	if a, _ := off.rooms.accounts.ByID(who.ID); a.Subscription.Period != 2 || !a.Subscription.Applies(time.Now()) {
		t.Errorf("with the configuration: period %d, applies %v; want period 2", a.Subscription.Period, a.Subscription.Applies(time.Now()))
	}
	if known, err := off.rooms.db.KnowsPlans(t.Context(), nil, nil); known || err != nil {
		t.Errorf("no plans at all are known: %v, %v", known, err)
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}
}

// A subscription that changes to a plan is to that plan, too.
func TestOpenRooms_NextPlan(t *testing.T) {
	t.Parallel()
	its := config.Default()
	its.Data, its.Source = filepath.Join(t.TempDir(), "data"), "parley.yaml"
	its.Plans = append(its.Plans, config.Plan{ID: "gold", Period: "month"})
	off, err := OpenOffline(t.Context(), its, true)
	if err != nil {
		t.Fatal(err)
	}
	who, err := off.rooms.accounts.Create(t.Context(), "Lab", "pro")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err = off.rooms.subscriptions.Set(t.Context(), who.ID, "pro", subscription.Options{}, now); err != nil {
		t.Fatal(err)
	}
	if _, err = off.rooms.subscriptions.Change(t.Context(), who.ID, "gold", account.AtPeriodEnd, now); err != nil {
		t.Fatal(err)
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}
	unsaid := config.Default()
	unsaid.Data = its.Data
	_, err = openRooms(t.Context(), unsaid, nil, false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "plans_unknown" || !strings.Contains(err.Error(), ": gold.") {
		t.Errorf("a server that lacks the next plan: %v", err)
	}
}
