package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Socket is the name of the operator's socket in the data directory.
const Socket = "parley.sock"

// longestPath is what a Unix socket's address holds on Linux, less the final zero.
const longestPath = 107

// ErrNoServer means that nothing answers on a data directory's socket.
var ErrNoServer = errors.New("no server is running on this data directory")

// reach gives use a path for name in dir that fits a socket's address: the plain one,
// or one through the opened directory where that is too long.
func reach(dir, name string, use func(path string) error) error {
	plain := filepath.Join(dir, name)
	if len(plain) <= longestPath {
		return use(plain)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	short := "/proc/self/fd/" + strconv.Itoa(int(d.Fd()))
	if _, err := os.Stat(short); err != nil {
		return fmt.Errorf("the path %s has %d bytes; a socket's path may have %d: use a shorter data directory", plain, len(plain), longestPath)
	}
	return use(filepath.Join(short, name))
}

// Listen opens the operator's socket in the data directory, with mode 0600 from its
// first moment, and takes the place of one that a dead process left. The caller must
// hold the directory's lock. Remove takes the socket away.
func Listen(dir string) (net.Listener, error) {
	// Between bind and chmod a socket has the umask's mode: in a directory of its own
	// nobody else can reach it, and the rename shows it complete.
	private, err := os.MkdirTemp(dir, ".socket-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	var l *net.UnixListener
	err = reach(private, Socket, func(path string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // It is not at that path any more.
	made := filepath.Join(private, Socket)
	err = errors.Join(os.Chmod(made, 0o600), os.Rename(made, filepath.Join(dir, Socket)))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Remove takes the socket of the data directory away, if it is there.
func Remove(dir string) error {
	if err := os.Remove(filepath.Join(dir, Socket)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// connect opens the socket in dir. It fails with ErrNoServer when nobody listens.
func connect(ctx context.Context, dir string) (net.Conn, error) {
	var c net.Conn
	err := reach(dir, Socket, func(path string) (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, "unix", path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR) {
		return nil, ErrNoServer
	}
	return c, err
}
