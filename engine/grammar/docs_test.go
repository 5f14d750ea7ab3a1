package grammar_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
)

// docs/structured-output.md says what the code does: keywords and limits.
func TestDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/structured-output.md")
	if err != nil {
		t.Fatal(err)
	}
	section := func(head string) string {
		_, after, ok := strings.Cut(string(data), "\n## "+head+"\n")
		if !ok {
			t.Fatalf("no section %q", head)
		}
		text, _, _ := strings.Cut(after, "\n## ")
		return text
	}
	samples := map[string]string{
		"type": `"string"`, "enum": `[1]`, "const": `1`, "pattern": `"a"`, "format": `"date"`, "required": `["a"]`, "$ref": `"#/x-a"`,
		"properties": `{}`, "patternProperties": `{}`, "$defs": `{}`, "definitions": `{}`, "prefixItems": `[true]`,
		"allOf": `[true]`, "anyOf": `[true]`, "oneOf": `[true]`, "items": `true`, "additionalItems": `true`, "additionalProperties": `true`, "propertyNames": `true`,
	}
	keywords := func(text string) (list []string) {
		for _, m := range regexp.MustCompile("`([$a-zA-Z]+)`").FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		return list
	}
	unknown := func(name string) bool {
		sample, ok := samples[name]
		if !ok {
			sample = "1"
		}
		g, err := grammar.Schema(small(), []byte(`{"x-a":{"type":"null"},"`+name+`":`+sample+`}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return len(g.Unknown()) > 0
	}
	table, _, _ := strings.Cut(section("Keywords that are kept"), "\n- ")
	kept := keywords(table)
	if len(kept) < 30 {
		t.Errorf("only %d keywords are kept: %v", len(kept), kept)
	}
	for _, name := range kept {
		if unknown(name) {
			t.Errorf("%s is not kept", name)
		}
	}
	listed, _, _ := strings.Cut(section("Keywords that are not"), "They are")
	not := keywords(listed)
	if len(not) < 10 {
		t.Errorf("only %d keywords are not kept: %v", len(not), not)
	}
	for _, name := range not {
		if !unknown(name) {
			t.Errorf("%s is not reported", name)
		}
	}
	for row, limit := range map[string]int{
		"text of a schema":                 grammar.MaxSchemaBytes,
		"nesting of a schema":              grammar.MaxSchemaDepth,
		"places for values, after merging": grammar.MaxNodes,
		"properties that one object names": grammar.MaxProps,
		"branches of one place":            grammar.MaxAlternatives,
		"work of compiling":                grammar.MaxWork,
		"tokens of the shortest value":     grammar.MaxLeast,
	} {
		if !regexp.MustCompile(`\| ` + row + `[^|]*\| ` + fmt.Sprint(limit) + `\b`).MatchString(section("Limits")) {
			t.Errorf("the limit of %s is not %d", row, limit)
		}
	}
}
