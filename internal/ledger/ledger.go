// Package ledger keeps the credits: what was granted, what running calls hold and
// what was charged.
//
// Decisions are made in memory, exactly; durability is group commit in front
// of a [Store]: of the calls that wait for the disk one writes for all. A call reserves credit, is charged or voided exactly once, and
// releases nothing billable before its charge is durable:
//
//	h, err := l.Reserve(call)        // memory only: the hold covers the whole answer
//	h.Persist()                      // a stream: its hold row is on the way to the disk
//	<-h.Durable()                    // before the first byte of a stream
//	err = h.Cover(n)                 // before each part, where the hold is of slices
//	h.Delivered(n)                   // before each part
//	err = h.Settle(outcome)          // durable when it returns: now release the end
package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// Errors of this package.
var (
	// ErrUnavailable means that the books cannot be made durable now: nothing
	// billable may be released or admitted.
	ErrUnavailable = errors.New("the ledger cannot be written")
	// ErrResolved means that a hold was charged or voided already.
	ErrResolved = errors.New("the hold was resolved already")
	// ErrAccount means a grant to an account that the store does not have.
	ErrAccount = errors.New("no such account")
	// ErrAmount means a grant that is not above zero or makes a balance overflow.
	ErrAmount = errors.New("amount must be above 0 and leave the balance below 9.2e9 IU")
)

// InsufficientError is a call that the balance does not cover.
type InsufficientError struct {
	Need      money.Amount // what the smallest acceptable answer would hold
	Available money.Amount // what could be held
	Held      money.Amount // what running calls hold
	Tokens    int64        // included ones that could be held, which Need leaves out
}

func (e *InsufficientError) Error() string {
	return fmt.Sprintf("insufficient credit: %s needed, %s available, %s held", e.Need, e.Available, e.Held)
}

// Op is one change to the books; exactly one field is set.
type Op struct {
	Open   *Receipt // the hold of a stream that starts
	Extend *Receipt // the same hold with more OutputLimit and Hold
	Close  *Receipt // the end of a call; resolves its hold row where it has one
	Grant  *Grant
	// Expire takes back what was not used in time.
	Expire *Expire
	Debit  *Debit
	Turn   *Turned
	Redeem *Redemption
	// Reverse takes back the credit of a payment that went back, or gives it again.
	Reverse *Reversal
}

// Result says what an Op did. Applied is false for a Grant or Close that was there before.
type Result struct {
	Applied bool
	At      time.Time    // of the grant that counts; zero when there is no such account
	Amount  money.Amount // that an Expire or a Reverse has taken
	Left    money.Amount // that an Expire will take when running calls have ended, or a Reverse never
	// Returned is what a Reverse has granted again.
	Returned money.Amount
	Refused  error // why an op that is sound did nothing
}

// Totals are the books of one account at rest.
type Totals struct {
	AccountID                   string
	Granted, Posted             money.Amount
	TokensGranted, TokensPosted int64
}

// Store keeps the books. Commit applies all ops or none, in one transaction that is
// durable when it returns. It is called by one goroutine at a time, and never again
// after an error.
type Store interface {
	Totals(ctx context.Context) ([]Totals, error)
	// Budgets are all that anything was spent from.
	Budgets(ctx context.Context) ([]BudgetTotal, error)
	OpenHolds(ctx context.Context) ([]Receipt, error)
	Commit(ctx context.Context, ops []Op) ([]Result, error)
	// GrantsOf returns all grants of a unit of the account in the order in which they
	// burn, up to date with what is posted.
	GrantsOf(ctx context.Context, accountID string, u Unit) ([]GrantBalance, error)
	// Charged returns the charge of a call that has ended. It fails with [ErrNoCharge].
	Charged(ctx context.Context, requestID string) (Charged, error)
	// Expiring returns the accounts with grants of the unit that have ended by t, if
	// something may be left of them, and when the next one ends.
	Expiring(ctx context.Context, u Unit, t time.Time) (accounts []string, next time.Time, err error)
	// Owed is what a reversal makes due of its payment beyond what was taken and written off for it:
	// below 0 where that was too much, and 0 for a message that was told before.
	Owed(ctx context.Context, r *Reversal) (money.Amount, error)
	// Code finds a code by what it says. It fails with [ErrCode].
	Code(ctx context.Context, hash [32]byte) (Code, error)
}

