package admin

import (
	"net/http"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
)

// makeOperatorLink makes a link into the console. Who uses it owns the oldest account, too,
// so that the first operator of a server has pages to see.
func (s *service) makeOperatorLink(r *http.Request) (any, error) {
	var oldest *account.Account
	for _, a := range s.Accounts.All() {
		if oldest == nil || a.ID < oldest.ID { // ids sort by time
			oldest = a
		}
	}
	var id, name string
	if oldest != nil {
		id, name = oldest.ID, oldest.Name
	}
	token, link, err := s.Gate.MakeOperatorLink(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return OperatorLink{URL: member.ClaimURL(s.Status().Console, token), Account: name, ExpiresAt: link.ExpiresAt}, nil
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
	return Invitation{URL: s.Status().Console + member.JoinPath(token), Account: a.Name, Email: link.Email, Role: string(link.Role), ExpiresAt: link.ExpiresAt}, nil
}
