package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestCrash_Choices kills the server in a stream of three choices of the embedded model: the charge
// is what was delivered of all of them together, where log-probabilities count tokens one by one.
func TestCrash_Choices(t *testing.T) {
	t.Parallel()
	for _, after := range []int{4, 31, 90} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			o := options(dataDir(t))
			s := startWith(t, o)
			resp, err := openStream(t, http.DefaultClient, s, s.Key, `{"model":"svc-pulse","n":3,"stream":true,"logprobs":true,"max_tokens":400,"seed":1`+endless+`,`+countTo+`}`)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var tokens int64
			choices := map[int]bool{}
			killed := false
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				if !ok {
					continue
				}
				var c struct {
					Choices []struct {
						Index    int
						Logprobs struct{ Content []json.RawMessage }
					}
				}
				if err := json.Unmarshal([]byte(data), &c); err != nil { // nor does it come to [DONE]
					t.Fatalf("%s: %v", data, err)
				}
				n := len(c.Choices[0].Logprobs.Content)
				if tokens += int64(n); n > 0 {
					choices[c.Choices[0].Index] = true
				}
				if tokens >= int64(after) && !killed {
					killed = true
					s.Kill()
				}
			}
			id := resp.Header.Get("X-Request-Id")
			if !killed || len(choices) != 3 {
				t.Fatalf("after %d tokens of %d choices it ended: %v", tokens, len(choices), lines.Err())
			}
			again := startWith(t, o)
			list, err := chargesOf(t.Context(), openBooks(t, o.Data), id)
			if err != nil || len(list) != 1 || list[0].state != "recovered" {
				t.Fatalf("%s: %+v, %v", id, list, err)
			}
			// A token may have been noted and not sent, and a choice may hold back the beginning of a
			// character.
			if c := list[0]; c.out < tokens || c.out > tokens+4 || c.amount != c.in*c.priceIn+c.out*c.priceOut {
				t.Errorf("%d tokens were delivered, charged is %+v", tokens, c)
			}
			if r := again.Run("ledger", "verify"); r.Code != 0 {
				t.Errorf("ledger verify: %s%s", r.Stdout, r.Stderr)
			}
		})
	}
}
