package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestCrash_Backup: backups are taken while clients stream and ask, and once while the server is
// killed. Restored, each has every call that was answered before it was asked for, at its price, is
// proved by every law, and a server goes on from it with nothing held.
func TestCrash_Backup(t *testing.T) {
	t.Parallel()
	rounds := max(3, thorough(t)/25)
	p := startStub(t)
	o := options(dataDir(t))
	dir := filepath.Dir(o.Data)
	o.Config = behindConfig(t, dir, p, false, "")
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	w := newWitnesses(t, s)
	wg := w.call(t)
	compared := 0
	for round := range rounds {
		eventually(t, func() error {
			if n := len(w.all()); n < (round+1)*4*witnessesCount {
				return fmt.Errorf("%d answers", n)
			}
			return nil
		})
		answered := w.all()
		file := filepath.Join(dir, fmt.Sprintf("books-%d.db", round))
		run(t, s, "backup", file)
		compared += len(answered)
		restored(t, proc.Options{Bin: o.Bin, Config: o.Config, Data: filepath.Join(dir, fmt.Sprintf("restored-%d", round))}, file, answered)
	}
	// What is there under the name of a backup is a whole one.
	file := filepath.Join(dir, "cut.db")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run("backup", file)
	}()
	<-time.After(5 * time.Millisecond)
	w.at.Store(nil)
	s.Kill()
	<-done
	if _, err := os.Stat(file); err == nil {
		restored(t, proc.Options{Bin: o.Bin, Config: o.Config, Data: filepath.Join(dir, "cut")}, file, nil)
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if s, err = proc.Start(o); err != nil {
		t.Fatal(err)
	}
	w.up(s, false)
	w.end(t, wg)
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.Stderr())
	}
	if !t.Failed() {
		t.Attr("proof", fmt.Sprintf("T20; %d backups under load restored, %d calls found in them; lost 0; duplicate 0; wrong 0; negative 0", rounds, compared))
	}
	t.Logf("%d backups, %d calls found in them", rounds, compared)
}

// restored proves the backup in the data directory of o, which it makes.
func restored(t *testing.T, o proc.Options, file string, answered []entry) {
	t.Helper()
	for _, args := range [][]string{{"restore", file}, {"ledger", "verify"}} {
		if r := proc.Run(o, args...); r.Code != 0 {
			t.Fatalf("%s of %s: exit code %d, %s%s", args[0], file, r.Code, r.Stdout, r.Stderr)
		}
	}
	db := openBooks(t, o.Data)
	for _, e := range answered {
		c, err := chargesOf(t.Context(), db, e.requestID)
		if err == nil {
			err = checkEntry(e, c)
		}
		if err != nil {
			t.Errorf("%s: %s (%s): %v", file, e.requestID, e.completionID, err)
		}
	}
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	if n, err := count(db, `SELECT count(*) FROM hold`); err != nil || n != 0 {
		t.Errorf("%s: %d calls are held after the start: %v", file, n, err)
	}
	if r := s.Run("doctor", "--config", o.Config); r.Code != 0 || !strings.Contains(r.Stdout, "Nothing is wrong.") {
		t.Errorf("doctor on %s: exit code %d, %s%s", file, r.Code, r.Stdout, r.Stderr)
	}
	if r := s.Run("ledger", "verify"); r.Code != 0 {
		t.Errorf("ledger verify on %s: exit code %d, %s%s", file, r.Code, r.Stdout, r.Stderr)
	}
}
