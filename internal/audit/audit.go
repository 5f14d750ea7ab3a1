// Package audit says who did what: the actor of an operator's change.
package audit

import "context"

// System is the actor of what Parley does by itself.
const System = "system"

type actorKey struct{}

// WithActor returns a context whose changes are made by actor.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor is who makes the changes of ctx; [System] when nobody was named.
func Actor(ctx context.Context) string {
	if a, ok := ctx.Value(actorKey{}).(string); ok && a != "" {
		return a
	}
	return System
}
