package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/member"
)

var (
	tokenField = regexp.MustCompile(`name="token" value="([^"]+)"`)
	secretText = regexp.MustCompile(`sk-parley-[0-9A-Za-z]{49}`)
)

// filled is a form of the lab as its page has it, with these fields.
func (w *world) filled(path string, token member.Token, fields ...string) url.Values {
	w.t.Helper()
	f := url.Values{"account": {w.lab.ID}}
	page := text(w.t, w.ask("GET", path, token, nil))
	if m := tokenField.FindStringSubmatch(page); m != nil {
		f.Set("token", m[1])
	}
	for i := 0; i < len(fields); i += 2 {
		f.Add(fields[i], fields[i+1])
	}
	return f
}

// key makes a key of the lab for whoever has the token, by its form.
func (w *world) key(token member.Token, name string) apikey.Key {
	w.t.Helper()
	r := w.ask("POST", "/keys/new", token, w.filled("/keys/new", token, "name", name, "expires", "90"))
	if r.StatusCode != http.StatusOK {
		w.t.Fatalf("creating %s: %s", name, r.Status)
	}
	all := w.keys.List(w.lab.ID)
	return all[len(all)-1]
}

// TestKeys_Create: the secret is in one answer, which a double click gets again and a later
// reload does not, and there is one key.
func TestKeys_Create(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	if page := text(t, w.ask("GET", "/keys", ada, nil)); !strings.Contains(page, "No keys yet") {
		t.Error("the empty list does not say so")
	}
	f := w.filled("/keys/new", ada, "name", "nightly", "expires", "30", "rpm", "60", "tpm", "30,000", "budget", "25", "period", "month",
		"models", "some", "model", "svc-pulse", "networks", "10.0.0.0/8\r\n203.0.113.7")
	r := w.ask("POST", "/keys/new", ada, f)
	page := text(t, r)
	found := secretText.FindString(page)
	if r.StatusCode != http.StatusOK || found == "" || r.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s:\n%s", r.Status, page)
	}
	all := w.keys.List(w.lab.ID)
	if len(all) != 1 {
		t.Fatalf("%d keys", len(all))
	}
	k := all[0]
	if k.RPM != 60 || k.TPM != 30_000 || k.Budget.Amount.Display() != "25.00" || !k.Budget.Monthly || len(k.Models) != 1 || len(k.Networks) != 2 || k.CreatedBy == "" ||
		time.Until(k.ExpiresAt).Round(time.Hour) != 30*24*time.Hour {
		t.Errorf("the key is %+v", k)
	}
	if again := text(t, w.ask("POST", "/keys/new", ada, f)); secretText.FindString(again) != found {
		t.Error("a double click does not get the same answer")
	}
	now := time.Now().Add(time.Minute)
	w.gate.Now = func() time.Time { return now }
	if late := text(t, w.ask("POST", "/keys/new", ada, f)); strings.Contains(late, found) || !strings.Contains(late, "was shown once") {
		t.Errorf("loaded again later:\n%s", late)
	}
	if n := len(w.keys.List(w.lab.ID)); n != 1 {
		t.Errorf("%d keys after one form was sent three times", n)
	}
	for _, path := range []string{"/keys", "/keys/" + k.ID, "/keys/" + k.ID + "/edit", "/keys/" + k.ID + "/rotate", "/keys/" + k.ID + "/revoke"} {
		r := w.ask("GET", path, ada, nil)
		if page := text(t, r); r.StatusCode != http.StatusOK || strings.Contains(page, found) || !strings.Contains(page, "nightly") {
			t.Errorf("%s: %s:\n%s", path, r.Status, page)
		}
	}
	if strings.Contains(w.log.String(), found) {
		t.Error("the log has the secret")
	}
}

