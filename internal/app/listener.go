package app

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// tellAgain is how long the log is spared of what an operator was told.
const tellAgain = time.Minute

// heard is a listener that tells when it cannot take connections: whoever calls then waits,
// and nothing else says why. Only one goroutine may accept.
type heard struct {
	net.Listener
	log  *slog.Logger
	told time.Time
}

// Accept is the listener's own.
func (l *heard) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) && time.Since(l.told) >= tellAgain {
		l.told = time.Now()
		l.log.Error("connections cannot be taken", "listen", l.Addr().String(), "error", err,
			"do", "if too many files are open, raise the limit of the process (ulimit -n, LimitNOFILE=)")
	}
	return c, err
}
