// Command bundle makes the console's scripts: each TypeScript file of a directory becomes one
// JavaScript file of another, minified, with all that it imports. Neither the build nor the
// tests of the service need it or Node: what it makes is committed.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "bundle FROM TO: makes TO/NAME.js of each FROM/NAME.ts")
		os.Exit(2)
	}
	made, err := bundle(os.Args[1])
	for name, text := range made {
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[2], name), text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bundle returns the scripts of a directory by their names.
func bundle(from string) (map[string][]byte, error) {
	from, err := filepath.Abs(from)
	if err != nil {
		return nil, err
	}
	entries, err := filepath.Glob(filepath.Join(from, "*.ts"))
	if err != nil || len(entries) == 0 {
		return nil, fmt.Errorf("no TypeScript in %s: %w", from, err)
	}
	result := api.Build(api.BuildOptions{
		EntryPoints: entries, Outdir: from, AbsWorkingDir: from,
		Bundle: true, MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		Format: api.FormatIIFE, Target: api.ES2022, Charset: api.CharsetASCII, LegalComments: api.LegalCommentsNone,
	})
	if len(result.Errors) > 0 {
		texts := api.FormatMessages(result.Errors, api.FormatMessagesOptions{Kind: api.ErrorMessage})
		return nil, fmt.Errorf("%s", strings.Join(texts, "\n"))
	}
	made := map[string][]byte{}
	for _, f := range result.OutputFiles {
		made[filepath.Base(f.Path)] = f.Contents
	}
	return made, nil
}
