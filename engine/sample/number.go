package sample

import "math/bits"

// philox is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC11): a counter and a key in, random bits out.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xd2511f53, counter[0])
		hi1, lo1 := bits.Mul32(0xcd9e8d57, counter[2])
		counter = [4]uint32{hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0}
		key[0] += 0x9e3779b9
		key[1] += 0xbb67ae85
	}
	return counter
}

// place is what a random number is for. One of the answers to a prompt may need
// several at a position.
type place struct {
	position uint64
	choice   uint32
	draw     uint32
}

// uniform returns a number in [0, 1) of 53 bits for the place.
func uniform(seed uint64, at place) float64 {
	r := philox([4]uint32{uint32(at.position), uint32(at.position >> 32), at.choice, at.draw}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(r[0])<<32|uint64(r[1]))>>11) * 0x1p-53
}
