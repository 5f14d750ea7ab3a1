package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/member"
)

var joinLink = regexp.MustCompile(`http://localhost:8080(/join/[A-Za-z0-9_-]{43})`)

// invite makes an invitation as its owner would and returns its path.
func invite(t *testing.T, w *world, owner member.Token, email, role string) string {
	t.Helper()
	f := w.filled("/members/invite", owner, "email", email, "role", role)
	r := w.ask("POST", "/members/invite", owner, f)
	m := joinLink.FindStringSubmatch(text(t, r))
	if m == nil {
		t.Fatalf("no link: %s %s", r.Status, r.Header.Get("Location"))
	}
	// A double click shows the second answer: it is the same one.
	if again := text(t, w.ask("POST", "/members/invite", owner, f)); !strings.Contains(again, m[0]) {
		t.Errorf("sent twice, the form made another link:\n%s", again)
	}
	return m[1]
}

// TestInvitation goes from the owner's form to the new member's first page.
func TestInvitation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	path := invite(t, w, owner, " Ben@Example.test", "member")

	if page := text(t, w.ask("GET", "/members", owner, nil)); !strings.Contains(page, "ben@example.test") || strings.Contains(page, path) {
		t.Error("the open invitation is not listed, or its link is shown again")
	}
	if page := text(t, w.ask("GET", path, owner, nil)); strings.Contains(page, `method="post" action="`+path) {
		t.Error("somebody else may accept the invitation")
	}
	if r := w.ask("POST", path, "", url.Values{"password": {"short"}}); r.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a short password: %s", r.Status)
	}
	r := w.ask("POST", path, "", url.Values{"password": {password}})
	ben := session(r)
	if ben == "" {
		t.Fatalf("joining: %s", r.Status)
	}
	if page := text(t, w.ask("GET", "/members", ben, nil)); !strings.Contains(page, "ada@example.test") || strings.Contains(page, "/members/invite") {
		t.Error("the new member does not see the members, or may invite more")
	}
	if r := w.ask("POST", path, "", url.Values{"password": {"somebody else’s"}}); r.StatusCode != http.StatusGone {
		t.Errorf("a second use: %s", r.Status)
	}
	// A double click: the second answer lets the new member in, whether or not its browser has the first.
	if r := w.ask("POST", path, "", url.Values{"password": {password}}); r.StatusCode != http.StatusSeeOther || session(r) == "" {
		t.Errorf("the form sent twice: %s", r.Status)
	}
	if r := w.ask("POST", path, ben, url.Values{"password": {password}}); r.Header.Get("Location") != "/" {
		t.Errorf("the form sent twice, signed in: %s", r.Status)
	}
	if r := w.ask("GET", path, "", nil); r.StatusCode != http.StatusGone {
		t.Errorf("the link afterwards: %s", r.Status)
	}
}

// TestInvitation_Known: a member keeps its password whoever has an invitation for its email,
// and accepts it signed in.
func TestInvitation_Known(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	bob := w.person("bob@example.test", false, w.other, member.Owner)
	path := invite(t, w, owner, "bob@example.test", "member")

	if r := w.ask("POST", path, "", url.Values{"password": {"another long password"}}); r.Header.Get("Location") != path || session(r) != "" {
		t.Errorf("who is not signed in: %s to %s", r.Status, r.Header.Get("Location"))
	}
	if r := w.ask("GET", "/security", bob, nil); r.StatusCode != http.StatusOK {
		t.Fatalf("the member was signed out: %s", r.Status)
	}
	fresh := session(w.ask("POST", path, bob, nil))
	if fresh == "" || fresh == bob {
		t.Fatal("accepting did not give another token")
	}
	if page := text(t, w.ask("GET", "/members", fresh, nil)); !strings.Contains(page, "Members of Example Lab") || !strings.Contains(page, "Other Works") {
		t.Error("the member is not in the new account, or cannot switch back")
	}
	if r := w.ask("POST", "/switch", fresh, url.Values{"to": {w.other.ID}}); r.StatusCode != http.StatusSeeOther {
		t.Errorf("switching: %s", r.Status)
	}
	if page := text(t, w.ask("GET", "/members", fresh, nil)); !strings.Contains(page, "Members of Other Works") {
		t.Error("switching leads to another account")
	}
	// A form that was loaded before the switch is of the other account.
	r := w.ask("POST", "/members/invite", fresh, url.Values{"account": {w.lab.ID}, "email": {"eve@example.test"}, "role": {"owner"}})
	if r.StatusCode != http.StatusConflict {
		t.Errorf("a form of the other account: %s", r.Status)
	}
}

