package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
	beside := "beside the binary"
	places := []string{"weights", "", filepath.Join(dataDir, "weights")}
	if exe, err := os.Executable(); err == nil {
		places[1] = filepath.Dir(exe)
		beside = places[1]
	}
	for _, dir := range places {
		path := filepath.Join(dir, weightsName)
		if fi, err := os.Stat(path); dir != "" && err == nil && fi.Mode().IsRegular() {
			return path, fi.Size(), nil
		}
	}
	return "", 0, refuse("no_weights",
		"The model's weights, "+weightsName+", are in none of",
		"  ./weights",
		"  "+beside,
		"  "+places[2],
		"Fetch them, or name a file of your own as weights in the configuration:",
		"  make weights")
}
