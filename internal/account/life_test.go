package account

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// Whoever watches when a life ends hears of it once, with the first reason; whoever has
// stopped before does not; and lists stay whole whatever the order in which calls leave.
func TestLife(t *testing.T) {
	t.Parallel()
	first := errors.New("first")
	for range 200 {
		key, account := NewLife(), NewLife()
		p := &Principal{KeyLife: key, AccountLife: account}
		var told, stopped atomic.Int32
		var stops []func()
		var heard sync.WaitGroup
		for i := range 10 {
			left := i%3 == 0
			if !left {
				heard.Add(1)
			}
			stop := p.Watch(func(cause error) {
				if left {
					stopped.Add(1)
					return
				}
				if !errors.Is(cause, first) {
					t.Errorf("cause %v", cause)
				}
				told.Add(1)
				heard.Done()
			})
			if left {
				stops = append(stops, stop)
			}
		}
		for i := range stops {
			stops[(i+2)%len(stops)]()
		}
		var ends sync.WaitGroup
		ends.Go(func() { key.End(first) })
		ends.Go(func() { account.End(first) })
		ends.Go(func() { p.Watch(func(error) {})() })
		ends.Wait()
		key.End(errors.New("second"))
		heard.Wait()
		if told.Load() != 6 || stopped.Load() != 0 {
			t.Fatalf("%d told, %d told after they had stopped", told.Load(), stopped.Load())
		}
	}
	late := make(chan error, 1)
	l := NewLife()
	l.End(first)
	(&Principal{KeyLife: l}).Watch(func(cause error) { late <- cause })
	if err := <-late; !errors.Is(err, first) {
		t.Errorf("a late watcher heard %v", err)
	}
}
