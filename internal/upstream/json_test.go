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
		format wire.FormatKind
		text   string
		ok     bool
	}{
		{wire.FormatText, "hello", true},
		{wire.FormatJSONObject, " {\"a\":1}\n", true},
		{wire.FormatJSONObject, `{"a":`, false},
		{wire.FormatJSONObject, `[1]`, false},
		{wire.FormatJSONObject, `{} x`, false},
		{wire.FormatJSONObject, "```json\n{}\n```", false},
		{wire.FormatJSONObject, "", false},
		{wire.FormatJSONSchema, `[1]`, true},
		{wire.FormatJSONSchema, `"x`, false},
	}
	for _, tt := range tests {
		if err := upstream.CheckJSON(tt.format, tt.text); (err == nil) != tt.ok || !tt.ok && !errors.Is(err, upstream.ErrNotJSON) {
			t.Errorf("CheckJSON(%s, %q) = %v, want ok %v", tt.format, tt.text, err, tt.ok)
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
