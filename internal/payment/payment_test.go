package payment_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/store"
)

const (
	secret  = "whsec_0123456789abcdef"
	another = "whsec_fedcba9876543210"
)

// now is when the messages come.
var now = time.Unix(1_790_000_000, 0)

// sign is the header of Stripe's.
func sign(body string, at time.Time, secrets ...string) string {
	var header strings.Builder
	header.WriteString(fmt.Sprintf("t=%d", at.Unix()))
	for _, s := range secrets {
		mac := hmac.New(sha256.New, []byte(s))
		fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
		header.WriteString(",v1=" + hex.EncodeToString(mac.Sum(nil)))
	}
	return header.String() + ",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
}

// completed is an event as Stripe writes it, less the fields that nobody reads.
func completed(kind, account, credit, intent, status string) string {
	return fmt.Sprintf(`{
  "id": "evt_1MqqbKLt4dXK03v5qaIbiNCC", "object": "event", "api_version": "2025-03-31.basil", "created": 1680064028,
  "data": {"object": {
    "id": "cs_test_a11YYufWQzNY63zpQ6QSNRQhkUpVph4WRmzW0zWJO2znZKdVujZ0N0S22u", "object": "checkout.session",
    "amount_total": 1000, "client_reference_id": %[2]q, "currency": "eur", "livemode": false,
    "metadata": {"parley_account": %[2]q, "parley_credit": %[3]q},
    "mode": "payment", "payment_intent": %[4]q, "payment_status": %[5]q, "status": "complete", "subscription": null}},
  "livemode": false, "pending_webhooks": 1, "request": {"id": null, "idempotency_key": null},
  "type": %[1]q
}`, kind, account, credit, intent, status)
}

// open is the room over real books, and an account in them.
func open(t *testing.T, base string) (*payment.Room, *ledger.Ledger, *store.DB, string) {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	progress, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = progress.Close() })
	books, _, err := ledger.Open(context.Background(), db, progress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = books.Close() })
	a := account.Account{ID: ident.New(ident.Account), Name: "a", Plan: "pro", Status: account.Active, CreatedAt: now}
	if err := db.CreateAccount(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r, err := payment.New(payment.Options{
		SecretKey: "sk_test_x", WebhookSecret: secret, SuccessURL: "https://e.org/thanks", BaseURL: base,
		Prices: []payment.Price{{ID: "small", Price: "price_1", Credit: 100 * money.IU}, {ID: "big", Price: "price_2", Credit: 1000*money.IU + 1}},
	}, books, db)
	if err != nil {
		t.Fatal(err)
	}
	return r, books, db, a.ID
}

func TestNew_NeedsSecrets(t *testing.T) {
	t.Parallel()
	for _, o := range []payment.Options{{}, {SecretKey: "x"}, {WebhookSecret: "x"}} {
		if _, err := payment.New(o, nil, nil); err == nil {
			t.Errorf("New(%+v) succeeds", o)
		}
	}
}

