package console_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
)

// TestFind: an id, a name, or a part of a secret leads to what it is of; what another account
// has is not found, and a secret is in no answer.
func TestFind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	stranger := w.person("eve@example.test", false, w.other, member.Owner)
	w.grant(w.lab, ledger.Grant{Amount: money.IU})
	k, secret, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "Nightly"})
	if err != nil {
		t.Fatal(err)
	}
	ended := w.call(k, "svc-titan", time.Now(), ledger.Outcome{PromptTokens: 1}).RequestID
	refused := w.refuse(k, refusal.Record{At: time.Now(), Status: 400, Code: "invalid_json"})
	full := string(secret)
	for q, want := range map[string]string{
		ended: "/requests/" + ended, refused: "/requests/" + refused, " " + ident.CompletionOf(ended) + " ": "/requests/" + ended,
		k.ID: k.ID, "night": k.ID, k.Last4: k.ID, k.Prefix: k.ID, "svc-t": "svc-titan",
		full: k.ID, "Authorization: Bearer " + full: k.ID, `"` + full + `"`: k.ID, full[len("sk-parley-"):]: k.ID,
	} {
		r := w.ask("POST", "/find", token, url.Values{"q": {q}})
		if got := r.Header.Get("Location"); !strings.Contains(got, want) || strings.Contains(got, full[15:40]) {
			t.Errorf("%q leads to %s %q, want %q", q, r.Status, got, want)
		}
		if q == "svc-t" {
			continue // models are everybody's
		}
		r = w.ask("POST", "/find", stranger, url.Values{"q": {q}})
		page := text(t, r)
		if r.StatusCode != 200 || !strings.Contains(page, "Nothing found") {
			t.Errorf("%q of another account leads to %s %q", q, r.Status, r.Header.Get("Location"))
		}
		if strings.Contains(page, full[15:40]) {
			t.Errorf("the secret is on the page of %q", q)
		}
	}
	if page := text(t, w.ask("POST", "/find", token, url.Values{"q": {"svc-"}})); !strings.Contains(page, "svc-titan") || !strings.Contains(page, "svc-pulse") {
		t.Error("two models are not both listed")
	}
	if strings.Contains(w.log.String(), full[15:40]) {
		t.Error("the secret is in the log")
	}
}

// TestFind_Operator: an operator finds any account by its name, a member or a key, and any call
// by its id, which it then looks at in the account that made it.
func TestFind_Operator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	w.person("ada@example.test", false, w.other, member.Owner)
	w.grant(w.other, ledger.Grant{Amount: money.IU})
	k, secret, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.other.ID, Name: "Nightly"})
	if err != nil {
		t.Fatal(err)
	}
	call := w.call(k, "svc-titan", time.Now(), ledger.Outcome{PromptTokens: 1}).RequestID
	account := "/operator/accounts/" + w.other.ID
	for _, q := range []string{w.other.ID, strings.ToUpper(w.other.Name), "ada@example.test", "Ada@", k.ID, k.Last4, k.Prefix, string(secret)} {
		if r := w.ask("POST", "/find", op, url.Values{"q": {q}}); r.Header.Get("Location") != account {
			t.Errorf("%q leads to %s %q, want %s", q, r.Status, r.Header.Get("Location"), account)
		}
	}
	for _, q := range []string{call, ident.CompletionOf(call)} {
		r := w.ask("POST", "/find", op, url.Values{"q": {q}})
		if got := r.Header.Get("Location"); got != "/requests/"+call {
			t.Errorf("%q leads to %s %q", q, r.Status, got)
		}
	}
	has(t, text(t, w.ask("GET", "/requests/"+call, op, nil)), "You are looking at "+w.other.Name+" as operator", call)
	for _, q := range []string{"nobody@", "req_x", "zzzz"} {
		if page := text(t, w.ask("POST", "/find", op, url.Values{"q": {q}})); !strings.Contains(page, "Nothing found") {
			t.Errorf("%q finds something:\n%s", q, page)
		}
	}
}
