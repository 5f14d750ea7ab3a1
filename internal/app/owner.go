package app

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/parley-ai/parley/internal/store"
)

// writable says why this process cannot write in dir, which exists: SQLite would only say
// that it cannot.
func writable(dir string) error {
	for _, name := range [...]string{".", lockName, store.FileName, store.FileName + "-wal", store.FileName + "-shm", "progress", "backups"} {
		path, what := filepath.Join(dir, name), ""
		if name == "." {
			what = "The data directory "
		}
		err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS)
		switch {
		case errors.Is(err, syscall.EROFS):
			return refuse("data_read_only",
				"The data directory "+dir+" is on a file system that is mounted read-only.",
				"Mount it for writing, or choose another directory with --data.")
		case errors.Is(err, fs.ErrPermission):
			return refuse("permission",
				what+path+" belongs to "+owner(path)+", and "+userName(os.Geteuid())+" may not write to it.",
				"Run this as the user that runs the server, or give that user the directory: chown -R USER "+dir)
		}
	}
	return nil
}

// owner names the user that path belongs to.
func owner(path string) string {
	if fi, err := os.Lstat(path); err == nil {
		if s, ok := fi.Sys().(*syscall.Stat_t); ok {
			return userName(int(s.Uid))
		}
	}
	return "another user"
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}

// giveBack makes what root has made in dir the property of dir's owner, whose server could not
// use it else: an operator restores as root what a user of its own serves. It is for who has
// the lock on dir.
func giveBack(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	to, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || to.Uid == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // SQLite's files come and go
			return nil
		}
		if err != nil || d.Name() == "weights" && d.IsDir() {
			return errors.Join(err, fs.SkipDir)
		}
		fi, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		s, ok := fi.Sys().(*syscall.Stat_t)
		// A file with another name may be anybody's, and what others may read is not ours.
		if !ok || s.Uid != 0 || fi.Mode().Perm()&0o077 != 0 || !d.IsDir() && (!fi.Mode().IsRegular() || s.Nlink != 1) {
			return nil
		}
		return os.Lchown(path, int(to.Uid), int(to.Gid))
	})
}
