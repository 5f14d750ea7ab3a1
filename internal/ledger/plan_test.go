package ledger_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// include gives the account a subscription whose first period brings so many tokens.
func (b *books) include(t testing.TB, account string, tokens int64) subscription.Subscription {
	t.Helper()
	turn, err := subscription.Begin(account, subscription.Subscription{}, subscription.Terms{Plan: "p", Tokens: tokens}, subscription.Options{}, time.Now())
	if err == nil {
		err = b.Turn(context.Background(), turn)
	}
	if err != nil {
		t.Fatal(err)
	}
	return turn.Next
}

// run charges a call of those tokens.
func (b *books) run(t testing.TB, c ledger.Call, used money.Tokens) ledger.Receipt {
	t.Helper()
	h, err := b.Reserve(c)
	if err != nil {
		t.Fatal(err)
	}
	o := done(used.Completion)
	o.PromptTokens, o.CachedTokens = used.Prompt, used.Cached
	r, err := h.Settle(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What docs/money.md shows of included tokens is what happens.
func TestPlanTokens_Published(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "money.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| included left | prompt | of it cached | answer | paid by the plan | charge |\n")
	if !ok {
		t.Fatal("docs/money.md has no table of included tokens")
	}
	rows := 0
	for i, line := range strings.Split(table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if i == 0 || len(cells) != 6 {
			continue
		}
		var n [5]int
		for j := range n {
			if n[j], err = strconv.Atoi(cells[j]); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		want, err := money.ParseAmount(cells[5])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rows++
		b := open(t, t.TempDir(), nil)
		a := b.account(t, money.IU)
		if n[0] > 0 {
			b.include(t, a, int64(n[0]))
		}
		// 0.05 and 0.1 IU per 1,000 tokens, as the page says; cached ones 0.01.
		c := b.priced(t, money.Price{Input: 50_000, CachedInput: 10_000, Output: 100_000}, a)
		c.PromptTokens, c.Output, c.LeastOutput = n[1], n[3], n[3]
		r := b.run(t, c, money.Tokens{Prompt: n[1], Cached: n[2], Completion: n[3]})
		if r.PlanTokens != n[4] || r.Charge != want || r.WrittenOff != 0 {
			t.Errorf("%s: the plan pays for %d, the charge is %s", line, r.PlanTokens, r.Charge)
		}
		b.verify(t)
		b.stop()
	}
	if rows < 6 {
		t.Errorf("%d rows, at least 6 are published", rows)
	}
}

// priced is a call at another price.
func (b *books) priced(t testing.TB, p money.Price, account string) ledger.Call {
	t.Helper()
	m := b.price
	m.Price = p
	models := []catalog.Model{m}
	if err := b.db.SaveCatalog(context.Background(), models, nil); err != nil {
		t.Fatal(err)
	}
	c := b.call(account, false, 0)
	c.PriceID, c.Price = models[0].PriceID, p
	return c
}

// Included tokens pay token by token in the order that is published, whatever the price,
// the hold and the use, and the books prove every charge.
func TestPlanTokens_AgainstTokenByToken(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	rapid.Check(t, func(rt *rapid.T) {
		price := func(name string) money.Amount {
			return money.Amount(rapid.SampledFrom([]int{0, 1, 7, 50}).Draw(rt, name))
		}
		input := price("input")
		p := money.Price{Input: input, CachedInput: min(input, price("cached")), Output: price("output")}
		n := func(name string, most int) int { return rapid.IntRange(0, most).Draw(rt, name) }
		a := b.account(t, money.Amount(1+n("credit", 3000)))
		included := n("included", 150)
		if included > 0 {
			b.include(t, a, int64(included))
		}
		c := b.priced(t, p, a)
		c.PromptTokens, c.Output = n("prompt", 60), 1+n("output limit", 60)
		c.LeastOutput = n("least", c.Output)
		h, err := b.Reserve(c)
		credit := int64(b.Balance(a).Granted)
		if err != nil {
			if _, least := byToken(p, money.Tokens{Prompt: c.PromptTokens, Completion: c.LeastOutput}, included); least <= credit {
				rt.Fatalf("%v, but %d of %d is enough", err, least, credit)
			}
			return
		}
		if _, held := byToken(p, money.Tokens{Prompt: c.PromptTokens, Completion: h.OutputLimit()}, included); held > credit {
			rt.Fatalf("a hold of %d, with %d of credit", held, credit)
		}
		if _, more := byToken(p, money.Tokens{Prompt: c.PromptTokens, Completion: h.OutputLimit() + 1}, included); h.OutputLimit() < c.Output && more <= credit {
			rt.Fatalf("an answer of %d of %d, and one token more costs %d of %d", h.OutputLimit(), c.Output, more, credit)
		}
		used := money.Tokens{Prompt: n("used prompt", 70), Completion: n("used", h.OutputLimit()+10)}
		used.Cached = n("cached", used.Prompt)
		o := done(used.Completion)
		o.PromptTokens, o.CachedTokens = used.Prompt, used.Cached
		r, err := h.Settle(o)
		if err != nil {
			rt.Fatal(err)
		}
		tokens, cost := byToken(p, used, r.PlanTokens)
		if tokens != int64(r.PlanTokens) || cost != int64(r.Charge+r.WrittenOff) || r.PlanTokens > included {
			rt.Fatalf("%+v at %+v: the plan paid for %d of %d, charged %d, %d written off; want %d and %d", used, p, r.PlanTokens, included, r.Charge, r.WrittenOff, tokens, cost)
		}
		if all, rest := byToken(p, used, included); r.WrittenOff > 0 && (int64(r.PlanTokens) != all || int64(r.Charge) != min(rest, credit)) {
			rt.Fatalf("%d written off with tokens or credit left", r.WrittenOff)
		}
		if got := b.Balance(a); got.Held != 0 || got.Tokens.Held != 0 || got.Tokens.Posted != int64(r.PlanTokens) || got.Posted != r.Charge {
			rt.Fatalf("Balance = %+v after %+v", got, r)
		}
	})
	b.verify(t)
}

// byToken pays for one token after the other.
func byToken(p money.Price, t money.Tokens, included int) (plan, cost int64) {
	for _, part := range []struct {
		n     int
		price money.Amount
	}{{t.Prompt - t.Cached, p.Input}, {t.Cached, p.CachedInput}, {t.Completion, p.Output}} {
		for range part.n {
			switch {
			case part.price == 0:
			case plan < int64(included):
				plan++
			default:
				cost += int64(part.price)
			}
		}
	}
	return plan, cost
}

// Tokens for exactly so many calls, and many more who ask: so many succeed, at every
// moment used and held are covered, and no credit is touched.
func TestPlanTokens_Overspend(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	b.include(t, a, 30*40) // calls of 10 and 20 tokens
	var ok atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			h, err := b.Reserve(b.call(a, i%2 == 0, 20))
			if got := b.Balance(a).Tokens; got.Posted+got.Held > got.Granted {
				t.Errorf("used and held exceed granted: %+v", got)
			}
			if err != nil {
				if e, short := errors.AsType[*ledger.InsufficientError](err); !short || e.Need == 0 {
					t.Errorf("Reserve: %v", err)
				}
				return
			}
			if i%2 == 0 {
				if err := h.Persist(); err != nil {
					t.Error(err)
				}
			}
			if r, err := h.Settle(done(20)); err != nil || r.PlanTokens != 30 || r.Charge != 0 {
				t.Errorf("Settle = %+v, %v", r, err)
			}
			ok.Add(1)
		})
	}
	wg.Wait()
	if got := b.Balance(a); ok.Load() != 40 || got.Tokens.Posted != 1200 || got.Tokens.Held != 0 || got.Posted != 0 {
		t.Errorf("%d calls succeeded, Balance = %+v", ok.Load(), got)
	}
	b.verify(t)
}

