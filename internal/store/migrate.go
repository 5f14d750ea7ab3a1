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
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate applies the migrations that the database does not have, each in one
// transaction, and returns the number of the last. Migrations only go forward. It
// fails with [ErrNewerSchema] for a migration that this build does not know, and with
// [ErrNotOurs] for one that was different when it was applied.
func migrate(ctx context.Context, db *sql.DB) (int, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	var tables, ours int
	if err := db.QueryRowContext(ctx, `SELECT count(*), count(CASE WHEN name = 'schema_migration' THEN 1 END) FROM sqlite_master WHERE type = 'table'`).Scan(&tables, &ours); err != nil {
		return 0, err
	}
	if tables > 0 && ours == 0 {
		return 0, fmt.Errorf("%w: it has %d tables and no record of migrations", ErrNotOurs, tables)
	}
	const table = `CREATE TABLE IF NOT EXISTS schema_migration (version BIGINT PRIMARY KEY, checksum TEXT NOT NULL)`
	if _, err := db.ExecContext(ctx, table); err != nil {
		return 0, err
	}
	var last sql.NullInt64
	if err := db.QueryRowContext(ctx, `SELECT max(version) FROM schema_migration`).Scan(&last); err != nil {
		return 0, err
	}
	if int(last.Int64) > len(names) {
		return 0, fmt.Errorf("%w: its schema is %d, this build knows %d", ErrNewerSchema, last.Int64, len(names))
	}
	for i, name := range names { // Glob sorts
		text, err := migrations.ReadFile(name)
		if err != nil {
			return 0, err
		}
		if err := apply(ctx, db, i+1, text); err != nil {
			return 0, fmt.Errorf("migration %d: %w", i+1, err)
		}
	}
	return len(names), nil
}

func apply(ctx context.Context, db *sql.DB, version int, text []byte) error {
	hash := sha256.Sum256(text)
	sum := hex.EncodeToString(hash[:8])
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	var have string
	err = tx.QueryRowContext(ctx, `SELECT checksum FROM schema_migration WHERE version = $1`, version).Scan(&have)
	switch {
	case err == nil && have == sum:
		return nil
	case err == nil:
		return fmt.Errorf("%w: it was applied with checksum %s, this build has %s", ErrNotOurs, have, sum)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	if _, err := tx.ExecContext(ctx, string(text)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO schema_migration (version, checksum) VALUES ($1, $2)`, version, sum); err != nil {
		return err
	}
	return tx.Commit()
}
