package storetest_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // what stands on the disk

	"github.com/parley-ai/parley/internal/store/storetest"
)

// open mounts a disk with a database in WAL mode, and a row that is durable.
func open(t *testing.T, synchronous string) (*storetest.Disk, *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	d, err := storetest.Mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Unmount)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "x.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	mustExec(t, db, `CREATE TABLE t (n INTEGER)`)
	return d, db
}

func mustExec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), text, args...); err != nil {
		t.Fatal(err)
	}
}

// survivors lets the power fail now and counts the rows that are found.
func survivors(t *testing.T, d *storetest.Disk, seed uint64) (rows int) {
	t.Helper()
	to := t.TempDir()
	if err := d.Survive(to, rand.New(rand.NewPCG(seed, 0))); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(to, "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var check string
	err = errors.Join(db.QueryRow(`PRAGMA integrity_check`).Scan(&check), db.QueryRow(`SELECT count(*) FROM t`).Scan(&rows))
	if err != nil || check != "ok" {
		if strings.Contains(err.Error(), "no such table") {
			return 0
		}
		t.Fatal(check, err)
	}
	return rows
}

// With FULL every commit is found. With OFF some are not: so the disk does forget, and
// a test above it can fail.
func TestSurvive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		synchronous string
		loses       bool
	}{{"FULL", false}, {"NORMAL", true}} {
		d, db := open(t, tt.synchronous)
		lost := 0
		for n := 1; n <= 40; n++ {
			mustExec(t, db, `INSERT INTO t VALUES (?)`, n)
			if n%10 == 0 {
				mustExec(t, db, `PRAGMA wal_checkpoint(PASSIVE)`)
			}
			got := survivors(t, d, uint64(n))
			if got > n {
				t.Errorf("%s: %d rows of %d are found", tt.synchronous, got, n)
			}
			lost += n - got
		}
		if (lost > 0) != tt.loses {
			t.Errorf("%s: %d rows were lost after their commit", tt.synchronous, lost)
		}
	}
}

// A fault is an error of the transaction, which leaves nothing behind.
func TestFaults(t *testing.T) {
	t.Parallel()
	for fault, want := range map[storetest.Fault]string{
		storetest.Error: "disk I/O error", storetest.Short: "disk I/O error", storetest.Full: "full", storetest.PowerLoss: "disk I/O error",
	} {
		d, db := open(t, "FULL")
		from := d.Calls() + 2
		d.Before(func(c storetest.Call) storetest.Fault {
			if c.N == from {
				return fault
			}
			return storetest.None
		})
		_, err := db.Exec(`INSERT INTO t VALUES (1)`)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("fault %d: %v, want %q", fault, err, want)
		}
		// What was written as the power failed may be there in part, or whole.
		if got := survivors(t, d, 1); got != 0 && fault != storetest.PowerLoss {
			t.Errorf("fault %d: %d rows are found", fault, got)
		}
		_, err = db.Exec(`INSERT INTO t VALUES (2)`)
		if (err != nil) != (fault == storetest.PowerLoss) {
			t.Errorf("after fault %d: %v", fault, err)
		}
	}
}

// A sync that failed is never made good by the next one of the same pages.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	d, db := open(t, "FULL")
	var failed bool
	d.Before(func(c storetest.Call) storetest.Fault {
		if c.Op == storetest.Sync && !failed {
			failed = true
			return storetest.Error
		}
		return storetest.None
	})
	if _, err := db.Exec(`INSERT INTO t VALUES (1)`); err == nil {
		t.Error("the commit succeeded")
	}
	if got := survivors(t, d, 1); got != 0 {
		t.Errorf("%d rows are found", got)
	}
}
