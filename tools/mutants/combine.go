package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// chosen, in the environment of a test binary, is the number of the mutant that it runs.
const chosen = "PARLEY_MUTANT"

// chooser is a file that is added to the package of the mutants.
const chooser = `package %s

import (
	"os"
	"strconv"
)

var chosenMutant, _ = strconv.Atoi(os.Getenv("` + chosen + `"))
`

// combine returns the file with all its mutants, but the broken ones: each is a copy of its
// function, and the function calls the chosen copy. So a file is built once, which takes
// longer than to run its tests.
func (s *source) combine(broken map[int]bool) (string, error) {
	var out, copies strings.Builder
	at := 0
	for _, f := range s.functions {
		call, err := f.call()
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.path, err)
		}
		out.Write(s.text[at:f.body])
		out.WriteString("{\n\tswitch chosenMutant {\n")
		for _, m := range f.mutants {
			if broken[m.number] {
				continue
			}
			fmt.Fprintf(&out, "\tcase %d:\n\t\t%s\n", m.number, call(m.number))
			fmt.Fprintf(&copies, "\n//line mutant%d.go:1\n", m.number)
			s.copy(&copies, f, m)
		}
		fmt.Fprintf(&out, "\tdefault:\n\t\t%s\n\t}\n}", call(0))
		copies.WriteString("\n")
		s.copy(&copies, f, &mutant{from: f.to, to: f.to})
		at = f.to
	}
	out.Write(s.text[at:])
	return out.String() + copies.String(), nil
}

// copy writes f as it is in the mutant m.
func (s *source) copy(out *strings.Builder, f *function, m *mutant) {
	out.Write(s.text[f.from:f.name])
	fmt.Fprintf(out, "%s_mutant%d", f.decl.Name.Name, m.number)
	out.Write(s.text[f.name+len(f.decl.Name.Name) : m.from])
	out.WriteString(m.with)
	out.Write(s.text[m.to:max(m.to, f.to)])
	out.WriteString("\n")
}

// call returns how f calls a copy of itself.
func (f *function) call() (func(mutant int) string, error) {
	var receiver string
	var args []string
	if f.decl.Recv != nil {
		if names := f.decl.Recv.List[0].Names; len(names) == 1 && names[0].Name != "_" {
			receiver = names[0].Name + "."
		} else {
			return nil, fmt.Errorf("the receiver of %s needs a name to be mutated", f.decl.Name)
		}
	}
	for _, field := range f.decl.Type.Params.List {
		for _, name := range field.Names {
			args = append(args, name.Name)
		}
		if len(field.Names) == 0 || args[len(args)-1] == "_" {
			return nil, fmt.Errorf("the parameters of %s need names to be mutated", f.decl.Name)
		}
	}
	return func(mutant int) string {
		call := fmt.Sprintf("%s%s_mutant%d(%s)", receiver, f.decl.Name, mutant, strings.Join(args, ", "))
		if f.decl.Type.Results != nil {
			return "return " + call
		}
		return call
	}, nil
}

var place = regexp.MustCompile(`mutant(\d+)\.go:\d+`)

// combined builds the tests with all mutants of f through an overlay: the tree is not
// touched. It returns which mutants do not build, and leaves them out.
func (t *tests) combined(dir string, f *source) (binary string, broken map[int]bool, err error) {
	binary = filepath.Join(dir, "tests")
	broken = map[int]bool{}
	for {
		overlay, err := f.overlay(dir, broken)
		if err != nil {
			return "", nil, err
		}
		out, err := t.build(binary, "-gcflags=./"+filepath.Dir(f.path)+"=-e", "-overlay="+overlay)
		if err == nil {
			return binary, broken, nil
		}
		before := len(broken)
		for _, found := range place.FindAllSubmatch(out, -1) {
			n, _ := strconv.Atoi(string(found[1])) // digits
			broken[n] = true
		}
		if len(broken) == before {
			return "", nil, fmt.Errorf("%s with the mutants of %s: %w\n%s", t.pkg, f.path, err, out)
		}
	}
}

// overlay writes what go build is to read in place of f, and what beside it.
func (s *source) overlay(dir string, broken map[int]bool) (path string, err error) {
	whole, err := filepath.Abs(s.path)
	if err != nil {
		return "", err
	}
	combined, err := s.combine(broken)
	if err != nil {
		return "", err
	}
	changed, added := filepath.Join(dir, filepath.Base(s.path)), filepath.Join(dir, "chosen_mutant.go")
	entry, err := json.Marshal(map[string]map[string]string{"Replace": {
		whole: changed, filepath.Join(filepath.Dir(whole), filepath.Base(added)): added,
	}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{
		changed: combined, added: fmt.Sprintf(chooser, filepath.Base(filepath.Dir(whole))), path: string(entry),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return path, nil
}
