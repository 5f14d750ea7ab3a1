package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// rows is the database of a simulation. It outlives the processes.
type rows struct {
	mu              sync.Mutex
	granted, posted map[purse]money.Amount
	grants          []ledger.GrantBalance
	holds           map[string]ledger.Receipt
	charges         map[string]ledger.Receipt
	debits          money.Amount
	budgets         map[ledger.Budget]money.Amount // spent, by what names a period of one
	reversed        []reversed
	codes           []ledger.Code
	extended        int
	broken          []string // laws that a commit broke
	trace           []string
}

// reversed is a message of a payment that went back, and what was taken, written off, granted
// again and written off no more for it.
type reversed struct {
	message                                ledger.Reversal
	taken, writtenOff, returned, writtenUp money.Amount
}

// purse is what an account has of one unit.
type purse struct {
	account string
	unit    ledger.Unit
}

func newRows(accounts ...string) *rows {
	r := &rows{
		granted: map[purse]money.Amount{}, posted: map[purse]money.Amount{}, holds: map[string]ledger.Receipt{},
		charges: map[string]ledger.Receipt{}, budgets: map[ledger.Budget]money.Amount{},
	}
	for _, id := range accounts {
		r.granted[purse{id, ledger.Credit}], r.granted[purse{id, ledger.Tokens}] = 0, 0
	}
	return r
}

var (
	errDisk = errors.New("disk I/O error")
	errDead = errors.New("the process is dead")
)

// fate is what happens to one commit.
type fate int

const (
	fine     fate = iota
	refused       // it fails and nothing is applied
	unknown       // it is applied and fails
	panics        // nothing is applied
	tooShort      // it is applied and answers one op too few
)

// disk is the store of one process: rows, behind what can happen to a commit.
type disk struct {
	*rows
	chance *rand.Rand
	reads  *rand.Rand    // of who expires, how long; nil for no time
	slow   time.Duration // a commit takes up to this; 0 for none
	fates  func() fate   // nil for a sound disk
	dead   bool          // the process was killed: nothing reaches the rows any more
	over   bool          // a commit failed: none may follow
	busy   bool
}

var _ ledger.Store = (*disk)(nil)

func (d *disk) Commit(_ context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	end, before, after := d.begin(len(ops))
	lapse(before, laneDisk)
	results, err := d.finish(ops, end)
	lapse(after, laneDisk)
	return results, err
}

// pass lets time pass, which is the bubble's.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// Everybody in a history has a lane: nanoseconds of its own, so that no two ever act at once.
const (
	laneReads = iota
	laneDisk
	laneKill
	laneOperator
	laneCallers // and those after it
	lanes       = 16
)

// lapse lets about d pass, until a moment of the lane; no time where d is 0.
func lapse(d time.Duration, lane int64) {
	if d <= 0 {
		return
	}
	now := time.Now().UnixNano()
	to := now + int64(d)
	if to += lane - to%lanes; to <= now {
		to += lanes
	}
	pass(time.Duration(to - now))
}

// begin decides what happens to a commit, and how long before and after it is durable.
func (d *disk) begin(ops int) (end fate, before, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.busy {
		d.broken = append(d.broken, fmt.Sprintf("a commit of %d ops after a failed one (%v) or beside another (%v)", ops, d.over, d.busy))
	}
	d.busy = true
	if d.fates != nil {
		end = d.fates()
	}
	if d.slow > 0 {
		took := time.Duration(d.chance.Int64N(int64(d.slow)))
		before = time.Duration(d.chance.Int64N(int64(took) + 1))
		after = took - before
	}
	return end, before, after
}

func (d *disk) finish(ops []ledger.Op, end fate) ([]ledger.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	if d.dead {
		d.over = true
		return nil, errDead
	}
	d.over = end != fine
	switch end {
	case refused:
		return nil, errDisk
	case panics:
		panic("a fault in the store")
	}
	results := make([]ledger.Result, len(ops))
	for i, op := range ops {
		results[i] = d.apply(op)
	}
	d.check()
	d.note("commit %d %d", len(ops), end)
	switch end {
	case unknown:
		return nil, errDisk
	case tooShort:
		return results[:len(results)-1], nil
	}
	return results, nil
}

func (r *rows) note(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf("%d ", time.Now().UnixNano())+fmt.Sprintf(format, args...))
}

func (r *rows) apply(op ledger.Op) ledger.Result {
	switch {
	case op.Open != nil:
		r.note("open %s", op.Open.RequestID)
		r.holds[op.Open.RequestID] = *op.Open
		return ledger.Result{Applied: true}
	case op.Extend != nil:
		return r.extend(op.Extend)
	case op.Close != nil:
		return r.close(op.Close)
	case op.Grant != nil:
		return r.grant(op.Grant)
	case op.Expire != nil:
		return r.expire(op.Expire)
	case op.Debit != nil:
		r.posted[purse{op.Debit.AccountID, ledger.Credit}] += op.Debit.Amount
		r.debits += op.Debit.Amount
		return ledger.Result{Applied: true}
	case op.Turn != nil:
		return r.turn(op.Turn)
	case op.Reverse != nil:
		return r.reverse(op.Reverse)
	case op.Redeem != nil:
		return r.redeem(op.Redeem)
	}
	panic("an op without a change")
}