// Progress remembers, beyond the life of the process, how many tokens each running
// stream has delivered. Its methods are safe for concurrent use.
type Progress interface {
	// Claim gives the request a slot.
	Claim(requestID string) (Slot, error)
	// Delivered is what the last process noted for the request, 0 if nothing.
	Delivered(requestID string) int
	// Reset forgets the last process.
	Reset() error
}

// Slot is the progress of one stream.
type Slot interface {
	Set(tokens int)
	Release()
}

// Ledger is the books of all accounts. It is safe for concurrent use.
type Ledger struct {
	store    Store
	progress Progress
	books    sync.Map // account id -> *book
	budgets  sync.Map // budgetKey -> *counter, guarded by the book of its account
	expiring sync.Map // waiting -> nil, where something waits for running calls to expire
	queue    chan *pending
	wake     chan struct{} // for the committer; closed by Close
	turn     chan struct{} // full while somebody writes
	batch    []*pending    // of who has the turn
	ops      []Op          // of the batch
	// crowded says that the last batch had several ops: then others are about to come,
	// and letting them makes fewer, larger transactions: 18 ops instead of 11 with 64
	// callers.
	crowded   bool
	stopped   chan struct{} // closed when the committer has ended
	failed    chan struct{} // closed when a commit failed
	expiry    chan struct{} // one token: something may be due
	failure   error         // set before failed is closed, by who has the turn
	taking    chan struct{} // full while somebody takes back
	admission atomic.Pointer[error]

	mu     sync.RWMutex // held for reading by every send to queue
	closed bool
}

// Recovery says what Open found of calls that the last process did not finish.
type Recovery struct {
	Settled, Voided int
}

// Open loads the books and resolves what the last process left: a stream that had
// delivered tokens is charged for exactly those, any other hold is voided. Then it takes
// back what has expired meanwhile. The ledger writes through store until [Ledger.Close].
func Open(ctx context.Context, store Store, progress Progress) (*Ledger, Recovery, error) {
	l := &Ledger{
		store: store, progress: progress,
		queue: make(chan *pending, maxBatch), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		stopped: make(chan struct{}), failed: make(chan struct{}), expiry: make(chan struct{}, 1),
		taking: make(chan struct{}, 1),
	}
	rec, err := l.recover(ctx)
	if err != nil {
		return nil, rec, err
	}
	totals, err := store.Totals(ctx)
	if err != nil {
		return nil, rec, err
	}
	for _, t := range totals {
		l.books.Store(t.AccountID, &book{pools: [2]pool{
			Credit: {granted: t.Granted, posted: t.Posted},
			Tokens: {granted: money.Amount(t.TokensGranted), posted: money.Amount(t.TokensPosted)},
		}})
	}
	budgets, err := store.Budgets(ctx)
	if err != nil {
		return nil, rec, err
	}
	for _, t := range budgets {
		l.counter(Budget{ID: t.ID, Period: t.Period}).post(0, t.Spent)
	}
	go l.commit()
	if _, err := l.ExpireDue(ctx, now()); err != nil {
		return nil, rec, errors.Join(err, l.Close())
	}
	return l, rec, nil
}

