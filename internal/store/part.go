package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
)

// partName begins the names of backups that are not whole yet; [os.CreateTemp] adds digits.
const partName = ".parley-backup-"

// abandoned is how long nobody has written to what a backup has left that was killed. One that
// runs writes all the time, then only reads what it has written: of 10 million calls in half a
// minute. No lock says it better: backups go to network file systems, and beside those of others.
const abandoned = 24 * time.Hour

// Part is a file of a backup that is not whole: one that runs, or that was killed.
type Part struct {
	Path    string
	Bytes   int64
	Written time.Time // last
}

// partsIn are those in dir. What cannot be read has none.
func partsIn(dir string) (all []Part) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		number, ours := strings.CutPrefix(strings.TrimSuffix(e.Name(), "-journal"), partName)
		if !ours || number == "" || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil { // else it is gone
			all = append(all, Part{filepath.Join(dir, e.Name()), info.Size(), info.ModTime()})
		}
	}
	return all
}

// partsBesideBackups are those in the directories of the last backups that q knows of, but own.
func partsBesideBackups(ctx context.Context, q querier, own string) (all []Part, err error) {
	list, err := q.list(ctx, `SELECT target FROM audit_log WHERE substr(action, 1, instr(action, '.') - 1) = 'books' AND action = ? ORDER BY seq DESC LIMIT 100`,
		string(audit.BooksBackup))
	seen := []string{own}
	for _, row := range list {
		dir := filepath.Dir(row[0].(string))
		if !slices.Contains(seen, dir) {
			seen = append(seen, dir)
			all = append(all, partsIn(dir)...)
		}
	}
	return all, err
}

// removeParts removes the parts in dir that nobody has written to since before. It does so as far
// as it can: what stays is named by [Inspect], and hinders nobody.
func removeParts(dir string, before time.Time) {
	for _, p := range partsIn(dir) {
		if p.Written.Before(before) {
			_ = os.Remove(p.Path)
		}
	}
}

// naming gives the file part the name to, and fails with [fs.ErrExist] where something has it.
type naming func(part, to string) error

// namings are all ways, the best first. File systems lack one or another: FAT and some network
// file systems have no hard links, those in user space often no rename that refuses to replace.
func namings() []naming { return []naming{os.Link, renameNew, reserve} }

// publish gives the file part, which is whole, the name to in the first of the ways that works. It
// never takes the place of a file: where there is one it fails with [fs.ErrExist].
func publish(part, to string, ways []naming) error {
	var all error
	for _, name := range ways {
		err := name(part, to)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return err
		}
		all = errors.Join(all, err)
	}
	return all
}

// reserve takes the name with an empty file of its own, which then is replaced. A process that is
// killed between the two leaves it empty.
func reserve(part, to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(f.Close(), os.Rename(part, to)); err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}
