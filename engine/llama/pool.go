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
// A section is chunks in a row, a range of them for each thread: neighbouring chunks
// read neighbouring memory, which a core asks for ahead of time. A range holds
// end<<32 | next, and whoever adds one to it owns the chunk it saw: its thread, and once
// they have nothing left the others. So a worker that sleeps, or that the system has
// taken off its core, is never waited for unless it holds a chunk, and a slow core
// simply takes fewer chunks. An idle worker spins for some 35 µs, then parks.
type pool struct {
	n      int
	ranges []chunks // of each thread
	f      func(worker, chunk int)
	done   atomic.Int64
	wake   []chan struct{}
	parked []atomic.Bool
	closed atomic.Bool
	panic  atomic.Pointer[Panic]
	wg     sync.WaitGroup
}

// chunks is a range, alone in the lines of the cache that a core fetches at once.
type chunks struct {
	state atomic.Uint64
	_     [120]byte
}

// left reports whether state has chunks that nobody owns.
func left(state uint64) bool { return state>>32 > state&0xffffffff }

// take owns the next chunk, if there is one.
func (c *chunks) take() (chunk int, ok bool) {
	if !left(c.state.Load()) {
		return 0, false
	}
	s := c.state.Add(1) - 1
	return int(s & 0xffffffff), left(s)
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
	p := &pool{n: n, ranges: make([]chunks, n), wake: make([]chan struct{}, n), parked: make([]atomic.Bool, n)}
	for w := 1; w < n; w++ {
		p.wake[w] = make(chan struct{}, 1)
		p.wg.Go(func() { p.work(w) })
	}
	return p
}

// left reports whether a range has chunks that nobody owns.
func (p *pool) left() bool {
	for i := range p.ranges {
		if left(p.ranges[i].state.Load()) {
			return true
		}
	}
	return false
}

// claim runs chunks until none is left; it reports whether it ran any. A panic of
// a chunk ends the call, with the chunk counted, so that the section can end.
func (p *pool) claim(worker int) bool {
	if !p.left() {
		return false
	}
	ran, inside := int64(0), false
	defer func() {
		if inside {
			p.panic.CompareAndSwap(nil, &Panic{recover(), debug.Stack()})
		}
		p.done.Add(ran)
	}()
	for i := range p.n {
		r := &p.ranges[(worker+i)%p.n]
		for chunk, ok := r.take(); ok; chunk, ok = r.take() {
			ran, inside = ran+1, true
			p.f(worker, chunk)
			inside = false
		}
	}
	return ran > 0
}

const spins = 1500 // pauses of 23 ns on Zen 5

func (p *pool) work(worker int) {
	for i := 0; ; i++ {
		if p.claim(worker) {
			i = 0
		}
		kernel.Pause(1)
		if i%512 == 511 {
			runtime.Gosched()
		}
		if i < spins && !p.closed.Load() {
			continue
		}
		p.parked[worker].Store(true)
		// Work or the end may have come between the last look and the flag; whoever
		// takes the flag down decides whether there is a wake-up to wait for.
		if !p.left() && !p.closed.Load() || !p.parked[worker].CompareAndSwap(true, false) {
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
	for w := range p.ranges {
		from, to := uint64(w*total/p.n), uint64((w+1)*total/p.n)
		p.ranges[w].state.Store(to<<32 | from)
	}
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
