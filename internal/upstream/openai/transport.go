package openai

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// ErrAddress means a host that resolved to an address no provider may have.
var ErrAddress = errors.New("the address is not allowed")

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

// checkAddress fails with [ErrAddress] for an ip:port that must not be dialled.
func checkAddress(address string, publicOnly bool) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	ip := unwrap(ap.Addr().Unmap().WithZone(""))
	bad := !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast()
	for _, p := range neverAllowed() {
		bad = bad || p.Contains(ip)
	}
	if publicOnly {
		bad = bad || ip.IsLoopback() || ip.IsPrivate()
		for _, p := range notPublic() {
			bad = bad || p.Contains(ip)
		}
	}
	if bad {
		return fmt.Errorf("%w: %s", ErrAddress, ip)
	}
	return nil
}

// watchedBody tells the watch of every byte that arrives.
type watchedBody struct {
	body  io.Reader
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.watch.touch()
	}
	return n, err
}
