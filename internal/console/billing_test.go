package console_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
)

var termAmount = regexp.MustCompile(`(?s)(?:<span class="op">(.)</span>)?<span(?: class="eq")?><b>.*?title="([^"]+) IU"`)

// closes reports whether a sum line of a page gives its result, and the result.
func closes(t *testing.T, part string) (result money.Amount, ok bool) {
	t.Helper()
	var sum money.Amount
	for _, m := range termAmount.FindAllStringSubmatch(part, -1) {
		a := sums(t, `title="`+m[2]+` IU"`)[0]
		switch m[1] {
		case "=":
			return a, sum == a
		case "−":
			sum -= a
		default:
			sum += a
		}
	}
	t.Fatalf("no sum in %s", part)
	return 0, false
}

// TestBilling_Sums: whatever happened to an account, the sum line closes and says what the
// books say, the rows of grants and of statements close, and each statement opens with the
// closing balance of the one before, which the entries lead to.
func TestBilling_Sums(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Regular)
	k := w.makeKey(w.lab, "web")
	kinds := []ledger.Kind{ledger.Prepaid, ledger.Promo, ledger.Included, ledger.Adjust}
	check := func(what string) {
		t.Helper()
		page := text(t, w.ask("GET", "/billing", token, nil))
		b := w.books.Balance(w.lab.ID)
		if available, ok := closes(t, between(t, page, `class="sum n"`, "</section>")); !ok || available != b.Available() {
			t.Errorf("%s: the sum is not %s:\n%s", what, b.Available(), between(t, page, `class="sum n"`, "</section>"))
		}
		if !strings.Contains(page, "No credit was ever granted") {
			_, table, _ := strings.Cut(page, "Grants of credit")
			rows, total := between(t, table, "<tbody>", "</tbody>"), sums(t, between(t, table, "<tfoot>", "</tfoot>"))
			var sum [4]money.Amount
			for _, r := range wholeRow.FindAllString(rows, -1) {
				s := sums(t, r)
				for i := range sum {
					sum[i] += s[i]
				}
				if s[0]-s[1]-s[2] != s[3] {
					t.Errorf("%s: a grant of %v", what, s)
				}
			}
			if [4]money.Amount(total) != sum || total[3] != b.Balance() {
				t.Errorf("%s: grants of %v in all, the total is %v, the balance %s", what, sum, total, b.Balance())
			}
		}
		_, table, _ := strings.Cut(page, "Statements by month")
		for i, r := range wholeRow.FindAllString(between(t, table, "<tbody>", "</tbody>"), -1) {
			s := sums(t, r) // opening, credit, spent, taken, expired, closing
			if s[0]+s[1]-s[2]-s[3]-s[4] != s[5] || i == 0 && s[5] != b.Balance() {
				t.Errorf("%s: statement %d is %v, the balance is %s", what, i, s, b.Balance())
			}
		}
		entries := text(t, w.ask("GET", "/billing/entries", token, nil))
		if closing, ok := closes(t, between(t, entries, `class="sum n"`, "</p>")); !ok || closing != b.Balance() {
			t.Errorf("%s: the entries close with %s", what, closing)
		}
		lines := readCSV(t, text(t, w.ask("GET", "/billing/entries/csv", token, nil)))
		var sum money.Amount
		for i, l := range lines {
			sum += parseSigned(t, l["amount_iu"])
			if sum != parseSigned(t, l["balance_iu"]) {
				t.Errorf("%s: line %d runs to %s, not %s", what, i, l["balance_iu"], sum)
			}
		}
		if sum != b.Balance() {
			t.Errorf("%s: the file adds up to %s, the balance is %s", what, sum, b.Balance())
		}
	}
	check("empty")
	// All of it is in this month, whose statement is held to the books.
	now := time.Now().UTC()
	step := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(now) / 8
	for i := range 6 {
		w.grant(w.lab, ledger.Grant{Amount: money.IU + money.Amount(rand.IntN(2_000_000_000)), Kind: kinds[i%4], ExpiresAt: now.Add(time.Duration(i+1) * step)})
		check("a grant")
		for range 5 {
			w.call(k, "svc-titan", time.Now(), ledger.Outcome{PromptTokens: rand.IntN(2000), CompletionTokens: rand.IntN(600)})
		}
		check("calls")
	}
	if err := w.books.Adjust(t.Context(), w.lab.ID, -12_345, "too much"); err != nil {
		t.Fatal(err)
	}
	check("a correction")
	_, h := w.reserve(k, "svc-titan", time.Now(), 100, 1000)
	check("a running call")
	if _, err := w.books.ExpireDue(t.Context(), now.Add(5*step/2)); err != nil {
		t.Fatal(err)
	}
	check("grants that ended")
	if err := h.Void(ledger.Outcome{Status: 499}); err != nil {
		t.Fatal(err)
	}
	check("and nothing runs")
}

