//go:build !linux

package arena

// Other systems keep the memory on the heap: it is right there too, only dearer.
func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) error { return nil }
