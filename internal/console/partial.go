package console

import "context"

// partial reads a part that the page can do without, within the time that it has. ok is false
// when there is nothing to show of it; why is in the log.
func partial[T any](v *visit, read func(context.Context) (T, error)) (got T, ok bool) {
	ctx, cancel := context.WithTimeout(v.context(), v.s.PartLimit)
	defer cancel()
	got, err := read(ctx)
	if err != nil {
		var none T
		v.missed = err
		return none, false
	}
	return got, true
}
