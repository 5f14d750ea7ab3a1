package store_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
)

// The file is slots of a cache line in segments of 4,096.
const (
	slotBytes    = 64
	segmentBytes = 4096 * slotBytes
)

func openProgress(t testing.TB, dir string) *store.Progress {
	t.Helper()
	p, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatalf("OpenProgress: %v", err)
	}
	t.Cleanup(func() { _ = p.Close() }) // a test that cares has closed it already
	return p
}

func claim(t testing.TB, p *store.Progress, id string) ledger.Slot {
	t.Helper()
	s, err := p.Claim(id)
	if err != nil {
		t.Fatalf("Claim(%s): %v", id, err)
	}
	return s
}

// reopen is what the next process sees.
func reopen(t testing.TB, p *store.Progress, dir string) *store.Progress {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return openProgress(t, dir)
}

func wantDelivered(t testing.TB, p *store.Progress, id string, want int) {
	t.Helper()
	if got := p.Delivered(id); got != want {
		t.Errorf("Delivered(%s) = %d, want %d", id, got, want)
	}
}

func fileSize(t testing.TB, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "progress"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestProgress_SurvivesReopening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openProgress(t, dir)
	set, unset, released := ident.RequestID(), ident.RequestID(), ident.RequestID()
	s := claim(t, p, set)
	s.Set(3)
	s.Set(41)
	claim(t, p, unset)
	r := claim(t, p, released)
	r.Set(9)
	r.Release()
	wantDelivered(t, p, set, 0) // only the last process counts

	// A second mapping of the file is what is left when the process is killed now.
	killed := openProgress(t, dir)
	wantDelivered(t, killed, set, 41)

	p = reopen(t, p, dir)
	for id, want := range map[string]int{set: 41, unset: 0, released: 0, ident.RequestID(): 0, "": 0, "nonsense": 0} {
		wantDelivered(t, p, id, want)
	}
	if err := p.Reset(); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	wantDelivered(t, p, set, 0)
	p = reopen(t, p, dir)
	wantDelivered(t, p, set, 0)
}

func TestProgress_FileMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openProgress(t, dir)
	info, err := os.Stat(filepath.Join(dir, "progress"))
	if err != nil || info.Mode() != 0o600 || info.Size() != segmentBytes {
		t.Errorf("the file has mode %v and %d bytes, %v, want -rw------- and %d", info.Mode(), info.Size(), err, segmentBytes)
	}
}

func TestProgress_Refuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openProgress(t, dir)
	for _, id := range []string{"", "req_", ident.CompletionID(), "req_" + "zz" + ident.RequestID()[6:]} {
		if _, err := p.Claim(id); err == nil {
			t.Errorf("Claim(%q) succeeds", id)
		}
	}
	s := claim(t, p, ident.RequestID())
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	s.Release() // a call that ends after Close harms nothing
	if _, err := p.Claim(ident.RequestID()); err == nil {
		t.Error("Claim after Close succeeds")
	}
	if _, err := store.OpenProgress(filepath.Join(dir, "none")); err == nil {
		t.Error("OpenProgress without a directory succeeds")
	}
}

// The file grows by segments when every slot is taken, and slots that were released
// are taken first.
func TestProgress_Grows(t *testing.T) {
	t.Parallel()
	const streams = 4096 + 10
	dir := t.TempDir()
	p := openProgress(t, dir)
	ids := make([]string, streams)
	slots := make([]ledger.Slot, streams)
	for i := range ids {
		ids[i] = ident.RequestID()
		slots[i] = claim(t, p, ids[i])
		slots[i].Set(i + 1)
	}
	if got := fileSize(t, dir); got != 2*segmentBytes {
		t.Errorf("%d streams take %d bytes, want %d", streams, got, 2*segmentBytes)
	}
	killed := openProgress(t, dir)
	for i, id := range ids {
		wantDelivered(t, killed, id, i+1)
	}
	for _, s := range slots {
		s.Release()
	}
	for i := range 8192 {
		id := ident.RequestID()
		claim(t, p, id).Set(i + 1)
		ids = append(ids, id)
	}
	if got := fileSize(t, dir); got != 2*segmentBytes {
		t.Errorf("8192 streams in released slots take %d bytes, want %d", got, 2*segmentBytes)
	}
	p = reopen(t, p, dir)
	for i, id := range ids {
		want := 0
		if i >= streams {
			want = i - streams + 1
		}
		wantDelivered(t, p, id, want)
	}
	// All slots are free for the new process, those of the second segment too.
	if err := p.Reset(); err != nil {
		t.Fatal(err)
	}
	for range 8192 {
		claim(t, p, ident.RequestID())
	}
	if got := fileSize(t, dir); got != 2*segmentBytes {
		t.Errorf("after Reset 8192 streams take %d bytes, want %d", got, 2*segmentBytes)
	}
}

