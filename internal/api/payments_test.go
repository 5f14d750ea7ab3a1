package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
)

// A message without a signature is refused, one of ours is credit once, and nothing of it
// needs a key.
func TestStripe(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	post := func(body, secret string) *reply {
		t.Helper()
		now := time.Now().Unix()
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", now, body)
		return d.do(t, "POST", "/webhooks/stripe", strings.NewReader(body), "Stripe-Signature", fmt.Sprintf("t=%d,v1=%s", now, hex.EncodeToString(mac.Sum(nil))))
	}
	event := func(account string) string {
		return `{"type":"checkout.session.completed","data":{"object":{"id":"cs_1","payment_intent":"pi_1","payment_status":"paid","metadata":{"parley_account":"` + account + `","parley_credit":"7"}}}}`
	}
	for range 3 {
		if r := post(event(d.account.ID), stripeSecret); r.StatusCode != http.StatusOK || r.body != `{"received":true}` {
			t.Errorf("a payment: %d %s", r.StatusCode, r.body)
		}
	}
	if got := d.ledger.Balance(d.account.ID).Granted; got != credit+7*money.IU {
		t.Errorf("granted %s, want 7 more", got)
	}
	if r := post(event(d.account.ID), "another secret"); r.StatusCode != http.StatusBadRequest || r.code() != "invalid_signature" {
		t.Errorf("another secret: %d %s", r.StatusCode, r.body)
	}
	if r := post(event("acct_none"), stripeSecret); r.StatusCode != http.StatusInternalServerError {
		t.Errorf("no such account: %d %s, want 500 so that it comes again", r.StatusCode, r.body)
	}
	if r := post(strings.Repeat("x", payment.MaxBody+1), stripeSecret); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too long: %d %s", r.StatusCode, r.body)
	}
	if r := d.do(t, "GET", "/webhooks/stripe", nil); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", r.StatusCode)
	}
	if strings.Contains(d.log.String(), stripeSecret) {
		t.Error("the secret is in the log")
	}
}
