package english_test

import (
	"math"
	"testing"

	"github.com/parley-ai/parley/internal/english"
)

func TestGroup(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"0": "0", "999": "999", "1000": "1,000", "-999": "-999", "-1000": "-1,000", "1904771": "1,904,771", "-1234567.5000": "-1,234,567.5000", "0.1234": "0.1234",
	} {
		if got := english.Group(given); got != want {
			t.Errorf("Group(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestPlural(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int
		noun string
		want string
	}{
		{0, "call", "0 calls"},
		{1, "call", "1 call"},
		{1904771, "call", "1,904,771 calls"},
		{1, "entry", "1 entry"},
		{2, "entry", "2 entries"},
		{3, "key", "3 keys"},
		{0, "day", "0 days"},
	} {
		if got := english.Plural(c.n, c.noun); got != c.want {
			t.Errorf("Plural(%d, %q) = %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1,023 B", 1024: "1 KiB", 1100: "1 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1,023.9 KiB", 98_362_432: "93.8 MiB",
		256 << 20: "256 MiB", 41_777 << 20: "40.7 GiB", 3 << 40: "3 TiB", math.MaxInt64: "8,388,607.9 TiB",
	} {
		if got := english.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}
