package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// codes is what admin asks of store.DB about redemption codes.
type codes interface {
	CreateCodes(ctx context.Context, codes []ledger.Code) error
	Codes(ctx context.Context, limit int) ([]ledger.Code, error)
	RevokeCode(ctx context.Context, id string, at time.Time) (ledger.Code, error)
}

// mostCodes bounds how many codes one request makes: they are written in one transaction.
const mostCodes = 1000

// createCodes makes codes and tells what they say, once.
func (s *service) createCodes(r *http.Request) (any, error) {
	var in NewCodes
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Note) == "" {
		return nil, invalid("invalid_note", "Codes need a note that says why they are made.")
	}
	value, err := amount(in.Amount)
	if err != nil {
		return nil, err
	}
	kind := ledger.Kind(in.Kind)
	switch kind {
	case "":
		kind = ledger.Promo
	case ledger.Promo, ledger.Prepaid:
	default:
		return nil, invalid("invalid_kind", "A code gives promo or prepaid credit, not %q.", in.Kind)
	}
	if in.Count < 1 || in.Count > mostCodes {
		return nil, invalid("invalid_count", "From 1 to %d codes can be made at once.", mostCodes)
	}
	var expires time.Time
	if in.ExpiresAt != nil {
		if expires = *in.ExpiresAt; !ledger.CanExpire(expires, time.Now()) {
			return nil, invalid("invalid_expiry", "The codes would expire in the past, or after the year 9999.")
		}
	}
	made, out := make([]ledger.Code, in.Count), make([]MintedCode, in.Count)
	for i := range made {
		var text string
		made[i], text = ledger.NewCode(kind, value, in.Note, expires)
		out[i] = MintedCode{Code: codeView(&made[i], ""), Text: text}
	}
	return out, s.Store.CreateCodes(r.Context(), made)
}

func (s *service) listCodes(r *http.Request) (any, error) {
	limit := defaultReceipts
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostReceipts {
			return nil, invalid("invalid_limit", "limit is a whole number from 1 to %d, not %q.", mostReceipts, text)
		}
	}
	list, err := s.Store.Codes(r.Context(), limit)
	if err != nil {
		return nil, err
	}
	out := make([]Code, len(list))
	for i := range list {
		out[i] = codeView(&list[i], s.nameOf(list[i].AccountID))
	}
	return out, nil
}

func (s *service) revokeCode(r *http.Request) (any, error) {
	c, err := s.Store.RevokeCode(r.Context(), r.PathValue("code"), time.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return nil, s.codeRefusal(err, &c)
	}
	return codeView(&c, ""), nil
}

// redeemCode gives an account the credit of a code.
func (s *service) redeemCode(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in NewRedemption
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	c, err := s.Ledger.Redeem(r.Context(), a.ID, in.Code)
	if err != nil {
		return nil, s.codeRefusal(err, &c)
	}
	return Redeemed{Code: codeView(&c, a.Name), Available: s.Ledger.Balance(a.ID).Available().String()}, nil
}

// codeRefusal says when what happened to a code that is of no use any more.
func (s *service) codeRefusal(err error, c *ledger.Code) error {
	used := func(code, what string, at time.Time) error {
		return &Error{Status: http.StatusConflict, Code: code, Message: fmt.Sprintf(what, at.UTC().Format(time.RFC3339))}
	}
	switch {
	case errors.Is(err, ledger.ErrCodeRedeemed) && !c.RedeemedAt.IsZero():
		return used("code_redeemed", "The code was redeemed by "+s.nameOf(c.AccountID)+" on %s.", c.RedeemedAt)
	case errors.Is(err, ledger.ErrCodeRevoked) && !c.RevokedAt.IsZero():
		return used("code_revoked", "The code was revoked on %s.", c.RevokedAt)
	case errors.Is(err, ledger.ErrCodeExpired):
		return used("code_expired", "The code has expired on %s.", c.ExpiresAt)
	}
	return err
}

func (s *service) nameOf(accountID string) string {
	if a, ok := s.Accounts.ByID(accountID); ok {
		return a.Name
	}
	return accountID
}

// codeView shows a code; account is the name of who has redeemed it.
func codeView(c *ledger.Code, account string) Code {
	v := Code{ID: c.ID, Last4: c.Last4, Status: "open", Kind: string(c.Kind), Amount: c.Amount.String(), Note: c.Note, CreatedAt: c.CreatedAt, Account: account}
	switch err := c.Check(time.Now()); {
	case errors.Is(err, ledger.ErrCodeRedeemed):
		v.Status = "redeemed"
	case errors.Is(err, ledger.ErrCodeRevoked):
		v.Status = "revoked"
	case errors.Is(err, ledger.ErrCodeExpired):
		v.Status = "expired"
	}
	if !c.ExpiresAt.IsZero() {
		v.ExpiresAt = &c.ExpiresAt
	}
	if !c.RedeemedAt.IsZero() {
		v.RedeemedAt = &c.RedeemedAt
	}
	return v
}
