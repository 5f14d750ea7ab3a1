package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/wire"
)

// payments takes what the payment provider has to tell; [payment.Room] is one.
type payments interface {
	Notify(ctx context.Context, signature string, body []byte, now time.Time) error
}

// stripe takes a message of Stripe's. What it fails at is sent again by Stripe.
func (s *server) stripe(x *exchange, _ string) error {
	if s.Payments == nil {
		return wire.UnknownURL(x.r.Method, x.r.URL.EscapedPath())
	}
	// Nobody has shown a key: what is held at once is bounded as for one account.
	const nobody, most = "", payment.MaxBody
	if x.r.ContentLength > most {
		return wire.BodyTooLarge(most)
	}
	if !s.memory.take(nobody, most+1) {
		return wire.Overloaded(time.Second)
	}
	defer s.memory.give(nobody, most+1)
	// Writers without deadlines exist in tests only.
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(io.LimitReader(x.r.Body, most+1))
	if err != nil {
		return unread(x.r, err)
	}
	if len(body) > most {
		return wire.BodyTooLarge(most)
	}
	if err := s.Payments.Notify(x.r.Context(), x.r.Header.Get("Stripe-Signature"), body, x.now); err != nil {
		return err
	}
	return x.json(http.StatusOK, []byte(`{"received":true}`))
}
