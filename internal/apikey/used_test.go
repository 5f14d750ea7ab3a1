package apikey_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
)

// touches counts what the store is told of last uses, and can fail.
type touches struct {
	apikey.Store
	calls atomic.Int32
	fail  atomic.Bool
}

var errDisk = errors.New("disk I/O error")

func (s *touches) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	s.calls.Add(1)
	if s.fail.Load() {
		return errDisk
	}
	return s.Store.TouchKeys(ctx, used)
}

// stored is the last use that the database knows of.
func (r *ring) stored(t testing.TB, id string) time.Time {
	t.Helper()
	keys, err := r.db.Keys(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.ID == id {
			return k.LastUsedAt
		}
	}
	t.Fatalf("no key %s", id)
	return time.Time{}
}

// A key's last use is kept to the minute and written once a minute, in one batch; a key
// that is not used is not written.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &touches{}
		r := open(t, dir, func(db apikey.Store) apikey.Store { s.Store = db; return s })
		defer r.db.Close() // before the bubble ends: its goroutines are inside
		k, h := r.create(t, apikey.NewKey{})
		idle, _ := r.create(t, apikey.NewKey{})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()

		start := time.Now().Truncate(time.Minute)
		time.Sleep(20 * time.Second) // the bubble's clock, not ours
		for range 5 {
			if _, err := r.Authenticate(h, time.Now()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got, _ := r.Find(k.ID); !got.LastUsedAt.Equal(start) {
			t.Errorf("Find says %v, want the minute %v", got.LastUsedAt, start)
		}
		if s.calls.Load() != 0 || !r.stored(t, k.ID).IsZero() {
			t.Errorf("%d writes before the minute is over, want 0", s.calls.Load())
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if got := r.stored(t, k.ID); s.calls.Load() != 1 || !got.Equal(start) {
			t.Errorf("after a minute %d writes, last use %v, want 1 and %v", s.calls.Load(), got, start)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if s.calls.Load() != 1 {
			t.Errorf("%d writes after idle minutes, want 1", s.calls.Load())
		}
		minute := time.Now().Truncate(time.Minute)
		if _, err := r.Authenticate(h, time.Now()); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returns %v, want nil", err)
		}
		if got := r.stored(t, k.ID); !got.Equal(minute) {
			t.Errorf("at the end the last use is %v, want %v", got, minute)
		}
		if got := r.stored(t, idle.ID); !got.IsZero() {
			t.Errorf("a key that was never used has last use %v", got)
		}
	})
}

// A write that fails is reported and its uses are not forgotten.
func TestRun_StoreFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &touches{}
		r := open(t, dir, func(db apikey.Store) apikey.Store { s.Store = db; return s })
		defer r.db.Close()
		k, h := r.create(t, apikey.NewKey{})
		used := time.Now().Truncate(time.Minute)
		if _, err := r.Authenticate(h, time.Now()); err != nil {
			t.Fatal(err)
		}
		s.fail.Store(true)
		if err := r.Run(context.Background()); !errors.Is(err, errDisk) {
			t.Errorf("Run returns %v, want the store's error", err)
		}
		s.fail.Store(false)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run returns %v", err)
		}
		if got := r.stored(t, k.ID); !got.Equal(used) {
			t.Errorf("last use is %v, want %v", got, used)
		}
	})
}

// Refused calls are no use of a key.
func TestRefusedIsNoUse(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	k, h := r.create(t, apikey.NewKey{ExpiresAt: time.Now().Add(time.Hour)})
	if _, err := r.Authenticate(h, time.Now().Add(2*time.Hour)); !errors.Is(err, apikey.ErrExpired) {
		t.Fatal(err)
	}
	if got, _ := r.Find(k.ID); !got.LastUsedAt.IsZero() {
		t.Errorf("LastUsedAt = %v, want never", got.LastUsedAt)
	}
}
