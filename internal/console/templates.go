package console

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
)

//go:embed templates/*.html
var templates embed.FS

// shared are the templates that every page has.
var shared = []string{"templates/layout.html", "templates/parts.html"}

// loadPages reads every page's template, by its name without ".html".
func (s *Server) loadPages() (map[string]*template.Template, error) {
	base, err := template.New("base").Funcs(s.functions()).ParseFS(templates, shared...)
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, file := range files {
		if file == shared[0] || file == shared[1] {
			continue
		}
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(templates, file)
		}
		if err != nil {
			return nil, fmt.Errorf("the page %s: %w", file, err)
		}
		pages[strings.TrimSuffix(path.Base(file), ".html")] = t
	}
	return pages, nil
}

// functions are what templates may call.
func (s *Server) functions() template.FuncMap {
	return template.FuncMap{
		"asset": s.assets.path,
		"icon":  s.icon,
		// Money; see format.go.
		"balance": balance, "bound": bound, "spent": spent, "row": row, "exact": exact,
		// Numbers and times.
		"count": count, "plural": plural, "ago": ago, "moment": moment, "day": day, "clock": clock, "tookSeconds": tookSeconds, "short": short, "most": most,
		"second": second, "inSeconds": inSeconds, "instant": instant, "share": share, "large": large, "integer": integer,
		// Lists; see lists.go.
		"select": newSelector,
		// Names.
		"middle": middle, "who": who, "brief": brief, "names": join, "agent": agentName, "passkeyID": passkeyID,
		// Pictures; see chart.go and parts.go.
		"meter": meter, "spark": spark, "status": s.status, "pill": s.pill,
	}
}

// icon is a picture of the sprite beside words; it has no name of its own.
func (s *Server) icon(name string) (template.HTML, error) {
	href, err := s.assets.path("icons.svg")
	if err != nil {
		return "", err
	}
	return template.HTML(`<svg class="i" aria-hidden="true"><use href="` + template.HTMLEscapeString(href+"#"+name) + `"/></svg>`), nil
}
