// Package simulation_test runs the ledger and its committer, unchanged, in a world without
// a disk and without a clock: the store is a few maps whose commits are slow, fail, fail
// after they were applied, or panic; the process is killed at any moment and started
// again; time is that of testing/synctest. A seed is a whole history.
package simulation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "the one history to simulate")
	histories = flag.Uint64("histories", 1000, "how many histories to simulate")
)

// TestSimulation lives through 10,000 histories under make prove, 1,000 elsewhere.
func TestSimulation(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), *histories
	if os.Getenv("PARLEY_PROVE") != "" {
		first, n = uint64(time.Now().UnixNano()), 10_000
	}
	if *oneSeed != 0 {
		first, n = *oneSeed, 1
	}
	sum := world{rows: &rows{}}
	for seed := first; seed < first+n; seed++ {
		w := simulate(t, seed)
		for _, wrong := range w.wrong {
			t.Errorf("seed %d: %s", seed, wrong)
		}
		if t.Failed() {
			t.Fatalf("see it again: go test ./internal/ledger/simulation -run 'TestSimulation$' -seed %d", seed)
		}
		sum.lives, sum.failures, sum.released = sum.lives+w.lives, sum.failures+w.failures, sum.released+w.released
		sum.recovered, sum.cut, sum.denied = sum.recovered+w.recovered, sum.cut+w.cut, sum.denied+w.denied
		sum.extended, sum.short = sum.extended+w.extended, sum.short+w.short
	}
	t.Logf("%d histories from seed %d: %d processes, %d of them ended by the store; %d answers released whole, %d streams cut, %d recovered, %d calls denied; %d holds extended, %d ended where the credit did; 0 contradictions",
		n, first, sum.lives, sum.failures, sum.released, sum.cut, sum.recovered, sum.denied, sum.extended, sum.short)
	t.Attr("proof", fmt.Sprintf("T8; %d histories of %d processes; lost 0; duplicate 0; wrong 0; negative 0", n, sum.lives))
	if *oneSeed == 0 && (sum.extended == 0 || sum.short == 0 || sum.failures == 0 || sum.recovered == 0 || sum.cut == 0 || sum.denied == 0 || sum.released < int(n)) {
		t.Error("the test proves little")
	}
}

// A seed that fails would be of no use if it did not fail again. Whoever has waited for a commit
// lets time pass before its next act, and everybody has moments of its own.
func TestSimulation_Repeats(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		if a, b := simulate(t, seed), simulate(t, seed); a.hash() != b.hash() {
			t.Fatalf("seed %d has two histories:\n%s\n\n%s", seed, strings.Join(a.trace, "\n"), strings.Join(b.trace, "\n"))
		}
	}
}

// world is one history.
type world struct {
	*rows
	chance *rand.Rand
	calls  []*call
	wrong  []string
	names  int
	grows  bool // streams may have holds of slices

	lives, failures, released, cut, recovered, denied, short int
}

// call is what a caller saw.
type call struct {
	id       string
	stream   bool
	shown    int // tokens of a stream that reached the caller
	released bool
	out      int // that it was told at the end
	charge   money.Amount
}

const account = "acct_1"

var (
	price  = money.Price{Input: 10, CachedInput: 5, Output: 20}
	budget = ledger.Budget{ID: "budget_1", Amount: 6000}
)

func simulate(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{rows: newRows(account), chance: rand.New(rand.NewPCG(seed, 1)), grows: seed%2 == 1}
	synctest.Test(t, func(*testing.T) {
		var before *memory
		for range 2 + w.chance.IntN(3) {
			before = w.live(before)
		}
		w.sound(before)
	})
	w.wrong = append(w.wrong, w.broken...)
	return w
}

func (w *world) hash() uint64 {
	h := fnv.New64()
	for _, line := range w.trace {
		h.Write([]byte(line))
	}
	return h.Sum64()
}

