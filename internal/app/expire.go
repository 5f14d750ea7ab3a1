package app

import (
	"context"
	"errors"
	"time"
)

// expirePause is the longest between two looks at the clock, which may be set.
const expirePause = time.Minute

// keepCalendar lets paid periods begin and end and takes back credit when its time has
// come, until ctx ends.
func (a *App) keepCalendar(ctx context.Context) {
	for ctx.Err() == nil {
		pause := expirePause
		now := time.Now()
		// In this order: a period that ends leaves something to take back.
		period, err := a.rooms.subscriptions.Due(ctx, now)
		expiry, failed := a.rooms.ledger.ExpireDue(ctx, now)
		if err := errors.Join(err, failed); err != nil {
			if ctx.Err() == nil {
				a.log.Warn("credit and paid periods not brought up to date", "error", err)
			}
		} else {
			for _, next := range []time.Time{period, expiry} {
				if !next.IsZero() {
					pause = min(pause, max(0, time.Until(next)))
				}
			}
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
