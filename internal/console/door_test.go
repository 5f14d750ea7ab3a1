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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/member"
)

var recoveryCode = regexp.MustCompile(`[0-9a-z]{4}(-[0-9a-z]{4}){3}`)

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
	form := w.filled("/security/codes", ada, "code", "000000")
	if r := w.ask("POST", "/security/codes", ada, form); r.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a wrong code: %s", r.Status)
	}
	form.Set("code", oneTime(key, now))
	r := w.ask("POST", "/security/codes", ada, form)
	recovery := recoveryCode.FindAllString(text(t, r), -1)
	if len(recovery) != 10 || session(r) == "" || session(r) == ada {
		t.Fatalf("%d recovery codes: %s", len(recovery), r.Status)
	}
	// A double click shows the second answer and not the first.
	if again := recoveryCode.FindAllString(text(t, w.ask("POST", "/security/codes", session(r), form)), -1); !slices.Equal(again, recovery) {
		t.Errorf("sent twice, the recovery codes are %q, they were %q", again, recovery)
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
	if page := text(t, claim(first, "ada@example.test", "a wrong password")); !strings.Contains(page, "This link was used on") {
		t.Error("a used link with a wrong password does not say so")
	}
	// A double click: who has claimed is let in by the second answer, too, and is not told that
	// somebody was here.
	again := claim(first, "ada@example.test", password)
	if r := w.ask("GET", "/operator", session(again), nil); r.StatusCode != http.StatusOK {
		t.Errorf("the form sent twice: %s, then %s", again.Status, r.Status)
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
