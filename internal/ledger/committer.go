package ledger

import (
	"context"
	"fmt"
)

// maxBatch bounds the ops of one transaction. What arrives while one commit runs is
// the next batch: an artificial delay never made it faster (docs/performance.md).
const maxBatch = 1024

// pending is one op on its way to the disk. err and result may be read once done is closed.
type pending struct {
	op     Op
	apply  func(Result) // brings memory up to date, called by the committer after the commit
	result Result
	err    error
	done   chan struct{}
}

// send queues p for the committer. When the ledger is closed or has failed, p is
// answered at once.
func (l *Ledger) send(p *pending) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		p.err = fmt.Errorf("%w: it is closed", ErrUnavailable)
		close(p.done)
		return
	}
	l.queue <- p
}

// commit is the only writer. It ends when the queue is closed and empty. After a
// failure it goes on to answer, so that nobody waits for ever.
func (l *Ledger) commit(ctx context.Context) {
	defer close(l.stopped)
	batch := make([]*pending, 0, maxBatch)
	ops := make([]Op, 0, maxBatch)
	for first := range l.queue {
		batch, ops = append(batch[:0], first), append(ops[:0], first.op)
	fill:
		for len(batch) < maxBatch {
			select {
			case p, ok := <-l.queue:
				if !ok {
					break fill
				}
				batch, ops = append(batch, p), append(ops, p.op)
			default:
				break fill
			}
		}
		l.write(ctx, batch, ops)
		clear(batch) // a quiet ledger keeps nothing alive
		clear(ops)
	}
}

// write commits one batch and answers every waiter, whatever happens.
func (l *Ledger) write(ctx context.Context, batch []*pending, ops []Op) {
	err := l.failure // only this goroutine sets it
	var results []Result
	if err == nil {
		results, err = l.store.Commit(ctx, ops)
		if err == nil && len(results) != len(ops) {
			err = fmt.Errorf("store answered %d of %d ops", len(results), len(ops))
		}
		if err != nil {
			l.failure = err
			close(l.failed)
		}
	}
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
}
