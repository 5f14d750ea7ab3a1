package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// changes is every change that the operator's API makes, with the command that asks for it and
// the form of the console's operator area, where there is one.
var changes = []struct{ api, command, form string }{
	{"POST /admin/v1/accounts", "account create", "/operator/accounts"},
	{"PATCH /admin/v1/accounts/{account}", "account set", "/operator/accounts/{id}/plan"},
	{"PATCH /admin/v1/accounts/{account}", "account set", "/operator/accounts/{id}/suspend"},
	{"PATCH /admin/v1/accounts/{account}", "account set", "/operator/accounts/{id}/resume"},
	{"POST /admin/v1/accounts/{account}/credits", "credit add", "/operator/accounts/{id}/credit"},
	{"POST /admin/v1/accounts/{account}/adjustments", "credit adjust", "/operator/accounts/{id}/adjust"},
	{"POST /admin/v1/accounts/{account}/invitations", "account invite", "/operator/accounts/{id}/invite"},
	{"POST /admin/v1/accounts/{account}/invitations/{invitation}/revoke", "invitation revoke", "/operator/accounts/{id}/invitations/{link}/revoke"},
	{"GET /admin/v1/ledger/verification", "ledger verify", "/operator/ledger/verify"},
	{"POST /admin/v1/operator-tokens", "operator token create", "/operator/settings"},
	{"POST /admin/v1/operator-tokens/{token}/revoke", "operator token revoke", "/operator/settings/tokens/{id}/revoke"},

	{"PUT /admin/v1/accounts/{account}/subscription", "subscription set", ""},
	{"POST /admin/v1/accounts/{account}/subscription/renewals", "subscription renew", ""},
	{"POST /admin/v1/accounts/{account}/subscription/cancellation", "subscription cancel", ""},
	{"POST /admin/v1/accounts/{account}/subscription/plan", "subscription change", ""},
	{"POST /admin/v1/accounts/{account}/redemptions", "code redeem", ""},
	{"POST /admin/v1/codes", "code create", ""},
	{"POST /admin/v1/codes/{code}/revoke", "code revoke", ""},
	{"POST /admin/v1/receipts/{request}/refunds", "refund", ""},
	{"POST /admin/v1/accounts/{account}/topups", "topup create", ""},
	{"POST /admin/v1/accounts/{account}/keys", "key create", ""},
	{"PATCH /admin/v1/keys/{key}", "key set", ""},
	{"POST /admin/v1/keys/{key}/revoke", "key revoke", ""},
	{"POST /admin/v1/keys/{key}/rotate", "key rotate", ""},
	{"POST /admin/v1/backups", "backup", ""},
	{"POST /admin/v1/webhooks/deliveries/{delivery}/retry", "webhook retry", ""},
	{"POST /admin/v1/operator-links", "operator link", ""},
}

// TestParity: what an operator can do in the console the API and the command line can do too, and
// what the API can the command line can. A change that is added to one of them fails here until
// it has its row.
func TestParity(t *testing.T) {
	t.Parallel()
	commands, apis, forms := commandPaths(t), map[string]bool{}, map[string]bool{}
	for _, r := range rowsOf(t, filepath.Join("..", "..", "internal", "admin", "routes.go")) {
		apis[r[0]] = false
	}
	for _, r := range rowsOf(t, filepath.Join("..", "..", "internal", "console", "routes.go")) {
		if len(r) > 2 && r[0] == "POST" && r[2] == "forOperator" {
			forms[r[1]] = false
		}
	}
	if len(commands) < 30 || len(apis) < 30 || len(forms) < 9 {
		t.Fatalf("found %d commands, %d routes and %d forms", len(commands), len(apis), len(forms))
	}
	for _, c := range changes {
		if !commands[c.command] {
			t.Errorf("there is no command parley %s", c.command)
		}
		if _, ok := apis[c.api]; !ok {
			t.Errorf("the API has no %s", c.api)
		}
		if _, ok := forms[c.form]; !ok && c.form != "" {
			t.Errorf("the console has no form for %s", c.form)
		}
		apis[c.api], forms[c.form] = true, true
	}
	for api, known := range apis {
		if !known && !strings.HasPrefix(api, "GET ") {
			t.Errorf("%s has no command", api)
		}
	}
	for form, known := range forms {
		if !known {
			t.Errorf("the form of %s has no route of the API and no command", form)
		}
	}
}

// commandPaths are the commands that do something, as "operator token create".
func commandPaths(t *testing.T) map[string]bool {
	t.Helper()
	var grammar cli
	k, err := kong.New(&grammar, kong.Name("parley"))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, leaf := range k.Model.Leaves(false) {
		words := strings.Fields(leaf.Path())
		for i, w := range words {
			if strings.HasPrefix(w, "<") || strings.HasPrefix(w, "[") {
				words = words[:i]
				break
			}
		}
		paths[strings.Join(words, " ")] = true
	}
	return paths
}

// rowsOf are the rows of a route table as its source has them: texts unquoted, names as they are.
func rowsOf(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || lit.Type != nil || len(lit.Elts) < 4 {
			return true
		}
		var row []string
		for _, e := range lit.Elts {
			switch e := e.(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(e.Value)
				if err != nil {
					t.Fatal(err)
				}
				row = append(row, text)
			case *ast.Ident:
				row = append(row, e.Name)
			default:
				row = append(row, "")
			}
		}
		rows = append(rows, row)
		return false
	})
	return rows
}
