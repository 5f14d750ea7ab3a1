package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/gguf/gguftest"
)

// small has a value of every kind and two tensors.
func small() *gguftest.Writer {
	w := new(gguftest.Writer)
	w.Set("u8", uint8(200)).Set("i32", int32(-5)).Set("u32", uint32(1<<31)).Set("i64", int64(-1)).Set("u64", uint64(1<<63))
	w.Set("f32", float32(0.5)).Set("f64", 0.25).Set("bool", true).Set("string", "text").Set("empty", "")
	w.Set("strings", []string{"a", "", "ccc"}).Set("ints", []int32{1, -2, 3}).Set("floats", []float32{1})
	w.Add("first", gguf.F32, bytes.Repeat([]byte{1}, 24), 3, 2)
	w.Add("second", gguf.Q4_1, bytes.Repeat([]byte{2}, 80), 64, 2)
	return w
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, version := range []uint32{2, 3} {
		w := small()
		w.Version = version
		check(t, w.Bytes(), 32)
	}
	w := small().Set("general.alignment", uint32(128))
	w.Align = 128
	check(t, w.Bytes(), 128)
}

func check(t *testing.T, b []byte, align int64) {
	t.Helper()
	f, err := gguf.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"u8": 200, "i32": -5, "u32": 1 << 31, "i64": -1} {
		if got, ok := f.Int(key); got != want || !ok {
			t.Errorf("Int(%s) = %d, %v, want %d", key, got, ok, want)
		}
	}
	for _, key := range []string{"u64", "f32", "bool", "string", "ints", "absent"} {
		if got, ok := f.Int(key); ok {
			t.Errorf("Int(%s) = %d, want none", key, got)
		}
	}
	for key, want := range map[string]float64{"f32": 0.5, "f64": 0.25, "i32": -5} {
		if got, ok := f.Float(key); got != want || !ok {
			t.Errorf("Float(%s) = %v, %v, want %v", key, got, ok, want)
		}
	}
	if got, ok := f.Bool("bool"); !got || !ok {
		t.Errorf("Bool = %v, %v", got, ok)
	}
	if got, ok := f.String("string"); got != "text" || !ok {
		t.Errorf("String = %q, %v", got, ok)
	}
	if got, ok := f.String("empty"); got != "" || !ok {
		t.Errorf("String = %q, %v", got, ok)
	}
	if got, ok := f.Strings("strings"); !slices.Equal(got, []string{"a", "", "ccc"}) || !ok {
		t.Errorf("Strings = %q, %v", got, ok)
	}
	if got, ok := f.Ints("ints"); !slices.Equal(got, []int{1, -2, 3}) || !ok {
		t.Errorf("Ints = %v, %v", got, ok)
	}
	if _, ok := f.Ints("floats"); ok {
		t.Error("Ints of floats")
	}
	first, second := f.Tensor("first"), f.Tensor("second")
	if first == nil || second == nil || f.Tensor("third") != nil || len(f.Tensors()) != 2 {
		t.Fatalf("tensors %v", f.Tensors())
	}
	if !bytes.Equal(first.Data, bytes.Repeat([]byte{1}, 24)) || !slices.Equal(first.Dims, []int{3, 2}) || first.Type != gguf.F32 {
		t.Errorf("first is %+v", first)
	}
	if !bytes.Equal(second.Data, bytes.Repeat([]byte{2}, 80)) || second.Offset%align != 0 || !bytes.Equal(b[second.Offset:][:80], second.Data) {
		t.Errorf("second is %+v", second)
	}
}

// Every prefix of a good file is an error that calls it cut short.
func TestParse_Truncated(t *testing.T) {
	t.Parallel()
	b := small().Bytes()
	for n := range b {
		_, err := gguf.Parse(b[:n])
		if !errors.Is(err, gguf.ErrTruncated) {
			t.Fatalf("Parse of the first %d bytes of %d: %v, want ErrTruncated", n, len(b), err)
		}
		var e *gguf.Error
		if !errors.As(err, &e) || e.Offset > int64(len(b)) {
			t.Fatalf("Parse of the first %d bytes: %v has no sensible offset", n, err)
		}
	}
}

