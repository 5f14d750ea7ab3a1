//go:build unix

package gguf

import (
	"os"
	"syscall"
)

func mapFile(h *os.File, size int) ([]byte, func([]byte) error, error) {
	if size == 0 { // mmap refuses it; Parse says what is wrong
		return nil, func([]byte) error { return nil }, nil
	}
	raw, err := syscall.Mmap(int(h.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	return raw, syscall.Munmap, err
}
