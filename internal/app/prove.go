package app

import (
	"context"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// proofPause is how long the books go without a proof.
const proofPause = 24 * time.Hour

// proveBooks proves the books every day until ctx ends. The start has proved them too.
func (a *App) proveBooks(ctx context.Context) {
	every(ctx, proofPause, func() { a.proveOnce(ctx) })
}

func (a *App) proveOnce(ctx context.Context) {
	report, err := a.rooms.db.Prove(ctx)
	if ctx.Err() == nil {
		a.proved(ctx, report, err)
	}
}

// every calls f each time that pause has passed since its last end, until ctx ends.
func every(ctx context.Context, pause time.Duration, f func()) {
	for {
		wait(ctx, pause)
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
}
