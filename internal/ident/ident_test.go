package ident_test

import (
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ident"
)

func TestForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, id, form string }{
		{"New", ident.New(ident.Account), `^acct_[0-9a-hjkmnp-tv-z]{26}$`},
		{"RequestID", ident.RequestID(), `^req_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$`},
		{"CompletionID", ident.CompletionID(), `^chatcmpl-[0-9A-Za-z]{29}$`},
	} {
		if !regexp.MustCompile(c.form).MatchString(c.id) {
			t.Errorf("%s() = %q, want a match of %s", c.name, c.id, c.form)
		}
	}
}

func TestParseRequestID(t *testing.T) {
	t.Parallel()
	id := ident.RequestID()
	u, ok := ident.ParseRequestID(id)
	if !ok || u[6]>>4 != 7 {
		t.Errorf("ParseRequestID(%q) = %x, %v", id, u, ok)
	}
	for _, bad := range []string{"", "req_", id[:35], id + "0", "acct_" + id[4:], "req_" + "zz" + id[6:]} {
		if _, ok := ident.ParseRequestID(bad); ok {
			t.Errorf("ParseRequestID(%q) is ok", bad)
		}
	}
}

func TestCompletionOf(t *testing.T) {
	t.Parallel()
	for range 100 {
		id := ident.RequestID()
		completion := ident.CompletionOf(id)
		if !regexp.MustCompile(`^chatcmpl-[0-9a-z]{29}$`).MatchString(completion) {
			t.Fatalf("CompletionOf(%q) = %q", id, completion)
		}
		if back, ok := ident.RequestOf(completion); !ok || back != id {
			t.Fatalf("RequestOf(%q) = %q, %v, want %q", completion, back, ok, id)
		}
	}
	if id := ident.CompletionOf("req_1"); !regexp.MustCompile(`^chatcmpl-[0-9A-Za-z]{29}$`).MatchString(id) {
		t.Errorf("CompletionOf of another id is %q", id)
	}
	good := ident.CompletionOf(ident.RequestID())
	for _, bad := range []string{"", ident.CompletionID(), good[9:], good + "0", "chatcmpl-8" + good[10:], good[:34] + "u" + good[35:], good[:37] + "u"} {
		if id, ok := ident.RequestOf(bad); ok {
			t.Errorf("RequestOf(%q) = %q", bad, id)
		}
	}
}

// Ids made at different milliseconds sort by time; those made at once differ.
func TestOrderAndUniqueness(t *testing.T) {
	t.Parallel()
	first := ident.New("x_")
	for start := time.Now(); time.Since(start) < 2*time.Millisecond; {
	}
	if second := ident.New("x_"); second <= first {
		t.Errorf("%q was made after %q and sorts before it", second, first)
	}
	var (
		mu   sync.Mutex
		seen = map[string]bool{}
		wg   sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				id := ident.RequestID()
				mu.Lock()
				if seen[id] {
					t.Errorf("%q was made twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestRequestIDsSince(t *testing.T) {
	t.Parallel()
	before := time.Now()
	id := ident.RequestID()
	after := time.Now().Add(2 * time.Millisecond)
	if ident.RequestIDsSince(before) > id || ident.RequestIDsSince(after) <= id {
		t.Errorf("%s does not lie between %s and %s", id, ident.RequestIDsSince(before), ident.RequestIDsSince(after))
	}
}
