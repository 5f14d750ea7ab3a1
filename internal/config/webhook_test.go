package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/money"
)

func TestParse_Webhooks(t *testing.T) {
	t.Parallel()
	lines := `webhooks:
  - {url: "https://example.org/x?y=z", secret: 0123456789abcdef}
  - {url: "http://10.0.0.1/", secret: 0123456789abcdef, events: [credit.low]}
low_credit: "2.5"
`
	c, err := parse("f", "", []byte(whole+lines), lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := []Webhook{
		{URL: "https://example.org/x?y=z", Secret: "0123456789abcdef"},
		{URL: "http://10.0.0.1/", Secret: "0123456789abcdef", Events: []string{"credit.low"}},
	}
	if diff := cmp.Diff(want, c.Webhooks); diff != "" || c.LowCredit != 5*money.IU/2 {
		t.Errorf("Webhooks (-want +got):\n%s, LowCredit %s", diff, c.LowCredit)
	}
	for entry, problem := range map[string]string{
		`{}`:                                 "a webhook has no url",
		`{url: "https://e.org"}`:             "a webhook has no secret",
		`{url: "https://e.org", secret: ""}`: "webhook: secret is empty: anybody could sign.",
		`{url: "https://e.org", secret: "${EMPTY}"}`:                                                         "webhook: secret is empty",
		`{url: "https://e.org", secret: short}`:                                                              "webhook: secret must have 16 printable characters or more",
		`{url: "http://e.org", secret: 0123456789abcdef}`:                                                    "webhook: url must be https outside of private networks.",
		`{url: "http://8.8.8.8", secret: 0123456789abcdef}`:                                                  "webhook: url must be https outside",
		`{url: "ftp://e.org", secret: 0123456789abcdef}`:                                                     "webhook: url must be https with a host",
		`{url: "https://u:hidden@e.org", secret: 0123456789abcdef}`:                                          "webhook: url must not have a user",
		`{url: "https://e.org", secret: 0123456789abcdef, events: [credit.lo]}`:                              `no event is called "credit.lo". Events: credit.low,`,
		`{url: "https://e.org", secret: 0123456789abcdef, events: []}`:                                       "events is empty",
		`{url: "https://e.org", secret: 0123456789abcdef}, {url: "https://e.org", secret: 0123456789abcdef}`: "two webhooks have the same url",
	} {
		_, err := parse("f", "", []byte(whole+"webhooks: ["+entry+"]\n"), lookup)
		if err == nil || !strings.Contains(err.Error(), problem) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want %q", entry, err, problem)
		}
	}
	if _, err := parse("f", "", []byte(whole+"low_credit: 0\n"), lookup); err == nil {
		t.Error("low_credit 0 is accepted")
	}
}
