package engine

import (
	"slices"

	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
)

// prefix is what of a sequence others can find in the cache, and what makes the keys
// of the pages to come. Answers are published like prompts: the next turn of a
// conversation begins with them.
type prefix struct {
	root      kv.Key
	keys      []kv.Key // of the full pages: first the prompt's, then those that fill
	tail      []int32  // the tokens behind them
	published int      // pages of keys that are in the cache
	cached    int      // positions that were found there
}

func newPrefix(owner string, prompt []int32) prefix {
	return prefix{
		root: kv.Root(owner), keys: slices.Clip(kv.Keys(owner, prompt)),
		tail: slices.Clone(prompt[len(prompt)/kernel.Page*kernel.Page:]),
	}
}

// reusable is the keys of the pages that need not be computed when they are found: of
// a prompt of n tokens at least the last is, for its logits.
func (p *prefix) reusable(n int) []kv.Key { return p.keys[:(n-1)/kernel.Page] }

// found notes that the first positions came out of the cache.
func (p *prefix) found(positions int) { p.cached, p.published = positions, positions/kernel.Page }

// said adds a token behind the prompt, whose keys and values the next step computes.
func (p *prefix) said(id int32) {
	if p.tail = append(p.tail, id); len(p.tail) == kernel.Page {
		last := p.root
		if n := len(p.keys); n > 0 {
			last = p.keys[n-1]
		}
		p.keys = append(p.keys, last.Next(p.tail))
		p.tail = p.tail[:0]
	}
}

// publish lets others find the pages of t that are full now that positions of it are
// computed.
func (p *prefix) publish(c *kv.Cache, t kv.Table, positions int) {
	for ; p.published < positions/kernel.Page; p.published++ {
		c.Publish(t, p.published, p.keys[p.published])
	}
}
