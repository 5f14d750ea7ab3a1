package storetest

import (
	"fmt"
	"path/filepath"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// shim is SQLite's own VFS of this system with four of its methods led past the disks.
// A file of SQLite's is a struct whose first member points to its methods: the shim lets
// the real VFS open it and then changes that pointer, so every other method, locks and
// shared memory among them, is the real one.
type shim struct {
	once      sync.Once
	vfs       uintptr // the real one
	mu        sync.Mutex
	disks     map[string]*Disk    // by directory
	files     map[uintptr]*file   // by their structs, from xOpen to xClose
	methods   map[uintptr]uintptr // ours, by the real ones
	originals map[uintptr]uintptr // the real ones, by ours
}

// process is the one shim of a process: SQLite knows file systems by process too.
var process = &shim{
	disks: map[string]*Disk{}, files: map[uintptr]*file{},
	methods: map[uintptr]uintptr{}, originals: map[uintptr]uintptr{},
}

// register makes the shim what SQLite opens files with.
func (s *shim) register() {
	tls := libc.NewTLS() // for as long as the process lives
	if rc := sqlite3.Xsqlite3_initialize(tls); rc != 0 {
		panic(fmt.Sprintf("sqlite3_initialize: %d", rc))
	}
	s.vfs = sqlite3.Xsqlite3_vfs_find(tls, 0)
	name, err := libc.CString("storetest")
	if err != nil {
		panic(err)
	}
	p := outside(tls, *at[sqlite3.Tsqlite3_vfs](s.vfs))
	ours := at[sqlite3.Tsqlite3_vfs](p)
	ours.FpNext, ours.FzName = 0, name
	ours.FxOpen, ours.FxDelete = pointer(open), pointer(remove)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, p, 1); rc != 0 {
		panic(fmt.Sprintf("sqlite3_vfs_register: %d", rc))
	}
}

// outside copies v out of Go's memory, in which the C pointers of SQLite may not point.
// It is never freed.
func outside[T any](tls *libc.TLS, v T) uintptr {
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(v)))
	if p == 0 {
		panic("out of memory")
	}
	*at[T](p) = v
	return p
}

// at reads the C pointer p.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// pointer is f, a function at package level, as C has it; function is the way back.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// Signatures of the methods.
type (
	openFunc     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	removeFunc   = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32
	closeFunc    = func(tls *libc.TLS, file uintptr) int32
	writeFunc    = func(tls *libc.TLS, file, buf uintptr, n int32, offset int64) int32
	truncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
)

func open(tls *libc.TLS, _, name, p uintptr, flags int32, out uintptr) int32 {
	s := process
	rc := function[openFunc](at[sqlite3.Tsqlite3_vfs](s.vfs).FxOpen)(tls, s.vfs, name, p, flags, out)
	if rc != 0 || name == 0 {
		return rc
	}
	path := libc.GoString(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.disks[filepath.Dir(path)]
	if d == nil {
		return rc
	}
	s.files[p] = d.open(filepath.Base(path))
	header := at[sqlite3.Tsqlite3_file](p)
	header.FpMethods = s.over(tls, header.FpMethods)
	return rc
}

// over returns the methods that stand before the real ones. The caller has locked s.
func (s *shim) over(tls *libc.TLS, real uintptr) uintptr {
	if p, ok := s.methods[real]; ok {
		return p
	}
	m := *at[sqlite3.Tsqlite3_io_methods](real)
	m.FxClose, m.FxWrite, m.FxTruncate, m.FxSync = pointer(closeFile), pointer(write), pointer(truncate), pointer(fsync)
	p := outside(tls, m)
	s.methods[real], s.originals[p] = p, real
	return p
}

// find returns the file of the struct at p and its real methods.
func find(p uintptr) (*file, *sqlite3.Tsqlite3_io_methods) {
	s := process
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[p], at[sqlite3.Tsqlite3_io_methods](s.originals[at[sqlite3.Tsqlite3_file](p).FpMethods])
}

func closeFile(tls *libc.TLS, p uintptr) int32 {
	_, m := find(p)
	s := process
	s.mu.Lock()
	delete(s.files, p)
	s.mu.Unlock()
	return function[closeFunc](m.FxClose)(tls, p)
}

func write(tls *libc.TLS, p, buf uintptr, n int32, offset int64) int32 {
	f, m := find(p)
	data := append([]byte(nil), unsafe.Slice(at[byte](buf), n)...)
	real := function[writeFunc](m.FxWrite)
	return f.do(Call{Op: Write, File: f.name, Size: int64(n)}, func(fault Fault) int32 {
		switch fault {
		case Short:
			rc := real(tls, p, buf, n/2, offset)
			if rc == 0 {
				f.changed(change{offset: offset, data: data[:n/2]})
			}
			return sqlite3.SQLITE_IOERR_WRITE
		case Error:
			return sqlite3.SQLITE_IOERR_WRITE
		case Full:
			return sqlite3.SQLITE_FULL
		}
		rc := real(tls, p, buf, n, offset)
		if rc == 0 {
			f.changed(change{offset: offset, data: data})
		}
		return rc
	}, func() { f.changed(change{offset: offset, data: data}) })
}

func truncate(tls *libc.TLS, p uintptr, size int64) int32 {
	f, m := find(p)
	return f.do(Call{Op: Truncate, File: f.name, Size: size}, func(fault Fault) int32 {
		if fault != None {
			return sqlite3.SQLITE_IOERR_TRUNCATE
		}
		rc := function[truncateFunc](m.FxTruncate)(tls, p, size)
		if rc == 0 {
			f.changed(change{offset: size, cut: true})
		}
		return rc
	}, func() { f.changed(change{offset: size, cut: true}) })
}

// fsync does not reach the real disk: what is durable is decided here.
func fsync(_ *libc.TLS, p uintptr, _ int32) int32 {
	f, _ := find(p)
	return f.do(Call{Op: Sync, File: f.name}, func(fault Fault) int32 {
		if fault != None {
			f.forget()
			return sqlite3.SQLITE_IOERR_FSYNC
		}
		f.settle()
		return sqlite3.SQLITE_OK
	}, func() {})
}

func remove(tls *libc.TLS, _, name uintptr, syncDir int32) int32 {
	s := process
	real := func() int32 {
		return function[removeFunc](at[sqlite3.Tsqlite3_vfs](s.vfs).FxDelete)(tls, s.vfs, name, syncDir)
	}
	path := libc.GoString(name)
	s.mu.Lock()
	d := s.disks[filepath.Dir(path)]
	s.mu.Unlock()
	if d == nil {
		return real()
	}
	f := d.open(filepath.Base(path))
	return f.do(Call{Op: Remove, File: f.name}, func(fault Fault) int32 {
		if fault != None {
			return sqlite3.SQLITE_IOERR_DELETE
		}
		rc := real()
		if rc == 0 {
			d.removed(f.name, syncDir != 0)
		}
		return rc
	}, func() {})
}
