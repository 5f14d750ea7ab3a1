package app

import (
	"context"
	"errors"
	"io/fs"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/store"
)

// Restore makes the backup file the books of the data directory dir, which it makes
// where there is none. Books that are there are refused or, with force, moved aside.
// Errors are [*Error], [*InUseError] while a server has the directory, or carry their
// own sentence.
func Restore(ctx context.Context, file, dir string, force bool) (_ store.Restored, err error) {
	if err := prepare(dir); err != nil {
		return store.Restored{}, err
	}
	held, err := lock(dir)
	if err != nil {
		return store.Restored{}, err
	}
	defer func() { err = errors.Join(err, giveBack(dir), unlock(held)) }()
	r, err := store.Restore(audit.WithActor(ctx, admin.Whoami()), file, dir, force)
	switch {
	case errors.Is(err, store.ErrBooks):
		return r, refuse("data_exists", "There are books in "+dir+" already.", "Choose another directory with --data, or --force to move them into "+dir+"/backups.")
	case errors.Is(err, store.ErrNewerSchema):
		return r, refuse("newer_schema", "The backup was made by a newer version of Parley: "+err.Error()+".", "Restore it with that version.")
	case errors.Is(err, store.ErrUnbalanced), errors.Is(err, store.ErrNotOurs):
		return r, refuse("backup_damaged", "The backup cannot be used: "+err.Error()+".", "Nothing was changed. Use another one.")
	case errors.Is(err, fs.ErrNotExist):
		return r, refuse("no_backup", "There is no backup "+file+".")
	}
	return r, err
}

// BackupName is a name for a backup that is made now.
func BackupName() string { return store.BackupName() }
