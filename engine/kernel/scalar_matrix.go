package kernel

import (
	"encoding/binary"
	"unsafe"
)

func u4x1(w, x *byte, nb, groups int, out *float32) { u4(w, x, nb, groups, out, 1, 0) }
func s8x1(w, x *byte, nb, groups int, out *float32) { s8(w, x, nb, groups, out, 1, 0) }
func u4x4(w, x *byte, nb, groups int, out *float32, stride, tiles, _, _ int) {
	for t := range tiles {
		u4(w, at(x, t*nb*4*XBlock), nb, groups, at(out, t*4*stride), 4, stride)
	}
}

func s8x4(w, x *byte, nb, groups int, out *float32, stride, tiles, _, _ int) {
	for t := range tiles {
		s8(w, at(x, t*nb*4*XBlock), nb, groups, at(out, t*4*stride), 4, stride)
	}
}

// dot multiplies 32 weights by 32 inputs.
func dot(w *[Cols]int32, q *[Cols]int8) (sum int32) {
	for i, v := range w {
		sum += v * int32(q[i])
	}
	return
}

func u4(w, x *byte, nb, groups int, out *float32, cols, stride int) {
	for g := range groups {
		group := at(w, g*(nb*U4Block+U4Scales))
		var acc [4][Rows]float32
		for b := range nb {
			wb := (*[U4Block]byte)(unsafe.Pointer(at(group, b*U4Block)))
			xb := at(x, b*XBlock*cols)
			for r := range Rows {
				var q [Cols]int32
				for p := range 4 {
					v := int32(binary.LittleEndian.Uint32(wb[128*p+4*r:]))
					lo, hi := (*[4]int32)(q[4*p:]), (*[4]int32)(q[16+4*p:])
					lo[0], lo[1], lo[2], lo[3] = v&15, v>>8&15, v>>16&15, v>>24&15
					hi[0], hi[1], hi[2], hi[3] = v>>4&15, v>>12&15, v>>20&15, v>>28&15
				}
				d, m := int16(binary.LittleEndian.Uint16(wb[512+4*r:])), int16(binary.LittleEndian.Uint16(wb[514+4*r:]))
				for c := range cols {
					s := *(*int32)(unsafe.Pointer(at(xb, 4*cols+4*c)))
					s += dot(&q, (*[Cols]int8)(unsafe.Pointer(at(xb, 12*cols+32*c))))
					t := int32(d)*int32(int16(s^1<<15)) + int32(m)*(s>>16)
					acc[c][r] += float32(float32(t) * f32at(xb, 4*c))
				}
			}
		}
		for c := range cols {
			for r, v := range acc[c] {
				*at(out, c*stride+g*Rows+r) = v * f32at(group, nb*U4Block+4*r)
			}
		}
	}
}

func s8(w, x *byte, nb, groups int, out *float32, cols, stride int) {
	for g := range groups {
		var acc [4][Rows]float32
		for b := range nb {
			wb := (*[S8Block]byte)(unsafe.Pointer(at(w, (g*nb+b)*S8Block)))
			xb := at(x, b*XBlock*cols)
			for r := range Rows {
				var q [Cols]int32
				for p := range 8 {
					v := binary.LittleEndian.Uint32(wb[128*p+4*r:])
					o := (*[4]int32)(q[4*p:])
					o[0], o[1], o[2], o[3] = int32(int8(v)), int32(int8(v>>8)), int32(int8(v>>16)), int32(int8(v>>24))
				}
				d := FromHalf(binary.LittleEndian.Uint16(wb[1024+2*r:]))
				for c := range cols {
					n := float32(dot(&q, (*[Cols]int8)(unsafe.Pointer(at(xb, 12*cols+32*c)))))
					acc[c][r] += float32(n * float32(d*f32at(xb, 4*c)))
				}
			}
		}
		for c := range cols {
			*(*[Rows]float32)(unsafe.Pointer(at(out, c*stride+g*Rows))) = acc[c]
		}
	}
}
