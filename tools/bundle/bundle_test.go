package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestBundle_Committed: the scripts that the binary carries are those of their sources.
func TestBundle_Committed(t *testing.T) {
	t.Parallel()
	room := filepath.Join("..", "..", "internal", "console")
	made, err := bundle(filepath.Join(room, "islands"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(room, "assets", "*.js"))
	if err != nil || len(kept) != len(made) {
		t.Errorf("%d scripts are kept, %d are made: run make assets (%v)", len(kept), len(made), err)
	}
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(room, "assets", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source makes: run make assets (%v)", name, err)
		}
	}
}

func TestBundle_Broken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := bundle(dir); err == nil {
		t.Error("an empty directory gave no error")
	}
	if err := os.WriteFile(filepath.Join(dir, "x.ts"), []byte("const a: = 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle(dir); err == nil {
		t.Error("a broken script gave no error")
	}
}
