package routing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// switched answers, or fails as it is told.
type switched struct {
	provider
	mu    sync.Mutex
	fails error
	n     int // calls
}

func (s *switched) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

func (s *switched) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *switched) Generate(_ context.Context, _ *upstream.Call, yield func(upstream.Event) error) error {
	s.mu.Lock()
	s.n++
	err := s.fails
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return yield(upstream.Event{Text: "x", Finish: wire.FinishStop})
}

// farm is a router over some upstreams, and a model that runs at all of them in order.
type farm struct {
	*routing.Router
	at      []*switched
	model   *catalog.Model
	changes []string
}

func newFarm(n, retries int) *farm {
	f := &farm{model: &catalog.Model{ID: "m"}}
	providers, options := map[string]upstream.Provider{}, map[string]routing.Options{}
	for i := range n {
		id := string(rune('a' + i))
		p := &switched{}
		f.at = append(f.at, p)
		providers[id], options[id] = p, routing.Options{Retries: retries}
		f.model.Targets = append(f.model.Targets, catalog.Target{Upstream: id, Model: "x"})
	}
	f.Router = routing.New(providers).WithOptions(options)
	f.Watch(func(c routing.Change) {
		f.changes = append(f.changes, fmt.Sprintf("%s %s", c.Target.Upstream, c.Class))
	})
	return f
}

// call is one call; it returns how many attempts it made.
func (f *farm) call(t *testing.T) (int, error) {
	t.Helper()
	route, err := f.Generate(t.Context(), f.model, &upstream.Call{Request: plain}, func(upstream.Event) error { return nil })
	return route.Attempts, err
}

// When everything fails, upstreams are asked again for a fifth of the calls and ten times a
// second at most, however many targets and retries there are.
func TestBudget_AllFail(t *testing.T) {
	t.Parallel()
	const rate, seconds = 1000, 30
	for _, targets := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(targets, 2)
			for _, p := range f.at {
				p.set(retry)
			}
			var wg sync.WaitGroup
			for range rate * seconds {
				time.Sleep(time.Second / rate)
				wg.Go(func() {
					if _, err := f.call(t); !errors.Is(err, retry) {
						t.Errorf("a call gives %v", err)
					}
				})
			}
			wg.Wait()
			attempts := 0
			for _, p := range f.at {
				attempts += p.asked()
			}
			// In any ten seconds; and until a target has failed five times calls go on to the
			// next for free.
			most := rate*seconds*12/10 + 10*(seconds+10)*targets + 5*targets
			if attempts < rate*seconds || attempts > most {
				t.Errorf("%d targets: %d attempts of %d calls, want at most %d", targets, attempts, rate*seconds, most)
			}
		})
	}
}

// Few calls are asked again as often as they may: the budget is for storms.
func TestBudget_Few(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(1, 2)
		f.at[0].set(retry)
		for range 20 {
			if n, _ := f.call(t); n != 3 {
				t.Errorf("%d attempts, want 3", n)
			}
		}
	})
}

// A target that fails again and again is left out, and found well by a call a second.
func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(2, 0)
		a, b := f.at[0], f.at[1]
		serve := func(seconds int) {
			t.Helper()
			for range seconds * 10 {
				time.Sleep(100 * time.Millisecond)
				if _, err := f.call(t); err != nil {
					t.Error(err)
				}
			}
		}
		a.set(retry)
		serve(4)
		if a.asked() != 5 || b.asked() != 40 {
			t.Errorf("a was asked %d times, b %d, want 5 and 40", a.asked(), b.asked())
		}
		serve(10) // probes from the fifth second on
		if n := a.asked() - 5; n < 8 || n > 11 {
			t.Errorf("a was asked %d times in ten seconds", n)
		}
		a.set(nil)
		serve(2)
		before := b.asked()
		serve(5)
		if b.asked() != before {
			t.Error("a is well and b is asked")
		}
		if diff := cmp.Diff([]string{"a unreachable", "a "}, f.changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
}

func TestHealth_Ejects(t *testing.T) {
	t.Parallel()
	busy := &upstream.Failure{Class: upstream.Busy, Err: errors.New("full")}
	refused := &upstream.Failure{Class: upstream.Refused, Err: errors.New("status 400")}
	for _, c := range []struct {
		name string
		errs []error // of the first target, one after another, again and again
		n    int     // calls
		want []string
	}{
		{"our key is refused", []error{denied}, 1, []string{"a denied"}},
		{"four in a row", []error{retry, retry, retry, retry, nil}, 40, []string{"a unreachable"}}, // by the rate
		{"four in a row, few calls", []error{retry, retry, retry, retry, nil}, 19, nil},
		{"every second", []error{nil, retry}, 100, nil},
		{"two of three", []error{retry, retry, nil}, 20, []string{"a unreachable"}},
		{"our own queue is full", []error{busy}, 100, nil},
		{"callers' faults", []error{rejected}, 100, nil},
		{"faults of nobody knows whom", []error{refused}, 100, nil},
		{"and they hide no others", []error{retry, retry, refused, retry, retry, retry}, 6, []string{"a unreachable"}},
		{"callers' faults that another target may not see", []error{&upstream.Failure{Class: upstream.Failed, Err: rejected}}, 100, nil},
		{"five in a row", []error{retry}, 5, []string{"a unreachable"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(2, 0)
				for i := range c.n {
					f.at[0].set(c.errs[i%len(c.errs)])
					_, _ = f.call(t)
				}
				if !slices.Equal(f.changes, c.want) {
					t.Errorf("changes %q, want %q", f.changes, c.want)
				}
			})
		})
	}
}

// A target is ejected for longer each time, and a failure that its caller caused, by
// leaving, is none of its own.
func TestHealth_Longer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(2, 0)
		var until []time.Duration
		f.Watch(func(c routing.Change) {
			if (c.Class != "") != errors.Is(c.Err, denied.Err) {
				t.Errorf("the change %+v has not its failure", c)
			}
			if c.Class != "" {
				until = append(until, time.Until(c.Until))
			}
		})
		f.at[0].set(denied)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		for range 10 {
			_, _ = f.Generate(ctx, f.model, &upstream.Call{Request: plain}, nil)
		}
		if len(until) != 0 {
			t.Errorf("callers that left have ejected it: %v", until)
		}
		for range 3 {
			_, _ = f.call(t)
			time.Sleep(3 * time.Minute)
		}
		time.Sleep(10 * time.Minute)
		_, _ = f.call(t)
		want := []time.Duration{30 * time.Second, time.Minute, 90 * time.Second, 30 * time.Second}
		if !slices.Equal(until, want) {
			t.Errorf("ejected for %v, want %v", until, want)
		}
	})
}
