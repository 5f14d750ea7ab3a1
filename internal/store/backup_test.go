package store_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// openLedger opens the ledger of dir until the test ends.
func openLedger(t testing.TB, db *store.DB, dir string) (*ledger.Ledger, ledger.Recovery) {
	t.Helper()
	progress, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = progress.Close() })
	l, rec, err := ledger.Open(context.Background(), db, progress)
	if err != nil {
		t.Fatalf("ledger.Open: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, rec
}

// prove fails the test unless the books are balanced.
func prove(t testing.TB, db *store.DB) ledger.Report {
	t.Helper()
	rep, err := db.Verify(context.Background())
	if err != nil || !rep.OK() {
		t.Fatalf("Verify = %+v, %v, want every law to hold", rep, err)
	}
	return rep
}

// backup makes one that must succeed.
func backup(t testing.TB, db *store.DB) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "b.db")
	if _, err := db.Backup(context.Background(), to); err != nil {
		t.Fatalf("Backup: %v", err)
	}
	return to
}

// A backup taken while calls are charged and streams run has every charge that was
// acknowledged before it began, and its books are balanced wherever it is restored.
func TestBackup_UnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	account, price := addAccount(t, db, "Acme"), savePrice(t, db, model())
	commit(t, db, grant(account, money.IU, ""))
	l, _ := openLedger(t, db, dir)
	call := func(stream bool) *ledger.Hold {
		h, err := l.Reserve(ledger.Call{
			RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: account, KeyID: "key_x", Model: "m",
			PriceID: price, Price: model().Price, PlanVersion: "plan_x", Stream: stream, CreatedAt: at, PromptTokens: 10, Output: 20, LeastOutput: 20,
		})
		if err != nil {
			t.Error(err)
		}
		return h
	}
	settle := func(h *ledger.Hold) (string, error) {
		r, err := h.Settle(ledger.Outcome{PromptTokens: 10, CompletionTokens: 7, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageCounted})
		return r.RequestID, err
	}
	// Streams that run all the time: their holds are in the backup.
	var running []*ledger.Hold
	for range 5 {
		h := call(true)
		if err := errors.Join(h.Persist(), h.Durable()); err != nil {
			t.Fatal(err)
		}
		h.Delivered(3)
		running = append(running, h)
	}
	var (
		mu    sync.Mutex
		acked []string
		wg    sync.WaitGroup
		warm  sync.WaitGroup
		done  = make(chan struct{})
	)
	warm.Add(4 * 20)
	for range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				id, err := settle(call(n%2 == 0))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked = append(acked, id)
				mu.Unlock()
				if n < 20 {
					warm.Done()
				}
			}
		})
	}
	warm.Wait()
	for range 3 {
		mu.Lock()
		before := append([]string(nil), acked...)
		mu.Unlock()
		file := backup(t, db)
		home := t.TempDir()
		if _, err := store.Restore(context.Background(), file, home, false); err != nil {
			t.Fatalf("Restore: %v", err)
		}
		copied := open(t, home)
		for _, id := range before {
			if query[int](t, copied, `SELECT count(*) FROM charge WHERE id = $1`, id) != 1 {
				t.Fatalf("the charge %s, acknowledged before the backup, is not in it", id)
			}
		}
		// What was under way has not been charged at that moment, and progress is not of
		// the books: it is voided.
		if _, rec := openLedger(t, copied, home); rec.Voided < len(running) || rec.Settled != 0 {
			t.Errorf("recovered %+v, want at least %d voided and none charged", rec, len(running))
		}
		prove(t, copied)
		if n := query[int](t, copied, `SELECT count(*) FROM hold`); n != 0 {
			t.Errorf("%d holds are left", n)
		}
	}
	close(done)
	wg.Wait()
	for _, h := range running {
		if _, err := settle(h); err != nil {
			t.Error(err)
		}
	}
	prove(t, db)
}

