package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// memo keeps the series of labels that were met before: Prometheus hashes labels and
// compares them under a lock at every use, of which a call has a dozen. Labels must
// come from a bounded set. It is safe for concurrent use; a lookup takes no lock.
type memo[K comparable, V any] struct {
	mu    sync.Mutex // held while one is added
	known atomic.Pointer[map[K]V]
}

// of returns the series of key, which find finds the first time.
func (m *memo[K, V]) of(key K, find func(K) V) V {
	if known := m.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
	}
	v := find(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[K]V{key: v}
	if known := m.known.Load(); known != nil {
		maps.Copy(next, *known)
	}
	m.known.Store(&next)
	return v
}
