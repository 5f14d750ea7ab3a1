package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/money"
)

func TestParse_Payment(t *testing.T) {
	t.Parallel()
	const good = `payment: {kind: stripe, secret_key: sk_test_0123456789, webhook_secret: whsec_0123456789, success_url: "https://e.org/t", prices: [{id: small, price: price_1, credit: "2.5"}]}`
	c, err := parse("f", "", []byte(whole+good+"\n"), lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := Payment{
		Kind: "stripe", SecretKey: "sk_test_0123456789", WebhookSecret: "whsec_0123456789", SuccessURL: "https://e.org/t",
		Prices: []Topup{{ID: "small", Price: "price_1", Credit: 5 * money.IU / 2}},
	}
	if diff := cmp.Diff(want, c.Payment); diff != "" {
		t.Errorf("Payment (-want +got):\n%s", diff)
	}
	for _, x := range []struct{ old, new, problem string }{
		{"kind: stripe", "kind: paypal", `kind "paypal" is not supported by this version`},
		{"webhook_secret: whsec_0123456789", `webhook_secret: ""`, "webhook_secret is empty: anybody could sign."},
		{"webhook_secret: whsec_0123456789", `webhook_secret: "${EMPTY}"`, "webhook_secret is empty"},
		{"webhook_secret: whsec_0123456789, ", "", "payment has no webhook_secret"},
		{"secret_key: sk_test_0123456789", `secret_key: ""`, "secret_key is empty"},
		{`[{id: small, price: price_1, credit: "2.5"}]`, `[]`, "prices is empty: nothing can be bought."},
		{`"https://e.org/t"`, `"https://e.org:99999/t"`, "success_url must be http or https"},
		{`"https://e.org/t"`, `"e.org"`, "success_url must be http or https"},
		{`"2.5"`, `"0"`, "credit must be a number of IU above 0"},
		{`, credit: "2.5"`, "", "a price needs price"},
		{`}]}`, `}, {id: small, price: price_2, credit: "1"}]}`, "price small: it is defined twice"},
	} {
		_, err := parse("f", "", []byte(whole+strings.Replace(good, x.old, x.new, 1)+"\n"), lookup)
		if err == nil || !strings.Contains(err.Error(), x.problem) {
			t.Errorf("%s: %v, want %q", x.new, err, x.problem)
		}
	}
}