// A payment is credit once, whichever events tell of it, and however often at once.
func TestNotify_Once(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	var wg sync.WaitGroup
	for range 20 {
		for _, kind := range []string{"checkout.session.completed", "checkout.session.async_payment_succeeded"} {
			wg.Go(func() {
				body := completed(kind, who, "100", "pi_1", "paid")
				if err := r.Notify(t.Context(), sign(body, now, secret), []byte(body), now); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	body := completed("checkout.session.completed", who, "0.000000001", "pi_2", "paid")
	if err := r.Notify(t.Context(), sign(body, now, another, secret), []byte(body), now); err != nil {
		t.Error(err)
	}
	if got := books.Balance(who).Granted; got != 100*money.IU+1 {
		t.Errorf("granted %s, want 100.000000001", got)
	}
	grants, err := db.Grants(t.Context(), who)
	if err != nil || len(grants) != 2 || grants[0].Kind != ledger.Prepaid || grants[0].Source != "stripe:pi_1" || grants[0].Actor != "stripe" {
		t.Errorf("grants %+v, %v, want two that were paid", grants, err)
	}
	log, err := db.AuditLog(t.Context(), who, 10)
	if err != nil || len(log) != 3 || log[0].Actor != "stripe" || log[0].Action != audit.CreditGrant {
		t.Errorf("audit log %+v, %v, want the account and two grants by stripe", log, err)
	}
}

func TestNotify_Refuses(t *testing.T) {
	t.Parallel()
	r, books, _, who := open(t, "")
	const kind = "checkout.session.completed"
	good := completed(kind, who, "100", "pi_1", "paid")
	signature := sign(good, now, secret)
	mac := signature[strings.Index(signature, "v1=")+3:][:64]
	for _, c := range []struct {
		name, header, body string
		want               error
	}{
		{"no header", "", good, payment.ErrSignature},
		{"no time", "v1=" + mac, good, payment.ErrSignature},
		{"no mac", fmt.Sprintf("t=%d", now.Unix()), good, payment.ErrSignature},
		{"an empty mac", fmt.Sprintf("t=%d,v1=", now.Unix()), good, payment.ErrSignature},
		{"half a mac", fmt.Sprintf("t=%d,v1=%s", now.Unix(), mac[:32]), good, payment.ErrSignature},
		{"the old scheme", fmt.Sprintf("t=%d,v0=%s", now.Unix(), mac), good, payment.ErrSignature},
		{"another secret", sign(good, now, another), good, payment.ErrSignature},
		{"another body", signature, strings.Replace(good, `"100"`, `"999"`, 1), payment.ErrSignature},
		{"another time", strings.Replace(signature, "t=", "t=1", 1), good, payment.ErrSignature},
		{"too old", sign(good, now.Add(-5*time.Minute-time.Second), secret), good, payment.ErrSignature},
		{"from the future", sign(good, now.Add(5*time.Minute+time.Second), secret), good, payment.ErrSignature},
		{"no JSON", sign("{", now, secret), "{", payment.ErrMessage},
	} {
		if err := r.Notify(t.Context(), c.header, []byte(c.body), now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for _, c := range []struct {
		name, body string
		want       error
	}{
		{"another event", completed("invoice.paid", who, "100", "pi_1", "paid"), nil},
		{"not paid yet", completed(kind, who, "100", "pi_1", "unpaid"), nil},
		{"no page of ours", completed(kind, "", "", "pi_1", "paid"), nil},
		{"no amount", completed(kind, who, "much", "pi_1", "paid"), payment.ErrMessage},
		{"less than nothing", completed(kind, who, "-5", "pi_1", "paid"), nil},
		{"an account that is not there", completed(kind, "acct_none", "100", "pi_1", "paid"), ledger.ErrAccount},
	} {
		err := r.Notify(t.Context(), sign(c.body, now, secret), []byte(c.body), now)
		if c.name == "less than nothing" {
			if err == nil {
				t.Errorf("%s: no error", c.name)
			}
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if got := books.Balance(who).Granted; got != 0 {
		t.Errorf("granted %s, want nothing", got)
	}
}

func TestCheckout(t *testing.T) {
	t.Parallel()
	var got url.Values
	status, answer := http.StatusOK, `{"id":"cs_1","object":"checkout.session","url":"https://checkout.stripe.com/c/pay/cs_1"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.Method != "POST" || r.URL.Path != "/v1/checkout/sessions" || r.Header.Get("Authorization") != "Bearer sk_test_x" {
			t.Errorf("%s %s %v: %v", r.Method, r.URL, r.Header, err)
		}
		got = r.PostForm
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	r, _, _, who := open(t, server.URL)
	page, err := r.Checkout(t.Context(), who, "big")
	if err != nil || page.ID != "cs_1" || page.URL != "https://checkout.stripe.com/c/pay/cs_1" || page.Credit != 1000*money.IU+1 {
		t.Fatalf("Checkout = %+v, %v", page, err)
	}
	want := map[string]string{
		"mode": "payment", "line_items[0][price]": "price_2", "line_items[0][quantity]": "1", "success_url": "https://e.org/thanks",
		"client_reference_id": who, "metadata[parley_account]": who, "metadata[parley_credit]": "1000.000000001",
	}
	have := map[string]string{}
	for name := range want {
		have[name] = got.Get(name)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the form (-want +got):\n%s", diff)
	}
	if _, err := r.Checkout(t.Context(), who, "huge"); !errors.Is(err, payment.ErrPrice) {
		t.Errorf("a price that is not there: %v", err)
	}
	status, answer = http.StatusBadRequest, `{"error":{"type":"invalid_request_error","message":"No such price: 'price_2'"}}`
	if _, err := r.Checkout(t.Context(), who, "big"); !errors.Is(err, payment.ErrRefused) || !strings.Contains(err.Error(), "No such price") {
		t.Errorf("refused: %v", err)
	}
	for _, answer = range []string{"", "<html>", "{}"} {
		if _, err := r.Checkout(t.Context(), who, "small"); !errors.Is(err, payment.ErrRefused) {
			t.Errorf("answered %q: %v", answer, err)
		}
	}
}
