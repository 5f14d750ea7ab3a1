package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/webhook"
)

// Delivery is one event on its way to one webhook. State is waiting, delivered or failed.
type Delivery struct {
	ID        int64      `json:"id"`
	EventID   string     `json:"event_id"`
	Type      string     `json:"type"`
	URL       string     `json:"url"`
	State     string     `json:"state"`
	Attempts  int        `json:"attempts"`
	LastError string     `json:"last_error"`
	CreatedAt time.Time  `json:"created_at"`
	NextAt    *time.Time `json:"next_at"` // null unless it waits
}

// outbox is what admin asks of store.DB.
type outbox interface {
	Deliveries(ctx context.Context, limit int) ([]webhook.Delivery, error)
	RetryDelivery(ctx context.Context, number int64) error
}

func (s *service) deliveries(r *http.Request) (any, error) {
	list, err := s.Store.Deliveries(r.Context(), defaultReceipts)
	out := make([]Delivery, 0, len(list))
	for _, d := range list {
		v := Delivery{
			ID: d.Number, EventID: d.EventID, Type: d.Kind, URL: d.Endpoint, State: string(d.State),
			Attempts: d.Attempts, LastError: d.LastError, CreatedAt: d.CreatedAt,
		}
		if d.State == webhook.Waiting {
			v.NextAt = &d.NextAt
		}
		out = append(out, v)
	}
	return out, err
}

func (s *service) retryDelivery(r *http.Request) (any, error) {
	text := r.PathValue("delivery")
	number, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		err = s.Store.RetryDelivery(r.Context(), number)
	} else {
		err = webhook.ErrNotFound
	}
	return struct{}{}, err
}

// Deliveries lists the last deliveries to webhooks, newest first.
func (c *Client) Deliveries(ctx context.Context) ([]Delivery, error) {
	return call[[]Delivery](ctx, c, "GET", "/webhooks/deliveries", nil)
}

// RetryDelivery makes a delivery wait for its turn again, whatever became of it.
func (c *Client) RetryDelivery(ctx context.Context, id int64) error {
	_, err := call[struct{}](ctx, c, "POST", "/webhooks/deliveries/"+strconv.FormatInt(id, 10)+"/retry", nil)
	return err
}
