package app

import (
	"crypto/tls"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestConsole claims and reads the pages of a whole server, over TLS and over plain HTTP on
// the machine itself, beside the API.
func TestConsole(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"TLS": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, out, errs := options(t, t.TempDir(), &provider{})
			transport := &http.Transport{}
			if secure {
				files, pool := authority(t)
				o.Config.TLS = files
				transport.TLSClientConfig, transport.ForceAttemptHTTP2 = &tls.Config{RootCAs: pool}, true
			}
			r := start(t, o, out, errs)
			link := regexp.MustCompile(`console  (https?://localhost:\d+)(/claim)#([A-Za-z0-9_-]{43})`).FindStringSubmatch(out.String())
			if link == nil || strings.HasPrefix(link[1], "https") != secure {
				t.Fatalf("no link:\n%s", out)
			}
			base := link[1]
			if secure { // the certificate is for the address
				base = r.URL()
			}
			jar, _ := cookiejar.New(nil)
			client := &http.Client{Transport: transport, Jar: jar, Timeout: 10 * time.Second}
			res, err := client.PostForm(base+"/claim", url.Values{"token": {link[3]}, "email": {"ada@example.test"}, "password": {"correct horse battery"}})
			if err != nil {
				t.Fatal(err)
			}
			page := read(t, res.Body)
			if !strings.Contains(page, "ada@example.test") {
				t.Errorf("the page behind the claim is\n%s", page)
			}
			if got := res.Header.Get("Strict-Transport-Security"); (got != "") != secure {
				t.Errorf("Strict-Transport-Security is %q", got)
			}
			for path, want := range map[string]string{"/v1/models": "application/json", "/v1/nothing": "application/json", "/nothing": "application/json", "/healthz": "application/json", "//v1//models/": "application/json", "/sign-in": "text/html; charset=utf-8"} {
				res, err := client.Get(base + path)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if got := res.Header.Get("Content-Type"); got != want {
					t.Errorf("%s is %s, want %s", path, got, want)
				}
			}
			// The page of the models is not for clients that left out /v1.
			for accept, want := range map[string]int{"application/json": 404, "*/*": 404, "text/html,*/*;q=0.8": 200} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/models", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer x")
				req.Header.Set("Accept", accept)
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if body := read(t, res.Body); res.StatusCode != want || strings.Contains(body, "Use /v1/models.") != (want == 404) {
					t.Errorf("/models with a key and Accept %s: %d %s", accept, res.StatusCode, body)
				}
			}
			client.CloseIdleConnections()
		})
	}
}
