package console_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/member"
)

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

// TestCodes turns one-time codes on, signs in with one, then with a recovery code.
func TestCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	other, _, err := w.gate.SignIn(t.Context(), member.Credentials{Email: "ada@example.test", Password: password}, member.From{Address: "192.0.2.9"}, "")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	w.gate.Now = func() time.Time { return now }
	page := text(t, w.ask("GET", "/security/codes", ada, nil))
	m := regexp.MustCompile(`<output id="totp"[^>]*>([A-Z2-7 ]+)<`).FindStringSubmatch(page)
	if m == nil || !strings.Contains(page, `aria-label="The secret as a code for a camera"`) {
		t.Fatalf("no secret:\n%s", page)
	}
	key, err := base32.StdEncoding.DecodeString(strings.ReplaceAll(m[1], " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	if r := w.ask("POST", "/security/codes", ada, url.Values{"code": {"000000"}}); r.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a wrong code: %s", r.Status)
	}
	r := w.ask("POST", "/security/codes", ada, url.Values{"code": {oneTime(key, now)}})
	recovery := regexp.MustCompile(`[0-9a-z]{4}(-[0-9a-z]{4}){3}`).FindAllString(text(t, r), -1)
	if len(recovery) != 10 || session(r) == "" || session(r) == ada {
		t.Fatalf("%d recovery codes: %s", len(recovery), r.Status)
	}
	if r := w.ask("GET", "/security", other, nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("another session is still good: %s", r.Status)
	}

	signIn := func() member.Token {
		r := w.ask("POST", "/sign-in", "", url.Values{"email": {"ada@example.test"}, "password": {password}})
		if r.Header.Get("Location") != "/sign-in/code?next=%2F" {
			t.Fatalf("the password alone leads to %q", r.Header.Get("Location"))
		}
		return session(r)
	}
	half := signIn()
	if r := w.ask("GET", "/security", half, nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("half a sign-in opens pages: %s", r.Status)
	}
	// The code that turned them on is used.
	if r := w.ask("POST", "/sign-in/code", half, url.Values{"code": {oneTime(key, now)}}); session(r) != "" {
		t.Error("a code was taken twice")
	}
	now = now.Add(30 * time.Second)
	r = w.ask("POST", "/sign-in/code", half, url.Values{"code": {oneTime(key, now)}})
	if whole := session(r); whole == "" || whole == half || w.ask("GET", "/security", whole, nil).StatusCode != http.StatusOK {
		t.Errorf("the next code: %s", r.Status)
	}
	for i, ok := range []bool{true, false} {
		r = w.ask("POST", "/sign-in/code", signIn(), url.Values{"code": {recovery[3]}, "recovery": {"1"}})
		if (session(r) != "") != ok {
			t.Errorf("a recovery code, use %d: %s", i+1, r.Status)
		}
	}
}

// oneTime is what an authenticator app shows.
func oneTime(key []byte, now time.Time) string {
	mac := hmac.New(sha1.New, key)
	_ = binary.Write(mac, binary.BigEndian, now.Unix()/30)
	sum := mac.Sum(nil)
	n := binary.BigEndian.Uint32(sum[sum[19]&15:]) & (1<<31 - 1)
	return fmt.Sprintf("%06d", n%1_000_000)
}

// TestClaim: the link of a first start works once, and a later one lets the same person back in.
func TestClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, _, err := w.gate.MakeOperatorLink(t.Context(), w.lab.ID)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(token member.Token, email, secret string) *http.Response {
		return w.ask("POST", "/claim", "", url.Values{"token": {string(token)}, "email": {email}, "password": {secret}})
	}
	for _, wrong := range []struct {
		token         member.Token
		email, secret string
		want          string
	}{
		{"nonsense", "ada@example.test", password, "There is no such link."},
		{first, "ada", password, "Enter an address like"},
		{first, "ada@example.test", "short", "Enter 12 to 256 characters."},
	} {
		if page := text(t, claim(wrong.token, wrong.email, wrong.secret)); !strings.Contains(page, wrong.want) || strings.Contains(page, wrong.secret) {
			t.Errorf("the page lacks %q or repeats the password", wrong.want)
		}
	}
	ada := session(claim(first, "ada@example.test", password))
	if ada == "" {
		t.Fatalf("the link does not work:\n%s", w.log)
	}
	if r := w.ask("GET", "/members/invite", ada, nil); r.StatusCode != http.StatusOK {
		t.Errorf("who claims is no owner: %s", r.Status)
	}
	if page := text(t, claim(first, "eve@example.test", password)); !strings.Contains(page, "This link was used on") || !strings.Contains(page, "parley operator link") {
		t.Error("a used link does not say so")
	}
	second, _, err := w.gate.MakeOperatorLink(t.Context(), w.lab.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := claim(second, "ada@example.test", "another long password"); session(r) == "" {
		t.Errorf("a second link: %s", r.Status)
	}
	if r := w.ask("GET", "/security", ada, nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the session from before is still good: %s", r.Status)
	}
	if strings.Contains(w.log.String(), string(first)) || strings.Contains(w.log.String(), password) {
		t.Error("the log has a secret")
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

// TestDatabaseDown: what cannot be known is said, not taken for a sign-out.
func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	w.db.Close()
	r := w.ask("GET", "/security", ada, nil)
	page := text(t, r)
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The database cannot be read") || !strings.Contains(page, r.Header.Get("X-Request-Id")) {
		t.Errorf("%s:\n%s", r.Status, page)
	}
	if strings.Contains(page, "closed") || !strings.Contains(w.log.String(), "closed") {
		t.Error("the cause is on the page, or not in the log")
	}
}

// TestTaste: the theme is the member's, wherever it signs in.
func TestTaste(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	w.ask("POST", "/security/taste", ada, url.Values{"theme": {"dark"}})
	page := text(t, w.ask("GET", "/security", ada, nil))
	if !strings.Contains(page, `data-theme="dark"`) || strings.Contains(page, "data-shortcuts") {
		t.Error("theme or shortcuts were not kept")
	}
	if r := w.ask("POST", "/security/taste", ada, url.Values{"theme": {`"><script>`}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a theme that there is not: %s", r.Status)
	}
}
