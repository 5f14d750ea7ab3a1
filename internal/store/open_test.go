package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// migrations is the number of the last one.
func migrations(t testing.TB) int {
	t.Helper()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("migrations are %v, %v", files, err)
	}
	var last int
	if _, err := fmt.Sscanf(filepath.Base(files[len(files)-1]), "%04d_", &last); err != nil {
		t.Fatal(err)
	}
	return last
}

func TestOpen_CreatesAndReopens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	schema := migrations(t)
	if !db.New() || db.SchemaVersion() != schema {
		t.Errorf("the first Open: New() = %v, SchemaVersion() = %d, want true and %d", db.New(), db.SchemaVersion(), schema)
	}
	id := addAccount(t, db, "Acme")
	if err := db.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	db = open(t, dir)
	if db.New() || db.SchemaVersion() != schema {
		t.Errorf("the second Open: New() = %v, SchemaVersion() = %d, want false and %d", db.New(), db.SchemaVersion(), schema)
	}
	as, err := db.Accounts(context.Background())
	if err != nil || len(as) != 1 || as[0].ID != id || !as[0].CreatedAt.Equal(at) {
		t.Errorf("Accounts after reopening = %+v, %v, want %s made at %s", as, err, id, at)
	}
}

// A process can end between the creation of the file and the first write to it.
func TestOpen_EmptyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, nil)
	if db := open(t, dir); !db.New() {
		t.Error("Open of an empty file is not New")
	}
}

func TestOpen_NoDirectory(t *testing.T) {
	t.Parallel()
	if _, err := store.Open(context.Background(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open in a directory that does not exist gives %v, want fs.ErrNotExist", err)
	}
}

// Names of customers and their receipts are for the operator's eyes only.
func TestOpen_FileModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	addAccount(t, db, "Acme")
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("files = %q, %v, want the database, its log and its index", files, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, want -rw-------", filepath.Base(f), info.Mode())
		}
	}
}

// SQLite takes the path as a URI, where these characters have meanings.
func TestOpen_OddPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"with space", "q?mode=memory", "h#ash", "per%20cent", "100%", "a&b=c;d", "plus+", "c:olon", "Привет-世界", `quote"'`, `back\slash`, "[x]", "*"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			addAccount(t, open(t, dir), "Acme")
			if info, err := os.Stat(filepath.Join(dir, store.FileName+"-wal")); err != nil || info.Size() == 0 {
				t.Errorf("the log is not beside the database: %v, %v", info, err)
			}
			if all, err := os.ReadDir(root); err != nil || len(all) != 1 {
				t.Errorf("Open left %v, %v, want only %q", all, err, name)
			}
			if as, err := open(t, dir).Accounts(context.Background()); err != nil || len(as) != 1 {
				t.Errorf("Accounts of a second handle = %v, %v, want one", as, err)
			}
		})
	}
}

// What the promise of durability rests on.
func TestOpen_Pragmas(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	for _, c := range []struct {
		name   string
		pool   *sql.DB
		pragma string
		want   string
	}{
		{"writer", db.Writer(), "journal_mode", "wal"},
		{"writer", db.Writer(), "synchronous", "2"}, // FULL
		{"writer", db.Writer(), "foreign_keys", "1"},
		{"writer", db.Writer(), "busy_timeout", "10000"},
		{"writer", db.Writer(), "query_only", "0"},
		{"reader", db.Reader(), "journal_mode", "wal"},
		{"reader", db.Reader(), "busy_timeout", "10000"},
		{"reader", db.Reader(), "query_only", "1"},
	} {
		var got string
		if err := c.pool.QueryRowContext(context.Background(), "PRAGMA "+c.pragma).Scan(&got); err != nil || got != c.want {
			t.Errorf("%s: PRAGMA %s = %q, %v, want %q", c.name, c.pragma, got, err, c.want)
		}
	}
	if got := db.Writer().Stats().MaxOpenConnections; got != 1 {
		t.Errorf("%d connections may write, want 1", got)
	}
}

func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	id := addAccount(t, db, "Acme")
	for _, statement := range []string{
		`UPDATE account SET granted = 1`,
		`DELETE FROM account`,
		`INSERT INTO schema_migration (version, checksum) VALUES (9, 'x')`,
		`CREATE TABLE t (x)`,
		`DROP TABLE charge_row`,
	} {
		if _, err := db.Reader().ExecContext(context.Background(), statement); err == nil || !strings.Contains(err.Error(), "readonly") {
			t.Errorf("a reader ran %s: %v, want an error that says readonly", statement, err)
		}
	}
	if as, err := db.Accounts(context.Background()); err != nil || len(as) != 1 || as[0].ID != id {
		t.Errorf("Accounts = %v, %v", as, err)
	}
}

