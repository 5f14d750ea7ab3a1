package member

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// The cost of a password's hash: OWASP's least for argon2id, 20 ms of one core. A stored
// hash of other figures is made again when its member signs in.
const (
	argonMemory  = 19 << 10 // KiB
	argonPasses  = 2
	argonThreads = 1
	argonKey     = 32
	argonSalt    = 16
)

// hashQueue is how many proofs may wait for a core; at 20 ms each the last waits a second
// and a half of one. Those beyond are refused at once.
const hashQueue = 64

// CheckPassword fails with [ErrWeak] for a password that nobody may choose.
func CheckPassword(p string) error {
	if n := utf8.RuneCountInString(p); n < 12 || n > 256 || !utf8.ValidString(p) {
		return ErrWeak
	}
	return nil
}

// hasher computes hashes, one a core at most: each takes 19 MiB while it runs.
type hasher struct {
	cores chan struct{}
	queue chan struct{}
	decoy string // a hash that nobody's password has
}

func newHasher() *hasher {
	h := &hasher{cores: make(chan struct{}, runtime.GOMAXPROCS(0)), queue: make(chan struct{}, hashQueue)}
	var none [32]byte
	rand.Read(none[:])
	h.decoy = phc(string(none[:]))
	return h
}

// enter waits for a core; leave gives it back. It fails with [ErrBusy] or ctx's error.
func (h *hasher) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.queue <- struct{}{}:
	default:
		return nil, ErrBusy
	}
	defer func() { <-h.queue }()
	select {
	case h.cores <- struct{}{}:
		return func() { <-h.cores }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hash returns a new PHC string of the password.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return phc(password), nil
}

// verify reports whether stored is a hash of password, and whether it should be made anew.
// An empty stored takes as long as any and is never right.
func (h *hasher) verify(ctx context.Context, stored, password string) (right, stale bool, err error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return false, false, err
	}
	defer leave()
	known := stored != ""
	if !known {
		stored = h.decoy
	}
	p, err := parsePHC(stored)
	if err != nil {
		return false, false, err
	}
	key := argon2.IDKey([]byte(password), p.salt, p.passes, p.memory, p.threads, uint32(len(p.key)))
	right = known && subtle.ConstantTimeCompare(key, p.key) == 1
	return right, p.memory != argonMemory || p.passes != argonPasses || p.threads != argonThreads || len(p.key) != argonKey, nil
}

// phc hashes password with a salt of its own.
func phc(password string) string {
	var salt [argonSalt]byte
	rand.Read(salt[:])
	key := argon2.IDKey([]byte(password), salt[:], argonPasses, argonMemory, argonThreads, argonKey)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonPasses, argonThreads, b64.EncodeToString(salt[:]), b64.EncodeToString(key))
}

// phcHash is a PHC string that has been read.
type phcHash struct {
	memory, passes uint32
	threads        uint8
	salt, key      []byte
}

func parsePHC(s string) (p phcHash, err error) {
	parts := strings.Split(s, "$")
	bad := fmt.Errorf("a password's hash is no PHC string of argon2id version %d", argon2.Version)
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return p, bad
	}
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.passes, &p.threads); n != 3 || err != nil || p.passes == 0 || p.threads == 0 {
		return p, bad
	}
	var err1, err2 error
	p.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
	p.key, err2 = base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(p.key) == 0 {
		return p, bad
	}
	return p, nil
}