// A period ends while calls hold what it includes: they keep it, nobody else gets it,
// and what they leave is taken back.
func TestPlanTokens_EndWithOpenHolds(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 0)
	s := b.include(t, a, 100)
	h, err := b.Reserve(b.call(a, true, 50))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Persist(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.expire(t, s.End)
	}
	if got, want := b.Balance(a).Tokens, (ledger.TokenBalance{Granted: 60, Held: 60, Expiring: 60}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	b.verify(t)
	if _, err := b.Reserve(b.call(a, false, 1)); err == nil {
		t.Error("what has ended can be held")
	}
	next, ok := s.Due(func(string) (subscription.Terms, bool) { return subscription.Terms{Plan: "p", Tokens: 40}, true }, s.End)
	if !ok {
		t.Fatal("nothing follows")
	}
	if err := b.Turn(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := b.Turn(t.Context(), next); !errors.Is(err, subscription.ErrChanged) {
		t.Errorf("the same turn again: %v, want ErrChanged", err)
	}
	if r, err := h.Settle(done(5)); err != nil || r.PlanTokens != 15 {
		t.Errorf("Settle = %+v, %v", r, err)
	}
	for range 3 {
		b.expire(t, s.End)
	}
	if got, want := b.Balance(a).Tokens, (ledger.TokenBalance{Granted: 55, Posted: 15}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	b.verify(t)
}

// A key's budget is of credit: included tokens do not count for it.
func TestPlanTokens_Budget(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 10_000)
	b.include(t, a, 30)
	c := b.call(a, false, 20)
	c.Budget = ledger.Budget{ID: "budget_x", Amount: 60}
	if r := b.run(t, c, money.Tokens{Prompt: 10, Completion: 15}); r.PlanTokens != 25 || r.Charge != 0 {
		t.Errorf("%+v", r)
	}
	// 5 tokens are left: 5 of the prompt cost 50.
	c.RequestID, c.Output, c.LeastOutput = ident.RequestID(), 0, 0
	if r := b.run(t, c, money.Tokens{Prompt: 10}); r.PlanTokens != 5 || r.Charge != 50 {
		t.Errorf("%+v", r)
	}
	if got := b.Spending(a, c.Budget); got.Spent != 50 || got.Held != 0 {
		t.Errorf("the budget: %+v", got)
	}
	c = b.call(a, false, 0)
	c.Budget = ledger.Budget{ID: "budget_x", Amount: 60}
	if _, err := b.Reserve(c); err == nil {
		t.Error("a call beyond the budget is admitted")
	}
	b.verify(t)
}

// Many redeem the same codes for several accounts at once: each becomes one grant.
func TestRedeem(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	accounts := []string{b.account(t, 0), b.account(t, 0), b.account(t, 0)}
	const made, amount = 20, 50
	texts, codes := make([]string, made), make([]ledger.Code, made)
	for i := range codes {
		codes[i], texts[i] = ledger.NewCode(ledger.Promo, amount, "test", time.Time{})
	}
	expired, oldText := ledger.NewCode(ledger.Promo, amount, "test", time.Now().Add(-time.Second))
	if err := b.db.CreateCodes(t.Context(), append(codes, expired)); err != nil {
		t.Fatal(err)
	}
	var redeemed atomic.Int64
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() {
			for _, i := range rand.Perm(made) {
				text := texts[i]
				if w%2 == 0 {
					text = " " + strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(text, "-", " "), "0", "o"))
				}
				c, err := b.Redeem(context.Background(), accounts[w%3], text)
				switch {
				case err == nil && c.ID == codes[i].ID && c.AccountID == accounts[w%3]:
					redeemed.Add(1)
				case !errors.Is(err, ledger.ErrCodeRedeemed):
					t.Errorf("Redeem = %+v, %v", c, err)
				}
			}
		})
	}
	wg.Wait()
	var granted money.Amount
	for _, a := range accounts {
		granted += b.Balance(a).Granted
	}
	if redeemed.Load() != made || granted != made*amount {
		t.Errorf("%d redeemed, %d granted, want %d and %d", redeemed.Load(), granted, made, made*amount)
	}
	fresh, text := ledger.NewCode(ledger.Prepaid, amount, "test", time.Time{})
	if err := b.db.CreateCodes(t.Context(), []ledger.Code{fresh}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.RevokeCode(t.Context(), fresh.ID, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want error
	}{
		{text, ledger.ErrCodeRevoked},
		{oldText, ledger.ErrCodeExpired},
		{texts[0], ledger.ErrCodeRedeemed},
		{"00000-00000-00000-00000", ledger.ErrCode},
		{"", ledger.ErrCode},
		{texts[0] + "0", ledger.ErrCode},
		{texts[0][:22] + "?", ledger.ErrCode},
	} {
		if _, err := b.Redeem(t.Context(), accounts[0], c.text); !errors.Is(err, c.want) {
			t.Errorf("Redeem(%q) gives %v, want %v", c.text, err, c.want)
		}
	}
	if _, err := b.db.RevokeCode(t.Context(), codes[0].ID, time.Now()); !errors.Is(err, ledger.ErrCodeRedeemed) {
		t.Errorf("RevokeCode of one that was redeemed: %v", err)
	}
	if err := b.Available(); err != nil {
		t.Error(err)
	}
	b.verify(t)
	for _, text := range texts {
		if kept := b.keeps(t, text); kept {
			t.Fatalf("the database has %s", text)
		}
	}
}

