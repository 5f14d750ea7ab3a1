package account_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/account"
)

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ names, want string }{
		{"chat", "chat"},
		{"models,chat", "chat,models"},
		{"billing,keys:write,usage:read,models,chat", "chat,models,usage:read,keys:write,billing"},
		{"chat,chat", "chat"},
		{"", ""},
		{"chat,", ""},
		{"Chat", ""},
		{"usage", ""},
		{"chat,admin", ""},
	} {
		s, err := account.ParseScopes(strings.Split(c.names, ","))
		if (err == nil) != (c.want != "") || err != nil && !errors.Is(err, account.ErrScope) || s.String() != c.want {
			t.Errorf("ParseScopes(%s) = %s, %v, want %s", c.names, s, err, c.want)
		}
		if c.want == "" {
			continue
		}
		again, err := account.ParseScopes(s.Names())
		if err != nil || again != s {
			t.Errorf("the names of %s make %s, %v", s, again, err)
		}
		for _, name := range account.Scopes(0xff).Names() {
			one, err := account.ParseScopes([]string{name})
			if err != nil || s.Has(one) != slices.Contains(s.Names(), name) {
				t.Errorf("%s Has(%s) = %v, %v", s, name, s.Has(one), err)
			}
		}
	}
	if _, err := account.ParseScopes(nil); !errors.Is(err, account.ErrScope) {
		t.Errorf("no scope at all gives %v, want ErrScope", err)
	}
	if s := account.DefaultScopes; s.Has(account.ScopeChat|account.ScopeBilling) || !s.Has(account.ScopeChat|account.ScopeModels) {
		t.Errorf("the default is %s", s)
	}
}
