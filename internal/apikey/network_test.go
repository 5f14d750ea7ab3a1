package apikey_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/apikey"
)

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"2001:db8::/32", "2001:db8::/32"},
		{"203.0.113.7", "203.0.113.7"},
		{"203.0.113.7/32", "203.0.113.7"},
		{"2001:DB8::1", "2001:db8::1"},
		{"::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"::ffff:203.0.113.7", "203.0.113.7"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"10.0.0.5/8", ""}, // 10.0.0.0/8 or 10.0.0.5?
		{"2001:db8::1/32", ""},
		{"10.0.0.0/33", ""},
		{"10.0.0/24", ""},
		{"10.0.0.0/", ""},
		{"010.0.0.1", ""},
		{"fe80::1%eth0", ""},
		{"fe80::%eth0/64", ""},
		{" 10.0.0.0/8", ""},
		{"example.org", ""},
		{"", ""},
	} {
		list, err := apikey.ParseNetworks([]string{"192.0.2.1", c.in})
		if c.want == "" {
			if !errors.Is(err, apikey.ErrNetwork) || list != nil {
				t.Errorf("ParseNetworks(%q) = %v, %v, want ErrNetwork", c.in, list, err)
			}
			continue
		}
		if got := apikey.Networks(list); err != nil || !slices.Equal(got, []string{"192.0.2.1", c.want}) {
			t.Errorf("ParseNetworks(%q) = %v, %v, want %s", c.in, got, err, c.want)
		}
	}
	if list, err := apikey.ParseNetworks(strings.Fields(strings.Repeat("192.0.2.1 ", 101))); !errors.Is(err, apikey.ErrNetwork) {
		t.Errorf("101 addresses are %v, %v", list, err)
	}
}
