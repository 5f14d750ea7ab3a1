package webhook

import "context"

// Step sends what is due to the first endpoint.
func (s *Sender) Step(ctx context.Context) error {
	_, err := s.step(ctx, s.endpoints[0])
	return err
}

// Backoff is how long a delivery waits after so many attempts.
var Backoff = backoff
