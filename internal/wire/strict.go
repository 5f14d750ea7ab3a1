package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxStrictBytes bounds the schemas that are read as a tree, which takes some
// twenty times their size. The convention's own limit is about half of it.
const maxStrictBytes = 256 << 10

// strictFault returns what keeps schema from being a strict one, or "". A
// strict schema closes every object and requires all its properties, so that
// there is exactly one shape to generate. schema must be a JSON object no
// deeper than MaxDepth.
func strictFault(schema []byte) string {
	if len(schema) > maxStrictBytes {
		return fmt.Sprintf("a strict schema may have at most %d bytes, but this one has %d.", maxStrictBytes, len(schema))
	}
	var root map[string]any
	if err := json.Unmarshal(schema, &root); err != nil {
		return "schema must be a JSON Schema object of numbers within range."
	}
	if root["$ref"] == nil && !isObjectType(root["type"]) {
		got := "None"
		if s, ok := root["type"].(string); ok {
			got = s
		}
		return `schema must be a JSON Schema of 'type: "object"', got 'type: "` + clip(got) + `"'.`
	}
	return strictNode(root, nil)
}

// isObjectType reports whether the keyword type, one name or several, allows
// an object.
func isObjectType(v any) bool {
	list, ok := v.([]any)
	return v == "object" || ok && slices.Contains(list, any("object"))
}

// strictNode checks one schema; anything but an object is let through, such as
// the schema true. The first fault is the same on every run: names are sorted.
func strictNode(v any, at []string) string {
	node, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	if isObjectType(node["type"]) || node["properties"] != nil {
		if fault := strictObject(node, at); fault != "" {
			return fault
		}
	}
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		schemas, _ := node[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(schemas)) {
			if fault := strictNode(schemas[name], slices.Concat(at, []string{keyword, name})); fault != "" {
				return fault
			}
		}
	}
	if fault := strictNode(node["items"], slices.Concat(at, []string{"items"})); fault != "" {
		return fault
	}
	for _, keyword := range []string{"anyOf", "allOf", "oneOf", "prefixItems"} {
		schemas, _ := node[keyword].([]any)
		for i, schema := range schemas {
			if fault := strictNode(schema, slices.Concat(at, []string{keyword, itoa(i)})); fault != "" {
				return fault
			}
		}
	}
	return ""
}

func strictObject(node map[string]any, at []string) string {
	if node["additionalProperties"] != false {
		return context(at) + "'additionalProperties' is required to be supplied and to be false."
	}
	properties, ok := node["properties"].(map[string]any)
	if node["properties"] != nil && !ok {
		return context(at) + "'properties' must be an object."
	}
	list, ok := node["required"].([]any)
	if node["required"] != nil && !ok {
		return context(at) + "'required' must be an array of strings."
	}
	required := make(map[any]bool, len(list))
	for _, name := range list {
		if _, ok := name.(string); ok {
			required[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !required[name] {
			return context(at) + "'required' is required to be supplied and to be an array including every key in properties. Missing '" + clip(name) + "'."
		}
	}
	return ""
}

// context writes a path in the convention's way: In context=('a', 'b'), and
// leaves out the middle of a long one.
func context(at []string) string {
	if len(at) > 6 {
		at = slices.Concat(at[:3], []string{"..."}, at[len(at)-2:])
	}
	quoted := make([]string, len(at))
	for i, s := range at {
		quoted[i] = "'" + clip(s) + "'"
	}
	return "In context=(" + strings.Join(quoted, ", ") + "), "
}
