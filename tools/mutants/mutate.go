package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
)

// mutant is one small change of one file.
type mutant struct {
	file, fn   string // relative to the module; the function's name
	line       int
	nth        int // of those that read the same, from 1
	from, to   int // bytes of the file that are replaced
	with, what string
	was, is    string // the line, before and after
	number     int    // among those of the file, from 1
}

// id names the mutant in the list of equivalents: the number of its line may change.
func (m *mutant) id() string {
	return fmt.Sprintf("%s %s %d: %s => %s", m.file, m.fn, m.nth, strings.TrimSpace(m.was), strings.TrimSpace(m.is))
}

// source is a file and the functions that have mutants.
type source struct {
	path      string
	text      []byte
	functions []*function
	mutants   []*mutant
}

// function is a declaration of one, by the bytes of its file.
type function struct {
	from, body, to int // of the declaration, where its body begins, and behind it
	name           int
	decl           *ast.FuncDecl
	mutants        []*mutant
}

// read finds every mutant of a file.
func read(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, text: text}
	v := &visitor{file: path, text: text, fset: fset}
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		first := len(v.found)
		v.fn, v.seen = f.Name.Name, map[string]int{}
		v.function(f)
		ast.Inspect(f.Body, v.visit)
		at := func(p token.Pos) int { return fset.Position(p).Offset }
		s.functions = append(s.functions, &function{at(f.Pos()), at(f.Body.Pos()), at(f.End()), at(f.Name.Pos()), f, v.found[first:]})
	}
	s.mutants = v.found
	return s, nil
}

type visitor struct {
	file  string
	text  []byte
	fset  *token.FileSet
	fn    string         // that is visited
	seen  map[string]int // in it, how often a change reads so
	found []*mutant
}

// The operators and what each becomes.
var operators = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.ADD}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD_ASSIGN: {token.SUB_ASSIGN, token.ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN, token.ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
}

// replace adds a mutant that has with in place of the bytes from a to b.
func (v *visitor) replace(a, b token.Pos, with, what string) {
	from, to := v.fset.Position(a).Offset, v.fset.Position(b).Offset
	start := bytes.LastIndexByte(v.text[:from], '\n') + 1
	end := max(to, from+bytes.IndexByte(v.text[from:], '\n')) // of a statement of several lines, its own
	m := &mutant{file: v.file, fn: v.fn, line: v.fset.Position(a).Line, from: from, to: to, with: with, what: what, was: string(v.text[start:end])}
	m.is = string(v.text[start:from]) + with + string(v.text[to:end])
	v.seen[m.id()]++
	m.nth = v.seen[m.id()]
	v.found = append(v.found, m)
	m.number = len(v.found)
}

func (v *visitor) operator(pos token.Pos, op token.Token) {
	for _, other := range operators[op] {
		v.replace(pos, pos+token.Pos(len(op.String())), other.String(), op.String()+" becomes "+other.String())
	}
}

// function makes f return at once where it has no results.
func (v *visitor) function(f *ast.FuncDecl) {
	if f.Type.Results == nil && len(f.Body.List) > 0 {
		at := f.Body.Lbrace + 1
		v.replace(at, at, "\nreturn\n", f.Name.Name+" returns at once")
	}
}

func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		v.operator(n.OpPos, n.Op)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			v.replace(n.OpPos, n.OpPos+1, "", "a negation is gone")
		}
	case *ast.IfStmt:
		cond := string(v.text[v.fset.Position(n.Cond.Pos()).Offset:v.fset.Position(n.Cond.End()).Offset])
		// The condition stays, so that what it names is still used.
		v.replace(n.Cond.Pos(), n.Cond.End(), "true || ("+cond+")", "the condition is true")
		v.replace(n.Cond.Pos(), n.Cond.End(), "false && ("+cond+")", "the condition is false")
	case *ast.IncDecStmt:
		v.operator(n.TokPos, n.Tok)
	case *ast.AssignStmt:
		v.operator(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			v.remove(n)
		}
	case *ast.ExprStmt, *ast.DeferStmt, *ast.SendStmt, *ast.GoStmt:
		v.remove(n)
	case *ast.BasicLit:
		if i, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
			v.replace(n.Pos(), n.End(), strconv.Itoa(i+1), n.Value+" becomes "+strconv.Itoa(i+1))
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			v.replace(n.Pos(), n.End(), other, n.Name+" becomes "+other)
		}
	}
	return true
}

func (v *visitor) remove(n ast.Node) { v.replace(n.Pos(), n.End(), "", "a statement is gone") }