// keeps reports whether the database has the text somewhere.
func (b *books) keeps(t testing.TB, text string) bool {
	t.Helper()
	for _, name := range []string{"parley.db", "parley.db-wal"} {
		all, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if strings.Contains(string(all), text) || strings.Contains(string(all), strings.ReplaceAll(text, "-", "")) {
			return true
		}
	}
	return false
}

// Tokens that become free while a stream grows pay for its prompt first, also when those
// of its answer are dearer: what it holds covers what it is charged, to the last token.
func TestPlanTokens_Slices(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), nil)
	a := b.account(t, 10*10+40*20-18*10) // for a call of 10 and 40, less 8 and 10 tokens of prompt
	c := b.call(a, true, 40)
	c.LeastOutput, c.Slice = 1, 10
	b.include(t, a, 8)
	h, err := b.Reserve(c)
	if err == nil {
		err = h.Persist()
	}
	if err == nil {
		err = h.Durable()
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.db.Subscription(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	more, _ := s.Due(func(string) (subscription.Terms, bool) { return subscription.Terms{Plan: "p", Tokens: 10}, true }, s.End)
	if err := b.Turn(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	n := 0
	for n < 40 && h.Cover(n+1) == nil {
		n++
		h.Delivered(n)
		if got := b.Balance(a); got.Posted+got.Held > got.Granted || got.Tokens.Held > got.Tokens.Granted {
			t.Fatalf("after %d tokens: %+v", n, got)
		}
	}
	r, err := h.Settle(done(n))
	if err != nil || r.WrittenOff != 0 || r.PlanTokens != 18 || r.Charge != money.Amount(20*(n-8)) {
		t.Errorf("%d tokens: %+v, %v", n, r, err)
	}
	if got := b.Balance(a); got.Held != 0 || got.Tokens.Held != 0 {
		t.Errorf("left held: %+v", got)
	}
	b.verify(t)
}
