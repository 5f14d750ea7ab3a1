package gguf

import "strconv"

// Type is a tensor's element type as ggml numbers them.
type Type uint32

// The types of ggml. The gaps are types that were removed from it.
const (
	F32      Type = 0
	F16      Type = 1
	Q4_0     Type = 2
	Q4_1     Type = 3
	Q5_0     Type = 6
	Q5_1     Type = 7
	Q8_0     Type = 8
	Q8_1     Type = 9
	Q2_K     Type = 10
	Q3_K     Type = 11
	Q4_K     Type = 12
	Q5_K     Type = 13
	Q6_K     Type = 14
	Q8_K     Type = 15
	IQ2_XXS  Type = 16
	IQ2_XS   Type = 17
	IQ3_XXS  Type = 18
	IQ1_S    Type = 19
	IQ4_NL   Type = 20
	IQ3_S    Type = 21
	IQ2_S    Type = 22
	IQ4_XS   Type = 23
	I8       Type = 24
	I16      Type = 25
	I32      Type = 26
	I64      Type = 27
	F64      Type = 28
	IQ1_M    Type = 29
	BF16     Type = 30
	Q4_0_4_4 Type = 31
	Q4_0_4_8 Type = 32
	Q4_0_8_8 Type = 33
	TQ1_0    Type = 34
	TQ2_0    Type = 35
	MXFP4    Type = 39
	NVFP4    Type = 40
)

// describe is the one table of the types: name, values of a block and its bytes.
func (t Type) describe() (name string, values, bytes int) {
	switch t {
	case F32:
		return "F32", 1, 4
	case F16:
		return "F16", 1, 2
	case BF16:
		return "BF16", 1, 2
	case F64:
		return "F64", 1, 8
	case I8:
		return "I8", 1, 1
	case I16:
		return "I16", 1, 2
	case I32:
		return "I32", 1, 4
	case I64:
		return "I64", 1, 8
	case Q4_0:
		return "Q4_0", 32, 18
	case Q4_1:
		return "Q4_1", 32, 20
	case Q5_0:
		return "Q5_0", 32, 22
	case Q5_1:
		return "Q5_1", 32, 24
	case Q8_0:
		return "Q8_0", 32, 34
	case Q8_1:
		return "Q8_1", 32, 36
	case MXFP4:
		return "MXFP4", 32, 17
	case NVFP4:
		return "NVFP4", 64, 36
	case Q2_K:
		return "Q2_K", 256, 84
	case Q3_K:
		return "Q3_K", 256, 110
	case Q4_K:
		return "Q4_K", 256, 144
	case Q5_K:
		return "Q5_K", 256, 176
	case Q6_K:
		return "Q6_K", 256, 210
	case Q8_K:
		return "Q8_K", 256, 292
	}
	return t.describeRare()
}

func (t Type) describeRare() (name string, values, bytes int) {
	switch t {
	case IQ1_S:
		return "IQ1_S", 256, 50
	case IQ1_M:
		return "IQ1_M", 256, 56
	case IQ2_XXS:
		return "IQ2_XXS", 256, 66
	case IQ2_XS:
		return "IQ2_XS", 256, 74
	case IQ2_S:
		return "IQ2_S", 256, 82
	case IQ3_XXS:
		return "IQ3_XXS", 256, 98
	case IQ3_S:
		return "IQ3_S", 256, 110
	case IQ4_NL:
		return "IQ4_NL", 32, 18
	case IQ4_XS:
		return "IQ4_XS", 256, 136
	case TQ1_0:
		return "TQ1_0", 256, 54
	case TQ2_0:
		return "TQ2_0", 256, 66
	// Removed from ggml: files hold them no more, and their layout was never
	// one of rows.
	case Q4_0_4_4:
		return "Q4_0_4_4", 0, 0
	case Q4_0_4_8:
		return "Q4_0_4_8", 0, 0
	case Q4_0_8_8:
		return "Q4_0_8_8", 0, 0
	}
	return "type " + strconv.FormatUint(uint64(t), 10), 0, 0
}

// Block returns the values a block holds and the bytes it takes; 0, 0 for a
// type that is not known.
func (t Type) Block() (values, bytes int) {
	_, values, bytes = t.describe()
	return values, bytes
}

// String returns ggml's name of the type, or "type N" for one not known.
func (t Type) String() string {
	name, _, _ := t.describe()
	return name
}
