package console

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/parley-ai/parley/internal/member"
)

// cookieName has the prefix with which browsers keep a cookie to one host, to TLS and to all
// paths: no other host, no subdomain and no plain connection can plant one.
const cookieName = "__Host-session"

// policy is the content security policy: nothing but files of this server, and no text that
// becomes script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// headers are those of every page.
func (v *visit) headers() {
	h := v.w.Header()
	h.Set("X-Request-Id", v.id)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), clipboard-read=(), clipboard-write=(self), geolocation=(), microphone=(), payment=(), publickey-credentials-create=(self), publickey-credentials-get=(self), usb=()")
	if v.r.TLS != nil {
		// A year, of this host only: what else runs on its domain is not ours to decide.
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// secure reports whether browsers keep a secure cookie for the address that was asked: over
// TLS, here or at a proxy, or on the machine itself. A name that only resolves to this machine
// is neither, which also keeps out pages that rebind theirs to it.
func (v *visit) secure() bool {
	if v.r.TLS != nil || v.s.Secure(v.r) {
		return true
	}
	public := v.s.PublicURL
	return public.Scheme == "https" && strings.EqualFold(v.r.Host, public.Host) || loopback(v.r.Host)
}

// loopback reports whether host, with or without a port, is the machine itself to a browser.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// token is what the browser presents; empty without.
func (v *visit) token() member.Token {
	c, err := v.r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return member.Token(c.Value)
}

// keep gives the browser the token of its session; an empty one takes it away.
func (v *visit) keep(t member.Token) {
	c := http.Cookie{
		Name: cookieName, Value: string(t), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(member.LifeLimit.Seconds()),
	}
	if t == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, &c)
}
