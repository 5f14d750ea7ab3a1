package console

import (
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// outcome is how a call ended: an icon and its words.
type outcome struct{ Kind, Words string }

// outcomeOf says how a call that was admitted has ended, or that it has not.
func outcomeOf(r *ledger.Receipt) outcome {
	switch {
	case r.State == ledger.Running:
		return outcome{"run", "Running"}
	case r.State == ledger.Voided && r.Status >= http.StatusBadRequest && r.ErrorCode != "":
		return outcome{"bad", strconv.Itoa(r.Status) + " " + r.ErrorCode}
	}
	switch r.Ending {
	case ledger.EndClientGone:
		return outcome{"dash", "Client left"}
	case ledger.EndUpstreamCut:
		return outcome{"warn", "Cut by upstream"}
	case ledger.EndKeyRevoked:
		return outcome{"bad", "Key revoked"}
	case ledger.EndShutdown, ledger.EndCrash:
		return outcome{"warn", "Server stopped"}
	case ledger.EndUpstreamError:
		return outcome{"bad", "Upstream failed"}
	}
	if n := r.Attempts - 1; n > 0 {
		return outcome{"warn", strconv.Itoa(r.Status) + " after " + english.Plural(n, "failover")}
	}
	return outcome{"ok", strconv.Itoa(r.Status)}
}

// refusedWords are those of lists.
var refusedWords = map[wire.Rule]string{
	wire.RuleRequests:     "requests per minute",
	wire.RuleTokens:       "tokens per minute",
	wire.RuleTooLarge:     "larger than the limit",
	wire.RuleConcurrency:  "calls at once",
	wire.RuleCredit:       "no credit",
	wire.RuleHeld:         "held by running calls",
	wire.RuleBudget:       "budget of the key",
	wire.RuleSubscription: "subscription ended",
	wire.RulePlan:         "not in the plan",
	wire.RuleKeyModels:    "not for this key",
	wire.RuleModel:        "no such model",
	wire.RuleParameter:    "field not valid",
	wire.RuleContext:      "prompt too long",
}

// outcomeOfRefused says by what a call was refused.
func outcomeOfRefused(f *refusal.Record) outcome {
	words, ok := refusedWords[f.Rule]
	if !ok {
		words = f.Code
	}
	return outcome{"bad", strconv.Itoa(f.Status) + " " + words}
}

// brief shortens a name to what a phone has room for.
func brief(s string) string {
	if r := []rune(s); len(r) > 15 {
		return string(r[:9]) + "…" + string(r[len(r)-5:])
	}
	return s
}

// inSeconds is a duration with two decimals of a second: the unit is in the head of its column.
func inSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) }

// lasting is a duration in prose: "644 ms", "4.21 s", "2 min".
func lasting(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 2*time.Minute:
		return inSeconds(d) + " s"
	}
	return strconv.Itoa(int(d.Minutes())) + " min"
}

// instant is a time of a receipt: all of it.
func instant(t time.Time) template.HTML {
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339Nano), t.Format("2 Jan 2006, 15:04:05.000 UTC")))
}

// second is the time of day in a log.
func second(t time.Time) template.HTML {
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339Nano), t.Format("15:04:05")))
}

// longDay is the date that a group of rows has: "21 November", with its year where that is
// another.
func longDay(t, now time.Time) string {
	if t.UTC().Year() != now.UTC().Year() {
		return t.UTC().Format("2 January 2006")
	}
	return t.UTC().Format("2 January")
}

// share is a part of a whole with one decimal; "–" of nothing.
func share(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + "\u2009%"
}

// large is a count in a figure: "1.28 M", with all of it in the title.
func large(n int64) template.HTML {
	text := count(n)
	switch {
	case n >= 1e10:
		text = strconv.FormatFloat(float64(n)/1e9, 'f', 2, 64) + "\u202fG"
	case n >= 1e6:
		text = strconv.FormatFloat(float64(n)/1e6, 'f', 2, 64) + "\u202fM"
	}
	return template.HTML(`<span title="` + count(n) + `">` + text + `</span>`)
}
