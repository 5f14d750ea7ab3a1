package chat

import (
	"fmt"
	"sync"
	"time"
)

// Proxies and clients give up on silence. Before the first token an error can still be
// an HTTP status, so nothing is sent for firstPatience; after it an idle stream shows
// every keepAlive that it lives: proxies commonly cut after 60 s.
const (
	firstPatience = 60 * time.Second
	keepAlive     = 15 * time.Second
)

// pulse shows signs of life in a stream in which nothing happens.
type pulse struct {
	mu    sync.Mutex // held over every use of the emitter
	timer *time.Timer
	done  bool
	// panicked is what a beat panicked with, for the call to panic with.
	panicked any
}

// begin starts the pulse of a stream; a whole answer has none.
func (r *run) begin() {
	if r.call.Request.Stream {
		r.pulse.mu.Lock()
		defer r.pulse.mu.Unlock()
		r.pulse.timer = time.AfterFunc(firstPatience, r.beat)
	}
}

// beat opens an answer that has kept its caller waiting, or shows that it goes on.
func (r *run) beat() {
	r.pulse.mu.Lock()
	defer r.pulse.mu.Unlock()
	if r.pulse.done {
		return
	}
	defer func() {
		// On a timer's goroutine it would end the process, and every other call with it.
		if p := recover(); p != nil {
			r.pulse.panicked = p
			r.cancel(fmt.Errorf("panic: %v", p))
		}
	}()
	var err error
	if r.started {
		err = r.emit.Alive()
	} else {
		err = r.start()
	}
	if err != nil {
		r.cancel(err) // whatever the provider is doing, nobody reads it
		return
	}
	r.pulse.timer.Reset(keepAlive)
}

// busy puts the next beat off, because something was sent. The lock is held.
func (r *run) busy() {
	if r.pulse.timer != nil {
		r.pulse.timer.Reset(keepAlive)
	}
}

// end stops the pulse; after it only the caller of end uses the emitter. It returns what
// a beat panicked with.
func (r *run) end() (panicked any) {
	r.pulse.mu.Lock()
	defer r.pulse.mu.Unlock()
	r.pulse.done = true
	if r.pulse.timer != nil {
		r.pulse.timer.Stop()
	}
	return r.pulse.panicked
}
