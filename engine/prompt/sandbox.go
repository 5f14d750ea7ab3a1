package prompt

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// budgetKey cannot be written in a template.
const budgetKey = "\x00budget"

// maxRange is the most numbers that a range may have.
const maxRange = 10_000

// maxDepth is how deep macros may call, and maxRecursions how often a recursive
// loop may enter itself. Each level costs stack and adds words to an error.
const (
	maxDepth      = 100
	maxRecursions = 500
)

// budget is what is left of one rendering's allowance.
type budget struct {
	turns      int // of all loops, and calls of macros
	depth      int
	recursions int
	// refusal is what raise_exception was given: gonja keeps only its text.
	refusal *Refusal
}

func allow(messages int) *budget {
	return &budget{turns: min(10_000+1000*messages, 1_000_000), depth: maxDepth, recursions: maxRecursions}
}

// tick is put first in the body of every loop and macro, and last in that of a
// macro, so that a template that never ends becomes an error.
type tick struct {
	at *tokens.Token
	// What it takes from the budget.
	turns, depth, recursions int
}

func (t tick) Position() *tokens.Token { return t.at }
func (t tick) String() string          { return "tick" }

func (t tick) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	v, _ := r.Environment.Context.Get(budgetKey)
	b, ok := v.(*budget)
	if !ok {
		return errors.New("no budget")
	}
	b.turns -= t.turns
	b.depth -= t.depth
	b.recursions -= t.recursions
	if b.turns < 0 || b.depth < 0 || b.recursions < 0 {
		return errors.New("the template runs without end")
	}
	return nil
}

// bounded wraps a statement's parser so that its body begins with a tick.
func bounded(parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		at := p.Current()
		s, err := parse(p, args)
		if err != nil {
			return s, err
		}
		put := func(t tick) nodes.Node {
			return &nodes.ControlStructureBlock{Location: at, Name: "tick", ControlStructure: t}
		}
		switch s := s.(type) {
		case *controlStructures.ForControlStructure:
			t := tick{at: at, turns: 1}
			if s.Recursive {
				t.recursions = 1
			}
			s.BodyWrapper.Nodes = slices.Insert(s.BodyWrapper.Nodes, 0, put(t))
		case *controlStructures.MacroControlStructure:
			s.Wrapper.Nodes = slices.Insert(s.Wrapper.Nodes, 0, put(tick{at: at, turns: 1, depth: 1}))
			s.Wrapper.Nodes = append(s.Wrapper.Nodes, put(tick{at: at, depth: -1}))
		default:
			return nil, fmt.Errorf("statement %T cannot be bounded", s)
		}
		return s, nil
	}
}

// statements are those that reach neither files nor other templates.
func statements() (*exec.ControlStructureSet, error) {
	set := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"for", "if", "set", "macro", "filter", "raw", "with", "do", "break", "continue", "call"} {
		p, ok := builtins.ControlStructures.Get(name)
		if !ok {
			return nil, fmt.Errorf("no statement %s", name)
		}
		if name == "for" || name == "macro" {
			p = bounded(p)
		}
		set[name] = p
	}
	return exec.NewControlStructureSet(set), nil
}

// functions replaces those of gonja's that start a goroutine or return noise.
func functions() *exec.Context {
	ctx := exec.EmptyContext()
	for _, name := range []string{"dict", "namespace", "joiner", "cycler"} {
		if f, ok := builtins.GlobalFunctions.Get(name); ok {
			ctx.Set(name, f)
		}
	}
	ctx.Set("range", rangeOf)
	ctx.Set("raise_exception", func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		why := &Refusal{"no reason given"}
		if len(args.Args) > 0 {
			why.Reason = args.Args[0].String()
		}
		v, _ := e.Environment.Context.Get(budgetKey)
		if b, ok := v.(*budget); ok {
			b.refusal = why
		}
		return exec.AsValue(error(why))
	})
	ctx.Set("strftime_now", func(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		layout := "%Y-%m-%d"
		if len(args.Args) > 0 {
			layout = args.Args[0].String()
		}
		return exec.AsValue(strftime(time.Now().UTC(), layout))
	})
	return ctx
}

// strftime knows the directives that chat templates use.
func strftime(now time.Time, layout string) string {
	return strings.NewReplacer("%Y", now.Format("2006"), "%y", now.Format("06"), "%m", now.Format("01"), "%d", now.Format("02"),
		"%B", now.Format("January"), "%b", now.Format("Jan"), "%A", now.Format("Monday"), "%a", now.Format("Mon"),
		"%H", now.Format("15"), "%M", now.Format("04"), "%S", now.Format("05"), "%%", "%").Replace(layout)
}

func rangeOf(_ *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	n := make([]int, 0, 3)
	for _, a := range args.Args {
		if !a.IsInteger() {
			return exec.AsValue(errors.New("range takes integers"))
		}
		n = append(n, a.Integer())
	}
	start, stop, step := 0, 0, 1
	switch len(n) {
	case 1:
		stop = n[0]
	case 2:
		start, stop = n[0], n[1]
	case 3:
		start, stop, step = n[0], n[1], n[2]
	}
	if len(n) == 0 || len(n) > 3 || step == 0 {
		return exec.AsValue(errors.New("range takes one to three integers, the last not 0"))
	}
	out := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) == maxRange {
			return exec.AsValue(fmt.Errorf("range of more than %d", maxRange))
		}
		out = append(out, i)
	}
	return exec.AsValue(out)
}

// onlySource is a loader that knows one template and no file.
type onlySource string

const sourceName = "chat_template"

func (s onlySource) Read(path string) (io.Reader, error) {
	if path != sourceName {
		return nil, errors.New("a chat template cannot load others")
	}
	return strings.NewReader(string(s)), nil
}

func (s onlySource) Resolve(path string) (string, error) { return path, nil }

func (s onlySource) Inherit(string) (loaders.Loader, error) { return s, nil }

func compile(source string) (t *exec.Template, err error) {
	defer rescue(&err)
	set, err := statements()
	if err != nil {
		return nil, err
	}
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	return exec.NewTemplate(sourceName, c, onlySource(source), &exec.Environment{
		Context:           functions(),
		Filters:           builtins.Filters,
		Tests:             builtins.Tests,
		ControlStructures: set,
		Methods:           builtins.Methods,
	})
}

// rescue makes an error of a panic: a template comes from a file, and gonja
// panics on some odd ones.
func rescue(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("template panics: %v", r)
	}
}