// A slot that is taken again counts from 0, whatever the stream before it left.
func TestProgress_ReusedSlotStartsAtZero(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openProgress(t, dir)
	first := claim(t, p, ident.RequestID())
	first.Set(1000)
	first.Release()
	id := ident.RequestID()
	claim(t, p, id)
	if fresh := openProgress(t, dir); fresh.Delivered(id) != 0 {
		t.Errorf("Delivered of a stream that delivered nothing = %d, want 0", fresh.Delivered(id))
	}
}

// Whatever is found in the place of the file is read as far as it goes.
func TestProgress_OddFiles(t *testing.T) {
	t.Parallel()
	id := ident.RequestID()
	raw, _ := ident.ParseRequestID(id)
	slot := func(tokens uint64) []byte {
		s := make([]byte, slotBytes)
		copy(s, raw[:])
		binary.NativeEndian.PutUint64(s[16:], tokens)
		return s
	}
	for _, c := range []struct {
		name string
		file []byte
		want int
		size int64
	}{
		{"empty", nil, 0, segmentBytes},
		{"one byte", []byte{7}, 0, segmentBytes},
		{"one slot", slot(5), 5, segmentBytes},
		{"cut within the count", slot(5)[:17], 5, segmentBytes}, // zeros follow, and the machine is little endian
		{"cut within the id", slot(5)[:15], 0, segmentBytes},
		{"text", bytes.Repeat([]byte("no progress\n"), 1000), 0, segmentBytes},
		{"all ones", bytes.Repeat([]byte{0xff}, segmentBytes), 0, segmentBytes},
		{"one byte too many", append(make([]byte, segmentBytes), 1), 0, 2 * segmentBytes},
		{"in the second segment", append(make([]byte, segmentBytes), slot(6)...), 6, 2 * segmentBytes},
		{"beyond an int", slot(math.MaxUint64), -1, segmentBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "progress"), c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			p := openProgress(t, dir)
			if c.want < 0 {
				if got := p.Delivered(id); got > 0 {
					t.Errorf("Delivered of %d = %d, want nothing that could be charged", uint64(math.MaxUint64), got)
				}
			} else {
				wantDelivered(t, p, id, c.want)
			}
			if got := fileSize(t, dir); got != c.size {
				t.Errorf("the file has %d bytes, want %d", got, c.size)
			}
			if err := p.Reset(); err != nil {
				t.Fatal(err)
			}
			next := ident.RequestID()
			claim(t, p, next).Set(12)
			p = reopen(t, p, dir)
			wantDelivered(t, p, id, 0)
			wantDelivered(t, p, next, 12)
		})
	}
}

// No two running streams ever have the same slot.
func TestProgress_Concurrent(t *testing.T) {
	t.Parallel()
	const workers, each, kept = 16, 400, 100
	dir := t.TempDir()
	p := openProgress(t, dir)
	var (
		mu   sync.Mutex
		want = map[string]int{}
		wg   sync.WaitGroup
	)
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				id := ident.RequestID()
				s, err := p.Claim(id)
				if err != nil {
					t.Errorf("Claim: %v", err)
					return
				}
				for n := range 10 {
					s.Set(n)
				}
				n := w*each + i + 1
				s.Set(n)
				if i >= kept {
					s.Release()
					n = 0
				}
				mu.Lock()
				want[id] = n
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	p = reopen(t, p, dir)
	for id, n := range want {
		wantDelivered(t, p, id, n)
	}
}

// A call that outlives a stop that was not orderly may still note what it delivers: it
// must not bring down a process that is writing its books.
func TestProgress_SetBehindClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openProgress(t, dir)
	id := ident.RequestID()
	s := claim(t, p, id)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	s.Set(7)
	s.Release()
	if _, err := p.Claim(ident.RequestID()); err == nil {
		t.Error("a closed file gave a slot")
	}
	wantDelivered(t, openProgress(t, dir), id, 7)
}
