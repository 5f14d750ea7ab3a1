package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
)

// backups is the directory, inside the data directory, of what is kept before a change
// that cannot be undone.
const backups = "backups"

// Errors of Backup, Check and Restore.
var (
	// ErrUnbalanced means that the books in a file break one of their laws.
	ErrUnbalanced = errors.New("the books in it are not balanced")
	// ErrBooks means that a directory has books already.
	ErrBooks = errors.New("the directory has books already")
)

// BackupName is a name for a backup that is made now.
func BackupName() string { return "parley-" + stamp() + ".db" }

func stamp() string { return time.Now().UTC().Format("20060102T150405.000Z") }

// Backup writes the books as they are at one moment to the file to, which must not be
// there, while calls go on. The file is for its owner only; it appears under its name
// when it is on the disk and was read back: sound, and its books proved. It fails with
// [fs.ErrExist], or with [ErrUnbalanced], and the file is then kept all the same: it is
// the copy there is. A file that is kept is noted in the audit log, not in its own.
func (d *DB) Backup(ctx context.Context, to string) (ledger.Report, error) {
	all, err := known(migrations)
	if err != nil {
		return ledger.Report{}, err
	}
	rep, err := copyBooks(ctx, d.path, to, all)
	if err == nil || errors.Is(err, ErrUnbalanced) {
		err = errors.Join(err, d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.BooksBackup, Target: to}, nil,
				map[string]any{"accounts": rep.Accounts, "entries": rep.Entries, "balanced": rep.OK()})
		}))
	}
	if err != nil {
		err = fmt.Errorf("backup to %s: %w", to, err)
	}
	return rep, err
}

// copyBooks copies the database from, for a build that knows all, into the file to.
func copyBooks(ctx context.Context, from, to string, all []migration) (rep ledger.Report, err error) {
	to, err = filepath.Abs(to) // SQLite takes a name that begins with file: for a URI
	if err != nil {
		return rep, err
	}
	if _, err := os.Lstat(to); err == nil {
		return rep, os.ErrExist // before the work
	}
	removeParts(filepath.Dir(to), time.Now().Add(-abandoned))  // and before it needs the room
	part, err := os.CreateTemp(filepath.Dir(to), partName+"*") // 0600
	if err != nil {
		return rep, err
	}
	defer func() {
		gone := os.Remove(part.Name())
		if errors.Is(gone, fs.ErrNotExist) { // it has its name
			gone = nil
		}
		err = errors.Join(err, part.Close(), gone)
	}()
	// A connection of its own: the writer has calls to write, and readers may not vacuum.
	db, err := open(from, "_pragma=busy_timeout(10000)", 1)
	if err != nil {
		return rep, err
	}
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, part.Name())
	if err = errors.Join(err, db.Close()); err != nil {
		return rep, explain(from, err)
	}
	if err := part.Sync(); err != nil {
		return rep, err
	}
	c, err := checkFile(ctx, part.Name(), all)
	if err != nil && !errors.Is(err, ErrUnbalanced) {
		return rep, err
	}
	if named := publish(part.Name(), to, namings()); named != nil {
		return c.Report, named // whatever is in it, no file is kept
	}
	return c.Report, errors.Join(err, syncDir(filepath.Dir(to)))
}

// syncDir makes what was named in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// backupsIn makes the directory of kept copies inside dir.
func backupsIn(dir string) (string, error) {
	path := filepath.Join(dir, backups)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	return path, syncDir(dir)
}

// Checked is what a file was found to be.
type Checked struct {
	Schema int
	Report ledger.Report // without Invariants for the schema of another build
}

// Check reads the database in file, which nobody has open, without changing it: its
// pages, and the proof of its books where its schema is this build's. A backup has no
// log: one that lies beside file is left out. It fails with [ErrNotOurs],
// [ErrNewerSchema] or [ErrUnbalanced].
func Check(ctx context.Context, file string) (Checked, error) {
	all, err := known(migrations)
	if err != nil {
		return Checked{}, err
	}
	return checkFile(ctx, file, all)
}

func checkFile(ctx context.Context, file string, all []migration) (Checked, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Checked{}, err // SQLite would say it cannot open it, not why
	}
	if !info.Mode().IsRegular() {
		return Checked{}, fmt.Errorf("%s: %w: it is a %s, not a file", file, ErrNotOurs, kindOf(info)) // and wait for a pipe's other end
	}
	db, err := open(file, "mode=ro&immutable=1", 1)
	if err != nil {
		return Checked{}, err
	}
	c, err := check(ctx, db, all)
	if err = errors.Join(err, db.Close()); err != nil {
		return c, explain(file, err)
	}
	return c, nil
}

func kindOf(info os.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "device or pipe"
}

func check(ctx context.Context, db reader, all []migration) (c Checked, err error) {
	have, err := applied(ctx, db)
	if err != nil {
		return c, err
	}
	if len(have) == 0 {
		return c, fmt.Errorf("%w: it is empty", ErrNotOurs)
	}
	if c.Schema, err = missing(all, have); err != nil {
		return c, err
	}
	rs, err := db.QueryContext(ctx, `PRAGMA integrity_check(1)`)
	found, err := rows(rs, err, func(rs *sql.Rows, s *string) error { return rs.Scan(s) })
	if err != nil {
		return c, err
	}
	if len(found) != 1 || found[0] != "ok" {
		return c, fmt.Errorf("%w: %v", ErrNotOurs, found)
	}
	if len(have) != len(all) {
		return c, nil // the proof speaks of this build's tables
	}
	if c.Report, err = prove(ctx, db); err != nil {
		return c, err
	}
	if i := c.Report.Broken(); i.Name != "" {
		return c, fmt.Errorf("%w: %s: %s", ErrUnbalanced, i.Name, i.Detail)
	}
	return c, nil
}
