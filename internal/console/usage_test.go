package console_test

import (
	"html"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

var wholeRow = regexp.MustCompile(`(?s)<tr><th scope="row">.*?</tr>`)

// rowSums are the last amounts of the rows of a part of a page.
func rowSums(t *testing.T, part string) (sum money.Amount, rows int) {
	t.Helper()
	for _, r := range wholeRow.FindAllString(part, -1) {
		s := sums(t, r)
		sum += s[len(s)-1]
		rows++
	}
	return sum, rows
}

// TestUsage_Sums: in every grouping and with every filter, the rows add up to the total, which
// is that of the files, and of the receipts.
func TestUsage_Sums(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Regular)
	w.grant(w.lab, ledger.Grant{Amount: 1000 * money.IU})
	w.grant(w.other, ledger.Grant{Amount: 1000 * money.IU})
	web, batch, foreign := w.makeKey(w.lab, "web"), w.makeKey(w.lab, "batch"), w.makeKey(w.other, "foreign")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	want := map[string]money.Amount{} // by query
	from, to := today.AddDate(0, 0, -9), today.AddDate(0, 0, -1)
	dates := "from=" + from.Format(time.DateOnly) + "&to=" + to.Format(time.DateOnly)
	for i := range 60 {
		at := from.Add(time.Duration(rand.IntN(9*24*3600)) * time.Second)
		k, model := web, "svc-titan"
		if i%3 == 0 {
			k = batch
		}
		if i%5 == 0 {
			model = "svc-pulse"
		}
		o := ledger.Outcome{PromptTokens: 1 + rand.IntN(999), CompletionTokens: rand.IntN(500)}
		charge := w.call(k, model, at, o).Charge
		want[dates] += charge
		want[dates+"&key="+k.ID] += charge
		want[dates+"&model="+model] += charge
		w.call(foreign, model, at, o)
		w.call(k, model, from.Add(-time.Second), o) // the day before
	}
	for query, sum := range want {
		for _, by := range []string{"model", "key", "day", "member"} {
			r := w.ask("GET", "/usage?"+query+"&by="+by, token, nil)
			page := text(t, r)
			if r.StatusCode != 200 {
				t.Fatalf("%s\n%s", r.Status, w.log)
			}
			if strings.Contains(page, foreign.ID) || strings.Contains(page, "foreign") {
				t.Error("another account's key is on the page")
			}
			_, table, _ := strings.Cut(page, "Usage by "+by)
			rows, n := rowSums(t, between(t, table, "<tbody>", "</tbody>"))
			total, _ := rowSums(t, between(t, table, "<tfoot>", "</tfoot>"))
			if rows != sum || total != sum || n == 0 {
				t.Errorf("%s by %s: %d rows of %s, total %s, want %s", query, by, n, rows, total, sum)
			}
			if figure := sums(t, between(t, page, "<dt>Spend</dt>", "</dd>")); figure[0] != sum {
				t.Errorf("%s: the figure is %s, want %s", query, figure[0], sum)
			}
			var file money.Amount
			for _, l := range readCSV(t, text(t, w.ask("GET", "/usage/csv?"+query+"&by="+by, token, nil))) {
				a, err := money.ParseAmount(l["charge_iu"])
				if err != nil {
					t.Fatal(err)
				}
				file += a
			}
			if file != sum {
				t.Errorf("%s by %s: the file has %s, want %s", query, by, file, sum)
			}
			// The calls behind it.
			var calls money.Amount
			link := html.UnescapeString(between(t, page, `href="/requests/csv`, `"`))
			for _, l := range readCSV(t, text(t, w.ask("GET", "/requests/csv"+link, token, nil))) {
				a, err := money.ParseAmount(l["charge_iu"])
				if err != nil {
					t.Fatal(err)
				}
				calls += a
			}
			if calls != sum {
				t.Errorf("%s: the calls cost %s, want %s", query, calls, sum)
			}
		}
	}
}