func TestParse_Malformed(t *testing.T) {
	t.Parallel()
	put := func(at int, v uint64) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) }
	}
	for name, c := range map[string]struct {
		w    *gguftest.Writer
		edit func([]byte)
		want string
	}{
		"magic":             {w: small(), edit: func(b []byte) { b[0] = 'X' }, want: "at byte 0: not a GGUF"},
		"version":           {w: &gguftest.Writer{Version: 1}, want: "version 1 is not supported"},
		"big-endian":        {w: &gguftest.Writer{Version: 3 << 24}, want: "big-endian"},
		"tensor count":      {w: small(), edit: put(8, 1<<60), want: "do not fit"},
		"pair count":        {w: small(), edit: put(16, 1<<60), want: "do not fit"},
		"key length":        {w: small(), edit: put(24, 1<<63), want: "does not fit"},
		"pair twice":        {w: small().Set("u8", uint8(1)), want: `"u8" appears twice`},
		"tensor twice":      {w: small().Add("first", gguf.F32, nil, 1), want: `"first" appears twice`},
		"alignment 0":       {w: small().Set("general.alignment", uint32(0)), want: "power of two"},
		"alignment 24":      {w: small().Set("general.alignment", uint32(24)), want: "power of two"},
		"alignment string":  {w: small().Set("general.alignment", "32"), want: "power of two"},
		"no dimensions":     {w: new(gguftest.Writer).Add("x", gguf.F32, nil), want: `"x" has 0 dimensions`},
		"five dimensions":   {w: new(gguftest.Writer).Add("x", gguf.F32, nil, 1, 1, 1, 1, 1), want: "5 dimensions"},
		"dimension 0":       {w: new(gguftest.Writer).Add("x", gguf.F32, nil, 0), want: "dimension of 0"},
		"dimension below 0": {w: new(gguftest.Writer).Add("x", gguf.F32, nil, -1), want: "dimension of"},
		"product overflow":  {w: new(gguftest.Writer).Add("x", gguf.F32, nil, 1<<32, 1<<32, 1<<32), want: "impossible dimensions"},
		"removed type":      {w: new(gguftest.Writer).Add("x", gguf.Q4_0_4_4, nil, 32), want: "Q4_0_4_4"},
		"unknown type":      {w: new(gguftest.Writer).Add("x", 999, nil, 32), want: `tensor "x" has type type 999`},
		"part of a block":   {w: new(gguftest.Writer).Add("x", gguf.Q8_0, nil, 33), want: "no multiple of the block of 32"},
		"data too long":     {w: new(gguftest.Writer).Add("x", gguf.Q8_0, nil, 320), want: "cut short"},
		"offset unaligned":  {w: &gguftest.Writer{Align: 8, Version: 3}, edit: nil, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "offset unaligned" {
				c.w.Add("x", gguf.I8, make([]byte, 8), 8).Add("y", gguf.I8, make([]byte, 8), 8)
				c.want = "no multiple of the alignment"
			}
			b := c.w.Bytes()
			if c.edit != nil {
				c.edit(b)
			}
			if _, err := gguf.Parse(b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse: %v, want %q", err, c.want)
			}
		})
	}
}

// A header that promises much must not take memory on its word.
func TestParse_Memory(t *testing.T) {
	// Not parallel: it reads the process's allocation counter.
	b := new(gguftest.Writer).Set("a", []string{}).Set("b", []int32{}).Bytes()
	for i := 24; i+8 <= len(b); i++ {
		c := slices.Clone(b)
		binary.LittleEndian.PutUint64(c[i:], 1<<40)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = gguf.Parse(c)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("2^40 at byte %d: %d bytes allocated", i, n)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.gguf")
	if err := os.WriteFile(path, small().Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Tensor("first"); got == nil || got.Data[0] != 1 {
		t.Errorf("Tensor = %v", got)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gguf.Open(empty); !errors.Is(err, gguf.ErrTruncated) {
		t.Errorf("Open of an empty file: %v", err)
	}
	for _, p := range []string{dir, filepath.Join(dir, "absent")} {
		if _, err := gguf.Open(p); err == nil {
			t.Errorf("Open(%s) succeeded", p)
		}
	}
}

func TestOpen_Weights(t *testing.T) {
	t.Parallel()
	f := gguftest.Open(t)
	if got := len(f.Tensors()); got != 272 {
		t.Errorf("%d tensors, want 272", got)
	}
	if s, _ := f.String("general.architecture"); s != "llama" {
		t.Errorf("architecture %q", s)
	}
	if n, _ := f.Int("llama.context_length"); n != 8192 {
		t.Errorf("context %d", n)
	}
	if x, _ := f.Float("llama.rope.freq_base"); x != 100000 {
		t.Errorf("rope base %v", x)
	}
	if b, ok := f.Bool("tokenizer.ggml.add_bos_token"); b || !ok {
		t.Errorf("add_bos_token %v, %v", b, ok)
	}
	s, _ := f.Strings("tokenizer.ggml.tokens")
	n, _ := f.Ints("tokenizer.ggml.token_type")
	if len(s) != 49152 || len(n) != 49152 || s[1] != "<|im_start|>" || n[1] != 3 {
		t.Errorf("%d tokens, %d types", len(s), len(n))
	}
	e := f.Tensor("token_embd.weight")
	if e == nil || e.Type.String() != "Q8_0" || !slices.Equal(e.Dims, []int{576, 49152}) || len(e.Data) != 30081024 {
		t.Errorf("token_embd.weight is not as it should be")
	}
	first := f.Tensors()[0].Offset
	for _, x := range f.Tensors() {
		first = min(first, x.Offset)
	}
	if first != 1785664 {
		t.Errorf("data starts at %d, want 1785664", first)
	}
}

// No file may make Parse panic, and what it accepts can be read whole.
func FuzzParse(f *testing.F) {
	b := small().Bytes()
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add(new(gguftest.Writer).Set("general.alignment", uint32(8)).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := gguf.Parse(b)
		if err != nil {
			var e *gguf.Error
			if !errors.As(err, &e) || e.Offset < 0 {
				t.Fatalf("%v has no offset", err)
			}
			return
		}
		for _, x := range g.Tensors() {
			if g.Tensor(x.Name) != x || len(x.Data) > len(b) || int(x.Offset)+len(x.Data) > len(b) {
				t.Fatalf("tensor %q is out of place", x.Name)
			}
		}
		for _, key := range []string{"u8", "i32", "strings", "ints", "string", "f32", "bool", "floats", ""} {
			g.Int(key)
			g.Float(key)
			g.Bool(key)
			g.String(key)
			g.Strings(key)
			g.Ints(key)
		}
	})
}
