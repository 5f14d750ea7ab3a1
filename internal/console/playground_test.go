package console_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/member"
)

// play asks for the playground's key of a session.
func (w *world) play(token member.Token) (apikey.Key, string) {
	w.t.Helper()
	r := w.ask("POST", "/playground/key", token, url.Values{"account": {w.lab.ID}})
	if r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Content-Type") != "application/json" {
		w.t.Fatalf("%s %v", r.Status, r.Header)
	}
	var got struct {
		Key       string `json:"key"`
		ExpiresIn int    `json:"expires_in"`
	}
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		w.t.Fatal(err)
	}
	who, err := w.keys.Authenticate([]string{"Bearer " + got.Key}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	k, _ := w.keys.Find(who.KeyID)
	if k.AccountID != w.lab.ID || k.Name != "playground" || got.ExpiresIn < 600 || got.ExpiresIn > 900 {
		w.t.Errorf("%d s of %+v", got.ExpiresIn, k)
	}
	return k, got.Key
}

// TestPlayground_Key: one key a session, renewed while it is used, with its secret in no page.
func TestPlayground_Key(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	k, secret := w.play(ada)
	if again, same := w.play(ada); again.ID != k.ID || same != secret {
		t.Error("a second question gets another key")
	}
	now := time.Now().Add(8 * time.Minute)
	w.gate.Now = func() time.Time { return now }
	if renewed, same := w.play(ada); renewed.ID != k.ID || same != secret || !renewed.ExpiresAt.After(k.ExpiresAt) {
		t.Errorf("the key that ends at %v was not renewed: %v", k.ExpiresAt, renewed.ExpiresAt)
	}
	for _, path := range []string{"/playground", "/keys?status=all", "/keys/" + k.ID} {
		if page := text(t, w.ask("GET", path, ada, nil)); strings.Contains(page, secret) {
			t.Errorf("%s has the secret", path)
		}
	}
	if strings.Contains(w.log.String(), secret) {
		t.Error("the log has the secret")
	}
	if _, err := w.keys.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if other, _ := w.play(ada); other.ID == k.ID {
		t.Error("a key that was revoked is given out")
	}
}

// TestPlayground_Ends: the key dies with its session, however that ends, and with the look at
// its account; an operator who looks into an account gets none.
func TestPlayground_Ends(t *testing.T) {
	t.Parallel()
	right := member.Credentials{Email: "ada@example.test", Password: password}
	for name, end := range map[string]func(w *world, token member.Token){
		"sign-out": func(w *world, token member.Token) { w.ask("POST", "/sign-out", token, nil) },
		"ended from another": func(w *world, token member.Token) {
			v, err := w.gate.Visit(w.t.Context(), token)
			if err != nil {
				w.t.Fatal(err)
			}
			other, _, err := w.gate.SignIn(w.t.Context(), right, member.From{Address: "192.0.2.9"}, "")
			if err != nil {
				w.t.Fatal(err)
			}
			w.ask("POST", "/security/sessions/"+v.Session.ID+"/end", other, nil)
		},
		"all others ended": func(w *world, _ member.Token) {
			other, _, err := w.gate.SignIn(w.t.Context(), right, member.From{Address: "192.0.2.9"}, "")
			if err != nil {
				w.t.Fatal(err)
			}
			w.ask("POST", "/security/sessions/end-others", other, nil)
		},
		"switched": func(w *world, token member.Token) { w.ask("POST", "/switch", token, url.Values{"to": {w.lab.ID}}) },
	} {
		w := newWorld(t)
		token := w.person("ada@example.test", false, w.lab, member.Owner)
		k, secret := w.play(token)
		end(w, token)
		if k, _ = w.keys.Find(k.ID); k.RevokedAt.IsZero() {
			t.Errorf("%s: the key still works", name)
		}
		if _, err := w.keys.Authenticate([]string{"Bearer " + secret}, time.Now()); err == nil {
			t.Errorf("%s: the secret is taken", name)
		}
	}
	w := newWorld(t)
	w.person("operator@example.test", true, nil, member.None)
	op := signIn(t, w, "operator", true)
	if r := w.ask("POST", "/playground/key", op, url.Values{"account": {w.lab.ID}}); r.StatusCode != http.StatusForbidden || len(w.keys.List(w.lab.ID)) != 0 {
		t.Errorf("an operator gets a key: %s", r.Status)
	}
	has(t, text(t, w.ask("GET", "/playground", op, nil)), "cannot make any")
}

// TestPlayground_NoScript: one sentence and the call.
func TestPlayground_NoScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	if page := text(t, w.ask("GET", "/playground?model=svc-titan", ada, nil)); strings.Count(page, " selected>") != 1 || !strings.Contains(page, " selected>svc-titan<") {
		t.Error("the playground does not begin with the model of the address")
	}
	has(t, text(t, w.ask("GET", "/models/svc-titan", ada, nil)), `href="/playground?model=svc-titan"`)
	page := text(t, w.ask("GET", "/playground", ada, nil))
	has(t, page, "<noscript>", "The playground needs scripts.", "curl http://localhost:8080/v1/chat/completions", `data-in="0.002"`)
	if strings.Contains(page, "house-70b") {
		t.Error("a model that the plan lacks is offered")
	}
}
