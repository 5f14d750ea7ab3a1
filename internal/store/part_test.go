package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/store"
)

// file writes a file of that age and returns its path.
func file(t *testing.T, dir, name string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, name)
	at := time.Now().Add(-age)
	if err := errors.Join(os.WriteFile(path, []byte(name), 0o600), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
	return path
}

// left is what dir has, but databases.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if filepath.Ext(e.Name()) != ".db" {
			names = append(names, e.Name())
		}
	}
	return names
}

// What a killed backup has left is removed by the next one into its directory, when it is
// certainly nobody's, and nothing else is.
func TestBackup_RemovesParts(t *testing.T) {
	t.Parallel()
	home, dir := t.TempDir(), t.TempDir()
	db := open(t, home)
	addAccount(t, db, "Acme")
	const day = 24 * time.Hour
	file(t, dir, ".parley-backup-123", day+time.Minute)
	file(t, dir, ".parley-backup-123-journal", day+time.Minute)
	running := file(t, dir, ".parley-backup-456", day-time.Minute)
	want := []string{
		".parley-backup-", ".parley-backup-1x", ".parley-backup-3.old", ".parley-backup-456", ".parley-backup-9", "parley-backup-1",
	}
	for _, name := range want {
		switch name {
		case ".parley-backup-9":
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		case ".parley-backup-456":
		default:
			file(t, dir, name, 2*day)
		}
	}
	inspect := func() (paths []string) {
		t.Helper()
		i, err := store.Inspect(t.Context(), home)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range i.Parts {
			paths = append(paths, p.Path)
			if p.Bytes != int64(len(filepath.Base(p.Path))) || time.Since(p.Written) < 0 {
				t.Errorf("%+v", p)
			}
		}
		return paths
	}
	if got := inspect(); got != nil {
		t.Errorf("Inspect names %v before it knows of the directory", got)
	}
	for _, name := range []string{"a.db", "b.db"} {
		if _, err := db.Backup(t.Context(), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if got := left(t, dir); !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
	}
	kept := filepath.Join(home, "backups")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Backup(t.Context(), filepath.Join(kept, "c.db")); err != nil { // not twice
		t.Fatal(err)
	}
	own := file(t, kept, ".parley-backup-7", 0)
	if got := inspect(); !slices.Equal(got, []string{own, running}) {
		t.Errorf("Inspect names %v, want %v and %v", got, own, running)
	}
}

// In its own directory a start removes all: it has the lock, and has made no copy yet.
func TestOpen_RemovesParts(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := open(t, home).Close(); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(home, "backups")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	file(t, kept, ".parley-backup-1", time.Second)
	file(t, kept, "note", time.Second)
	open(t, home)
	if got := left(t, kept); !slices.Equal(got, []string{"note"}) {
		t.Errorf("left are %v, want the note only", got)
	}
}

// Each way to give a backup its name leaves alone what has it, and one takes over where another
// does not work.
func TestPublish(t *testing.T) {
	t.Parallel()
	broken := func(string, string) error { return errors.New("no such call") }
	ways := store.Namings()
	for name, tt := range map[string][]store.Naming{
		"link": {ways[0]}, "rename": {ways[1]}, "reserve": {ways[2]}, "all": ways,
		"no links": {broken, ways[1], ways[2]}, "neither": {broken, broken, ways[2]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			part, to := file(t, dir, "part", 0), filepath.Join(dir, "to")
			if err := store.Publish(part, to, tt); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(to); err != nil || string(text) != "part" {
				t.Errorf("published is %q, %v", text, err)
			}
			other := file(t, dir, "other", 0)
			if err := store.Publish(other, to, tt); !errors.Is(err, fs.ErrExist) {
				t.Errorf("over a file: %v, want fs.ErrExist", err)
			}
			if text, err := os.ReadFile(to); err != nil || string(text) != "part" {
				t.Errorf("the file that was there is now %q, %v", text, err)
			}
			if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
				t.Errorf("what was refused is %q, %v", text, err)
			}
			if err := store.Publish(filepath.Join(dir, "none"), filepath.Join(dir, "of none"), tt); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of nothing: %v, want fs.ErrNotExist", err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "of none")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of nothing something is left: %v", err)
			}
		})
	}
	if err := store.Publish("part", "to", []store.Naming{broken, broken}); err == nil || strings.Count(err.Error(), "no such call") != 2 {
		t.Errorf("where nothing works: %v", err)
	}
}
