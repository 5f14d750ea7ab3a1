// Package refusal remembers why calls were refused, so that people can be told later.
//
// Refusals are no entries of the books: a [Recorder] keeps them in a bounded queue and
// writes them when it has time. When more come than can be written, some are dropped and
// counted; a call never waits for them.
package refusal

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/wire"
)

// ErrNotFound means a request that was not refused, or whose refusal is not kept any more.
var ErrNotFound = errors.New("no such refusal")

// How long refusals are kept: so long, or until the account has had so many after them.
const (
	Lifetime = 7 * 24 * time.Hour
	Most     = 10_000
)

// Scope is whose limit a call has met.
type Scope string

// The scopes of limits. The empty one is of rules without a limit.
const (
	Account Scope = "account"
	Key     Scope = "key"
	Model   Scope = "model" // of an account's calls for one model
)

// Record is one refused call. Rules of credit count in nano-IU, others requests, tokens or
// calls: Limit is what there may be, Used what was in use, Held what running calls held of
// it, and Asked what the call would have needed.
type Record struct {
	RequestID          string
	AccountID          string // empty where nobody knows
	KeyID              string
	Model              string // as the caller wrote it, cut to 64 bytes
	At                 time.Time
	Status             int
	Code               string
	Rule               wire.Rule
	Scope              Scope
	Limit, Used, Asked int64
	Held               int64
	Fits               int // the largest max_tokens that would have passed; 0 is none
	Clears             time.Duration
	PromptTokens       int // 0 where they were not counted
	MaxTokens          int // as asked for; 0 is no limit of the caller's
	Param              string
	Message            string // that the caller was sent, cut to 512 bytes
}

// Reason explains the refusal. What the record cannot know is in with: Owner, Until,
// Nearest, Plans and Now.
func (r *Record) Reason(with wire.Refused) wire.Reason {
	with.Status, with.Code, with.Rule, with.Model = r.Status, r.Code, r.Rule, r.Model
	with.Fits, with.PromptTokens, with.Clears, with.At = r.Fits, r.PromptTokens, r.Clears, r.At
	with.Param, with.Message = r.Param, r.Message
	switch r.Rule {
	case wire.RuleCredit, wire.RuleHeld, wire.RuleBudget:
		with.Need, with.Left, with.Held = r.Amounts()
	default:
		with.Limit, with.Used, with.Asked = r.Limit, r.Used, r.Asked
	}
	return with.Reason()
}

// Amounts are what a call that credit or a budget refused needed, what there was and what
// running calls held, in IU; empty where the call was refused before that was counted.
func (r *Record) Amounts() (need, left, held string) {
	if r.Asked == 0 {
		return "", "", ""
	}
	return money.Amount(r.Asked).String(), money.Amount(r.Limit).String(), money.Amount(r.Held).String()
}

// Store keeps refusals.
type Store interface {
	// AddRefusals writes all of them in one transaction; one that is there is left as it is.
	AddRefusals(ctx context.Context, rs []Record) error
	// PruneRefusals deletes at most limit that were made before t, or that are not among
	// the newest most of these accounts, and says how many.
	PruneRefusals(ctx context.Context, t time.Time, accounts []string, most, limit int) (int, error)
}

// Sizes of the recorder's work. A batch keeps the books waiting for about a millisecond.
const (
	queueSize  = 1024
	batchSize  = 128
	writeEvery = time.Second
	pruneEvery = time.Minute
	pruneSize  = 500
)

// Recorder writes refusals in the background. It is safe for concurrent use.
type Recorder struct {
	store   Store
	queue   chan Record
	dropped atomic.Int64
	failed  func(error)
	seen    map[string]bool // accounts with new refusals since the last pruning
}

// NewRecorder returns a recorder over store, which writes while [Recorder.Run] runs.
// failed is told when refusals could not be written.
func NewRecorder(store Store, failed func(error)) *Recorder {
	return &Recorder{store: store, queue: make(chan Record, queueSize), failed: failed, seen: map[string]bool{}}
}

// Add takes r to be written, or drops it. It does not wait. Those of nobody known only get
// half of the room, so that they cannot drive out the others.
func (c *Recorder) Add(r Record) {
	if r.AccountID == "" && len(c.queue) > queueSize/2 {
		c.dropped.Add(1)
		return
	}
	select {
	case c.queue <- r:
	default:
		c.dropped.Add(1)
	}
}

// Dropped is how many were not written.
func (c *Recorder) Dropped() int64 { return c.dropped.Load() }

// Run writes what is added, and deletes what is too old, until ctx ends. What was added
// before is then written too.
func (c *Recorder) Run(ctx context.Context) {
	write, prune := time.NewTicker(writeEvery), time.NewTicker(pruneEvery)
	defer write.Stop()
	defer prune.Stop()
	for {
		select {
		case <-write.C:
			c.Flush(ctx)
		case now := <-prune.C:
			c.prune(ctx, now)
		case <-ctx.Done():
			c.Flush(context.WithoutCancel(ctx))
			return
		}
	}
}

// Flush writes what was added before. It is for one goroutine at a time.
func (c *Recorder) Flush(ctx context.Context) {
	batch := make([]Record, 0, min(batchSize, len(c.queue)))
	for n := len(c.queue); n > 0; n -= len(batch) {
		batch = batch[:0]
		for len(batch) < min(n, batchSize) {
			r := <-c.queue
			batch = append(batch, r)
			c.seen[r.AccountID] = true
		}
		if err := c.store.AddRefusals(ctx, batch); err != nil {
			c.dropped.Add(int64(len(batch)))
			c.failed(err)
			return
		}
	}
}

// prune deletes a little at a time, so that the books never wait for long; what it leaves
// is for the next time.
func (c *Recorder) prune(ctx context.Context, now time.Time) {
	accounts := make([]string, 0, len(c.seen))
	for id := range c.seen {
		accounts = append(accounts, id)
	}
	clear(c.seen)
	const rounds = 40
	for range rounds {
		n, err := c.store.PruneRefusals(ctx, now.Add(-Lifetime), accounts, Most, pruneSize)
		if err != nil && ctx.Err() == nil {
			c.failed(err)
		}
		if err != nil || n < pruneSize {
			return
		}
	}
	for _, id := range accounts {
		c.seen[id] = true
	}
}

// Filter says which refusals of an account are listed. What is zero does not filter.
type Filter struct {
	AccountID string // also empty: those of nobody known
	KeyID     string
	Model     string
	Code      string
	From, To  time.Time // To is not in it
	Before    string    // the request id of the last one of the page before
	Limit     int
}

// Count is how many calls of a key were refused with a code.
type Count struct {
	KeyID, Model, Code string
	Calls              int64
}