// TestInvitation_Over: links that were revoked or are old let nobody in.
func TestInvitation_Over(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	path := invite(t, w, owner, "ben@example.test", "member")
	open, err := w.db.Invitations(t.Context(), w.lab.ID, time.Now())
	if err != nil || len(open) != 1 {
		t.Fatal(open, err)
	}
	if r := w.ask("POST", "/members/invitations/"+open[0].ID+"/revoke", owner, url.Values{"account": {w.lab.ID}}); r.StatusCode != http.StatusSeeOther {
		t.Fatalf("revoking: %s", r.Status)
	}
	if r := w.ask("POST", path, "", url.Values{"password": {password}}); r.StatusCode != http.StatusNotFound {
		t.Errorf("a revoked link: %s", r.Status)
	}
	if status, page := w.sent("/members/invitations/"+open[0].ID+"/revoke", owner, url.Values{"account": {w.lab.ID}}); status != http.StatusSeeOther || !strings.Contains(page, "That invitation is not open any more") {
		t.Errorf("revoking it once more: %d %s", status, page)
	}
	path = invite(t, w, owner, "ben@example.test", "member")
	w.gate.Now = func() time.Time { return time.Now().Add(member.InvitationLimit + time.Minute) }
	if r := w.ask("POST", path, "", url.Values{"password": {password}}); r.StatusCode != http.StatusGone {
		t.Errorf("an old link: %s", r.Status)
	}
}

// TestMembers_Places: roles change at once, and the last owner stays.
func TestMembers_Places(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	ben := w.person("ben@example.test", false, w.lab, member.Regular)
	id := func(email string) string {
		m, err := w.db.MemberByEmail(t.Context(), email)
		if err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	form := url.Values{"account": {w.lab.ID}, "role": {"member"}}
	for _, path := range []string{"/role", "/remove"} {
		if r := w.ask("POST", "/members/"+id("ada@example.test")+path, owner, form); r.Header.Get("Location") != "/members/"+id("ada@example.test") {
			t.Errorf("%s of the last owner: %s to %s", path, r.Status, r.Header.Get("Location"))
		}
	}
	if r := w.ask("GET", "/members/invite", ben, nil); r.StatusCode != http.StatusForbidden {
		t.Errorf("a member may invite: %s", r.Status)
	}
	form.Set("role", "owner")
	w.ask("POST", "/members/"+id("ben@example.test")+"/role", owner, form)
	if r := w.ask("GET", "/members/invite", ben, nil); r.StatusCode != http.StatusOK {
		t.Errorf("a new owner may not invite: %s", r.Status)
	}
	w.ask("POST", "/members/"+id("ada@example.test")+"/remove", ben, form)
	if r := w.ask("GET", "/members", owner, nil); r.StatusCode != http.StatusForbidden {
		t.Errorf("who was removed still sees the members: %s", r.Status)
	}
	for path, says := range map[string]string{"/remove": "Removed.", "/role": "That member does not belong to the account any more."} {
		if status, page := w.sent("/members/"+id("ada@example.test")+path, ben, form); status != http.StatusSeeOther || !strings.Contains(page, says) {
			t.Errorf("%s of somebody who is gone: %d %s", path, status, page)
		}
	}
}

// TestMembers_Self: an owner who leaves is not led to the members of another account as if they
// were those of the one it has left.
func TestMembers_Self(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)
	ben := w.person("ben@example.test", false, w.lab, member.Owner)
	m, err := w.db.MemberByEmail(t.Context(), "ben@example.test")
	if err != nil {
		t.Fatal(err)
	}
	r := w.ask("POST", "/members/"+m.ID+"/remove", ben, url.Values{"account": {w.lab.ID}})
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/" {
		t.Errorf("leaving: %s to %s", r.Status, r.Header.Get("Location"))
	}
}