func (w *world) found(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *world) count(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// process is one life of the service.
type process struct {
	*ledger.Ledger
	world    *world
	disk     *disk
	progress *memory
	left     map[string]int // of the progress, by a kill
}

// live is a process from its start to its death, which comes early, and returns what it
// leaves in memory.
func (w *world) live(before *memory) *memory {
	p := w.start(before, true)
	w.lives++
	if p == nil {
		w.failures++
		return before // its progress was not reset: the next start finds it again
	}
	var wg sync.WaitGroup
	for i := range 2 + w.chance.IntN(4) {
		chance := actor{w.fork(), laneCallers + int64(i)}
		wg.Go(func() { p.caller(chance) })
	}
	chance := actor{w.fork(), laneOperator}
	wg.Go(func() { p.operator(chance) })
	lapse(time.Duration(w.chance.Int64N(int64(100*time.Millisecond))), laneKill)
	p.kill()
	wg.Wait()
	if err := p.Close(); err != nil && !errors.Is(err, errDead) {
		w.failures++
	}
	return &memory{now: p.left}
}

func (w *world) fork() *rand.Rand { return rand.New(rand.NewPCG(w.chance.Uint64(), 2)) }

// start opens the ledger; nil when the store failed in it.
func (w *world) start(before *memory, faults bool) *process {
	p := &process{world: w, disk: &disk{rows: w.rows, chance: w.fork(), reads: w.fork()}, progress: newMemory(before)}
	if faults {
		p.disk.slow = time.Duration(1 + w.chance.Int64N(int64(5*time.Millisecond)))
		left := 1 + w.chance.IntN(200) // commits until one fails
		p.disk.fates = func() fate {
			if left--; left > 0 {
				return fine
			}
			if p.Ledger == nil {
				return []fate{refused, unknown}[p.disk.chance.IntN(2)] // a panic would end the start, as it should
			}
			return []fate{refused, unknown, panics, tooShort}[p.disk.chance.IntN(4)]
		}
	}
	l, rec, err := ledger.Open(context.Background(), p.disk, p.progress)
	if err != nil {
		if !faults {
			w.found("the start fails on a sound disk: %v", err)
		}
		return nil
	}
	w.recovered += rec.Settled
	p.Ledger = l
	return p
}

// kill lets nothing reach the rows, or a caller, any more.
func (p *process) kill() {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.disk.dead = true
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.left = maps.Clone(p.progress.now)
}

// seen runs f, what a caller sees, unless the process is dead.
func (p *process) seen(f func()) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if !p.disk.dead {
		f()
	}
}

// caller makes calls until the ledger ends. Between any two of its acts time passes, so
// that the order of everybody's acts is that of their times.
func (p *process) caller(chance actor) {
	for {
		chance.think()
		failed := p.Err() != nil
		stop := p.call(chance)
		if failed && !stop {
			p.world.found("a call was admitted after %v", p.Err())
		}
		p.observe()
		if stop {
			return
		}
	}
}

// actor is one of those who act, by chance and in a lane.
type actor struct {
	*rand.Rand
	lane int64
}

func (a actor) think() { lapse(time.Duration(1+a.Int64N(int64(4*time.Millisecond))), a.lane) }

// observe asks for what everybody may ask at any moment.
func (p *process) observe() {
	b := p.Balance(account)
	if b.Posted+b.Held > b.Granted || b.Posted < 0 || b.Held < 0 || b.Available() > b.Granted-b.Posted-b.Held {
		p.world.found("Balance = %+v", b)
	}
	if t := b.Tokens; t.Posted+t.Held > t.Granted || t.Posted < 0 || t.Held < 0 {
		p.world.found("Balance = %+v", b)
	}
	if s := p.Spending(account, budget); s.Spent+s.Held > budget.Amount || s.Held < 0 {
		p.world.found("Spending = %+v of %d", s, budget.Amount)
	}
}

