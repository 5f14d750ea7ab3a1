package member

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" // what authenticator apps compute with
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// One-time codes as authenticator apps make them: RFC 6238 with SHA-1, 6 digits, 30 seconds.
const (
	codeStep    = 30 * time.Second
	codeDigits  = 6
	codeSecret  = 20 // bytes, as RFC 4226 recommends
	codeDrift   = 1  // steps that a clock may be wrong, to either side
	recoveries  = 10
	pendingKeep = 10 * time.Minute
)

// recoveryAlphabet has no characters that look like others.
var recoveryAlphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// codeAt is the code of a step.
func codeAt(secret []byte, step int64) string {
	mac := hmac.New(sha1.New, secret)
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step))
	mac.Write(counter[:])
	sum := mac.Sum(nil)
	at := sum[len(sum)-1] & 15
	n := binary.BigEndian.Uint32(sum[at:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", codeDigits, n%1_000_000)
}

// matchCode returns the step whose code was given; false when there is none near that time.
func matchCode(secret []byte, code string, now time.Time) (step int64, ok bool) {
	at := now.Unix() / int64(codeStep/time.Second)
	for s := at - codeDrift; s <= at+codeDrift; s++ {
		if subtle.ConstantTimeCompare([]byte(codeAt(secret, s)), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}

// CodeSecret is what an authenticator app is given.
type CodeSecret []byte

// Text is the secret for typing it in.
func (s CodeSecret) Text() string {
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(s)
	var groups []string
	for ; len(text) > 4; text = text[4:] {
		groups = append(groups, text[:4])
	}
	return strings.Join(append(groups, text), " ")
}

// URL is the secret for scanning it.
func (s CodeSecret) URL(email string) string {
	q := url.Values{"secret": {strings.ReplaceAll(s.Text(), " ", "")}, "issuer": {"Parley"}}
	return "otpauth://totp/" + url.PathEscape("Parley:"+email) + "?" + q.Encode()
}

// Proof is what a code proves: a step that was not used before, or one of the recovery codes.
type Proof struct {
	Step     int64
	Recovery Hash // zero where it is a step
}

// proofOf reads a code or a recovery code. It fails with [ErrWrong].
func proofOf(m *Member, code string, now time.Time) (Proof, error) {
	code = strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(code))
	if len(code) == codeDigits {
		if step, ok := matchCode(m.TOTP, code, now); ok && step > m.TOTPStep {
			return Proof{Step: step}, nil
		}
		return Proof{}, ErrWrong
	}
	return Proof{Recovery: recoveryHash(code)}, nil // only the store knows it
}

// recoveryHash is what is kept of a recovery code: 80 random bits need nothing slower.
func recoveryHash(code string) Hash { return sha256.Sum256([]byte(code)) }

// newRecoveries makes recovery codes, as they are shown, and their hashes.
func newRecoveries() (codes []string, hashes []Hash) {
	for range recoveries {
		var b [10]byte
		rand.Read(b[:])
		c := recoveryAlphabet.EncodeToString(b[:])
		codes = append(codes, c[:4]+"-"+c[4:8]+"-"+c[8:12]+"-"+c[12:])
		hashes = append(hashes, recoveryHash(c))
	}
	return codes, hashes
}

// EnterCode ends a sign-in with the visitor's code, or a recovery code, and gives its session
// another token. It fails with [ErrWrong], for a code that was used before too, or
// [*ThrottledError].
func (g *Gate) EnterCode(ctx context.Context, v *Visitor, code string, from From) (Token, error) {
	now := g.Now()
	if err := g.addresses.try(network(from.Address), now); err != nil {
		return "", err
	}
	if err := g.accounts.try(v.Member.Email, now); err != nil {
		return "", err
	}
	proof, err := proofOf(&v.Member, code, now)
	if err != nil {
		return "", err
	}
	s, old := v.Session, v.Session.Hash
	t := newToken()
	s.Hash, s.Stage = t.Hash(), Open
	s.SeenAt = now.UTC().Truncate(time.Microsecond)
	s.CreatedAt, s.ProvedAt = s.SeenAt, s.SeenAt
	if err := g.Store.UseCode(ctx, old, s, proof); err != nil {
		return "", err
	}
	g.accounts.right(v.Member.Email)
	return t, nil
}

// BeginCodes returns a secret for the visitor's app. It counts when [Gate.ConfirmCodes] has seen
// a code of it, within ten minutes; until then it is the same.
func (g *Gate) BeginCodes(v *Visitor) CodeSecret {
	var secret CodeSecret
	g.pending.use(v.Member.ID, g.Now(), func(s *CodeSecret) {
		if *s == nil {
			*s = make(CodeSecret, codeSecret)
			rand.Read(*s)
		}
		secret = *s
	})
	return secret
}

// ConfirmCodes turns one-time codes on for the visitor, who has shown one, and returns its
// recovery codes, once, and another token of its session; its other sessions end. It fails
// with [ErrWrong].
func (g *Gate) ConfirmCodes(ctx context.Context, v *Visitor, code string) (recovery []string, t Token, err error) {
	secret := g.BeginCodes(v)
	step, ok := matchCode(secret, strings.ReplaceAll(code, " ", ""), g.Now())
	if !ok {
		return nil, "", ErrWrong
	}
	recovery, hashes := newRecoveries()
	if err := g.Store.SetCodes(ctx, v.Member.ID, v.Session.ID, secret, step, hashes); err != nil {
		return nil, "", err
	}
	g.pending.use(v.Member.ID, g.Now(), func(s *CodeSecret) { *s = nil })
	t, err = g.turn(ctx, v.Session)
	return recovery, t, err
}

// EndCodes turns one-time codes off for the visitor.
func (g *Gate) EndCodes(ctx context.Context, v *Visitor) error {
	return g.Store.SetCodes(ctx, v.Member.ID, v.Session.ID, nil, 0, nil)
}
