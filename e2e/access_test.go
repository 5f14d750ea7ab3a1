package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestAccess_Plans is wire.md 46, 47 and 49: what a plan and a balance allow, in this order.
func TestAccess_Plans(t *testing.T) {
	t.Parallel()
	s := server(t)
	free, _ := account(t, s, "plan-free", "free", "5")
	freePoor, _ := account(t, s, "plan-free-poor", "free", "")
	poor, _ := account(t, s, "plan-poor", "pro", "")
	titan := strings.Replace(body(""), "svc-pulse", "svc-titan", 1)

	e := wantError(t, post(t, s, free, titan), http.StatusForbidden, "model_access_denied")
	if e.Error.Type != "permission_error" || !strings.Contains(e.Error.Message, "svc-titan") {
		t.Errorf("403: %+v", e.Error)
	}
	wantError(t, post(t, s, freePoor, titan), http.StatusForbidden, "model_access_denied")
	wantCompletion(t, post(t, s, free, body("")))
	e = wantError(t, post(t, s, poor, body("")), http.StatusPaymentRequired, "insufficient_quota")
	if e.Error.Type != "insufficient_quota" {
		t.Errorf("402: %+v", e.Error)
	}
	// A name that does not exist is 404 before the plan and the balance are looked at.
	wantError(t, post(t, s, freePoor, strings.Replace(body(""), "svc-pulse", "svc-nope", 1)), http.StatusNotFound, "model_not_found")
	wantCompletion(t, post(t, s, s.Key, titan))
	// Moving to another plan is felt at once.
	run(t, s, "account", "set", "plan-free", "--plan", "pro")
	wantCompletion(t, post(t, s, free, titan))
}

// TestAccess_Revoke: a revoked key is refused from the moment the command returns, and an answer of
// the embedded model to it is broken off; what was delivered is charged.
func TestAccess_Revoke(t *testing.T) {
	t.Parallel()
	s := server(t)
	secret, id := account(t, s, "revoke", "pro", "10")
	wantCompletion(t, post(t, s, secret, body("")))

	resp, err := openStream(t, newClient(), s, secret,
		`{"model":"svc-pulse","stream":true,"max_tokens":2000,"seed":1`+endless+`,"messages":[{"role":"user","content":"Write a long story about a harbour."}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	revoked := runJSON[struct {
		Status    string `json:"status"`
		Confirmed int    `json:"confirmed"`
		Servers   int    `json:"servers"`
	}](t, s, "key", "revoke", id)
	if revoked.Status != "revoked" || revoked.Confirmed != 1 || revoked.Servers != 1 {
		t.Errorf("key revoke says %+v", revoked)
	}
	e := wantError(t, post(t, s, secret, body("")), http.StatusUnauthorized, "api_key_revoked")
	if e.Error.Type != "authentication_error" {
		t.Errorf("401: %+v", e.Error)
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		t.Error("the stream of a revoked key ended cleanly")
	}
	checkCut(t, string(text), "api_key_revoked")
	done := readStream(string(text))
	eventually(t, func() error {
		list := runJSON[[]receipt](t, s, "receipts", "--account", "revoke", "--limit", "1")
		if len(list) == 1 && list[0].State == "settled" && list[0].Ending == "key_revoked" && list[0].CompletionID == done.chunks[0].ID {
			return nil
		}
		return receiptsError(list)
	})
}

type receiptsError []receipt

// Error prints the receipts that are not yet what a test waits for.
func (e receiptsError) Error() string {
	var b strings.Builder
	for _, r := range e {
		b.WriteString(r.State + " " + r.Ending + " " + r.Charge + "; ")
	}
	return "receipts: " + b.String()
}

// TestAccess_Accounts: suspending, expiring and narrowing do what they say, and the same reference
// adds credit once.
func TestAccess_Accounts(t *testing.T) {
	t.Parallel()
	s := server(t)
	secret, _ := account(t, s, "Ann & Sons", "pro", "1")
	run(t, s, "account", "set", "Ann & Sons", "--status", "suspended")
	wantError(t, post(t, s, secret, body("")), http.StatusUnauthorized, "account_suspended")
	run(t, s, "account", "set", "Ann & Sons", "--status", "active")
	wantCompletion(t, post(t, s, secret, body("")))

	narrow := runJSON[struct{ Secret string }](t, s, "key", "create", "--account", "Ann & Sons", "--models", "svc-titan").Secret
	wantError(t, post(t, s, narrow, body("")), http.StatusForbidden, "model_access_denied")

	expiring := expiringKey(t, s, "Ann & Sons")
	eventually(t, func() error {
		if a := post(t, s, expiring, body("")); a.Status != http.StatusUnauthorized {
			return statusError(a.Status)
		}
		return nil
	})
	wantError(t, post(t, s, expiring, body("")), http.StatusUnauthorized, "api_key_expired")

	type show struct{ Available string }
	before := nano(t, runJSON[show](t, s, "account", "show", "Ann & Sons").Available)
	for range 3 {
		run(t, s, "credit", "add", "Ann & Sons", "2.5", "--note", "once", "--ref", "case-118")
	}
	if after := nano(t, runJSON[show](t, s, "account", "show", "Ann & Sons").Available); after != before+2_500_000_000 {
		t.Errorf("three times the same reference: %d nano-IU more, want 2.5 IU", after-before)
	}
}

// soon runs a command whose last argument is a time that comes soon, and returns that time. A
// command refuses a time that has passed; a machine that is too slow for two seconds gets more.
func soon(t *testing.T, s *proc.Server, args ...string) (proc.Result, time.Time) {
	t.Helper()
	for ahead := 2 * time.Second; ; ahead *= 2 {
		at := time.Now().Add(ahead).UTC().Truncate(time.Second).Add(time.Second)
		r := s.Run(append(slices.Clip(args), at.Format(time.RFC3339))...)
		if r.Code == 0 {
			return r, at
		}
		if ahead > time.Minute {
			t.Fatalf("parley %v: exit code %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// expiringKey makes a key that expires soon, and returns its secret.
func expiringKey(t *testing.T, s *proc.Server, account string) string {
	t.Helper()
	r, _ := soon(t, s, "key", "create", "--account", account, "--json", "--expires")
	var key struct{ Secret string }
	if err := json.Unmarshal([]byte(r.Stdout), &key); err != nil {
		t.Fatalf("%v in %q", err, r.Stdout)
	}
	return key.Secret
}

type statusError int

// Error names the status that is not yet the right one.
func (e statusError) Error() string { return http.StatusText(int(e)) }
