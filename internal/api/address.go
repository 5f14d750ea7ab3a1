package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientAddress is who sent r: the other end of the connection or, where that is a proxy
// of ours, who the proxy says it was. Each proxy adds at the end of X-Forwarded-For whom
// it has heard; so the last address that is no proxy of ours is the last that somebody
// we trust has seen, and everything before it can be invented. It is not valid when that
// place of the header holds no address.
func ClientAddress(r *http.Request, proxies []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := plainAddress(peer.Addr())
	for _, line := range slices.Backward(r.Header["X-Forwarded-For"]) {
		for line != "" && within(proxies, addr) {
			hop := line
			if comma := strings.LastIndexByte(line, ','); comma >= 0 {
				line, hop = line[:comma], line[comma+1:]
			} else {
				line = ""
			}
			addr = hopAddress(strings.Trim(hop, " \t"))
		}
	}
	return addr
}

// Secure reports whether r came to a proxy of ours over TLS, as that proxy says.
func Secure(r *http.Request, proxies []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && within(proxies, plainAddress(peer.Addr())) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// hopAddress reads one hop; some proxies add the port.
func hopAddress(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return plainAddress(a)
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.Addr{}
	}
	return plainAddress(a.Addr())
}

// plainAddress writes an address in the one way that networks are compared with.
func plainAddress(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// within reports whether a is in one of the networks.
func within(networks []netip.Prefix, a netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}
