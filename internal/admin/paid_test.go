package admin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/admin"
)

// The JSON of paid periods and codes is a contract, as that of accounts is.
func TestPaid_Shapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  string
	}{
		{admin.SubscriptionDetail{}, "id account plan status renews until grace_until next_plan period_every period tokens_left tokens_held credit_left"},
		{admin.Period{}, "number start end included_tokens included_credit"},
		{admin.Code{}, "id last4 status kind amount note created_at expires_at redeemed_at account"},
		{admin.MintedCode{}, "id last4 status kind amount note created_at expires_at redeemed_at account code"},
		{admin.Redeemed{}, "code available"},
		{admin.Plan{}, "id rpm tpm concurrency models limits max_output period included grace_seconds accounts"},
	} {
		text, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(fieldNames(t, text), " "); got != c.want {
			t.Errorf("%T has the keys\n%s, want\n%s", c.value, got, c.want)
		}
	}
}

func TestSubscription_Life(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	_, err := h.Subscription(ctx, "Example Lab")
	if code(err) != "subscription_not_found" {
		t.Errorf("before there is one: %v", err)
	}
	a, err := h.Subscribe(ctx, "Example Lab", admin.NewSubscription{Plan: "free", Manual: true})
	if err != nil || a.Subscription == nil || a.Subscription.Renews || a.Subscription.Status != "active" {
		t.Fatalf("Subscribe = %+v, %v", a.Subscription, err)
	}
	end := a.Subscription.Until
	got, err := h.RenewSubscription(ctx, "Example Lab")
	if err != nil || got.Renews != "manual" || !got.Period.End.Equal(end) || !got.Until.After(end) {
		t.Errorf("RenewSubscription = %+v, %v", got, err)
	}
	if _, err := h.RenewSubscription(ctx, "Example Lab"); code(err) != "already_renewed" {
		t.Errorf("renewed twice: %v", err)
	}
	got, err = h.ChangeSubscription(ctx, "Example Lab", admin.PlanChange{Plan: "pro", When: "period_end"})
	if err != nil || got.Plan != "free" || got.NextPlan != "pro" {
		t.Errorf("ChangeSubscription = %+v, %v", got, err)
	}
	if _, err = h.Subscribe(ctx, "Example Lab", admin.NewSubscription{Plan: "free", Until: new(time.Now().Add(time.Hour))}); err != nil {
		t.Fatal(err)
	}
	second := func(_ any, err error) error { return err }
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"renewed with a fixed end", second(h.RenewSubscription(ctx, "Example Lab")), "subscription_ends"},
		{"changed at another time", second(h.ChangeSubscription(ctx, "Example Lab", admin.PlanChange{Plan: "pro", When: "soon"})), "invalid_when"},
		{"changed to no plan", second(h.ChangeSubscription(ctx, "Example Lab", admin.PlanChange{Plan: "gold"})), "plan_not_found"},
		{"of nobody", second(h.Subscription(ctx, "Example")), "account_not_found"},
		{"canceled for nobody", second(h.CancelSubscription(ctx, "Example", admin.Cancellation{})), "account_not_found"},
	} {
		if code(c.err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, c.err, c.want)
		}
	}
	if got, err = h.CancelSubscription(ctx, "Example Lab", admin.Cancellation{Now: true}); err != nil || got.Status != "canceled" || got.Renews != "no" {
		t.Errorf("CancelSubscription = %+v, %v", got, err)
	}
	if _, err := h.CancelSubscription(ctx, "Example Lab", admin.Cancellation{}); code(err) != "subscription_not_active" {
		t.Errorf("canceled twice: %v", err)
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	made, err := h.CreateCodes(ctx, admin.NewCodes{Amount: "2.5", Count: 2, Note: "fair", Kind: "prepaid"})
	if err != nil || len(made) != 2 || made[0].Text == made[1].Text || made[0].Status != "open" {
		t.Fatalf("CreateCodes = %+v, %v", made, err)
	}
	got, err := h.Redeem(ctx, "Example Lab", admin.NewRedemption{Code: made[0].Text})
	if err != nil || got.Available != "15" || got.Code.Status != "redeemed" || got.Code.Account != "Example Lab" {
		t.Errorf("Redeem = %+v, %v", got, err)
	}
	if _, err := h.Redeem(ctx, "Example Lab", admin.NewRedemption{Code: made[0].Text}); code(err) != "code_redeemed" || !strings.Contains(err.Error(), "by Example Lab on 20") {
		t.Errorf("redeemed twice: %v", err)
	}
	if c, err := h.RevokeCode(ctx, made[1].ID); err != nil || c.Status != "revoked" {
		t.Errorf("RevokeCode = %+v, %v", c, err)
	}
	if c, err := h.RevokeCode(ctx, made[1].ID); err != nil || c.Status != "revoked" {
		t.Errorf("RevokeCode again = %+v, %v", c, err)
	}
	if _, err := h.RevokeCode(ctx, made[0].ID); code(err) != "code_redeemed" {
		t.Errorf("RevokeCode of one that was redeemed: %v", err)
	}
	if _, err := h.Redeem(ctx, "Example Lab", admin.NewRedemption{Code: made[1].Text}); code(err) != "code_revoked" {
		t.Errorf("a revoked code: %v", err)
	}
	list, err := h.Codes(ctx, 10)
	if err != nil || len(list) != 2 {
		t.Errorf("Codes = %+v, %v", list, err)
	}
	if text, _ := json.Marshal(list); strings.Contains(string(text), made[0].Text) {
		t.Errorf("the list says what a code says: %s", text)
	}
	for _, in := range []admin.NewCodes{
		{Amount: "0", Count: 1, Note: "x"},
		{Amount: "1", Note: "x"},
		{Amount: "1", Count: 1},
		{Amount: "1", Count: 1001, Note: "x"},
		{Amount: "1", Count: 1, Note: "x", Kind: "included"},
		{Amount: "1", Count: 1, Note: "x", ExpiresAt: new(time.Unix(1, 0))},
	} {
		if _, err := h.CreateCodes(ctx, in); !strings.HasPrefix(code(err), "invalid_") {
			t.Errorf("CreateCodes(%+v) gives %v", in, err)
		}
	}
}
