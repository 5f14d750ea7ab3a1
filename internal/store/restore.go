package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/parley-ai/parley/internal/audit"
)

// restoring is a whole copy of a backup that is about to become the database. While it
// is there the directory is between two books, and Open refuses it.
const restoring = FileName + ".restoring"

// ErrRestoring means that a restore was cut short: it is run again.
var ErrRestoring = errors.New("a restore was cut short here")

// books are the files that belong to one state of a data directory: a log of one
// database beside another one would be folded into it.
var books = [...]string{FileName, FileName + "-wal", FileName + "-shm", "progress", "first-start.json"}

// Restored says what a restore has done.
type Restored struct {
	Checked
	// Newest is the time of the last thing that is in the backup; zero where it does not say.
	Newest time.Time
	// Aside is the directory that the books before were moved to, or empty.
	Aside string
	// Revived is what had ended in the books before and works again. Where Compared is
	// false nobody knows: there were none, or they are of another schema or damaged.
	Revived  []Revived
	Compared bool
}

// Restore makes the backup file the database of dir, once it is proved. The caller has
// the lock on dir. Books that are there are an error, [ErrBooks], or with force are moved
// into a directory below backups. The restored books' audit log says who did it. It fails
// with the errors of [Check].
func Restore(ctx context.Context, file, dir string, force bool) (r Restored, err error) {
	if info, err := os.Stat(file + "-wal"); err == nil && info.Size() > 0 {
		return r, fmt.Errorf("%w: %s is the database of a server, and %s-wal a part of it: a backup is one file", ErrNotOurs, file, file)
	}
	if r.Checked, err = Check(ctx, file); err != nil {
		return r, err
	}
	present := presentBooks(dir)
	if len(present) > 0 && present[0] == FileName && !force {
		return r, fmt.Errorf("%s: %w", dir, ErrBooks)
	}
	part := filepath.Join(dir, FileName+".part")
	err = copyFile(file, part)
	if err == nil {
		r.Newest, err = noteRestore(ctx, part, file, r.Schema)
	}
	if err != nil {
		return r, errors.Join(err, os.Remove(part))
	}
	if _, err := Check(ctx, part); err != nil {
		return r, errors.Join(fmt.Errorf("the copy of it: %w", err), os.Remove(part))
	}
	r.Revived, r.Compared = revived(ctx, part, dir, time.Now())
	next := filepath.Join(dir, restoring)
	if err := errors.Join(os.Rename(part, next), syncDir(dir)); err != nil {
		return r, err
	}
	if len(present) > 0 {
		if r.Aside, err = setAside(dir, present); err != nil {
			return r, err
		}
	}
	return r, errors.Join(os.Rename(next, filepath.Join(dir, FileName)), syncDir(dir))
}

// noteRestore adds to the audit log in part that it was restored from file, and returns the
// time of what came last before that. Books from before there was a log have no place for
// it. Who was signed in is signed out, and links into the console are gone: those that were
// ended or used since the backup would work again.
func noteRestore(ctx context.Context, part, file string, schema int) (newest time.Time, err error) {
	db, err := open(part, "_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_txlock=immediate", 1)
	if err != nil {
		return newest, err
	}
	d := &DB{write: db}
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		q := sqlTx{tx}
		doors, err := q.list(ctx, `SELECT name FROM sqlite_master WHERE name IN ('session', 'door_link')`)
		if err != nil {
			return err
		}
		for _, row := range doors {
			if _, err := q.run(ctx, `DELETE FROM `+row[0].(string)); err != nil {
				return err
			}
		}
		logs, err := q.list(ctx, `SELECT 1 FROM sqlite_master WHERE name = 'audit_head'`)
		if err != nil || len(logs) == 0 {
			return err
		}
		var last sql.NullInt64
		const latest = `SELECT max(at) FROM (SELECT at FROM (SELECT at FROM audit_log ORDER BY seq DESC LIMIT 1) UNION ALL SELECT created_at FROM (SELECT created_at FROM charge_row ORDER BY id DESC LIMIT 1))`
		if err := tx.QueryRowContext(ctx, latest).Scan(&last); err != nil {
			return err
		}
		newest = instant(last)
		return record(ctx, q, audit.Entry{Actor: audit.Actor(ctx), Action: audit.BooksRestore, Target: file}, nil, map[string]any{"schema": schema})
	})
	return newest, errors.Join(err, db.Close())
}

// presentBooks is which of the books' files dir has.
func presentBooks(dir string) (list []string) {
	for _, name := range books {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			list = append(list, name)
		}
	}
	return list
}

func setAside(dir string, names []string) (string, error) {
	kept, err := backupsIn(dir)
	if err != nil {
		return "", err
	}
	aside := filepath.Join(kept, "replaced-"+stamp())
	if err := os.Mkdir(aside, 0o700); err != nil {
		return "", err
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil {
			return "", err
		}
	}
	return aside, errors.Join(syncDir(aside), syncDir(kept), syncDir(dir))
}

// copyFile copies from to the new or emptied file to, for its owner only, and to the disk.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
