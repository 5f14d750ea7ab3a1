package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/parley-ai/parley/internal/payment"
)

// NewTopup asks for a page on which a price can be paid.
type NewTopup struct {
	Price string `json:"price"`
}

// Topup is such a page. Credit is what the payment will add.
type Topup struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Credit string `json:"credit"`
}

// checkout is what admin asks of payment.Room.
type checkout interface {
	Checkout(ctx context.Context, accountID, price string) (payment.Page, error)
}

func (s *service) createTopup(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in NewTopup
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if s.Payments == nil {
		return nil, invalid("payments_not_configured", "The configuration has no payment.")
	}
	page, err := s.Payments.Checkout(r.Context(), a.ID, in.Price)
	if errors.Is(err, payment.ErrRefused) {
		return nil, &Error{Status: http.StatusBadGateway, Code: "payment_refused", Message: err.Error()}
	}
	return Topup{ID: page.ID, URL: page.URL, Credit: page.Credit.String()}, err
}

// CreateTopup makes a page on which credit for an account can be paid.
func (c *Client) CreateTopup(ctx context.Context, name string, in NewTopup) (Topup, error) {
	return call[Topup](ctx, c, "POST", accountPath(name, "/topups"), in)
}
