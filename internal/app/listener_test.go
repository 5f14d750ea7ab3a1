package app

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// exhausted is a listener of a process that has no files left.
type exhausted struct{ err error }

func (l *exhausted) Accept() (net.Conn, error) { return nil, l.err }
func (*exhausted) Close() error                { return nil }
func (*exhausted) Addr() net.Addr              { return &net.TCPAddr{Port: 8080} }

// What callers wait for is in the log, and does not flood it.
func TestHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		inner := &exhausted{syscall.EMFILE}
		l := &heard{Listener: inner, log: slog.New(slog.NewTextHandler(&out, nil))}
		accept := func(want int) {
			t.Helper()
			if _, err := l.Accept(); err != inner.err { //nolint:errorlint // it must be the very one
				t.Fatalf("Accept gives %v", err)
			}
			if got := strings.Count(out.String(), "level=ERROR"); got != want {
				t.Errorf("told %d times, want %d:\n%s", got, want, &out)
			}
		}
		accept(1)
		accept(1)
		time.Sleep(tellAgain)
		accept(2)
		time.Sleep(tellAgain)
		inner.err = net.ErrClosed
		accept(2)
		for _, want := range []string{"connections cannot be taken", "too many open files", "LimitNOFILE", ":8080"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("nothing says %q:\n%s", want, &out)
			}
		}
	})
}
