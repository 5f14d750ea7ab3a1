package grammar_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/grammar/grammartest"
)

func addSchemas(f *testing.F, add func(schema []byte)) {
	f.Helper()
	for _, tt := range schemaTests {
		add([]byte(tt.schema))
	}
	for i := range uint64(50) {
		a := grammartest.New(i, 9)
		add(a.Document())
	}
}

// FuzzSchema: any bytes give a grammar or an *Error, within the bound of work.
func FuzzSchema(f *testing.F) {
	addSchemas(f, func(schema []byte) { f.Add(schema) })
	f.Fuzz(func(t *testing.T, schema []byte) {
		work, err := grammar.Work(small(), schema)
		bounded(t, work)
		var e *grammar.Error
		if err != nil && (!errors.As(err, &e) || e.Reason == "") {
			t.Fatalf("error %#v", err)
		}
	})
}

// FuzzAutomaton: whatever is chosen of what is allowed, the text ends within the
// budget, parses, and the library finds it valid.
func FuzzAutomaton(f *testing.F) {
	addSchemas(f, func(schema []byte) { f.Add(schema, []byte("\x00\x07abcdefgh"), uint8(20)) })
	f.Fuzz(func(t *testing.T, schema, choices []byte, more uint8) {
		g, err := grammar.Schema(small(), schema)
		if err != nil || g.Least() > 2000 {
			return
		}
		at := 0
		w := walker{v: small(), exact: len(choices)%16 == 1, choose: func(n int) int {
			if at+2 > len(choices) {
				return 0
			}
			c := int(choices[at])<<8 | int(choices[at+1])
			at += 2
			return c % n
		}}
		text := w.walk(t, g, g.Least()+int(more))
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s\nhas the text %q, which does not parse", schema, text)
		}
		lib, ok := library(schema)
		if !ok || len(g.Unknown()) > 0 {
			return
		}
		if err := valid(lib, text); err != nil {
			t.Fatalf("%s\nhas the text %q\nwhich is not valid: %v", schema, text, err)
		}
	})
}
