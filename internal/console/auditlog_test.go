package console_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// TestAudit: the log has every change of the account and its keys by whom it was made, over
// all pages and in the file, and none of another account.
func TestAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Regular)
	for range 40 {
		w.makeKey(w.lab, "ours")
		w.makeKey(w.other, "theirs")
	}
	ctx := audit.WithActor(t.Context(), "=root@server")
	if _, err := w.books.Grant(ctx, ledger.Grant{AccountID: w.lab.ID, Amount: money.IU, Note: `<i>x</i>`}); err != nil {
		t.Fatal(err)
	}
	for _, k := range w.keys.List(w.lab.ID)[:30] {
		if _, err := w.keys.Revoke(ctx, k.ID); err != nil {
			t.Fatal(err)
		}
	}
	row := regexp.MustCompile(`<tr><th scope="row" class="n">`)
	changes, pages := 0, 0
	var all strings.Builder
	for path := "/audit"; path != ""; pages++ {
		page := text(t, w.ask("GET", path, token, nil))
		changes += len(row.FindAllString(page, -1))
		all.WriteString(page)
		path = ""
		if m := olderLink.FindStringSubmatch(page); m != nil && pages < 9 {
			path = m[1]
		}
	}
	lines := readCSV(t, text(t, w.ask("GET", "/audit/csv", token, nil)))
	// The account, an invitation, a member, 40 keys, a grant, 30 revocations.
	if want := 1 + 1 + 1 + 40 + 1 + 30; changes != want || len(lines) != want || pages != 2 {
		t.Errorf("%d changes on %d pages, %d in the file, want %d", changes, pages, len(lines), want)
	}
	for _, want := range []string{"operator =root@<wbr>server", "revoked the key <b>ours</b>", "added credit", "joined"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(all.String(), "theirs") || strings.Contains(all.String(), "<i>x") {
		t.Error("the log has another account's key, or a note became markup")
	}
	for _, l := range lines {
		if strings.HasPrefix(l["actor"], "=") {
			t.Fatalf("a formula: %v", l)
		}
	}
	for query, want := range map[string]int{"?action=" + string(audit.KeyRevoke): 30, "?who=%3Droot%40server": 31, "?time=2020-01-01..2020-01-02": 0, "?before=x&action=x": 50} {
		if got := len(row.FindAllString(text(t, w.ask("GET", "/audit"+query, token, nil)), -1)); got != want {
			t.Errorf("%s: %d changes, want %d", query, got, want)
		}
	}
}

// TestAuditLog_From: an entry has the address that a member's change came from; an operator's is
// the operators' to see.
func TestAuditLog_From(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, op := w.person("ada@example.test", false, w.lab, member.Owner), w.operator()
	page := text(t, w.ask("POST", "/keys/new", owner, w.filled("/keys/new", owner, "name", "web", "expires", "90")))
	if !secretText.MatchString(page) {
		t.Fatal(page)
	}
	w.sent("/operator/accounts/"+w.lab.ID+"/credit", op, w.creditForm(w.lab, op, "5", "", "gift"))
	if e := w.last(w.lab); e.Action != audit.CreditGrant || e.Origin != "192.0.2.7" {
		t.Errorf("the operator's change is %+v", e)
	}
	list := text(t, w.ask("GET", "/audit", owner, nil))
	if n := strings.Count(list, "192.0.2.7"); n != 1 || !strings.Contains(list, "added credit") {
		t.Errorf("the page has %d addresses:\n%s", n, list)
	}
	for _, l := range readCSV(t, text(t, w.ask("GET", "/audit/csv", owner, nil))) {
		if made := l["action"] == string(audit.KeyCreate); made != (l["from"] == "192.0.2.7") {
			t.Errorf("the file has %v", l)
		}
	}
	if n := strings.Count(text(t, w.ask("GET", "/operator/audit?target="+w.lab.ID, op, nil)), "192.0.2.7"); n != 1 {
		t.Errorf("the operator sees %d addresses", n)
	}
}
