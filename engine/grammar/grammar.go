// Package grammar makes a model write what must be written: a JSON object, a value
// of a JSON Schema, or calls of tools.
//
// A [Grammar] is compiled once from a schema for the [Vocab] of a model. Each
// generation has a [Matcher], which says which tokens may come next. Its state knows
// the closing distance, the fewest tokens that complete a value from here: a token is
// allowed only if what is left after it suffices to close. So an answer of any budget
// that is at least [Grammar.Least] is complete and valid, however the tokens are
// chosen.
//
// # How
//
// A schema becomes a graph of nodes, one for every set of subschemas that apply to
// one place. A node has alternatives, one for each type and each branch of anyOf,
// oneOf and type; allOf and $ref are merged into them. A state is a set of threads,
// each a stack of frames on these alternatives, stepped byte by byte; a frame is a
// small value and stacks share their lower parts.
//
// Costs are tokens, not bytes, where text is forced: a property's name costs as many
// tokens as its shortest spelling has. They are a potential: from every state some
// token leads to a state that costs at least one less. Everything rests on that.
//
// docs/structured-output.md says which keywords are kept and where the limits are.
package grammar

import (
	"fmt"
	"slices"

	"github.com/parley-ai/parley/engine/grammar/regex"
)

// Limits of a schema and of what is written. Beyond those of a schema there is an
// [Error]; those of what is written only narrow it.
const (
	// MaxSchemaBytes is the size of one schema, as text.
	MaxSchemaBytes = 256 << 10
	// MaxSchemaDepth is how deep objects and arrays of a schema nest.
	MaxSchemaDepth = 64
	// MaxNodes is the places for a value in a compiled grammar.
	MaxNodes = 4096
	// MaxAlternatives is the branches of one place, those of merged anyOf multiplied.
	MaxAlternatives = 64
	// MaxLeast is the tokens of the shortest value.
	MaxLeast = 1 << 16
	// MaxWork is the steps of compilation, each some nanoseconds.
	MaxWork = 8 << 20

	// MaxNesting is how deep written values nest before only what closes them is
	// allowed.
	MaxNesting = 64
	// MaxUndeclared is the properties of one object that its schema does not name.
	MaxUndeclared = 64
	// MaxIndent is the columns behind a line feed, a tab being four.
	MaxIndent = 16

	// maxThreads is two for each branch: a name may be declared or not.
	maxThreads = 2 * MaxAlternatives
)

// Error says why a schema cannot be compiled.
type Error struct {
	// Path is the JSON pointer of the place, "" for the whole schema. For [Calls] it
	// begins with the tool's index.
	Path string
	// Reason is a sentence without its full stop.
	Reason string
}

// Error returns path and reason.
func (e *Error) Error() string {
	if e.Path == "" {
		return "grammar: the schema: " + e.Reason
	}
	return fmt.Sprintf("grammar: %s: %s", e.Path, e.Reason)
}

// Grammar is a compiled grammar. It does not change, but for a cache with a lock of
// its own, and may be used from many goroutines.
type Grammar struct {
	vocab   *Vocab
	root    *node
	unknown []string
	size    int
	cache   cache
}

// JSON returns the grammar of any JSON object.
func JSON(v *Vocab) (*Grammar, error) { return Schema(v, []byte(`{"type":"object"}`)) }

// Schema compiles a JSON Schema. An error is an [*Error].
func Schema(v *Vocab, text []byte) (*Grammar, error) {
	c := newCompiler(v)
	s, err := c.document("", text)
	if err != nil {
		return nil, err
	}
	return c.compile(c.node([]*schema{s}))
}

// Size is about how many bytes the grammar takes at most, without its cache of [maxCache]: the
// schemas of TestHostile take up to 35 for each byte of their text and 6 for a step of their
// compilation.
func (g *Grammar) Size() int { return g.size }

// Least returns the fewest tokens with which a generation can be asked for: with
// that many, or any more, it ends complete. The end-of-text token is not counted.
func (g *Grammar) Least() int { return int(g.root.cost) }

// Unknown lists, as JSON pointers like those of [Error], the keywords that the grammar
// does not enforce: a value that it accepts may break these, and these only. Empty
// means that every value is valid. The slice must not be written.
func (g *Grammar) Unknown() []string { return g.unknown }

// NewMatcher returns a matcher at the beginning.
func (g *Grammar) NewMatcher() *Matcher { return newMatcher(g) }

// compiler is what compilation shares.
type compiler struct {
	v        *Vocab
	budget   regex.Budget
	schemas  map[string]*schema // by path
	list     []*schema          // all, by id
	patterns map[string]*regex.DFA
	strings  map[stringForm]*stringType // those with an automaton
	nodes    map[string]*node           // by the ids of their schemas
	order    []*node
	alts     int32
	unknown  []string
	looped   *schema // has met itself while a constant was tested; nil: none
	text     int     // bytes of the schemas
}

func newCompiler(v *Vocab) *compiler {
	return &compiler{
		v: v, budget: regex.Budget{Left: MaxWork},
		schemas: map[string]*schema{}, patterns: map[string]*regex.DFA{}, strings: map[stringForm]*stringType{}, nodes: map[string]*node{},
	}
}

// spend takes n steps of work, at path.
func (c *compiler) spend(n int, path string) error {
	if !c.budget.Spend(n) {
		return &Error{path, "the schema takes too long to compile; make it simpler"}
	}
	return nil
}

// compile builds what root needs and works out the costs.
func (c *compiler) compile(root *node) (*Grammar, error) {
	for i := 0; i < len(c.order); i++ {
		if len(c.order) > MaxNodes {
			return nil, &Error{c.order[i].path, fmt.Sprintf("the schema has more than %d places for values", MaxNodes)}
		}
		if err := c.build(c.order[i]); err != nil {
			return nil, err
		}
	}
	if c.looped != nil {
		return nil, refersToItself(c.looped)
	}
	if err := c.relax(); err != nil {
		return nil, err
	}
	if root.cost >= infinite {
		return nil, &Error{c.blame(root), "no finite value is valid"}
	}
	if root.cost > MaxLeast {
		return nil, &Error{root.path, fmt.Sprintf("the shortest value has more than %d tokens", MaxLeast)}
	}
	for _, n := range c.order {
		if err := c.finish(n); err != nil {
			return nil, err
		}
	}
	c.overlaps()
	slices.Sort(c.unknown)
	size := 40*c.text + 6*(MaxWork-c.budget.Left)
	return &Grammar{vocab: c.v, root: root, unknown: slices.Compact(c.unknown), size: size}, nil
}
