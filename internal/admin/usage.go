package admin

import (
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// usage adds up what an account used, by default since the month began.
func (s *service) usage(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	q, now := r.URL.Query(), time.Now().UTC()
	from := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	to := now.Truncate(time.Hour).Add(time.Hour)
	for name, into := range map[string]*time.Time{"from": &from, "to": &to} {
		if text := q.Get(name); text != "" {
			t, err := time.Parse(time.RFC3339, text)
			if err != nil || !t.Equal(t.Truncate(time.Hour)) {
				return nil, invalid("invalid_"+name, "%s is a full hour such as 2026-11-21T14:00:00Z, not %q.", name, text)
			}
			*into = t.UTC()
		}
	}
	by := ledger.ByDay
	if text := q.Get("by"); text != "" {
		by = ledger.By(text)
	}
	switch by {
	case ledger.ByKey, ledger.ByModel, ledger.ByDay, ledger.ByHour:
	default:
		return nil, invalid("invalid_by", "Usage is added up by key, model, day or hour, not %q.", by)
	}
	list, err := s.Store.Usage(r.Context(), a.ID, from, to, by)
	if err != nil {
		return nil, err
	}
	out := UsageReport{Account: a.Name, From: from, To: to, By: string(by), Groups: make([]Usage, 0, len(list))}
	var total ledger.Usage
	for _, u := range list {
		out.Groups = append(out.Groups, usageView(u))
		total.Add(&u)
	}
	out.Total = usageView(total)
	return out, nil
}

func usageView(u ledger.Usage) Usage {
	return Usage{
		Group: u.Group, Calls: u.Calls, PromptTokens: u.PromptTokens, CachedTokens: u.CachedTokens,
		CompletionTokens: u.CompletionTokens, PlanTokens: u.PlanTokens, Charge: u.Charge.String(), WrittenOff: u.WrittenOff.String(),
	}
}

// statement lists how the balance of an account changed in a month, in UTC.
func (s *service) statement(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	month := r.PathValue("month")
	from, err := time.Parse("2006-01", month)
	if err != nil {
		return nil, invalid("invalid_month", "A month is written as 2026-11, not %q.", month)
	}
	st, err := s.Store.Statement(r.Context(), a.ID, from, from.AddDate(0, 1, 0))
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, k := range s.Keys.List(a.ID) {
		names[k.ID] = k.Name
	}
	out := Statement{Account: a.Name, Month: month, Opening: st.Opening.String(), Closing: st.Closing.String(), Lines: make([]StatementLine, 0, len(st.Lines))}
	balance := st.Opening
	for _, l := range st.Lines {
		balance += l.Amount
		out.Lines = append(out.Lines, StatementLine{
			At: l.At, Kind: l.Kind, Text: l.Text, KeyID: l.KeyID, KeyName: names[l.KeyID], Model: l.Model, Calls: l.Usage.Calls,
			PromptTokens: l.Usage.PromptTokens, CachedTokens: l.Usage.CachedTokens, CompletionTokens: l.Usage.CompletionTokens, PlanTokens: l.Usage.PlanTokens,
			Amount: l.Amount.String(), Balance: balance.String(),
		})
	}
	return out, nil
}
