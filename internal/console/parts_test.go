package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/money"
)

// TestParts draws every component, with a text that must not become markup.
func TestParts(t *testing.T) {
	t.Parallel()
	assets, err := loadAssets()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{assets: assets}
	pages, err := s.loadPages()
	if err != nil {
		t.Fatal(err)
	}
	const evil = `<img src=x onerror="alert(1)">`
	f := &form{fields: []*field{{Name: "rpm", Label: evil, Type: "text", Unit: "rpm", Value: `"` + evil, Hint: evil}}}
	f.fail("rpm", "The account allows 600. Enter 600 or less.")
	f.fail("rpm", "A second error is not shown.")
	tests := []struct {
		name string
		dot  any
		want []string
	}{
		{"sum", newSum(term{"", money.IU, evil, ""}, term{minus, 334_000_000, "spent", "/usage?a=b&c"}, term{"=", 666_000_000, "left", ""}), []string{`class="eq"`, `href="/usage?a=b&amp;c"`, "the sum is exact"}},
		{"chart", newChart(evil, "IU", []bar{{evil, 3, true}}, func(n int64) string { return count(n) }), []string{"<figure", "<table", "so far"}},
		{"secret", secret{"sec", evil, "sk-parley-x"}, []string{"<output", `data-copy="sec"`}},
		{"code", snippet{"try", evil, []language{{"curl", "?as=curl", true}}, evil}, []string{`aria-current="true"`, "<pre"}},
		{"pager", pager{evil, "/keys", "/keys?before=1"}, []string{"Newest", `href="/keys?before=1"`}},
		{"errors", f, []string{`href="#f-rpm"`, "Nothing was changed."}},
		{"field", f.Field("rpm"), []string{`aria-invalid="true"`, `aria-describedby="f-rpm-e"`, `<span class="unit">`, "Enter 600 or less"}},
	}
	for _, tc := range tests {
		var b strings.Builder
		if err := pages["problem"].ExecuteTemplate(&b, tc.name, tc.dot); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q:\n%s", tc.name, want, b.String())
			}
		}
		for _, never := range []string{"<img", " style=", " onclick=", "second error"} {
			if strings.Contains(b.String(), never) {
				t.Errorf("%s has %q:\n%s", tc.name, never, b.String())
			}
		}
	}
	if pill, err := s.pill("warn", evil); err != nil || strings.Contains(string(pill), "<img") {
		t.Errorf("a pill is %s, %v", pill, err)
	}
}

// TestVisit_Links: links of a list keep its filters, and lead to its first page when one changes. What
// the page before it did is said once.
func TestVisit_Links(t *testing.T) {
	t.Parallel()
	v := &visit{r: httptest.NewRequest(http.MethodGet, "/requests?before=req_1&done=x&model=a%26b", nil)}
	if p := v.pager("", "req_2"); p.Newest != "/requests?model=a%26b" || p.Older != "/requests?before=req_2&model=a%26b" {
		t.Errorf("pager = %+v", p)
	}
	v.r.URL = &url.URL{Path: "/requests"}
	if p := v.pager("5", ""); p.Newest != "" || p.Older != "" || p.Said != "5" {
		t.Errorf("pager of a list that is whole = %+v", p)
	}
	v.r.URL = &url.URL{Path: "/requests", RawQuery: "before=req_1&done=x&model=a"}
	if got := v.with("model", "b&c"); got != "/requests?model=b%26c" {
		t.Errorf("with = %s", got)
	}
	if got := v.with("model", ""); got != "/requests" {
		t.Errorf("without = %s", got)
	}
}
