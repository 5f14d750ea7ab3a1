package wire

// tools reads the functions a model may call; [] is the same as absent.
func (d *decoder) tools() {
	if d.null() {
		return
	}
	if d.kind() != '[' {
		d.wrongType("an array of objects")
		return
	}
	n := d.array(MaxTools, func(int) {
		if d.kind() != '{' {
			d.wrongType("an object")
			return
		}
		d.tool()
	})
	if n > MaxTools {
		d.fail(arrayTooLong("tools", MaxTools, n))
	}
}

func (d *decoder) tool() {
	kind, f := d.typed("function", "parameters")
	if d.failing() {
		return
	}
	switch {
	case kind == "":
		d.fail(missing(d.childPath("type")))
	case kind != "function":
		d.fail(badEnum(d.childPath("type"), kind, "function"))
	case !f.given:
		d.fail(missing(d.childPath("function")))
	default:
		d.named("function", func() { d.checkName(f) })
		if d.failing() {
			return
		}
		if f.strict && f.schema != nil {
			if fault := strictFault(f.schema); fault != "" {
				d.fail(invalidFunctionSchema(d.childPath("function.parameters"), f.name, fault))
				return
			}
		}
		d.req.Tools = append(d.req.Tools, Tool{
			Name: f.name, Description: f.description, Parameters: f.schema, Strict: f.strict,
		})
	}
}

// typed reads an object with a type and, under key, a function; kind is ""
// when there was none.
func (d *decoder) typed(key, schemaName string) (kind string, f function) {
	d.object(func(name []byte) {
		switch string(name) {
		case "type":
			d.named("type", func() { kind, _ = d.text() })
		case key:
			d.named(key, func() {
				f = function{}
				if !d.null() {
					f = d.function(schemaName)
					f.given = true
				}
			})
		default:
			d.skip()
		}
	})
	return kind, f
}

// function is what a tool and a json_schema have in common.
type function struct {
	given             bool
	name, description string
	hasName           bool
	schema            []byte
	strict            bool
}

// function reads an object with a name, a description, strict and a schema
// under schemaName,
// if that is not empty.
func (d *decoder) function(schemaName string) (f function) {
	if d.kind() != '{' {
		d.wrongType("an object")
		return f
	}
	d.object(func(name []byte) {
		switch string(name) {
		case "name":
			d.named("name", func() { f.name, f.hasName = d.text() })
		case "description":
			d.named("description", func() { f.description, _ = d.text() })
		case "strict":
			d.named("strict", func() { f.strict, _ = d.boolean() })
		default:
			if schemaName == "" || string(name) != schemaName {
				d.skip()
				return
			}
			d.named(schemaName, func() { f.schema = d.schema() })
		}
	})
	return f
}

// schema reads an object verbatim; nil for null.
func (d *decoder) schema() []byte {
	switch d.kind() {
	case 'n':
		d.scalar()
	case '{':
		return d.raw()
	default:
		d.wrongType("an object")
	}
	return nil
}

// checkName checks the name of a function or schema at the current path.
func (d *decoder) checkName(f function) {
	path := d.childPath("name")
	switch {
	case !f.hasName:
		d.fail(missing(path))
	case f.name == "":
		d.fail(emptyString(path))
	case len(f.name) > MaxNameBytes:
		d.fail(stringTooLong(path, MaxNameBytes, len(f.name)))
	case !isName(f.name):
		d.fail(badPattern(path))
	}
}

// isName reports whether s matches ^[a-zA-Z0-9_-]+$.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

func (d *decoder) toolChoice() {
	switch d.kind() {
	case 'n':
		d.scalar()
	case '"':
		s := string(d.unquote(d.scalar()))
		switch ToolMode(s) {
		case ToolNone, ToolAuto, ToolRequired:
			d.req.ToolChoice.Mode = ToolMode(s)
		default:
			d.fail(badEnum("tool_choice", s, "none", "auto", "required"))
		}
	case '{':
		d.namedToolChoice()
	default:
		d.wrongType("one of a string or object")
	}
}

func (d *decoder) namedToolChoice() {
	kind, f := d.typed("function", "")
	if d.failing() {
		return
	}
	switch {
	case kind == "":
		d.fail(missing("tool_choice.type"))
	case kind == "allowed_tools":
		d.fail(UnsupportedParameter("tool_choice.allowed_tools"))
	case kind != "function":
		d.fail(badEnum("tool_choice.type", kind, "function"))
	case !f.given:
		d.fail(missing("tool_choice.function"))
	case !f.hasName:
		d.fail(missing("tool_choice.function.name"))
	default:
		d.req.ToolChoice = ToolChoice{Mode: ToolNamed, Name: f.name}
	}
}

func (d *decoder) responseFormat() {
	if d.null() {
		return
	}
	if d.kind() != '{' {
		d.wrongType("an object")
		return
	}
	kind, f := d.typed("json_schema", "schema")
	if d.failing() {
		return
	}
	format := ResponseFormat{Kind: FormatKind(kind)}
	switch format.Kind {
	case FormatText, FormatJSONObject:
		d.req.ResponseFormat = format
		return
	case FormatJSONSchema:
	default:
		d.fail(badEnum("response_format.type", kind, "json_object", "json_schema", "text"))
		return
	}
	if !f.given {
		d.fail(missing("response_format.json_schema"))
		return
	}
	d.named("json_schema", func() { d.checkName(f) })
	if d.failing() {
		return
	}
	if f.strict && f.schema != nil {
		if fault := strictFault(f.schema); fault != "" {
			d.fail(invalidFormatSchema(f.name, fault))
			return
		}
	}
	format.Name, format.Description, format.Schema, format.Strict = f.name, f.description, f.schema, f.strict
	d.req.ResponseFormat = format
}
