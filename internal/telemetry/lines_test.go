package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/telemetry"
)

// FuzzLines compares with log/slog, byte for byte.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "plain", "two words", `quo"te\`, "a=b", "line\nbreak\r\t\x00\x1f\x7f", "é", "\u2028\u2029\ufeff", "\xff\xc3", "<&>", "🦜", "\u00a0"} {
		f.Add(s, 3, 0.25, int64(1_763_000_000_123_456_789))
	}
	f.Add("x", -1, 1e-9, int64(0))
	f.Add("x", 1<<40, 1e21, int64(1))
	f.Fuzz(func(t *testing.T, s string, n int, x float64, nanos int64) {
		if x != x || x-x != 0 {
			t.Skip("log/slog has other forms for what is not finite")
		}
		at := time.Unix(0, nanos)
		for _, json := range []bool{true, false} {
			var got, want bytes.Buffer
			var h slog.Handler = slog.NewTextHandler(&want, nil)
			if json {
				h = slog.NewJSONHandler(&want, nil)
			}
			r := slog.NewRecord(at, slog.LevelError, "request", 0)
			r.AddAttrs(slog.String("s", s), slog.Int("n", n), slog.Float64("x", x), slog.Bool("b", n > 0))
			if err := h.Handle(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			lines := telemetry.NewLines(&got, json)
			for range 2 { // the second has the buffer of the first
				got.Reset()
				line := lines.Begin(at, slog.LevelError, "request")
				line.String("s", s)
				line.Int("n", n)
				line.Float("x", x)
				line.Bool("b", n > 0)
				line.End()
			}
			if got.String() != want.String() {
				t.Errorf("%q, log/slog has %q", got.String(), want.String())
			}
		}
	})
}

func BenchmarkLines(b *testing.B) {
	at := time.Now()
	b.Run("lines", func(b *testing.B) {
		lines := telemetry.NewLines(&null{}, true)
		b.ReportAllocs()
		for b.Loop() {
			line := lines.Begin(at, slog.LevelInfo, "request")
			for range 8 {
				line.String("request_id", "req_01a2000033587934b9a262f4d2a971cb")
				line.Int("status", 200)
			}
			line.End()
		}
	})
	b.Run("slog", func(b *testing.B) {
		h := slog.NewJSONHandler(&null{}, nil)
		b.ReportAllocs()
		for b.Loop() {
			r := slog.NewRecord(at, slog.LevelInfo, "request", 0)
			for range 8 {
				r.AddAttrs(slog.String("request_id", "req_01a2000033587934b9a262f4d2a971cb"), slog.Int("status", 200))
			}
			_ = h.Handle(b.Context(), r)
		}
	})
}

type null struct{}

func (*null) Write(p []byte) (int, error) { return len(p), nil }