// extend lets a hold only grow, and by what it holds pay for all that it covers.
func (r *rows) extend(h *ledger.Receipt) ledger.Result {
	old, ok := r.holds[h.RequestID]
	rest := unpaid(h.Price, money.Tokens{Prompt: h.PromptTokens, Completion: h.OutputLimit}, h.PlanTokens)
	if !ok || h.OutputLimit <= old.OutputLimit || h.Hold < max(old.Hold, rest) {
		r.broken = append(r.broken, fmt.Sprintf("%s (%v) of %d tokens for %d becomes %d for %d", h.RequestID, ok, old.OutputLimit, old.Hold, h.OutputLimit, h.Hold))
	}
	r.note("extend %s %d", h.RequestID, h.OutputLimit)
	r.extended++
	r.holds[h.RequestID] = *h
	return ledger.Result{Applied: true}
}

func (r *rows) close(c *ledger.Receipt) ledger.Result {
	delete(r.holds, c.RequestID)
	if _, ok := r.charges[c.RequestID]; ok {
		return ledger.Result{}
	}
	r.note("%s %s %d", c.State, c.RequestID, c.Charge)
	due := unpaid(c.Price, c.Tokens(), c.PlanTokens)
	if c.Charge+c.WrittenOff != due || c.Charge < 0 || c.WrittenOff < 0 || c.State == ledger.Voided && (due != 0 || c.PlanTokens != 0) {
		r.broken = append(r.broken, fmt.Sprintf("%s %s: charged %d and wrote off %d for %+v, %d of them included", c.State, c.RequestID, c.Charge, c.WrittenOff, c.Tokens(), c.PlanTokens))
	}
	r.charges[c.RequestID] = *c
	r.posted[purse{c.AccountID, ledger.Credit}] += c.Charge
	r.posted[purse{c.AccountID, ledger.Tokens}] += money.Amount(c.PlanTokens)
	if c.Budget.ID != "" {
		r.budgets[ledger.Budget{ID: c.Budget.ID, Period: c.Budget.Period}] += c.Charge
	}
	return ledger.Result{Applied: true}
}

// unpaid is what t costs beyond so many included tokens, token by token: they pay for the
// prompt, then for what of it was cached, then for the answer. No price here is 0.
func unpaid(p money.Price, t money.Tokens, included int) (cost money.Amount) {
	for i := range t.Prompt + t.Completion {
		switch {
		case i < included:
		case i < t.Prompt-t.Cached:
			cost += p.Input
		case i < t.Prompt:
			cost += p.CachedInput
		default:
			cost += p.Output
		}
	}
	return cost
}

// turn adds what a period includes, once.
func (r *rows) turn(t *ledger.Turned) ledger.Result {
	for _, old := range r.grants {
		if old.Source == t.Source() {
			return ledger.Result{Refused: subscription.ErrChanged}
		}
	}
	for i := range t.Grants {
		r.add(&t.Grants[i])
	}
	return ledger.Result{Applied: true}
}

func (r *rows) grant(g *ledger.Grant) ledger.Result {
	if _, ok := r.granted[purse{g.AccountID, ledger.Credit}]; !ok {
		return ledger.Result{}
	}
	for _, old := range r.grants {
		if g.Source != "" && old.Source == g.Source && old.AccountID == g.AccountID {
			return ledger.Result{At: old.CreatedAt}
		}
	}
	if g.Kind == ledger.Refund {
		if c, err := r.charged(g.RequestID); err != nil || g.Amount > c.Charge-c.Refunded || c.AccountID != g.AccountID {
			return ledger.Result{Refused: ledger.ErrRefunded}
		}
	}
	r.add(g)
	return ledger.Result{Applied: true, At: g.CreatedAt}
}

func (r *rows) add(g *ledger.Grant) {
	of := purse{g.AccountID, g.Unit}
	r.burn(of)
	r.note("grant %d of %d", g.Amount, g.Unit)
	r.grants = append(r.grants, ledger.GrantBalance{Grant: *g})
	r.granted[of] += g.Amount
}

// burn brings the grants of a purse up to date and returns them in their order.
func (r *rows) burn(of purse) []ledger.GrantBalance {
	var own []ledger.GrantBalance
	var burned money.Amount
	for _, g := range r.grants {
		if of == (purse{g.AccountID, g.Unit}) {
			own, burned = append(own, g), burned+g.Burned
		}
	}
	ledger.Allocate(own, burned, r.posted[of])
	r.put(own)
	return own
}

