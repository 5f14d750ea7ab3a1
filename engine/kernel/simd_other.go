//go:build !amd64

package kernel

func simdTables() []Table { return nil }

// Pause does nothing where there is no assembly for it.
func Pause(int) {}

// Stream reads n bytes (n%256 == 0), one in each 64, and returns their sum. For
// benchmarks.
func Stream(p *byte, n int) (s uint64) {
	for i := 0; i < n; i += 64 {
		s += uint64(*at(p, i))
	}
	return
}
