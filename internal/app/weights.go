package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/config"
)

// weightsName is the file that a local upstream without a path of its own runs.
const weightsName = "SmolLM2-135M-Instruct.Q4_1.gguf"

// findWeights is the file that u runs: the one it names, or the default one from the
// first place that has it.
func findWeights(u config.Upstream, dataDir string) (path string, size int64, err error) {
	if u.Weights != "" {
		fi, err := os.Stat(u.Weights)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", 0, refuse("no_weights", "The weights of upstream "+u.ID+" are not there: "+u.Weights+".", "Put the file in its place or correct weights in the configuration.")
		case err != nil:
			return "", 0, refuse("no_weights", "The weights of upstream "+u.ID+" cannot be read: "+err.Error()+".")
		}
		return u.Weights, fi.Size(), nil
	}
	places := []string{"weights", filepath.Join(dataDir, "weights")}
	if exe, err := os.Executable(); err == nil {
		places = slices.Insert(places, 1, filepath.Dir(exe))
	}
	for i, dir := range places {
		// An operator must be able to look at the very places that were looked at.
		if whole, err := filepath.Abs(dir); err == nil {
			places[i] = whole
		}
		path := filepath.Join(dir, weightsName)
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
			return path, fi.Size(), nil
		}
	}
	return "", 0, refuse("no_weights",
		"The model's weights, "+weightsName+", are in none of",
		"  "+strings.Join(places, "\n  "),
		"Fetch them, or name a file of your own as weights in the configuration:",
		"  make weights")
}
