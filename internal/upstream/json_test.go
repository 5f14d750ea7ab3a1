package upstream_test

import (
	"errors"
	"testing"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		format  wire.FormatKind
		text    string
		refused bool
		ok      bool
	}{
		{wire.FormatText, "hello", false, true},
		{wire.FormatJSONObject, " {\"a\":1}\n", false, true},
		{wire.FormatJSONObject, `{"a":`, false, false},
		{wire.FormatJSONObject, `[1]`, false, false},
		{wire.FormatJSONObject, `{} x`, false, false},
		{wire.FormatJSONObject, "```json\n{}\n```", false, false},
		{wire.FormatJSONObject, "", false, false},
		{wire.FormatJSONSchema, `[1]`, false, true},
		{wire.FormatJSONSchema, `"x`, false, false},
		{wire.FormatJSONSchema, "", false, false},
		{wire.FormatJSONSchema, "", true, true},
		{wire.FormatJSONSchema, `{"x":`, true, false},
		{wire.FormatJSONObject, "", true, false},
	}
	for _, tt := range tests {
		if err := upstream.CheckJSON(tt.format, tt.text, tt.refused); (err == nil) != tt.ok || !tt.ok && !errors.Is(err, upstream.ErrNotJSON) {
			t.Errorf("CheckJSON(%s, %q, %v) = %v, want ok %v", tt.format, tt.text, tt.refused, err, tt.ok)
		}
	}
}

func TestRejected(t *testing.T) {
	t.Parallel()
	answer := wire.ContextLengthExceeded(8192, 9000, true)
	var err error = &upstream.Rejected{Answer: answer, Err: errors.New("theirs")}
	if got, ok := errors.AsType[*wire.Error](err); !ok || got != answer {
		t.Errorf("errors.AsType of %v = %v, want the answer", err, got)
	}
}
