package admin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/member"
)

// TestInvite gives an account its first owner, and says in its audit log who has.
func TestInvite(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	lab := h.lab(t)
	for role, in := range map[member.Role]admin.NewInvitation{
		member.Owner: {Email: " Ada@example.test"}, member.Regular: {Email: "ben@example.test", Role: "member"},
	} {
		made, err := h.Invite(ctx, lab.ID, in)
		token, ok := strings.CutPrefix(made.URL, "http://localhost:8080/join/")
		email := strings.ToLower(strings.TrimSpace(in.Email))
		if left := time.Until(made.ExpiresAt); err != nil || !ok || made.Account != "Example Lab" || made.Email != email || made.Role != string(role) || left > member.InvitationLimit || left < member.InvitationLimit-time.Hour {
			t.Fatalf("Invite(%+v) = %+v, %v", in, made, err)
		}
		if es, err := h.AuditLog(ctx, lab.ID, 1); err != nil || es[0].Action != string(audit.LinkCreate) || es[0].Actor != admin.Whoami() || strings.Contains(string(es[0].After), token) {
			t.Errorf("the audit log has %+v, %v", es, err)
		}
		if _, err := h.gate.Join(ctx, member.Token(token), "correct horse battery", member.From{Address: "192.0.2.1"}); err != nil {
			t.Errorf("joining as %s: %v", role, err)
		}
	}
	people, err := h.db.People(ctx, lab.ID)
	if err != nil || len(people) != 2 || people[0].Email != "ada@example.test" || people[0].Role != member.Owner || people[1].Role != member.Regular {
		t.Errorf("the account has %+v, %v", people, err)
	}
	if _, err := h.SetAccount(ctx, lab.ID, admin.Change{Status: new("suspended")}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Invite(ctx, lab.ID, admin.NewInvitation{Email: "eve@example.test"}); code(err) != "account_suspended" {
		t.Errorf("into a suspended account: %v", err)
	}
	if open, err := h.db.Invitations(ctx, lab.ID, time.Now()); err != nil || len(open) != 0 {
		t.Errorf("%d invitations are open, %v", len(open), err)
	}
}

// TestRevokeInvitation lists what can still be used, and takes one back.
func TestRevokeInvitation(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	lab := h.lab(t)
	if none, err := h.Invitations(ctx, lab.ID); err != nil || none == nil || len(none) != 0 {
		t.Errorf("before the first: %v, %v", none, err)
	}
	ada, err := h.Invite(ctx, lab.ID, admin.NewInvitation{Email: "ada@example.test"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := h.Invite(ctx, lab.ID, admin.NewInvitation{Email: "ada@example.test", Role: "member"})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := h.Invitations(ctx, "Example Lab"); err != nil || len(all) != 2 || all[0] != again.Invitation || all[1] != ada.Invitation || ada.CreatedBy != admin.Whoami() {
		t.Errorf("the open ones are %+v, %v; want %+v and %+v", all, err, again.Invitation, ada.Invitation)
	}
	other, err := h.CreateAccount(ctx, admin.NewAccount{Name: "Other Lab", Plan: "pro"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.RevokeInvitation(ctx, other.ID, ada.ID); code(err) != "invitation_not_found" {
		t.Errorf("of another account: %v", err)
	}
	if gone, err := h.RevokeInvitation(ctx, lab.ID, ada.ID); err != nil || gone != ada.Invitation {
		t.Errorf("RevokeInvitation() = %+v, %v", gone, err)
	}
	if es, err := h.AuditLog(ctx, lab.ID, 1); err != nil || es[0].Action != string(audit.LinkRevoke) || es[0].Actor != admin.Whoami() {
		t.Errorf("the audit log has %+v, %v", es, err)
	}
	join := func(url string) error {
		_, token, _ := strings.Cut(url, "/join/")
		_, err := h.gate.Join(ctx, member.Token(token), "correct horse battery", member.From{Address: "192.0.2.1"})
		return err
	}
	if err := join(ada.URL); !errors.Is(err, member.ErrLinkUnknown) {
		t.Errorf("joining by the revoked one: %v", err)
	}
	if err := join(again.URL); err != nil {
		t.Errorf("joining by the other: %v", err)
	}
	for _, id := range []string{ada.ID, again.ID} { // revoked, used
		if _, err := h.RevokeInvitation(ctx, lab.ID, id); code(err) != "invitation_not_found" {
			t.Errorf("once more: %v", err)
		}
	}
}
