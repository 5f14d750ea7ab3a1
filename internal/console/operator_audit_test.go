package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/audit"
)

// TestOperatorAudit: changes are there in words with who made them; pages and filters lead
// through all of them; the chain's state is that of the last proof.
func TestOperatorAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	w.ask("POST", "/operator/accounts/"+w.lab.ID+"/suspend", op, nil)
	page := shown(t, w.ask("GET", "/operator/audit", op, nil))
	if !strings.Contains(page, "Chain not proved yet") || !strings.Contains(page, "account.updateExample Lab") || !strings.Contains(page, "status: active → suspendedop@example.test") {
		t.Errorf("the first page: %s", page)
	}
	w.proofs.finish(t, "")
	if page := shown(t, w.ask("GET", "/operator/audit", op, nil)); !strings.Contains(page, "Chain is whole") {
		t.Errorf("proved: %s", page)
	}
	laws := w.proofs.state.Report.Invariants
	for i := range laws {
		if laws[i].Name == audit.Whole {
			laws[i].OK, laws[i].Detail = false, "entry 3 was changed"
		}
	}
	if page := shown(t, w.ask("GET", "/operator/audit", op, nil)); !strings.Contains(page, "Chain is broken") || !strings.Contains(page, "entry 3 was changed") {
		t.Errorf("broken: %s", page)
	}
	for query, want := range map[string]bool{
		"?kind=account&actor=op@example.test&target=" + w.lab.ID: true,
		"?actor=Op@Example.test&kind=account":                    true,
		"?actor=eve@example.test":                                false,
		"?actor=system&target=" + w.lab.ID + "&kind=key":         false,
		"?kind=acc": false, // no part of a kind
		"?kind=%25": false,
	} {
		page := shown(t, w.ask("GET", "/operator/audit"+query, op, nil))
		if found := strings.Contains(page, "status: active → suspended"); found != want || !want && !strings.Contains(page, "No entry is like that") {
			t.Errorf("%s: found %v, want %v: %s", query, found, want, page)
		}
	}
	if r := w.ask("GET", "/operator/audit?before=x", op, nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("a cursor of nothing: %s", r.Status)
	}
}

// TestOperatorAudit_Pages: following Older shows every entry once.
func TestOperatorAudit_Pages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	for i := range 60 {
		w.account(fmt.Sprint("Shop ", i))
	}
	seen, next := 0, "/operator/audit?kind=account"
	for next != "" {
		page := text(t, w.ask("GET", next, op, nil))
		seen += strings.Count(page, `<th scope="row" class="brk">account.create`)
		m := regexp.MustCompile(`href="([^"]+)">Older`).FindStringSubmatch(page)
		if next = ""; m != nil {
			next = html.UnescapeString(m[1])
			if u, err := url.Parse(next); err != nil || u.Query().Get("kind") != "account" {
				t.Fatalf("the filter is lost: %s", next)
			}
		}
	}
	if seen != 62 {
		t.Errorf("%d entries, want 62", seen)
	}
}
