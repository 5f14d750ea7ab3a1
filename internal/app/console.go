package app

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/member"
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
	passkeys, err := member.NewPasskeys(a.rooms.gate, a.publicURL())
	if err != nil {
		return nil, err
	}
	c := console.Config{
		Gate: a.rooms.gate, Passkeys: passkeys, Accounts: a.rooms.accounts, Ledger: a.rooms.ledger,
		Keys: countedKeys{a.rooms.keys, a.rooms.metrics}, Models: a.rooms.catalog, Limits: a.limiter, Records: a.rooms.db, Explain: a.rooms.explain(), Subscriptions: a.rooms.subscriptions, PartLimit: 150 * time.Millisecond, LowCredit: a.rooms.lowCredit,
		PublicURL: a.publicURL(), Log: log, Now: time.Now,
		Address:  func(r *http.Request) netip.Addr { return api.ClientAddress(r, proxies) },
		Secure:   func(r *http.Request) bool { return api.Secure(r, proxies) },
		Operator: a.operatorRooms(),
	}
	if a.rooms.payments != nil {
		c.Payments = a.rooms.payments
	}
	return console.New(c)
}

// front stands before all public doors.
type front struct {
	calls    *calls
	pages    *console.Server
	operator http.Handler
}

func (a *App) front() http.Handler {
	address := func(r *http.Request) netip.Addr { return api.ClientAddress(r, a.config.TrustedProxies) }
	operator := admin.Guard(a.rooms.api(a.status, a.upstreams.load), a.rooms.tokens, address, a.log)
	return front{&a.calls, a.pages, operator}
}

// ServeHTTP gives a request to the API, to the operator's or to the console. What begins with /v1/ is decided
// by its first bytes, because it is all that is in a hurry.
func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/"):
		f.calls.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, "/admin/v1/"):
		f.operator.ServeHTTP(w, r)
	case f.pages.Takes(r) && !strayed(r):
		f.pages.ServeHTTP(w, r)
	default:
		f.calls.ServeHTTP(w, r)
	}
}

// strayed says whether a client of the API lists the models without /v1, where the console
// has a page: it is told so instead of being led to the door for people. A browser sends
// no key, unless a proxy before it does, and asks for HTML.
func strayed(r *http.Request) bool {
	h := r.Header
	return strings.HasPrefix(r.URL.Path, "/models") && h.Get("Authorization") != "" && !strings.Contains(h.Get("Accept"), "text/html")
}
