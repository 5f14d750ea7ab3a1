package engine

import "context"

// GenerateBroken runs a request whose step panics, and returns its error.
func (e *Engine) GenerateBroken(ctx context.Context, r Request) error {
	c := newCall(ctx, r)
	c.keys = c.keys[:0] // of a prompt that has some
	if err := e.enqueue(c); err != nil {
		return err
	}
	defer e.leave(c)
	for {
		if _, ended, err := c.out.take(nil); ended {
			return err
		}
		<-c.out.ready
	}
}
