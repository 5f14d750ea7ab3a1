package proof_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// machine drives the ledger and the reference side by side.
type machine struct {
	reference
	t       testing.TB
	line    *line
	keep    **line // what the next machine has
	dir     string
	account string
	start   time.Time // the hour 0 of expiries, which lies ahead of the clock
	hour    int64     // that it is, for expiries
	ops     *int
	sources int
}

// TestAgainstReference runs random operations on the real ledger over a real database and
// on a reference of a hundred lines. What rapid finds it makes as short as it can.
// 100,000 operations under make prove, a tenth elsewhere.
func TestAgainstReference(t *testing.T) {
	t.Parallel()
	ops, accounts, diverged := 0, 0, 0
	for ops < size(100_000) && !t.Failed() {
		dir := t.TempDir()
		disk, err := storetest.Mount(dir) // its syncs cost nothing
		if err != nil {
			t.Fatal(err)
		}
		l, err := open(dir)
		must(t, err)
		rapid.Check(t, func(rt *rapid.T) {
			m := &machine{t: t, line: l, keep: &l, dir: dir, ops: &ops, account: l.account(t), start: time.Now().Add(time.Hour).Truncate(time.Hour)}
			m.budgets = map[string]int64{}
			accounts++
			rt.Repeat(map[string]func(*rapid.T){
				"": m.compare, "grant": m.grant, "grant twice": m.grantTwice, "reserve": m.reserveCall, "deliver": m.deliver, "settle": m.settle,
				"void": m.void, "end twice": m.endTwice, "expire": m.expireDue, "adjust": m.adjust, "refund": m.refund, "restart": m.restart,
			})
			m.finish(rt)
		})
		var f figures
		f.verify(t, l)
		for _, wrong := range f.wrong {
			t.Error(wrong)
		}
		diverged += len(f.wrong)
		must(t, l.close())
		disk.Unmount()
	}
	t.Attr("proof", fmt.Sprintf("T7; %d operations on %d accounts; wrong %d", ops, accounts, diverged))
	t.Logf("%d operations on %d accounts, 0 divergences unless told above", ops, accounts)
}

// finish ends what runs, so that no call outlives its account, and compares everything.
func (m *machine) finish(rt *rapid.T) {
	for len(m.calls) > 0 {
		m.voidCall(rt, m.calls[0])
	}
	m.give(rt, "") // it is durable behind everything that was queued before
	m.compare(rt)
	m.compareGrants(rt)
}

func (m *machine) compare(rt *rapid.T) {
	*m.ops++
	got := m.line.Ledger.Balance(m.account)
	want := ledger.Balance{
		Granted: money.Amount(m.granted()), Posted: money.Amount(m.posted), Held: money.Amount(m.held("")),
		Expiring: money.Amount(m.expiring), Running: len(m.calls),
	}
	if got != want {
		rt.Fatalf("Balance = %+v, want %+v", got, want)
	}
	if got.Posted+got.Held > got.Granted || got.Posted < 0 {
		rt.Fatalf("Balance = %+v: more is spent and held than was granted", got)
	}
	for id, spent := range m.budgets {
		got := m.line.Ledger.Spending(m.account, ledger.Budget{ID: id})
		if want := (ledger.Spending{Spent: money.Amount(spent), Held: money.Amount(m.held(id))}); got != want {
			rt.Fatalf("Spending = %+v, want %+v", got, want)
		}
	}
}

// compareGrants asks the database what became of every grant and charge.
func (m *machine) compareGrants(rt *rapid.T) {
	grants, err := m.line.db.Grants(context.Background(), m.account)
	if err != nil {
		rt.Fatal(err)
	}
	burning := m.burning()
	if len(grants) != len(burning) {
		rt.Fatalf("%d grants, want %d", len(grants), len(burning))
	}
	for i, g := range burning {
		if got := grants[i]; got.Note != g.id || int64(got.Burned) != g.gone-g.expired || int64(got.Expired) != g.expired {
			rt.Fatalf("grant %d is %s, burned %d, expired %d, want %s, %d, %d", i, got.Note, got.Burned, got.Expired, g.id, g.gone-g.expired, g.expired)
		}
	}
	receipts, err := m.line.db.Receipts(context.Background(), m.account, 1_000_000)
	if err != nil {
		rt.Fatal(err)
	}
	if len(receipts) != len(m.charges) {
		rt.Fatalf("%d receipts, want %d", len(receipts), len(m.charges))
	}
	byID := map[string]money.Amount{}
	for _, r := range receipts {
		byID[r.RequestID] = r.Charge
	}
	for _, c := range m.charges {
		if got, ok := byID[c.id]; !ok || int64(got) != c.amount {
			rt.Fatalf("%s is charged %d (%v), want %d", c.id, got, ok, c.amount)
		}
	}
}

