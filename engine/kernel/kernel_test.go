package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// each runs f with every level that has assembly: each must give the bits of the
// scalar twin.
func each(t *testing.T, f func(t *testing.T, scalar, k *Table)) {
	t.Helper()
	ts := tables()
	for i := range ts[1:] {
		t.Run(ts[i+1].Name, func(t *testing.T) {
			t.Parallel()
			f(t, &ts[0], &ts[i+1])
		})
	}
}

func floats(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v (%#x), the scalar twin has %v (%#x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// weights makes groups of n random blocks with sane scales; extreme ones when asked.
func weights(r *rand.Rand, block, n, groups int, extreme bool) []byte {
	var w []byte
	for range groups {
		for range n {
			for range block &^ 255 {
				q := byte(r.Uint32())
				if extreme {
					q = []byte{0, 0x80, 0xff, 0x7f}[r.IntN(4)]
				}
				w = append(w, q)
			}
			for range Rows {
				switch {
				case block == S8Block:
					w = binary.LittleEndian.AppendUint16(w, ToHalf(float32(r.NormFloat64()*0.05)))
				case extreme:
					w = binary.LittleEndian.AppendUint32(w, []uint32{0x7fff7fff, 0x80018001, 0x7fff8001}[r.IntN(3)])
				default:
					w = binary.LittleEndian.AppendUint32(w, r.Uint32())
				}
			}
		}
		for range Rows {
			if block == U4Block {
				w = binary.LittleEndian.AppendUint32(w, math.Float32bits(float32(r.NormFloat64()*1e-5)))
			}
		}
	}
	return w
}

func TestTable_Matrices(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, scalar, k *Table) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, nb := range []int{1, 2, 3, 18, 48} {
			for _, extreme := range []bool{false, true} {
				const groups, tiles = 3, 2
				x1, x4 := make([]byte, XBlock*nb), make([]byte, tiles*4*XBlock*nb)
				for c := range 4 * tiles {
					x := floats(r, nb*32, 1)
					if extreme {
						for i := range x {
							x[i] = float32(1 - 2*r.IntN(2)) // quantises to ±127
						}
					}
					scalar.Quantise(&x[0], nb*32, &x4[c/4*4*XBlock*nb], 4, c%4)
					if c == 0 {
						scalar.Quantise(&x[0], nb*32, &x1[0], 1, 0)
					}
				}
				u, s := weights(r, U4Block, nb, groups, extreme), weights(r, S8Block, nb, groups, extreme)
				const stride = groups*Rows + 8
				a, b := make([]float32, tiles*4*stride), make([]float32, tiles*4*stride)
				scalar.U4x4(&u[0], &x4[0], nb, groups, &a[0], stride, tiles, 0, 0)
				k.U4x4(&u[0], &x4[0], nb, groups, &b[0], stride, tiles, 64, 3)
				same(t, "U4x4", b, a)
				k.U4x1(&u[0], &x1[0], nb, groups, &b[0])
				same(t, "U4x1", b[:groups*Rows], a[:groups*Rows]) // one column alone: the same bits
				scalar.S8x4(&s[0], &x4[0], nb, groups, &a[0], stride, tiles, 0, 0)
				k.S8x4(&s[0], &x4[0], nb, groups, &b[0], stride, tiles, 64, 3)
				same(t, "S8x4", b, a)
				k.S8x1(&s[0], &x1[0], nb, groups, &b[0])
				same(t, "S8x1", b[:groups*Rows], a[:groups*Rows])
			}
		}
	})
}

