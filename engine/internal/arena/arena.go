// Package arena gives zeroed memory outside the Go heap: the collector neither
// scans it nor counts it in its goal, and it goes back to the system at once.
package arena

import "unsafe"

// slack lies behind every arena: the kernels ask the cache for what comes next
// and may so touch addresses past the end.
const slack = 64 << 10

// Arena is one block of memory. Pointers into the Go heap must not be stored in it.
type Arena struct {
	mem  []byte
	used int
}

// New maps n zeroed bytes, aligned to a page. Physical memory is taken as it is
// touched, in huge pages where the system has them. An error is the system's.
func New(n int) (*Arena, error) {
	mem, err := mapMemory(n + slack)
	if err != nil {
		return nil, err
	}
	return &Arena{mem: mem}, nil
}

// Bytes takes the next n bytes, aligned to 64. It panics when the arena is too
// small: the caller has counted with [Size].
func (a *Arena) Bytes(n int) []byte {
	if n == 0 {
		return nil
	}
	if a.used+n > len(a.mem)-slack {
		panic("arena: counted wrong")
	}
	b := a.mem[a.used : a.used+n : a.used+n]
	a.used += Size(n)
	return b
}

// Floats takes the next n floats, aligned to 64 bytes.
func (a *Arena) Floats(n int) []float32 {
	b := a.Bytes(4 * n)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
}

// Size is what n bytes take of an arena.
func Size(n int) int { return (n + 63) &^ 63 }

// Close gives the memory back. Nothing taken from the arena may be used after it.
// A nil or closed arena is left as it is.
func (a *Arena) Close() error {
	if a == nil || a.mem == nil {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return unmapMemory(mem)
}