var kinds = []ledger.Kind{ledger.Prepaid, ledger.Included, ledger.Promo}

func (m *machine) give(rt *rapid.T, source string) {
	g := ledger.Grant{
		AccountID: m.account, Amount: money.Amount(rapid.Int64Range(1, 5000).Draw(rt, "amount")), Source: source,
		Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), Note: fmt.Sprint("grant ", len(m.grants)),
	}
	var ends int64
	if rapid.Bool().Draw(rt, "ends") {
		ends = m.hour + rapid.Int64Range(1, 5).Draw(rt, "hours")
		g.ExpiresAt = m.start.Add(time.Duration(ends) * time.Hour)
	}
	if got, err := m.line.Ledger.Grant(context.Background(), g); err != nil || !got.Added {
		rt.Fatalf("Grant = %+v, %v", got, err)
	}
	m.add(g.Note, int64(g.Amount), g.Kind.Priority(), ends)
}

func (m *machine) grant(rt *rapid.T) { m.give(rt, "") }

func (m *machine) grantTwice(rt *rapid.T) {
	m.sources++
	source := fmt.Sprint("source ", m.sources)
	m.give(rt, source)
	got, err := m.line.Ledger.Grant(context.Background(), ledger.Grant{AccountID: m.account, Amount: 7, Source: source})
	if err != nil || got.Added {
		rt.Fatalf("the second Grant of one source = %+v, %v", got, err)
	}
}

func (m *machine) reserveCall(rt *rapid.T) {
	output := rapid.IntRange(1, 60).Draw(rt, "output")
	least := rapid.IntRange(1, output).Draw(rt, "least")
	c := &refCall{stream: rapid.Bool().Draw(rt, "stream")}
	call := ledger.Call{
		RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: m.account, KeyID: "key_x", Model: "m",
		PriceID: m.line.model.PriceID, Price: m.line.model.Price, PlanVersion: "plan_x", Stream: c.stream, CreatedAt: time.Now(),
		PromptTokens: prompt, Output: output, LeastOutput: least,
	}
	if n := rapid.IntRange(0, 2).Draw(rt, "budget"); n > 0 {
		c.budget, c.most = fmt.Sprint(m.account, " ", n), int64(2000*n)
		call.Budget = ledger.Budget{ID: c.budget, Amount: money.Amount(c.most)}
		m.budgets[c.budget] += 0
	}
	c.id = call.RequestID
	refusal := m.reserve(c, output, least)
	h, err := m.line.Ledger.Reserve(call)
	_, broke := errors.AsType[*ledger.InsufficientError](err)
	_, over := errors.AsType[*ledger.BudgetError](err)
	if broke != (refusal == "balance") || over != (refusal == "budget") || (err == nil) != (refusal == "") {
		rt.Fatalf("Reserve gives %v, want a refusal by %q", err, refusal)
	}
	if err != nil {
		return
	}
	if h.OutputLimit() != c.limit {
		rt.Fatalf("OutputLimit = %d, want %d", h.OutputLimit(), c.limit)
	}
	c.hold = h
	if c.stream && rapid.Bool().Draw(rt, "persist") {
		if err := errors.Join(h.Persist(), h.Durable()); err != nil {
			rt.Fatal(err)
		}
		c.persisted = true
	}
}

// some is a running call.
func (m *machine) some(rt *rapid.T) *refCall {
	if len(m.calls) == 0 {
		rt.Skip()
	}
	return rapid.SampledFrom(m.calls).Draw(rt, "call")
}

func (m *machine) deliver(rt *rapid.T) {
	c := m.some(rt)
	c.delivered = rapid.IntRange(c.delivered, c.limit+2).Draw(rt, "tokens")
	c.hold.Delivered(c.delivered)
}

