package apikey

import (
	"context"
	"sync/atomic"
	"time"
)

// minute is the minute in which a key was last used, with a mark for what the
// store does not have yet. A call costs one load, and one store a minute.
type minute struct {
	at    atomic.Int64 // Unix seconds, whole minutes; 0 is never
	dirty atomic.Bool
}

func newMinute(t time.Time) *minute {
	m := new(minute)
	if !t.IsZero() {
		m.at.Store(t.Unix())
	}
	return m
}

func (m *minute) stamp(now time.Time) {
	if s := now.Unix() / 60 * 60; s > m.at.Load() {
		m.at.Store(s)
		m.dirty.Store(true)
	}
}

func (m *minute) time() time.Time {
	if s := m.at.Load(); s != 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// Run writes once a minute, and when ctx ends, which keys have been used since. No
// call waits for it, and what it loses in a crash is a time for display.
func (r *Keyring) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := r.flush(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return r.flush(context.WithoutCancel(ctx))
		}
	}
}

func (r *Keyring) flush(ctx context.Context) error {
	used := map[string]time.Time{}
	r.mu.Lock()
	for id, e := range r.byID {
		if e.used.dirty.Swap(false) {
			used[id] = e.used.time()
		}
	}
	r.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	err := r.store.TouchKeys(ctx, used)
	if err != nil { // nothing was written: the next time has to
		r.mu.Lock()
		defer r.mu.Unlock()
		for id := range used {
			r.byID[id].used.dirty.Store(true)
		}
	}
	return err
}
