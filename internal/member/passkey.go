package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/parley-ai/parley/internal/audit"
)

// ceremonyLimit is how long a browser may take between a challenge and its answer.
const ceremonyLimit = 5 * time.Minute

// Passkey is a key in a member's device. Its public half is kept.
type Passkey struct {
	ID         []byte
	MemberID   string
	Name       string // as its member calls it
	Credential string // JSON, of this file only
	CreatedAt  time.Time
	UsedAt     time.Time // zero before its first use
}

// Passkeys lets members in by keys in their devices. A passkey proves its member twice, by
// having it and by a finger, face or code, so nothing more is asked for.
type Passkeys struct {
	gate *Gate
	web  *webauthn.WebAuthn
	// Challenges wait in memory: who is not signed in must not be able to write to the
	// database of the books.
	ceremonies memory[*webauthn.SessionData]
}

// NewPasskeys returns passkeys of the site at origin; nil where it is reached by an IP address,
// for which no browser makes any.
func NewPasskeys(g *Gate, origin *url.URL) (*Passkeys, error) {
	if _, err := netip.ParseAddr(origin.Hostname()); err == nil {
		return nil, nil
	}
	timeout := webauthn.TimeoutConfig{Enforce: true, Timeout: ceremonyLimit, TimeoutUVD: ceremonyLimit}
	web, err := webauthn.New(&webauthn.Config{
		RPID: origin.Hostname(), RPDisplayName: "Parley", RPOrigins: []string{origin.Scheme + "://" + origin.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
	})
	return &Passkeys{gate: g, web: web, ceremonies: memory[*webauthn.SessionData]{keep: ceremonyLimit}}, err
}

// holder is a member in the words of the library.
type holder struct {
	member Member
	keys   []webauthn.Credential
}

func (h *holder) WebAuthnID() []byte                         { return []byte(h.member.ID) }
func (h *holder) WebAuthnName() string                       { return h.member.Email }
func (h *holder) WebAuthnDisplayName() string                { return h.member.Email }
func (h *holder) WebAuthnCredentials() []webauthn.Credential { return h.keys }

// holder reads a member's passkeys.
func (p *Passkeys) holder(ctx context.Context, m Member) (*holder, error) {
	all, err := p.gate.Store.Passkeys(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	h := &holder{member: m}
	for _, k := range all {
		var c webauthn.Credential
		if err := json.Unmarshal([]byte(k.Credential), &c); err != nil {
			return nil, fmt.Errorf("a passkey of %s: %w", m.ID, err)
		}
		h.keys = append(h.keys, c)
	}
	return h, nil
}

// keep remembers a ceremony by its challenge.
func (p *Passkeys) keep(s *webauthn.SessionData) {
	p.ceremonies.use(s.Challenge, p.gate.Now(), func(kept **webauthn.SessionData) { *kept = s })
}

// take forgets the ceremony of a challenge and returns it: each is answered once.
func (p *Passkeys) take(challenge string) (s *webauthn.SessionData, err error) {
	p.ceremonies.use(challenge, p.gate.Now(), func(kept **webauthn.SessionData) { s, *kept = *kept, nil })
	if s == nil {
		return nil, ErrWrong
	}
	return s, nil
}

// BeginAdd returns, as JSON for the browser, what a new passkey of the visitor is made of.
func (p *Passkeys) BeginAdd(ctx context.Context, v *Visitor) ([]byte, error) {
	h, err := p.holder(ctx, v.Member)
	if err != nil {
		return nil, err
	}
	options, s, err := p.web.BeginRegistration(h, webauthn.WithExclusions(webauthn.Credentials(h.keys).CredentialDescriptors()))
	if err != nil {
		return nil, err
	}
	p.keep(s)
	return json.Marshal(options.Response)
}

// Add keeps the passkey that the browser made. It fails with [ErrWrong].
func (p *Passkeys) Add(ctx context.Context, v *Visitor, name string, response []byte) error {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	s, err := p.take(parsed.Response.CollectedClientData.Challenge)
	if err != nil {
		return err
	}
	c, err := p.web.CreateCredential(&holder{member: v.Member}, *s, parsed)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if name == "" {
		name = "Passkey"
	}
	return p.gate.Store.AddPasskey(ctx, Passkey{
		ID: c.ID, MemberID: v.Member.ID, Name: name[:min(len(name), 100)], Credential: string(text), CreatedAt: p.gate.Now().UTC().Truncate(time.Microsecond),
	})
}

// BeginProof returns, as JSON for the browser, what a passkey must sign. It fails with
// [*ThrottledError].
func (p *Passkeys) BeginProof(from From) ([]byte, error) {
	if err := p.gate.addresses.try(network(from.Address), p.gate.Now()); err != nil {
		return nil, err
	}
	options, s, err := p.web.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, err
	}
	p.keep(s)
	return json.Marshal(options.Response)
}

// proof returns whose passkey has signed, and the passkey as it is now. It fails with [ErrWrong].
func (p *Passkeys) proof(ctx context.Context, response []byte) (Member, *Passkey, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return Member{}, nil, fmt.Errorf("%w: %w", ErrWrong, err)
	}
	s, err := p.take(parsed.Response.CollectedClientData.Challenge)
	if err != nil {
		return Member{}, nil, err
	}
	var unreadable error // the library does not hand on what its caller's database has
	user, c, err := p.web.ValidatePasskeyLogin(func(_, id []byte) (webauthn.User, error) {
		m, err := p.gate.Store.Member(ctx, string(id))
		if err == nil {
			var h *holder
			if h, err = p.holder(ctx, m); err == nil {
				return h, nil
			}
		}
		if !errors.Is(err, ErrNotFound) {
			unreadable = err
		}
		return nil, err
	}, *s, parsed)
	switch {
	case unreadable != nil:
		return Member{}, nil, unreadable
	case err != nil:
		return Member{}, nil, fmt.Errorf("%w: %w", ErrWrong, err)
	case c.Authenticator.CloneWarning:
		return Member{}, nil, fmt.Errorf("%w: the passkey's counter went back", ErrWrong)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return Member{}, nil, err
	}
	m := user.(*holder).member
	return m, &Passkey{ID: c.ID, MemberID: m.ID, Credential: string(text), UsedAt: p.gate.Now().UTC().Truncate(time.Microsecond)}, nil
}

// SignIn begins a session of whose passkey has signed. It fails with [ErrWrong].
func (p *Passkeys) SignIn(ctx context.Context, response []byte, from From, replaces Token) (Token, error) {
	m, key, err := p.proof(ctx, response)
	if err != nil {
		return "", err
	}
	token, s := newSession(m.ID, "", Open, from, p.gate.Now())
	return token, p.gate.Store.SignIn(audit.WithActor(ctx, m.ID), Arrival{Session: s, Replaces: replaces.Hash(), Passkey: key})
}

// Prove takes a passkey as a fresh proof of the visitor and gives its session another token.
// It fails with [ErrWrong], for somebody else's too.
func (p *Passkeys) Prove(ctx context.Context, v *Visitor, response []byte) (Token, error) {
	m, _, err := p.proof(ctx, response)
	if err != nil {
		return "", err
	}
	if m.ID != v.Member.ID {
		return "", ErrWrong
	}
	return p.gate.proved(ctx, v)
}
