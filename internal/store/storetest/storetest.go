// Package storetest is for tests of the store and of what is kept in it. Its Disk is a disk
// under SQLite that fails, loses its power and forgets what was not synced: it takes the
// place of the file system of SQLite in the process of a test, so the store above it is the
// one that ships, unchanged. Plain reads and forges the books beside the rooms.
package storetest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"
)

// Op is a call of SQLite's that changes a file or makes its changes durable.
type Op string

// The calls.
const (
	Write    Op = "write"
	Truncate Op = "truncate"
	Sync     Op = "sync"
	Remove   Op = "remove"
)

// Call is one of them.
type Call struct {
	N    int // from 1, on this disk
	Op   Op
	File string // without the directory
	Size int64  // of what is written, or to which is cut
}

// Fault is how a call fails.
type Fault int

// The faults. An operation that cannot fail in one of these ways fails with an error.
const (
	None  Fault = iota
	Error       // nothing is done
	Short       // half of it is written
	Full        // no space is left
	// PowerLoss ends everything: this call may have reached the disk in part, and no
	// later one does.
	PowerLoss
)

// Disk is the files of one directory. It is safe for concurrent use.
type Disk struct {
	dir string

	mu     sync.Mutex
	files  map[string]*file
	ghosts []*file // removed, and nothing has made that durable
	calls  int
	off    bool
	before func(Call) Fault
	after  func(Call)
}

// file is what the disk knows of one.
type file struct {
	disk    *Disk
	name    string
	entered bool     // its name is durable
	durable []byte   // its content as of the last sync
	pending []change // since then, in their order
}

// change is a write, or a cut at offset.
type change struct {
	offset int64
	data   []byte
	cut    bool
}

// sector is what a disk writes whole or not at all.
const sector = 512

// Mount puts a disk under the databases that SQLite opens in dir from now on, until
// [Disk.Unmount]. What is in dir is durable.
func Mount(dir string) (*Disk, error) {
	d := &Disk{dir: dir, files: map[string]*file{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".db" || filepath.Ext(e.Name()) == ".db-wal" {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			d.files[e.Name()] = &file{disk: d, name: e.Name(), entered: true, durable: text}
		}
	}
	d.mount()
	return d, nil
}

func (d *Disk) mount() {
	s := process
	s.once.Do(s.register)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disks[d.dir] = d
}

// Unmount lets databases that are opened from now on reach the real disk.
func (d *Disk) Unmount() {
	s := process
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.disks, d.dir)
}

// Before asks f how each call shall fail, before anything is done. Calls of several
// files may come at once.
func (d *Disk) Before(f func(Call) Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

// After tells f of each call that was done.
func (d *Disk) After(f func(Call)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after = f
}

// Dir is where the files are.
func (d *Disk) Dir() string { return d.dir }

// Calls is how many calls there were.
func (d *Disk) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// CutPower ends everything now.
func (d *Disk) CutPower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

func (d *Disk) open(name string) *file {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[name]
	if f == nil {
		f = &file{disk: d, name: name}
		d.files[name] = f
	}
	return f
}

func (d *Disk) removed(name string, durable bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.files[name]; !durable && f.entered {
		d.ghosts = append(d.ghosts, f)
	}
	delete(d.files, name)
}

// do counts the call and runs it with its fault. lost notes what a call that the power
// failed under may have done.
func (f *file) do(c Call, run func(Fault) int32, lost func()) int32 {
	d := f.disk
	d.mu.Lock()
	d.calls++
	c.N = d.calls
	off, before := d.off, d.before
	d.mu.Unlock()
	fault := None
	if !off && before != nil {
		fault = before(c)
	}
	if !off && fault == PowerLoss {
		lost()
		d.CutPower()
	}
	if off || fault == PowerLoss {
		return sqlite3.SQLITE_IOERR
	}
	rc := run(fault)
	d.mu.Lock()
	after := d.after
	d.mu.Unlock()
	if after != nil && rc == sqlite3.SQLITE_OK {
		after(c)
	}
	return rc
}

func (f *file) changed(c change) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if !f.disk.off {
		f.pending = append(f.pending, c)
	}
}

// settle makes the content durable and the file's name too: SQLite syncs the directory of
// what it has created with the first sync of the file. Removals before it are durable
// then, as file systems with a journal keep the order of names.
func (f *file) settle() {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	for _, c := range f.pending {
		f.durable = c.apply(f.durable)
	}
	f.pending, f.entered = nil, true
	f.disk.ghosts = nil
}

// forget is what a kernel does when a sync fails: the pages are clean now, every reader
// sees them, and no later sync writes them.
func (f *file) forget() {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.pending = nil
}

func (c change) apply(to []byte) []byte {
	if c.cut {
		if int64(len(to)) > c.offset {
			return to[:c.offset]
		}
		return append(to, make([]byte, c.offset-int64(len(to)))...)
	}
	if end := c.offset + int64(len(c.data)); int64(len(to)) < end {
		to = append(to, make([]byte, end-int64(len(to)))...)
	}
	copy(to[c.offset:], c.data)
	return to
}

// Killed copies into the directory to what a process finds that starts after this one was
// killed: all that was written. It mounts a disk there on which no more is durable than
// on d.
func (d *Disk) Killed(to string) (*Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := &Disk{dir: to, files: map[string]*file{}}
	for name, f := range d.files {
		text, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return nil, err
		}
		next.files[name] = &file{disk: next, name: name, entered: f.entered, durable: slices.Clone(f.durable), pending: slices.Clone(f.pending)}
	}
	next.mount()
	return next, nil
}

// Survive writes into the directory to what is found after a loss of power now: what
// was synced, and of what was not, by chance, nothing, anything or all, in any order,
// the sectors of one write apart.
func (d *Disk) Survive(to string, chance *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := slices.Clone(d.ghosts)
	for _, f := range d.files {
		files = append(files, f)
	}
	// The last one of a name counts: a ghost is there only where nothing took its place.
	for _, f := range files {
		ghost := d.files[f.name] != f
		if (ghost || !f.entered) && chance.IntN(2) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(to, f.name), f.survivor(chance), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// survivor is the content that is found.
func (f *file) survivor(chance *rand.Rand) []byte {
	content := slices.Clone(f.durable)
	luck := chance.Float64() // of a disk that wrote almost nothing, or almost all
	for _, i := range chance.Perm(len(f.pending)) {
		c := f.pending[i]
		switch {
		case chance.Float64() > luck:
		case c.cut || chance.IntN(4) > 0:
			content = c.apply(content)
		default: // torn
			for at := 0; at < len(c.data); {
				n := sector - int((c.offset+int64(at))%sector)
				n = min(n, len(c.data)-at)
				if chance.IntN(2) == 0 {
					content = change{offset: c.offset + int64(at), data: c.data[at : at+n]}.apply(content)
				}
				at += n
			}
		}
	}
	return content
}
