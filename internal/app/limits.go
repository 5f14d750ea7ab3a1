package app

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// limitWindow is how long a call counts against the limits of who made it.
const limitWindow = time.Minute

// openLimits counts the calls of the last minute again: a restart gives nobody a second
// helping. What the last process did not finish is in the books by now.
func (a *App) openLimits(ctx context.Context) error {
	now := time.Now()
	receipts, err := a.rooms.db.ReceiptsSince(ctx, now.Add(-limitWindow))
	if err != nil {
		return fmt.Errorf("the calls of the last minute cannot be read: %w", err)
	}
	a.limiter = ratelimit.New(now)
	a.limiter.Restore(past(receipts, now, a.rooms.keys.Find))
	return nil
}

// past is what calls count for: a call that was voided gave no tokens.
func past(receipts []ledger.Receipt, now time.Time, key func(id string) (apikey.Key, bool)) []ratelimit.Past {
	calls := make([]ratelimit.Past, 0, len(receipts))
	for _, r := range receipts {
		p := ratelimit.Past{Account: r.AccountID, Key: r.KeyID, Model: r.Model, At: r.CreatedAt}
		if k, ok := key(r.KeyID); ok {
			p.Key = k.CountedAs
		}
		if p.At.After(now) {
			p.At = now // the clock was set back meanwhile
		}
		if r.State != ledger.Voided {
			p.Tokens = int64(r.PromptTokens) + int64(r.CompletionTokens)
		}
		calls = append(calls, p)
	}
	return calls
}

// sweepLimits forgets each minute who has not called for one.
func (a *App) sweepLimits(ctx context.Context) {
	tick := time.NewTicker(limitWindow)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			a.limiter.Sweep(now)
		}
	}
}

// sweepKeys forgets every hour the idempotency keys that have expired.
func (a *App) sweepKeys(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := a.rooms.repeats.Sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			a.log.Warn("idempotency keys not forgotten", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
