package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// proofs proves the books of a world when they are asked for, and is done when a test says so.
type proofs struct {
	db    *store.DB
	state console.Proof
}

func (p *proofs) Proof() console.Proof { return p.state }

func (p *proofs) ProveNow() { p.state.Since = time.Now() }

func (p *proofs) finish(t *testing.T, fault string) {
	t.Helper()
	report, err := p.db.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if fault != "" {
		report.Invariants[0].OK, report.Invariants[0].Detail = false, fault
	}
	p.state = console.Proof{Report: report, At: time.Now()}
}

// TestOperatorLedger: the sum of all accounts closes, each law is shown, and a proof that is
// under way makes the page ask again.
func TestOperatorLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	if page := shown(t, w.ask("GET", "/operator/ledger", op, nil)); !strings.Contains(page, "Not proved yet") || !strings.Contains(page, "No proof was made") {
		t.Errorf("new books: %s", page)
	}
	for _, a := range []string{w.lab.ID, w.other.ID} {
		if _, err := w.books.Grant(t.Context(), ledger.Grant{AccountID: a, Amount: 20 * money.IU, Note: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	h, err := w.books.Reserve(ledger.Call{RequestID: "req_1", AccountID: w.lab.ID, Price: money.Price{Output: money.IU}, Output: 3, LeastOutput: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Void(ledger.Outcome{}) }()
	r := w.ask("POST", "/operator/ledger/verify", op, nil)
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/operator/ledger" {
		t.Fatalf("verify: %s", r.Status)
	}
	r = w.ask("GET", "/operator/ledger", op, nil)
	page := shown(t, r)
	if r.Header.Get("Refresh") != "2" || !strings.Contains(page, "A proof is under way") {
		t.Errorf("under way: refresh %q: %s", r.Header.Get("Refresh"), page)
	}
	if !strings.Contains(page, "40.00granted\u22120.00spent\u22123.00held by 1 running call=37.00available") {
		t.Errorf("the sum: %s", page)
	}
	w.proofs.finish(t, "")
	r = w.ask("GET", "/operator/ledger", op, nil)
	page = shown(t, r)
	for _, law := range w.proofs.state.Report.Invariants {
		if !strings.Contains(page, law.Name+" Holds") && !strings.Contains(page, law.Name+"Holds") {
			t.Errorf("the page lacks %q: %s", law.Name, page)
		}
	}
	if r.Header.Get("Refresh") != "" || !strings.Contains(page, "Ledger Balanced") {
		t.Errorf("balanced: %s", page)
	}
	w.proofs.finish(t, "acct_x: <5> too much")
	if page := shown(t, w.ask("GET", "/operator/ledger", op, nil)); !strings.Contains(page, "Not balanced") || !strings.Contains(page, "acct_x: <5> too much") || !strings.Contains(page, "Broken") {
		t.Errorf("not balanced: %s", page)
	}
	w.proofs.state = console.Proof{At: time.Now(), Failed: "disk I/O error"}
	if page := shown(t, w.ask("GET", "/operator/ledger", op, nil)); !strings.Contains(page, "Not proved") || !strings.Contains(page, "disk I/O error") {
		t.Errorf("not readable: %s", page)
	}
}
