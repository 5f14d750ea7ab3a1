package httpserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher ends the contexts of connections whose clients have left, at once: a handler
// that computes or waits reads nothing and would not notice. One goroutine waits for all,
// on an epoll instance that reports no data, only ends.
type watcher struct {
	epoll *os.File
	raw   syscall.RawConn // epoll's

	mu    sync.Mutex
	conns map[uint64]*conn
	last  uint64         // number given: none is given twice, so a late event hits nobody else
	run   sync.WaitGroup // of the one goroutine, which starts with the first connection
}

// newWatcher makes a watcher, which must be closed.
func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// A non-blocking file is one that the runtime waits for: epoll in epoll, so that waiting
	// costs no thread and Close ends it.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	w := &watcher{epoll: os.NewFile(uintptr(fd), "epoll"), conns: map[uint64]*conn{}}
	w.raw, err = w.epoll.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, w.epoll.Close())
	}
	return w, nil
}

// wait reports ends until the watcher is closed.
func (w *watcher) wait() {
	var events [128]unix.EpollEvent
	for {
		n, failed := 0, error(nil)
		err := w.raw.Read(func(fd uintptr) bool {
			n, failed = unix.EpollWait(int(fd), events[:], 0)
			return n != 0 // else the runtime waits until there is something
		})
		if errors.Is(failed, unix.EINTR) {
			continue
		}
		if err != nil || failed != nil {
			return // closed: nothing else is wrong with an epoll instance
		}
		for _, e := range events[:n] {
			w.mu.Lock()
			c := w.conns[number(&e)]
			w.mu.Unlock()
			if c != nil {
				c.leave()
			}
		}
	}
}

// add begins to watch c, until remove. What is no socket is not watched: it is seen to end
// when it is read or written.
func (w *watcher) add(c *conn) {
	sc, ok := c.rwc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	w.mu.Lock()
	if w.last == 0 {
		w.run.Go(w.wait)
	}
	w.last++
	c.watched = w.last
	w.conns[c.watched] = c
	w.mu.Unlock()
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLET}
	setNumber(&e, c.watched)
	if err := w.register(raw, &e); err != nil && !errors.Is(err, net.ErrClosed) {
		c.server.logf("httpserver: departures of %s will be seen late: %v", c.remote, err)
	}
}

// remove stops watching c.
func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	delete(w.conns, c.watched)
	w.mu.Unlock()
}

// register adds the socket raw to the epoll instance. Closing the socket takes it off.
func (w *watcher) register(raw syscall.RawConn, e *unix.EpollEvent) error {
	var closed, failed error
	err := w.raw.Control(func(epfd uintptr) {
		closed = raw.Control(func(fd uintptr) { failed = unix.EpollCtl(int(epfd), unix.EPOLL_CTL_ADD, int(fd), e) })
	})
	return errors.Join(err, closed, failed)
}

// close ends the watcher and waits for it.
func (w *watcher) close() {
	_ = w.epoll.Close() // nothing is written to it
	w.run.Wait()
}

// The kernel gives 64 bits back as they were, which the type splits.
func setNumber(e *unix.EpollEvent, n uint64) { e.Fd, e.Pad = int32(uint32(n)), int32(n>>32) }

func number(e *unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }
