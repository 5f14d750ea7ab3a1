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
