package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// What the first start makes.
const (
	firstFile    = "first-start.json"
	firstAccount = "default"
	firstKey     = "first"
	firstPlan    = "pro"
	firstCredit  = 100 * money.IU
)

// firstStart is the account and the key of a first start, as they are kept for scripts.
type firstStart struct {
	Account string `json:"account"`
	Plan    string `json:"plan"`
	Credit  string `json:"credit"`
	KeyID   string `json:"key_id"`
	Key     string `json:"key"`
	URL     string `json:"url"`
	Model   string `json:"model"`
	Console string `json:"console"` // a link that claims it, once
	path    string
}

// beginFirst makes the first account where there is none. It is nil on a later start.
// An unfinished file from a start that was killed half way is taken up again; each
// step adds only what is missing.
func (a *App) beginFirst(ctx context.Context) (*firstStart, error) {
	path := filepath.Join(a.config.Data, firstFile)
	part := path + ".part"
	_, err := os.Stat(part)
	if unfinished := err == nil; len(a.rooms.accounts.All()) > 0 && !unfinished {
		return nil, nil
	}
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		return nil, err
	}
	f := &firstStart{Account: firstAccount, Plan: a.firstPlan(), Credit: firstCredit.String(), path: path}
	who, ok := a.rooms.accounts.ByName(firstAccount)
	if !ok {
		if who, err = a.rooms.accounts.Create(ctx, firstAccount, f.Plan); err != nil {
			return nil, fmt.Errorf("the first account cannot be made: %w", err)
		}
	}
	grant := ledger.Grant{AccountID: who.ID, Amount: firstCredit, Note: "first start", Source: "first-start"}
	if _, err := a.rooms.ledger.Grant(ctx, grant); err != nil {
		return nil, fmt.Errorf("the first account cannot be given credit: %w", err)
	}
	key, secret, err := a.rooms.keys.Create(ctx, apikey.NewKey{AccountID: who.ID, Name: firstKey})
	if err != nil {
		return nil, fmt.Errorf("the first key cannot be made: %w", err)
	}
	token, _, err := a.rooms.gate.MakeOperatorLink(ctx, who.ID)
	if err != nil {
		return nil, fmt.Errorf("the link to the console cannot be made: %w", err)
	}
	f.Console = member.ClaimURL(a.publicURL().String(), token)
	f.KeyID, f.Key, f.URL, f.Model = key.ID, string(secret), a.URL(), a.firstModel(f.Plan)
	return f, nil
}

// firstPlan is pro, or the plan with most models where the configuration has no pro.
func (a *App) firstPlan() string {
	if _, ok := a.rooms.accounts.Plan(firstPlan); ok {
		return firstPlan
	}
	models := func(p account.Plan) (n int) {
		for _, m := range a.config.Models {
			if slices.Contains(m.Plans, p.ID) {
				n++
			}
		}
		return n
	}
	return slices.MaxFunc(a.rooms.accounts.Plans(), func(x, y account.Plan) int { return models(x) - models(y) }).ID
}

// firstModel is the first model of the file that the plan has.
func (a *App) firstModel(plan string) string {
	for _, m := range a.config.Models {
		if slices.Contains(m.Plans, plan) {
			return m.ID
		}
	}
	return ""
}

// tell writes the facts to their file and prints them, once.
func (f *firstStart) tell(a *App) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	part := f.path + ".part"
	if err := errors.Join(os.WriteFile(part, append(text, '\n'), 0o600), os.Rename(part, f.path)); err != nil {
		return fmt.Errorf("the key of the first start cannot be kept: %w", err)
	}
	if a.options.QuietSecrets {
		fmt.Fprintln(a.screen.out, f.path)
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nFirst start. These are shown once:\n")
	fmt.Fprintf(&b, "  account  %s, plan %s, %s IU\n", f.Account, f.Plan, firstCredit.Display())
	fmt.Fprintf(&b, "  key      %s\n", f.Key)
	fmt.Fprintf(&b, "  console  %s   one use, 1 hour\n", f.Console)
	if f.Model != "" {
		fmt.Fprintf(&b, "\nTry it:\n  curl %s/v1/chat/completions \\\n", f.URL)
		fmt.Fprintf(&b, "    -H \"Authorization: Bearer %s\" \\\n", f.Key)
		fmt.Fprintf(&b, "    -H \"Content-Type: application/json\" \\\n")
		fmt.Fprintf(&b, "    -d '{\"model\":%q,\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}]}'\n", f.Model)
	}
	fmt.Fprintln(&b)
	_, err = a.screen.out.Write([]byte(b.String()))
	return err
}
