package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
)

var _ ledger.Progress = (*Progress)(nil)

// A slot is one cache line: 16 bytes of request id, the tokens delivered, 40 unused.
const (
	slotBytes    = 64
	segmentSlots = 4096
	segmentBytes = slotBytes * segmentSlots
)

// Progress keeps what running streams have delivered in a memory-mapped file. A plain
// store survives the death of the process at any instant, because the page belongs to
// the kernel; a loss of power can lose the last seconds. It is safe for concurrent use.
type Progress struct {
	file *os.File
	last map[[16]byte]int // what the last process left

	mu       sync.Mutex
	segments [][]byte // mapped, each segmentBytes
	free     []int    // slot numbers
}

// OpenProgress opens or creates dir/progress and reads what the last process left.
func OpenProgress(dir string) (*Progress, error) {
	f, err := os.OpenFile(filepath.Join(dir, "progress"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &Progress{file: f, last: map[[16]byte]int{}}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for range max(1, (info.Size()+segmentBytes-1)/segmentBytes) {
		if err := p.grow(); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	for _, seg := range p.segments {
		for i := 0; i < segmentBytes; i += slotBytes {
			if id := [16]byte(seg[i:]); id != [16]byte{} {
				p.last[id] = int(binary.NativeEndian.Uint64(seg[i+16:]))
			}
		}
	}
	return p, nil
}

// grow maps another segment. Its blocks are written first where the file does not have
// them: a store into a hole of a full disk would kill the process.
func (p *Progress) grow() error {
	offset := int64(len(p.segments)) * segmentBytes
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if missing := offset + segmentBytes - info.Size(); missing > 0 {
		if _, err := p.file.WriteAt(make([]byte, missing), info.Size()); err != nil {
			return err
		}
	}
	seg, err := unix.Mmap(int(p.file.Fd()), offset, segmentBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("%s: %w", p.file.Name(), err)
	}
	p.segments = append(p.segments, seg)
	for i := segmentSlots - 1; i >= 0; i-- {
		p.free = append(p.free, int(offset)/slotBytes+i)
	}
	return nil
}

// Delivered is what the last process noted for the request, 0 if nothing.
func (p *Progress) Delivered(requestID string) int {
	id, _ := ident.ParseRequestID(requestID)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[id]
}

// Reset forgets the last process.
func (p *Progress) Reset() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = nil
	for _, seg := range p.segments {
		clear(seg)
	}
	return nil
}

// Claim gives the request a slot that counts 0 tokens.
func (p *Progress) Claim(requestID string) (ledger.Slot, error) {
	id, ok := ident.ParseRequestID(requestID)
	if !ok {
		return nil, fmt.Errorf("%q is not a request id", requestID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		if err := p.grow(); err != nil {
			return nil, err
		}
	}
	n := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	mem := p.segments[n/segmentSlots][n%segmentSlots*slotBytes:][:slotBytes]
	s := &slot{progress: p, number: n, mem: mem, tokens: (*atomic.Uint64)(unsafe.Pointer(&mem[16]))}
	s.tokens.Store(0)
	copy(mem, id[:])
	return s, nil
}

// Close unmaps the file. Slots must not be used any more.
func (p *Progress) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, seg := range p.segments {
		errs = append(errs, unix.Munmap(seg))
	}
	p.segments, p.free = nil, nil
	return errors.Join(append(errs, p.file.Close())...)
}

type slot struct {
	progress *Progress
	number   int
	mem      []byte
	tokens   *atomic.Uint64
}

// Set notes the tokens delivered so far: one store.
func (s *slot) Set(tokens int) { s.tokens.Store(uint64(tokens)) }

// Release makes the slot free for another request.
func (s *slot) Release() {
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	if s.progress.segments == nil {
		return // closed
	}
	clear(s.mem[:16])
	s.progress.free = append(s.progress.free, s.number)
}