func (m *machine) settle(rt *rapid.T) {
	c := m.some(rt)
	o := usage(rapid.IntRange(0, 30).Draw(rt, "prompt"), rapid.IntRange(0, 80).Draw(rt, "tokens"))
	o.CachedTokens = rapid.IntRange(0, o.PromptTokens).Draw(rt, "cached")
	cost := int64(o.PromptTokens-o.CachedTokens)*inPrice + int64(o.CachedTokens)*cachedPrice + int64(o.CompletionTokens)*outPrice
	r, err := c.hold.Settle(o)
	charge := m.end(c, cost)
	if err != nil || int64(r.Charge) != charge || int64(r.WrittenOff) != cost-charge {
		rt.Fatalf("Settle of %d = %d and %d written off, %v, want %d", cost, r.Charge, r.WrittenOff, err, charge)
	}
}

// usage is how a call ended that used so much.
func usage(in, out int) ledger.Outcome {
	return ledger.Outcome{PromptTokens: in, CompletionTokens: out, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageCounted, Target: "fake/x", Attempts: 1}
}

func (m *machine) void(rt *rapid.T) { m.voidCall(rt, m.some(rt)) }

func (m *machine) voidCall(rt *rapid.T, c *refCall) {
	if err := c.hold.Void(usage(prompt, 3)); err != nil {
		rt.Fatal(err)
	}
	m.end(c, 0)
}

func (m *machine) endTwice(rt *rapid.T) {
	c := m.some(rt)
	_, err := c.hold.Settle(usage(prompt, 1))
	m.end(c, prompt*inPrice+outPrice)
	_, again := c.hold.Settle(usage(prompt, 50))
	if void := c.hold.Void(usage(prompt, 0)); err != nil || !errors.Is(again, ledger.ErrResolved) || !errors.Is(void, ledger.ErrResolved) {
		rt.Fatalf("Settle, Settle, Void give %v, %v, %v", err, again, void)
	}
}

func (m *machine) expireDue(rt *rapid.T) {
	m.hour += rapid.Int64Range(0, 3).Draw(rt, "hours")
	if _, err := m.line.Ledger.ExpireDue(context.Background(), m.start.Add(time.Duration(m.hour)*time.Hour)); err != nil {
		rt.Fatal(err)
	}
	m.expire(m.hour)
}

func (m *machine) adjust(rt *rapid.T) {
	n := rapid.Int64Range(-3000, 1000).Filter(func(n int64) bool { return n != 0 }).Draw(rt, "amount")
	available, note := m.available(), fmt.Sprint("grant ", len(m.grants))
	err := m.line.Ledger.Adjust(context.Background(), m.account, money.Amount(n), note)
	_, broke := errors.AsType[*ledger.InsufficientError](err)
	if broke != (-n > available) || err != nil && !broke {
		rt.Fatalf("Adjust of %d with %d gives %v", n, available, err)
	}
	switch {
	case n > 0:
		m.add(note, n, 30, 0)
	case err == nil:
		m.spend(-n)
	}
}

func (m *machine) refund(rt *rapid.T) {
	if len(m.charges) == 0 {
		rt.Skip()
	}
	c := &m.charges[rapid.IntRange(0, len(m.charges)-1).Draw(rt, "charge")]
	n := rapid.Int64Range(1, 1500).Draw(rt, "amount")
	note := fmt.Sprint("grant ", len(m.grants))
	_, err := m.line.Ledger.Refund(context.Background(), c.id, money.Amount(n), note)
	switch {
	// Who has not waited for the receipt of a call may be told that there is none.
	case errors.Is(err, ledger.ErrNoCharge) && c.amount == 0:
	case errors.Is(err, ledger.ErrRefunded) != (n > c.amount-c.refunded) || err != nil && !errors.Is(err, ledger.ErrRefunded):
		rt.Fatalf("Refund of %d of %d-%d gives %v", n, c.amount, c.refunded, err)
	case err == nil:
		c.refunded += n
		m.add(note, n, 30, 0)
	}
}

// restart ends the process: what is queued is written, what runs is not ended.
func (m *machine) restart(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "seldom") > 0 {
		rt.Skip()
	}
	m.crash()
	m.reopen()
}

func (m *machine) reopen() {
	must(m.t, m.line.close())
	var err error
	m.line, err = open(m.dir)
	must(m.t, err)
	*m.keep = m.line
}
