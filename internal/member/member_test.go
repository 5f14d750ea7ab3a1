package member

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"
)

func TestEmail(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{" Ada@Example.TEST ": "ada@example.test", "a+b@h": "a+b@h"} {
		if got, err := Email(in); err != nil || got != want {
			t.Errorf("Email(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "ada", "@h", "ada@", "a@b@c", "a b@h", "a@h\r\nBcc: x", "<a@h>", "a@h\x00", strings.Repeat("a", 254) + "@h"} {
		if got, err := Email(in); !errors.Is(err, ErrEmail) {
			t.Errorf("Email(%q) = %q, %v; want ErrEmail", in, got, err)
		}
	}
}

// TestCodeAt holds codes to the vectors of RFC 6238, appendix B; their last six digits are ours.
func TestCodeAt(t *testing.T) {
	t.Parallel()
	secret := []byte("12345678901234567890")
	for at, want := range map[int64]string{59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924", 2000000000: "279037", 20000000000: "353130"} {
		if got := codeAt(secret, at/30); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
		now := time.Unix(at, 0)
		for drift, ok := range map[time.Duration]bool{0: true, 30 * time.Second: true, -30 * time.Second: true, 90 * time.Second: false, -90 * time.Second: false} {
			if _, got := matchCode(secret, want, now.Add(drift)); got != ok {
				t.Errorf("the code of %d is taken %v later: %v, want %v", at, drift, got, ok)
			}
		}
	}
	if s := CodeSecret(secret); s.Text() != "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ" || !strings.HasPrefix(s.URL("a b@h"), "otpauth://totp/Parley:a%20b@h?") {
		t.Errorf("the secret is shown as %s and %s", s.Text(), s.URL("a b@h"))
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	h := newHasher()
	stored, err := h.hash(t.Context(), "correct horse battery")
	if err != nil || !strings.HasPrefix(stored, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("hash = %q, %v", stored, err)
	}
	// Made with other figures, as a build of another time may have.
	salt := []byte("0123456789abcdef")
	old := fmt.Sprintf("$argon2id$v=19$m=64,t=1,p=1$%s$%s", "MDEyMzQ1Njc4OWFiY2RlZg", encode(argon2.IDKey([]byte("correct horse battery"), salt, 1, 64, 1, 32)))
	for _, tc := range []struct {
		stored, password string
		right, stale     bool
	}{
		{stored, "correct horse battery", true, false},
		{stored, "correct horse batterz", false, false},
		{old, "correct horse battery", true, true},
		{"", "", false, false},
		{"", "correct horse battery", false, false},
	} {
		right, stale, err := h.verify(t.Context(), tc.stored, tc.password)
		if err != nil || right != tc.right || stale != tc.stale {
			t.Errorf("verify(%.30q, %q) = %v, %v, %v; want %v, %v", tc.stored, tc.password, right, stale, err, tc.right, tc.stale)
		}
	}
	for _, broken := range []string{"x", "$argon2i$v=19$m=64,t=1,p=1$a$b", "$argon2id$v=19$m=64,t=0,p=1$AAAA$AAAA", "$argon2id$v=19$m=64,t=1,p=1$!$AAAA"} {
		if _, _, err := h.verify(t.Context(), broken, "p"); err == nil {
			t.Errorf("verify(%q) gave no error", broken)
		}
	}
	for p, want := range map[string]error{"elevenchars": ErrWeak, "twelve chars": nil, "zwölf Zeiche": nil, strings.Repeat("x", 257): ErrWeak, "\xff2345678901234": ErrWeak} {
		if err := CheckPassword(p); !errors.Is(err, want) {
			t.Errorf("CheckPassword(%q) = %v, want %v", p, err, want)
		}
	}
}

// TestHasher_Queue: beyond the queue a proof is refused at once, and one whose caller leaves
// does not wait.
func TestHasher_Queue(t *testing.T) {
	t.Parallel()
	h := &hasher{cores: make(chan struct{}, 1), queue: make(chan struct{}, 2)}
	leave, err := h.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	results := make(chan error, 2)
	for range 2 {
		wg.Go(func() {
			_, err := h.enter(gone)
			results <- err
		})
	}
	for len(h.queue) < 2 { // until both wait
		runtime.Gosched()
	}
	if _, err := h.enter(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("beyond the queue: %v, want ErrBusy", err)
	}
	cancel()
	wg.Wait()
	for range 2 {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
	}
	leave()
	if leave, err = h.enter(t.Context()); err != nil {
		t.Errorf("a free core is not given: %v", err)
	} else {
		leave()
	}
}

// TestAccountThrottle: five tries are free, then the wait doubles up to its limit, and one
// that is refused does not lengthen it.
func TestAccountThrottle(t *testing.T) {
	t.Parallel()
	a := accountThrottle{memory[guesses]{keep: accountForget}}
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		if err := a.try("ada@h", now); err != nil {
			t.Fatalf("try %d: %v", i+1, err)
		}
	}
	for _, seconds := range []int{12, 24, 48, 96, 192, 300, 300} {
		wait := time.Duration(seconds) * time.Second
		for range 3 {
			err := a.try("ada@h", now.Add(wait-1))
			if e, ok := errors.AsType[*ThrottledError](err); !ok || !e.Until.Equal(now.Add(wait)) {
				t.Fatalf("before %v has passed: %v", wait, err)
			}
		}
		if err := a.try("bob@h", now); err != nil {
			t.Fatalf("another member waits: %v", err)
		}
		a.right("bob@h")
		now = now.Add(wait)
		if err := a.try("ada@h", now); err != nil {
			t.Fatalf("after %v: %v", wait, err)
		}
	}
	a.right("ada@h")
	if err := a.try("ada@h", now); err != nil {
		t.Errorf("after a right one: %v", err)
	}
}

func TestAddressThrottle(t *testing.T) {
	t.Parallel()
	a := addressThrottle{memory[time.Time]{keep: 2 * time.Minute}}
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for i := range addressTries {
		if err := a.try(network("192.0.2.7"), now); err != nil {
			t.Fatalf("try %d: %v", i+1, err)
		}
	}
	err := a.try(network("192.0.2.200"), now)
	e, ok := errors.AsType[*ThrottledError](err)
	if !ok || !e.Until.Equal(now.Add(2*time.Second)) {
		t.Fatalf("a neighbour: %v", err)
	}
	if err := a.try(network("192.0.3.7"), now); err != nil {
		t.Errorf("another network: %v", err)
	}
	if err := a.try(network("192.0.2.7"), e.Until); err != nil {
		t.Errorf("when it said so: %v", err)
	}
	if network("2001:db8::1") != network("2001:db8::2:3:4:5") || network("2001:db8::1") == network("2001:db8:0:1::1") || network("::ffff:192.0.2.1") != network("192.0.2.9") {
		t.Error("networks are not a /64 and a /24")
	}
}

// TestMemory_Bounded: whoever tries with however many names, the memory has its size, and who
// has tried lately is still in it.
func TestMemory_Bounded(t *testing.T) {
	t.Parallel()
	m := memory[int]{keep: time.Hour}
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for i := range throttleSize + 5_000 {
		now = now.Add(time.Microsecond)
		m.use(fmt.Sprint(i), now, func(n *int) { *n++ })
		if i%100 == 0 {
			m.use("ada@h", now, func(n *int) { *n++ })
		}
	}
	if len(m.all) > throttleSize {
		t.Errorf("%d names are remembered, at most %d", len(m.all), throttleSize)
	}
	if m.all["ada@h"].value < 200 {
		t.Errorf("who tries all the time was forgotten: %d", m.all["ada@h"].value)
	}
}

func TestSession_Ended(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		s     Session
		after time.Duration
		want  bool
	}{
		{"idle", Session{Stage: Open, CreatedAt: begun, SeenAt: begun}, IdleLimit + 1, true},
		{"not yet idle", Session{Stage: Open, CreatedAt: begun, SeenAt: begun}, IdleLimit, false},
		{"old", Session{Stage: Open, CreatedAt: begun, SeenAt: begun.Add(LifeLimit)}, LifeLimit + 1, true},
		{"used for days", Session{Stage: Open, CreatedAt: begun, SeenAt: begun.Add(6 * 24 * time.Hour)}, 6*24*time.Hour + time.Hour, false},
		{"no code yet", Session{Stage: Code, CreatedAt: begun, SeenAt: begun}, CodeLimit + 1, true},
	} {
		if got := tc.s.Ended(begun.Add(tc.after)); got != tc.want {
			t.Errorf("%s: Ended = %v, want %v", tc.name, got, tc.want)
		}
	}
}

func encode(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }
