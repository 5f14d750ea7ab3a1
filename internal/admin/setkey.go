package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
)

func (s *service) setKey(r *http.Request) (any, error) {
	k, err := s.key(r)
	if err != nil {
		return nil, err
	}
	var in KeyChange
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	c, err := s.change(in)
	if err != nil {
		return nil, err
	}
	changed, err := s.Keys.Change(r.Context(), k.ID, c)
	if a, ok := s.Accounts.ByID(k.AccountID); ok && errors.Is(err, apikey.ErrLimit) {
		var rpm int64
		if c.RPM != nil {
			rpm = *c.RPM
		}
		return nil, s.overPlan(a, rpm)
	}
	if err != nil {
		return nil, err
	}
	return s.keyView(changed, time.Now()), nil
}

// change reads what is to be different.
func (s *service) change(in KeyChange) (c apikey.Change, err error) {
	c.Name = in.Name
	if in.Scopes != nil {
		scopes, err := account.ParseScopes(in.Scopes)
		if err != nil {
			return c, err
		}
		c.Scopes = &scopes
	}
	if in.ExpiresAt.Given {
		c.ExpiresAt = new(time.Time)
		if t := in.ExpiresAt.Value; t != nil {
			c.ExpiresAt = t
		}
	}
	if c.Models, err = read(in.Models, s.restriction); err != nil {
		return c, err
	}
	if c.Networks, err = read(in.Allow, apikey.ParseNetworks); err != nil {
		return c, err
	}
	if c.Budget, err = read(in.Budget, account.ParseBudget); err != nil {
		return c, err
	}
	if c.RPM, err = read(in.RPM, func(n int64) (int64, error) { return limitOf("rpm", &n) }); err != nil {
		return c, err
	}
	c.TPM, err = read(in.TPM, func(n int64) (int64, error) { return limitOf("tpm", &n) })
	return c, err
}

// read is a setting in the rooms' words: nil when there is none, a zero value when it
// takes away.
func read[T, U any](s Setting[T], parse func(T) (U, error)) (*U, error) {
	switch {
	case !s.Given:
		return nil, nil
	case s.Value == nil:
		return new(U), nil
	}
	v, err := parse(*s.Value)
	return &v, err
}
