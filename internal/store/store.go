// Package store keeps accounts, keys and books in SQLite.
//
// One connection writes; readers have their own. Every method is one transaction,
// and what it has written is on the disk when it returns (WAL, synchronous=FULL).
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
)

var (
	_ account.Store = (*DB)(nil)
	_ apikey.Store  = (*DB)(nil)
	_ ledger.Store  = (*DB)(nil)
	_ member.Store  = (*DB)(nil)
)

// FileName is the database in the data directory.
const FileName = "parley.db"

// leastSQLite is the first release without the WAL-reset bug, which could corrupt a
// database (sqlite.org, release notes of 3.51.3).
const leastSQLite = "3.51.3"

// Errors of Open.
var (
	// ErrNewerSchema means that a newer version of Parley has written the database.
	ErrNewerSchema = errors.New("the database was written by a newer version of parley")
	// ErrNotOurs means that the file is no database of Parley's, or a damaged one.
	ErrNotOurs = errors.New("not a parley database, or a damaged one")
	// ErrGone means that a directory was used and its database is not there, or empty.
	ErrGone = errors.New("the database is gone")
)

// DB is the database of one data directory. It is safe for concurrent use by one
// process; the lock on the data directory keeps others out.
type DB struct {
	path        string
	write, read *sql.DB
	journal     *journal // on the connection of write
	days        days
	schema      int
	created     bool
	kept        string // what Open has kept before a migration
}

// Open opens dir/parley.db, creating it where there is none, and brings its schema up
// to date; what it was before is kept in dir/backups. It fails with [ErrNewerSchema],
// [ErrNotOurs], [ErrRestoring] or [ErrGone].
func Open(ctx context.Context, dir string) (*DB, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Lstat(filepath.Join(dir, restoring)); err == nil {
		return nil, fmt.Errorf("%s: %w", dir, ErrRestoring)
	}
	if err := gone(dir); err != nil {
		return nil, err
	}
	// Only who has the lock on dir keeps copies there, and makes none yet: a start that is killed
	// again and again before a migration must not fill the disk.
	removeParts(filepath.Join(dir, backups), time.Now())
	created, err := create(path)
	if err != nil {
		return nil, err
	}
	d := &DB{path: path, created: created}
	// busy_timeout comes first: switching to WAL must be able to wait. Immediate
	// transactions take the write lock at once instead of failing half way.
	const pragmas = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_txlock=immediate"
	if d.write, err = open(path, pragmas, 1); err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		d.write.Close()
		return nil, explain(path, err)
	}
	if d.read, err = open(path, "_pragma=busy_timeout(10000)&_pragma=query_only(1)", 4); err != nil {
		d.write.Close()
		return nil, err
	}
	return d, nil
}

// gone fails with [ErrGone] where the file of progress, which is made behind the database, has
// outlived it: what a half mended disk holds must not be taken for a beginning.
func gone(dir string) error {
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err == nil && info.Size() > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "progress")); err != nil {
		return nil //nolint:nilerr // nothing says that there was one
	}
	return fmt.Errorf("%s: %w", filepath.Join(dir, FileName), ErrGone)
}

// create makes the file, for its owner only, where there is none: SQLite would let
// everybody read it, and gives its other files the mode of this one. A file that is
// there is not opened, because closing it would drop the locks SQLite has on it.
func create(path string) (created bool, err error) {
	info, err := os.Stat(path)
	if err == nil {
		return info.Size() == 0, nil // the last process may have ended right here
	}
	if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

func open(path, pragmas string, conns int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+pragmas)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// start checks the library, migrates and prepares what the hot path runs.
func (d *DB) start(ctx context.Context) error {
	var version string
	if err := d.write.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version); err != nil {
		return err
	}
	if older(version, leastSQLite) {
		return fmt.Errorf("SQLite %s can corrupt databases; this build needs %s or later", version, leastSQLite)
	}
	if err := d.fold(ctx); err != nil {
		return err
	}
	keep := keepIn(filepath.Dir(d.path))
	schema, err := migrate(ctx, d.write, migrations, func(ctx context.Context, schema int, all []migration) (_ string, err error) {
		d.kept, err = keep(ctx, schema, all)
		return d.kept, err
	})
	if err != nil {
		return err
	}
	d.schema = schema
	return d.withJournal(ctx, func(*journal) error { return nil })
}

// fold moves what the last process left in the WAL into the database and begins the WAL
// anew. If that process ended because a sync failed, what it wrote is seen by every reader
// and is not on the disk, and no later sync of the WAL writes it: what was committed behind
// it would be cut off from it by a loss of power.
func (d *DB) fold(ctx context.Context) error {
	var busy, frames, moved int
	if err := d.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("another program reads the database; end it, then start again")
	}
	return nil
}

// explain says in our words what SQLite found wrong with the file.
func explain(path string, err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case 26, 11: // SQLITE_NOTADB, SQLITE_CORRUPT
			return fmt.Errorf("%s: %w: %w", path, ErrNotOurs, err)
		}
	}
	return fmt.Errorf("%s: %w", path, err)
}

// older compares dotted numbers.
func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		var x, y int
		fmt.Sscan(as[i], &x)
		fmt.Sscan(bs[i], &y)
		if x != y {
			return x < y
		}
	}
	return len(as) < len(bs)
}

// SchemaVersion is the number of the last migration.
func (d *DB) SchemaVersion() int { return d.schema }

// Kept is the file in which Open has kept the books before it brought their schema up to date;
// empty where there was nothing to bring.
func (d *DB) Kept() string { return d.kept }

// New reports whether Open created the database.
func (d *DB) New() bool { return d.created }

// Close ends all connections; the last one folds the WAL into the database.
func (d *DB) Close() error {
	return errors.Join(d.read.Close(), d.withJournal(context.Background(), (*journal).close), d.write.Close())
}

// tx runs f in one transaction on the writing connection. ctx ends the wait for it;
// a write that has begun is not broken off, because database/sql would drop the
// connection, and what is prepared on it.
func (d *DB) tx(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // gives it back
	ctx = context.WithoutCancel(ctx)
	var tx *sql.Tx
	if err := patiently(func() (err error) { tx, err = conn.BeginTx(ctx, nil); return err }); err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// patiently calls begin, which takes the write lock. Another program that holds it,
// such as an operator's shell, is waited for up to a minute: nothing has been written yet.
func patiently(begin func() error) error {
	for wait := 0; ; wait++ {
		err := begin()
		if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == 5 && wait < 5 { // SQLITE_BUSY, after busy_timeout
			continue
		}
		return err
	}
}

// micros and instant translate times; the zero time is NULL.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func instant(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return time.UnixMicro(us.Int64).UTC()
}

// rows collects a query's rows.
func rows[T any](rs *sql.Rows, err error, scan func(*sql.Rows, *T) error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rs.Close()
	var all []T
	for rs.Next() {
		var v T
		if err := scan(rs, &v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rs.Err()
}
