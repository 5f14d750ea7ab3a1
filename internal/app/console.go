package app

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/telemetry"
)

// publicURL is where people reach the console of a server that listens there.
func publicURL(c *config.Config, listen string, tls bool) *url.URL {
	if c.PublicURL != nil {
		return c.PublicURL
	}
	u := &url.URL{Scheme: "http", Host: "localhost"}
	if tls {
		u.Scheme = "https"
	}
	// The port, also of an address without one that was given, is all that counts: a cookie is
	// kept for localhost and a passkey made for it, but not for an IP address.
	if _, port, err := net.SplitHostPort(listen); err == nil && port != "0" {
		u.Host = net.JoinHostPort("localhost", port)
	}
	return u
}

func (a *App) publicURL() *url.URL {
	return publicURL(a.config, a.listener.Addr().String(), a.tls != nil)
}

// openConsole wires the pages.
func (a *App) openConsole(log *telemetry.Lines) (*console.Server, error) {
	proxies := a.config.TrustedProxies
	c := console.Config{
		Gate: a.rooms.gate, Accounts: a.rooms.accounts, Ledger: a.rooms.ledger,
		Records: a.rooms.db, Explain: a.rooms.explain(), Keys: a.rooms.keys, Models: a.rooms.catalog,
		PublicURL: a.publicURL(), Log: log, Now: time.Now,
		Address: func(r *http.Request) netip.Addr { return api.ClientAddress(r, proxies) },
		Secure:  func(r *http.Request) bool { return api.Secure(r, proxies) },
	}
	if a.rooms.payments != nil {
		c.Payments = a.rooms.payments
	}
	return console.New(c)
}

// front stands before both public doors.
type front struct {
	calls *calls
	pages *console.Server
}

func (a *App) front() http.Handler { return front{&a.calls, a.pages} }

// ServeHTTP gives a request to the API or to the console. What begins with /v1/ is decided
// by its first bytes, because it is all that is in a hurry.
func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/v1/") && f.pages.Takes(r) {
		f.pages.ServeHTTP(w, r)
		return
	}
	f.calls.ServeHTTP(w, r)
}
