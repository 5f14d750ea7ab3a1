package store

import "database/sql"

// Writer and Reader are the two pools, for tests that ask SQLite itself.
func (d *DB) Writer() *sql.DB { return d.write }
func (d *DB) Reader() *sql.DB { return d.read }
