package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzDecodeChat checks what must hold for every body: no panic, and either a
// request within its bounds or a 400 that is safe to send.
func FuzzDecodeChat(f *testing.F) {
	f.Add([]byte(typical))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := DecodeChat(body)
		if err == nil {
			checkRequest(t, req)
			return
		}
		if req != nil {
			t.Error("request and error")
		}
		if err.Status != 400 || err.Type != "invalid_request_error" || err.Code == "" || err.Message == "" {
			t.Errorf("error %+v", err)
		}
		if !utf8.ValidString(err.Message) || len(err.Message) > 600 || misread.MatchString(err.Message) {
			t.Errorf("message %q", err.Message)
		}
		if err.Param != nil && (len(*err.Param) > 100 || !utf8.ValidString(*err.Param)) {
			t.Errorf("param %q", *err.Param)
		}
		if _, ok := Explain(err.Code); !ok {
			t.Errorf("no sentence for %s", err.Code)
		}
		if env := err.AppendJSON(nil); !json.Valid(env) {
			t.Errorf("envelope %s", env)
		}
		// What the standard library takes for JSON is at most too deep or
		// names a field twice for us; the reverse must never happen.
		if err.Code != "invalid_json" && !json.Valid(trimBOM(body)) {
			t.Errorf("%s for what is no JSON: %s", err.Code, body)
		}
	})
}

func trimBOM(b []byte) []byte {
	if len(b) >= 3 && string(b[:3]) == "\ufeff" {
		return b[3:]
	}
	return b
}

func checkRequest(t *testing.T, r *ChatRequest) {
	t.Helper()
	ok := r.Model != "" && len(r.Model) <= MaxModelBytes && len(r.Messages) > 0 && len(r.Messages) <= MaxMessages &&
		r.Temperature >= 0 && r.Temperature <= 2 && r.TopP >= 0 && r.TopP <= 1 &&
		r.N >= 1 && r.N <= MaxChoices && r.MaxTokens >= 0 && (r.MaxTokens > 0) == (r.MaxTokensParam != "") &&
		len(r.Stop) <= MaxStops && len(r.Tools) <= MaxTools && len(r.LogitBias) <= MaxLogitBias &&
		r.ToolChoice.Mode != "" && r.ResponseFormat.Kind != "" && (r.Stream || !r.IncludeUsage)
	for _, m := range r.Messages {
		var joined strings.Builder
		for _, p := range m.Parts {
			joined.WriteString(p)
		}
		ok = ok && utf8.ValidString(m.Content) && (m.Parts == nil || joined.String() == m.Content) &&
			(m.Role == RoleTool) == (m.ToolCallID != "") && (m.Role == RoleAssistant || m.ToolCalls == nil)
	}
	for _, tool := range r.Tools {
		ok = ok && isName(tool.Name) && (tool.Parameters == nil || json.Valid(tool.Parameters))
	}
	if !ok {
		t.Errorf("request %+v", r)
	}
	Supports(r, Capabilities{})
}
