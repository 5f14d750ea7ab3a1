package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames and does not replace, in one step.
func renameNew(part, to string) error {
	return os.NewSyscallError("renameat2", unix.Renameat2(unix.AT_FDCWD, part, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE))
}
