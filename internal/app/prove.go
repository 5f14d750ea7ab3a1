package app

import (
	"context"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ledger"
)

// proofPause is how long the books go without a proof.
const proofPause = 24 * time.Hour

// proofs is what is known of the proofs of the books. It is safe for concurrent use.
type proofs struct {
	mu    sync.Mutex
	state console.Proof
	asked chan struct{} // one token: a proof that does not wait for its day
}

// Proof is what the last one found, and whether one is under way.
func (p *proofs) Proof() console.Proof {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// ProveNow asks for a proof, unless one is under way or asked for.
func (p *proofs) ProveNow() {
	if !p.begin() {
		return
	}
	select {
	case p.asked <- struct{}{}:
	default: // the day has come before the one who asked was heard
	}
}

// begin notes that a proof begins. It reports false where that was noted before.
func (p *proofs) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.state.Since.IsZero() {
		return false
	}
	p.state.Since = time.Now()
	return true
}

// end notes what a proof has found.
func (p *proofs) end(report ledger.Report, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = console.Proof{Report: report, At: time.Now()}
	if err != nil {
		p.state.Failed = err.Error()
	}
}

// patience is how long a start and a stop wait for a proof. It is enough for about a million
// calls; larger books are proved beside the calls.
const patience = 3 * time.Second

// hopeless is how many entries need not be tried within patience: a core proves some 500,000 a
// second (docs/performance.md).
const hopeless = 5_000_000

// proveWithin proves the books, unless that takes too long, or is known to from the last time.
func (a *App) proveWithin(ctx context.Context) (report ledger.Report, done bool, err error) {
	if last, err := a.rooms.db.LastProof(ctx); err == nil && last.Entries > hopeless {
		return ledger.Report{}, false, nil
	}
	limited, cancel := context.WithTimeout(ctx, a.options.patience)
	defer cancel()
	report, err = a.rooms.db.Verify(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return ledger.Report{}, false, nil
	}
	if err != nil {
		return report, false, refuse("books_unreadable", "The books cannot be read: "+err.Error()+".", "Before anything else, see what is wrong:", "  parley doctor --data "+a.config.Data)
	}
	return report, true, nil
}

// proveAtStart tells whether the books are balanced, or when they were proved last.
func (a *App) proveAtStart(ctx context.Context) error {
	report, done, err := a.proveWithin(ctx)
	if err != nil {
		return err
	}
	if !done {
		a.unproved = true
		a.screen.note("books    large; %s; they are proved again beside the calls", a.lastProof(ctx))
		return nil
	}
	a.proved(ctx, report, nil)
	if !report.OK() {
		a.screen.note("books    NOT BALANCED; see: parley ledger verify")
		return nil
	}
	a.screen.note("books    balanced, %s, %s", english.Plural(report.Entries, "entry"), seconds(report.Took))
	return nil
}

// lastProof says what the last proof that was finished has found.
func (a *App) lastProof(ctx context.Context) string {
	p, err := a.rooms.db.LastProof(ctx)
	switch {
	case err != nil || p.At.IsZero():
		return "not proved yet"
	case p.Law != "":
		return "NOT BALANCED at " + p.At.UTC().Format("2006-01-02 15:04 UTC") + ", see: parley ledger verify"
	}
	return "balanced at " + p.At.UTC().Format("2006-01-02 15:04 UTC")
}

// knownBroken reports whether the last proof that was finished has found a broken law.
func (a *App) knownBroken(ctx context.Context) bool {
	p, err := a.rooms.db.LastProof(ctx)
	return err == nil && p.Law != ""
}

// proveBooks proves the books every day, and when somebody asks, until ctx ends; at once
// those that the start could not.
func (a *App) proveBooks(ctx context.Context) {
	if a.unproved {
		a.proveOnce(ctx)
	}
	every(ctx, proofPause, a.proofs.asked, func() { a.proveOnce(ctx) })
}

func (a *App) proveOnce(ctx context.Context) {
	a.proofs.begin()
	report, err := a.rooms.db.Prove(ctx)
	if ctx.Err() == nil {
		a.proved(ctx, report, err)
	}
}

// every calls f each time that pause has passed since its last end, or that somebody has
// asked, until ctx ends.
func every(ctx context.Context, pause time.Duration, asked <-chan struct{}, f func()) {
	for {
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-asked:
		case <-ctx.Done():
		}
		next.Stop()
		if ctx.Err() != nil {
			return
		}
		f()
	}
}

// proved tells everybody who should know what a proof has found: the log, the metrics,
// webhooks, and the books, where parley doctor reads it.
func (a *App) proved(ctx context.Context, report ledger.Report, err error) {
	if err == nil {
		err = a.rooms.db.NoteProof(ctx, report)
	}
	broken := report.Broken()
	a.metrics.Proof(err == nil && broken.Name == "", report.Took, time.Now())
	switch {
	case broken.Name != "":
		a.log.Error("books not balanced", "law", broken.Name, "detail", broken.Detail, "entries", report.Entries,
			"do", "stop the server, keep a copy of the data directory, run parley ledger verify, report what it says")
	case err != nil:
		a.log.Error("books not proved", "error", err, "do", "see to the disk; run parley doctor")
	default:
		a.log.Debug("books balanced", "entries", report.Entries, "took", report.Took)
	}
	a.proofs.end(report, err) // last: who waits for it finds the rest told
}
