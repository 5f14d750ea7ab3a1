package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
)

// TestOperatorInvites gives an account its first owner, who sees in its audit log by whom.
func TestOperatorInvites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	at := "/operator/accounts/" + w.lab.ID
	path := at + "/invite"
	if page := text(t, w.ask("GET", at, op, nil)); !strings.Contains(page, `href="`+path+`">Invite an owner`) {
		t.Error("the account's page does not lead to the form")
	}
	if status, page := w.sent(path, op, w.filled(path, op, "email", "ada", "role", "owner")); status != http.StatusUnprocessableEntity || !strings.Contains(page, "Invite to Example Lab") {
		t.Errorf("no address: %d %s", status, page)
	}
	if status, _ := w.sent(path, op, w.filled(path, op, "email", "ada@example.test", "role", "admin")); status != http.StatusBadRequest {
		t.Errorf("no role: %d", status)
	}
	form := w.filled(path, op, "email", "ada@example.test", "role", "owner")
	first := joinLink.FindStringSubmatch(text(t, w.ask("POST", path, op, form)))
	again := joinLink.FindStringSubmatch(text(t, w.ask("POST", path, op, form)))
	if first == nil || again == nil || again[1] != first[1] {
		t.Fatalf("sent twice the form made %v and %v", first, again)
	}
	if open, err := w.db.Invitations(t.Context(), w.lab.ID, time.Now()); err != nil || len(open) != 1 || open[0].Role != member.Owner {
		t.Errorf("the open invitations are %+v, %v", open, err)
	}
	who, err := w.gate.Visit(t.Context(), op)
	if e := w.last(w.lab); err != nil || e.Action != audit.LinkCreate || e.Actor != who.Member.ID {
		t.Errorf("the audit log has %+v, %v", e, err)
	}
	ada := session(w.ask("POST", first[1], "", map[string][]string{"password": {password}}))
	if r := w.ask("GET", "/members/invite", ada, nil); r.StatusCode != http.StatusOK {
		t.Errorf("who was invited is no owner: %s", r.Status)
	}
	if page := shown(t, w.ask("GET", "/audit", ada, nil)); !strings.Contains(page, "operator or") || !strings.Contains(page, "invited a member") {
		t.Errorf("the owner does not see who invited: %s", page)
	}

	form = w.filled(path, op, "email", "eve@example.test", "role", "owner")
	if _, err := w.accounts.Change(t.Context(), w.lab.ID, account.Change{Status: new(string(account.Suspended))}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*http.Response{w.ask("GET", path, op, nil), w.ask("POST", path, op, form)} {
		if r.StatusCode != http.StatusConflict || !strings.Contains(text(t, r), "Resume it first.") {
			t.Errorf("into a suspended account: %s", r.Status)
		}
	}
	if page := text(t, w.ask("GET", at, op, nil)); strings.Contains(page, "Invite") {
		t.Error("the page of a suspended account leads to the form")
	}
	if open, err := w.db.Invitations(t.Context(), w.lab.ID, time.Now()); err != nil || len(open) != 0 {
		t.Errorf("after all, %d invitations are open, %v", len(open), err)
	}
	if r := w.ask("GET", "/operator/accounts/acct_none/invite", op, nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("of nobody: %s", r.Status)
	}
}

// TestOperatorRevokesInvitation: every link that an operator makes stays good until it is used,
// so the account's page lists them all and takes back any.
func TestOperatorRevokesInvitation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op, owner := w.operator(), w.person("ada@example.test", false, w.lab, member.Owner)
	at := "/operator/accounts/" + w.lab.ID
	if page := text(t, w.ask("GET", at, op, nil)); strings.Contains(page, "Open invitations") {
		t.Error("without an invitation there is a list of them")
	}
	path := at + "/invite"
	link := joinLink.FindStringSubmatch(text(t, w.ask("POST", path, op, w.filled(path, op, "email", "ben@example.test", "role", "owner"))))
	owners := invite(t, w, owner, "eve@example.test", "member")
	open, err := w.db.Invitations(t.Context(), w.lab.ID, time.Now())
	if err != nil || len(open) != 2 || link == nil {
		t.Fatalf("the open invitations are %+v, %v", open, err)
	}
	page := shown(t, w.ask("GET", at, op, nil))
	for _, want := range []string{"ben@example.test", "eve@example.test", "by op@example.test", "by ada@example.test", "Revoke the invitation of ben@example.test"} {
		if !strings.Contains(page, want) {
			t.Errorf("the account's page does not say %q", want)
		}
	}
	if page := shown(t, w.ask("GET", "/members", owner, nil)); !strings.Contains(page, "by operator or former member") || strings.Contains(page, "op@example.test") {
		t.Error("the owner is not told that an operator invites, or who that is")
	}
	revoke := at + "/invitations/" + open[1].ID + "/revoke" // the older one: the operator's
	if r := w.ask("POST", revoke, owner, nil); r.StatusCode != http.StatusForbidden {
		t.Errorf("by an owner: %s", r.Status)
	}
	other := w.account("Other Lab")
	if status, page := w.sent("/operator/accounts/"+other.ID+"/invitations/"+open[1].ID+"/revoke", op, nil); status != http.StatusSeeOther || !strings.Contains(page, "That invitation is not open any more") {
		t.Errorf("of another account: %d %s", status, page)
	}
	if still, err := w.db.Invitations(t.Context(), w.lab.ID, time.Now()); err != nil || len(still) != 2 {
		t.Errorf("by the path of another account it was revoked: %+v, %v", still, err)
	}
	if _, err := w.accounts.Change(t.Context(), w.lab.ID, account.Change{Status: new(string(account.Suspended))}); err != nil {
		t.Fatal(err)
	}
	if r := w.ask("POST", revoke, op, nil); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != at+"?done=revoked" {
		t.Errorf("of a suspended account: %s to %s", r.Status, r.Header.Get("Location"))
	}
	if page := shown(t, w.ask("GET", at+"?done=revoked", op, nil)); !strings.Contains(page, "The invitation is revoked.") || strings.Contains(page, "invitation of ben@example.test") || !strings.Contains(page, "invitation of eve@example.test") {
		t.Error("the page does not say what was done, or lists what is left wrongly")
	}
	if r := w.ask("GET", link[1], "", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("the link that was revoked: %s", r.Status)
	}
	if r := w.ask("GET", owners, "", nil); r.StatusCode != http.StatusOK {
		t.Errorf("the one that was not: %s", r.Status)
	}
}