func parseSigned(t *testing.T, text string) money.Amount {
	t.Helper()
	digits, negative := strings.CutPrefix(text, "-")
	a, err := money.ParseAmount(digits)
	if err != nil {
		t.Fatal(err)
	}
	if negative {
		return -a
	}
	return a
}

// TestBilling_Checkout: an owner who has proved itself is sent to the provider's page with its
// own account; nobody else is, and no credit comes of it.
func TestBilling_Checkout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked []url.Values
	stripe := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked = append(asked, r.PostForm)
		_, _ = rw.Write([]byte(`{"id": "cs_1", "url": "https://checkout.stripe.com/pay/cs_1"}`))
	}))
	defer stripe.Close()
	owner, regular := w.person("ada@example.test", false, w.lab, member.Owner), w.person("ben@example.test", false, w.lab, member.Regular)
	form := url.Values{"account": {w.lab.ID}, "price": {"small"}}
	if page := text(t, w.ask("GET", "/billing", owner, nil)); !strings.Contains(page, "added by the operator") || strings.Contains(page, "/billing/checkout") {
		t.Error("without a provider the page has the form")
	}
	if r := w.ask("POST", "/billing/checkout", owner, form); r.StatusCode != 404 {
		t.Errorf("without a provider: %s", r.Status)
	}
	room, err := payment.New(payment.Options{SecretKey: "sk", WebhookSecret: "wh", BaseURL: stripe.URL, Prices: []payment.Price{{ID: "small", Price: "price_1", Credit: 10 * money.IU}}}, w.books, w.db)
	if err != nil {
		t.Fatal(err)
	}
	w.console.Payments = room
	r := w.ask("GET", "/billing", owner, nil)
	if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "form-action 'self' https://checkout.stripe.com;") {
		t.Errorf("browsers will not follow the form: %s", csp)
	}
	if !strings.Contains(text(t, r), "10.00") {
		t.Error("the amount is not offered")
	}
	for range 2 { // a double click makes two pages, on which nothing was paid
		if r := w.ask("POST", "/billing/checkout", owner, form); r.Header.Get("Location") != "https://checkout.stripe.com/pay/cs_1" {
			t.Errorf("%s to %q", r.Status, r.Header.Get("Location"))
		}
	}
	if len(asked) != 2 || asked[0].Get("client_reference_id") != w.lab.ID || w.books.Balance(w.lab.ID).Granted != 0 {
		t.Errorf("asked %v, granted %s", asked, w.books.Balance(w.lab.ID).Granted)
	}
	if r := w.ask("POST", "/billing/checkout", regular, form); r.StatusCode != 403 {
		t.Errorf("a member: %s", r.Status)
	}
	if page := text(t, w.ask("GET", "/billing", regular, nil)); strings.Contains(page, "/billing/checkout") {
		t.Error("a member has the form")
	}
	form.Set("price", "none")
	if r := w.ask("POST", "/billing/checkout", owner, form); r.StatusCode != 422 || !strings.Contains(text(t, r), "not offered any more") {
		t.Errorf("an unknown amount: %s", r.Status)
	}
	stripe.Close()
	form.Set("price", "small")
	if r := w.ask("POST", "/billing/checkout", owner, form); r.StatusCode != 422 || !strings.Contains(text(t, r), "did not answer") {
		t.Errorf("a provider that is down: %s", r.Status)
	}
	w.gate.Now = func() time.Time { return time.Now().Add(11 * time.Minute) }
	r = w.ask("POST", "/billing/checkout", owner, form, "Referer", "http://localhost:8080/billing")
	if page := text(t, r); !strings.Contains(page, "Prove it is you") || !strings.Contains(r.Header.Get("Content-Security-Policy"), "form-action 'self' https://checkout.stripe.com;") {
		t.Errorf("an old proof: %s, and the form may not lead to the payment: %s", r.Status, r.Header.Get("Content-Security-Policy"))
	}
}

