package httpserver

import (
	"errors"
	"os"
	"sync"
	"time"
)

// deadline is the read or the write deadline of a connection. Moving it to later, which
// every event of a stream does, touches no timer: the one in force stays, and what it
// wakes too early is done again. It is safe for concurrent use.
type deadline struct {
	arm func(time.Time) error // of the connection

	mu    sync.Mutex
	want  time.Time
	armed time.Time // never later than want, but where that was set to earlier than now
}

// set makes t the deadline, of what is under way too; the zero time is none.
func (d *deadline) set(t time.Time) error { return d.setIf(nil, t) }

// setIf does so if ok, which is asked when no other deadline can come between.
func (d *deadline) setIf(ok func() bool, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ok != nil && !ok() {
		return nil
	}
	d.want = t
	if t.IsZero() || !d.armed.IsZero() && !t.Before(d.armed) {
		return nil
	}
	d.armed = t
	return d.arm(t)
}

// early reports whether err is the timeout of a timer that is not due. The timer is then
// set right, and what has failed may be tried again.
func (d *deadline) early(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.want.IsZero() && !time.Now().Before(d.want) {
		return false
	}
	d.armed = d.want
	return d.arm(d.want) == nil
}
