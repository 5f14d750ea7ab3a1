package admin_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// described is an API whose every answer is checked against what it says of itself.
type described struct {
	t       testing.TB
	api     http.Handler
	find    *http.ServeMux // which path of the document a request is of
	schemas *jsonschema.Compiler
}

const document = "openapi.json"

// describe reads the document of the API.
func describe(t testing.TB, api http.Handler) *described {
	t.Helper()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/admin/v1/openapi.json", nil))
	doc, err := jsonschema.UnmarshalJSON(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	d := &described{t: t, api: api, find: http.NewServeMux(), schemas: jsonschema.NewCompiler()}
	d.schemas.DefaultDraft(jsonschema.Draft2020)
	if err := d.schemas.AddResource(document, doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.(map[string]any)["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			d.find.HandleFunc(strings.ToUpper(method)+" "+path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return d
}

func (d *described) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, pattern := d.find.Handler(r)
	rec := httptest.NewRecorder()
	d.api.ServeHTTP(rec, r)
	if method, path, ok := strings.Cut(pattern, " "); ok {
		at := "#/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path) + "/" + strings.ToLower(method)
		answer := "default"
		if rec.Code == http.StatusOK {
			answer = "200"
			if len(body) > 0 {
				d.check(pattern, at+"/requestBody/content/application~1json/schema", body)
			}
		}
		d.check(pattern, at+"/responses/"+answer+"/content/application~1json/schema", rec.Body.Bytes())
	} else if rec.Code == http.StatusOK {
		d.t.Errorf("%s %s is answered and not described", r.Method, r.URL.Path)
	}
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes()) // into memory
}

func (d *described) check(pattern, at string, text []byte) {
	schema, err := d.schemas.Compile(document + at)
	if err != nil {
		d.t.Errorf("%s: %v", pattern, err)
		return
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		d.t.Errorf("%s: %.200s: %v", pattern, text, err)
		return
	}
	if err := schema.Validate(v); err != nil {
		d.t.Errorf("%s: %.300s: %v", pattern, text, err)
	}
}

// The document names every path with what it takes and gives, and a wrong shape is found.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	h := open(t)
	w := httptest.NewRecorder()
	h.api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/admin/v1/openapi.json", nil))
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Summary    string
			Parameters []struct{ Name, In string }
		}
		Components struct {
			Schemas map[string]struct{ Required []string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.OpenAPI != "3.1.0" || len(doc.Paths) < 25 {
		t.Fatalf("%d %v %.300s", w.Code, err, w.Body)
	}
	for path, item := range doc.Paths {
		for method, op := range item {
			if op.Summary == "" || strings.Count(path, "{") > len(op.Parameters) {
				t.Errorf("%s %s is described by %+v", method, path, op)
			}
		}
	}
	if got := doc.Components.Schemas["NewCredit"].Required; strings.Join(got, " ") != "amount note" {
		t.Errorf("credit needs %v", got)
	}
	reports := &silent{TB: t}
	d := describe(t, h.api)
	d.t = reports
	d.check("a test", "#/components/schemas/Created", []byte(`{"id":"a","name":"b"}`))
	d.check("a test", "#/components/schemas/Created", []byte(`{"id":"a"}`))
	d.check("a test", "#/components/schemas/Created", []byte(`{"id":"a","name":1}`))
	if reports.n != 2 {
		t.Errorf("%d of 2 wrong shapes are found", reports.n)
	}
}

// silent counts errors.
type silent struct {
	testing.TB
	n int
}

func (s *silent) Errorf(string, ...any) { s.n++ }
