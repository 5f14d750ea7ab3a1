package ledger

import (
	"math"

	"github.com/parley-ai/parley/internal/money"
)

// covered is what of a call its plan pays for in tokens, and what the rest costs.
type covered struct {
	tokens int
	cost   money.Amount
}

// cover lets at most n included tokens pay for t: first those of the prompt at full
// price, then the cached ones, then the answer's. A token that costs nothing takes none.
func cover(p money.Price, t money.Tokens, n int) (covered, error) {
	cost, err := p.Cost(t)
	if err != nil {
		return covered{}, err
	}
	left := n
	take := func(tokens int, price money.Amount) {
		if price > 0 {
			k := min(tokens, left)
			left -= k
			cost -= money.Amount(k) * price // part of a product that did not overflow
		}
	}
	take(t.Prompt-t.Cached, p.Input)
	take(t.Cached, p.CachedInput)
	take(t.Completion, p.Output)
	return covered{n - left, cost}, nil
}

// Fits is the longest answer that so many included tokens and so much credit pay for
// after a prompt: 0 when not even that is paid for.
func Fits(p money.Price, prompt int, tokens int64, credit money.Amount) int {
	n := int(min(tokens, math.MaxInt32)) // no call has more
	base, err := cover(p, money.Tokens{Prompt: prompt}, n)
	switch {
	case err != nil || base.cost > credit:
		return 0
	case p.Output == 0: // nothing bounds it
		return math.MaxInt
	}
	paid := int((credit - base.cost) / p.Output)
	return paid + min(n-base.tokens, math.MaxInt-paid)
}
