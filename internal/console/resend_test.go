package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/member"
)

// TestSignedOut_KeepsForm: a form whose session was over waits for who signs in, is sent by a click
// of its own, and is of the account that it was made for.
func TestSignedOut_KeepsForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	w.person("ben@example.test", false, w.other, member.Owner)
	accept(t, w, "ada@example.test", ada)
	w.ask("POST", "/switch", ada, url.Values{"to": {w.other.ID}})
	f := w.filled("/members/invite", ada, "email", "dora@example.test", "role", "member")
	f.Set("account", w.other.ID)
	w.ask("POST", "/sign-out", ada, nil)

	kept := regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
	waiting := func(r *http.Response, says string) url.Values {
		t.Helper()
		page := text(t, r)
		has(t, page, says)
		carried := url.Values{}
		for _, m := range kept.FindAllStringSubmatch(page, -1) {
			carried.Set(m[1], html.UnescapeString(m[2]))
		}
		return carried
	}
	const path = "/members/invite"
	door := waiting(w.ask("POST", path, ada, f, "Sec-Fetch-Mode", "navigate", "Referer", "http://localhost:8080"+path), "What you have typed is kept")
	if door.Get("next") != path || door.Get("resend") != path {
		t.Errorf("what waits at the door is %v", door)
	}
	door.Set("email", "ada@example.test")
	door.Set("password", "wrong wrong wrong")
	door = waiting(w.ask("POST", "/sign-in", "", door), "What you have typed is kept")
	door.Set("email", "ada@example.test")
	door.Set("password", password)
	r := w.ask("POST", "/sign-in", "", door)
	if r.StatusCode != http.StatusTemporaryRedirect || r.Header.Get("Location") != "/resend" {
		t.Fatalf("signing in answers %s to %s", r.Status, r.Header.Get("Location"))
	}
	again := session(r)
	form := waiting(w.ask("POST", "/resend", again, door), `action="`+path+`"`)
	if form.Get("email") != "dora@example.test" || form.Has("password") {
		t.Errorf("what is to be sent is %v", form)
	}
	if n := len(invitationsOf(t, w)); n != 0 {
		t.Errorf("%d invitations were made without a click", n)
	}
	has(t, text(t, w.ask("POST", path, again, form)), "The invitation is ready")
	if all := invitationsOf(t, w); len(all) != 1 || all[0].Email != "dora@example.test" {
		t.Errorf("the invitations are %+v", all)
	}
	// Passwords, islands and what was looked for are not repeated; nor does anything wait for another site.
	for path, c := range map[string]struct {
		form url.Values
		mode string
		next string
	}{
		"/security/password": {url.Values{"password": {password}}, "navigate", "/security"},
		"/find":              {url.Values{"q": {"sk-parley-secret"}}, "navigate", "/keys"},
		"/playground/key":    {url.Values{"account": {w.lab.ID}, "x": {"1"}}, "cors", "/playground"},
		"/prove":             {url.Values{"password": {password}, "next": {"/keys/new"}}, "navigate", "/keys/new"},
	} {
		r := w.ask("POST", path, "", c.form, "Sec-Fetch-Mode", c.mode, "Referer", "http://localhost:8080"+c.next)
		if got := r.Header.Get("Location"); got != "/sign-in?next="+url.QueryEscape(c.next) {
			t.Errorf("%s signed out: %s to %q", path, r.Status, got)
		}
	}
	page := text(t, w.ask("POST", "/resend", again, url.Values{"resend": {"//evil.example/x"}, "sent": {"a=b"}}))
	if strings.Contains(page, "evil.example") {
		t.Error("a form waits for another site")
	}
}

// accept gives a member a place in the other account.
func accept(t *testing.T, w *world, email string, token member.Token) {
	t.Helper()
	link, _, err := w.gate.Invite(t.Context(), w.other.ID, email, member.Owner)
	if err != nil {
		t.Fatal(err)
	}
	v, err := w.gate.Visit(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.gate.OpenLink(t.Context(), link, member.Invitation)
	if err != nil {
		t.Fatal(err)
	}
	// The session stays as it is: what is of interest is the place.
	s := v.Session
	s.ID, s.Hash = "sess_accept", member.Token("accept").Hash()
	if err := w.db.Enter(t.Context(), l.Hash, member.Entry{Member: v.Member, Known: true, Session: s}); err != nil {
		t.Fatal(err)
	}
}

// invitationsOf are the open ones of the other account.
func invitationsOf(t *testing.T, w *world) []member.Link {
	t.Helper()
	all, err := w.db.Invitations(t.Context(), w.other.ID, w.gate.Now())
	if err != nil {
		t.Fatal(err)
	}
	return all
}
