#include "textflag.h"

// Attention for Wide lanes at once: query heads of neighbouring columns of one
// sequence share each conversion of keys and values from float16. A lane's arithmetic
// is that of scoresAVX512 and mixAVX512.

#define ZERO4(a, b, c, d) \
	VPXORD a, a, a; VPXORD b, b, b; VPXORD c, c, c; VPXORD d, d, d
#define ZERO24 \
	ZERO4(Z0, Z1, Z2, Z3); ZERO4(Z4, Z5, Z6, Z7); ZERO4(Z8, Z9, Z10, Z11); \
	ZERO4(Z12, Z13, Z14, Z15); ZERO4(Z16, Z17, Z18, Z19); ZERO4(Z20, Z21, Z22, Z23)

// A lane's factor times the two vectors in Z24 and Z25. VBROADCASTSS would take places
// from the additions (Zen 4: 36 cycles for the 12 lanes, and 24 with VPBROADCASTD).
#define LANE(addr, a, b) \
	VPBROADCASTD addr, Z26; \
	VFMADD231PS Z24, Z26, a; \
	VFMADD231PS Z25, Z26, b

#define DIM(k, q) \
	VCVTPH2PS (k)(AX), Z24; \
	VCVTPH2PS (k)(R10), Z25; \
	LANE((q+0)(DX), Z0, Z1); \
	LANE((q+4)(DX), Z2, Z3); \
	LANE((q+8)(DX), Z4, Z5); \
	LANE((q+12)(DX), Z6, Z7); \
	LANE((q+16)(DX), Z8, Z9); \
	LANE((q+20)(DX), Z10, Z11); \
	LANE((q+24)(DX), Z12, Z13); \
	LANE((q+28)(DX), Z14, Z15); \
	LANE((q+32)(DX), Z16, Z17); \
	LANE((q+36)(DX), Z18, Z19); \
	LANE((q+40)(DX), Z20, Z21); \
	LANE((q+44)(DX), Z22, Z23)

// func scoresWideAVX512(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride int)
// AX, R10 this pair of pages; SI, R11 how far the next one is.
TEXT ·scoresWideAVX512(SB), NOSPLIT, $0-64
	MOVQ pages+16(FP), R8
	MOVQ npages+24(FP), R9
	MOVQ out+48(FP), DI
	MOVQ stride+56(FP), R12
	SHLQ $2, R12
	LEAQ (R12)(R12*2), R13
	LEAQ (R12)(R12*4), R14
	LEAQ (DI)(R13*2), R15
	MOVLQSX (R8), SI
	MOVLQSX 4(R8), R11
	IMULQ pageBytes+32(FP), SI
	IMULQ pageBytes+32(FP), R11
	ADDQ kv+8(FP), SI
	ADDQ kv+8(FP), R11
page:
	MOVQ SI, AX
	MOVQ R11, R10
	CMPQ R9, $2
	JLE last
	MOVLQSX 8(R8), SI
	MOVLQSX 12(R8), R11
	IMULQ pageBytes+32(FP), SI
	IMULQ pageBytes+32(FP), R11
	ADDQ kv+8(FP), SI
	ADDQ kv+8(FP), R11
last:
	SUBQ AX, SI                 // as distances
	SUBQ R10, R11
	MOVQ q+0(FP), DX
	MOVQ hd+40(FP), CX
	ZERO24
