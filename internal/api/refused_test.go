package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// Every call that was refused can be explained later by its id: by which rule, whose, and
// with the numbers that the caller was told.
func TestRefused(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	ctx := context.Background()
	key := func(n apikey.NewKey) (header []string, id string) {
		if n.AccountID == "" {
			n.AccountID = d.account.ID
		}
		n.Name = "k"
		k, secret, err := d.keys.Create(ctx, n)
		must(t, err)
		return []string{"Authorization", "Bearer " + string(secret)}, k.ID
	}
	poor, poorKey := d.customer(t, "poor", "pro", 0)
	free, freeKey := d.customer(t, "free", "free", credit)
	few, fewID := key(apikey.NewKey{RPM: 1})
	narrow, narrowID := key(apikey.NewKey{TPM: 200})
	tight, tightID := key(apikey.NewKey{Budget: account.Budget{Amount: 50}})
	picky, pickyID := key(apikey.NewKey{Models: []string{"org/m"}})
	gone, goneID := key(apikey.NewKey{})
	_, err := d.keys.Revoke(ctx, goneID)
	must(t, err)
	if r := d.post(t, body(`,"max_tokens":5`), few...); r.StatusCode != http.StatusOK {
		t.Fatalf("the one call that is allowed: %d %s", r.StatusCode, r.body)
	}
	if r := d.post(t, body(`,"max_tokens":100`), narrow...); r.StatusCode != http.StatusOK {
		t.Fatalf("the first of few tokens: %d %s", r.StatusCode, r.body)
	}
	titan := strings.Replace(body(""), "svc-pulse", "svc-titan", 1)
	for _, c := range []struct {
		name   string
		body   string
		header []string
		want   refusal.Record
	}{
		{"requests", body(""), few, refusal.Record{Rule: wire.RuleRequests, Scope: refusal.Key, KeyID: fewID, Limit: 1, Used: 1, Asked: 1, PromptTokens: 10}},
		{"tokens", body(`,"max_tokens":180`), narrow, refusal.Record{Rule: wire.RuleTokens, Scope: refusal.Key, KeyID: narrowID, Limit: 200, Used: 12, Asked: 190, Fits: 178, PromptTokens: 10, MaxTokens: 180}},
		{"too large", body(`,"max_tokens":300`), narrow, refusal.Record{Rule: wire.RuleTooLarge, Scope: refusal.Key, KeyID: narrowID, Limit: 200, Used: 12, Asked: 310, Fits: 190, PromptTokens: 10, MaxTokens: 300}},
		{"budget", body(`,"max_tokens":9`), tight, refusal.Record{Rule: wire.RuleBudget, Scope: refusal.Key, KeyID: tightID, Limit: 50, Asked: 280, PromptTokens: 10, MaxTokens: 9}},
		{"no credit", body(""), []string{"Authorization", "Bearer " + poorKey}, refusal.Record{AccountID: poor.ID, Rule: wire.RuleCredit, Scope: refusal.Account}},
		{"plan", titan, []string{"Authorization", "Bearer " + freeKey}, refusal.Record{AccountID: free.ID, Model: "svc-titan", Rule: wire.RulePlan, Scope: refusal.Account}},
		{"the key's models", body(""), picky, refusal.Record{Rule: wire.RuleKeyModels, Scope: refusal.Key, KeyID: pickyID}},
		{"no model", strings.Replace(body(""), "svc-pulse", "svc-"+strings.Repeat("x", 80), 1), nil, refusal.Record{Model: "svc-" + strings.Repeat("x", 60), Rule: wire.RuleModel, Param: "model"}},
		{"a parameter", body(`,"temperature":3`), nil, refusal.Record{Model: "-", Rule: wire.RuleParameter, Param: "temperature"}},
		{"a revoked key", body(""), gone, refusal.Record{Model: "-", KeyID: goneID}},
		{"nobody", body(""), []string{"Authorization", ""}, refusal.Record{AccountID: "-", Model: "-"}},
	} {
		sent := time.Now().Add(-time.Second)
		r := d.post(t, c.body, c.header...)
		d.refusals.Flush(ctx)
		id := r.Header.Get("X-Request-Id")
		got, err := d.db.Refusal(ctx, id)
		if err != nil {
			t.Errorf("%s: %v of %d %s", c.name, err, r.StatusCode, r.body)
			continue
		}
		want := c.want
		switch want.AccountID {
		case "":
			want.AccountID = d.account.ID
		case "-":
			want.AccountID = ""
		}
		switch want.Model {
		case "":
			want.Model = "svc-pulse"
		case "-":
			want.Model = ""
		}
		if want.KeyID == "" {
			want.KeyID = got.KeyID
		}
		if got.At.Before(sent) || got.At.After(time.Now()) {
			t.Errorf("%s: was at %v", c.name, got.At)
		}
		if waits := want.Rule == wire.RuleRequests || want.Rule == wire.RuleTokens; waits != (got.Clears > 0) || got.Clears > time.Minute {
			t.Errorf("%s: clears in %v", c.name, got.Clears)
		}
		want.RequestID, want.Status, want.Code, want.At, want.Clears = id, r.StatusCode, r.code(), got.At, got.Clears
		if want.Message = got.Message; !strings.Contains(r.body, strings.ReplaceAll(got.Message, `"`, `\"`)) || got.Message == "" {
			t.Errorf("%s: the message %q is not that of %s", c.name, got.Message, r.body)
		}
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, want)
		}
		if reason := got.Reason(wire.Refused{Owner: "the key"}); reason.Heading == "" || reason.Why == "" {
			t.Errorf("%s is explained by %+v", c.name, reason)
		}
	}
}

// Credit that is there and held by running calls is another reason than credit that is not.
func TestRefused_Held(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan struct{}), make(chan struct{})
	d := open(t, provider(upstreamtest.Text("a"), reached(running), upstreamtest.Wait(goOn), upstreamtest.Finish(wire.FinishStop)))
	a, secret := d.customer(t, "small", "pro", 1000)
	header := []string{"Authorization", "Bearer " + secret}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.post(t, body(`,"max_tokens":40`), header...)
	}()
	<-running
	r := d.post(t, body(`,"max_tokens":30`), header...)
	d.refusals.Flush(t.Context())
	got, err := d.db.Refusal(t.Context(), r.Header.Get("X-Request-Id"))
	if err != nil || got.Rule != wire.RuleHeld || got.AccountID != a.ID || got.Limit != 100 || got.Held != 900 || got.Asked != 700 {
		t.Errorf("%+v, %v of %d %s", got, err, r.StatusCode, r.body)
	}
	close(goOn)
	<-done
}

// What was admitted has a receipt and no refusal, however it ends.
func TestRefused_Admitted(t *testing.T) {
	t.Parallel()
	d := open(t, provider(upstreamtest.Fail(upstream.Timeout)))
	r := d.post(t, body(""))
	d.refusals.Flush(t.Context())
	id := r.Header.Get("X-Request-Id")
	if _, err := d.db.Refusal(t.Context(), id); !errors.Is(err, refusal.ErrNotFound) || r.StatusCode != http.StatusBadGateway {
		t.Errorf("%d has the refusal %v", r.StatusCode, err)
	}
	d.customer(t, "another", "pro", 1) // its credit is written behind the receipt
	if c, err := d.db.Receipt(t.Context(), id); err != nil || c.ErrorCode != "upstream_timeout" {
		t.Errorf("the receipt is %+v, %v", c, err)
	}
}
