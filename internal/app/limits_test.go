package app

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// A restart gives nobody a second helping: what was called in the last minute counts,
// also the stream that the last process did not finish.
func TestLimits_SurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, out, errs := options(t, dir, &provider{})
	o.Config.Plans[1].RPM, o.Config.Plans[1].TPM = 4, 10_000
	r := start(t, o, out, errs)
	key := secret.FindString(out.String())
	for range 2 {
		if res := r.post(t, key, hello); res.StatusCode != http.StatusOK {
			t.Fatalf("a call within the limit gives %d", res.StatusCode)
		} else {
			read(t, res.Body)
		}
	}
	accountID := r.rooms.accounts.All()[0].ID
	keyID := r.rooms.keys.List(accountID)[0].ID
	if err := r.finish(t); err != nil {
		t.Fatal(err)
	}
	abandon(t, o, accountID, keyID)

	o2, out, errs := options(t, dir, &provider{})
	o2.Config.Plans = o.Config.Plans
	r = start(t, o2, out, errs)
	errs.await(t, "recovered 1 call of the last run: 1 settled, 0 voided")
	res := r.post(t, key, hello)
	read(t, res.Body)
	// Two calls of 5 and 3 tokens, one of 5 that had delivered 7, and this one, which
	// claims the longest answer it can have.
	got := []string{res.Header.Get("X-Ratelimit-Remaining-Requests"), res.Header.Get("X-Ratelimit-Remaining-Tokens")}
	if want := []string{"0", "7919"}; !slices.Equal(got, want) || res.StatusCode != http.StatusOK {
		t.Errorf("after the restart a call gives %d, remaining %v, want %v", res.StatusCode, got, want)
	}
	if res := r.post(t, key, hello); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a fifth call in the minute gives %d", res.StatusCode)
	}
}

// A limit is the key's: a rotated key and its successor have it once, while both work and
// after a restart.
func TestLimits_OfARotatedKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, out, errs := options(t, dir, &provider{})
	r := start(t, o, out, errs)
	k, first, err := r.rooms.keys.Create(t.Context(), apikey.NewKey{AccountID: r.rooms.accounts.All()[0].ID, Name: "web", RPM: 3})
	if err != nil {
		t.Fatal(err)
	}
	second, text, _, err := r.rooms.keys.Rotate(t.Context(), k.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, third, _, err := r.rooms.keys.Rotate(t.Context(), second.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	call := func(s apikey.Secret, remaining string, status int) {
		t.Helper()
		res := r.post(t, string(s), hello)
		read(t, res.Body)
		if left := res.Header.Get("X-Ratelimit-Remaining-Requests"); res.StatusCode != status || left != remaining {
			t.Errorf("%d, %s remaining, want %d and %s", res.StatusCode, left, status, remaining)
		}
	}
	call(first, "2", http.StatusOK)
	call(third, "1", http.StatusOK)
	if err := r.finish(t); err != nil {
		t.Fatal(err)
	}
	o2, out, errs := options(t, dir, &provider{})
	r = start(t, o2, out, errs)
	call(text, "0", http.StatusOK)
	call(third, "0", http.StatusTooManyRequests)
	call(first, "0", http.StatusTooManyRequests)
}

// abandon leaves a stream on the data directory as a killed process does.
func abandon(t *testing.T, o Options, accountID, keyID string) {
	t.Helper()
	r, err := openRooms(t.Context(), o.Config, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := r.catalog.Lookup("svc-pulse", time.Now())
	h, err := r.ledger.Reserve(ledger.Call{
		RequestID: ident.RequestID(), CompletionID: ident.CompletionID(), AccountID: accountID, KeyID: keyID,
		Model: m.ID, PriceID: m.PriceID, Price: m.Price, Stream: true, CreatedAt: time.Now(), PromptTokens: 5, Output: 50, LeastOutput: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Persist(), h.Durable()); err != nil {
		t.Fatal(err)
	}
	h.Delivered(7)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

func TestPast(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 7, 2, 0, time.UTC)
	receipt := func(age time.Duration, state ledger.State) ledger.Receipt {
		return ledger.Receipt{AccountID: "a", KeyID: "k", CreatedAt: now.Add(-age), State: state, PromptTokens: 40, CompletionTokens: 2}
	}
	got := past([]ledger.Receipt{receipt(50*time.Second, ledger.Settled), receipt(40*time.Second, ledger.Recovered), receipt(30*time.Second, ledger.Voided), receipt(-time.Hour, ledger.Settled)}, now, func(id string) (apikey.Key, bool) {
		return apikey.Key{CountedAs: "first"}, id == "k"
	})
	call := func(age time.Duration, tokens int64) ratelimit.Past {
		return ratelimit.Past{Account: "a", Key: "first", At: now.Add(-age), Tokens: tokens}
	}
	// The last was made before the clock was set back.
	want := []ratelimit.Past{call(50*time.Second, 42), call(40*time.Second, 42), call(30*time.Second, 0), call(0, 42)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
