package simulation_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

func (r *rows) Code(_ context.Context, hash [32]byte) (ledger.Code, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.codes {
		if c.Hash == hash {
			return c, nil
		}
	}
	return ledger.Code{}, ledger.ErrCode
}

// redeem makes of a code a grant, once.
func (r *rows) redeem(v *ledger.Redemption) ledger.Result {
	i := slices.IndexFunc(r.codes, func(c ledger.Code) bool { return c.Hash == v.Hash })
	if _, ok := r.granted[purse{v.Grant.AccountID, ledger.Credit}]; !ok {
		return ledger.Result{Refused: ledger.ErrAccount}
	}
	if err := r.codes[i].Check(v.Grant.CreatedAt); err != nil {
		return ledger.Result{Refused: err}
	}
	r.codes[i].RedeemedAt, r.codes[i].AccountID = v.Grant.CreatedAt, v.Grant.AccountID
	r.add(&v.Grant)
	return ledger.Result{Applied: true, At: v.Grant.CreatedAt}
}

// A code is four groups of five characters that nobody takes for one another, and no two
// are the same. What is kept of it are its last four and its hash.
func TestNewCode(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^([0-9A-HJKMNP-TV-Z]{5}-){3}[0-9A-HJKMNP-TV-Z]{5}$`)
	seen := map[string]bool{}
	letters := map[rune]bool{}
	for range 200 {
		c, text := ledger.NewCode(ledger.Promo, 1, "", time.Time{})
		if !shape.MatchString(text) || seen[text] || c.Last4 != text[19:] || c.Hash == [32]byte{} || !c.ExpiresAt.IsZero() {
			t.Errorf("NewCode = %+v, %q", c, text)
		}
		seen[text] = true
		for _, r := range text {
			letters[r] = true
		}
	}
	if len(letters) != 33 {
		t.Errorf("codes are of %d characters, want 32 and the hyphen", len(letters))
	}
	end := time.Date(2027, 1, 2, 3, 4, 5, 6789, time.FixedZone("", 3600))
	before := time.Now().UTC().Truncate(time.Microsecond)
	c, _ := ledger.NewCode(ledger.Prepaid, 7, "note", end)
	if c.Kind != ledger.Prepaid || c.Amount != 7 || c.Note != "note" || c.ID == "" || c.CreatedAt.Before(before) || c.CreatedAt.Nanosecond()%1000 != 0 {
		t.Errorf("NewCode = %+v", c)
	}
	if want := time.Date(2027, 1, 2, 2, 4, 5, 6000, time.UTC); c.ExpiresAt != want {
		t.Errorf("it expires %v, want %v as the database has it", c.ExpiresAt, want)
	}
}

// A code is good until the moment at which it ends, and what it was is said first.
func TestCode_Check(t *testing.T) {
	t.Parallel()
	end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		c    ledger.Code
		at   time.Time
		want error
	}{
		{ledger.Code{}, end, nil},
		{ledger.Code{ExpiresAt: end}, end.Add(-time.Microsecond), nil},
		{ledger.Code{ExpiresAt: end}, end, ledger.ErrCodeExpired},
		{ledger.Code{ExpiresAt: end, RevokedAt: end}, end, ledger.ErrCodeRevoked},
		{ledger.Code{ExpiresAt: end, RevokedAt: end, RedeemedAt: end}, end, ledger.ErrCodeRedeemed},
	} {
		if err := tt.c.Check(tt.at); !errors.Is(err, tt.want) {
			t.Errorf("Check(%v) of %+v gives %v, want %v", tt.at, tt.c, err, tt.want)
		}
	}
}

// commits reports whether the line of a trace is a commit.
func commits(line string) bool { return strings.Contains(line, " commit ") }

// code makes one.
func (b *bench) code(kind ledger.Kind, amount money.Amount, expires time.Time) (ledger.Code, string) {
	c, text := ledger.NewCode(kind, amount, "gift", expires)
	b.disk.codes = append(b.disk.codes, c)
	return c, text
}

// A code becomes one grant, however it is typed, and says afterwards whose it is.
func TestCore_Redeem(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		ctx := audit.WithActor(t.Context(), "ann")
		typed := map[string]func(string) string{
			"as printed": strings.Clone,
			"in a line":  func(s string) string { return strings.ReplaceAll(s, "-", "") },
			"with space": func(s string) string { return " \t" + strings.ReplaceAll(s, "-", "\r\n") + "\n" },
			"as letters": strings.NewReplacer("0", "o", "1", "l").Replace,
			"as capital": strings.NewReplacer("0", "O", "1", "I").Replace,
			"in small":   strings.ToLower,
		}
		granted := money.Amount(1000)
		for name, as := range typed {
			c, text := b.code(ledger.Promo, 30, time.Now().Add(time.Hour))
			for !strings.ContainsAny(text, "0") || !strings.ContainsAny(text, "1") {
				c, text = b.code(ledger.Promo, 30, time.Time{})
			}
			got, err := b.Redeem(ctx, account, as(text))
			if err != nil || got.ID != c.ID || got.AccountID != account || got.RedeemedAt.IsZero() {
				t.Errorf("%s: Redeem(%q) = %+v, %v", name, as(text), got, err)
			}
			granted += 30
			g := b.disk.grants[len(b.disk.grants)-1]
			if g.Kind != ledger.Promo || g.Priority != 20 || g.Note != "gift" || g.Source != "code:"+c.ID || g.Actor != "ann" || !g.ExpiresAt.IsZero() || !g.CreatedAt.Equal(got.RedeemedAt) {
				t.Errorf("%s: the grant is %+v", name, g)
			}
			if again, err := b.Redeem(ctx, account, text); !errors.Is(err, ledger.ErrCodeRedeemed) || again.ID != c.ID {
				t.Errorf("%s: again it is %+v, %v", name, again, err)
			}
		}
		if got, want := b.Balance(account), (ledger.Balance{Granted: granted}); got != want {
			t.Errorf("Balance = %+v, want %+v", got, want)
		}
	})
}

// What cannot be redeemed leaves no trace: nothing is granted, and nothing of the room of
// the account is taken.
func TestCore_RedeemRefuses(t *testing.T) {
	t.Parallel()
	inBubble(t, 1000, func(b *bench) {
		t := b.t
		ctx := t.Context()
		_, gone := b.code(ledger.Promo, money.MaxAmount, time.Now())
		for _, text := range []string{"", "7QM4K", "00000-00000-00000-00000", "UUUUU-UUUUU-UUUUU-UUUUU", "00000-00000-00000-000000"} {
			if _, err := b.Redeem(ctx, account, text); !errors.Is(err, ledger.ErrCode) {
				t.Errorf("Redeem(%q) gives %v, want ErrCode", text, err)
			}
		}
		b.disk.trace = nil
		if _, err := b.Redeem(ctx, account, gone); !errors.Is(err, ledger.ErrCodeExpired) {
			t.Errorf("Redeem of one that has ended gives %v", err)
		}
		c, text := b.code(ledger.Prepaid, money.MaxAmount, time.Time{})
		if slices.ContainsFunc(b.disk.trace, commits) {
			t.Error("what is known to be refused takes a transaction")
		}
		for range 10 { // more than an account can hold, were one kept
			if _, err := b.Redeem(ctx, "acct_none", text); !errors.Is(err, ledger.ErrAccount) {
				t.Errorf("Redeem for nobody gives %v", err)
			}
		}
		for range 9 {
			b.grant(t, ledger.Grant{Amount: money.MaxAmount})
		}
		if got, err := b.Redeem(ctx, account, text); !errors.Is(err, ledger.ErrAmount) || got.ID != c.ID {
			t.Errorf("Redeem of more than an account can hold = %+v, %v", got, err)
		}
		if want := (ledger.Balance{Granted: 9*money.MaxAmount + 1000}); b.Balance(account) != want {
			t.Errorf("Balance = %+v, want %+v", b.Balance(account), want)
		}
		_, text = b.code(ledger.Prepaid, 5, time.Time{})
		b.disk.fates = func() fate { return refused }
		if _, err := b.Redeem(ctx, account, text); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("Redeem on a failed disk gives %v", err)
		}
	})
}
