package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// tokens is what admin asks of apikey.Tokens.
type tokens interface {
	Create(ctx context.Context, name, by string, expires time.Time) (apikey.Token, string, error)
	Revoke(ctx context.Context, id string) (apikey.Token, error)
	List() []apikey.Token
}

// NewToken asks for an operator's token. ExpiresAt nil is never.
type NewToken struct {
	Name      string     `json:"name"`
	ExpiresAt *time.Time `json:"expires_at,omitzero"`
}

// MintedToken is a new token with its text, which nothing can show again.
type MintedToken struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// Token is what is known of an operator's token. Nil times are never.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Prefix     string     `json:"prefix"`
	Status     string     `json:"status"` // active, expired or revoked
	CreatedAt  time.Time  `json:"created_at"`
	CreatedBy  string     `json:"created_by"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

func tokenView(t apikey.Token) Token {
	return Token{
		ID: t.ID, Name: t.Name, Prefix: t.Prefix, Status: t.Status(time.Now()), CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy,
		ExpiresAt: orNil(t.ExpiresAt), RevokedAt: orNil(t.RevokedAt), LastUsedAt: orNil(t.LastUsedAt),
	}
}

// orNil is nil for the zero time.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (s *service) createToken(r *http.Request) (any, error) {
	var in NewToken
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	var expires time.Time
	if in.ExpiresAt != nil {
		expires = *in.ExpiresAt
	}
	t, text, err := s.Tokens.Create(r.Context(), in.Name, audit.Actor(r.Context()), expires)
	switch {
	case errors.Is(err, apikey.ErrName):
		return nil, invalid("invalid_name", "A token's name has 1 to 100 printable characters.")
	case errors.Is(err, apikey.ErrExpiry):
		return nil, invalid("invalid_expiry", "The token would expire in the past, or after the year 9999.")
	case err != nil:
		return nil, err
	}
	return MintedToken{ID: t.ID, Token: text}, nil
}

func (s *service) listTokens(*http.Request) (any, error) {
	all := s.Tokens.List()
	out := make([]Token, 0, len(all))
	for _, t := range all {
		out = append(out, tokenView(t))
	}
	return out, nil
}

func (s *service) revokeToken(r *http.Request) (any, error) {
	t, err := s.Tokens.Revoke(r.Context(), r.PathValue("token"))
	if err != nil {
		return nil, err
	}
	return tokenView(t), nil
}

// CreateToken makes an operator's token and returns its text, once.
func (c *Client) CreateToken(ctx context.Context, in NewToken) (MintedToken, error) {
	return call[MintedToken](ctx, c, "POST", "/operator-tokens", in)
}

// Tokens lists the tokens of operators, oldest first.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return call[[]Token](ctx, c, "GET", "/operator-tokens", nil)
}

// RevokeToken refuses a token from the moment it returns.
func (c *Client) RevokeToken(ctx context.Context, id string) (Token, error) {
	return call[Token](ctx, c, "POST", "/operator-tokens/"+segment(id)+"/revoke", nil)
}

// Authenticator says whose token the values of an Authorization header present.
type Authenticator interface {
	Authenticate(ctx context.Context, values []string, now time.Time) (apikey.Token, error)
}

// Bounds of the guarded door.
const (
	mostWrong   = 30 // tokens that do not work, of one address in a minute
	bodyTimeout = 30 * time.Second
)

// guard asks for a token in front of the API.
type guard struct {
	api    http.Handler
	tokens Authenticator
	wrong  *ratelimit.Limiter
	swept  atomic.Int64 // the minute of the last sweep of wrong
	// address says where a request comes from.
	address func(*http.Request) netip.Addr
	log     *slog.Logger
}

// Guard lets requests to api that carry a token of tokens, in whose name they are then
// made. Whatever is wrong with a token, the answer is the same, and an address that has
// shown many is told to wait; a token that works is let in all the same.
func Guard(api http.Handler, tokens Authenticator, address func(*http.Request) netip.Addr, log *slog.Logger) http.Handler {
	return &guard{api: api, tokens: tokens, wrong: ratelimit.New(time.Now()), address: address, log: log}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	now := time.Now()
	t, err := g.tokens.Authenticate(r.Context(), r.Header["Authorization"], now)
	if err != nil {
		g.refuse(w, r, err, now)
		return
	}
	if r.URL.Path == prefix+"/backups" {
		// Who may write files as the server does is who may open its socket.
		g.answer(w, &Error{Status: http.StatusForbidden, Code: "socket_only", Message: "A backup is written on the server's machine: parley backup."})
		return
	}
	g.log.Info("operator", "token", t.ID, "method", r.Method, "path", r.URL.Path)
	ctx := r.Context()
	if a := g.address(r); a.IsValid() {
		ctx = audit.WithOrigin(ctx, a.String())
	}
	r = r.Clone(ctx)
	r.Header.Set(actorHeader, "token "+t.Name) // whatever the caller says of itself
	// A writer without deadlines, as in some tests, is no reason to fail.
	_ = http.NewResponseController(w).SetReadDeadline(now.Add(bodyTimeout))
	g.api.ServeHTTP(w, r)
}

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, err error, now time.Time) {
	e := &Error{Status: http.StatusUnauthorized, Code: "invalid_operator_token", Message: "This needs a token of an operator that works, as Authorization: Bearer op-parley-…"}
	if !errors.Is(err, apikey.ErrToken) {
		e = refused(err)
	} else if wait, ok := g.throttle(r, now); ok {
		e = &Error{Status: http.StatusTooManyRequests, Code: "too_many_tries", Message: "Too many tokens that do not work. Try again later."}
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
	} else {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	g.answer(w, e)
}

func (g *guard) answer(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(envelope{Error: e}) // who does not read a refusal is not told of one
}

// throttle counts a wrong token against the address that showed it.
func (g *guard) throttle(r *http.Request, now time.Time) (wait time.Duration, ok bool) {
	if minute := now.Unix() / 60; g.swept.Swap(minute) != minute {
		g.wrong.Sweep(now)
	}
	// Who has one IPv6 address has 2^64.
	from := g.address(r).Unmap()
	if p, err := from.Prefix(min(64, from.BitLen())); err == nil {
		from = p.Addr()
	}
	ticket, _, err := g.wrong.Take(now, ratelimit.Claim{Account: from.String(), AccountLimits: ratelimit.Limits{Requests: mostWrong}})
	if d, refused := errors.AsType[*ratelimit.DeniedError](err); refused {
		return d.RetryAfter, true
	}
	ticket.Done(now, 0)
	return 0, false
}