// TestMembers_Keys: of who is removed, the keys are revoked where the owner asks for that.
func TestMembers_Keys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	own := w.key(owner, "ada’s")
	for email, keys := range map[string]string{"ben@example.test": "revoke", "cleo@example.test": "leave"} {
		k := w.key(w.person(email, false, w.lab, member.Owner), "of-"+keys)
		path := "/members/" + k.CreatedBy
		has(t, text(t, w.ask("GET", path, owner, nil)), "The key that "+email+" has made", "Revoke now")
		if _, page := w.sent(path+"/remove", owner, url.Values{"account": {w.lab.ID}, "keys": {keys}}); !strings.Contains(page, "Removed.") {
			t.Errorf("removing %s: %s", email, page)
		}
		if k, _ = w.keys.Find(k.ID); k.RevokedAt.IsZero() == (keys == "revoke") {
			t.Errorf("%s the keys: %+v", keys, k)
		}
	}
	if k, _ := w.keys.Find(own.ID); !k.RevokedAt.IsZero() {
		t.Error("the key of another member is revoked")
	}
	// The last owner stays, and so do its keys.
	w.ask("POST", "/members/"+own.CreatedBy+"/remove", owner, url.Values{"account": {w.lab.ID}, "keys": {"revoke"}})
	if k, _ := w.keys.Find(own.ID); !k.RevokedAt.IsZero() {
		t.Error("the keys of the last owner are revoked")
	}
}

// TestProof: what is sensitive asks for a proof that is not old.
func TestProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	w.gate.Now = func() time.Time { return time.Now().Add(member.ProofLimit + time.Minute) }
	if r := w.ask("GET", "/members/invite", owner, nil); r.Header.Get("Location") != "/prove?next=%2Fmembers%2Finvite" {
		t.Fatalf("an old proof leads to %q", r.Header.Get("Location"))
	}
	r := w.ask("POST", "/security/password", owner, url.Values{"password": {"another long password"}}, "Referer", "http://localhost:8080/security?done=x")
	if r.Header.Get("Location") != "/prove?next=%2Fsecurity%3Fdone%3Dx" {
		t.Errorf("an old proof of a form leads to %q", r.Header.Get("Location"))
	}
	if r := w.ask("POST", "/prove", owner, url.Values{"password": {"wrong wrong wrong"}, "next": {"/members/invite"}}); r.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a wrong password: %s", r.Status)
	}
	r = w.ask("POST", "/prove", owner, url.Values{"password": {password}, "next": {"/members/invite"}})
	if r.Header.Get("Location") != "/members/invite" {
		t.Fatalf("a proof leads to %q", r.Header.Get("Location"))
	}
	if r := w.ask("GET", "/members/invite", session(r), nil); r.StatusCode != http.StatusOK {
		t.Errorf("after the proof: %s", r.Status)
	}
}

