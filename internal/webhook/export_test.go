package webhook

import (
	"context"
	"time"
)

// Step sends what is due to the first endpoint.
func (s *Sender) Step(ctx context.Context) error {
	_, err := s.step(ctx, s.endpoints[0])
	return err
}

// StepWait is Step with how long nothing is to be done then.
func (s *Sender) StepWait(ctx context.Context) (time.Duration, error) {
	return s.step(ctx, s.endpoints[0])
}

// Forget forgets what is old enough.
func (s *Sender) Forget(ctx context.Context) error {
	_, err := s.forget(ctx)
	return err
}

// Began makes the sender so much older.
func (s *Sender) Began(ago time.Duration) { s.began = s.began.Add(-ago) }

// Backoff is how long a delivery waits after so many attempts.
var Backoff = backoff
