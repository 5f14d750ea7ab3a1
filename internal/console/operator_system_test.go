package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/console"
)

// TestOperatorSystem: the page says what was found, when a backup was made, and refreshes
// itself only when it is asked to.
func TestOperatorSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	w.system = console.System{
		Version: "1.2.3", Started: time.Now().Add(-73 * time.Hour), Schema: 9, Data: "/srv/parley",
		Engines: []console.Engine{{Upstream: "local", Running: 3, Places: 16, Waiting: 2, PagesUsed: 10, PagesTotal: 2048, TokensPerSecond: 312.25}},
		Checks:  []console.Check{{Name: "disk", Standing: "wrong", Text: "12 MiB are free.", Do: "Make room."}},
		Files:   []console.File{{Name: "parley.db", Bytes: 2_200_000_000}, {Name: "progress", Bytes: 512}},
	}
	r := w.ask("GET", "/operator/system", op, nil)
	page := shown(t, r)
	for _, want := range []string{
		"System Ready", "parley 1.2.3, up 3 days", "schema 9", "Batch, choices316", "calls2–", "312.2", "disk12 MiB are free. Make room.Act", "parley.db2 GiB", "progress512 B", "These together2 GiB",
		"booksNot proved since the start.Good", "None was ever made. parley backup FILELook",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
	if r.Header.Get("Refresh") != "" {
		t.Error("it refreshes itself unasked")
	}
	w.proofs.finish(t, "")
	if _, err := w.db.Backup(t.Context(), t.TempDir()+"/copy"); err != nil {
		t.Fatal(err)
	}
	w.system.Unready, w.system.Engines = "draining", nil
	r = w.ask("GET", "/operator/system?refresh=5", op, nil)
	page = shown(t, r)
	for _, want := range []string{"No new call is served. draining.", "Not ready", "Balanced at ", "The last was made ", "Pause refresh", "No model is computed here"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
	if r.Header.Get("Refresh") != "5" {
		t.Error("it does not refresh itself")
	}
}
