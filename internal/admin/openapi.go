package admin

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// route is one path of the API. in and out are values of the types of the bodies; in is nil
// where there is none.
type route struct {
	pattern string
	handle  func(*http.Request) (any, error)
	about   string
	query   string // names of parameters, with spaces between
	in, out any
}

type object = map[string]any

// openapi describes the API in the form of OpenAPI 3.1. It is made from the table of routes
// and the types of their bodies, so it says what is there.
func (s *service) openapi(*http.Request) (any, error) {
	schemas, paths := object{}, object{}
	failure := object{"description": "The request was refused.", "content": content(schemaOf(reflect.TypeFor[envelope](), schemas))}
	for _, r := range s.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		op := object{
			"summary": r.about,
			"responses": object{
				"200":     object{"description": "Done.", "content": content(schemaOf(reflect.TypeOf(r.out), schemas))},
				"default": failure,
			},
		}
		if r.in != nil {
			op["requestBody"] = object{"required": true, "content": content(schemaOf(reflect.TypeOf(r.in), schemas))}
		}
		var parameters []object
		for _, name := range inPath.FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, parameter("path", name[1]))
		}
		for name := range strings.FieldsSeq(r.query) {
			parameters = append(parameters, parameter("query", name))
		}
		if parameters != nil {
			op["parameters"] = parameters
		}
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = op
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Parley, the operator's API", "version": "1",
			"description": "On the socket in the data directory without a token, and on the public address with one. Amounts are decimal strings in IU.",
		},
		"paths":    paths,
		"security": []object{{"token": []string{}}},
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "op-parley-…, of parley operator token create."}},
		},
	}, nil
}

// inPath finds the parameters of a path.
var inPath = regexp.MustCompile(`\{(\w+)\}`)

func parameter(place, name string) object {
	return object{"name": name, "in": place, "required": place == "path", "schema": object{"type": "string"}}
}

func content(schema object) object { return object{"application/json": object{"schema": schema}} }

// schemaOf is the schema of what encoding/json makes of t. Structs are put under their names
// into all.
func schemaOf(t reflect.Type, all object) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[object]():
		return object{} // anything
	}
	if value, ok := reflect.TypeAssert[interface{ settles() reflect.Type }](reflect.Zero(t)); ok {
		return orNull(schemaOf(value.settles(), all))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return orNull(schemaOf(t.Elem(), all))
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), all)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem(), all)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Struct:
		return structOf(t, all)
	}
	panic("admin: no schema of " + t.String()) // our own shapes; a test describes each
}

func orNull(schema object) object { return object{"anyOf": []object{schema, {"type": "null"}}} }

func structOf(t reflect.Type, all object) object {
	name := t.Name()
	if name == "envelope" {
		name = "Refusal of a request"
	}
	name = strings.ReplaceAll(name, " ", "")
	properties, required := object{}, []string{}
	if _, ok := all[name]; !ok && name != "" {
		all[name] = object{}                             // it may be in itself
		for _, field := range reflect.VisibleFields(t) { // those of what is embedded among them
			key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if key == "-" || field.Anonymous {
				continue
			}
			properties[key] = schemaOf(field.Type, all)
			if options != "omitzero" {
				required = append(required, key)
			}
		}
		all[name] = object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	if name == "" {
		return object{"type": "object"}
	}
	return object{"$ref": "#/components/schemas/" + name}
}
