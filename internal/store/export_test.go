package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
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
