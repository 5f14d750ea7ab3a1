package config

import (
	"go.yaml.in/yaml/v3"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// mostIncluded bounds the tokens of a period, so that sums of many stay far from the end
// of int64.
const mostIncluded = 1e15

// period takes how long a paid period lasts.
func (r *reader) period(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		if _, err := subscription.ParseInterval(s); err != nil {
			r.problem(n, "%s must be month, year or a number of days such as 30d, not %q.", what, s)
			return
		}
		*into = s
	}
}

// included reads what a paid period includes.
func (r *reader) included(n *yaml.Node, where string, i *Included) {
	where += "included: "
	r.fields(n, where, "Included amounts", []field{
		{"tokens", func(v *yaml.Node) {
			r.integer(where+"tokens", 0, &i.Tokens)(v)
			if i.Tokens > mostIncluded {
				r.problem(v, "%stokens must be at most 1,000,000,000,000,000, not %d.", where, i.Tokens)
			}
		}},
		{"credit", func(v *yaml.Node) {
			s, ok := r.text(v, where+"credit")
			if !ok {
				return
			}
			var err error
			if i.Credit, err = money.ParseAmount(s); err != nil {
				r.problem(v, "%scredit must be a number of IU from 0 to 1,000,000,000 with at most 9 decimals, not %q.", where, s)
			}
		}},
	})
}
