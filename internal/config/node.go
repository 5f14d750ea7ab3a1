package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var variable = regexp.MustCompile(`\$\{[^}]*\}?`)

// reader walks the file's nodes and collects what is wrong, so that one run shows
// everything. Values are read from their text: a price never passes through a float.
type reader struct {
	dir      string
	lookup   func(string) (string, bool)
	problems []Problem
}

func (r *reader) problem(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{Line: max(n.Line, 1), Text: fmt.Sprintf(format, args...)})
}

// field is one known key of a mapping. A field with no set belongs to a feature that
// this version does not have.
type field struct {
	key string
	set func(value *yaml.Node)
}

// fields reads the mapping n. where is "" for the file itself, else what n is and
// the space that joins it to a sentence ("plan pro: "); plural names its keys ("Plans").
// It returns the value nodes by key, for checks that concern more than one.
func (r *reader) fields(n *yaml.Node, where, plural string, known []field) map[string]*yaml.Node {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		r.problem(n, "%sexpected keys and values, found %s.", where, kind(n))
		return nil
	}
	seen := make(map[string]*yaml.Node, len(known))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		if first, ok := seen[key.Value]; ok {
			r.problem(key, "%skey %q appears twice, first on line %d.", where, key.Value, first.Line)
			continue
		}
		seen[key.Value] = key
		j := slices.IndexFunc(known, func(f field) bool { return f.key == key.Value })
		switch {
		case j < 0:
			r.unknown(key, where, plural, known)
		case known[j].set == nil:
			r.problem(key, "%s%s is not supported by this version. Remove it.", where, key.Value)
		case value.ShortTag() == "!!null":
			r.problem(key, "%s%s has no value.", where, key.Value)
		default:
			known[j].set(value)
		}
	}
	return seen
}

func (r *reader) unknown(key *yaml.Node, where, plural string, known []field) {
	var names []string
	for _, f := range known {
		if f.set != nil {
			names = append(names, f.key)
		}
	}
	if near := Nearest(key.Value, names); near != "" {
		r.problem(key, "%sunknown key %q. Did you mean %q?", where, key.Value, near)
		return
	}
	r.problem(key, "%sunknown key %q. %s use %s.", where, key.Value, plural, strings.Join(names, ", "))
}

// list calls each with every element of the sequence n.
func (r *reader) list(n *yaml.Node, key string, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.problem(n, "%s must be a list, found %s.", key, kind(n))
		return
	}
	for _, item := range n.Content {
		each(resolve(item))
	}
}

// text is the scalar's own text with variables replaced. Replacing happens after
// YAML was parsed, so a variable's value cannot add keys. Where variables leave nothing of a
// value, that is a problem: what stands for "none" in the file must not come from a variable
// that was set to nothing by mistake, such as the paths of a certificate.
func (r *reader) text(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		r.problem(n, "%s must be a single value, found %s.", what, kind(n))
		return "", false
	}
	ok := true
	s := variable.ReplaceAllStringFunc(n.Value, func(ref string) string {
		name, closed := strings.CutSuffix(ref[2:], "}")
		if !closed || name == "" {
			r.problem(n, "%s: %q is not a variable. Write ${NAME}.", what, ref)
			ok = false
			return ""
		}
		value, set := r.lookup(name)
		if !set {
			r.problem(n, "%s: the environment variable %s is not set.", what, name)
			ok = false
		}
		return value
	})
	if ok && s == "" && n.Value != "" {
		r.problem(n, "%s is empty, because %s is in the environment.", what, n.Value)
		return "", false
	}
	return s, ok
}

func (r *reader) str(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if s, ok := r.text(n, what); ok {
			*into = s
		}
	}
}

// path resolves a relative path against the file's directory.
func (r *reader) path(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok || s == "" {
			return
		}
		if !filepath.IsAbs(s) && r.dir != "" {
			s = filepath.Join(r.dir, s)
		}
		*into = s
	}
}

func (r *reader) integer(what string, least int64, into *int64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
		switch {
		case err != nil:
			r.problem(n, "%s must be a whole number, not %q.", what, s)
		case v < least:
			r.problem(n, "%s must be at least %d, not %d.", what, least, v)
		default:
			*into = v
		}
	}
}

// count is integer for a number of things that must fit in an int everywhere.
func (r *reader) count(what string, least int64, into *int) func(*yaml.Node) {
	return func(n *yaml.Node) {
		const most = 1 << 30
		v := int64(*into)
		r.integer(what, least, &v)(n)
		if v > most {
			r.problem(n, "%s must be at most %d, not %d.", what, most, v)
			return
		}
		*into = int(v)
	}
}

func (r *reader) duration(what string, into *time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			r.problem(n, "%s must be a duration such as 30s or 10m, not %q.", what, s)
		case d < 0:
			r.problem(n, "%s must not be negative, not %q.", what, s)
		default:
			*into = d
		}
	}
}

func (r *reader) size(what string, into *int64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		v, ok := parseSize(s)
		if !ok {
			r.problem(n, "%s must be a size such as 512MiB or 2GiB, not %q.", what, s)
			return
		}
		*into = v
	}
}

// date takes a day, which begins at 00:00 UTC, or an RFC 3339 time.
func (r *reader) date(what string, into *time.Time) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		t, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t, err = time.Parse(time.RFC3339, s)
		}
		if err != nil {
			r.problem(n, "%s must be a date such as 2026-01-31, not %q.", what, s)
			return
		}
		*into = t.UTC()
	}
}

func parseSize(s string) (int64, bool) {
	digits := strings.TrimRight(s, "KMGTiB ")
	unit := strings.TrimSpace(s[len(digits):])
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 0 {
		return 0, false
	}
	units := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}
	scale, ok := units[unit]
	if !ok || v > (1<<62)/scale {
		return 0, false
	}
	return v * scale, true
}

// resolve follows an alias. The walk is as deep as the known keys are, so aliases
// that contain themselves end.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == 0 || n.ShortTag() == "!!null":
		return "nothing"
	default:
		return strconv.Quote(n.Value)
	}
}

// Nearest is the candidate within edit distance 2 of word, the closest first and
// the earliest of equals, or "" when none is that near.
func Nearest(word string, candidates []string) string {
	best, least := "", 3
	for _, c := range candidates {
		// In a word of three letters two changes make another word.
		if d := distance(word, c); d < least && d < len([]rune(c)) {
			best, least = c, d
		}
	}
	return best
}

// distance counts insertions, deletions, replacements and swaps of neighbours.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d > 2 || d < -2 {
		return 3
	}
	var before []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		next := make([]int, len(y)+1)
		next[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(y)]
}
