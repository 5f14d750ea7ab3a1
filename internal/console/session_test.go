package console_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/member"
)

// What the console promises of sessions, each with its test here:
//
//	a cookie that scripts, plain connections and other hosts never see   TestSignIn_Cookie
//	another token after a sign-in and after a proof, the old one dead    TestSignIn_Fixation
//	one answer for a wrong password and for nobody                       TestSignIn_Unknown
//	guesses that become slower, at the door and inside                   TestSignIn_Throttle, TestProof_Throttle
//	a session that is over when it is said to be                         TestSignOut, TestSessions
//	a new password that locks out who knew the old one                   TestPassword_EndsOthers
//	no token and no password in the files of the database                TestSession_AtRest
//	no form of another site that is taken, by any route                  TestForeign
//	no sign-in where browsers would send the token in the clear          TestInsecure
//	no sign-in that leads to another site                                TestSignIn_LeadsNowhereElse
//
// One-time codes are in TestCodes, passkeys in the browser's tests, who may open what in TestRoutes.

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

// TestSignIn_Unknown: the answer to a wrong password and to an unknown member is the same
// page, but for what was typed and the request's id.
func TestSignIn_Unknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)
	answer := func(email string) string {
		r := w.ask("POST", "/sign-in", "", url.Values{"email": {email}, "password": {"wrong wrong wrong"}})
		if r.StatusCode != http.StatusUnprocessableEntity || session(r) != "" {
			t.Errorf("%s: %s", email, r.Status)
		}
		return strings.ReplaceAll(text(t, r), email, "EMAIL")
	}
	known, unknown := answer("ada@example.test"), answer("nob@example.test")
	if known != unknown {
		t.Errorf("the answers differ:\n%s\n%s", known, unknown)
	}
	if !strings.Contains(known, "Email or password is wrong.") {
		t.Errorf("the page does not say what is wrong:\n%s", known)
	}
}

// TestSignIn_Throttle: after five wrong tries the right password waits too, for members that
// do not exist as well; it is never locked out.
func TestSignIn_Throttle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)
	now := time.Now()
	w.gate.Now = func() time.Time { return now }
	for _, email := range []string{"ada@example.test", "nobody@example.test"} {
		for range 5 {
			w.ask("POST", "/sign-in", "", url.Values{"email": {email}, "password": {"wrong wrong wrong"}})
		}
		r := w.ask("POST", "/sign-in", "", url.Values{"email": {email}, "password": {password}})
		if page := text(t, r); !strings.Contains(page, "Too many tries. Try again at ") || session(r) != "" {
			t.Errorf("the sixth try of %s: %s", email, r.Status)
		}
	}
	now = now.Add(13 * time.Second)
	if r := w.ask("POST", "/sign-in", "", url.Values{"email": {"ada@example.test"}, "password": {password}}); session(r) == "" {
		t.Errorf("after the wait: %s", r.Status)
	}
}

// TestProof_Throttle: with a session that was left open, guesses at the password and at the
// one-time code are as slow as at the door.
func TestProof_Throttle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	now := time.Now()
	w.gate.Now = func() time.Time { return now }
	for range 5 {
		if r := w.ask("POST", "/prove", ada, url.Values{"password": {"wrong wrong wrong"}}); session(r) != "" {
			t.Fatal("a wrong password is a proof")
		}
	}
	r := w.ask("POST", "/prove", ada, url.Values{"password": {password}})
	if page := text(t, r); !strings.Contains(page, "Too many tries. Try again at ") || session(r) != "" {
		t.Errorf("the sixth proof: %s", r.Status)
	}
	if good(w, ada) != 1 {
		t.Error("guessing at a proof has signed the member out")
	}
}

// TestSignOut: the session is dead on the server, and the browser is told to forget the cookie.
func TestSignOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	other, _, err := w.gate.SignIn(t.Context(), member.Credentials{Email: "ada@example.test", Password: password}, member.From{Address: "192.0.2.9"}, "")
	if err != nil {
		t.Fatal(err)
	}
	r := w.ask("POST", "/sign-out", ada, nil)
	line := r.Header.Get("Set-Cookie")
	for _, part := range []string{"__Host-session=;", "; Path=/", "; Max-Age=0", "; HttpOnly", "; Secure"} {
		if !strings.Contains(line, part) {
			t.Errorf("Set-Cookie %q lacks %q", line, part)
		}
	}
	if good(w, ada) != 0 {
		t.Error("the token still opens pages")
	}
	if good(w, other) != 1 {
		t.Error("the session in another browser has ended, too")
	}
}

