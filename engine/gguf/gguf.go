// Package gguf reads GGUF model files: metadata and the directory of tensors.
//
// A file may come from anywhere, so every length is checked against the file
// before it is used, nothing is allocated on the word of a header, and what is
// wrong is an [*Error] with the byte offset. Arrays stay in the mapped file and
// are decoded when asked for.
package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
)

// ErrTruncated is wrapped by the error for a file that ends before what its
// header promises, as an interrupted download does.
var ErrTruncated = errors.New("the file is cut short (an interrupted download?)")

// Error is a fault of the file's format. Offset is the byte where it was found.
type Error struct {
	Offset int64
	Reason string
	cause  error
}

// Error says what is wrong and where.
func (e *Error) Error() string {
	s := fmt.Sprintf("gguf: at byte %d: %s", e.Offset, e.Reason)
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns [ErrTruncated] where that is the cause, else nil.
func (e *Error) Unwrap() error { return e.cause }

// Tensor is one entry of the directory. Dims[0] is the row length. Data lies in
// the mapped file: it must not be written and is gone after [File.Close].
type Tensor struct {
	Name string
	Dims []int
	Type Type
	Data []byte
	// Offset is where Data begins in the file.
	Offset int64
}

// File is an open GGUF file. Its methods may be called from many goroutines,
// except Close.
type File struct {
	raw     []byte
	meta    map[string]value
	tensors []*Tensor
	byName  map[string]*Tensor
	unmap   func([]byte) error
}

// Open maps the file read-only and checks its directory. The file must not be
// cut or rewritten in place while it is open; replacing it by rename is fine.
func Open(path string) (*File, error) {
	h, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	st, err := h.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > math.MaxInt {
		return nil, fmt.Errorf("gguf: %s is not a file that can be mapped", path)
	}
	raw, unmap, err := mapFile(h, int(st.Size()))
	if err != nil {
		return nil, fmt.Errorf("gguf: map %s: %w", path, err)
	}
	f, err := Parse(raw)
	if err != nil {
		_ = unmap(raw)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.unmap = unmap
	return f, nil
}

// Close unmaps the file. Data of its tensors must not be used afterwards. A
// second Close does nothing.
func (f *File) Close() error {
	if f.unmap == nil {
		return nil
	}
	raw, unmap := f.raw, f.unmap
	f.raw, f.unmap, f.meta, f.tensors, f.byName = nil, nil, nil, nil, nil
	return unmap(raw)
}

// Tensor returns the tensor of that name, or nil.
func (f *File) Tensor(name string) *Tensor { return f.byName[name] }

// Tensors returns all tensors in the order of the file. The slice is the
// file's own.
func (f *File) Tensors() []*Tensor { return f.tensors }

// Parse reads the directory of a file that is already in memory. The File
// refers to b, which must not change.
func Parse(b []byte) (*File, error) {
	c := &cursor{b: b}
	f := &File{raw: b}
	nt, nk := c.header()
	f.readMeta(c, nk)
	if c.err != nil {
		return nil, c.err
	}
	align, err := f.alignment()
	if err != nil {
		return nil, err
	}
	rel := f.readDirectory(c, nt)
	if c.err != nil {
		return nil, c.err
	}
	start := (uint64(c.off) + align - 1) / align * align
	for i, t := range f.tensors {
		if err := f.place(t, start, rel[i], align); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// The least bytes of an entry, which bound a count before memory is taken for it.
const (
	leastPair   = 8 + 4 + 1
	leastTensor = 8 + 4 + 8 + 4 + 8
)

func (c *cursor) header() (tensors, pairs uint64) {
	if magic := c.take(4, "magic"); c.err == nil && string(magic) != "GGUF" {
		c.fail(0, "not a GGUF file")
	}
	// Version 2 differs from 3 only in that 3 may be big-endian, which then
	// shows as a version in the upper bytes.
	v := c.u32("version")
	switch {
	case c.err != nil:
	case v != 0 && v&0xffff == 0:
		c.fail(4, "big-endian files are not supported")
	case v != 2 && v != 3:
		c.fail(4, "version %d is not supported (2 and 3 are)", v)
	}
	tensors, pairs = c.u64("number of tensors"), c.u64("number of metadata pairs")
	rest := uint64(len(c.b) - c.off)
	if c.err == nil && (tensors > rest/leastTensor || pairs > rest/leastPair) {
		c.truncated(8, "%d tensors and %d metadata pairs do not fit the file", tensors, pairs)
	}
	return tensors, pairs
}

func (f *File) readMeta(c *cursor, n uint64) {
	f.meta = make(map[string]value)
	for ; n > 0 && c.err == nil; n-- {
		at := c.off
		key := c.str("metadata key")
		v := c.value(key)
		if _, twice := f.meta[key]; twice && c.err == nil {
			c.fail(at, "metadata key %q appears twice", clip(key))
		}
		f.meta[key] = v
	}
}

// alignment is where tensor data may begin: 32 unless the file says otherwise.
func (f *File) alignment() (uint64, error) {
	v, ok := f.meta["general.alignment"]
	if !ok {
		return 32, nil
	}
	n, ok := f.Int("general.alignment")
	if !ok || n <= 0 || n > 1<<30 || n&(n-1) != 0 {
		return 0, &Error{Offset: int64(v.off), Reason: "general.alignment must be a power of two"}
	}
	return uint64(n), nil
}

// readDirectory appends the tensors and returns their offsets, which count from
// the start of the data section.
func (f *File) readDirectory(c *cursor, n uint64) (rel []uint64) {
	f.byName = make(map[string]*Tensor)
	for ; n > 0 && c.err == nil; n-- {
		at := c.off
		t := &Tensor{Name: c.str("tensor name")}
		dims := c.u32("tensor dimensions")
		// ggml's own limit.
		if c.err == nil && (dims == 0 || dims > 4) {
			c.fail(at, "tensor %q has %d dimensions", clip(t.Name), dims)
			return nil
		}
		for range dims {
			d := c.u64("tensor dimensions")
			if c.err == nil && (d == 0 || d > math.MaxInt) {
				c.fail(at, "tensor %q has a dimension of %d", clip(t.Name), d)
			}
			t.Dims = append(t.Dims, int(d))
		}
		t.Type = Type(c.u32("tensor type"))
		rel = append(rel, c.u64("tensor offset"))
		if c.err != nil {
			return nil
		}
		if f.byName[t.Name] != nil {
			c.fail(at, "tensor %q appears twice", clip(t.Name))
		}
		if values, _ := t.Type.Block(); values == 0 {
			c.fail(at, "tensor %q has type %v, which is not supported", clip(t.Name), t.Type)
		}
		f.tensors = append(f.tensors, t)
		f.byName[t.Name] = t
	}
	return rel
}

// place finds the tensor's data, which begins rel bytes after start.
func (f *File) place(t *Tensor, start, rel, align uint64) error {
	fail := func(off uint64, cause error, format string, args ...any) error {
		off = min(off, math.MaxInt64)
		return &Error{int64(off), fmt.Sprintf("tensor %q (%v): ", clip(t.Name), t.Type) + fmt.Sprintf(format, args...), cause}
	}
	if rel%align != 0 {
		return fail(start, nil, "offset %d is no multiple of the alignment %d", rel, align)
	}
	size := uint64(len(f.raw))
	values, bytes := t.Type.Block()
	if t.Dims[0]%values != 0 {
		return fail(start, nil, "row length %d is no multiple of the block of %d", t.Dims[0], values)
	}
	n := uint64(t.Dims[0] / values)
	for _, d := range t.Dims[1:] {
		if n > math.MaxInt/uint64(d) {
			return fail(start, nil, "impossible dimensions %v", t.Dims)
		}
		n *= uint64(d)
	}
	if rel > math.MaxInt64-start || n > math.MaxInt/uint64(bytes) {
		return fail(start, nil, "impossible dimensions %v or offset %d", t.Dims, rel)
	}
	n *= uint64(bytes)
	at := start + rel
	if at > size || n > size-at {
		return fail(at, ErrTruncated, "%d bytes of data do not fit the file of %d bytes", n, size)
	}
	t.Offset = int64(at)
	t.Data = f.raw[at : at+n : at+n]
	return nil
}

// clip keeps error messages short when a hostile file has long names.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// cursor reads little-endian values. The first failure stays in err and every
// later read returns zero.
type cursor struct {
	b   []byte
	off int
	err error
}

func (c *cursor) fail(off int, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{Offset: int64(off), Reason: fmt.Sprintf(format, args...)}
	}
}

func (c *cursor) truncated(off int, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{int64(off), fmt.Sprintf(format, args...), ErrTruncated}
	}
}

func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(len(c.b)-c.off) {
		c.truncated(c.off, "%s of %d bytes does not fit the file of %d bytes", what, n, len(c.b))
		return nil
	}
	c.off += int(n)
	return c.b[c.off-int(n) : c.off]
}

func (c *cursor) u32(what string) uint32 {
	if p := c.take(4, what); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if p := c.take(8, what); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (c *cursor) str(what string) string { return string(c.take(c.u64(what), what)) }
