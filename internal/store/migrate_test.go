package store_test

import (
	"context"
	"errors"
	"fmt"
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

// Every earlier schema, with a charge and a stream that was running, becomes this build's;
// what it was is kept, once, and can be restored.
func TestMigrate_FromEverySchemaWithOpenHolds(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(store.Migrations, "migrations/*.sql")
	if err != nil || len(names) < 5 {
		t.Fatalf("migrations %v, %v", names, err)
	}
	for _, name := range names[:len(names)-1] {
		last := filepath.Base(name)[:4]
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			upgrade(t, last)
		})
	}
	t.Cleanup(func() { // behind the subtests
		if !t.Failed() {
			t.Attr("proof", fmt.Sprintf("T20; %d earlier schemas upgraded with open holds; lost 0; duplicate 0; wrong 0; negative 0", len(names)-1))
		}
	})
}

func upgrade(t *testing.T, last string) {
	t.Helper()
	dir, ctx := t.TempDir(), context.Background()
	old, err := store.Migrate(ctx, dir, steps(t, last, nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := keptIn(t, dir); len(got) != 0 {
		t.Errorf("a new database was kept: %v", got)
	}
	if again, err := store.Migrate(ctx, dir, steps(t, last, nil)); err != nil || again != old {
		t.Fatalf("Migrate again = %d, %v", again, err)
	}
	plainSQL(t, dir,
		`INSERT INTO account (number, id, name, plan, status, granted, posted, created_at) VALUES (1, 'acct_1', 'Acme', 'pro', 'active', 1000, 240, 1)`,
		`INSERT INTO credit_grant (id, account_id, amount, note, created_at) VALUES ('grant_1', 'acct_1', 1000, 'x', 1)`,
		`INSERT INTO model_price VALUES ('price_1', 'm', 10, 5, 20, 1)`,
		`INSERT INTO plan_version (id, plan, rpm, tpm, concurrency, models, created_at) VALUES ('plan_1', 'pro', 0, 0, 0, '[]', 1)`,
		`INSERT INTO terms VALUES (1, 'key_1', 'm', 'price_1', 'plan_1')`,
		`INSERT INTO outcome (number, stream, status, error_code, state, ending, usage_source, target, attempts) VALUES (1, FALSE, 200, '', 'settled', 'stop', 'counted', 'local/m', 1)`,
		`INSERT INTO charge_row (id, completion_id, account, terms, outcome, created_at, prompt_tokens, cached_tokens, completion_tokens, output_limit, held, amount, written_off, first_token_us, total_us)
			VALUES ('req_01890a5d-ac96-774b-bcce-b302099a8056', 'chatcmpl-0', 1, 1, 1, 1, 10, 0, 7, 20, 500, 240, 0, 1, 1)`,
		`INSERT INTO hold_row (id, completion_id, account, terms, prompt_tokens, output_limit, amount, created_at)
			VALUES ('req_01890a5d-ac96-774b-bcce-b302099a8057', 'chatcmpl-1', 1, 1, 10, 20, 500, 1)`,
	)
	switch { // where charges are found, and added up
	case last >= "0008":
		plainSQL(t, dir, `INSERT INTO usage_row (account, hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, amount, written_off, most, last)
			VALUES (1, 0, 1, 1, 10, 0, 7, 240, 0, 240, 'req_01890a5d-ac96-774b-bcce-b302099a8056')`)
	case last >= "0003":
		plainSQL(t, dir, `INSERT INTO usage_row (account, hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, amount, written_off) VALUES (1, 0, 1, 1, 10, 0, 7, 240, 0)`)
		fallthrough
	default:
		plainSQL(t, dir, `UPDATE account SET last = 'req_01890a5d-ac96-774b-bcce-b302099a8056'`)
	}
	db := open(t, dir)
	if db.SchemaVersion() <= old {
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
	if len(backups) != 1 || !strings.HasPrefix(filepath.Base(backups[0]), fmt.Sprintf("schema-%d-", old)) {
		t.Fatalf("kept %v, want one of schema %d", backups, old)
	}
	if db.Kept() != backups[0] {
		t.Errorf("Kept() is %q, want %q", db.Kept(), backups[0])
	}
	if fi, err := os.Stat(filepath.Dir(backups[0])); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("backups has mode %v, %v, want 0700", fi.Mode(), err)
	}
	// Restored, it is upgraded again.
	home := t.TempDir()
	r, err := store.Restore(ctx, backups[0], home, false)
	if err != nil || r.Schema != old {
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
	for range 3 { // as a supervisor does
		if err := try("0001", more, 12); err == nil || !strings.Contains(err.Error(), "migration 12") {
			t.Errorf("started again it gives %v", err)
		}
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
