package simulation_test

import (
	"sync"

	"github.com/parley-ai/parley/internal/ledger"
)

// memory is the progress of streams, which a kill leaves as it is.
// memory is the progress of streams, of one process.
type memory struct {
	mu        sync.Mutex
	last, now map[string]int
	claims    int
	err       error // of every claim
}

var _ ledger.Progress = (*memory)(nil)

func newMemory(before *memory) *memory {
	m := &memory{last: map[string]int{}, now: map[string]int{}}
	if before != nil {
		m.last = before.now
	}
	return m
}

func (m *memory) Claim(id string) (ledger.Slot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	m.claims++
	m.now[id] = 0
	return &slot{m, id}, nil
}

func (m *memory) Delivered(id string) int { return m.last[id] }

func (m *memory) Reset() error {
	m.last = nil
	return nil
}

type slot struct {
	memory *memory
	id     string
}

func (s *slot) Set(n int) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.now[s.id] = n
}

func (s *slot) Release() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	delete(s.memory.now, s.id)
	s.memory.claims--
}