// TestKeys_Wrong: what is wrong is said beside its field with the bound, what was typed stays,
// and nothing is made.
func TestKeys_Wrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	for _, c := range []struct{ name, value, says string }{
		{"name", "", "Enter 1 to 100 printable characters."},
		{"rpm", "900", "The account allows 600. Enter 600 or less."},
		{"rpm", "99999999999999999999", "The account allows 600. Enter 600 or less."},
		{"tpm", "600001", "The account allows 600,000. Enter 600,000 or less."},
		{"rpm", "-1", "Enter 1 or more"},
		{"rpm", "ten", "Enter a whole number"},
		{"budget", "0", "Enter an amount above 0"},
		{"budget", "0.0000000001", "Enter an amount above 0"},
		{"expires", "soon", "Choose when the key ends."},
		{"networks", "10.0.0.1/8", "“10.0.0.1/8” is no network."},
		{"networks", strings.Repeat("10.0.0.0/8 ", 101), "at most 100 networks; these are 101"},
	} {
		f := w.filled("/keys/new", ada, "expires", "90")
		f.Set("name", "kept")
		f.Set(c.name, c.value)
		r := w.ask("POST", "/keys/new", ada, f)
		page := text(t, r)
		if r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, c.says) || !strings.Contains(page, `href="#f-`+c.name+`"`) || !strings.Contains(page, "<title>Error: ") {
			t.Errorf("%s=%.20q: %s, want %q in\n%s", c.name, c.value, r.Status, c.says, page)
		}
		if c.name != "name" && !strings.Contains(page, `value="kept"`) {
			t.Errorf("%s=%.20q: the name that was typed is gone", c.name, c.value)
		}
	}
	f := w.filled("/keys/new", ada, "name", "x", "expires", "date", "date", "2020-01-01", "models", "some")
	if page := text(t, w.ask("POST", "/keys/new", ada, f)); !strings.Contains(page, "That day is over.") || !strings.Contains(page, "Tick at least one model") {
		t.Errorf("an old day and no model:\n%s", page)
	}
	f = w.filled("/keys/new", ada, "name", "x", "expires", "date", "date", "9999-12-31")
	if page := text(t, w.ask("POST", "/keys/new", ada, f)); !strings.Contains(page, "Enter an earlier day") {
		t.Errorf("a day whose end no RFC 3339 writes:\n%s", page)
	}
	f.Set("token", "forged")
	if page := text(t, w.ask("POST", "/keys/new", ada, f)); !strings.Contains(page, "This form was made before Parley was last started") {
		t.Error("a token that nobody made is taken")
	}
	if n := len(w.keys.List(w.lab.ID)); n != 0 {
		t.Errorf("%d keys were made", n)
	}
}

// TestKeys_Whose: members see and change their own keys, owners all, and nobody those of
// another account.
func TestKeys_Whose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	ben := w.person("ben@example.test", false, w.lab, member.Regular)
	eve := w.person("eve@example.test", false, w.other, member.Owner)
	adas, bens := w.key(ada, "adas-key"), w.key(ben, "bens-key")
	for _, c := range []struct {
		who   member.Token
		key   apikey.Key
		sees  bool
		label string
	}{{ada, adas, true, "owner, own"}, {ada, bens, true, "owner, member's"}, {ben, adas, false, "member, owner's"}, {ben, bens, true, "member, own"}, {eve, adas, false, "another account's"}} {
		if got := strings.Contains(text(t, w.ask("GET", "/keys", c.who, nil)), c.key.Name); got != c.sees {
			t.Errorf("%s: listed = %v", c.label, got)
		}
		for _, page := range []string{"", "/edit", "/rotate", "/revoke"} {
			if r := w.ask("GET", "/keys/"+c.key.ID+page, c.who, nil); (r.StatusCode == http.StatusOK) != c.sees || !c.sees && r.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s: %s", c.label, page, r.Status)
			}
			if page == "" || c.sees {
				continue
			}
			own := w.lab.ID
			if c.who == eve {
				own = w.other.ID
			}
			if r := w.ask("POST", "/keys/"+c.key.ID+page, c.who, url.Values{"account": {own}}); r.StatusCode != http.StatusNotFound {
				t.Errorf("%s: POST %s: %s", c.label, page, r.Status)
			}
		}
	}
}