// recover resolves the holds of the last process in one transaction.
func (l *Ledger) recover(ctx context.Context) (rec Recovery, err error) {
	open, err := l.store.OpenHolds(ctx)
	if err != nil {
		return rec, err
	}
	var ops []Op
	for _, r := range open {
		n := l.progress.Delivered(r.RequestID)
		r.State, r.Ending, r.UsageSource = Voided, EndCrash, UsageNone
		if n > 0 {
			r.CompletionTokens = min(n, r.OutputLimit)
			charged, err := cover(r.Price, r.Tokens(), r.PlanTokens)
			if err != nil {
				return rec, fmt.Errorf("hold %s: %w", r.RequestID, err)
			}
			r.Charge, r.PlanTokens = charged.cost, charged.tokens
			r.State, r.UsageSource, r.Status = Recovered, UsageProgress, 200
			rec.Settled++
		} else {
			r.PromptTokens, r.CachedTokens, r.PlanTokens = 0, 0, 0
			rec.Voided++
		}
		ops = append(ops, Op{Close: &r})
	}
	if len(ops) > 0 {
		results, err := l.store.Commit(ctx, ops)
		if err != nil {
			return rec, err
		}
		for i, res := range results {
			if !res.Applied {
				return rec, fmt.Errorf("%w: %s", ErrResolved, ops[i].Close.RequestID)
			}
		}
	}
	return rec, l.progress.Reset()
}

func (l *Ledger) book(accountID string) *book {
	if b, ok := l.books.Load(accountID); ok {
		return b.(*book)
	}
	b, _ := l.books.LoadOrStore(accountID, new(book))
	return b.(*book)
}

// SetAdmission closes the ledger to new calls for the reason err, or opens it with
// nil. Running calls go on.
func (l *Ledger) SetAdmission(err error) {
	if err == nil {
		l.admission.Store(nil)
		return
	}
	l.admission.Store(&err)
}

// Available reports whether calls can be admitted: nil, or an error that wraps
// [ErrUnavailable].
func (l *Ledger) Available() error {
	select {
	case <-l.failed:
		return fmt.Errorf("%w: %w", ErrUnavailable, l.failure)
	default:
	}
	if err := l.admission.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, *err)
	}
	return nil
}

// Failed is closed when a commit has failed. The state of the disk is then unknown
// (a second fsync can report success for pages that the first one lost), so the
// process must end and recover from what is there.
func (l *Ledger) Failed() <-chan struct{} { return l.failed }

// Err is why [Ledger.Failed] is closed.
func (l *Ledger) Err() error {
	select {
	case <-l.failed:
		return l.failure
	default:
		return nil
	}
}

// Balance is the books of one account at this moment.
type Balance struct {
	Granted, Posted, Held money.Amount
	// Expiring is of grants that have ended and is taken back when running calls have.
	Expiring money.Amount
	Running  int // calls
	Tokens   TokenBalance
}

// TokenBalance is what an account has of the tokens that its plan includes, as [Balance].
type TokenBalance struct {
	Granted, Posted, Held, Expiring int64
}

// Balance is what is left before holds: granted less posted.
func (b TokenBalance) Balance() int64 { return b.Granted - b.Posted }

// Available is what a new call could hold.
func (b TokenBalance) Available() int64 {
	return max(0, b.Granted-b.Posted-b.Held-b.Expiring)
}

// Balance is what is left before holds: granted less posted.
func (b Balance) Balance() money.Amount { return b.Granted - b.Posted }

// Available is what a new call could hold.
func (b Balance) Available() money.Amount {
	return max(0, b.Granted-b.Posted-b.Held-b.Expiring)
}

// Balance returns the books of an account; one that was never granted anything has zeros.
func (l *Ledger) Balance(accountID string) Balance { return l.book(accountID).balance() }

// Running returns a receipt in state running for each call of the account that is
// under way, in no order.
func (l *Ledger) Running(accountID string) []Receipt { return l.book(accountID).receipts() }

// Find returns the receipt of a call that is under way, whosever it is.
func (l *Ledger) Find(requestID string) (r Receipt, ok bool) {
	l.books.Range(func(_, b any) bool {
		r, ok = b.(*book).find(requestID)
		return !ok
	})
	return r, ok
}

// Close waits until everything queued is durable and stops the committer. Calls
// that are still running can no longer be settled.
func (l *Ledger) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.wake)
	}
	l.mu.Unlock()
	<-l.stopped
	return l.Err()
}
