package app

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/english"
)

// openEngine loads the weights of one upstream and says what runs.
func openEngine(c *config.Config, u config.Upstream, s *screen) (*engine.Engine, error) {
	path, size, err := findWeights(u, c.Data)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	e, err := engine.Open(path, engine.Options{
		Threads: c.Engine.Threads, MaxSequences: c.Engine.MaxSequences, KVBytes: c.Engine.KVBytes,
		Context: window(c, u.ID), Progress: s.loading(stem(path), size),
	})
	if err != nil {
		return nil, refuse("weights",
			"The weights "+path+" cannot be used: "+strings.TrimPrefix(err.Error(), "engine: ")+".",
			"If the file is damaged, fetch it again; else correct the configuration of upstream "+u.ID+" or its models.")
	}
	i := e.Info()
	s.loaded("weights  %s, %s, %s", stem(path), english.Bytes(i.FileBytes), seconds(time.Since(begin)))
	s.note("engine   %s, batch %d, context %s, %s", english.Plural(i.Threads, "thread"), i.MaxSequences, english.Count(i.Context), i.Kernel)
	return e, nil
}

// window is the longest context that a model on the upstream promises.
func window(c *config.Config, upstream string) (n int) {
	for _, m := range c.Models {
		for _, t := range m.Targets {
			if t.Upstream == upstream {
				n = max(n, m.ContextWindow)
			}
		}
	}
	return n
}

// stem is the file's name for people: "SmolLM2-135M-Instruct Q4_1".
func stem(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".gguf")
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		name = fmt.Sprintf("%s %s", name[:i], name[i+1:])
	}
	return name
}

// load is what the embedded engines do at this moment, for the operator.
func (u *upstreams) load() (list []admin.Engine) {
	for id, e := range u.engines {
		s := e.Stats()
		list = append(list, admin.Engine{Upstream: id, Running: s.Running, Places: s.Places, Waiting: s.Waiting, TokensPerSecond: math.Round(s.TokensPerSecond*10) / 10})
	}
	return list
}
