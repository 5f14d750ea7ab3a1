package english_test

import (
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