func TestOpen_NewerSchema(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	exec(t, db, `INSERT INTO schema_migration (version, checksum) VALUES (1000, 'of a later build')`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := read(t, dir)
	_, err := store.Open(context.Background(), dir)
	if !errors.Is(err, store.ErrNewerSchema) || errors.Is(err, store.ErrNotOurs) {
		t.Fatalf("Open gives %v, want ErrNewerSchema", err)
	}
	for _, want := range []string{"schema is 1000", fmt.Sprintf("knows %d", migrations(t)), store.FileName} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if !bytes.Equal(read(t, dir), before) {
		t.Error("Open changed the database that it refused")
	}
}

func TestOpen_ChangedMigration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	exec(t, db, `UPDATE schema_migration SET checksum = '0000000000000000' WHERE version = 1`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(context.Background(), dir); !errors.Is(err, store.ErrNotOurs) || !strings.Contains(err.Error(), "migration 1") {
		t.Errorf("Open gives %v, want ErrNotOurs for migration 1", err)
	}
}

func TestOpen_NotOurs(t *testing.T) {
	t.Parallel()
	good := t.TempDir()
	db := open(t, good)
	for i := range 50 {
		addAccount(t, db, fmt.Sprint("account ", i))
	}
	if err := db.Close(); err != nil { // folds the log into the file
		t.Fatal(err)
	}
	file := read(t, good)
	const page = 4096
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"short text", []byte("hello\n")},
		{"long text", bytes.Repeat([]byte("This is no database.\n"), 1000)},
		{"a page of zeros", make([]byte, page)},
		{"one page left", file[:page]},
		{"half of it left", file[:len(file)/2/page*page]},
		{"a torn last page", file[:len(file)-page/2-page]},
		{"header overwritten", overwrite(file, 0, 100)},
		{"schema overwritten", overwrite(file, 100, page-100)},
		{"first table overwritten", overwrite(file, page, page)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, c.file)
			db, err := store.Open(context.Background(), dir)
			if err == nil {
				t.Fatal("Open succeeds, want ErrNotOurs", db.Close())
			}
			if !errors.Is(err, store.ErrNotOurs) || !strings.Contains(err.Error(), store.FileName) {
				t.Errorf("Open gives %v, want ErrNotOurs with the path", err)
			}
			if !bytes.Equal(read(t, dir), c.file) {
				t.Error("Open changed the file that it refused")
			}
		})
	}
}

// Whatever page is lost, something says so: Open, or SQLite's own check.
func TestOpen_AnyPageOverwritten(t *testing.T) {
	t.Parallel()
	good := t.TempDir()
	db := open(t, good)
	addAccount(t, db, "Acme")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file := read(t, good)
	const page = 4096
	var refused int
	for at := 0; at < len(file); at += page {
		dir := t.TempDir()
		write(t, dir, overwrite(file, at, page))
		db, err := store.Open(context.Background(), dir)
		if err != nil {
			if !errors.Is(err, store.ErrNotOurs) {
				t.Errorf("page %d: Open gives %v, want ErrNotOurs", at/page, err)
			}
			refused++
			continue
		}
		var found string
		if err := db.Reader().QueryRowContext(context.Background(), "PRAGMA integrity_check").Scan(&found); err == nil && found == "ok" {
			t.Errorf("page %d is overwritten and nothing finds it", at/page)
		}
		_ = db.Close() // damaged
	}
	if refused < 2 {
		t.Errorf("Open refused %d damaged files, want at least those without a schema", refused)
	}
}

// A healthy database of another program is left as it is.
func TestOpen_ForeignDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := storetest.Plain(t, filepath.Join(dir, store.FileName))
	for _, statement := range []string{`CREATE TABLE bookmark (url TEXT)`, `INSERT INTO bookmark VALUES ('https://example.org')`} {
		if _, err := other.ExecContext(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(context.Background(), dir); !errors.Is(err, store.ErrNotOurs) {
		t.Fatalf("Open gives %v, want ErrNotOurs", err)
	}
	other = storetest.Plain(t, filepath.Join(dir, store.FileName))
	var tables int
	if err := other.QueryRowContext(context.Background(), `SELECT count(*) FROM sqlite_master`).Scan(&tables); err != nil || tables != 1 {
		t.Errorf("it has %d tables, %v, want its own one", tables, err)
	}
}

func TestOpen_ContextEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := store.Open(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("Open gives %v, want context.Canceled", err)
	}
}

func overwrite(file []byte, at, n int) []byte {
	f := bytes.Clone(file)
	for i := range n {
		f[at+i] = byte(0xa5 ^ i)
	}
	return f
}

func write(t testing.TB, dir string, file []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, store.FileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A sync fails, the process is killed for it and another one goes on: a loss of power then
// takes nothing of what that one has committed.
func TestOpen_AfterAFailedSync(t *testing.T) {
	t.Parallel()
	d, err := storetest.Mount(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Unmount()
	ctx := context.Background()
	add := func(db *store.DB, name string) error {
		return db.CreateAccount(ctx, account.Account{ID: name, Name: name, Plan: "p", Status: account.Active, CreatedAt: time.Now()})
	}
	first, err := store.Open(ctx, d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := add(first, "before"); err != nil {
		t.Fatal(err)
	}
	d.Before(func(c storetest.Call) storetest.Fault {
		if c.Op == storetest.Sync {
			return storetest.Error
		}
		return storetest.None
	})
	if err := add(first, "failed"); err == nil {
		t.Fatal("a commit succeeds though its sync fails")
	}
	next, err := d.Killed(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Unmount()
	d.CutPower()
	_ = first.Close() // the disk is gone
	second, err := store.Open(ctx, next.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := add(second, "after"); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(10) {
		to := t.TempDir()
		if err := next.Survive(to, rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
		db, err := store.Open(ctx, to)
		if err != nil {
			t.Fatal(err)
		}
		found, err := db.Accounts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, a := range found {
			names[a.Name] = true
		}
		if !names["before"] || !names["after"] {
			t.Errorf("seed %d: found %v", seed, names)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