// TestPassword_EndsOthers: who changes the password locks out whoever knew the old one.
func TestPassword_EndsOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	thief, _, err := w.gate.SignIn(t.Context(), member.Credentials{Email: "ada@example.test", Password: password}, member.From{Address: "192.0.2.9"}, "")
	if err != nil {
		t.Fatal(err)
	}
	fresh := session(w.ask("POST", "/security/password", ada, url.Values{"password": {"another long password"}}))
	if fresh == "" || fresh == ada || good(w, fresh) != 1 {
		t.Errorf("who changed it has the token %q, it was %q", fresh, ada)
	}
	if n := good(w, thief, ada); n != 0 {
		t.Errorf("%d of the tokens from before are good", n)
	}
	if r := w.ask("POST", "/sign-in", "", url.Values{"email": {"ada@example.test"}, "password": {password}}); session(r) != "" {
		t.Error("the old password still signs in")
	}
}

// TestSession_AtRest: who reads the files of the database has neither tokens nor passwords.
func TestSession_AtRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	seen := false
	err := filepath.WalkDir(filepath.Dir(t.TempDir()), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen = seen || bytes.Contains(content, []byte("ada@example.test"))
		for _, secret := range []string{string(token), password} {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s has the text %q", filepath.Base(path), secret)
			}
		}
		return nil
	})
	if err != nil || !seen {
		t.Errorf("the member is in no file, so this has looked at the wrong ones: %v", err)
	}
}

// TestSessions: they end by themselves, and by their member.
func TestSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	token := func() member.Token {
		x, _, err := w.gate.SignIn(t.Context(), member.Credentials{Email: "ada@example.test", Password: password}, member.From{Address: "192.0.2.9", Agent: "Mozilla/5.0 (X11; Linux x86_64) Firefox/150.0"}, "")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	second, third := token(), token()
	page := text(t, w.ask("GET", "/security", ada, nil))
	ids := regexp.MustCompile(`/security/sessions/(sess_[0-9a-z]+)/end`).FindAllStringSubmatch(page, -1)
	if len(ids) != 2 || !strings.Contains(page, "Firefox on Linux") {
		t.Fatalf("%d other sessions are listed, want 2:\n%s", len(ids), page)
	}
	eve := w.person("eve@example.test", false, w.other, member.Owner)
	w.ask("POST", ids[0][0], eve, nil) // not hers: nothing happens
	if got := good(w, second, third); got != 2 {
		t.Errorf("somebody else ended a session: %d are good", got)
	}
	w.ask("POST", ids[0][0], ada, nil)
	if got := good(w, second, third); got != 1 {
		t.Errorf("after ending one, %d are good", got)
	}
	w.ask("POST", "/security/sessions/end-others", ada, nil)
	if got := good(w, second, third, ada); got != 1 {
		t.Errorf("after ending all others, %d are good", got)
	}
	w.gate.Now = func() time.Time { return time.Now().Add(member.IdleLimit + time.Minute) }
	if got := good(w, ada); got != 0 {
		t.Error("a session outlives 12 hours without use")
	}
}

// good is how many of the tokens are signed in.
func good(w *world, tokens ...member.Token) (n int) {
	for _, token := range tokens {
		if w.ask("GET", "/security", token, nil).StatusCode == http.StatusOK {
			n++
		}
	}
	return n
}

// TestForeign: no form of another site changes anything, with the cookie that browsers may send:
// not one row of the route table takes it.
func TestForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", true, w.lab, member.Owner)
	for _, row := range console.Table() {
		if row.Method == http.MethodGet {
			continue
		}
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
		} {
			r := w.ask(row.Method, wildcard.ReplaceAllString(row.Path, "none"), token, url.Values{"account": {w.lab.ID}}, header...)
			if r.StatusCode != http.StatusForbidden || !strings.Contains(text(t, r), "Sent by another site") {
				t.Errorf("%s %s, %v: %s", row.Method, row.Path, header, r.Status)
			}
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