// TestUsage_Empty: the page says that there is nothing, and when there was.
func TestUsage_Empty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	if page := text(t, w.ask("GET", "/usage", token, nil)); !strings.Contains(page, "has made no call yet") {
		t.Error("a new account is not told that it has made no call")
	}
	w.grant(w.lab, ledger.Grant{Amount: money.IU})
	at := time.Now().UTC().AddDate(0, -2, 0)
	w.call(w.makeKey(w.lab, "web"), "svc-titan", at, ledger.Outcome{PromptTokens: 1})
	if page := text(t, w.ask("GET", "/usage?range=today", token, nil)); !strings.Contains(page, "The last one was on "+at.Format("2 Jan")) {
		t.Error("the page does not say when the last call was")
	}
	// Long ranges, ranges that begin nowhere and words that mean nothing.
	for _, q := range []string{"from=2020-01-01&to=2026-12-31", "from=x&to=y", "range=x&by=x&show=x&sort=x", "range=today&show=tokens", "from=2026-12-31&to=2020-01-01"} {
		if r := w.ask("GET", "/usage?"+q, token, nil); r.StatusCode != 200 {
			t.Errorf("%s: %s", q, r.Status)
		}
	}
}

// TestUsage_Sort: a head that is followed sorts, and followed again turns the order round.
func TestUsage_Sort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grant(w.lab, ledger.Grant{Amount: money.IU})
	few, many := w.makeKey(w.lab, "costly"), w.makeKey(w.lab, "cheap")
	now := time.Now() // for all: a day may end during the test
	w.gate.Now = func() time.Time { return now }
	w.call(few, "svc-titan", now, ledger.Outcome{PromptTokens: 1000})
	for range 3 {
		w.call(many, "svc-titan", now, ledger.Outcome{PromptTokens: 1})
	}
	for query, first := range map[string]string{"": "costly", "&sort=calls": "cheap", "&sort=calls&dir=asc": "costly", "&sort=spend&dir=asc": "cheap"} {
		page := text(t, w.ask("GET", "/usage?range=today&by=key"+query, token, nil))
		_, table, _ := strings.Cut(page, "Usage by key")
		if rows := between(t, table, "<tbody>", "</tbody>"); strings.Index(rows, first) > 300 {
			t.Errorf("%q: %s is not first:\n%s", query, first, rows)
		}
		if strings.Count(table, "aria-sort") != 1 {
			t.Errorf("%q: not one column is the one that sorts", query)
		}
	}
}

// TestUsage_Members: usage by member is that of the keys each has made, and leads to them.
func TestUsage_Members(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	ben := w.person("ben@example.test", false, w.lab, member.Regular)
	w.grant(w.lab, ledger.Grant{Amount: money.IU})
	now := time.Now() // for all: a month may end during the test
	w.gate.Now = func() time.Time { return now }
	for _, k := range []apikey.Key{w.key(ada, "one"), w.key(ada, "two"), w.key(ben, "three"), w.makeKey(w.lab, "four")} {
		w.call(k, "svc-titan", now, ledger.Outcome{PromptTokens: 10})
	}
	page := text(t, w.ask("GET", "/usage?by=member", ada, nil))
	_, table, _ := strings.Cut(page, "Usage by member")
	for name, calls := range map[string]string{"you": "2", "ben@example.test": "1", "the operator": "1"} {
		if !regexp.MustCompile(`>` + name + `</a>.*?<td class="num c-sm">` + calls + `</td>`).MatchString(table) {
			t.Errorf("%s has not %s calls:\n%s", name, calls, table)
		}
	}
	list := text(t, w.ask("GET", html.UnescapeString(regexp.MustCompile(`href="(/keys[^"]+)">ben@`).FindStringSubmatch(table)[1]), ada, nil))
	if !strings.Contains(list, "three") || strings.Contains(list, ">one<") {
		t.Errorf("the keys of a member: %s", list)
	}
}
