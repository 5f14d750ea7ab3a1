package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/subscription"
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
	counts  *counts
	sources int
	plan    subscription.Subscription // the one of the account, if any
}

// counts is how much the machines did.
type counts struct{ ops, accounts, grown, short, periods, covered int }

// TestAgainstReference runs random operations on the real ledger over a real database and
// on a reference of a hundred lines. What rapid finds it makes as short as it can.
// 100,000 operations under make prove, a tenth elsewhere.
func TestAgainstReference(t *testing.T) {
	t.Parallel()
	n, diverged := &counts{}, 0
	for n.ops < size(100_000) && !t.Failed() {
		dir := t.TempDir()
		disk, err := storetest.Mount(dir) // its syncs cost nothing
		if err != nil {
			t.Fatal(err)
		}
		l, err := open(dir)
		must(t, err)
		rapid.Check(t, func(rt *rapid.T) {
			m := &machine{t: t, line: l, keep: &l, dir: dir, counts: n, account: l.account(t), start: time.Now().Add(time.Hour).Truncate(time.Hour)}
			m.budgets = map[string]int64{}
			n.accounts++
			rt.Repeat(map[string]func(*rapid.T){
				"": m.compare, "grant": m.grant, "grant twice": m.grantTwice, "reserve": m.reserveCall, "deliver": m.deliver, "settle": m.settle,
				"void": m.void, "cover": m.cover, "cover more": m.cover, "cover most": m.cover, "period": m.period, "end twice": m.endTwice, "expire": m.expireDue, "adjust": m.adjust, "refund": m.refund, "restart": m.restart,
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
	t.Attr("proof", fmt.Sprintf("T7; %d operations on %d accounts; wrong %d", n.ops, n.accounts, diverged))
	t.Logf("%d operations on %d accounts; %d holds grew, %d could not; %d periods included tokens, which paid for %d calls; 0 divergences unless told above",
		n.ops, n.accounts, n.grown, n.short, n.periods, n.covered)
	if n.grown == 0 || n.short == 0 || n.periods == 0 || n.covered == 0 {
		t.Error("the test proves little")
	}
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
	m.counts.ops++
	got := m.line.Ledger.Balance(m.account)
	want := ledger.Balance{
		Granted: money.Amount(m.credit.granted()), Posted: money.Amount(m.credit.posted), Held: money.Amount(m.held("")),
		Expiring: money.Amount(m.credit.expiring), Running: len(m.calls),
		Tokens: ledger.TokenBalance{Granted: m.tokens.granted(), Posted: m.tokens.posted, Held: m.tokensHeld(), Expiring: m.tokens.expiring},
	}
	if got != want {
		rt.Fatalf("Balance = %+v, want %+v", got, want)
	}
	if tokens := got.Tokens; got.Posted+got.Held > got.Granted || got.Posted < 0 || tokens.Posted+tokens.Held > tokens.Granted || tokens.Posted < 0 {
		rt.Fatalf("Balance = %+v: more is spent and held than was granted", got)
	}
	for id, spent := range m.budgets {
		got := m.line.Ledger.Spending(m.account, ledger.Budget{ID: id})
		if want := (ledger.Spending{Spent: money.Amount(spent), Held: money.Amount(m.held(id))}); got != want {
			rt.Fatalf("Spending = %+v, want %+v", got, want)
		}
	}
}

// compareGrants asks the database, by plain SQL, what became of every grant and charge. How much of
// a grant is burned is noted when something asks; the last grant of finish has asked.
func (m *machine) compareGrants(rt *rapid.T) {
	db := books(m.t, m.dir)
	defer db.Close()
	for table, pool := range map[string]*refPool{"credit_grant": &m.credit, "token_grant": &m.tokens} {
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM `+table+` WHERE account_id = ?`, m.account).Scan(&n); err != nil || n != len(pool.grants) {
			rt.Fatalf("%s: %d grants, %v, want %d", table, n, err, len(pool.grants))
		}
		for _, g := range pool.grants {
			var amount, burned, expired int64
			err := db.QueryRow(`SELECT amount, burned, expired FROM `+table+` WHERE account_id = ? AND coalesce(nullif(note, 'included in p'), source) = ?`, m.account, g.id).
				Scan(&amount, &burned, &expired)
			if pool == &m.tokens { // nothing has asked for it since
				burned = g.gone - g.expired
			}
			if err != nil || amount != g.amount || burned != g.gone-g.expired || expired != g.expired {
				rt.Fatalf("%s: %s of %d burned %d, expired %d, %v; want %d, %d, %d", table, g.id, amount, burned, expired, err, g.amount, g.gone-g.expired, g.expired)
			}
		}
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM charge WHERE account_id = ?`, m.account).Scan(&n); err != nil || n != len(m.charges) {
		rt.Fatalf("%d charges, %v, want %d", n, err, len(m.charges))
	}
	for _, c := range m.charges {
		var amount, tokens int64
		if err := db.QueryRow(`SELECT amount, plan_tokens FROM charge WHERE id = ?`, c.id).Scan(&amount, &tokens); err != nil || amount != c.amount || tokens != c.tokens {
			rt.Fatalf("%s is charged %d and %d tokens (%v), want %d and %d", c.id, amount, tokens, err, c.amount, c.tokens)
		}
	}
}

var kinds = []ledger.Kind{ledger.Prepaid, ledger.Included, ledger.Promo}

func (m *machine) give(rt *rapid.T, source string) {
	g := ledger.Grant{
		AccountID: m.account, Amount: money.Amount(rapid.Int64Range(1, 5000).Draw(rt, "amount")), Source: source,
		Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), Note: fmt.Sprint("grant ", len(m.credit.grants)),
	}
	var ends int64
	if rapid.Bool().Draw(rt, "ends") {
		ends = m.hour + rapid.Int64Range(1, 5).Draw(rt, "hours")
		g.ExpiresAt = m.start.Add(time.Duration(ends) * time.Hour)
	}
	if got, err := m.line.Ledger.Grant(context.Background(), g); err != nil || !got.Added {
		rt.Fatalf("Grant = %+v, %v", got, err)
	}
	m.credit.add(g.Note, int64(g.Amount), g.Kind.Priority(), ends)
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
	if c.stream && rapid.Bool().Draw(rt, "grows") {
		c.slice = rapid.IntRange(1, 12).Draw(rt, "slice")
		output *= 10
	}
	call := ledger.Call{
		RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: m.account, KeyID: "key_x", Model: "m",
		PriceID: m.line.model.PriceID, Price: m.line.model.Price, PlanVersion: "plan_x", Stream: c.stream, CreatedAt: time.Now(),
		PromptTokens: prompt, Output: output, LeastOutput: least, Slice: c.slice,
	}
	if n := rapid.IntRange(0, 2).Draw(rt, "budget"); n > 0 {
		c.budget, c.budgetMost = fmt.Sprint(m.account, " ", n), int64(2000*n)
		call.Budget = ledger.Budget{ID: c.budget, Amount: money.Amount(c.budgetMost)}
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
	if h.OutputLimit() != c.most {
		rt.Fatalf("OutputLimit = %d, want %d", h.OutputLimit(), c.most)
	}
	c.hold = h
	if c.stream && (c.slice > 0 || rapid.Bool().Draw(rt, "persist")) { // a hold grows on the disk only
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
	over := 2
	if c.slice > 0 {
		over = 0 // nobody releases what is not covered
	}
	c.delivered = rapid.IntRange(c.delivered, c.limit+over).Draw(rt, "tokens")
	c.hold.Delivered(c.delivered)
}

// cover asks for the next tokens of a stream. When its hold grows, and by how much of a slice, is the
// ledger's to say: that it covers what it says, holds exactly what that costs, and refuses only what
// nobody can pay for, is not.
func (m *machine) cover(rt *rapid.T) {
	growing := slices.DeleteFunc(slices.Clone(m.calls), func(c *refCall) bool { return c.slice == 0 })
	if len(growing) == 0 {
		rt.Skip()
	}
	c := rapid.SampledFrom(growing).Draw(rt, "stream")
	n := rapid.IntRange(1, 200).Draw(rt, "next") + c.delivered
	err := c.hold.Cover(n)
	r, ok := m.line.Ledger.Find(c.id)
	n = min(n, c.most)
	limit := r.OutputLimit
	if !ok || limit < c.limit || limit > max(c.limit, min(c.most, max(n, c.limit)+2*c.slice)) {
		rt.Fatalf("Cover(%d) of at most %d in slices of %d covers %d (%v), before it was %d", n, c.most, c.slice, limit, ok, c.limit)
	}
	if limit > c.limit {
		m.counts.grown++
	}
	if refusal := m.grow(c, limit); refusal != "" {
		rt.Fatalf("Cover(%d) covers %d, which the %s does not pay for", n, limit, refusal)
	}
	if err == nil && n > limit {
		rt.Fatalf("Cover(%d) covers %d", n, limit)
	}
	if err == nil {
		return
	}
	m.counts.short++
	before := *c
	refusal := m.grow(c, n)
	*c = before
	_, broke := errors.AsType[*ledger.InsufficientError](err)
	_, over := errors.AsType[*ledger.BudgetError](err)
	if n <= limit || broke != (refusal == "balance") || over != (refusal == "budget") {
		rt.Fatalf("Cover(%d) of %d gives %v, want a refusal by %q", n, limit, err, refusal)
	}
}

// period begins a period of a plan, which includes tokens, credit or both for some hours.
func (m *machine) period(rt *rapid.T) {
	at := time.Now().UTC().Truncate(time.Microsecond)
	next := m.plan
	action := subscription.Renew
	if next.ID == "" {
		action = subscription.Create
		next = subscription.Subscription{ID: ident.New("sub_"), AccountID: m.account, Plan: "p", Interval: subscription.Month, CreatedAt: at, Anchor: at, Base: 1}
	}
	ends := m.hour + rapid.Int64Range(1, 5).Draw(rt, "hours")
	next.Revision, next.Period, next.Start, next.End = next.Revision+1, next.Period+1, at, m.start.Add(time.Duration(ends)*time.Hour)
	next.Tokens, next.Credit = rapid.Int64Range(0, 150).Draw(rt, "tokens"), money.Amount(rapid.Int64Range(-1000, 1000).Draw(rt, "credit"))
	next.Credit = max(0, next.Credit)
	turn := subscription.Turn{Action: action, At: at, Next: next, Begins: true, Version: "plan_x", Tokens: next.Tokens, Credit: next.Credit}
	if err := m.line.Ledger.Turn(context.Background(), turn); err != nil {
		rt.Fatal(err)
	}
	if err := m.line.Ledger.Turn(context.Background(), turn); !errors.Is(err, subscription.ErrChanged) {
		rt.Fatalf("the same period again gives %v", err)
	}
	if turn.Tokens > 0 {
		m.tokens.add(turn.Source(), turn.Tokens, ledger.Included.Priority(), ends)
	}
	if turn.Credit > 0 {
		m.credit.add(turn.Source(), int64(turn.Credit), ledger.Included.Priority(), ends)
	}
	m.plan = next
	m.counts.periods++
}

func (m *machine) settle(rt *rapid.T) {
	c := m.some(rt)
	o := usage(rapid.IntRange(0, 30).Draw(rt, "prompt"), rapid.IntRange(0, 80).Draw(rt, "tokens"))
	o.CachedTokens = rapid.IntRange(0, o.PromptTokens).Draw(rt, "cached")
	r, err := c.hold.Settle(o)
	charge, due := m.end(c, o.PromptTokens, o.CachedTokens, o.CompletionTokens)
	if err != nil || int64(r.Charge) != charge || int64(r.WrittenOff) != due-charge {
		rt.Fatalf("Settle of %d = %d and %d written off, %v, want %d", due, r.Charge, r.WrittenOff, err, charge)
	}
	if r.PlanTokens > 0 {
		m.counts.covered++
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
	m.end(c, 0, 0, 0)
}

func (m *machine) endTwice(rt *rapid.T) {
	c := m.some(rt)
	_, err := c.hold.Settle(usage(prompt, 1))
	m.end(c, prompt, 0, 1)
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
	m.credit.expire(m.hour, m.held(""))
	m.tokens.expire(m.hour, m.tokensHeld())
}

func (m *machine) adjust(rt *rapid.T) {
	n := rapid.Int64Range(-3000, 1000).Filter(func(n int64) bool { return n != 0 }).Draw(rt, "amount")
	available, note := m.available(), fmt.Sprint("grant ", len(m.credit.grants))
	err := m.line.Ledger.Adjust(context.Background(), m.account, money.Amount(n), note)
	_, broke := errors.AsType[*ledger.InsufficientError](err)
	if broke != (-n > available) || err != nil && !broke {
		rt.Fatalf("Adjust of %d with %d gives %v", n, available, err)
	}
	switch {
	case n > 0:
		m.credit.add(note, n, 30, 0)
	case err == nil:
		m.credit.spend(-n)
	}
}

func (m *machine) refund(rt *rapid.T) {
	if len(m.charges) == 0 {
		rt.Skip()
	}
	c := &m.charges[rapid.IntRange(0, len(m.charges)-1).Draw(rt, "charge")]
	n := rapid.Int64Range(1, 1500).Draw(rt, "amount")
	note := fmt.Sprint("grant ", len(m.credit.grants))
	_, err := m.line.Ledger.Refund(context.Background(), c.id, money.Amount(n), note)
	switch {
	// Who has not waited for the receipt of a call may be told that there is none.
	case errors.Is(err, ledger.ErrNoCharge) && c.amount == 0:
	case errors.Is(err, ledger.ErrRefunded) != (n > c.amount-c.refunded) || err != nil && !errors.Is(err, ledger.ErrRefunded):
		rt.Fatalf("Refund of %d of %d-%d gives %v", n, c.amount, c.refunded, err)
	case err == nil:
		c.refunded += n
		m.credit.add(note, n, 30, 0)
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
