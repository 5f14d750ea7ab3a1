// Package parley_test holds the module to its own rules: the import table and the library table of
// ARCHITECTURE.md, and the habits of CONTRIBUTING.md.
package parley_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/parley-ai/parley"

func TestArchitecture(t *testing.T) {
	t.Parallel()
	tree := readTree(t, ".")
	laws := readLaws(t, "ARCHITECTURE.md")
	for _, problem := range laws.check(tree) {
		t.Error(problem)
	}
}

// TestArchitecture_Catches proves that the test above sees what it should: every line of want.txt
// is one violation planted in the small tree under testdata, and nothing else is reported.
func TestArchitecture_Catches(t *testing.T) {
	t.Parallel()
	root := filepath.Join("testdata", "crooked")
	laws := readLaws(t, filepath.Join(root, "ARCHITECTURE.md"))
	tree := readTree(t, root)
	got := append(laws.check(tree), habits{
		maxFile: 56, maxFunc: 20, maxTODO: 1,
	}.check(tree)...)
	for i := range got {
		got[i] = filepath.ToSlash(got[i])
	}
	sort.Strings(got)
	data, err := os.ReadFile(filepath.Join(root, "want.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(data)), "\n")
	sort.Strings(want)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not reported: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("reported without cause: %s", g)
		}
	}
}

// source is one parsed file of a tree.
type source struct {
	path  string // slash-separated, relative to the tree's root
	test  bool
	lines int
	fset  *token.FileSet
	file  *ast.File
}

// pkg is the directory of s, which is its package's path inside the module.
func (s *source) pkg() string { return path.Dir(s.path) }

// at is the place of node, for a message.
func (s *source) at(node ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(node.Pos()).Line)
}

// imports lists what s imports.
func (s *source) imports() []string {
	var list []string
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			list = append(list, p)
		}
	}
	return list
}

// readTree parses every Go file below root. Modules of their own and testdata are not ours.
func readTree(t *testing.T, root string) []*source {
	t.Helper()
	var tree []*source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			_, modErr := os.Stat(filepath.Join(p, "go.mod"))
			if p != root && (modErr == nil || name == "testdata" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		s := &source{path: filepath.ToSlash(rel), test: strings.HasSuffix(p, "_test.go"), fset: token.NewFileSet()}
		s.lines = strings.Count(string(text), "\n")
		s.file, err = parser.ParseFile(s.fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tree = append(tree, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// laws is what ARCHITECTURE.md allows.
type laws struct {
	// rooms maps a room to the rooms it may import; "anything" lifts the rule.
	rooms map[string][]string
	order []string
	// libraries maps an import path, or a name such as http.Client, to the rooms that may use it.
	libraries map[string][]string
}

var quoted = regexp.MustCompile("`([^`]+)`")

// readLaws reads the two tables: their heads begin with "| package |" and "| library |".
func readLaws(t *testing.T, file string) laws {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l := laws{rooms: map[string][]string{}, libraries: map[string][]string{}}
	var into map[string][]string
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "| package |"):
			into = l.rooms
			continue
		case strings.HasPrefix(line, "| library |"):
			into = l.libraries
			continue
		case !strings.HasPrefix(line, "|"):
			into = nil
		}
		if into == nil || len(cells) < 4 || strings.HasPrefix(line, "|--") {
			continue
		}
		allowed := []string{}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			allowed = append(allowed, m[1])
		}
		if strings.Contains(cells[2], "anything") {
			allowed = append(allowed, "anything")
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			into[m[1]] = allowed
			l.order = append(l.order, m[1])
		}
	}
	if len(l.rooms) == 0 || len(l.libraries) == 0 {
		t.Fatalf("%s: found %d rooms and %d libraries; the tables are gone or their heads changed",
			file, len(l.rooms), len(l.libraries))
	}
	return l
}

// check returns one line for every import and every use of a library that l does not allow, for
// every package without a row, and for every row without a package.
func (l laws) check(tree []*source) []string {
	var problems []string
	seen := map[string]bool{}
	for _, s := range tree {
		room, known := l.room(s.pkg())
		seen[room] = true
		// Tests may use whatever proves the most; e2e is tests throughout, the root only this file.
		if s.test || inside("e2e", s.pkg()) {
			continue
		}
		if !known {
			problems = append(problems, fmt.Sprintf("%s: package %s has no row in the import table", s.path, s.pkg()))
			continue
		}
		problems = append(problems, l.checkImports(s, room)...)
		problems = append(problems, l.checkNames(s)...)
	}
	for room := range l.rooms {
		if !seen[room] {
			problems = append(problems, fmt.Sprintf("ARCHITECTURE.md: the import table has %s, but there is no such package", room))
		}
	}
	return problems
}

func (l laws) checkImports(s *source, room string) []string {
	var problems []string
	allowed := l.rooms[room]
	for _, imported := range s.imports() {
		ours, isOurs := strings.CutPrefix(imported, module+"/")
		if isOurs {
			if !slices.Contains(allowed, "anything") && !allows(allowed, short(ours)) {
				problems = append(problems, fmt.Sprintf("%s: %s may not import %s", s.path, short(s.pkg()), short(ours)))
			}
			continue
		}
		for library, places := range l.libraries {
			if inside(library, imported) && !allows(places, short(s.pkg())) {
				problems = append(problems, fmt.Sprintf("%s: %s belongs in %s only", s.path, library, strings.Join(places, ", ")))
			}
		}
	}
	return problems
}

// checkNames holds single names of a library to their place, such as http.Client.
func (l laws) checkNames(s *source) []string {
	var problems []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		name := x.Name + "." + sel.Sel.Name
		if places, held := l.libraries[name]; held && !allows(places, short(s.pkg())) {
			problems = append(problems, fmt.Sprintf("%s: %s belongs in %s only", s.at(sel), name, strings.Join(places, ", ")))
		}
		return true
	})
	return problems
}

// room finds the row for a package: its own, or that of the nearest parent written as "parent/*".
func (l laws) room(pkg string) (string, bool) {
	name := short(pkg)
	if _, ok := l.rooms[name]; ok {
		return name, true
	}
	for p := name; p != "."; p = path.Dir(p) {
		if _, ok := l.rooms[p+"/*"]; ok {
			return p + "/*", true
		}
	}
	return name, false
}

// short is a package's name in the tables: internal/ledger is ledger.
func short(pkg string) string { return strings.TrimPrefix(pkg, "internal/") }

// inside tells whether p is dir or below it.
func inside(dir, p string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// allows tells whether list names p, itself or by "parent/*".
func allows(list []string, p string) bool {
	for _, entry := range list {
		if entry == p {
			return true
		}
		if parent, ok := strings.CutSuffix(entry, "/*"); ok && inside(parent, p) {
			return true
		}
	}
	return false
}
