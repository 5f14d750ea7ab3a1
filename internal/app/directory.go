package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/parley-ai/parley/internal/store"
)

// lockName is the file in the data directory whose lock makes its process the only one.
const lockName = "parley.lock"

// Error is a refusal to go on, in words for an operator: what is wrong, why and what
// to do, a line each. Codes are for scripts.
type Error struct {
	Code  string
	Lines []string
}

// Error is the lines.
func (e *Error) Error() string { return strings.Join(e.Lines, "\n") }

func refuse(code string, lines ...string) *Error { return &Error{Code: code, Lines: lines} }

// InUseError is a data directory that another process has locked. PID is 0 when that
// process has not written its own yet.
type InUseError struct {
	Dir string
	PID int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("The data directory %s is in use by %s. Stop it, or choose another directory with --data.", e.Dir, e.Process())
}

// Process names the process.
func (e *InUseError) Process() string {
	if e.PID == 0 {
		return "another process"
	}
	return "process " + strconv.Itoa(e.PID)
}

// prepare makes sure that dir exists and is closed to other users.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return refuse("data_unusable", "The data directory cannot be made: "+err.Error()+".", "Choose another with --data, or as data in the configuration.")
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if err := writable(dir); err != nil || fi.Mode().Perm()&0o077 == 0 {
		return err
	}
	// A directory that is ours, or empty, is closed without asking. Any other may be
	// meant for everybody, as /tmp is: its owner decides.
	if ours, err := isOurs(dir); err != nil || !ours {
		return errors.Join(err, refuse("data_open",
			fmt.Sprintf("The data directory %s holds other files and is open to other users (mode %04o).", dir, fi.Mode().Perm()),
			"Choose another with --data or, if this one is meant for Parley:",
			"  chmod 700 "+dir))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return refuse("data_open", fmt.Sprintf("The data directory %s is open to other users (mode %04o), and that cannot be changed: %v.", dir, fi.Mode().Perm(), err))
	}
	return nil
}

func isOurs(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		switch e.Name() {
		case store.FileName, lockName:
			return true, nil
		case "weights", "lost+found":
		default:
			return false, nil
		}
	}
	return true, nil
}

// lock makes this process the only one on dir, which must exist. It fails with
// *InUseError. The lock ends with the process, however that ends.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil, &InUseError{Dir: dir, PID: holder(f)}
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = refuse("disk_full", "There is no space left on the disk of "+dir+".", "Make room, then try again.")
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// holder is the process that has locked f, 0 when it has not said so yet.
func holder(f *os.File) int {
	text, _ := io.ReadAll(io.LimitReader(f, 20)) // No pid is as good as an unreadable one.
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// unlock forgets the pid and lets the next process in, at once: closing f does that only when no
// child has it, and one that is being started has until it is another program.
func unlock(f *os.File) error {
	return errors.Join(f.Truncate(0), syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// exists reports whether dir has been used by Parley before.
func exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, store.FileName))
	return !errors.Is(err, fs.ErrNotExist)
}
