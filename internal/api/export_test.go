package api

import "net/http"

// Limits that tests go up to.
const (
	MaxBodyBytes  = maxBodyBytes
	AccountBodies = accountBodies
	BodyTimeout   = bodyTimeout
	WriteTimeout  = writeTimeout
)

// Held is how many bytes of bodies the handler counts, in all and of one account.
func Held(h http.Handler, account string) (all, own int) {
	m := h.(*server).memory
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all, m.account[account]
}