dim:                            // two of them, a cache line of each page
	PREFETCHT0 (AX)(SI*1)
	PREFETCHT0 (R10)(R11*1)
	DIM(0, 0)
	DIM(32, 64)
	ADDQ $64, AX
	ADDQ $64, R10
	ADDQ $128, DX
	SUBQ $2, CX
	JNZ dim
	ADDQ AX, SI                 // both have walked a page's keys
	ADDQ R10, R11
	MOVQ hd+40(FP), CX
	SHLQ $5, CX
	SUBQ CX, SI
	SUBQ CX, R11
	VMOVUPS Z0, (DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, (DI)(R12*1)
	VMOVUPS Z3, 64(DI)(R12*1)
	VMOVUPS Z4, (DI)(R12*2)
	VMOVUPS Z5, 64(DI)(R12*2)
	VMOVUPS Z6, (DI)(R13*1)
	VMOVUPS Z7, 64(DI)(R13*1)
	VMOVUPS Z8, (DI)(R12*4)
	VMOVUPS Z9, 64(DI)(R12*4)
	VMOVUPS Z10, (DI)(R14*1)
	VMOVUPS Z11, 64(DI)(R14*1)
	VMOVUPS Z12, (R15)
	VMOVUPS Z13, 64(R15)
	VMOVUPS Z14, (R15)(R12*1)
	VMOVUPS Z15, 64(R15)(R12*1)
	VMOVUPS Z16, (R15)(R12*2)
	VMOVUPS Z17, 64(R15)(R12*2)
	VMOVUPS Z18, (R15)(R13*1)
	VMOVUPS Z19, 64(R15)(R13*1)
	VMOVUPS Z20, (R15)(R12*4)
	VMOVUPS Z21, 64(R15)(R12*4)
	VMOVUPS Z22, (R15)(R14*1)
	VMOVUPS Z23, 64(R15)(R14*1)
	ADDQ $128, DI
	ADDQ $128, R15
	ADDQ $8, R8
	SUBQ $2, R9
	JNZ page
	VZEROUPPER
	RET

// A lane that has this position: R9 is less than its count.
#define SOME(l, addr, a, b) \
	CMPL R9, (4*l)(DX); \
	JGE 4(PC); \
	LANE(addr, a, b)
#define MIXEND(l, a, b) \
	VPBROADCASTD (4*l)(BX), Z26; \
	VMULPS Z26, a, a; \
	VMULPS Z26, b, b; \
	VMOVUPS a, (DX); \
	VMOVUPS b, 64(DX); \
	LEAQ (DX)(R11*2), DX

// func mixWideAVX512(p *float32, stride int, kv *byte, pages, n *int32, pageBytes, hd int, inv, out *float32)
// R9 the position, R10 where its page ends, AX its values, CX how far the next page is.
TEXT ·mixWideAVX512(SB), NOSPLIT, $0-72
	MOVQ stride+8(FP), R12
	MOVQ kv+16(FP), SI
	MOVQ hd+48(FP), R11
	MOVQ out+64(FP), DI
	SHLQ $2, R12
	LEAQ (R12)(R12*2), R13
	LEAQ (R12)(R12*4), R14
	SHLQ $1, R11
dims:                           // 32 of them
	MOVQ p+0(FP), BX
	LEAQ (BX)(R13*2), R15
	MOVQ pages+24(FP), R8
	XORQ R9, R9
	XORQ R10, R10
	ZERO24
page:
	ADDQ $16, R10
	MOVLQSX (R8), AX
	IMULQ pageBytes+40(FP), AX
	ADDQ SI, AX
	MOVQ n+32(FP), DX
	XORQ CX, CX
	CMPL R10, 44(DX)            // the last lane has the most positions
	JGE pos
	MOVLQSX 4(R8), CX
	IMULQ pageBytes+40(FP), CX
	ADDQ SI, CX
	SUBQ AX, CX
pos:
	PREFETCHT0 (AX)(CX*1)
	VCVTPH2PS (AX), Z24
	VCVTPH2PS 32(AX), Z25
	CMPL R9, (DX)               // the first has the fewest
	JGE some
	LANE((BX), Z0, Z1)
	LANE((BX)(R12*1), Z2, Z3)
	LANE((BX)(R12*2), Z4, Z5)
	LANE((BX)(R13*1), Z6, Z7)
	LANE((BX)(R12*4), Z8, Z9)
	LANE((BX)(R14*1), Z10, Z11)
	LANE((R15), Z12, Z13)
	LANE((R15)(R12*1), Z14, Z15)
	LANE((R15)(R12*2), Z16, Z17)
	LANE((R15)(R13*1), Z18, Z19)
	LANE((R15)(R12*4), Z20, Z21)
	LANE((R15)(R14*1), Z22, Z23)
next:
	ADDQ R11, AX
	ADDQ $4, BX
	ADDQ $4, R15
	INCQ R9
	CMPL R9, 44(DX)
	JGE done
	CMPQ R9, R10
	JLT pos
	ADDQ $4, R8
	JMP page
some:
	SOME(0, (BX), Z0, Z1)
	SOME(1, (BX)(R12*1), Z2, Z3)
	SOME(2, (BX)(R12*2), Z4, Z5)
	SOME(3, (BX)(R13*1), Z6, Z7)
	SOME(4, (BX)(R12*4), Z8, Z9)
	SOME(5, (BX)(R14*1), Z10, Z11)
	SOME(6, (R15), Z12, Z13)
	SOME(7, (R15)(R12*1), Z14, Z15)
	SOME(8, (R15)(R12*2), Z16, Z17)
	SOME(9, (R15)(R13*1), Z18, Z19)
	SOME(10, (R15)(R12*4), Z20, Z21)
	SOME(11, (R15)(R14*1), Z22, Z23)
	JMP next
done:
	MOVQ inv+56(FP), BX
	MOVQ DI, DX
	MIXEND(0, Z0, Z1)
	MIXEND(1, Z2, Z3)
	MIXEND(2, Z4, Z5)
	MIXEND(3, Z6, Z7)
	MIXEND(4, Z8, Z9)
	MIXEND(5, Z10, Z11)
	MIXEND(6, Z12, Z13)
	MIXEND(7, Z14, Z15)
	MIXEND(8, Z16, Z17)
	MIXEND(9, Z18, Z19)
	MIXEND(10, Z20, Z21)
	MIXEND(11, Z22, Z23)
	ADDQ $64, SI
	ADDQ $128, DI
	MOVQ out+64(FP), AX
	LEAQ (AX)(R11*2), AX
	CMPQ DI, AX
	JLT dims
	VZEROUPPER
	RET
