package kernel

import (
	"math"
	"unsafe"
)

// tiny is the magnitude below which a block of inputs counts as zero; it keeps 127/max finite.
const tiny = 1e-30

func quantise(x *float32, n int, tile *byte, cols, c int) {
	for b := range n / Cols {
		in := unsafe.Slice(at(x, b*Cols), Cols)
		xb := at(tile, b*XBlock*cols)
		q := unsafe.Slice((*int8)(unsafe.Pointer(at(xb, 12*cols+32*c))), Cols)
		top := float32(tiny)
		for _, v := range in {
			top = max(top, math.Float32frombits(math.Float32bits(v)&^(1<<31)))
		}
		d, inv, sum := top/127, 127/top, int32(0)
		for i, v := range in {
			const magic = 3 << 22 // adding it rounds to an integer, ties to even
			r := int32(float32(float32(v*inv)+magic) - magic)
			q[i] = int8(r)
			sum += r
		}
		*(*float32)(unsafe.Pointer(at(xb, 4*c))) = d
		*(*int32)(unsafe.Pointer(at(xb, 4*cols+4*c))) = sum<<16 + 1<<15 - 8*sum
		*(*int32)(unsafe.Pointer(at(xb, 8*cols+4*c))) = -128 * sum
	}
}

// tree adds 16 lanes in the fixed order.
func tree(a [16]float32) float32 {
	for h := 8; h > 0; h /= 2 {
		for i := range h {
			a[i] += a[i+h]
		}
	}
	return a[0]
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func rmsNorm(dst, x, w *float32, n int, eps float32) {
	var a [16]float32
	for i := range n {
		v := *at(x, i)
		a[i%16] += float32(v * v)
	}
	inv := 1 / sqrt(tree(a)/float32(n)+eps)
	for i := range n {
		*at(dst, i) = float32(*at(x, i)*inv) * *at(w, i)
	}
}

func add(x, y *float32, n int) {
	for i := range n {
		*at(x, i) += *at(y, i)
	}
}

// Constants of exp: Cephes' expf. x = k*ln2 + r, the first part of ln2 exact in few
// bits so that k*ln2hi has no rounding; then a polynomial of degree 6 in r.
const (
	expLo, expHi = -87, 88
	log2e        = 1.44269504088896341
	ln2hi        = 0.693359375
	ln2lo        = -2.12194440e-4
	p0           = 1.9875691500e-4
	p1           = 1.3981999507e-3
	p2           = 8.3334519073e-3
	p3           = 4.1665795894e-2
	p4           = 1.6666665459e-1
	p5           = 5.0000001201e-1
)

// exp of x clamped to [-87, 88]; about 1 unit in the last place.
func exp(x float32) float32 {
	x = min(max(x, expLo), expHi)
	const magic = 3 << 22
	k := float32(float32(x*log2e)+magic) - magic
	r := fma(-k, ln2hi, x)
	r = fma(-k, ln2lo, r)
	p := fma(p0, r, p1)
	p = fma(p, r, p2)
	p = fma(p, r, p3)
	p = fma(p, r, p4)
	p = fma(p, r, p5)
	p = fma(p, r*r, r)
	p = p + 1
	return math.Float32frombits(math.Float32bits(p) + uint32(int32(k))<<23)
}

func siluMul(g, u *float32, n int) {
	for i := range n {
		v := *at(g, i)
		*at(g, i) = float32(v/(1+exp(-v))) * *at(u, i)
	}
}

func rotate(x, cos, sin *float32, heads, hd int) {
	for h := range heads {
		for i := 0; i < hd; i += 2 {
			a, b := at(x, h*hd+i), at(x, h*hd+i+1)
			va, vb := *a, *b
			*a = float32(va**at(cos, i)) + float32(vb**at(sin, i))
			*b = float32(vb**at(cos, i+1)) + float32(va**at(sin, i+1))
		}
	}
}

func toF16(dst *uint16, src *float32, n int) {
	for i := range n {
		*at(dst, i) = ToHalf(*at(src, i))
	}
}

func spread(q *float32, hd int, scale float32, dst *float32, stride int) {
	for h := range Heads {
		for j := range hd {
			*at(dst, j*stride+h) = *at(q, h*hd+j) * scale
		}
	}
}

func scores(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride, heads int, _ *Ask) {
	for p := range npages {
		k := at(kv, int(*at(pages, p))*pageBytes)
		for h := range heads {
			for i := range Page {
				s := float32(0)
				for d := range hd {
					s = fma(*at(q, 4*d+h), f16at(k, 2*(Page*d+i)), s)
				}
				*at(out, h*stride+Page*p+i) = s
			}
		}
	}
}

func softExp(x *float32, n int) float32 {
	m := maxOf(x, n)
	var a [16]float32
	for i := range n {
		e := exp(*at(x, i) - m)
		*at(x, i) = e
		a[i%16] += e
	}
	return 1 / tree(a)
}

func mix(p *float32, stride int, kv *byte, pages *int32, n, pageBytes, hd int, inv, out *float32, heads int, _ *Ask) {
	for h := range heads {
		for d := range hd {
			s := float32(0)
			for i := range n {
				v := at(kv, int(*at(pages, i/Page))*pageBytes)
				s = fma(*at(p, h*stride+i), f16at(v, 2*(i%Page*hd+d)), s)
			}
			*at(out, h*hd+d) = s * *at(inv, h)
		}
	}
}

func maxOf(x *float32, n int) float32 {
	m := *x
	for i := range n {
		m = max(m, *at(x, i))
	}
	return m
}

func atLeast(x *float32, n int, t float32, dst *int32, limit int) int {
	c := 0
	for i := 0; i < n && c < limit; i++ {
		if *at(x, i) >= t {
			*at(dst, c) = int32(i)
			c++
		}
	}
	return c
}
