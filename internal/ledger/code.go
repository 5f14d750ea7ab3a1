package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

// Errors of redemption codes.
var (
	// ErrCode means a code that nobody has made.
	ErrCode         = errors.New("no such code")
	ErrCodeRedeemed = errors.New("the code was redeemed already")
	ErrCodeRevoked  = errors.New("the code is revoked")
	ErrCodeExpired  = errors.New("the code has expired")
)

// Code is credit for whoever redeems it first. What it says is not kept, only Hash.
type Code struct {
	ID         string
	Hash       [32]byte // SHA-256
	Last4      string
	Kind       Kind // Prepaid or Promo
	Amount     money.Amount
	Note       string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero is never
	RevokedAt  time.Time // zero: it is not
	RedeemedAt time.Time // zero: it was not
	AccountID  string    // that has redeemed it
}

// codeAlphabet is Crockford's base 32: no letter is taken for a digit.
const codeAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// A code is so many characters, in groups for people: 100 random bits.
const (
	codeLength = 20
	codeGroup  = 5
)

// NewCode makes a code and what it says, as 7QM4K-0ZR81-XT5BN-9C3VD, which nothing can
// show again. Times are as the database holds them.
func NewCode(kind Kind, amount money.Amount, note string, expires time.Time) (c Code, text string) {
	var raw [codeLength]byte
	rand.Read(raw[:]) // never fails since Go 1.24
	for i, r := range raw {
		raw[i] = codeAlphabet[r%32] // 32 divides 256: every character is equally likely
	}
	text = string(bytes.Join(slices.Collect(slices.Chunk(raw[:], codeGroup)), []byte("-")))
	return Code{
		ID: ident.New(ident.Code), Hash: codeHash(text), Last4: text[len(text)-4:], Kind: kind, Amount: amount, Note: note,
		CreatedAt: now(), ExpiresAt: expires.UTC().Truncate(time.Microsecond), // which leaves zero as it is
	}, text
}

// codeHash is the hash of what somebody has typed: case, hyphens and blanks do not
// matter, nor whether 1 and 0 were taken for letters. That of what is no code is that of
// none.
func codeHash(text string) [32]byte {
	canonical := strings.Map(func(r rune) rune {
		switch r {
		case '-', ' ', '\t', '\r', '\n':
			return -1
		case 'I', 'L':
			return '1'
		case 'O':
			return '0'
		}
		return r
	}, strings.ToUpper(text))
	return sha256.Sum256([]byte(canonical))
}

// Check says why the code cannot be redeemed at that time; nil when it can. It fails with
// [ErrCodeRedeemed], [ErrCodeRevoked] or [ErrCodeExpired].
func (c *Code) Check(now time.Time) error {
	switch {
	case !c.RedeemedAt.IsZero():
		return ErrCodeRedeemed
	case !c.RevokedAt.IsZero():
		return ErrCodeRevoked
	case !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt):
		return ErrCodeExpired
	}
	return nil
}

// Redemption turns a code into a grant, if it still can be.
type Redemption struct {
	Hash  [32]byte
	Grant Grant
}

// Redeem gives an account the credit of the code that text says and returns the code when
// that is durable. Whoever comes first has it, and nobody twice. The actor is that of ctx.
// Guessing is not hindered here: whoever lets strangers try counts their attempts. It
// fails with [ErrCode], [ErrCodeRedeemed], with the code, also for the account that has
// redeemed it, [ErrCodeRevoked], [ErrCodeExpired], [ErrAmount], [ErrAccount] or
// [ErrUnavailable].
func (l *Ledger) Redeem(ctx context.Context, accountID, text string) (Code, error) {
	hash := codeHash(text)
	c, err := l.store.Code(ctx, hash)
	if err != nil {
		return c, err
	}
	at := now()
	if err := c.Check(at); err != nil { // what can be known before takes no transaction
		return c, err
	}
	g := Grant{
		ID: ident.New(ident.Grant), AccountID: accountID, Kind: c.Kind, Amount: c.Amount, Priority: c.Kind.Priority(),
		Note: c.Note, Source: "code:" + c.ID, Actor: audit.Actor(ctx), Origin: audit.Origin(ctx), CreatedAt: at,
	}
	b := l.book(accountID)
	if err := b.announce(c.Amount, 0); err != nil {
		return c, err
	}
	res, err := l.do(Op{Redeem: &Redemption{Hash: hash, Grant: g}}, func(r Result) { b.grant(c.Amount, 0, r.Applied) })
	if err = cmp.Or(err, res.Refused); err != nil {
		return c, err
	}
	c.RedeemedAt, c.AccountID = at, accountID
	return c, nil
}
