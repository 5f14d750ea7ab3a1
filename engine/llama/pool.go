package llama

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/parley-ai/parley/engine/kernel"
)

// pool runs sections of work on n threads: the caller's and n-1 workers.
//
// A section is total chunks; state holds total<<32 | next, and whoever adds one to
// it owns the chunk it saw. So a worker that sleeps, or that the system has taken
// off its core, is never waited for unless it holds a chunk, and a slow core simply
// takes fewer chunks. An idle worker spins for some 35 µs, then parks.
type pool struct {
	n      int
	state  atomic.Uint64
	done   atomic.Int64
	f      func(worker, chunk int)
	wake   []chan struct{}
	parked []atomic.Bool
	closed atomic.Bool
	panic  atomic.Pointer[Panic]
	wg     sync.WaitGroup
}

// Panic is a panic of a chunk of work: [Model.Step] and [Model.Each] panic with
// it in the goroutine of their caller, who may recover it.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error gives the panic's value.
func (p *Panic) Error() string { return fmt.Sprintf("llama: panic in a step: %v", p.Value) }

func newPool(n int) *pool {
	p := &pool{n: n, wake: make([]chan struct{}, n), parked: make([]atomic.Bool, n)}
	for w := 1; w < n; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.wg.Go(func() { p.work(w) })
	}
	return p
}

// left reports whether state has chunks that nobody owns.
func left(state uint64) bool { return state>>32 > state&0xffffffff }

// claim runs chunks until none is left; it reports whether it ran any. A panic of
// a chunk ends the call, with the chunk counted, so that the section can end.
func (p *pool) claim(worker int) (ran bool) {
	owned := false
	defer func() {
		if owned {
			p.panic.CompareAndSwap(nil, &Panic{recover(), debug.Stack()})
			p.done.Add(1)
		}
	}()
	for left(p.state.Load()) {
		s := p.state.Add(1) - 1
		if !left(s) {
			return
		}
		owned, ran = true, true
		p.f(worker, int(s&0xffffffff))
		owned = false
		p.done.Add(1)
	}
	return
}

const spins = 1500 // pauses of 23 ns on Zen 5

func (p *pool) work(worker int) {
	for i := 0; ; i++ {
		if p.claim(worker) {
			i = 0
		}
		kernel.Pause(1)
		if i%64 == 63 {
			runtime.Gosched()
		}
		if i < spins && !p.closed.Load() {
			continue
		}
		p.parked[worker].Store(true)
		// Work or the end may have come between the last look and the flag; whoever
		// takes the flag down decides whether there is a wake-up to wait for.
		if !left(p.state.Load()) && !p.closed.Load() || !p.parked[worker].CompareAndSwap(true, false) {
			<-p.wake[worker]
		}
		if p.closed.Load() {
			return
		}
		i = 0
	}
}

func (p *pool) wakeAll() {
	for w := 1; w < p.n; w++ {
		if p.parked[w].Load() && p.parked[w].CompareAndSwap(true, false) {
			p.wake[w] <- struct{}{}
		}
	}
}

// run calls f for each chunk in [0, total), in any order, and returns when all are
// done. worker < n tells the threads apart. If a chunk panics, the others are
// still run, and then run panics with a *Panic.
func (p *pool) run(total int, f func(worker, chunk int)) {
	if p.n == 1 || total <= 1 {
		for i := range total {
			f(0, i)
		}
		return
	}
	p.f = f
	p.done.Store(0)
	p.state.Store(uint64(total) << 32)
	p.wakeAll()
	for i := 1; p.done.Load() != int64(total); i++ {
		if p.claim(0) {
			continue
		}
		kernel.Pause(1)
		if i%1024 == 0 {
			runtime.Gosched()
		}
	}
	if e := p.panic.Swap(nil); e != nil {
		panic(e)
	}
}

// close ends the workers and waits for them; no section may be running.
func (p *pool) close() {
	p.closed.Store(true)
	p.wakeAll()
	p.wg.Wait()
}
