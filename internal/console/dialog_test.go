package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/subscription"
)

// TestDialogs: every link that opens a dialog leads to a page with the same question, one way to
// leave it and one form; so it works where there is no script.
func TestDialogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", true, nil, member.None)
	w.makeKey(w.lab, "web")
	if _, _, err := w.tokens.Create(t.Context(), "sync", "root", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := account.NewSubscriptions(w.accounts, w.books).Set(t.Context(), w.lab.ID, "pro", subscription.Options{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	owner := w.person("own@example.test", false, w.lab, member.Owner)
	link := regexp.MustCompile(`<a [^>]*data-dialog href="([^"]+)"`)
	for path, c := range map[string]struct {
		token member.Token
		links int
	}{
		"/keys": {owner, 1}, "/billing": {owner, 2}, "/operator/settings": {ada, 1}, "/operator/accounts/" + w.lab.ID: {ada, 4},
	} {
		found := link.FindAllStringSubmatch(text(t, w.ask("GET", path, c.token, nil)), -1)
		if len(found) < c.links {
			t.Errorf("%s has %d links to dialogs", path, len(found))
		}
		for _, m := range found {
			r := w.ask("GET", html.UnescapeString(m[1]), c.token, nil)
			page := text(t, r)
			_, question, ok := strings.Cut(page, "data-confirm")
			if r.StatusCode != http.StatusOK || !ok || strings.Count(question, "data-close") != 1 || !strings.Contains(question, `<form`) || !regexp.MustCompile(`<h[12]`).MatchString(question) {
				t.Errorf("%s: %s has no question to confirm: %s", path, m[1], r.Status)
			}
		}
	}
}
