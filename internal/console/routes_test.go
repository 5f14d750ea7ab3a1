package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/member"
)

var wildcard = regexp.MustCompile(`\{[^}]+\}`)

// TestRoutes asks every route of the table as everybody, and compares who is let in with
// the table. Nothing here knows a page: a new row is tested by being there.
func TestRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	people := []struct {
		name     string
		operator bool
		signedIn bool
		role     member.Role // in the account that the forms are of
		token    func() member.Token
	}{
		{"signed out", false, false, member.None, func() member.Token { return "" }},
		{"forged", false, false, member.None, func() member.Token { return member.Token(strings.Repeat("A", 43)) }},
		{"member", false, true, member.Regular, nil},
		{"owner", false, true, member.Owner, nil},
		{"owner of another account", false, true, member.None, nil},
		{"operator", true, true, member.None, nil},
	}
	for i := range people {
		p := &people[i]
		if p.token != nil {
			continue
		}
		email := strings.ReplaceAll(p.name, " ", "-") + "@example.test"
		a, role := w.lab, p.role
		if p.name == "owner of another account" {
			a, role = w.other, member.Owner
		}
		if p.operator {
			a, role = nil, member.None
		}
		w.person(email, p.operator, a, role)
		p.token = func() member.Token { return signIn(t, w, p.name, p.operator) }
	}
	for _, p := range people {
		token := p.token()
		for _, row := range console.Table() {
			r := w.ask(row.Method, wildcard.ReplaceAllString(row.Path, "none"), token, url.Values{"account": {w.lab.ID}})
			leave := strings.HasPrefix(r.Header.Get("Location"), "/sign-in?")
			var want string
			switch post := row.Method == http.MethodPost; {
			case row.Who == console.ForAnyone:
			case !p.signedIn:
				want = "sign in"
			case row.Who == console.ForPerson:
			case row.Who == console.ForOperator && !p.operator:
				want = "403"
			case row.Who == console.ForOperator:
			case p.operator && post:
				want = "403" // read only
			case row.Who == console.ForOwner && p.role != member.Owner && !p.operator && p.name != "owner of another account":
				want = "403"
			case p.name == "owner of another account" && post:
				want = "409" // the form is of an account that it does not look at
			}
			got := ""
			switch {
			case leave:
				got = "sign in"
			case r.StatusCode == http.StatusForbidden:
				got = "403"
			case r.StatusCode == http.StatusConflict:
				got = "409"
			case r.StatusCode >= http.StatusInternalServerError || r.StatusCode < http.StatusOK:
				got = r.Status
			}
			if got != want {
				t.Errorf("%s %s as %s: %s %s, want %q", row.Method, row.Path, p.name, r.Status, r.Header.Get("Location"), want)
			}
			if row.Path == "/sign-out" && p.signedIn {
				if r := w.ask("GET", "/security", token, nil); r.StatusCode != http.StatusSeeOther {
					t.Errorf("after signing out the session is still good: %s", r.Status)
				}
				token = p.token()
			}
		}
	}
	if t.Failed() {
		t.Log(w.log)
	}
}

// signIn begins another session of somebody that there is.
func signIn(t *testing.T, w *world, name string, operator bool) member.Token {
	t.Helper()
	email := strings.ReplaceAll(name, " ", "-") + "@example.test"
	token, _, err := w.gate.SignIn(t.Context(), member.Credentials{Email: email, Password: password}, member.From{Address: "192.0.2.1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if operator {
		v, err := w.gate.Visit(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.gate.Look(t.Context(), v, w.lab.ID); err != nil {
			t.Fatal(err)
		}
	}
	return token
}
