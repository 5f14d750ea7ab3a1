package console_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// TestBilling_Alert: an owner says below which balance the account is warned; the overview warns
// from there on, and members cannot change it.
func TestBilling_Alert(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, regular := w.person("ada@example.test", false, w.lab, member.Owner), w.person("ben@example.test", false, w.lab, member.Regular)
	w.grantLab(9 * money.IU)
	w.madeCall(w.makeKey(w.lab, "web").ID, "svc-pulse")
	set := func(token member.Token, below string) int {
		t.Helper()
		return w.ask("POST", "/billing/alert", token, url.Values{"account": {w.lab.ID}, "below": {below}}).StatusCode
	}
	warned := func() bool {
		t.Helper()
		return strings.Contains(text(t, w.ask("GET", "/", regular, nil)), "Credit is low: ")
	}
	threshold := func() account.Threshold {
		a, _ := w.accounts.ByID(w.lab.ID)
		return a.LowCredit
	}
	if warned() {
		t.Error("9 IU are called low, of a configuration that says 1")
	}
	if got := set(regular, "20"); got != 403 {
		t.Errorf("a member sets it: %d", got)
	}
	for _, wrong := range []string{"-1", "x", "1e3", "1000000001", "<0.000001", "1.0000000001"} {
		r := w.ask("POST", "/billing/alert", owner, url.Values{"account": {w.lab.ID}, "below": {wrong}})
		if page := text(t, r); r.StatusCode != 422 || !strings.Contains(page, "Enter a number of IU") || threshold().Own {
			t.Errorf("%q: %s, %+v", wrong, r.Status, threshold())
		}
	}
	if got := set(owner, "10.5"); got != 303 || !warned() || threshold() != (account.Threshold{Own: true, Amount: 21 * money.IU / 2}) {
		t.Errorf("10.5: %d, warned %v, %+v", got, warned(), threshold())
	}
	if page := text(t, w.ask("GET", "/billing?done=alert", owner, nil)); !strings.Contains(page, "less than 10.50 IU are left") || !strings.Contains(page, `value="10.5"`) {
		t.Error("billing does not say what was set")
	}
	// What another form of the page sends does not empty this one.
	r := w.ask("POST", "/billing/redeem", owner, url.Values{"account": {w.lab.ID}, "code": {"x"}})
	if page := text(t, r); r.StatusCode != 422 || !strings.Contains(page, `value="10.5"`) {
		t.Errorf("after another form: %s", r.Status)
	}
	if got := set(owner, "0"); got != 303 || warned() {
		t.Errorf("0: %d, warned %v", got, warned())
	}
	if got := set(owner, ""); got != 303 || warned() || threshold().Own {
		t.Errorf("empty: %d, warned %v, %+v", got, warned(), threshold())
	}
}
