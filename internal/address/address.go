// Package address says which network addresses Parley may call by itself. A name can
// point anywhere, and somewhere else a moment later, so what is checked is the address
// that is dialled.
package address

import (
	"errors"
	"fmt"
	"net/netip"
)

// Reach is which addresses are wanted.
type Reach int

// The reaches.
const (
	Any Reach = iota
	Public
	Private // loopback and networks of one's own
)

// ErrRefused means an address that must not be dialled.
var ErrRefused = errors.New("the address is not allowed")

// neverAllowed are networks that package netip has no name for. The last two are where
// two clouds hand out credentials outside the link-local range; 2002::/16 wraps IPv4
// addresses for routers that no longer exist.
func neverAllowed() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("2002::/16"),
		netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("fd00:ec2::254/128"),
		netip.MustParsePrefix("100.100.100.200/32"),
	}
}

// notPublic are networks that are not reached over the internet, beyond loopback and
// private ones.
func notPublic() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("fec0::/10"),
	}
}

// unwrap returns the IPv4 address that NAT64 reaches by ip, in networks without IPv4 of
// their own, else ip.
func unwrap(ip netip.Addr) netip.Addr {
	if !netip.MustParsePrefix("64:ff9b::/96").Contains(ip) {
		return ip
	}
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// Check fails with [ErrRefused] for an ip:port that must not be dialled for the sake of
// that reach: addresses where machines keep their secrets are always refused.
func Check(address string, r Reach) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrRefused, address)
	}
	ip := unwrap(ap.Addr().Unmap().WithZone(""))
	bad := !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast()
	for _, p := range neverAllowed() {
		bad = bad || p.Contains(ip)
	}
	private := ip.IsLoopback() || ip.IsPrivate()
	for _, p := range notPublic() {
		private = private || p.Contains(ip)
	}
	if bad || r == Public && private || r == Private && !private {
		return fmt.Errorf("%w: %s", ErrRefused, ip)
	}
	return nil
}
