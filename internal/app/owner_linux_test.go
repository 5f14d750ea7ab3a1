package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/config"
)

// nobody is a user that the tests' own is not.
const nobody = 65534

// asNobody calls do on a thread of another user, which ends with it.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked: nobody else may meet this thread
		unchanged := ^uintptr(0)
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, unchanged, nobody, unchanged)
		if errno == 0 {
			do()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// An operator is root where the server is not: what root restores, the server must be able to
// open, and what it cannot open is told with its owner.
func TestRestore_AsRootForAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root, so no file can be given to another user")
	}
	c := config.Default()
	c.Data = filepath.Join(t.TempDir(), "data")
	if err := errors.Join(os.Mkdir(c.Data, 0o700), os.Chown(c.Data, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	ours := func(when string) {
		t.Helper()
		err := filepath.WalkDir(c.Data, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && owner(path) != userName(nobody) {
				t.Errorf("%s: %s belongs to %s", when, path, owner(path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	off, err := OpenOffline(t.Context(), c, true)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "books.db")
	if _, err := off.rooms.db.Backup(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if err := off.Close(); err != nil {
		t.Fatal(err)
	}
	ours("a command")
	if _, err := Restore(t.Context(), file, c.Data, true); err != nil {
		t.Fatal(err)
	}
	ours("a restore over books")

	if err := os.Chown(filepath.Join(c.Data, "parley.db"), 0, 0); err != nil {
		t.Fatal(err)
	}
	// What is above must let nobody through to see that.
	above := filepath.Dir(c.Data)
	if err := errors.Join(os.Chmod(above, 0o711), os.Chmod(filepath.Dir(above), 0o711)); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() { err = writable(c.Data) })
	if err == nil || !strings.Contains(err.Error(), "parley.db belongs to root, and "+userName(nobody)+" may not write to it.\nRun this as") {
		t.Errorf("a database of root's: %v", err)
	}
	got, findings := map[string]Standing{}, []Finding(nil)
	asNobody(t, func() { got, findings = standings(t, c.Data, 1<<40, time.Now()) })
	if got["directory"] != Wrong || got["books"] != Wrong {
		t.Errorf("a doctor who is nobody: %v", got)
	}
	for _, f := range findings {
		if strings.Contains(f.Do, "restore") {
			t.Errorf("%s: what cannot be read is to be restored: %s", f.Check, f.Do)
		}
	}
}
