package account

import (
	"errors"
	"fmt"
	"strings"
)

// Scopes are the rights of a key: a set of the constants below.
type Scopes uint8

// The rights of keys.
const (
	ScopeChat      Scopes = 1 << iota // make calls
	ScopeModels                       // see the models; the public list asks for no key
	ScopeUsageRead                    // see what was used
	ScopeKeysWrite                    // make and change keys
	ScopeBilling                      // see and change what is paid

	// DefaultScopes is what a key may do when its maker says nothing.
	DefaultScopes = ScopeChat | ScopeModels
)

// scopeNames are the scopes in the order of their bits.
var scopeNames = [...]string{"chat", "models", "usage:read", "keys:write", "billing"}

// ErrScope means a name that no scope has, or a key without any.
var ErrScope = errors.New("the scopes of a key are one or more of " + strings.Join(scopeNames[:], ", "))

// ParseScopes is the set of those names. It fails with [ErrScope].
func ParseScopes(names []string) (s Scopes, err error) {
next:
	for _, name := range names {
		for i, known := range scopeNames {
			if name == known {
				s |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("%w, not %.32q", ErrScope, name)
	}
	if s == 0 {
		return 0, ErrScope
	}
	return s, nil
}

// Has reports whether all of want are in s.
func (s Scopes) Has(want Scopes) bool { return s&want == want }

// Names are the names of the scopes in s, in a fixed order.
func (s Scopes) Names() []string {
	names := []string{}
	for i, name := range scopeNames {
		if s.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// String is the names with commas.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }
