package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/member"
)

// TestSignIn goes through the door as a browser does.
func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)

	r := w.ask("GET", "/security", "", nil)
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/sign-in?next=%2Fsecurity" {
		t.Fatalf("signed out: %s to %s", r.Status, r.Header.Get("Location"))
	}
	right := url.Values{"email": {" Ada@Example.test "}, "password": {password}, "next": {"/security"}}
	r = w.ask("POST", "/sign-in", "", right)
	token := session(r)
	if token == "" || r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/sign-in/check?next=%2Fsecurity" {
		t.Fatalf("signing in: %s to %s", r.Status, r.Header.Get("Location"))
	}
	if r := w.ask("GET", "/sign-in/check?next=%2Fsecurity", token, nil); r.Header.Get("Location") != "/security" {
		t.Errorf("with the cookie the check leads to %q", r.Header.Get("Location"))
	}
	if r := w.ask("GET", "/sign-in/check?next=%2Fsecurity", "", nil); !strings.Contains(text(t, r), "kept no session") {
		t.Error("a browser that keeps no cookie is not told so")
	}
	if page := text(t, w.ask("GET", "/security", token, nil)); !strings.Contains(page, "ada@example.test") || !strings.Contains(page, "this one") {
		t.Errorf("the page lacks the member or its session:\n%s", page)
	}
}

// TestSignIn_Cookie: the flags that keep the token from scripts, plain connections and other
// sites' forms.
func TestSignIn_Cookie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)
	r := w.ask("POST", "/sign-in", "", url.Values{"email": {"ada@example.test"}, "password": {password}})
	line := r.Header.Get("Set-Cookie")
	for _, part := range []string{"__Host-session=", "; Path=/", "; Max-Age=604800", "; HttpOnly", "; Secure", "; SameSite=Lax"} {
		if !strings.Contains(line, part) {
			t.Errorf("Set-Cookie %q lacks %q", line, part)
		}
	}
	if strings.Contains(line, "Domain") {
		t.Errorf("Set-Cookie %q names a domain", line)
	}
	if w.ask("GET", "/security", session(r), nil).Header.Get("Cache-Control") != "no-store" {
		t.Error("a page may be kept by caches")
	}
}

// TestSignIn_Fixation: a token that was in the browser before is not the one after.
func TestSignIn_Fixation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)
	mallory := w.person("mallory@example.test", false, w.other, member.Owner)
	right := url.Values{"email": {"ada@example.test"}, "password": {password}}
	token := session(w.ask("POST", "/sign-in", mallory, right))
	if token == "" || token == mallory {
		t.Fatalf("the session's token is %q, it was %q", token, mallory)
	}
	if r := w.ask("GET", "/security", mallory, nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the session that was planted is still good: %s", r.Status)
	}
	// A proof gives another token, too.
	after := session(w.ask("POST", "/prove", token, url.Values{"password": {password}}))
	if after == "" || after == token {
		t.Errorf("a proof kept the token")
	}
	if r := w.ask("GET", "/security", token, nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the token from before the proof is still good: %s", r.Status)
	}
}

// TestForeign: a form of another site changes nothing, with the cookie that browsers may send.
func TestForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
	} {
		r := w.ask("POST", "/sign-out", token, nil, header...)
		if r.StatusCode != http.StatusForbidden {
			t.Errorf("%v: %s", header, r.Status)
		}
	}
	if r := w.ask("GET", "/security", token, nil); r.StatusCode != http.StatusOK {
		t.Errorf("the session has ended: %s", r.Status)
	}
	if r := w.ask("POST", "/sign-out", token, nil, "Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8080"); r.StatusCode != http.StatusSeeOther {
		t.Errorf("our own form: %s", r.Status)
	}
}

// TestInsecure: where browsers keep no session the page says what to do, and nobody is asked
// for a password.
func TestInsecure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for host, secure := range map[string]bool{
		"localhost:8080": true, "127.0.0.1:8080": true, "[::1]:8080": true, "parley.localhost": true,
		"10.1.2.3:8080": false, "ai.example.org": false, "rebound.example": false, "127.0.0.1.example.org": false,
	} {
		r := w.ask("GET", "/sign-in", "", nil, "Host", host)
		page := text(t, r)
		if got := r.StatusCode == http.StatusOK && strings.Contains(page, `type="password"`); got != secure {
			t.Errorf("%s: %s, secure = %v, want %v", host, r.Status, got, secure)
		}
		if !secure && !strings.Contains(page, "ssh -L 8080:localhost:8080") {
			t.Errorf("%s: the page does not say what to do:\n%s", host, page)
		}
	}
	if r := w.ask("GET", "/sign-in", "", nil, "Host", "ai.example.org", "X-Forwarded-Proto", "https"); r.StatusCode != http.StatusOK {
		t.Errorf("behind a proxy with TLS: %s", r.Status)
	}
}

// TestSignIn_LeadsNowhereElse: what follows a sign-in is a page of this server.
func TestSignIn_LeadsNowhereElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	for _, next := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "javascript:alert(1)", "evil", "/\r\nSet-Cookie: a=b", ""} {
		r := w.ask("GET", "/sign-in/check?next="+url.QueryEscape(next), token, nil)
		if got := r.Header.Get("Location"); got != "/" {
			t.Errorf("next=%q leads to %q", next, got)
		}
	}
}
