package app

import (
	"context"
	"time"
)

// calendarPause is the longest between two looks at the clock, which may be set.
const calendarPause = time.Minute

// expireCredit takes back credit when its time has come, until ctx ends.
func (a *App) expireCredit(ctx context.Context) {
	a.keepCalendar(ctx, "credit not expired", a.rooms.ledger.ExpireDue, a.rooms.ledger.ExpiryChanged())
}

// turnPeriods lets paid periods begin and end when their time has come, until ctx ends.
func (a *App) turnPeriods(ctx context.Context) {
	a.keepCalendar(ctx, "paid periods not brought up to date", a.rooms.subscriptions.Due, a.rooms.subscriptions.Changed())
}

// keepCalendar calls due whenever something may be, until ctx ends. due returns when
// that is next, zero for unknown; changed receives when it is sooner.
func (a *App) keepCalendar(ctx context.Context, failure string, due func(context.Context, time.Time) (time.Time, error), changed <-chan struct{}) {
	for ctx.Err() == nil {
		pause := calendarPause
		next, err := due(ctx, time.Now())
		switch {
		case err != nil && ctx.Err() == nil:
			a.log.Warn(failure, "error", err)
		case !next.IsZero():
			pause = min(pause, max(0, time.Until(next)))
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-changed:
		}
		timer.Stop()
	}
}
