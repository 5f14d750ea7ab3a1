package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// The files of assets/ are served as they are; those that end in .js are made of islands/ by
// `make assets`.
//
//go:embed assets
var files embed.FS

// asset is a file with what is said about it.
type asset struct {
	kind        string
	plain, gzip []byte
}

// assets are served under names that change with their content, so that a browser asks once.
type assets struct {
	names map[string]string // "console.css" -> "/assets/console.1a2b3c4d.css"
	byURL map[string]asset
}

func loadAssets() (*assets, error) {
	a := &assets{names: map[string]string{}, byURL: map[string]asset{}}
	// The sprite's name stands in no other file, so the order does not matter.
	err := fs.WalkDir(files, "assets", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(p)
		if err != nil {
			return err
		}
		name, ext := path.Base(p), path.Ext(p)
		sum := sha256.Sum256(text)
		url := "/assets/" + strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:5]) + ext
		var small bytes.Buffer
		z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		kind := mime.TypeByExtension(ext)
		if kind == "" {
			return fmt.Errorf("the asset %s has no media type", p)
		}
		a.names[name], a.byURL[url] = url, asset{kind, text, small.Bytes()}
		return nil
	})
	return a, err
}

// path is the address of a file. A name that is no file is a mistake in a template, which
// rendering it once finds.
func (a *assets) path(name string) (string, error) {
	url, ok := a.names[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return url, nil
}

// ServeHTTP sends a file, for ever.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.byURL[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept-Encoding")
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // who does not read it is not told so
}
