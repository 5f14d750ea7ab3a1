package catalog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/catalog"
)

func model(id string) catalog.Model {
	return catalog.Model{ID: id, ContextWindow: 8192, MaxOutput: 1024, Targets: []catalog.Target{{Upstream: "local", Model: id}}}
}

func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	with := func(change func(*catalog.Model)) []catalog.Model {
		m := model("odd")
		change(&m)
		return []catalog.Model{model("good"), m}
	}
	for _, c := range []struct {
		name   string
		models []catalog.Model
		says   string
	}{
		{"no id", with(func(m *catalog.Model) { m.ID = "" }), `""`},
		{"an id twice", with(func(m *catalog.Model) { m.ID = "good" }), "good"},
		{"no output", with(func(m *catalog.Model) { m.MaxOutput = 0 }), "odd"},
		{"a negative output", with(func(m *catalog.Model) { m.MaxOutput = -1 }), "output -1"},
		{"no context", with(func(m *catalog.Model) { m.ContextWindow, m.MaxOutput = 0, 0 }), "odd"},
		{"a context for one token", with(func(m *catalog.Model) { m.ContextWindow, m.MaxOutput = 1, 1 }), "context window 1"},
		{"an output above the context", with(func(m *catalog.Model) { m.MaxOutput = m.ContextWindow + 1 }), "output 8193"},
		{"no target", with(func(m *catalog.Model) { m.Targets = nil }), "odd"},
		{"an empty list of targets", with(func(m *catalog.Model) { m.Targets = []catalog.Target{} }), "no target"},
	} {
		got, err := catalog.New(c.models)
		if !errors.Is(err, catalog.ErrModel) || got != nil {
			t.Errorf("%s: New = %v, %v, want ErrModel", c.name, got, err)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q does not say %q", c.name, err, c.says)
		}
	}
}

func TestNew_Bounds(t *testing.T) {
	t.Parallel()
	m := model("small")
	m.ContextWindow, m.MaxOutput = 2, 2
	for _, models := range [][]catalog.Model{nil, {}, {m}, {model("a"), model("A")}} {
		c, err := catalog.New(models)
		if err != nil || len(c.List(time.Now())) != len(models) {
			t.Errorf("New of %d models = %v, %v", len(models), c, err)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old := model("old")
	old.Deprecated = now
	c, err := catalog.New([]catalog.Model{model("parley-1"), model("org/Model:tag"), old})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct {
		id   string
		now  time.Time
		want bool
	}{
		{"parley-1", now, true},
		{"org/Model:tag", now, true},
		{"Parley-1", now, false},
		{"org/model:tag", now, false},
		{"parley-1 ", now, false},
		{"parley", now, false},
		{"", now, false},
		{"old", now.Add(-1), true},
		{"old", now, false}, // at the instant
		{"old", now.Add(time.Hour), false},
		{"old", now.Add(-1).In(time.FixedZone("east", 3600)), true},
		{"parley-1", now.AddDate(1000, 0, 0), true}, // the zero time is never
	} {
		m, ok := c.Lookup(l.id, l.now)
		if ok != l.want || ok != (m != nil) || ok && m.ID != l.id {
			t.Errorf("Lookup(%q, now%+d) = %v, %v, want %v", l.id, l.now.Sub(now), m, ok, l.want)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old, older := model("b-old"), model("z-older")
	old.Deprecated, older.Deprecated = now, now.Add(-time.Hour)
	c, err := catalog.New([]catalog.Model{model("c"), older, model("a"), old, model("B")})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct {
		now  time.Time
		want []string
	}{
		{now.Add(-2 * time.Hour), []string{"B", "a", "b-old", "c", "z-older"}},
		{now.Add(-1), []string{"B", "a", "b-old", "c"}},
		{now, []string{"B", "a", "c"}},
	} {
		var got []string
		for _, m := range c.List(l.now) {
			got = append(got, m.ID)
		}
		if diff := cmp.Diff(l.want, got); diff != "" {
			t.Errorf("List(now%+d) differs (-want +got):\n%s", l.now.Sub(now), diff)
		}
	}
}

// The catalog keeps its own models: the configuration may be reused for the next.
func TestNew_Copies(t *testing.T) {
	t.Parallel()
	models := []catalog.Model{model("a"), model("b")}
	c, err := catalog.New(models)
	if err != nil {
		t.Fatal(err)
	}
	models[0].ID, models[0].MaxOutput = "changed", 1
	if m, ok := c.Lookup("a", time.Now()); !ok || m.ID != "a" || m.MaxOutput != 1024 {
		t.Errorf("Lookup(a) = %+v, %v, want it as it was given", m, ok)
	}
}

func TestOnPlan(t *testing.T) {
	t.Parallel()
	m := model("m")
	m.Plans = []string{"pro", "max"}
	for plan, want := range map[string]bool{"pro": true, "max": true, "Pro": false, "": false, "free": false} {
		if got := m.OnPlan(plan); got != want {
			t.Errorf("OnPlan(%q) = %v, want %v", plan, got, want)
		}
	}
	closed := model("m")
	if closed.OnPlan("pro") || closed.OnPlan("") {
		t.Error("a model without plans is on one")
	}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	if got := (catalog.Target{Upstream: "cloud", Model: "org/m"}).String(); got != "cloud/org/m" {
		t.Errorf("String() = %q, want cloud/org/m", got)
	}
}