func TestBackup_File(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	account := addAccount(t, db, "Acme")
	commit(t, db, grant(account, money.IU, ""))
	dir := t.TempDir()
	to := filepath.Join(dir, "file:a b?.db") // SQLite would take it for a URI
	rep, err := db.Backup(context.Background(), to)
	if err != nil || rep.Accounts != 1 || rep.Entries != 1 || !rep.OK() {
		t.Fatalf("Backup = %+v, %v", rep, err)
	}
	if fi, err := os.Stat(to); err != nil || fi.Mode() != 0o600 {
		t.Errorf("the backup has mode %v, %v, want -rw-------", fi.Mode(), err)
	}
	was, _ := os.ReadFile(to)
	if _, err := db.Backup(context.Background(), to); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second Backup to the same file gives %v, want fs.ErrExist", err)
	}
	if is, _ := os.ReadFile(to); string(is) != string(was) {
		t.Error("the refused Backup changed the file")
	}
	if _, err := db.Backup(context.Background(), filepath.Join(dir, "none", "b.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Backup into a directory that is not there gives %v, want fs.ErrNotExist", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := db.Backup(ctx, filepath.Join(dir, "c.db")); err == nil {
		t.Error("Backup succeeds although nobody waits for it")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left in the directory: %v, %v, want one file", all, err)
	}
}

// Backups and restores are in the audit log, by who made them, and the chain goes on
// through the restored books.
func TestBackup_Audit(t *testing.T) {
	t.Parallel()
	k := changes(t)
	to := filepath.Join(t.TempDir(), "b.db")
	if _, err := k.Backup(audit.WithActor(context.Background(), "ann"), to); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if _, err := store.Restore(audit.WithActor(context.Background(), "ben"), to, home, false); err != nil {
		t.Fatal(err)
	}
	restored := open(t, home)
	for _, c := range []struct {
		db   *store.DB
		want string
	}{
		{k.DB, "ann books.backup " + to},
		{restored, "ben books.restore " + to},
	} {
		prove(t, c.db)
		log, err := c.db.AuditLog(context.Background(), to, 10)
		if err != nil || len(log) != 1 {
			t.Fatalf("AuditLog = %+v, %v, want one entry", log, err)
		}
		if got := log[0].Actor + " " + string(log[0].Action) + " " + log[0].Target; got != c.want {
			t.Errorf("the entry is %q, want %q", got, c.want)
		}
	}
	if query[int](t, k.DB, `SELECT max(seq) FROM audit_log`) != query[int](t, restored, `SELECT max(seq) FROM audit_log`) {
		t.Error("the two logs are not the same up to their last entries")
	}
}

// A copy of unbalanced books is kept, and said to be one.
func TestBackup_Unbalanced(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	exec(t, db, `UPDATE account SET granted = 5 WHERE id = $1`, addAccount(t, db, "Acme"))
	to := filepath.Join(t.TempDir(), "b.db")
	if _, err := db.Backup(context.Background(), to); !errors.Is(err, store.ErrUnbalanced) || !strings.Contains(err.Error(), "granted") {
		t.Errorf("Backup gives %v, want ErrUnbalanced and the law", err)
	}
	if _, err := os.Stat(to); err != nil {
		t.Error(err)
	}
	if _, err := store.Restore(context.Background(), to, t.TempDir(), false); !errors.Is(err, store.ErrUnbalanced) {
		t.Errorf("Restore gives %v, want ErrUnbalanced", err)
	}
}

func TestRestore_Refuses(t *testing.T) {
	t.Parallel()
	source := open(t, t.TempDir())
	addAccount(t, source, "Acme")
	good := backup(t, source)
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, source, `INSERT INTO schema_migration (version, checksum) VALUES (1000, 'of a later build')`)
	later := filepath.Join(t.TempDir(), "later.db")
	if _, err := source.Backup(context.Background(), later); !errors.Is(err, store.ErrNewerSchema) {
		t.Fatalf("Backup of a newer schema gives %v", err)
	}
	exec(t, source, `VACUUM INTO $1`, later)
	logged := filepath.Join(t.TempDir(), "b.db")
	for name, content := range map[string][]byte{logged: text, logged + "-wal": []byte("frames")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(content []byte) string {
		path := filepath.Join(t.TempDir(), "b.db")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		want       error
	}{
		{"nothing there", filepath.Join(t.TempDir(), "none"), fs.ErrNotExist},
		{"a directory", t.TempDir(), store.ErrNotOurs},
		{"a pipe", pipe, store.ErrNotOurs},
		{"empty", file(nil), store.ErrNotOurs},
		{"text", file([]byte(strings.Repeat("no database ", 1000))), store.ErrNotOurs},
		{"cut short", file(text[:len(text)/2]), store.ErrNotOurs},
		{"a page lost", file(overwrite(text, 3*4096, 4096)), store.ErrNotOurs},
		{"with a log", logged, store.ErrNotOurs},
		{"of a newer build", later, store.ErrNewerSchema},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := store.Restore(context.Background(), c.file, dir, true); !errors.Is(err, c.want) {
				t.Errorf("Restore gives %v, want %v", err, c.want)
			}
			if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
				t.Errorf("Restore left %v, %v", all, err)
			}
		})
	}
}