// TestKeys_Revoke: the key ends at once and the list says so.
func TestKeys_Revoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	k := w.key(ada, "batch")
	if page := text(t, w.ask("GET", "/keys/"+k.ID+"/revoke", ada, nil)); !strings.Contains(page, "refused within 2 seconds. No stream is running with it.") {
		t.Errorf("the page does not say what happens:\n%s", page)
	}
	for range 2 {
		r := w.ask("POST", "/keys/"+k.ID+"/revoke", ada, url.Values{"account": {w.lab.ID}})
		if r.StatusCode != http.StatusSeeOther {
			t.Fatal(r.Status)
		}
		if page := text(t, w.ask("GET", r.Header.Get("Location"), ada, nil)); !strings.Contains(page, "batch is revoked.") || !strings.Contains(page, "The only server confirmed at") {
			t.Errorf("the list does not say what was done:\n%s", page)
		}
	}
	if k, _ := w.keys.Find(k.ID); k.RevokedAt.IsZero() {
		t.Error("the key is not revoked")
	}
	if page := text(t, w.ask("GET", "/keys/"+k.ID+"/edit", ada, nil)); !strings.Contains(page, "has ended") || strings.Contains(page, "Save changes") {
		t.Error("a revoked key can be edited")
	}
}

// TestKeys_Rotate: a new key takes the old one's place, once however often the form is sent.
func TestKeys_Rotate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	k := w.key(ada, "web")
	path := "/keys/" + k.ID + "/rotate"
	f := w.filled(path, ada, "overlap", "24h")
	first, second := text(t, w.ask("POST", path, ada, f)), text(t, w.ask("POST", path, ada, f))
	if s := secretText.FindString(first); s == "" || s != secretText.FindString(second) || !strings.Contains(first, "works until") {
		t.Errorf("no secret, or two:\n%s", first)
	}
	all := w.keys.List(w.lab.ID)
	if len(all) != 2 || all[0].ReplacedBy != all[1].ID || all[1].Name != "web" || all[1].CreatedBy != k.CreatedBy {
		t.Errorf("the keys are %+v", all)
	}
	if page := text(t, w.ask("GET", path, ada, nil)); !strings.Contains(page, "It was replaced already.") {
		t.Error("a key that was replaced can be replaced again")
	}
}

// TestKeys_Outlived: who revokes a key that took another's place is told, before and after, that the
// other works still, as long as it does.
func TestKeys_Outlived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, ben := w.person("ada@example.test", false, w.lab, member.Owner), w.person("ben@example.test", false, w.lab, member.Regular)
	old := w.key(ada, "web")
	w.ask("POST", "/keys/"+old.ID+"/rotate", ada, w.filled("/keys/"+old.ID+"/rotate", ada, "overlap", "24h"))
	all := w.keys.List(w.lab.ID)
	fresh := all[len(all)-1]
	revoke := func(k apikey.Key) (before, after string) {
		path := "/keys/" + k.ID + "/revoke"
		before = shown(t, w.ask("GET", path, ada, nil))
		_, after = w.sent(path, ada, url.Values{"account": {w.lab.ID}})
		return before, after
	}
	before, after := revoke(fresh)
	if !strings.Contains(before, "The key whose place it took, "+old.Prefix) || !strings.Contains(after, "web is revoked.") || !strings.Contains(after, "The key whose place it took works until") {
		t.Errorf("the older key is not spoken of:\n%s\n%s", before, after)
	}
	if page := text(t, w.ask("GET", "/keys?done="+fresh.ID, ada, nil)); !strings.Contains(page, `href="/keys/`+old.ID+`/revoke">Revoke it too`) {
		t.Error("no link leads to its end")
	}
	if page := text(t, w.ask("GET", "/keys?done="+fresh.ID, ben, nil)); strings.Contains(page, "whose place") || strings.Contains(page, old.ID) {
		t.Error("a member learns of an owner's keys")
	}
	if before, after := revoke(old); strings.Contains(before+after, "whose place") || !strings.Contains(after, "web is revoked.") {
		t.Errorf("the older key speaks of itself:\n%s\n%s", before, after)
	}
	if page := shown(t, w.ask("GET", "/keys?done="+fresh.ID, ada, nil)); strings.Contains(page, "whose place") {
		t.Error("a key that has ended is said to work")
	}
}

