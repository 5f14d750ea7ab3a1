package local

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/parley-ai/parley/internal/wire"
)

// checks validate finished values by what the grammar of a schema leaves open.
type checks struct {
	value *jsonschema.Schema
	tools map[string]*jsonschema.Schema // by the tool's name
}

func (c *checks) empty() bool { return c.value == nil && len(c.tools) == 0 }

func (c *checks) addTool(t wire.Tool) error {
	if c.tools[t.Name] != nil {
		return nil
	}
	s, err := newCheck(t.Parameters)
	if err != nil {
		return err
	}
	if c.tools == nil {
		c.tools = map[string]*jsonschema.Schema{}
	}
	c.tools[t.Name] = s
	return nil
}

// passes says whether the answer is valid in all that was asked for.
func (c *checks) passes(text string, calls []call) bool {
	if c.value != nil && len(calls) == 0 && !valid(c.value, text) {
		return false
	}
	for i := range calls {
		if s := c.tools[calls[i].name]; s != nil && !valid(s, calls[i].arguments.String()) {
			return false
		}
	}
	return true
}

func valid(s *jsonschema.Schema, text string) bool {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	return err == nil && s.Validate(v) == nil
}

// errReference is a schema that refers to another document.
var errReference = errors.New("references to other documents are not followed")

// nowhere loads nothing: a schema must not make this server fetch anything.
type nowhere struct{}

func (nowhere) Load(string) (any, error) { return nil, errReference }

// newCheck compiles a schema of either draft, or of both mixed as far as one takes the
// words of the other.
func newCheck(text []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	dropRequired(doc)
	s, err := compileCheck(doc, jsonschema.Draft2020)
	if err == nil {
		return s, nil
	}
	if s, other := compileCheck(doc, jsonschema.Draft7); other == nil {
		return s, nil
	}
	return nil, short(err)
}

func compileCheck(doc any, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	c.DefaultDraft(draft)
	c.AssertFormat()
	c.UseRegexpEngine(pattern)
	// A name without a scheme would be a file's in the working directory, which errors tell.
	const name = "mem:///schema.json"
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

// dropRequired takes draft 3's boolean out of a schema, which schemas still have beside
// a property and no later draft takes.
func dropRequired(schema any) {
	switch v := schema.(type) {
	case []any:
		for _, item := range v {
			dropRequired(item)
		}
	case map[string]any:
		if _, ok := v["required"].(bool); ok {
			delete(v, "required")
		}
		for key, sub := range v {
			switch key {
			case "enum", "const", "default", "examples":
				continue
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
				if named, ok := sub.(map[string]any); ok { // whose names are no keywords
					sub = slices.Collect(maps.Values(named))
				}
			}
			dropRequired(sub)
		}
	}
}

// pattern compiles an expression for checks. Any text matches what Go's syntax does not
// have and ECMA-262 has, such as look-around, references back and \u0041: the grammar
// holds to it what can be held.
func pattern(text string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(text)
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		switch e.Code {
		case syntax.ErrInvalidPerlOp, syntax.ErrInvalidNamedCapture, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatSize:
			return anything(text), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return re, nil
}

// anything is an expression that every text matches.
type anything string

func (a anything) String() string        { return string(a) }
func (anything) MatchString(string) bool { return true }

// short keeps the library's words fit for an answer.
func short(err error) error {
	const most = 200
	s := err.Error()
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Errorf("the schema is not valid: %s", s)
}
