package local

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/internal/wire"
)

// Forms are kept while they are few and small together; a large one takes the place of others.
func TestForms(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := enginetest.WriteModel(path, 1); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(path, engine.Options{Threads: 1, KVBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	p := New(e)
	made := func(i, words int) (size int) {
		t.Helper()
		schema := fmt.Sprintf(`{"type":"integer","title":"%d","description":%q}`, i, strings.Repeat("word ", words))
		f, err := p.form(&wire.ChatRequest{ResponseFormat: wire.ResponseFormat{Kind: wire.FormatJSONSchema, Name: "x", Schema: json.RawMessage(schema)}})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := p.form(&wire.ChatRequest{ResponseFormat: wire.ResponseFormat{Kind: wire.FormatJSONSchema, Name: "x", Schema: json.RawMessage(schema)}}); again != f || err != nil {
			t.Errorf("form %d was made anew, %v", i, err)
		}
		return f.size
	}
	for i := range 3 * maxForms {
		made(i, 1)
		if n := len(p.forms.made); n != i%maxForms+1 {
			t.Fatalf("%d forms are kept after %d", n, i+1)
		}
	}
	most := 0
	for i := range 20 {
		size := made(-i-1, 50_000)
		if size < 5<<20 {
			t.Fatalf("a schema of 250 kB takes %d bytes", size)
		}
		most = max(most, len(p.forms.made))
		if p.forms.size > maxFormBytes {
			t.Errorf("%d forms of %d bytes are kept", len(p.forms.made), p.forms.size)
		}
	}
	if most >= 20 || len(p.forms.made) >= 20 {
		t.Errorf("%d large forms were kept", most)
	}
	p.forms.keep([sha256.Size]byte{}, &form{size: 2 * maxFormBytes})
	if len(p.forms.made) != 1 {
		t.Errorf("%d forms are kept beside one that is too large", len(p.forms.made)-1)
	}
}
