package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/admin"
)

// The operator's API is on the public address for who shows a token, also for a call that
// was refused a moment ago; nobody else is told anything.
func TestOperator_Public(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := serve(t, dir, &provider{})
	c, err := admin.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	made, err := c.CreateToken(t.Context(), admin.NewToken{Name: "deploy"})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, read(t, res.Body)
	}
	if status, text := ask("/admin/v1/accounts", made.Token); status != http.StatusOK || !strings.Contains(text, `"default"`) {
		t.Errorf("with the token: %d %s", status, text)
	}
	for _, path := range []string{"/admin/v1/accounts", "/admin/v1/", "/admin/v1/nothing"} {
		if status, text := ask(path, ""); status != http.StatusUnauthorized || strings.Contains(text, "default") {
			t.Errorf("%s without one: %d %s", path, status, text)
		}
	}
	if res := r.post(t, made.Token, hello); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("as a key it gives %d", res.StatusCode)
	}
	// A call that is refused is written down at the latest when the server ends.
	res := r.post(t, "sk-parley-none", hello)
	read(t, res.Body)
	if err := r.finish(t); err != nil {
		t.Fatal(err)
	}
	off, err := OpenOffline(t.Context(), r.config, false)
	if err != nil {
		t.Fatal(err)
	}
	defer off.Close()
	got, err := off.Client().Request(t.Context(), res.Header.Get("X-Request-Id"))
	if err != nil || got.Refusal == nil || got.Refusal.Code != "invalid_api_key" {
		t.Errorf("the refused call: %+v, %v", got, err)
	}
}
