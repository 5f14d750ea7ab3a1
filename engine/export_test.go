package engine

import "context"

// GenerateBroken runs a request whose step panics, and returns its error.
func (e *Engine) GenerateBroken(ctx context.Context, r Request) error {
	s := e.newSequence(ctx, r)
	s.text = nil
	if err := e.enqueue(s); err != nil {
		return err
	}
	defer e.leave(s)
	for {
		if _, ended, err := s.out.take(nil); ended {
			return err
		}
		<-s.out.ready
	}
}
