package openai

import (
	"math"
	"strconv"

	"github.com/parley-ai/parley/internal/wire"
)

// usage reads the counts. Counts that cannot be true are as good as none; an answer is
// not lost over them.
func (d *decoder) usage() error {
	if d.dec.PeekKind() != '{' {
		return d.dec.SkipValue()
	}
	prompt, completion, cached, reasoning := -1, -1, 0, 0
	count := func(n *int) error {
		value, err := d.dec.ReadValue()
		if f, bad := strconv.ParseFloat(string(value), 64); bad == nil && f == math.Trunc(f) && f >= 0 && f <= maxTokens {
			*n = int(f)
		} else if value.Kind() != 'n' {
			*n = -1
		}
		return err
	}
	details := func(known string, n *int) error {
		if d.dec.PeekKind() != '{' {
			return d.dec.SkipValue()
		}
		return d.object(func(d *decoder, name string) error {
			if name == known {
				return count(n)
			}
			return d.dec.SkipValue()
		})
	}
	err := d.object(func(d *decoder, name string) error {
		switch name {
		case "prompt_tokens":
			return count(&prompt)
		case "completion_tokens":
			return count(&completion)
		case "prompt_cache_hit_tokens":
			return count(&cached)
		case "prompt_tokens_details":
			return details("cached_tokens", &cached)
		case "completion_tokens_details":
			return details("reasoning_tokens", &reasoning)
		}
		return d.dec.SkipValue()
	})
	if prompt >= 0 && completion >= 0 {
		d.chunk.hasUsage = true
		d.chunk.usage = wire.Usage{
			PromptTokens: prompt, CompletionTokens: completion,
			CachedTokens: max(0, min(cached, prompt)), ReasoningTokens: max(0, min(reasoning, completion)),
		}
	}
	return err
}

// scores reads the log-probabilities of a piece. Only those of the text are kept.
func (d *decoder) scores(name string) error {
	if name != "content" {
		return d.dec.SkipValue()
	}
	return d.array(func(d *decoder) error {
		l, err := d.score()
		p := d.piece()
		p.logprobs = append(p.logprobs, l)
		return err
	})
}

// score reads one token and what else was likely.
func (d *decoder) score() (l wire.Logprob, err error) {
	err = d.object(func(d *decoder, name string) (err error) {
		switch name {
		case "token":
			l.Token, err = d.string()
			return err
		case "logprob":
			l.Logprob, err = d.number()
			return err
		case "bytes":
			return d.array(func(d *decoder) error {
				n, err := d.integer(0)
				if err == nil && (n < 0 || n > math.MaxUint8) {
					return d.mistyped()
				}
				l.Bytes = append(l.Bytes, byte(n))
				return err
			})
		case "top_logprobs":
			return d.array(func(d *decoder) error {
				c, err := d.score()
				c.Top = nil
				l.Top = append(l.Top, c)
				return err
			})
		}
		return d.dec.SkipValue()
	})
	return l, err
}

// number reads a number; null is the least.
func (d *decoder) number() (float64, error) {
	value, err := d.dec.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return wire.LeastLogprob, err
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if value.Kind() != '0' || err != nil {
		return 0, d.mistyped()
	}
	return f, nil
}
