package app

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/console"
)

// system is the server as it stands, for the console. Nothing in it takes long.
func (a *App) system() console.System {
	s := console.System{
		Version: Version(a.options.Version), Started: a.started.UTC(), Schema: a.rooms.db.SchemaVersion(), Data: a.config.Data, Files: files(a.config.Data),
	}
	if err := a.ready(); err != nil {
		s.Unready = err.Error()
	}
	for id, e := range a.upstreams.engines {
		now := e.Stats()
		s.Engines = append(s.Engines, console.Engine{
			Upstream: id, Running: now.Running, Places: now.Places, Waiting: now.Waiting,
			PagesUsed: now.PagesUsed, PagesCached: now.PagesCached, PagesTotal: now.PagesTotal, TokensPerSecond: now.TokensPerSecond,
		})
	}
	slices.SortFunc(s.Engines, func(x, y console.Engine) int { return cmp.Compare(x.Upstream, y.Upstream) })
	x := &examination{dir: a.config.Data, now: time.Now(), free: a.options.free}
	x.permissions()
	x.disk()
	x.weights(a.config, false)
	for _, f := range x.findings {
		s.Checks = append(s.Checks, console.Check{Name: f.Check, Standing: string(f.Standing), Text: f.Text, Do: f.Do})
	}
	return s
}

// files are those of dir and below it, the largest first.
func files(dir string) []console.File {
	var all []console.File
	// What cannot be read is left out: the check of the directory tells of it.
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // see above
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it was deleted meanwhile
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			all = append(all, console.File{Name: name, Bytes: info.Size()})
		}
		return err
	})
	slices.SortFunc(all, func(x, y console.File) int { return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Name, y.Name)) })
	const most = 20
	return all[:min(len(all), most)]
}
