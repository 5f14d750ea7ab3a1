package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// auditLog lists what operators changed, the last first.
func (s *service) auditLog(r *http.Request) (any, error) {
	q, limit := r.URL.Query(), defaultReceipts
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostReceipts {
			return nil, invalid("invalid_limit", "limit is a whole number from 1 to %d, not %q.", mostReceipts, text)
		}
	}
	target := q.Get("target")
	if a, ok := s.Accounts.ByName(target); ok {
		target = a.ID
	}
	list, err := s.Store.AuditLog(r.Context(), target, limit)
	if err != nil {
		return nil, err
	}
	out := make([]AuditEntry, 0, len(list))
	for _, e := range list {
		out = append(out, AuditEntry{
			Seq: e.Seq, At: e.At, Actor: e.Actor, Action: string(e.Action), Target: e.Target, Origin: e.Origin,
			Before: raw(e.Before), After: raw(e.After), Hash: e.Hash,
		})
	}
	return out, nil
}

// raw is text as it was recorded; what is not JSON any more is shown as text.
func raw(text string) json.RawMessage {
	switch {
	case text == "":
		return nil
	case json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a string always is JSON
	return quoted
}
