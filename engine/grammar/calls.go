package grammar

import (
	"fmt"
	"strconv"
)

// Tool is a function that a model may call.
type Tool struct {
	Name string
	// Parameters is the JSON Schema of the arguments, which are always an object;
	// empty means that there are none, and they are {}.
	Parameters []byte
}

// CallOptions say which calls are to be written, and how.
type CallOptions struct {
	Tools []Tool // any of these; at least one
	// Most is the calls that may be written; 0 means 1.
	Most int
	// Open comes before the first call, Between before each other, Close at the end:
	// a model's own marks, or "[", ", " and "]" for an array. Any may be empty, but
	// Between only if Most is 1.
	Open, Between, Close string
}

// The text of a call, as json.dumps and chat templates write it.
const (
	callHead = `{"name": `
	callArgs = `, "arguments": `
	callEnd  = "}"
)

// Calls compiles the grammar of calls of tools: Open, then one or more of
//
//	{"name": "…", "arguments": {…}}
//
// with Between between them, then Close. An error is an [*Error].
func Calls(v *Vocab, o CallOptions) (*Grammar, error) {
	if len(o.Tools) == 0 {
		return nil, &Error{"", "there is no tool"}
	}
	t := &callsType{most: int32(max(o.Most, 1)), open: newWords(v, []string{o.Open})}
	if t.most > 1 && o.Between == "" {
		return nil, &Error{"", "several calls need something between them"}
	}
	c := newCompiler(v)
	args := map[string]*node{}
	var heads []string
	for i, tool := range o.Tools {
		head := string(appendString([]byte(callHead), tool.Name)) + callArgs
		prefix := "/" + strconv.Itoa(i)
		if args[head] != nil {
			return nil, &Error{prefix, fmt.Sprintf("there are two tools %q", tool.Name)}
		}
		n, err := c.arguments(prefix, tool.Parameters)
		if err != nil {
			return nil, err
		}
		args[head] = n
		heads = append(heads, head)
	}
	t.heads = newWords(v, heads)
	for _, head := range t.heads.texts {
		t.args = append(t.args, args[head])
	}
	t.between, t.close = callEnd+o.Between, callEnd+o.Close
	t.tails = newWords(v, []string{t.between, t.close})
	root := &node{alts: []*alt{{id: c.nextID(), kind: kindCalls, calls: t}}, cost: infinite}
	for _, n := range t.args {
		n.users = append(n.users, root)
	}
	c.order = append(c.order, root)
	return c.compile(root)
}

// arguments returns the node of a tool's arguments.
func (c *compiler) arguments(prefix string, text []byte) (*node, error) {
	if len(text) == 0 {
		text = []byte(`{"const":{}}`)
	}
	s, err := c.document(prefix, text)
	if err != nil {
		return nil, err
	}
	object := c.newSchema(prefix)
	object.types = typeObject
	return c.node([]*schema{s, object}), nil
}

// callsType is calls of tools. A frame on it has n calls before the present one.
type callsType struct {
	open  *words
	heads *words
	args  []*node // beside heads.texts
	// tails are between and close, each with the brace that ends a call.
	tails          *words
	between, close string
	most           int32
	closing        int32 // tokens of close
}

// Phases of calls. In those of words, i, j and k are as for words.
const (
	callsOpen uint8 = iota // k bytes of open
	callsHead
	callsArgs // i is the tool
	callsTail
)

func (t *callsType) cost() int32 {
	t.closing = infinite
	for i, s := range t.tails.texts {
		if s == t.close {
			t.closing = t.tails.costs[i][0]
		}
	}
	return sum(t.open.costs[0][0], t.head(0, int32(len(t.args)), 0))
}

// head is own with k bytes of the heads i..j-1.
func (t *callsType) head(i, j, k int32) int32 {
	least := infinite
	for h := i; h < j; h++ {
		least = min(least, sum(t.heads.costs[h][k], t.args[h].cost))
	}
	return sum(least, t.closing)
}

func (t *callsType) own(f *frame) int32 {
	switch f.phase {
	case callsOpen:
		return sum(t.open.costs[0][f.k], t.head(0, int32(len(t.args)), 0))
	case callsHead:
		return t.head(f.i, f.j, f.k)
	case callsArgs:
		return sum(t.args[f.i].cost, t.closing)
	}
	return t.end(f.i, f.j, f.k, f.n)
}

// end is own with k bytes of the tails i..j-1 after n calls and the present one.
func (t *callsType) end(i, j, k int32, n int64) int32 {
	least := infinite
	for ; i < j; i++ {
		c := t.tails.costs[i][k]
		if t.tails.texts[i] == t.close {
			least = min(least, c)
		}
		if t.tails.texts[i] == t.between && n+1 < int64(t.most) {
			least = min(least, sum(c, t.head(0, int32(len(t.args)), 0)))
		}
	}
	return least
}

func (t *callsType) step(m *machine, f frame, b byte, out []frame) []frame {
	if f.phase == callsOpen {
		text := t.open.texts[0]
		if int(f.k) < len(text) {
			if text[f.k] == b {
				f.k++
				out = append(out, f)
			}
			return out
		}
		f.phase, f.j, f.k = callsHead, int32(len(t.args)), 0
	}
	switch f.phase {
	case callsHead:
		f.i, f.j = t.heads.narrow(f.i, f.j, f.k, b)
		f.k++
		if f.i == f.j || t.head(f.i, f.j, 0) >= infinite {
			return out
		}
		if t.heads.complete(f.i, f.k) { // no head is the beginning of another
			f.phase = callsArgs
		}
		return append(out, f)
	case callsArgs:
		n := t.args[f.i]
		f.phase, f.i, f.j, f.k = callsTail, 0, int32(len(t.tails.texts)), 0
		return m.value(f, n, b, out)
	}
	return t.tail(f, b, out)
}

// tail takes a byte after the arguments. The end may be complete while more could
// follow, and what comes between calls may begin as the end goes on.
func (t *callsType) tail(f frame, b byte, out []frame) []frame {
	f.i, f.j = t.tails.narrow(f.i, f.j, f.k, b)
	f.k++
	if f.i == f.j || t.end(f.i, f.j, 0, f.n) >= infinite {
		return out
	}
	out = append(out, f)
	if t.tails.complete(f.i, f.k) && t.tails.texts[f.i] == t.between && f.n+1 < int64(t.most) {
		f.phase, f.i, f.j, f.k = callsHead, 0, int32(len(t.args)), 0
		f.n++
		out = append(out, f)
	}
	return out
}
