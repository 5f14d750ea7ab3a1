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
	last      kv.Key   // of the last full page, or the owner's root
	keys      []kv.Key // of the full pages: first the prompt's, then those that fill
	tail      []int32  // the tokens behind them
	published int      // pages of keys that are in the cache
}

func newPrefix(c *call) prefix {
	p := prefix{
		last: kv.Root(c.Owner), keys: slices.Clip(c.keys),
		tail: slices.Clone(c.Prompt[len(c.keys)*kernel.Page:]),
	}
	if n := len(c.keys); n > 0 {
		p.last = c.keys[n-1]
	}
	return p
}

// reusable is the keys of the pages that need not be computed when they are found: of
// a prompt of n tokens at least the last is, for its logits.
func reusable(keys []kv.Key, n int) []kv.Key { return keys[:(n-1)/kernel.Page] }

// found notes that the pages of the first positions are in the cache.
func (p *prefix) found(positions int) { p.published = positions / kernel.Page }

// said adds a token behind the prompt, whose keys and values the next step computes.
func (p *prefix) said(id int32) {
	if p.tail = append(p.tail, id); len(p.tail) == kernel.Page {
		p.last = p.last.Next(p.tail)
		p.keys = append(p.keys, p.last)
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