func TestTable_Vectors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, scalar, k *Table) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, n := range []int{32, 64, 576, 1536} {
			x, y := floats(r, n, 3), floats(r, n, 1)
			clear(x[:32]) // a block of zeros
			for _, c := range []int{1, 4} {
				a, b := make([]byte, n/32*XBlock*c), make([]byte, n/32*XBlock*c)
				for col := range c {
					scalar.Quantise(&x[0], n, &a[0], c, col)
					k.Quantise(&x[0], n, &b[0], c, col)
				}
				if !slices.Equal(a, b) {
					t.Fatal("Quantise differs")
				}
			}
			a, b := make([]float32, n), make([]float32, n)
			scalar.RMSNorm(&a[0], &x[0], &y[0], n, 1e-5)
			k.RMSNorm(&b[0], &x[0], &y[0], n, 1e-5)
			same(t, "RMSNorm", b, a)
			scalar.Add(&a[0], &y[0], n)
			k.Add(&b[0], &y[0], n)
			same(t, "Add", b, a)
			a, b = floats(r, n, 30), make([]float32, n)
			copy(b, a)
			scalar.SiLUMul(&a[0], &y[0], n)
			k.SiLUMul(&b[0], &y[0], n)
			same(t, "SiLUMul", b, a)
			a = floats(r, n, 20)
			copy(b, a)
			if scalar.SoftExp(&a[0], n) != k.SoftExp(&b[0], n) {
				t.Fatal("SoftExp: sums differ")
			}
			same(t, "SoftExp", b, a)
			a = floats(r, n, 1)
			copy(b, a)
			scalar.Rotate(&a[0], &x[0], &y[0], n/32, 32)
			k.Rotate(&b[0], &x[0], &y[0], n/32, 32)
			same(t, "Rotate", b, a)
			ha, hb := make([]uint16, n), make([]uint16, n)
			z := floats(r, n, 1)
			for i := range z {
				z[i] *= float32(math.Exp2(float64(r.IntN(50) - 30)))
			}
			scalar.ToF16(&ha[0], &z[0], n)
			k.ToF16(&hb[0], &z[0], n)
			if !slices.Equal(ha, hb) {
				t.Fatal("ToF16 differs")
			}
			if scalar.Max(&x[0], n) != k.Max(&x[0], n) {
				t.Fatal("Max differs")
			}
			ia, ib := make([]int32, n), make([]int32, n)
			for _, limit := range []int{1, 7, n} {
				ca, cb := scalar.AtLeast(&x[0], n, 0.5, &ia[0], limit), k.AtLeast(&x[0], n, 0.5, &ib[0], limit)
				if ca != cb || !slices.Equal(ia[:ca], ib[:cb]) {
					t.Fatal("AtLeast differs")
				}
			}
			y[n/2], y[n-1] = 100, 100
			if a, b := scalar.Argmax(y, &ia[0]), k.Argmax(y, &ib[0]); a != int32(n/2) || b != a {
				t.Fatalf("Argmax = %d, scalar %d, want the first of two equal, %d", b, a, n/2)
			}
		}
	})
}

func TestTable_Attention(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, scalar, k *Table) {
		r := rand.New(rand.NewPCG(5, 6))
		for _, hd := range []int{32, 64, 128} {
			const pagesTotal, npages = 9, 6
			pageBytes := 2 * 2 * Page * hd
			arena := make([]uint16, pagesTotal*pageBytes/2)
			f := floats(r, len(arena), 1)
			scalar.ToF16(&arena[0], &f[0], len(arena))
			kv := (*byte)(unsafe.Pointer(&arena[0]))
			q, pages := floats(r, 4*hd, 0.3), []int32{3, 0, 8, 5, 1, 7}
			ask := Ask{KV: kv, Pages: &[]int32{2, 4}[0], N: 2} // fewer than there are
			for _, stride := range []int{Heads, WideRow} {
				a, b := make([]float32, stride*hd), make([]float32, stride*hd)
				scalar.Spread(&q[0], hd, 0.3, &a[0], stride)
				k.Spread(&q[0], hd, 0.3, &b[0], stride)
				same(t, "Spread", b, a)
			}
			const stride = npages*Page + 16
			for heads := 1; heads <= Heads; heads++ {
				a, b := make([]float32, Heads*stride), make([]float32, Heads*stride)
				scalar.Scores(&q[0], kv, &pages[0], npages, pageBytes, hd, &a[0], stride, heads, &Ask{})
				k.Scores(&q[0], kv, &pages[0], npages, pageBytes, hd, &b[0], stride, heads, &ask)
				same(t, "Scores", b[:heads*stride], a[:heads*stride])
				for _, n := range []int{1, 15, 16, 17, 90, 96} {
					inv := []float32{1, 0.5, 0.3, 0.1}
					o, p := make([]float32, Heads*hd), make([]float32, Heads*hd)
					scalar.Mix(&a[0], stride, kv, &pages[0], n, pageBytes, hd, &inv[0], &o[0], heads, &Ask{})
					k.Mix(&a[0], stride, kv, &pages[0], n, pageBytes, hd, &inv[0], &p[0], heads, &ask)
					same(t, "Mix", p[:heads*hd], o[:heads*hd])
				}
			}
		}
	})
}

