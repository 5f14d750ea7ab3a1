#include "textflag.h"

// expTab holds the constants of exp (see scalar_vector.go), each as a full vector
// of 64 bytes, so that both levels can use them as memory operands.
#define EXPCONST(i, v) \
	DATA ·expTab+(64*i+0)(SB)/8, $v; \
	DATA ·expTab+(64*i+8)(SB)/8, $v; \
	DATA ·expTab+(64*i+16)(SB)/8, $v; \
	DATA ·expTab+(64*i+24)(SB)/8, $v; \
	DATA ·expTab+(64*i+32)(SB)/8, $v; \
	DATA ·expTab+(64*i+40)(SB)/8, $v; \
	DATA ·expTab+(64*i+48)(SB)/8, $v; \
	DATA ·expTab+(64*i+56)(SB)/8, $v

// the least x
EXPCONST(0, 0xc2ae0000c2ae0000)
// the greatest x
EXPCONST(1, 0x42b0000042b00000)
// log2(e)
EXPCONST(2, 0x3fb8aa3b3fb8aa3b)
// ln2, first part
EXPCONST(3, 0x3f3180003f318000)
// ln2, second part
EXPCONST(4, 0xb95e8083b95e8083)
// p0
EXPCONST(5, 0x3950696739506967)
// p1
EXPCONST(6, 0x3ab743ce3ab743ce)
// p2
EXPCONST(7, 0x3c0889083c088908)
// p3
EXPCONST(8, 0x3d2aa9c13d2aa9c1)
// p4
EXPCONST(9, 0x3e2aaaaa3e2aaaaa)
// p5
EXPCONST(10, 0x3f0000003f000000)
// 1
EXPCONST(11, 0x3f8000003f800000)
GLOBL ·expTab(SB), RODATA|NOPTR, $768
