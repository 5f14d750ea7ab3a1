package parley_test

import (
	"fmt"
	"go/ast"
	"os"
	"strings"
	"testing"
)

// habits are limits that keep the rooms small enough to read. Raising one, or adding an exception,
// needs its reason written beside it.
type habits struct {
	maxFile, maxFunc, maxTODO int
	// longFiles and longFuncs are the exceptions: what, and the length it may have.
	longFiles, longFuncs map[string]int
}

func TestHabits(t *testing.T) {
	t.Parallel()
	h := habits{
		maxFile: 500, maxFunc: 70, maxTODO: 10,
		longFiles: map[string]int{},
		longFuncs: map[string]int{
			"internal/console.routes": 200, // the one table of all pages: a row each, and nothing else
		},
	}
	for _, problem := range h.check(readTree(t, ".")) {
		t.Error(problem)
	}
}

func TestHabits_README(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, at most 150 are read", n)
	}
	// The two commands come first: a stranger tries before reading.
	head := strings.Join(strings.SplitN(string(text), "\n", 31)[:30], "\n")
	for _, command := range []string{"make run", "make test"} {
		if !strings.Contains(head, command) {
			t.Errorf("README.md does not name %q in its first 30 lines", command)
		}
	}
}

// check returns one line for every broken habit, and for every exception no longer needed.
func (h habits) check(tree []*source) []string {
	var problems []string
	documented, named := map[string]bool{}, map[string]bool{}
	todos := 0
	neededFile, neededFunc := map[string]bool{}, map[string]bool{}
	for _, s := range tree {
		generated := ast.IsGenerated(s.file)
		if !s.test && !generated {
			problems = append(problems, h.sizes(s, neededFile, neededFunc)...)
		}
		problems = append(problems, calls(s)...)
		if !s.test || !strings.HasSuffix(s.file.Name.Name, "_test") {
			named[s.pkg()] = true
			if s.file.Doc != nil {
				documented[s.pkg()] = true
			}
		}
		for _, group := range s.file.Comments {
			for line := range strings.SplitSeq(group.Text(), "\n") {
				if strings.HasPrefix(line, "TODO") {
					todos++
					if !strings.HasPrefix(line, "TODO(") {
						problems = append(problems, fmt.Sprintf("%s: a TODO needs an owner: TODO(name): what", s.at(group)))
					}
				}
			}
		}
	}
	for pkg := range named {
		if !documented[pkg] {
			problems = append(problems, fmt.Sprintf("%s: the package has no doc comment", pkg))
		}
	}
	if todos > h.maxTODO {
		problems = append(problems, fmt.Sprintf("%d TODOs, at most %d: do one first", todos, h.maxTODO))
	}
	for name := range h.longFiles {
		if !neededFile[name] {
			problems = append(problems, fmt.Sprintf("%s is short now: take it off the list", name))
		}
	}
	for name := range h.longFuncs {
		if !neededFunc[name] {
			problems = append(problems, fmt.Sprintf("%s is short now: take it off the list", name))
		}
	}
	return problems
}

func (h habits) sizes(s *source, neededFile, neededFunc map[string]bool) []string {
	var problems []string
	limit := max(h.maxFile, h.longFiles[s.path])
	neededFile[s.path] = s.lines > h.maxFile
	if s.lines > limit {
		problems = append(problems, fmt.Sprintf("%s: %d lines, at most %d", s.path, s.lines, limit))
	}
	for _, d := range s.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1
		name := s.pkg() + "." + fn.Name.Name
		limit := max(h.maxFunc, h.longFuncs[name])
		neededFunc[name] = neededFunc[name] || lines > h.maxFunc
		if lines > limit {
			problems = append(problems, fmt.Sprintf("%s: %s has %d lines, at most %d", s.at(fn), fn.Name.Name, lines, limit))
		}
		if fn.Recv == nil && fn.Name.Name == "init" {
			problems = append(problems, fmt.Sprintf("%s: init runs before anybody can configure or test it", s.at(fn)))
		}
	}
	return problems
}

// calls finds time.Sleep in tests: it is either too short on a busy machine or too long on a quiet
// one. Inside a synctest bubble it takes no time and is exact.
func calls(s *source) []string {
	if !s.test && !inside("e2e", s.pkg()) {
		return nil
	}
	var problems []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && isName(call.Fun, "synctest", "Test") {
			return false
		}
		if sel, ok := n.(*ast.SelectorExpr); ok && isName(sel, "time", "Sleep") {
			problems = append(problems, fmt.Sprintf("%s: a test sleeps; poll with a deadline or use synctest", s.at(sel)))
		}
		return true
	})
	return problems
}

// isName tells whether e is pkg.name.
func isName(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}
