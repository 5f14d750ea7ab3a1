// Package ident makes the names of things: prefixed ids that sort by the time
// they were made and say what they name.
package ident

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// Prefixes of ids.
const (
	Account      = "acct_"
	Key          = "key_"
	Grant        = "grant_"
	Budget       = "budget_"
	Debit        = "debit_"
	Token        = "optoken_"
	Member       = "mem_"
	Session      = "sess_"
	Link         = "link_"
	Subscription = "sub_"
	Code         = "code_"
	Request      = "req_"
	Completion   = "chatcmpl-"
)

// crockford is the base 32 alphabet of Crockford in lower case: it sorts as its values do.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// uuid returns a version 7 UUID. The 12 bits after the version are the fraction
// of the millisecond (RFC 9562, 6.2, method 3), so that ids sort to a quarter of
// a microsecond without shared state.
func uuid() (b [16]byte) {
	rand.Read(b[8:]) // never fails since Go 1.24
	now := uint64(time.Now().UnixNano())
	const ms = 1_000_000
	binary.BigEndian.PutUint64(b[:8], now/ms<<16|0x7000|now%ms*4096/ms)
	b[8] = b[8]&0x3f | 0x80
	return b
}

// New returns prefix and 26 characters of [0-9a-z] that hold a UUIDv7, so that
// ids of one prefix sort by time. It is safe for concurrent use.
func New(prefix string) string {
	s := base32(uuid())
	return prefix + string(s[:])
}

// base32 is u in 26 characters that sort as it does.
func base32(u [16]byte) (s [26]byte) {
	hi, lo := binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])
	for i := range s {
		s[25-i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return s
}

// RequestID returns the id of one request to the service: "req_" and the 32
// hexadecimal digits of a UUIDv7. It is also the id of the request's charge.
func RequestID() string {
	u := uuid()
	var digits [32]byte
	hex.Encode(digits[:], u[:])
	return Request + string(digits[:])
}

// RequestIDsSince returns a text that sorts before every id that [RequestID] makes at t
// or later, and behind those of the millisecond before it and earlier.
func RequestIDsSince(t time.Time) string {
	return fmt.Sprintf("%s%012x", Request, max(0, t.UnixMilli()))
}

// ParseRequestID returns the 16 bytes of an id made by [RequestID].
func ParseRequestID(id string) (u [16]byte, ok bool) {
	digits, ok := strings.CutPrefix(id, Request)
	if !ok || len(digits) != 32 {
		return u, false
	}
	_, err := hex.Decode(u[:], []byte(digits))
	return u, err == nil
}

// CompletionID returns the id of one answer: "chatcmpl-" and 29 characters of
// [0-9A-Za-z], about 172 random bits.
func CompletionID() string { return Completion + random62(29) }

// CompletionOf returns the id of the answer to a request: "chatcmpl-" and the request's
// UUID in 26 characters of [0-9a-z] with a checksum in 3, so that who quotes one names the
// other and no index is needed. A request that [RequestID] has not named gets a [CompletionID].
func CompletionOf(requestID string) string {
	u, ok := ParseRequestID(requestID)
	if !ok {
		return CompletionID()
	}
	sum, digits := crc32.ChecksumIEEE(u[:]), base32(u)
	check := [3]byte{crockford[sum>>10&31], crockford[sum>>5&31], crockford[sum&31]}
	return Completion + string(digits[:]) + string(check[:])
}

// RequestOf returns the request whose answer [CompletionOf] has named.
func RequestOf(completionID string) (requestID string, ok bool) {
	digits, ok := strings.CutPrefix(completionID, Completion)
	if !ok || len(digits) != 29 {
		return "", false
	}
	var hi, lo uint64
	for i := range 26 {
		v := strings.IndexByte(crockford, digits[i])
		if v < 0 || i == 0 && v > 7 { // 26 characters have 130 bits
			return "", false
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(v)
	}
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], lo)
	requestID = Request + hex.EncodeToString(u[:])
	return requestID, CompletionOf(requestID) == completionID
}

func random62(n int) string {
	var raw [64]byte
	s := make([]byte, 0, n)
	for len(s) < n {
		rand.Read(raw[:])
		for _, b := range raw {
			if b < 248 && len(s) < n { // 248 = 4·62: every character is equally likely
				s = append(s, base62[b%62])
			}
		}
	}
	return string(s)
}