func (p *process) call(chance actor) (stop bool) {
	p.world.mu.Lock()
	p.world.names++
	c := &call{id: fmt.Sprintf("req_%05d", p.world.names), stream: chance.IntN(2) == 0}
	p.world.calls = append(p.world.calls, c)
	p.world.mu.Unlock()
	in := ledger.Call{RequestID: c.id, AccountID: account, Price: price, Stream: c.stream, PromptTokens: 10, Output: 1 + chance.IntN(40), CreatedAt: time.Now()}
	in.LeastOutput = 1 + chance.IntN(in.Output)
	if c.stream && p.world.grows && chance.IntN(2) == 0 {
		in.Slice = 1 + chance.IntN(8)
	}
	if chance.IntN(3) == 0 {
		in.Budget = budget
	}
	h, err := p.Reserve(in)
	if err != nil {
		p.world.count(&p.world.denied)
		return errors.Is(err, ledger.ErrUnavailable)
	}
	made := chance.IntN(h.OutputLimit() + 1)
	if c.stream {
		made, err = p.stream(c, h, made, chance)
		chance.think()
		switch {
		case err != nil && !errors.Is(err, ledger.ErrUnavailable): // the credit has ended, and the answer with it
			p.world.count(&p.world.short)
		case err != nil:
			return errors.Is(h.Void(ledger.Outcome{}), ledger.ErrUnavailable) || p.Available() != nil
		}
	} else {
		chance.think()
	}
	if made == 0 {
		_ = h.Void(ledger.Outcome{Ending: ledger.EndUpstreamError}) // once only: it cannot fail
		return p.Available() != nil
	}
	o := ledger.Outcome{PromptTokens: 10, CompletionTokens: made, Ending: ledger.EndStop}
	if chance.IntN(10) == 0 {
		o.CompletionTokens += 40 // a provider that counts more than it may
	}
	r, err := h.Settle(o)
	p.seen(func() {
		if err == nil {
			c.released, c.out, c.charge = true, o.CompletionTokens, r.Charge
			p.world.released++
		}
	})
	return err != nil
}

// stream shows made tokens, each covered and noted before it is shown, or as many as are
// paid for, and returns how many. It fails as Persist, Durable and Cover do.
func (p *process) stream(c *call, h *ledger.Hold, made int, chance actor) (int, error) {
	if err := h.Persist(); err != nil {
		return 0, err
	}
	chance.think()
	if err := h.Durable(); err != nil {
		return 0, err
	}
	for n := range made {
		chance.think()
		if err := h.Cover(n + 1); err != nil {
			return n, err
		}
		h.Delivered(n + 1)
		p.seen(func() {
			c.shown = n + 1
			if covered := p.world.holds[c.id].OutputLimit; c.shown > covered {
				p.world.wrong = append(p.world.wrong, fmt.Sprintf("%s shows token %d and the disk covers %d", c.id, c.shown, covered))
			}
		})
	}
	return made, nil
}

// operator grants, takes, gives back and lets grants end, by a clock that jumps.
func (p *process) operator(chance actor) {
	ctx := context.Background()
	for n := 0; p.Available() == nil; n++ {
		chance.think()
		switch chance.IntN(9) {
		case 0, 1:
			g := ledger.Grant{AccountID: account, Amount: money.Amount(1 + chance.IntN(3000))}
			if chance.IntN(2) == 0 {
				g.ExpiresAt = time.Now().Add(time.Duration(1 + chance.Int64N(int64(200*time.Millisecond))))
			}
			if chance.IntN(4) == 0 {
				g.Source = fmt.Sprint(chance.IntN(5)) // several times
			}
			_, _ = p.Grant(ctx, g) // the rows say what became of it
		case 2:
			_ = p.Adjust(ctx, account, money.Amount(chance.IntN(1000)-800), "")
		case 3:
			p.world.mu.Lock()
			name := fmt.Sprintf("req_%05d", 1+chance.IntN(p.world.names+1))
			p.world.mu.Unlock()
			_, _ = p.Refund(ctx, name, money.Amount(chance.IntN(200)), "")
		case 4:
			_ = p.Turn(ctx, period(chance.Rand))
		case 5:
			p.reverse(ctx, chance)
		default:
			jump := time.Duration(chance.Int64N(int64(400*time.Millisecond))) - 100*time.Millisecond
			_, _ = p.ExpireDue(ctx, time.Now().Add(jump))
		}
		p.observe()
	}
}

