package admin_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/apikey"
)

// guarded asks the door on the public address.
func (h *house) guarded(t *testing.T) func(token, method, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	door := admin.Guard(h.api, h.tokens, func(r *http.Request) netip.Addr { return netip.MustParseAddrPort(r.RemoteAddr).Addr() }, slog.New(slog.DiscardHandler))
	return func(token, method, path, body string, header ...string) (int, http.Header, string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		text, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, w.Result().Header, string(text)
	}
}

// A token opens the whole API on the public address, in its own name, until it expires or
// is revoked, also after a restart.
func TestGuard(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	made, err := h.CreateToken(ctx, admin.NewToken{Name: "deploy"})
	if err != nil {
		t.Fatal(err)
	}
	ask := h.guarded(t)
	if status, header, text := ask(made.Token, "GET", "/admin/v1/status", ""); status != http.StatusOK || header.Get("Cache-Control") != "no-store" || !strings.Contains(text, `"version":"test"`) {
		t.Errorf("with the token: %d %v %s", status, header, text)
	}
	if status, _, text := ask(made.Token, "POST", "/admin/v1/accounts", `{"name":"Lab","plan":"pro"}`, "Parley-Actor", "somebody else"); status != http.StatusOK {
		t.Errorf("making an account: %d %s", status, text)
	}
	if status, _, text := ask(made.Token, "POST", "/admin/v1/backups", `{"path":"/tmp/x"}`); status != http.StatusForbidden || !strings.Contains(text, "socket_only") {
		t.Errorf("a backup: %d %s", status, text)
	}
	log, err := h.AuditLog(ctx, "Lab", 1)
	if err != nil || len(log) != 1 || log[0].Actor != "token deploy" {
		t.Errorf("the audit log says %+v, %v", log, err)
	}
	list, err := h.Tokens(ctx)
	if err != nil || len(list) != 1 || list[0].Status != "active" || list[0].LastUsedAt == nil || strings.Contains(made.Token, list[0].ID) {
		t.Errorf("Tokens = %+v, %v", list, err)
	}
	if again := h.reloaded(t); len(again) != 1 || again[0].LastUsedAt.IsZero() || again[0].Name != "deploy" {
		t.Errorf("after a restart: %+v", again)
	}
	short, err := h.CreateToken(ctx, admin.NewToken{Name: "short", ExpiresAt: new(time.Now().Add(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.tokens.Authenticate(ctx, []string{"Bearer " + short.Token}, time.Now().Add(2*time.Hour)); err == nil {
		t.Error("a token that has expired works")
	}
	gone, err := h.RevokeToken(ctx, made.ID)
	if err != nil || gone.Status != "revoked" {
		t.Errorf("RevokeToken = %+v, %v", gone, err)
	}
	if again, err := h.RevokeToken(ctx, made.ID); err != nil || !again.RevokedAt.Equal(*gone.RevokedAt) {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	if status, _, _ := ask(made.Token, "GET", "/admin/v1/status", ""); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", status)
	}
	if _, err := h.RevokeToken(ctx, "optoken_none"); code(err) != "token_not_found" {
		t.Errorf("a token that never was: %v", err)
	}
}

// Whatever is wrong with a token, the answer is the same; who shows many is told to wait,
// and one that works is let in all the same.
func TestGuard_Wrong(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	good, err := h.CreateToken(ctx, admin.NewToken{Name: "deploy"})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := h.CreateToken(ctx, admin.NewToken{Name: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.RevokeToken(ctx, gone.ID); err != nil {
		t.Fatal(err)
	}
	key, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	ask := h.guarded(t)
	var first string
	for i, token := range []string{"", "x", gone.Token, key.Secret, good.Token[:58] + "!", good.Token + "0", "sk" + good.Token[2:]} {
		status, header, text := ask(token, "GET", "/admin/v1/status", "")
		if i == 0 {
			first = text
		}
		if status != http.StatusUnauthorized || header.Get("WWW-Authenticate") != "Bearer" || text != first || !json.Valid([]byte(text)) {
			t.Errorf("token %d: %d %v %s", i, status, header, text)
		}
	}
	var status int
	var header http.Header
	for range 30 {
		status, header, _ = ask("x", "GET", "/admin/v1/status", "")
	}
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("after many wrong ones: %d %v", status, header)
	}
	if status, _, _ := ask(good.Token, "GET", "/admin/v1/status", ""); status != http.StatusOK {
		t.Errorf("the right one then: %d", status)
	}
}

func (h *house) reloaded(t *testing.T) []apikey.Token {
	t.Helper()
	all, err := h.db.Tokens(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return all
}