// TestBilling_Months: earlier statements are on earlier pages, back to the account's beginning
// and not before it.
func TestBilling_Months(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	if strings.Contains(text(t, w.ask("GET", "/billing", token, nil)), ">Earlier<") {
		t.Error("a new account has earlier statements")
	}
	w.gate.Now = func() time.Time { return time.Now().AddDate(0, 0, 300) }
	token = signIn(t, w, "ada", false)
	var months []string
	for path, n := "/billing", 0; path != ""; n++ {
		page := text(t, w.ask("GET", path, token, nil))
		_, table, _ := strings.Cut(page, "Statements by month")
		for _, m := range regexp.MustCompile(`class="row" href="/billing/entries.month=([0-9-]+)"`).FindAllStringSubmatch(table, -1) {
			months = append(months, m[1])
		}
		path = ""
		if m := regexp.MustCompile(`href="([^"#]+)#h-st">Earlier`).FindStringSubmatch(page); m != nil && n < 5 {
			path = m[1]
		}
	}
	var want []string
	first := w.lab.CreatedAt.Format("2006-01")
	for at := w.gate.Now().UTC(); len(want) == 0 || want[len(want)-1] > first; at = time.Date(at.Year(), at.Month()-1, 1, 0, 0, 0, 0, time.UTC) {
		want = append(want, at.Format("2006-01"))
	}
	if !slices.Equal(months, want) {
		t.Errorf("statements of %v, want %v", months, want)
	}
	for _, q := range []string{"/billing?before=2020-01", "/billing?before=x", "/billing/entries?month=1990-01", "/billing/entries?month=2999-01", "/billing/entries?before=-3", "/billing/entries?before=9999999"} {
		if r := w.ask("GET", q, token, nil); r.StatusCode != 200 {
			t.Errorf("%s: %s", q, r.Status)
		}
	}
}

// TestBilling_Redeem: a code is credit once, for who is first; wrong ones are slowed down, and
// members cannot redeem.
func TestBilling_Redeem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, regular, other := w.person("ada@example.test", false, w.lab, member.Owner), w.person("ben@example.test", false, w.lab, member.Regular), w.person("eve@example.test", false, w.other, member.Owner)
	c, code := ledger.NewCode(ledger.Promo, 5*money.IU, "welcome", time.Time{})
	if err := w.db.CreateCodes(t.Context(), []ledger.Code{c}); err != nil {
		t.Fatal(err)
	}
	send := func(token member.Token, accountID, code string) *http.Response {
		return w.ask("POST", "/billing/redeem", token, url.Values{"account": {accountID}, "code": {code}})
	}
	if r := send(regular, w.lab.ID, code); r.StatusCode != 403 {
		t.Errorf("a member: %s", r.Status)
	}
	for range 2 { // a double click
		if r := send(owner, w.lab.ID, strings.ToLower(code)); r.Header.Get("Location") != "/billing?done=redeemed" {
			t.Errorf("%s: %s", r.Status, text(t, r))
		}
	}
	if granted := w.books.Balance(w.lab.ID).Granted; granted != 5*money.IU {
		t.Errorf("granted %s", granted)
	}
	if r := send(other, w.other.ID, code); r.StatusCode != 422 || !strings.Contains(text(t, r), "Another account") {
		t.Errorf("another account: %s", r.Status)
	}
	var last string
	for range 8 {
		last = text(t, send(other, w.other.ID, "AAAAA-AAAAA-AAAAA-AAAAA"))
	}
	if !strings.Contains(last, "Too many tries") || w.books.Balance(w.other.ID).Granted != 0 {
		t.Error("guesses are not slowed down, or were right")
	}
}
