package account

import "context"

// Life is how long a right lasts: of a key until it is revoked, of an account until it
// is suspended. A nil Life never ends. It is safe for concurrent use.
type Life struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// NewLife returns a life that lasts until [Life.End].
func NewLife() *Life {
	ctx, end := context.WithCancelCause(context.Background())
	return &Life{ctx, end}
}

// End ends l for a reason, of which the first counts.
func (l *Life) End(cause error) { l.end(cause) }

// after calls f with the reason when l ends, in a goroutine of its own.
func (l *Life) after(f func(cause error)) (stop func()) {
	if l == nil {
		return func() {}
	}
	unregister := context.AfterFunc(l.ctx, func() { f(context.Cause(l.ctx)) })
	return func() { unregister() }
}
