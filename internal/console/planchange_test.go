package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/subscription"
)

// TestOwnSubscription: an owner moves it to a smaller plan and back, and cancels it with its
// period; what it cannot change has no page.
func TestOwnSubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accounts.SetPlans([]account.Plan{{ID: "free", RPM: 5}, {ID: "pro", RPM: 600, Rank: 1}, {ID: "max", Rank: 2}})
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	form := url.Values{"account": {w.lab.ID}}
	sub := func() *subscription.Subscription {
		a, _ := w.accounts.ByID(w.lab.ID)
		return &a.Subscription
	}
	for _, path := range []string{"/billing/plan", "/billing/cancel"} {
		for _, method := range []string{"GET", "POST"} {
			if r := w.ask(method, path, owner, form); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/billing?late=subscription" {
				t.Errorf("%s %s without a subscription: %s to %s", method, path, r.Status, r.Header.Get("Location"))
			}
		}
	}
	has(t, text(t, w.ask("GET", "/billing?late=subscription", owner, nil)), "No subscription runs that could be changed here.")
	subscriptions := account.NewSubscriptions(w.accounts, w.books)
	if _, err := subscriptions.Set(t.Context(), w.lab.ID, "pro", subscription.Options{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	has(t, text(t, w.ask("GET", "/billing", owner, nil)), `href="/billing/plan"`, `href="/billing/cancel"`)
	page := text(t, w.ask("GET", "/billing/plan", owner, nil))
	has(t, page, "stay until "+sub().End.UTC().Format("2 January"), `value="pro" checked`, `value="free"`, w.lab.ID)
	if strings.Contains(page, `value="max"`) {
		t.Error("a larger plan is offered")
	}
	for _, c := range []struct {
		plan   string
		status int
		next   string
		says   string
	}{
		{"max", 422, "", "not offered"},
		{"none", 422, "", "not offered"},
		{"free", 303, "free", "The next period is on the free plan."},
		{"free", 303, "free", "The plan is changed"},
		{"pro", 303, "", "The plan is changed"},
		{"free", 303, "free", "The plan is changed"},
	} {
		form.Set("plan", c.plan)
		revision := sub().Revision
		had := sub().NextPlan
		if status, page := w.sent("/billing/plan", owner, form); status != c.status || !strings.Contains(page, c.says) {
			t.Errorf("to %s: %d %s", c.plan, status, page)
		}
		if got := sub(); got.NextPlan != c.next || got.Plan != "pro" || got.Revision != revision && got.NextPlan == had {
			t.Errorf("to %s: the subscription is %+v", c.plan, got)
		}
	}
	has(t, text(t, w.ask("GET", "/billing/cancel", owner, nil)), "Keep the subscription", "After that the pro plan applies: 600 requests a minute.")
	for range 2 {
		if status, page := w.sent("/billing/cancel", owner, form); status != http.StatusSeeOther || !strings.Contains(page, "The subscription is canceled.") || strings.Contains(page, "/billing/cancel") {
			t.Errorf("canceling: %d %s", status, page)
		}
	}
	if got := sub(); !got.Ending || got.NextPlan != "" || got.Status(time.Now()) != subscription.Active {
		t.Errorf("canceled: %+v", got)
	}
	has(t, text(t, w.ask("GET", "/audit", owner, nil)), "canceled the subscription", "began a subscription")
	if e := w.last(w.lab); e.Action != "subscription.cancel" || !strings.HasPrefix(e.Actor, "mem") {
		t.Errorf("the audit log has %+v", e)
	}
}
