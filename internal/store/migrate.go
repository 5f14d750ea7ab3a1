package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migration is one step of the schema. Its version is the number that its file's name
// begins with; numbers may have gaps.
type migration struct {
	version   int
	text, sum string
}

// known lists the migrations of this build in their order.
func known(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, name := range names { // Glob sorts
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(text)
		m := migration{text: string(text), sum: hex.EncodeToString(hash[:8])}
		if _, err := fmt.Sscanf(path.Base(name), "%04d_", &m.version); err != nil {
			return nil, fmt.Errorf("%s has no number: %w", name, err)
		}
		if n := len(all); n > 0 && all[n-1].version == m.version {
			return nil, fmt.Errorf("%s: another migration has its number", name)
		}
		all = append(all, m)
	}
	return all, nil
}

// newest is the schema of this build.
func newest(all []migration) int { return all[len(all)-1].version }

// keeper keeps what a database of that schema is before the migrations of all change it, and
// returns the file.
type keeper func(ctx context.Context, schema int, all []migration) (string, error)

// migrate applies the migrations of files that the database does not have, each in one
// transaction, and returns the number of the last. Migrations only go forward. Before
// the first of them a database that has a schema is handed to keep; where that one fails,
// nothing has changed and the copy is removed: a server that is started again and again
// would fill the disk with them. It fails with
// [ErrNewerSchema] for a migration that this build does not know, and with [ErrNotOurs]
// for one that was different when it was applied.
func migrate(ctx context.Context, db *sql.DB, files fs.FS, keep keeper) (int, error) {
	all, err := known(files)
	if err != nil {
		return 0, err
	}
	have, err := applied(ctx, db)
	if err != nil {
		return 0, err
	}
	last, err := missing(all, have)
	if err != nil {
		return 0, err
	}
	if len(have) == 0 {
		const table = `CREATE TABLE IF NOT EXISTS schema_migration (version BIGINT PRIMARY KEY, checksum TEXT NOT NULL)`
		if _, err := db.ExecContext(ctx, table); err != nil {
			return 0, err
		}
	}
	var kept string // until a migration has changed something
	for _, m := range all {
		if _, ok := have[m.version]; ok {
			continue
		}
		if len(have) > 0 && keep != nil {
			if kept, err = keep(ctx, last, all); err != nil {
				return 0, fmt.Errorf("the backup before migration %d: %w", m.version, err)
			}
			keep = nil // once a start
		}
		if err := apply(ctx, db, m); err != nil {
			if now, unread := applied(ctx, db); kept != "" && unread == nil && len(now) == len(have) {
				err = errors.Join(err, os.Remove(kept))
			}
			return 0, fmt.Errorf("migration %d: %w", m.version, err)
		}
		kept = ""
	}
	return newest(all), nil
}

// reader is a connection, a pool or a transaction of database/sql.
type reader interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// applied is the checksums of the migrations that the database has had, by version.
func applied(ctx context.Context, db reader) (map[int]string, error) {
	var tables, ours int
	if err := db.QueryRowContext(ctx, `SELECT count(*), count(CASE WHEN name = 'schema_migration' THEN 1 END) FROM sqlite_master WHERE type = 'table'`).Scan(&tables, &ours); err != nil {
		return nil, err
	}
	have := map[int]string{}
	if tables == 0 {
		return have, nil
	}
	if ours == 0 {
		return nil, fmt.Errorf("%w: it has %d tables and no record of migrations", ErrNotOurs, tables)
	}
	rs, err := db.QueryContext(ctx, `SELECT version, checksum FROM schema_migration`)
	list, err := rows(rs, err, func(rs *sql.Rows, m *migration) error { return rs.Scan(&m.version, &m.sum) })
	for _, m := range list {
		have[m.version] = m.sum
	}
	return have, err
}

// missing compares what a database has had with what this build knows and returns the
// database's schema.
func missing(all []migration, have map[int]string) (schema int, err error) {
	for version := range have {
		schema = max(schema, version)
	}
	if schema > newest(all) {
		return schema, fmt.Errorf("%w: its schema is %d, this build knows %d", ErrNewerSchema, schema, newest(all))
	}
	for _, version := range slices.Sorted(maps.Keys(have)) {
		i := slices.IndexFunc(all, func(m migration) bool { return m.version == version })
		switch {
		case i < 0:
			return schema, fmt.Errorf("%w: it had migration %d, which this build does not know", ErrNotOurs, version)
		case all[i].sum != have[version]:
			return schema, fmt.Errorf("%w: migration %d was applied with checksum %s, this build has %s", ErrNotOurs, version, have[version], all[i].sum)
		}
	}
	return schema, nil
}

func apply(ctx context.Context, db *sql.DB, m migration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	have, err := announcers(ctx, tx)
	if err != nil {
		return err
	}
	if err := silence(ctx, tx, have); err != nil { // Announce makes them anew
		return err
	}
	if _, err := tx.ExecContext(ctx, m.text); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO schema_migration (version, checksum) VALUES ($1, $2)`, m.version, m.sum); err != nil {
		return err
	}
	return tx.Commit()
}

// keepIn keeps a copy of the database of dir in its backups.
func keepIn(dir string) keeper {
	return func(ctx context.Context, schema int, all []migration) (string, error) {
		backups, err := backupsIn(dir)
		if err != nil {
			return "", err
		}
		to := filepath.Join(backups, fmt.Sprintf("schema-%d-%s.db", schema, stamp()))
		_, err = copyBooks(ctx, filepath.Join(dir, FileName), to, all)
		if errors.Is(err, ErrUnbalanced) {
			return to, nil // the copy is there, and as good as what it is of
		}
		return to, err
	}
}
