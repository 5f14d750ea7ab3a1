package store_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/parley-ai/parley/internal/store"
)

// steps are the migrations of this build up to last, and more.
func steps(t *testing.T, last string, more map[string]string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(store.Migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(store.Migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name)[:4] <= last {
			files[name] = &fstest.MapFile{Data: text}
		}
	}
	for name, text := range more {
		files["migrations/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func keptIn(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "backups", "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The first schema, with a stream that was running, becomes this build's; what it was
// is kept, once, and can be restored by the build that wrote it.
func TestMigrate_FromTheFirstWithOpenHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := steps(t, "0001", nil)
	if _, err := store.Migrate(context.Background(), dir, first); err != nil {
		t.Fatal(err)
	}
	if got := keptIn(t, dir); len(got) != 0 {
		t.Errorf("a new database was kept: %v", got)
	}
	old, err := store.Migrate(context.Background(), dir, first)
	if err != nil || old != 1 {
		t.Fatalf("Migrate again = %d, %v", old, err)
	}
	plainSQL(t, dir,
		`INSERT INTO account (number, id, name, plan, status, granted, posted, created_at) VALUES (1, 'acct_1', 'Acme', 'pro', 'active', 1000, 0, 1)`,
		`INSERT INTO credit_grant (id, account_id, amount, note, created_at) VALUES ('grant_1', 'acct_1', 1000, 'x', 1)`,
		`INSERT INTO model_price VALUES ('price_1', 'm', 10, 5, 20, 1)`,
		`INSERT INTO terms VALUES (1, 'key_1', 'm', 'price_1', 'plan_1')`,
		`INSERT INTO hold_row VALUES ('req_01890a5d-ac96-774b-bcce-b302099a8057', 'chatcmpl-1', 1, 1, 10, 20, 500, 1)`,
	)
	db := open(t, dir)
	if db.SchemaVersion() < 2 {
		t.Fatalf("schema %d", db.SchemaVersion())
	}
	if n := query[int](t, db, `SELECT count(*) FROM hold`); n != 1 {
		t.Errorf("%d holds after the upgrade, want 1", n)
	}
	prove(t, db)
	if _, rec := openLedger(t, db, dir); rec.Voided != 1 {
		t.Errorf("recovered %+v, want one voided", rec)
	}
	prove(t, db)
	backups := keptIn(t, dir)
	if len(backups) != 1 || !strings.HasPrefix(filepath.Base(backups[0]), "schema-1-") {
		t.Fatalf("kept %v, want one of schema 1", backups)
	}
	if fi, err := os.Stat(filepath.Dir(backups[0])); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("backups has mode %v, %v, want 0700", fi.Mode(), err)
	}
	// Restored, it is upgraded again.
	home := t.TempDir()
	r, err := store.Restore(context.Background(), backups[0], home, false)
	if err != nil || r.Schema != 1 {
		t.Fatalf("Restore of the kept one = %+v, %v", r, err)
	}
	prove(t, open(t, home))
}

// Numbers have gaps while work is merged; a migration that fails leaves the schema that
// was there, and the ones before it.
func TestMigrate_GapsAndFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := context.Background()
	try := func(last string, more map[string]string, want int) error {
		t.Helper()
		got, err := store.Migrate(ctx, dir, steps(t, last, more))
		if err == nil && got != want {
			t.Errorf("Migrate = %d, want %d", got, want)
		}
		return err
	}
	nine := "0009_nine.sql"
	if err := try("0001", map[string]string{nine: `CREATE TABLE nine (x)`}, 9); err != nil {
		t.Fatal(err)
	}
	// One with a lower number comes later.
	more := map[string]string{nine: `CREATE TABLE nine (x)`, "0007_seven.sql": `CREATE TABLE seven (x)`}
	if err := try("0001", more, 9); err != nil {
		t.Fatal(err)
	}
	more["0010_ten.sql"] = `CREATE TABLE ten (x)`
	more["0012_twelve.sql"] = `CREATE TABLE twelve (x); INSERT INTO none VALUES (1)`
	if err := try("0001", more, 12); err == nil || !strings.Contains(err.Error(), "migration 12") {
		t.Errorf("a migration that fails gives %v, want its number", err)
	}
	if err := try("0001", map[string]string{nine: `CREATE TABLE nine (x)`}, 9); !errors.Is(err, store.ErrNewerSchema) || !strings.Contains(err.Error(), "schema is 10, this build knows 9") {
		t.Errorf("an older build gives %v, want ErrNewerSchema and both versions", err)
	}
	delete(more, "0007_seven.sql")
	if err := try("0001", more, 12); !errors.Is(err, store.ErrNotOurs) {
		t.Errorf("a build without an applied migration gives %v, want ErrNotOurs", err)
	}
	more["0012_other.sql"] = ``
	if err := try("0001", more, 12); err == nil {
		t.Error("two migrations of one number are accepted")
	}
	if got := keptIn(t, dir); len(got) != 2 {
		t.Errorf("kept %v, want one for each start that changed something", got)
	}
}
