package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

// A secret is "sk-parley-", 43 random characters (256 bits) and a checksum of 6.
const (
	secretPrefix = "sk-parley-"
	randomChars  = 43
	sumChars     = 6
	secretLength = len(secretPrefix) + randomChars + sumChars
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Secret is the text of a key as its owner holds it. It is shown once and never stored.
type Secret string

// Hash is what is stored of a secret: a random key of 256 bits has no dictionary,
// so a plain SHA-256 is as good as a slow hash and cannot be used to tire the server.
func (s Secret) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(s)) }

// Prefix is the start of the secret, by which people tell keys apart.
func (s Secret) Prefix() string { return string(s[:len(secretPrefix)+4]) }

// Last4 is the end of the secret.
func (s Secret) Last4() string { return string(s[len(s)-4:]) }

// mint makes a key's secret.
func mint() Secret { return mintToken(secretPrefix) }

// mintToken makes a secret that begins with prefix, which is as long as that of keys.
func mintToken(prefix string) Secret {
	var raw [64]byte
	b := make([]byte, 0, secretLength)
	b = append(b, prefix...)
	for len(b) < len(secretPrefix)+randomChars {
		rand.Read(raw[:])
		for _, c := range raw {
			if c < 248 && len(b) < len(secretPrefix)+randomChars { // 248 = 4·62: no bias
				b = append(b, base62[c%62])
			}
		}
	}
	return Secret(checksum(b, b))
}

// checksum appends the CRC-32 (IEEE) of body in six characters, most significant first.
func checksum(dst, body []byte) []byte {
	var s [sumChars]byte
	for i, n := sumChars-1, crc32.ChecksumIEEE(body); i >= 0; i-- {
		s[i] = base62[n%62]
		n /= 62
	}
	return append(dst, s[:]...)
}

// ParseSecret reports whether s has the form of a key that [Keyring.Create] can
// have made: the right alphabet and length and a checksum that fits. It looks
// nothing up, so a mistyped key costs nothing.
func ParseSecret(s string) (Secret, bool) { return parseSecret(secretPrefix, s) }

func parseSecret(prefix, s string) (Secret, bool) {
	if len(s) != secretLength || !strings.HasPrefix(s, prefix) {
		return "", false
	}
	for i := len(secretPrefix); i < len(s); i++ {
		if c := s[i]; !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
			return "", false
		}
	}
	body := s[:secretLength-sumChars]
	if string(checksum(nil, []byte(body))) != s[len(body):] {
		return "", false
	}
	return Secret(s), true
}

// maxTokenBytes bounds what is taken for a key at all.
const maxTokenBytes = 512

// bearer takes the token out of the values of the Authorization header. It fails
// with [ErrMissing] where there is none or it is of another scheme, and with
// [ErrMalformed] for spaces, line breaks, other unprintable bytes, more than one
// header or more than 512 bytes.
func bearer(values []string) (string, error) {
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return "", ErrMissing
	}
	if len(values) > 1 {
		return "", ErrMalformed
	}
	scheme, token := values[0], ""
	end := strings.IndexAny(scheme, " \t\r\n")
	if end >= 0 {
		scheme, token = scheme[:end], scheme[end+1:]
	}
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", ErrMissing
	}
	if values[0][end] != ' ' || len(token) > maxTokenBytes {
		return "", ErrMalformed
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", ErrMalformed
		}
	}
	return token, nil
}
