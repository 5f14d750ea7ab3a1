// Package gguftest writes small GGUF files for tests and finds the real weights.
package gguftest

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-ai/parley/engine/gguf"
)

const weightsName = "SmolLM2-135M-Instruct.Q4_1.gguf"

// Weights returns the path of the real weights: PARLEY_WEIGHTS, or the file in
// weights/ of the module's root. Where there is none the test is skipped, and
// fails if CI is true.
func Weights(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("PARLEY_WEIGHTS"); p != "" {
		return p
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		p := filepath.Join(d, "weights", weightsName)
		if _, err := os.Stat(p); err == nil {
			return p
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	const missing = "no weights/" + weightsName + ": run tools/weights.sh, or set PARLEY_WEIGHTS to its path"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Open opens the real weights for the length of the test.
func Open(t testing.TB) *gguf.File {
	t.Helper()
	f, err := gguf.Open(Weights(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Writer collects the parts of a file. The zero value is an empty file of
// alignment 32.
type Writer struct {
	Version uint32 // 0 means 3
	Align   int    // 0 means 32; to name it in the file, Set it too
	pairs   []byte
	n       int
	tensors []tensor
}

type tensor struct {
	name string
	typ  gguf.Type
	dims []int
	data []byte
}

// Set adds a metadata pair. The value is one of bool, string, uint8, int32,
// uint32, int64, uint64, float32, float64, []string, []int32, []float32.
func (w *Writer) Set(key string, v any) *Writer {
	w.n++
	p := appendString(w.pairs, key)
	le := binary.LittleEndian
	switch v := v.(type) {
	case uint8:
		p = append(le.AppendUint32(p, 0), v)
	case uint32:
		p = le.AppendUint32(le.AppendUint32(p, 4), v)
	case int32:
		p = le.AppendUint32(le.AppendUint32(p, 5), uint32(v))
	case float32:
		p = le.AppendUint32(le.AppendUint32(p, 6), math.Float32bits(v))
	case bool:
		p = append(le.AppendUint32(p, 7), 0)
		if v {
			p[len(p)-1] = 1
		}
	case string:
		p = appendString(le.AppendUint32(p, 8), v)
	case []string:
		p = le.AppendUint64(le.AppendUint32(le.AppendUint32(p, 9), 8), uint64(len(v)))
		for _, s := range v {
			p = appendString(p, s)
		}
	case []int32:
		p = le.AppendUint64(le.AppendUint32(le.AppendUint32(p, 9), 5), uint64(len(v)))
		for _, n := range v {
			p = le.AppendUint32(p, uint32(n))
		}
	case []float32:
		p = le.AppendUint64(le.AppendUint32(le.AppendUint32(p, 9), 6), uint64(len(v)))
		for _, n := range v {
			p = le.AppendUint32(p, math.Float32bits(n))
		}
	case uint64:
		p = le.AppendUint64(le.AppendUint32(p, 10), v)
	case int64:
		p = le.AppendUint64(le.AppendUint32(p, 11), uint64(v))
	case float64:
		p = le.AppendUint64(le.AppendUint32(p, 12), math.Float64bits(v))
	default:
		panic("gguftest: no such value type")
	}
	w.pairs = p
	return w
}

// Add adds a tensor. Its data is written as given, of the right size or not.
func (w *Writer) Add(name string, typ gguf.Type, data []byte, dims ...int) *Writer {
	w.tensors = append(w.tensors, tensor{name, typ, dims, data})
	return w
}

// Bytes returns the file.
func (w *Writer) Bytes() []byte {
	le := binary.LittleEndian
	version, align := w.Version, w.Align
	if version == 0 {
		version = 3
	}
	if align == 0 {
		align = 32
	}
	out := le.AppendUint32([]byte("GGUF"), version)
	out = le.AppendUint64(le.AppendUint64(out, uint64(len(w.tensors))), uint64(w.n))
	out = append(out, w.pairs...)
	at := 0
	for _, t := range w.tensors {
		out = le.AppendUint32(appendString(out, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			out = le.AppendUint64(out, uint64(d))
		}
		out = le.AppendUint64(le.AppendUint32(out, uint32(t.typ)), uint64(at))
		at = up(at+len(t.data), align)
	}
	for _, t := range w.tensors {
		out = append(out, make([]byte, up(len(out), align)-len(out))...)
		out = append(out, t.data...)
	}
	return out
}

func up(n, align int) int { return (n + align - 1) / align * align }

func appendString(p []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(p, uint64(len(s))), s...)
}
