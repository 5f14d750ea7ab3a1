package grammar

import (
	"slices"
	"sort"
	"strings"
)

// words is a set of texts, sorted: constants, names of properties, heads of calls.
// A frame on it has the texts i..j-1, which agree in their first k bytes.
type words struct {
	texts []string
	// costs[t][k] is the fewest tokens that spell texts[t] from its byte k on.
	costs [][]int32
}

// newWords sorts the texts and drops those given twice.
func newWords(v *Vocab, texts []string) *words {
	w := &words{texts: slices.Clone(texts)}
	slices.Sort(w.texts)
	w.texts = slices.Compact(w.texts)
	for _, t := range w.texts {
		w.costs = append(w.costs, v.spell(t))
	}
	return w
}

// narrow returns the texts of i..j-1 that have b at k.
func (w *words) narrow(i, j, k int32, b byte) (int32, int32) {
	at := func(t int) int {
		if s := w.texts[int(i)+t]; int(k) < len(s) {
			return int(s[k])
		}
		return -1
	}
	n := int(j - i)
	lo := sort.Search(n, func(t int) bool { return at(t) >= int(b) })
	hi := lo + sort.Search(n-lo, func(t int) bool { return at(lo+t) > int(b) })
	return i + int32(lo), i + int32(hi)
}

// complete reports whether the first of i..j-1 has just k bytes.
func (w *words) complete(i, k int32) bool { return len(w.texts[i]) == int(k) }

// find returns the texts that begin with prefix.
func (w *words) find(prefix string) (i, j int) {
	i = sort.SearchStrings(w.texts, prefix)
	j = i + sort.Search(len(w.texts)-i, func(t int) bool { return !strings.HasPrefix(w.texts[i+t], prefix) })
	return i, j
}

// least is the fewest tokens that spell one of the texts i..j-1 from byte k on.
func (w *words) least(i, j, k int32) int32 {
	least := infinite
	for _, c := range w.costs[i:j] {
		least = min(least, c[k])
	}
	return least
}

func (w *words) own(f *frame) int32 { return w.least(f.i, f.j, f.k) }

func (w *words) step(m *machine, f frame, b byte, out []frame) []frame {
	i, j := w.narrow(f.i, f.j, f.k, b)
	if i == j {
		// A number may be the beginning of another and ends before what follows it.
		if f.k > 0 && w.complete(f.i, f.k) {
			return m.step(*f.below, b, out)
		}
		return out
	}
	f.i, f.j = i, j
	f.k++
	if j-i == 1 && w.complete(i, f.k) {
		return append(out, *f.below)
	}
	return append(out, f)
}
