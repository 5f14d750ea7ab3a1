package apikey

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// maxNetworks bounds the list of a key, which every call of the key is compared with.
const maxNetworks = 100

// ErrNetwork means an address or a network that is none, or too many of them.
var ErrNetwork = errors.New("a key's list has at most 100 networks, as 10.0.0.0/8, 2001:db8::/32 or 203.0.113.7")

// ParseNetworks reads networks in CIDR form and single addresses. Those of IPv4 that are
// written as IPv6 become IPv4, as callers' addresses do. It fails with [ErrNetwork], also
// for a network with bits set behind its length: either the length or the address is not
// what was meant.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	if len(texts) > maxNetworks {
		return nil, ErrNetwork
	}
	var all []netip.Prefix
	for _, text := range texts {
		p, ok := parseNetwork(text)
		if !ok {
			return nil, fmt.Errorf("%w, not %.64q", ErrNetwork, text)
		}
		all = append(all, p)
	}
	return all, nil
}

func parseNetwork(text string) (netip.Prefix, bool) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, false
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p != p.Masked() {
		return netip.Prefix{}, false
	}
	const mapped = 96 // bits before the IPv4 address in one of IPv6
	if a := p.Addr(); a.Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-mapped)
	}
	return p, true
}

// Networks are the texts of a list, in its order.
func Networks(list []netip.Prefix) []string {
	texts := make([]string, len(list))
	for i, p := range list {
		if texts[i] = p.String(); p.IsSingleIP() {
			texts[i] = p.Addr().String()
		}
	}
	return texts
}
