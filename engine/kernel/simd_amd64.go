package kernel

func cpuid(leaf, sub uint32) (a, b, c, d uint32)
func xgetbv() uint32

// Pause rests the core for n > 0 short pauses (23 ns each on Zen 5); for spinning.
func Pause(n int)

// Stream reads n bytes (n%256 == 0) as fast as memory gives them and returns
// some sum of them; it needs AVX2. For benchmarks.
//
//go:noescape
func Stream(p *byte, n int) uint64

//go:noescape
func u4x1vnni(w, x *byte, nb, groups int, out *float32)

//go:noescape
func u4x4vnni(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)

//go:noescape
func s8x1vnni(w, x *byte, nb, groups int, out *float32)

//go:noescape
func s8x4vnni(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)

//go:noescape
func u4x1avx2(w, x *byte, nb, groups int, out *float32)

//go:noescape
func u4x4avx2(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)

//go:noescape
func s8x1avx2(w, x *byte, nb, groups int, out *float32)

//go:noescape
func s8x4avx2(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)

//go:noescape
func quantiseAVX2(x *float32, n int, tile *byte, cols, col int)

//go:noescape
func quantiseAVX512(x *float32, n int, tile *byte, cols, col int)

//go:noescape
func rmsNormAVX2(dst, x, w *float32, n int, eps float32)

//go:noescape
func addAVX2(x, y *float32, n int)

//go:noescape
func siluMulAVX2(gate, up *float32, n int)

//go:noescape
func siluMulAVX512(gate, up *float32, n int)

//go:noescape
func rotateAVX2(x, cos, sin *float32, heads, hd int)

//go:noescape
func toF16AVX2(dst *uint16, src *float32, n int)

//go:noescape
func spreadAVX2(q *float32, hd int, scale float32, dst *float32, stride int)

//go:noescape
func scoresAVX2(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride, heads int, ask *Ask)

//go:noescape
func scoresAVX512(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride, heads int, ask *Ask)

//go:noescape
func softExpAVX2(x *float32, n int) float32

//go:noescape
func softExpAVX512(x *float32, n int) float32

//go:noescape
func mixAVX2(p *float32, stride int, kv *byte, pages *int32, n, pageBytes, hd int, inv, out *float32, heads int, ask *Ask)

//go:noescape
func mixAVX512(p *float32, stride int, kv *byte, pages *int32, n, pageBytes, hd int, inv, out *float32, heads int, ask *Ask)

//go:noescape
func scoresWideAVX512(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride int)

//go:noescape
func mixWideAVX512(p *float32, stride int, kv *byte, pages, n *int32, pageBytes, hd int, inv, out *float32)

//go:noescape
func maxAVX2(x *float32, n int) float32

//go:noescape
func atLeastAVX2(x *float32, n int, t float32, dst *int32, limit int) int

// simdTables asks the processor, and the system through XCR0, what may be used.
func simdTables() []Table {
	_, _, c1, _ := cpuid(1, 0)
	const fma, osxsave, avx, f16c = 1 << 12, 1 << 27, 1 << 28, 1 << 29
	if c1&(fma|osxsave|avx|f16c) != fma|osxsave|avx|f16c {
		return nil
	}
	_, b7, c7, _ := cpuid(7, 0)
	const avx2, ymm = 1 << 5, 6
	if b7&avx2 == 0 || xgetbv()&ymm != ymm {
		return nil
	}
	t := Table{
		Name: "avx2",
		U4x1: u4x1avx2, S8x1: s8x1avx2, U4x4: u4x4avx2, S8x4: s8x4avx2,
		Quantise: quantiseAVX2, RMSNorm: rmsNormAVX2, Add: addAVX2, SiLUMul: siluMulAVX2,
		Rotate: rotateAVX2, ToF16: toF16AVX2, Spread: spreadAVX2, Scores: scoresAVX2, SoftExp: softExpAVX2,
		Mix: mixAVX2, Max: maxAVX2, AtLeast: atLeastAVX2,
	}
	ts := []Table{t}
	const f, dq, bw, vl = 1 << 16, 1 << 17, 1 << 30, 1 << 31
	const vnni, zmm = 1 << 11, 0xe6
	if b7&(f|dq|bw|vl) == f|dq|bw|vl && c7&vnni != 0 && xgetbv()&zmm == zmm {
		t.Name = "avx512"
		t.U4x1, t.S8x1, t.U4x4, t.S8x4, t.Ahead = u4x1vnni, s8x1vnni, u4x4vnni, s8x4vnni, 8192
		t.Quantise, t.SiLUMul, t.Scores, t.SoftExp, t.Mix = quantiseAVX512, siluMulAVX512, scoresAVX512, softExpAVX512, mixAVX512
		t.ScoresWide, t.MixWide = scoresWideAVX512, mixWideAVX512
		ts = append(ts, t)
	}
	return ts
}
