package app

import (
	"context"
	"time"
)

// expirePause is the longest between two looks at the clock, which may be set.
const expirePause = time.Minute

// expireCredit takes back credit when its time has come, until ctx ends.
func (a *App) expireCredit(ctx context.Context) {
	for ctx.Err() == nil {
		pause := expirePause
		next, err := a.rooms.ledger.ExpireDue(ctx, time.Now())
		switch {
		case err != nil && ctx.Err() == nil:
			a.log.Warn("credit not expired", "error", err)
		case !next.IsZero():
			pause = min(pause, max(0, time.Until(next)))
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.rooms.ledger.ExpiryChanged():
		}
		timer.Stop()
	}
}
