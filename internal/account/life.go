package account

import "sync"

// Life is how long a right lasts: of a key until it is revoked, of an account until it
// is suspended. A nil Life never ends. It is safe for concurrent use.
type Life struct {
	mu       sync.Mutex
	cause    error    // not nil once it has ended
	watchers *watcher // a list: calls come and go far more often than lives end
}

// NewLife returns a life that lasts until [Life.End].
func NewLife() *Life { return &Life{} }

// End ends l for a reason, of which the first counts.
func (l *Life) End(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	for w := l.watchers; w != nil; w = w.next {
		go w.watch.lost(cause)
	}
	l.watchers = nil
}

// watcher is one watch's place in the list of one life.
type watcher struct {
	watch      *watch
	life       *Life
	prev, next *watcher
}

// enter has w told when l ends, in a goroutine of its own.
func (l *Life) enter(w *watcher) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		go w.watch.lost(l.cause)
		return
	}
	w.life, w.next = l, l.watchers
	if w.next != nil {
		w.next.prev = w
	}
	l.watchers = w
}

// leave takes w out of the list.
func (w *watcher) leave() {
	l := w.life
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return // the list is gone
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.watchers = w.next
	}
}

// watch waits for the end of either of a principal's lives.
type watch struct {
	once         sync.Once
	end          func(cause error)
	key, account watcher
}

func (w *watch) lost(cause error) { w.once.Do(func() { w.end(cause) }) }

func (w *watch) stop() {
	w.key.leave()
	w.account.leave()
}
