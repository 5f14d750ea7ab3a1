package quant_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/quant"
)

// random is a tensor of random quants with sane scales.
func random(typ gguf.Type, rows, k int) *gguf.Tensor {
	r := rand.New(rand.NewPCG(1, uint64(typ)))
	values, size := typ.Block()
	t := &gguf.Tensor{Name: "x.weight", Dims: []int{k, rows}, Type: typ, Offset: 4096, Data: make([]byte, rows*k/values*size)}
	for i := range t.Data {
		t.Data[i] = byte(r.Uint32())
	}
	for i := 0; i < len(t.Data); i += size {
		b := t.Data[i:][:size]
		value := func() float32 { return float32(r.NormFloat64() * 0.01) }
		switch typ {
		case gguf.F32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(value()))
		case gguf.BF16:
			binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(value())>>16))
		default:
			for _, at := range halves(typ) {
				binary.LittleEndian.PutUint16(b[at:], kernel.ToHalf(value()))
			}
		}
	}
	return t
}

// halves says where in a block the float16 scales lie.
func halves(typ gguf.Type) []int {
	switch typ {
	case gguf.Q4_1, gguf.Q5_1, gguf.Q4_K, gguf.Q5_K:
		return []int{0, 2}
	case gguf.Q2_K:
		return []int{80, 82}
	case gguf.Q3_K:
		return []int{108}
	case gguf.Q6_K:
		return []int{208}
	}
	return []int{0}
}

func pack(t *testing.T, src *gguf.Tensor) *quant.Matrix {
	t.Helper()
	m, err := quant.Plan(src)
	if err != nil {
		t.Fatalf("Plan: %v", err)
	}
	m.Data = make([]byte, m.Bytes())
	if err := m.Pack(0, m.Groups()); err != nil {
		t.Fatalf("Pack: %v", err)
	}
	m.Done()
	return m
}

func TestMatrix_Pack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ gguf.Type
		// tolerance of a value v in a row whose greatest magnitude is top
		tolerance func(v, top float64) float64
	}{
		// The greatest scale, or middle, of a row is at most its greatest value or so.
		{gguf.Q4_0, func(_, top float64) float64 { return top * 9 / 65534 }},
		{gguf.Q4_1, func(_, top float64) float64 { return top * 9 / 65534 }},
		{gguf.Q4_K, func(_, top float64) float64 { return top * 9 / 65534 }},
		{gguf.Q5_0, func(_, _ float64) float64 { return 0 }},
		{gguf.Q8_0, func(_, _ float64) float64 { return 0 }},
		{gguf.F32, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.F16, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.BF16, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.Q5_1, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.Q5_K, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.Q6_K, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.Q3_K, func(_, top float64) float64 { return top / 127 * 0.51 }},
		{gguf.Q2_K, func(_, top float64) float64 { return top / 127 * 0.51 }},
	} {
		t.Run(c.typ.String(), func(t *testing.T) {
			t.Parallel()
			const rows, k = 40, 512 // 40 rows: the last group is half empty, one is padding
			src := random(c.typ, rows, k)
			m := pack(t, src)
			want, err := quant.Vector(src)
			if err != nil {
				t.Fatalf("Vector: %v", err)
			}
			got := make([]float32, k)
			for i := range m.Padded {
				m.Row(i, got)
				row := make([]float32, k)
				if i < rows {
					row = want[i*k:][:k]
				}
				top := 0.0
				for _, v := range row {
					top = max(top, math.Abs(float64(v)))
				}
				for j, w := range row {
					if d := math.Abs(float64(got[j]) - float64(w)); d > c.tolerance(float64(w), top) {
						t.Fatalf("row %d column %d is %v, the file has %v", i, j, got[j], w)
					}
				}
			}
		})
	}
}

