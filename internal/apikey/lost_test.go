package apikey_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
)

// deaf is a store whose first revocation is written and its answer lost.
type deaf struct {
	apikey.Store
	heard bool
}

var errLost = errors.New("the answer was lost")

func (d *deaf) RevokeKey(ctx context.Context, id string, at time.Time) error {
	err := d.Store.RevokeKey(ctx, id, at)
	if err == nil && !d.heard {
		d.heard = true
		return errLost
	}
	return err
}

// A revocation that reported an error can be repeated until the key is dead.
func TestRevoke_AnswerLost(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), func(s apikey.Store) apikey.Store { return &deaf{Store: s} })
	k, auth := r.create(t, apikey.NewKey{})
	if _, err := r.Revoke(t.Context(), k.ID); !errors.Is(err, errLost) {
		t.Fatalf("the first Revoke gives %v, want the store's error", err)
	}
	if _, err := r.Revoke(t.Context(), k.ID); err != nil {
		t.Errorf("the second Revoke gives %v", err)
	}
	if _, err := r.Authenticate(auth, time.Now()); !errors.Is(err, apikey.ErrRevoked) {
		t.Errorf("Authenticate gives %v, want ErrRevoked", err)
	}
}