// TestKeys_Edit: what is not touched stays, to the microsecond.
func TestKeys_Edit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	k := w.key(ada, "web")
	path := "/keys/" + k.ID + "/edit"
	r := w.ask("POST", path, ada, w.filled(path, ada, "name", "web", "expires", "date", "date", k.ExpiresAt.Add(-1).Format("2006-01-02"), "rpm", "30", "models", "all"))
	if r.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s:\n%s", r.Status, text(t, r))
	}
	if got, _ := w.keys.Find(k.ID); got.RPM != 30 || !got.ExpiresAt.Equal(k.ExpiresAt) || got.Models != nil {
		t.Errorf("the key is %+v", got)
	}
	if page := text(t, w.ask("POST", path, ada, w.filled(path, ada, "name", "typed", "expires", "never", "rpm", "601"))); !strings.Contains(page, "Enter 600 or less.") || !strings.Contains(page, `value="typed"`) {
		t.Errorf("over the bound:\n%s", page)
	}
}

// TestKeys_List filters and turns pages without losing or repeating a key.
func TestKeys_List(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	for range 60 {
		if _, _, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "bulk"}); err != nil {
			t.Fatal(err)
		}
	}
	k := w.key(ada, "Needle & thread")
	if page := text(t, w.ask("GET", "/keys?q=needle", ada, nil)); strings.Count(page, `class="row"`) != 1 || !strings.Contains(page, "Needle &amp; thread") {
		t.Errorf("filtered by name:\n%s", page)
	}
	if page := text(t, w.ask("GET", "/keys?q="+k.Last4, ada, nil)); !strings.Contains(page, k.ID) {
		t.Error("not found by its last four")
	}
	if page := text(t, w.ask("GET", "/keys?q=nothing-like-it", ada, nil)); !strings.Contains(page, "No key matches") {
		t.Error("an empty result does not say so")
	}
	if page := text(t, w.ask("GET", "/keys?status=ended", ada, nil)); !strings.Contains(page, "No key matches") {
		t.Error("keys that work are among those that ended")
	}
	older := regexp.MustCompile(`href="(/keys\?before=[^"]+)">Older`)
	seen := map[string]bool{}
	row := regexp.MustCompile(`class="row" href="/keys/([^"]+)"`)
	path := "/keys"
	for range 2 {
		page := text(t, w.ask("GET", path, ada, nil))
		for _, m := range row.FindAllStringSubmatch(page, -1) {
			if seen[m[1]] {
				t.Errorf("%s is listed twice", m[1])
			}
			seen[m[1]] = true
		}
		if m := older.FindStringSubmatch(page); m != nil {
			path = m[1]
		}
	}
	if len(seen) != 61 {
		t.Errorf("%d keys on two pages, want 61", len(seen))
	}
}

// TestFind_Keys: a key by any of its names, a model by the beginning of its own, and of a whole
// secret no more is looked at than lists show.
func TestFind_Keys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	ben := w.person("ben@example.test", false, w.lab, member.Regular)
	k, secret, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "Nightly"})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{k.ID, "night", k.Prefix, k.Last4, string(secret)} {
		if r := w.ask("POST", "/find", ada, url.Values{"q": {q}}); r.Header.Get("Location") != "/keys/"+k.ID {
			t.Errorf("%q leads to %q", q, r.Header.Get("Location"))
		}
	}
	if r := w.ask("POST", "/find", ada, url.Values{"q": {"svc-t"}}); r.Header.Get("Location") != "/models/svc-titan" {
		t.Errorf("a model leads to %q", r.Header.Get("Location"))
	}
	has(t, text(t, w.ask("POST", "/find", ada, url.Values{"q": {"svc-"}})), "svc-titan", "svc-pulse")
	if r := w.ask("POST", "/find", ben, url.Values{"q": {"night"}}); r.StatusCode != http.StatusOK {
		t.Errorf("a member finds another's key: %s", r.Header.Get("Location"))
	}
}
