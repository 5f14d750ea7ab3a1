package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// requests is how many calls the script of a fault has.
const requests = 200

// faulty is what the faults found.
type faulty struct {
	figures
	failed, survived int           // runs that ended by their fault, and that it did no harm
	slowest          time.Duration // from a fault until nothing was admitted, less what the machine held up
	calls            int           // of SQLite's in a script without a fault
	ends             [3]int
}

// Each call by which SQLite changes a file fails once, the first, the second and so on, in
// each way there is, while requests run. Then the process ends, is killed, or the power
// fails with it; another one goes on, and its power fails too. Nothing that was received
// whole is without its charge, and nothing is admitted once the books cannot be written.
func TestFaultAtEveryCall(t *testing.T) {
	t.Parallel()
	dir, who := furnish(t)
	f := &faulty{}
	step := 1
	if !proving() {
		step = 150
	}
	seed := uint64(time.Now().UnixNano())
	kinds := []storetest.Fault{storetest.Error, storetest.Short, storetest.Full}
	chance := rand.New(rand.NewPCG(seed, 0))
	for n, past := 1+chance.IntN(step), 0; past < 2; n += step {
		reached := false
		for i, kind := range kinds {
			f.rounds++
			// Each way to end follows each way to fail as n goes on.
			if f.fault(t, copyOf(t, dir), who, n, kind, (n/step+i)%3, chance) {
				reached = true
			}
		}
		if reached {
			past, f.calls = 0, n
		} else {
			past++ // the number of calls differs a little from run to run
		}
	}
	f.tell(t, "T9", fmt.Sprintf("%d faults at %d calls", f.rounds, f.calls))
	f.report(t, "faults", fmt.Sprintf("; of %d calls of SQLite's every %d. failed; %d were fatal, %d harmless; ends: %d in order, %d killed, %d without power; slowest from a fault until nothing was admitted %v; seed %d",
		f.calls, step, f.failed, f.survived, f.ends[0], f.ends[1], f.ends[2], f.slowest, seed))
	if f.failed == 0 {
		t.Error("the test proves nothing: no fault was fatal")
	}
	if proving() && f.slowest > 100*time.Millisecond {
		t.Errorf("calls were admitted for %v after a fault", f.slowest)
	}
}

// fault runs the script with one fault at the n-th call and reports whether there was one.
func (f *faulty) fault(t *testing.T, dir string, who *account.Principal, n int, kind storetest.Fault, end int, chance *rand.Rand) bool {
	t.Helper()
	d, err := storetest.Mount(dir)
	must(t, err)
	defer d.Unmount()
	ws := &witnesses{who: who}
	var struck atomic.Int64 // when, in nanoseconds
	d.Before(func(c storetest.Call) storetest.Fault {
		if c.N != n {
			return storetest.None
		}
		struck.Store(time.Now().UnixNano())
		return kind
	})
	l, err := open(dir)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		closed := closing(ctx, l, &struck)
		ws.load(l, requests, chance.Uint64())
		f.judge(l, ws, chance)
		if l.Ledger.Err() != nil {
			f.slowest = max(f.slowest, <-closed)
		}
	}
	hit := struck.Load() != 0
	next := f.end(t, d, l, err, end, dir, chance)
	if next == nil {
		return hit
	}
	defer next.Unmount()
	f.goOn(t, next, ws, chance)
	return hit
}

// judge says what the fault did, and holds the process to admit nothing more.
func (f *faulty) judge(l *line, ws *witnesses, chance *rand.Rand) {
	if l.Ledger.Err() == nil {
		f.survived++
		return
	}
	f.failed++
	if err := ws.call(context.Background(), l, chance); err == nil {
		f.found("round %d: a call was admitted though %v", f.rounds, l.Ledger.Err())
	}
}

// closing tells how long after struck the ledger of l was closed to new calls, if that is before
// the end of ctx. How long a busy machine let nobody of this process run does not count: by so
// much a tick came late.
func closing(ctx context.Context, l *line, struck *atomic.Int64) <-chan time.Duration {
	const every = 5 * time.Millisecond
	took := make(chan time.Duration, 1)
	failed := l.Ledger.Failed()
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		var stalled time.Duration
		for last := time.Now(); ; {
			over := false
			select {
			case <-failed:
				over = true
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if struck.Load() != 0 {
				stalled += max(0, time.Since(last)-every)
			}
			last = time.Now()
			if over {
				took <- max(0, last.Sub(time.Unix(0, struck.Load()))-stalled)
				return
			}
		}
	}()
	return took
}

// end ends the process in one of three ways and returns the disk that the next one finds.
func (f *faulty) end(t *testing.T, d *storetest.Disk, l *line, opened error, end int, dir string, chance *rand.Rand) *storetest.Disk {
	t.Helper()
	f.ends[end]++
	to := t.TempDir()
	var next *storetest.Disk
	var err error
	switch end {
	case 0:
		if opened == nil {
			_ = l.close() // it says again what failed
		}
		return d
	case 1:
		next, err = d.Killed(to)
	case 2:
		if err = d.Survive(to, chance); err == nil {
			next, err = storetest.Mount(to)
		}
	}
	must(t, err)
	// The progress of streams is lost with the power at times only (TestPowerLoss).
	text, err := os.ReadFile(filepath.Join(dir, "progress"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(to, "progress"), text, 0o600))
	d.CutPower()
	if opened == nil {
		_ = l.close() // the disk is gone
	}
	return next
}

// goOn serves on what the last process left until the power fails, and checks what is
// found then.
func (f *faulty) goOn(t *testing.T, d *storetest.Disk, ws *witnesses, chance *rand.Rand) {
	t.Helper()
	d.Before(nil)
	l, err := open(d.Dir())
	if err != nil {
		f.found("round %d: it cannot be opened again: %v", f.rounds, err)
		return
	}
	f.recovered, f.voided = f.recovered+l.recovery.Settled, f.voided+l.recovery.Voided
	ws.load(l, 10, chance.Uint64())
	must(t, l.Ledger.Err())
	to := t.TempDir()
	must(t, d.Survive(to, chance))
	must(t, l.close())
	if l, err = open(to); err != nil {
		f.found("round %d: what survived cannot be opened: %v", f.rounds, err)
		return
	}
	f.verify(t, l)
	must(t, l.close())
	f.check(t, to, ws, false)
}
