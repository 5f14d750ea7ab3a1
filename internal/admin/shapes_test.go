package admin_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/catalog"
)

// The JSON is a contract: a key that is renamed or lost breaks scripts.
func TestShapes(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value any
		want  string
	}{
		{admin.Created{}, "id name"},
		{admin.Account{}, "id name plan status balance held available subscription low_credit"},
		{admin.Subscription{}, "plan status until"},
		{minted, "id secret prefix"},
		{admin.Key{}, "id name prefix status created_at expires_at last_used_at rpm tpm models scopes allow budget replaced_by"},
		{admin.Budget{}, "amount period spent held"},
		{admin.Rotated{}, "id secret prefix replaces until"},
		{admin.Revoked{}, "id status revoked_at confirmed servers"},
		{admin.Engine{}, "upstream running places waiting tokens_per_second"},
		{admin.Receipt{}, "request_id completion_id created_at key_id model prompt_tokens cached_tokens completion_tokens plan_tokens charge hold written_off status error_code state ending usage_source target attempts"},
	} {
		text, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(fieldNames(t, text), " "); got != c.want {
			t.Errorf("%T has the keys\n%s, want\n%s", c.value, got, c.want)
		}
	}
}

// fieldNames is the keys of a flat JSON object in their order.
func fieldNames(t *testing.T, text []byte) (names []string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(text)))
	for depth, key := 0, true; ; {
		tok, err := dec.Token()
		if err != nil {
			return names
		}
		switch v := tok.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			key = true
		case string:
			if depth == 1 && key {
				names = append(names, v)
				key = false
				continue
			}
			key = true
		default:
			key = true
		}
	}
}

func TestStrictBodies(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, body := range []string{``, `{"nmae":"x","plan":"pro"}`, `{"name":"x","plan":"pro"}{}`, `[]`} {
		if got := post(t, h.api, "/admin/v1/accounts", body); got != http.StatusBadRequest {
			t.Errorf("POST %s gives %d", body, got)
		}
	}
	if got := post(t, h.api, "/admin/v1/nothing", `{}`); got != http.StatusNotFound {
		t.Errorf("POST to no route gives %d", got)
	}
}

func post(t *testing.T, api http.Handler, path, body string) int {
	t.Helper()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w.Code
}

// TestUnwritable: what cannot be written as JSON is a failure, not an empty answer of 200.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	targets := []catalog.Target{{Upstream: "local", Model: "small"}}
	offer, err := catalog.New([]catalog.Model{{ID: "svc-pulse", ContextWindow: 8192, MaxOutput: 2048, Plans: []string{"pro"}, Targets: targets}})
	if err != nil {
		t.Fatal(err)
	}
	api := admin.New(admin.Config{Catalog: offer, Engines: func() []admin.Engine {
		return []admin.Engine{{Upstream: "local", TokensPerSecond: math.NaN()}}
	}})
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/v1/models", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"code":"internal_error"`) {
		t.Errorf("%d, %q", w.Code, w.Body)
	}
}
