package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/parley-ai/parley/internal/ledger"
)

// Writer and Reader are the two pools, for tests that ask SQLite itself.
func (d *DB) Writer() *sql.DB { return d.write }
func (d *DB) Reader() *sql.DB { return d.read }

// Migrations are those of this build.
var Migrations fs.FS = migrations

// Migrate brings dir's database to what files know, as Open does.
func Migrate(ctx context.Context, dir string, files fs.FS) (int, error) {
	db, err := open(filepath.Join(dir, FileName), "_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_txlock=immediate", 1)
	if err != nil {
		return 0, err
	}
	schema, err := migrate(ctx, db, files, keepIn(dir))
	return schema, errors.Join(err, db.Close())
}

// Unscreened proves what Verify does, asking every law's query.
func (d *DB) Unscreened(ctx context.Context) (all []ledger.Invariant, err error) {
	for _, law := range laws() {
		i, err := law(ctx, d.read, &screened{})
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// Naming is a way to give a backup its name.
type Naming = naming

// Namings and Publish are those of backups.
var Namings, Publish = namings, publish

// Asked are the names of the laws that the screen can prove and leaves to their queries.
func (d *DB) Asked(ctx context.Context) (names []string, err error) {
	s, err := screenCharges(ctx, d.read)
	for _, q := range slices.Concat(invariants, planLaws) {
		if q.screened != nil && !q.screened(&s) {
			names = append(names, q.name)
		}
	}
	return names, err
}