func (r *rows) put(grants []ledger.GrantBalance) {
	for _, g := range grants {
		i := slices.IndexFunc(r.grants, func(o ledger.GrantBalance) bool { return o.ID == g.ID })
		r.grants[i] = g
	}
}

func (r *rows) expire(e *ledger.Expire) ledger.Result {
	of := purse{e.AccountID, e.Unit}
	own := r.burn(of)
	taken, left := e.Take(own)
	res := ledger.Result{Applied: true, Left: left}
	for i, n := range taken {
		own[i].Expired += n
		res.Amount += n
	}
	r.put(own)
	r.note("expire %d of %d, %d left", res.Amount, e.Unit, left)
	r.granted[of] -= res.Amount
	return res
}

// check holds the rows to the laws of the books.
func (r *rows) check() {
	spent := func(of purse, r *ledger.Receipt, credit money.Amount) money.Amount {
		switch of {
		case purse{r.AccountID, ledger.Credit}:
			return credit
		case purse{r.AccountID, ledger.Tokens}:
			return money.Amount(r.PlanTokens)
		}
		return 0
	}
	for of := range r.granted {
		var held, charged, granted money.Amount
		for _, h := range r.holds {
			held += spent(of, &h, h.Hold)
		}
		for _, c := range r.charges {
			charged += spent(of, &c, c.Charge)
		}
		if of.unit == ledger.Credit {
			charged += r.debits
		}
		for _, g := range r.grants {
			if of == (purse{g.AccountID, g.Unit}) {
				granted += g.Amount - g.Expired
			}
			if g.Remaining() < 0 || g.Burned < 0 || g.Expired < 0 {
				r.broken = append(r.broken, fmt.Sprintf("grant of %d burned %d and lost %d", g.Amount, g.Burned, g.Expired))
			}
		}
		if r.posted[of]+held > r.granted[of] {
			r.broken = append(r.broken, fmt.Sprintf("%v: posted %d and held %d of %d granted", of, r.posted[of], held, r.granted[of]))
		}
		if charged != r.posted[of] || granted != r.granted[of] {
			r.broken = append(r.broken, fmt.Sprintf("%v: posted %d is charges and debits of %d; granted %d is grants of %d", of, r.posted[of], charged, r.granted[of], granted))
		}
	}
	for id := range r.holds {
		if _, ok := r.charges[id]; ok {
			r.broken = append(r.broken, id+" is held and charged")
		}
	}
	r.checkReversed()
}

func (r *rows) Totals(context.Context) (all []ledger.Totals, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, granted := range r.granted {
		if tokens := (purse{of.account, ledger.Tokens}); of != tokens {
			all = append(all, ledger.Totals{
				AccountID: of.account, Granted: granted, Posted: r.posted[of],
				TokensGranted: int64(r.granted[tokens]), TokensPosted: int64(r.posted[tokens]),
			})
		}
	}
	return all, nil
}

func (r *rows) Budgets(context.Context) (all []ledger.BudgetTotal, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b, spent := range r.budgets {
		all = append(all, ledger.BudgetTotal{ID: b.ID, Period: b.Period, Spent: spent})
	}
	return all, nil
}

func (r *rows) OpenHolds(context.Context) (all []ledger.Receipt, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.holds {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b ledger.Receipt) int {
		return slices.Compare([]byte(a.RequestID), []byte(b.RequestID))
	})
	return all, nil
}

// GrantsOf takes time too: who has waited for a commit does not go on beside others who
// have, so that a seed is one history.
func (d *disk) GrantsOf(ctx context.Context, account string, u ledger.Unit) ([]ledger.GrantBalance, error) {
	if d.reads != nil {
		lapse(time.Duration(1+d.reads.Int64N(int64(time.Millisecond))), laneReads)
	}
	return d.rows.GrantsOf(ctx, account, u)
}

func (r *rows) GrantsOf(_ context.Context, account string, u ledger.Unit) ([]ledger.GrantBalance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.burn(purse{account, u}), nil
}

func (r *rows) Charged(_ context.Context, id string) (ledger.Charged, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.charged(id)
}

func (r *rows) charged(id string) (ledger.Charged, error) {
	c, ok := r.charges[id]
	if !ok {
		return ledger.Charged{}, ledger.ErrNoCharge
	}
	out := ledger.Charged{AccountID: c.AccountID, Charge: c.Charge}
	for _, g := range r.grants {
		if g.RequestID == id {
			out.Refunded += g.Amount
		}
	}
	return out, nil
}

func (r *rows) Expiring(_ context.Context, u ledger.Unit, t time.Time) (accounts []string, next time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.grants {
		switch {
		case g.Unit != u, g.ExpiresAt.IsZero():
		case g.ExpiresAt.After(t):
			if next.IsZero() || g.ExpiresAt.Before(next) {
				next = g.ExpiresAt
			}
		case g.Remaining() > 0 && !slices.Contains(accounts, g.AccountID):
			accounts = append(accounts, g.AccountID)
		}
	}
	slices.Sort(accounts)
	return accounts, next, nil
}