// Wide lanes give the bits of four lanes, also where a position that only later
// columns may see holds an infinity.
func TestTable_Wide(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, scalar, k *Table) {
		if k.ScoresWide == nil {
			return
		}
		r := rand.New(rand.NewPCG(7, 8))
		for _, hd := range []int{32, 64, 128} {
			const npages = 4
			const stride = npages*Page + 16
			pageBytes := 2 * 2 * Page * hd
			arena, pages := make([]uint16, 6*pageBytes/2), []int32{3, 0, 5, 1}
			f := floats(r, len(arena), 1)
			scalar.ToF16(&arena[0], &f[0], len(arena))
			kv := (*byte)(unsafe.Pointer(&arena[0]))
			q, n := floats(r, WideRow*hd, 0.3), make([]int32, Wide)
			for _, first := range []int32{1, 15, 16, 50} {
				for l := range n {
					n[l] = first + int32(l/3)
				}
				values := arena[int(pages[int(first)/Page])*pageBytes/2:]
				values[int(first)%Page*hd+1] = 0x7c00 // of position first
				a, b := make([]float32, Wide*stride), make([]float32, Wide*stride)
				k.ScoresWide(&q[0], kv, &pages[0], npages, pageBytes, hd, &b[0], stride)
				p := floats(r, Wide*stride, 1)
				inv, o := floats(r, Wide, 1), make([]float32, Wide*hd)
				k.MixWide(&p[0], stride, kv, &pages[0], &n[0], pageBytes, hd, &inv[0], &o[0])
				for l := range Wide {
					q4, one := make([]float32, Heads*hd), make([]float32, Heads*hd)
					for j := range hd {
						q4[Heads*j] = q[WideRow*j+l]
					}
					scalar.Scores(&q4[0], kv, &pages[0], npages, pageBytes, hd, &a[0], stride, 1, &Ask{})
					same(t, "ScoresWide", b[l*stride:][:npages*Page], a[:npages*Page])
					scalar.Mix(&p[l*stride], 0, kv, &pages[0], int(n[l]), pageBytes, hd, &[]float32{inv[l], 0, 0, 0}[0], &one[0], 1, &Ask{})
					same(t, "MixWide", o[l*hd:][:hd], one[:hd])
				}
			}
		}
	})
}

func TestHalf_RoundTrip(t *testing.T) {
	t.Parallel()
	for h := range 1 << 16 {
		f := FromHalf(uint16(h))
		if f != f { // NaN need only stay NaN
			continue
		}
		if g := ToHalf(f); g != uint16(h) {
			t.Fatalf("%#x -> %v -> %#x", h, f, g)
		}
	}
}