// reverse tells that some of a grant with a source was paid back.
func (p *process) reverse(ctx context.Context, chance actor) {
	p.world.mu.Lock()
	var paid []ledger.Payment
	for _, g := range p.world.grants {
		if g.Source != "" && g.Unit == ledger.Credit && g.Kind == ledger.Prepaid {
			paid = append(paid, ledger.Payment{AccountID: g.AccountID, Source: g.Source, Credit: g.Amount, Paid: 10})
		}
	}
	p.world.mu.Unlock()
	if len(paid) == 0 {
		return
	}
	r := ledger.Reversal{
		Payment: paid[chance.IntN(len(paid))], Source: fmt.Sprint("evt_", chance.IntN(30)), // several times
	}
	switch chance.IntN(4) {
	case 0:
		r.Claim = ledger.Claim{Part: "refunds", Kind: ledger.Refunds, Back: chance.Int64N(11), Of: 10}
	case 1:
		r.Claim = ledger.Claim{Part: fmt.Sprint("dispute_", chance.IntN(2)), Kind: ledger.Dispute, Back: chance.Int64N(12), Of: 10}
	default:
		n := chance.Int64N(4)
		r.Claim = ledger.Claim{Part: fmt.Sprint("refund_", n), Kind: ledger.OneBack, Back: 1 + n, Of: 10, Failed: chance.IntN(2) == 0}
	}
	before := p.Balance(account)
	got, err := p.Reverse(ctx, r)
	most := min(r.Payment.Credit, r.Payment.Share(r.Claim.Back, 10)+1)
	if err == nil && (got.Taken < 0 || got.WrittenOff < 0 || got.Returned < 0 || max(got.Taken+got.WrittenOff, got.Returned) > most ||
		got.Taken > 0 && before.Granted == 0 || got.Returned > 0 && !r.Claim.Failed) {
		p.world.found("Reverse of %+v = %+v", r, got)
	}
}

// period is one of a plan that includes tokens, credit or both, for a short time.
func period(chance *rand.Rand) subscription.Turn {
	now := time.Now().UTC()
	return subscription.Turn{
		Action: subscription.Create, At: now, Begins: true,
		Tokens: chance.Int64N(200), Credit: money.Amount(max(0, chance.IntN(2000)-1000)),
		Next: subscription.Subscription{
			ID: fmt.Sprint("sub_", chance.IntN(50)), AccountID: account, Plan: "p", Period: 1, // several times
			End: now.Add(time.Duration(1 + chance.Int64N(int64(200*time.Millisecond)))),
		},
	}
}

// sound starts once more, on a disk that works, and holds everything that callers have
// seen against the rows.
func (w *world) sound(before *memory) {
	p := w.start(before, false)
	if p == nil {
		return
	}
	credit, tokens := purse{account, ledger.Credit}, purse{account, ledger.Tokens}
	if len(w.holds) > 0 {
		w.found("%d holds after a start", len(w.holds))
	}
	b := p.Balance(account)
	if b.Held != 0 || b.Running != 0 || b.Granted != w.granted[credit] || b.Posted != w.posted[credit] {
		w.found("Balance = %+v, the rows have %d and %d", b, w.granted[credit], w.posted[credit])
	}
	if t := b.Tokens; t.Held != 0 || t.Granted != int64(w.granted[tokens]) || t.Posted != int64(w.posted[tokens]) {
		w.found("Balance = %+v, the rows have %d and %d tokens", b, w.granted[tokens], w.posted[tokens])
	}
	if s := p.Spending(account, budget); s.Held != 0 || s.Spent != w.budgets[ledger.Budget{ID: budget.ID}] {
		w.found("Spending = %+v, the rows have %d", s, w.budgets[ledger.Budget{ID: budget.ID}])
	}
	for _, c := range w.calls {
		w.compare(c)
	}
	if err := p.Close(); err != nil {
		w.found("Close: %v", err)
	}
}

func (w *world) compare(c *call) {
	r, charged := w.charges[c.id]
	switch {
	case c.released:
		if !charged || r.State != ledger.Settled || r.CompletionTokens != c.out || r.Charge != c.charge {
			w.found("%s was released with %d tokens for %d; the rows have %v %s %d %d", c.id, c.out, c.charge, charged, r.State, r.CompletionTokens, r.Charge)
		}
	case c.shown > 0:
		w.cut++
		if !charged || r.CompletionTokens < c.shown {
			w.found("%s showed %d tokens; the rows have %v %s %d", c.id, c.shown, charged, r.State, r.CompletionTokens)
		}
		if r.State == ledger.Recovered && r.CompletionTokens > c.shown+1 {
			w.found("%s showed %d tokens and was recovered for %d", c.id, c.shown, r.CompletionTokens)
		}
	}
}
