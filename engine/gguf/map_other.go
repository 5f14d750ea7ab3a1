//go:build !unix

package gguf

import (
	"io"
	"os"
)

func mapFile(h *os.File, size int) ([]byte, func([]byte) error, error) {
	raw := make([]byte, size)
	_, err := io.ReadFull(h, raw)
	return raw, func([]byte) error { return nil }, err
}