func TestRestore_OverBooks(t *testing.T) {
	t.Parallel()
	source := open(t, t.TempDir())
	addAccount(t, source, "Restored")
	file := backup(t, source)
	dir := t.TempDir()
	old := open(t, dir)
	addAccount(t, old, "Old")
	// As a kill leaves it: with a log that is not folded in.
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(filepath.Join(dir, store.FileName+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kept"+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := os.Rename(filepath.Join(dir, "kept"+suffix), filepath.Join(dir, store.FileName+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Restore(context.Background(), file, dir, false); !errors.Is(err, store.ErrBooks) {
		t.Fatalf("Restore over books gives %v, want ErrBooks", err)
	}
	r, err := store.Restore(context.Background(), file, dir, true)
	if err != nil || filepath.Dir(r.Aside) != filepath.Join(dir, "backups") {
		t.Fatalf("Restore = %+v, %v, want the old books in backups", r, err)
	}
	for at, want := range map[string]string{dir: "Restored", r.Aside: "Old"} {
		as, err := open(t, at).Accounts(context.Background())
		if err != nil || len(as) != 1 || as[0].Name != want {
			t.Errorf("accounts in %s: %+v, %v, want %s", at, as, err, want)
		}
	}
}

// Between the old books and the new there is a moment without any: a server that starts
// then must not begin new ones.
func TestOpen_RestoreCutShort(t *testing.T) {
	t.Parallel()
	source := open(t, t.TempDir())
	addAccount(t, source, "Acme")
	file := backup(t, source)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, store.FileName+".restoring"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(context.Background(), dir); !errors.Is(err, store.ErrRestoring) {
		t.Fatalf("Open gives %v, want ErrRestoring", err)
	}
	if _, err := store.Restore(context.Background(), file, dir, false); err != nil {
		t.Fatalf("Restore again: %v", err)
	}
	if as, err := open(t, dir).Accounts(context.Background()); err != nil || len(as) != 1 {
		t.Errorf("Accounts = %v, %v", as, err)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := store.Inspect(context.Background(), dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Inspect of an empty directory gives %v", err)
	}
	db := open(t, dir)
	account, price := addAccount(t, db, "Acme"), savePrice(t, db, model())
	ended, running := receipt(account, price, false), receipt(account, price, true)
	commit(t, db, grant(account, money.IU, ""), ledger.Op{Close: &ended}, ledger.Op{Open: &running})
	progress, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer progress.Close()
	if _, err := progress.Claim(running.RequestID); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"in use", "at rest"} {
		i, err := store.Inspect(context.Background(), dir)
		if err != nil || i.Schema != db.SchemaVersion() || i.Holds != 1 || i.Slots != 1 || !i.Newest.Equal(at) || !i.Report.OK() || i.Report.Entries != 2 {
			t.Errorf("%s: Inspect = %+v, %v", when, i, err)
		}
		if err := db.Close(); err != nil && when == "in use" {
			t.Fatal(err)
		}
	}
}
