package storetest

import (
	"database/sql"
	"net/url"
	"testing"
)

// Plain opens the database at path for plain SQL, as an outsider would read or forge it.
// It waits up to 10 s for another writer instead of failing, so the rooms may have the
// database open. It is closed when t ends; who needs the file closed before closes it.
func Plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	return plain(t, path, "")
}

// PlainReader is Plain for who must not change anything, by mistake neither.
func PlainReader(t testing.TB, path string) *sql.DB {
	t.Helper()
	return plain(t, path, "&mode=ro&_pragma=query_only(1)")
}

func plain(t testing.TB, path, more string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(10000)"+more)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
