package console

import (
	"context"
	"strings"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/member"
)

// mostFound bounds how many accounts are listed for one of their members or keys.
const mostFound = 50

// operates reports whether the visitor may find any account, and there is a page of it.
func (v *visit) operates() bool {
	return v.who.Member.Operator && v.s.paths["/operator/accounts/{id}"]
}

// findAccounts finds accounts for operators by id and name.
func (v *visit) findAccounts(q string) (all []hit) {
	if !v.operates() {
		return nil
	}
	for _, a := range v.s.Accounts.All() {
		if q == a.ID || begins(a.Name, q) {
			all = append(all, hit{Path: accountPath(a), Name: a.Name, Kind: "Account"})
		}
	}
	return all
}

// findAccountsOfPeople finds the accounts of members for operators, by an email or the
// beginning of one as far as its @.
func (v *visit) findAccountsOfPeople(q string) (all []hit) {
	if !v.operates() || !strings.Contains(q, "@") {
		return nil
	}
	found, ok := partial(v, func(ctx context.Context) ([]member.Belonging, error) {
		return v.s.Gate.Store.Belongings(ctx, q, mostFound)
	})
	if !ok {
		return nil
	}
	for _, b := range found {
		if a, ok := v.s.Accounts.ByID(b.AccountID); ok {
			all = append(all, hit{Path: accountPath(a), Name: a.Name, Kind: "Account of " + b.Email})
		}
	}
	return all
}

// findAccountsOfKeys finds the accounts of keys for operators, by a key's id or by what is
// shown of its secret. The account's own keys are found by their pages.
func (v *visit) findAccountsOfKeys(q string) (all []hit) {
	if !v.operates() {
		return nil
	}
	own := ""
	if v.account != nil {
		own = v.account.ID
	}
	found := v.s.Keys.Search(mostFound, func(k *apikey.Key) bool {
		return k.AccountID != own && (q == k.ID || q == k.Last4 || strings.HasPrefix(k.Prefix+ellipsis+k.Last4, q) && len(q) >= len("sk-"))
	})
	for i := range found {
		k := &found[i]
		if a, ok := v.s.Accounts.ByID(k.AccountID); ok {
			all = append(all, hit{Path: accountPath(a), Name: a.Name, Kind: "Account of API key " + k.Prefix + ellipsis + k.Last4})
		}
	}
	return all
}

func accountPath(a *account.Account) string { return "/operator/accounts/" + a.ID }