// The sum of an exact product and z is rounded once, also where rounding it to float64
// first would end on a tie of float32 or below its least normal.
func TestFMA(t *testing.T) {
	t.Parallel()
	const up = 1 + 1.0/(1<<23) // the next after 1
	inf, least := float32(math.Inf(1)), float32(math.SmallestNonzeroFloat32)
	for _, c := range [][4]float32{
		{up, up, -1 - 2.0/(1<<23), 1.0 / (1 << 46)},                                 // unfused: 0
		{1 + 1.0/(1<<12), 1 + 1.0/(1<<12), 0, 1 + 2.0/(1<<12)},                      // a tie, to even
		{1 + 1.0/(1<<12), 1 + 1.0/(1<<12), least, 1 + 2.0/(1<<12) + 1.0/(1<<23)},    // just above it
		{1 + 1.0/(1<<12), 1 + 1.0/(1<<12), -least, 1 + 2.0/(1<<12)},                 // just below
		{-1 - 1.0/(1<<12), 1 + 1.0/(1<<12), -least, -1 - 2.0/(1<<12) - 1.0/(1<<23)}, // and negative
		{-1 - 1.0/(1<<12), 1 + 1.0/(1<<12), least, -1 - 2.0/(1<<12)},
		{least, 0.5, 0, 0},
		{least, 0.5, least, 2 * least},
		{least, 0.25, least, least},
		{inf, 1, 1, inf},
		{1, 1, -inf, -inf},
		{math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32},
	} {
		if got := fma(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("fma(%v, %v, %v) = %v, want %v", c[0], c[1], c[2], got, c[3])
		}
	}
	if got := fma(inf, 0, 1); !math.IsNaN(float64(got)) {
		t.Errorf("fma(+Inf, 0, 1) = %v, want NaN", got)
	}
}

func TestExp_Accuracy(t *testing.T) {
	t.Parallel()
	worst, where := 0.0, 0.0
	for i := range 1_000_000 {
		x := float32(-87 + 175*float64(i)/1e6)
		want := math.Exp(float64(x))
		if e := math.Abs(float64(exp(x))-want) / want; e > worst {
			worst, where = e, float64(x)
		}
	}
	// 8.1e-8 was measured over four times as many places.
	if worst > 1.5e-7 {
		t.Errorf("exp: worst relative error %.3g at %g, want at most 1.5e-7", worst, where)
	}
}

func TestTable_Argmax_NaN(t *testing.T) {
	t.Parallel()
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	for _, k := range tables() {
		var scratch int32
		if got := k.Argmax(x, &scratch); got != 0 {
			t.Errorf("%s: Argmax of NaN = %d, want 0", k.Name, got)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	names := Levels()
	if names[0] != "scalar" {
		t.Errorf("Levels() = %v, want scalar first", names)
	}
	for _, n := range names {
		if k, err := Find(n); err != nil || k.Name != n {
			t.Errorf("Find(%q) = %v, %v", n, k, err)
		}
	}
	if k, err := Find(""); err != nil || k.Name != names[len(names)-1] {
		t.Errorf("Find(\"\") = %v, %v, want %s", k, err, names[len(names)-1])
	}
	if _, err := Find("mmx"); err == nil {
		t.Error("Find(mmx) found a level")
	}
}

// GMAC/s of the four-column kernels on a 1536 x 576 matrix in the cache.
func BenchmarkX4(b *testing.B) {
	for _, k := range tables() {
		for _, f := range []struct {
			name  string
			block int
			run   func(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)
		}{{"U4", U4Block, k.U4x4}, {"S8", S8Block, k.S8x4}} {
			b.Run(k.Name+"/"+f.name, func(b *testing.B) {
				w, x, o := make([]byte, (f.block*18+U4Scales)*48), make([]byte, 4*XBlock*18), make([]float32, 4*1536)
				for b.Loop() {
					f.run(&w[0], &x[0], 18, 48, &o[0], 1536, 1, 0, 0)
				}
				b.ReportMetric(float64(b.N)*1536*576*4/b.Elapsed().Seconds()/1e9, "GMAC/s")
			})
		}
	}
}

// What Quantise rounds away and what the tile holds add up to the input, and a
// second tile of it leaves a 127th.
func TestResidue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _, k *Table) {
		r := rand.New(rand.NewPCG(15, 16))
		x := floats(r, 96, 1)
		x[40] = 3000
		tile := make([]byte, 3*4*XBlock)
		for pass := range 2 {
			top := make([]float32, 3)
			for i, v := range x {
				top[i/Cols] = max(top[i/Cols], v, -v)
			}
			k.Quantise(&x[0], len(x), &tile[0], 4, 2)
			Residue(x, &tile[0], 4, 2)
			for i, v := range x {
				if max(v, -v) > top[i/Cols]/127*0.501 {
					t.Fatalf("pass %d leaves %v of a block of at most %v", pass, v, top[i/Cols])
				}
			}
		}
	})
}
