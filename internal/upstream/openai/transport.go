package openai

import "io"

// watchedBody tells the watch of every byte that arrives.
type watchedBody struct {
	body  io.Reader
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.watch.touch()
	}
	return n, err
}
