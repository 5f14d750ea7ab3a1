package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
)

// invitations is what admin asks of store.DB about invitations.
type invitations interface {
	Invitations(ctx context.Context, accountID string, now time.Time) ([]member.Link, error)
	RevokeLink(ctx context.Context, accountID, id string) error
}

// NewInvitation asks for a link that gives whoever has Email a place in an account. Role is
// owner or member; without one it is owner.
type NewInvitation struct {
	Email string `json:"email"`
	Role  string `json:"role,omitzero"`
}

// MintedInvitation is a new invitation with its link, which nothing can show again.
type MintedInvitation struct {
	Invitation
	URL string `json:"url"`
}

// Invitation lets whoever has Email, in lower case, join Account as Role, once, until
// ExpiresAt.
type Invitation struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Email     string    `json:"email"`
	Role      string    `json:"role"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"` // a member's id, or what an operator calls itself
	ExpiresAt time.Time `json:"expires_at"`
}

func invitationView(l *member.Link, account string) Invitation {
	return Invitation{
		ID: l.ID, Account: account, Email: l.Email, Role: string(l.Role),
		CreatedAt: l.CreatedAt, CreatedBy: l.CreatedBy, ExpiresAt: l.ExpiresAt,
	}
}

// invite makes a link that gives whoever has an email a place in an account.
func (s *service) invite(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	in := NewInvitation{Role: string(member.Owner)}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if a.Status == account.Suspended {
		return nil, account.ErrSuspended
	}
	token, link, err := s.Gate.Invite(r.Context(), a.ID, in.Email, member.Role(in.Role))
	if err != nil {
		return nil, err
	}
	return MintedInvitation{Invitation: invitationView(&link, a.Name), URL: s.Status().Console + member.JoinPath(token)}, nil
}

func (s *service) listInvitations(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	open, err := s.Store.Invitations(r.Context(), a.ID, time.Now())
	if err != nil {
		return nil, err
	}
	out := make([]Invitation, len(open))
	for i := range open {
		out[i] = invitationView(&open[i], a.Name)
	}
	return out, nil
}

// revokeInvitation answers with what the invitation was.
func (s *service) revokeInvitation(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	open, err := s.Store.Invitations(r.Context(), a.ID, time.Now())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(open, func(l member.Link) bool { return l.ID == r.PathValue("invitation") })
	if i < 0 {
		return nil, member.ErrLinkUnknown
	}
	return invitationView(&open[i], a.Name), s.Store.RevokeLink(r.Context(), a.ID, open[i].ID)
}

// Invite makes a link that gives somebody a place in an account, once.
func (c *Client) Invite(ctx context.Context, name string, in NewInvitation) (MintedInvitation, error) {
	return call[MintedInvitation](ctx, c, "POST", accountPath(name, "/invitations"), in)
}

// Invitations lists those of an account that still lead somewhere, newest first.
func (c *Client) Invitations(ctx context.Context, name string) ([]Invitation, error) {
	return call[[]Invitation](ctx, c, "GET", accountPath(name, "/invitations"), nil)
}

// RevokeInvitation makes the link of an invitation that nobody has used worthless.
func (c *Client) RevokeInvitation(ctx context.Context, name, id string) (Invitation, error) {
	return call[Invitation](ctx, c, "POST", accountPath(name, "/invitations/"+segment(id)+"/revoke"), nil)
}
