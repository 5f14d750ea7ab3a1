package ledger

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// maxBatch bounds the ops of one transaction. What arrives while one commit runs is
// the next batch: an artificial delay never made it faster (docs/performance.md).
const maxBatch = 1024

// pending is one op on its way to the disk. err and result may be read once done is closed.
type pending struct {
	op     Op
	apply  func(Result) // brings memory up to date, called by who wrote it, after the commit
	result Result
	err    error
	done   chan struct{}
}

// send queues p. When the ledger is closed or has failed, p is answered at once.
// Somebody has to write it: who sends p waits for it, or wakes the committer.
func (l *Ledger) send(p *pending, wake bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		p.err = fmt.Errorf("%w: it is closed", ErrUnavailable)
		close(p.done)
		return
	}
	l.queue <- p
	if wake {
		select {
		case l.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// do writes op and returns what became of it, whatever happens meanwhile to who asked: the
// outcome of a change to the books is always learnt.
func (l *Ledger) do(op Op, apply func(Result)) (Result, error) {
	p := &pending{op: op, apply: apply, done: make(chan struct{})}
	l.send(p, false)
	l.wait(p)
	return p.result, p.err
}

// wait returns when p is answered. Whoever waits and finds nobody writing writes the
// next batch, p in it: to wake another for it cost a lone caller 35 µs.
func (l *Ledger) wait(p *pending) {
	for {
		select {
		case <-p.done: // before the turn, which may be free too
			return
		default:
		}
		select {
		case <-p.done:
			return
		case l.turn <- struct{}{}:
			l.writeNext()
		}
	}
}

// commit writes what nobody waits for. It ends when the ledger is closed and
// everything is answered.
func (l *Ledger) commit() {
	defer close(l.stopped)
	for open := true; open; {
		_, open = <-l.wake
		for len(l.queue) > 0 {
			l.turn <- struct{}{}
			l.writeNext()
		}
	}
	l.turn <- struct{}{} // who writes still has ended
}

// writeNext commits what is queued and answers every waiter, whatever happens. The
// caller has taken the turn, and it is given back.
func (l *Ledger) writeNext() {
	defer func() { <-l.turn }()
	if l.crowded {
		runtime.Gosched()
	}
	batch, ops := l.batch[:0], l.ops[:0]
fill:
	for len(batch) < maxBatch {
		select {
		case p := <-l.queue:
			batch, ops = append(batch, p), append(ops, p.op)
		default:
			break fill
		}
	}
	if len(batch) == 0 {
		return
	}
	l.crowded = len(batch) > 1
	results, err := l.write(ops)
	for i, p := range batch {
		if err != nil {
			p.err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		} else {
			p.result = results[i]
			if p.apply != nil {
				p.apply(p.result)
			}
		}
		close(p.done)
	}
	clear(batch) // a quiet ledger keeps nothing alive
	clear(ops)
	l.batch, l.ops = batch, ops
}

// write commits ops, unless a commit has failed before. A panic is a failure too: it
// must not end in the handler of whichever call was writing.
func (l *Ledger) write(ops []Op) (results []Result, err error) {
	if l.failure != nil {
		return nil, l.failure
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		if err != nil {
			l.failure = err
			close(l.failed)
		}
	}()
	// Not the context of a call: the outcome of a change to the books is always learnt.
	results, err = l.store.Commit(context.Background(), ops)
	if err == nil && len(results) != len(ops) {
		err = fmt.Errorf("store answered %d of %d ops", len(results), len(ops))
	}
	return results, err
}
