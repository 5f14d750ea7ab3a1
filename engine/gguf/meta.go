package gguf

import (
	"encoding/binary"
	"math"
)

// kind is a metadata value's type as the format numbers it.
type kind uint32

const (
	kindUint8 kind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// size is the bytes of a value of fixed size, 0 for the others.
func (k kind) size() uint64 {
	switch k {
	case kindUint8, kindInt8, kindBool:
		return 1
	case kindUint16, kindInt16:
		return 2
	case kindUint32, kindInt32, kindFloat32:
		return 4
	case kindUint64, kindInt64, kindFloat64:
		return 8
	}
	return 0
}

// value is a checked but undecoded metadata value: for an array its elements'
// kind, their number and their bytes.
type value struct {
	kind  kind
	array bool
	n     uint64
	off   int
	data  []byte
}

// maxDepth of arrays in arrays: the format sets no limit, no known file has two.
const maxDepth = 4

// value checks the value at the cursor and steps over it.
func (c *cursor) value(key string) value {
	v := value{kind: kind(c.u32("type of " + clip(key))), n: 1}
	if v.kind == kindArray {
		v.array = true
		v.kind = kind(c.u32("element type of " + clip(key)))
		v.n = c.u64("length of " + clip(key))
	}
	v.off = c.off
	c.skip(key, v.kind, v.n, 1)
	if c.err == nil {
		v.data = c.b[v.off:c.off]
	}
	return v
}

// skip steps over n values. Every value takes at least a byte, so that work is
// bounded by the file whatever n says.
func (c *cursor) skip(key string, k kind, n uint64, depth int) {
	if c.err != nil {
		return
	}
	if size := k.size(); size > 0 {
		if n > uint64(len(c.b)-c.off)/size {
			c.truncated(c.off, "%q has %d values of %d bytes, more than the file holds", clip(key), n, size)
			return
		}
		c.off += int(n * size)
		return
	}
	switch {
	case k == kindString:
		for ; n > 0 && c.err == nil; n-- {
			c.take(c.u64("string"), "string")
		}
	case k == kindArray && depth < maxDepth:
		for ; n > 0 && c.err == nil; n-- {
			k := kind(c.u32("element type"))
			c.skip(key, k, c.u64("array length"), depth+1)
		}
	case k == kindArray:
		c.fail(c.off, "%q nests arrays too deeply", clip(key))
	default:
		c.fail(c.off, "%q has the unknown value type %d", clip(key), k)
	}
}

// integer decodes the first bytes of p; false if it is no integer or too large.
func integer(k kind, p []byte) (int, bool) {
	var v int64
	switch k {
	case kindUint8:
		v = int64(p[0])
	case kindInt8:
		v = int64(int8(p[0]))
	case kindUint16:
		v = int64(binary.LittleEndian.Uint16(p))
	case kindInt16:
		v = int64(int16(binary.LittleEndian.Uint16(p)))
	case kindUint32:
		v = int64(binary.LittleEndian.Uint32(p))
	case kindInt32:
		v = int64(int32(binary.LittleEndian.Uint32(p)))
	case kindUint64, kindInt64:
		v = int64(binary.LittleEndian.Uint64(p))
		if k == kindUint64 && v < 0 {
			return 0, false
		}
	default:
		return 0, false
	}
	return int(v), int64(int(v)) == v
}

// Int returns a metadata value of any integer type. False means that it is
// absent, of another type, or does not fit an int.
func (f *File) Int(key string) (int, bool) {
	v, ok := f.meta[key]
	if !ok || v.array {
		return 0, false
	}
	return integer(v.kind, v.data)
}

// Float returns a metadata value of any floating-point or integer type.
func (f *File) Float(key string) (float64, bool) {
	v, ok := f.meta[key]
	switch {
	case !ok || v.array:
		return 0, false
	case v.kind == kindFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.data))), true
	case v.kind == kindFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.data)), true
	}
	n, ok := integer(v.kind, v.data)
	return float64(n), ok
}

// Bool returns a metadata value of type bool.
func (f *File) Bool(key string) (value, ok bool) {
	v, ok := f.meta[key]
	if !ok || v.array || v.kind != kindBool {
		return false, false
	}
	return v.data[0] != 0, true
}

// String returns a metadata value of type string. It need not be valid UTF-8.
func (f *File) String(key string) (string, bool) {
	v, ok := f.meta[key]
	if !ok || v.array || v.kind != kindString {
		return "", false
	}
	return string(v.data[8:]), true
}

// Strings decodes an array of strings.
func (f *File) Strings(key string) ([]string, bool) {
	v, ok := f.meta[key]
	if !ok || !v.array || v.kind != kindString {
		return nil, false
	}
	// One copy for all: the strings outlive the mapping.
	all := string(v.data)
	out := make([]string, v.n)
	for i := range out {
		n := binary.LittleEndian.Uint64(v.data[len(v.data)-len(all):])
		out[i] = all[8 : 8+n]
		all = all[8+n:]
	}
	return out, true
}

// Ints decodes an array of any integer type. False also if one value does not
// fit an int.
func (f *File) Ints(key string) ([]int, bool) {
	v, ok := f.meta[key]
	if !ok || !v.array || v.kind == kindFloat32 || v.kind == kindFloat64 || v.kind == kindBool || v.kind.size() == 0 {
		return nil, false
	}
	out := make([]int, v.n)
	for i := range out {
		if out[i], ok = integer(v.kind, v.data[uint64(i)*v.kind.size():]); !ok {
			return nil, false
		}
	}
	return out, true
}