// TestProof_KeepsForm: a form that was being filled in when the last proof became too old waits
// for the next one, and nothing of it is lost or done before that.
func TestProof_KeepsForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person("ada@example.test", false, w.lab, member.Owner)
	f := w.filled("/keys/new", owner, "name", "long <b>thought", "expires", "90", "models", "some", "model", "svc-pulse", "model", "svc-titan", "networks", "10.0.0.0/8\n203.0.113.7")
	w.gate.Now = func() time.Time { return time.Now().Add(member.ProofLimit + time.Minute) }
	kept := regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
	waiting := func(r *http.Response) url.Values {
		t.Helper()
		page := text(t, r)
		has(t, page, "What you have typed is kept")
		carried := url.Values{}
		for _, m := range kept.FindAllStringSubmatch(page, -1) {
			carried.Add(m[1], html.UnescapeString(m[2]))
		}
		return carried
	}
	const path = "/keys/new"
	carried := waiting(w.ask("POST", path, owner, f, "Sec-Fetch-Mode", "navigate", "Referer", "http://localhost:8080"+path))
	if len(w.keys.List(w.lab.ID)) != 0 {
		t.Fatal("a key was made without a proof")
	}
	carried.Set("password", "wrong wrong wrong")
	r := w.ask("POST", "/prove", owner, carried)
	if r.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a wrong password: %s", r.Status)
	}
	carried = waiting(r)
	if carried.Has("password") || carried.Get("next") != path || carried.Get("again") != path {
		t.Errorf("what waits is %v", carried)
	}
	carried.Set("password", password)
	r = w.ask("POST", "/prove", owner, carried)
	if r.StatusCode != http.StatusTemporaryRedirect || r.Header.Get("Location") != path {
		t.Fatalf("a proof answers %s to %s", r.Status, r.Header.Get("Location"))
	}
	if r := w.ask("POST", path, session(r), carried); r.StatusCode != http.StatusOK {
		t.Errorf("the form once more: %s", r.Status)
	}
	if all := w.keys.List(w.lab.ID); len(all) != 1 || all[0].Name != "long <b>thought" || len(all[0].Models) != 2 || len(all[0].Networks) != 2 {
		t.Errorf("the keys are %+v", all)
	}
	// An island sends its own again, and a proof never leads to another site.
	w.gate.Now = func() time.Time { return time.Now().Add(3 * member.ProofLimit) }
	if r := w.ask("POST", path, owner, f, "Sec-Fetch-Mode", "cors", "Referer", "http://localhost:8080/keys"); r.StatusCode == http.StatusOK {
		t.Errorf("an island is answered with a page: %s", r.Status)
	}
	token := w.person("ben@example.test", false, w.lab, member.Owner)
	if r := w.ask("POST", "/prove", token, url.Values{"password": {password}, "again": {"//evil.example/"}}); r.Header.Get("Location") != "/" {
		t.Errorf("a proof leads to %q", r.Header.Get("Location"))
	}
}

// TestOperatorLooks: an operator reads an account and changes nothing in it.
func TestOperatorLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.person("ada@example.test", false, w.lab, member.Owner)
	olive := w.person("olive@example.test", true, nil, member.None)
	if r := w.ask("GET", "/members", olive, nil); !strings.HasPrefix(r.Header.Get("Location"), "/operator") {
		t.Errorf("without an account: %s %s", r.Status, r.Header.Get("Location"))
	}
	w.ask("POST", "/switch", olive, url.Values{"to": {w.lab.ID}})
	page := text(t, w.ask("GET", "/members", olive, nil))
	if !strings.Contains(page, "You are looking at Example Lab as operator.") || strings.Contains(page, "Invite") {
		t.Errorf("the page is not read only:\n%s", page)
	}
	k, at := w.makeKey(w.lab, "web"), "/operator/accounts/"+w.lab.ID
	for path, ways := range map[string]struct{ to, not string }{
		"/":                 {at + "/credit", "/keys/new"},
		"/billing":          {at + "/credit", "#h-add"},
		"/members":          {at, "/members/invite"},
		"/keys/" + k.ID:     {at, "/keys/" + k.ID + "/revoke"},
		"/models/svc-titan": {at, "/playground?model=svc-titan"},
	} {
		page := text(t, w.ask("GET", path, olive, nil))
		if !strings.Contains(page, `href="`+ways.to+`"`) || strings.Contains(page, `href="`+ways.not+`"`) {
			t.Errorf("%s does not lead to %s, or to %s, which is closed", path, ways.to, ways.not)
		}
	}
	r := w.ask("POST", "/members/invite", olive, url.Values{"account": {w.lab.ID}, "email": {"eve@example.test"}, "role": {"owner"}})
	if r.StatusCode != http.StatusForbidden {
		t.Errorf("a change: %s", r.Status)
	}
	ada := w.person("eve@example.test", false, w.other, member.Owner)
	if r := w.ask("POST", "/switch", ada, url.Values{"to": {w.lab.ID}}); r.StatusCode != http.StatusNotFound {
		t.Errorf("a member of another account switches: %s", r.Status)
	}
}