// A product through the packed form equals the product of the values that Row gives.
func TestMatrix_Mul(t *testing.T) {
	t.Parallel()
	k, err := kernel.Find("scalar")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []gguf.Type{gguf.Q4_0, gguf.Q4_1, gguf.Q4_K, gguf.Q5_0, gguf.Q8_0} {
		const rows, cols = 32, 256
		src := random(typ, rows, cols)
		m := pack(t, src)
		w := make([]float32, rows*cols)
		for r := range rows {
			m.Row(r, w[r*cols:])
		}
		x := make([]float32, cols)
		for i := range x { // integers up to 127 with 127 in each block: quantising is exact
			x[i] = float32(i%32*8 - 121)
		}
		tile, out := make([]byte, cols/32*kernel.XBlock), make([]float32, rows)
		k.Quantise(&x[0], cols, &tile[0], 1, 0)
		m.Mul(k, tile, 1, 0, m.Groups(), out, m.Padded)
		for r := range rows {
			want := 0.0
			for c, v := range x {
				want += float64(w[r*cols+c]) * float64(v)
			}
			if math.Abs(float64(out[r])-want) > 1e-3 {
				t.Errorf("%v row %d: product %v, want %v", typ, r, out[r], want)
			}
		}
	}
}

func TestPlan_Refuses(t *testing.T) {
	t.Parallel()
	unknown := random(gguf.Q8_0, 32, 32)
	unknown.Type = gguf.IQ4_XS
	if _, err := quant.Plan(unknown); !errors.Is(err, quant.ErrType) ||
		!strings.Contains(err.Error(), "x.weight") || !strings.Contains(err.Error(), "IQ4_XS") || !strings.Contains(err.Error(), "4096") {
		t.Errorf("Plan of IQ4_XS: %v, want ErrType with name, type and offset", err)
	}
	if _, err := quant.Vector(unknown); !errors.Is(err, quant.ErrType) {
		t.Errorf("Vector of IQ4_XS: %v, want ErrType", err)
	}
	odd := random(gguf.F32, 32, 40)
	if _, err := quant.Plan(odd); err == nil || !strings.Contains(err.Error(), "[40 32]") {
		t.Errorf("Plan of rows of 40: %v, want an error with the shape", err)
	}
}

func TestMatrix_Pack_NotFinite(t *testing.T) {
	t.Parallel()
	for _, typ := range []gguf.Type{
		gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.Q8_0, gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.F16, gguf.BF16,
	} {
		src := random(typ, 32, 256)
		_, size := typ.Block()
		at := src.Data[len(src.Data)-size:]
		binary.LittleEndian.PutUint16(at[halves(typ)[0]:], 0x7fff) // NaN in both kinds of half
		m, err := quant.Plan(src)
		if err != nil {
			t.Fatal(err)
		}
		m.Data = make([]byte, m.Bytes())
		if err := m.Pack(0, m.Groups()); err == nil || !strings.Contains(err.Error(), "x.weight") {
			t.Errorf("Pack of %v with a NaN scale: %v, want an error naming the tensor", typ, err)
		}
	}
}

// Golden: the values that llama.cpp's Python package gives, bit for bit.
func TestVector_Golden(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/dequantize.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types := map[string]gguf.Type{}
	for typ := range gguf.Type(64) {
		types[typ.String()] = typ
	}
	seen := 0
	for d := json.NewDecoder(f); d.More(); seen++ {
		var c struct {
			Type           string
			Blocks, Values []byte
		}
		if err := d.Decode(&c); err != nil {
			t.Fatal(err)
		}
		n := len(c.Values) / 4
		got, err := quant.Vector(&gguf.Tensor{Name: "x", Type: types[c.Type], Dims: []int{n}, Data: c.Blocks})
		if err != nil {
			t.Errorf("%s: %v", c.Type, err)
			continue
		}
		for i, v := range got {
			if want := binary.LittleEndian.Uint32(c.Values[4*i:]); math.Float32bits(v) != want {
				t.Errorf("%s: value %d of %d is %v, want %v", c.Type, i, n, v, math.Float32frombits(want))
				break
			}
		}
	}
	if seen != 13 {
		t.Errorf("%d types in the file, want 13", seen)
	}
}
