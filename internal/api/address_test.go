package api_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/apikey"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string // empty: not known
	}{
		{"no proxy", "203.0.113.7:1000", nil, "203.0.113.7"},
		{"a stranger's word counts nothing", "203.0.113.7:1000", []string{"10.1.1.1, 192.0.2.1"}, "203.0.113.7"},
		{"a proxy's word", "10.1.1.1:1000", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a proxy for itself", "10.1.1.1:1000", nil, "10.1.1.1"},
		{"what comes before can be invented", "10.1.1.1:1000", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"two proxies", "10.1.1.1:1000", []string{"198.51.100.1, 192.0.2.1, 10.2.2.2"}, "192.0.2.1"},
		{"proxies only", "10.1.1.1:1000", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"several headers are one list", "10.1.1.1:1000", []string{"198.51.100.1", "192.0.2.1", "10.2.2.2"}, "192.0.2.1"},
		{"no blanks", "10.1.1.1:1000", []string{"192.0.2.1,10.2.2.2"}, "192.0.2.1"},
		{"IPv6", "[fd00::1]:1000", []string{"2001:db8::1"}, "2001:db8::1"},
		{"with a zone", "[fe80::1%eth0]:1000", nil, "fe80::1"},
		{"IPv4 in IPv6", "[::ffff:10.1.1.1]:1000", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"with a port", "10.1.1.1:1000", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"IPv6 with a port", "10.1.1.1:1000", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"no address", "10.1.1.1:1000", []string{"unknown"}, ""},
		{"no address behind one", "10.1.1.1:1000", []string{"192.0.2.1, x"}, ""},
		{"an empty hop", "10.1.1.1:1000", []string{"192.0.2.1,"}, ""},
		{"no address before who it was", "10.1.1.1:1000", []string{"x, 192.0.2.1"}, "192.0.2.1"},
		{"no peer", "@", []string{"192.0.2.1"}, ""},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		var want netip.Addr
		if c.want != "" {
			want = netip.MustParseAddr(c.want)
		}
		if got := api.ClientAddress(r, proxies); got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}

// A key opens nothing from outside its networks, whatever the rest of the call is; the
// answer comes before its body is looked at. The door's tests are behind a proxy.
func TestNetworks(t *testing.T) {
	t.Parallel()
	p := hello()
	d := open(t, p)
	for _, tt := range []struct {
		networks  []string
		forwarded string
		status    int
		code      string
	}{
		{nil, "", 200, ""},
		{nil, "nonsense", 200, ""},
		{[]string{"127.0.0.0/8"}, "", 200, ""},
		{[]string{"2001:db8::/32", "::ffff:127.0.0.1"}, "", 200, ""},
		{[]string{"10.0.0.0/8"}, "10.9.9.9", 200, ""},
		{[]string{"10.0.0.0/8"}, "", 403, "address_not_allowed"},
		{[]string{"10.0.0.0/8"}, "10.9.9.9, 192.0.2.1", 403, "address_not_allowed"},
		{[]string{"0.0.0.0/0", "::/0"}, "nonsense", 403, "address_not_allowed"},
	} {
		networks, err := apikey.ParseNetworks(tt.networks)
		must(t, err)
		_, secret, err := d.keys.Create(t.Context(), apikey.NewKey{AccountID: d.account.ID, Name: "k", Networks: networks})
		must(t, err)
		texts := []string{body("")}
		if tt.status != 200 {
			texts = append(texts, "{")
		}
		for _, text := range texts {
			header := []string{"Authorization", "Bearer " + string(secret)}
			if tt.forwarded != "" {
				header = append(header, "X-Forwarded-For", tt.forwarded)
			}
			r := d.post(t, text, header...)
			if r.StatusCode != tt.status || r.code() != tt.code {
				t.Errorf("of %v for %s: %d %s, want %d %s", tt.networks, tt.forwarded, r.StatusCode, r.body, tt.status, tt.code)
			}
		}
	}
	if n := len(p.Calls()); n != 5 {
		t.Errorf("the provider had %d calls, want 5", n)
	}
}
