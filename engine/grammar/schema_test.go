package grammar_test

import (
	"math/rand/v2"
	"testing"

	"github.com/parley-ai/parley/engine/grammar"
)

// Each schema with texts that the grammar has and texts that it has not.
var schemaTests = []struct {
	name, schema string
	yes, no      []string
}{
	{"object", `{"type":"object"}`, []string{`{}`, `{"a":1}`, `{"a":{"b":[1,2,{}]},"c":null}`, `{ "a": 1, "b": "x" }`, "{\n  \"a\": [\n    1\n  ]\n}", `{"é":"é"}`}, []string{`[]`, `1`, `{"a":1,"a":2}`, `{"a":1,"b":1,"a":2}`, `{"a":1,}`, `{"a"}`, `{"":1}`, `{  }`, `{"a" :1}`, `{"a":1 ,"b":2}`, ` {}`, `{} `, `{"a\n":1}`}},
	{"any", `{}`, []string{`1`, `"x"`, `null`, `true`, `false`, `[]`, `{}`, `-0.5e-7`, `[1,"a",{"b":[]}]`}, []string{`nul`, `01`, `1.`, `+1`, `.5`, `1e`, `--1`, `"a`, `[1,]`, `tru e`}},
	{"strings", `{"type":"string"}`, []string{`""`, `"a"`, `"\n\"\\\/\b\f\r\t"`, `"\u00e9"`, `"\ud83d\ude00"`, `"😀"`, `"\uD83D\uDE00"`, `"\ud7ff"`, `"\ue000"`}, []string{`"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\x"`, "\"\n\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe0\x80\x80\"", `"\u12g4"`}},
	{"lengths", `{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"abc"`, `"éé"`, `"😀😀😀"`, `"\ud83d\ude00a"`, `"\n\n"`}, []string{`""`, `"a"`, `"abcd"`, `"\n"`, `"\ud83d\ude00"`, `"ab\n\n"`}},
	{"pattern", `{"type":"string","pattern":"^a+b?$"}`, []string{`"a"`, `"aab"`}, []string{`"b"`, `"aabb"`, `"xa"`, `""`}},
	{"pattern anywhere", `{"type":"string","pattern":"b"}`, []string{`"b"`, `"abc"`, `"日b"`, `"\nb"`}, []string{`"a"`, `""`}},
	{"pattern with quotes", `{"pattern":"^[\"\\\\]$","type":"string"}`, []string{`"\""`, `"\\"`}, []string{`"a"`, `""`, `"\"\""`}},
	{"pattern, wide", `{"type":"string","pattern":"^[一-龥]{2}$"}`, []string{`"日本"`}, []string{`"日"`, `"ab"`, `"日本日"`}},
	{"pattern and lengths", `{"type":"string","pattern":"^(ab)*$","minLength":3,"maxLength":5}`, []string{`"abab"`}, []string{`"ab"`, `"ababab"`, `""`, `"aba"`}},
	{"two patterns", `{"type":"string","allOf":[{"pattern":"a"},{"pattern":"b"}]}`, []string{`"ab"`, `"xbxa"`}, []string{`"a"`, `"b"`}},
	{"integer", `{"type":"integer"}`, []string{`0`, `-1`, `123456789012345`}, []string{`-0`, `1.0`, `1e2`, `1234567890123456`, `00`, `""`}},
	{"integer range", `{"type":"integer","minimum":-12,"maximum":120}`, []string{`-12`, `-9`, `0`, `7`, `99`, `120`}, []string{`-13`, `-20`, `121`, `200`, `1000`, `-`}},
	{"integer far range", `{"type":"integer","minimum":1950,"maximum":2049}`, []string{`1950`, `1999`, `2049`}, []string{`1`, `1949`, `2050`, `3`, `19500`}},
	{"exclusive", `{"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":5}`, []string{`4`}, []string{`3`, `5`, `40`}},
	{"multiples", `{"type":"integer","multipleOf":25,"minimum":30}`, []string{`50`, `75`, `1025`}, []string{`25`, `51`, `0`, `-25`}},
	{"number", `{"type":"number"}`, []string{`0`, `-0.5`, `1e10`, `1.5E-3`, `-0`}, []string{`1e100`, `0x1`}},
	{"number range", `{"type":"number","minimum":0.5,"exclusiveMaximum":2}`, []string{`0.5`, `0.50`, `1`, `1.999999`, `0.7`}, []string{`0`, `0.4`, `2`, `2.0`, `0.49`, `-1`, `1e0`, `0.`}},
	{"cents", `{"type":"number","multipleOf":0.01,"minimum":0,"maximum":1}`, []string{`0`, `0.1`, `0.25`, `0.250`, `1`}, []string{`0.255`, `1.01`, `-0.01`}},
	{"negative", `{"type":"number","maximum":-1.5}`, []string{`-1.5`, `-2`, `-1000`}, []string{`-1`, `0`, `-0`, `1`, `-1.4`}},
	{"types", `{"type":["string","null"]}`, []string{`null`, `"null"`}, []string{`1`, `true`, `{}`}},
	{"enum", `{"enum":["a","ab",1,12,1.5,null,{"k":[1]}]}`, []string{`"a"`, `"ab"`, `1`, `12`, `1.5`, `null`, `{"k":[1]}`}, []string{`"b"`, `2`, `1.`, `{}`, `"abc"`}},
	{"enum in array", `{"type":"array","items":{"enum":[1,12,123]}}`, []string{`[1,12,123]`, `[12]`}, []string{`[2]`, `[1 ,1]`, `[13]`}},
	{"enum with type", `{"enum":["a",1,2.5,"b"],"type":["integer","string"],"minLength":1,"maximum":3}`, []string{`"a"`, `1`, `"b"`}, []string{`2.5`}},
	{"const", `{"const":{"a":1,"b":"\n"}}`, []string{`{"a":1,"b":"\n"}`}, []string{`{"a":1}`, `{"b":"\n","a":1}`}},
	{"enum of objects kept", `{"enum":[{"a":1},{"a":"x"}],"properties":{"a":{"type":"string"}}}`, []string{`{"a":"x"}`}, []string{`{"a":1}`}},
	{"boolean", `{"type":"boolean"}`, []string{`true`, `false`}, []string{`null`, `1`}},
	{"array", `{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3}`, []string{`[1]`, `[1,2,3]`, `[ 1, 2 ]`, "[\n  1,\n  2\n]"}, []string{`[]`, `[1,2,3,4]`, `["a"]`, `[1`}},
	{"tuple", `{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"boolean"}}`, []string{`[]`, `[1]`, `[1,"a"]`, `[1,"a",true,false]`}, []string{`["a"]`, `[1,2]`, `[1,"a",3]`}},
	{"tuple, draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"integer"},{"type":"string"}],"additionalItems":false,"minItems":2}`, []string{`[1,"a"]`}, []string{`[1]`, `[1,"a",1]`}},
	{"closed tuple", `{"type":"array","prefixItems":[{"type":"integer"}],"items":false}`, []string{`[]`, `[1]`}, []string{`[1,1]`}},
	{"properties", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"boolean"}},"required":["b"]}`, []string{`{"b":""}`, `{"a":1,"b":""}`, `{"b":"","c":true}`, `{"a":1,"b":"x","c":false}`}, []string{`{}`, `{"a":1}`, `{"b":"","a":1}`, `{"b":"","d":1}`, `{"c":true}`}},
	{"additional", `{"type":"object","properties":{"ab":{"type":"integer"}},"required":["ab"],"additionalProperties":{"type":"string"}}`, []string{`{"ab":1}`, `{"ab":1,"a":"x","abc":"y"}`}, []string{`{}`, `{"ab":1,"c":1}`, `{"ab":1,"ab":"x"}`, `{"a":"x","ab":1}`}},
	{"open with optional", `{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":true}`, []string{`{}`, `{"a":1}`, `{"b":[]}`, `{"a":1,"b":2}`}, []string{`{"a":"x"}`, `{"b":2,"a":1}`}},
	{"closed by default", `{"type":"object","properties":{}}`, []string{`{}`}, []string{`{"a":1}`}},
	{"required only", `{"type":"object","required":["x"]}`, []string{`{"x":1}`, `{"x":1,"y":2}`}, []string{`{}`, `{"y":2}`}},
	{"counts", `{"type":"object","minProperties":2,"maxProperties":3}`, []string{`{"a":1,"b":2}`, `{"a":1,"b":2,"c":3}`}, []string{`{}`, `{"a":1}`, `{"a":1,"b":2,"c":3,"d":4}`}},
	{"counts of optional", `{"type":"object","properties":{"a":true,"b":true,"c":true},"additionalProperties":false,"minProperties":2}`, []string{`{"a":1,"c":1}`, `{"b":1,"c":1}`, `{"a":1,"b":1,"c":1}`}, []string{`{"a":1}`, `{"c":1}`, `{}`}},
	{"counts that bind", `{"type":"object","properties":{"a":true,"b":true,"c":true},"required":["c"],"maxProperties":1}`, []string{`{"c":1}`}, []string{`{"a":1,"c":1}`, `{"a":1}`}},
	{"patterns of names", `{"type":"object","patternProperties":{"^s_":{"type":"string"},"_i$":{"type":"integer"}},"additionalProperties":false}`, []string{`{}`, `{"s_a":"x"}`, `{"a_i":1,"s_":""}`}, []string{`{"a":1}`, `{"s_a":1}`, `{"s_i":1}`, `{"s_i":"x"}`, `{"s_a":"x","s_a":"y"}`}},
	{"patterns and properties", `{"type":"object","properties":{"s_a":{"minLength":2}},"patternProperties":{"^s_":{"type":"string"}}}`, []string{`{"s_a":"xy"}`, `{"s_b":"x"}`}, []string{`{"s_a":"x"}`, `{"s_a":1}`, `{"other":1}`}},
	{"names", `{"type":"object","propertyNames":{"pattern":"^[a-c]{1,2}$"},"additionalProperties":{"type":"integer"}}`, []string{`{"a":1,"bc":2}`}, []string{`{"d":1}`, `{"abc":1}`}},
	{"names of an enum", `{"type":"object","propertyNames":{"enum":["x","y"]},"additionalProperties":{"type":"integer"}}`, []string{`{}`, `{"x":1}`, `{"x":1,"y":2}`}, []string{`{"z":1}`}},
	{"names of an enum and a pattern", `{"type":"object","propertyNames":{"enum":["a","b"]},"patternProperties":{"^a":{"type":"integer"}},"additionalProperties":false}`, []string{`{"a":1}`}, []string{`{"b":1}`, `{"aa":1}`}},
	{"names, short", `{"type":"object","propertyNames":{"maxLength":2}}`, []string{`{"ab":1}`}, []string{`{"abc":1}`}},
	{"anyOf", `{"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}}]}`, []string{`1`, `[1]`}, []string{`"x"`, `["x"]`}},
	{"anyOf alike", `{"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"type":"string"},"b":true},"required":["a","b"]}],"type":"object"}`, []string{`{"a":1}`, `{"a":"x","b":2}`}, []string{`{"a":"x"}`, `{"b":2}`, `{"a":1,"b":2}`}},
	{"anyOf with siblings", `{"type":"object","properties":{"k":{"type":"string"}},"required":["k"],"anyOf":[{"properties":{"x":{"type":"integer"}},"required":["x"]},{"properties":{"y":{"type":"integer"}},"required":["y"]}]}`, []string{`{"k":"","x":1}`, `{"k":"","y":1}`}, []string{`{"k":""}`, `{"x":1}`}},
	{"oneOf", `{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"v":{"type":"integer"}},"required":["kind","v"]},{"type":"object","properties":{"kind":{"const":"b"},"v":{"type":"string"}},"required":["kind","v"]}]}`, []string{`{"kind":"a","v":1}`, `{"kind":"b","v":"x"}`}, []string{`{"kind":"a","v":"x"}`, `{"kind":"c","v":1}`}},
	{"allOf", `{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"},"a":{"minimum":5}},"required":["b"]}]}`, []string{`{"a":5,"b":""}`}, []string{`{"a":4,"b":""}`, `{"a":5}`, `{"b":"","a":5}`}},
	{"ref", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}}}`, []string{`1`}, []string{`"x"`}},
	{"ref with siblings", `{"$ref":"#/$defs/n","minimum":3,"$defs":{"n":{"type":"integer","maximum":5}}}`, []string{`3`, `5`}, []string{`2`, `6`}},
	{"recursion", `{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"]}`, []string{`{"v":1,"next":null}`, `{"v":1,"next":{"v":2,"next":null}}`}, []string{`{"v":1}`, `{"v":1,"next":{}}`}},
	{"tree", `{"$ref":"#/definitions/t","definitions":{"t":{"type":"array","items":{"$ref":"#/definitions/t"}}}}`, []string{`[]`, `[[],[[]]]`}, []string{`[1]`, `[[]`}},
	{"pointer", `{"properties":{"a/b~c":{"type":"integer"},"d":{"$ref":"#/properties/a~1b~0c"}},"type":"object"}`, []string{`{"d":1}`, `{"a/b~c":2,"d":1}`}, []string{`{"d":"x"}`}},
	{"escaped names", `{"type":"object","properties":{"a\"b\\\n":{"type":"integer"}},"required":["a\"b\\\n"]}`, []string{`{"a\"b\\\n":1}`}, []string{`{}`}},
	{"impossible optional", `{"type":"object","properties":{"a":false,"b":{"type":"integer"}},"additionalProperties":true}`, []string{`{}`, `{"b":1}`, `{"c":1}`}, []string{`{"a":1}`}},
	{"date", `{"type":"string","format":"date"}`, []string{`"2024-02-28"`, `"1999-12-31"`, `"2023-04-30"`}, []string{`"2024-13-01"`, `"2024-04-31"`, `"2024-02-30"`, `"x"`}},
	{"date-time", `{"type":"string","format":"date-time"}`, []string{`"2024-02-28T23:59:59Z"`, `"2024-02-28T00:00:00.123+02:00"`}, []string{`"2024-02-28"`, `"2024-02-28T24:00:00Z"`}},
	{"email", `{"type":"string","format":"email"}`, []string{`"a.b@example.com"`}, []string{`"a"`, `"@b"`, `"a@"`, `"a@-b"`}},
	{"uuid", `{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`"123e4567"`}},
	{"ipv4", `{"type":"string","format":"ipv4"}`, []string{`"127.0.0.1"`, `"255.255.255.255"`}, []string{`"256.0.0.1"`, `"1.2.3"`, `"01.2.3.4"`}},
	{"ipv6", `{"type":"string","format":"ipv6"}`, []string{`"::"`, `"::1"`, `"fe80::1"`, `"1:2:3:4:5:6:7:8"`, `"1:2:3::7:8"`, `"1::"`}, []string{`"1:2"`, `":::"`, `"1::2::3"`, `"12345::"`}},
	{"uri", `{"type":"string","format":"uri"}`, []string{`"https://example.com/a?b=c#d"`}, []string{`"example.com"`, `"http://"`}},
	{"hostname", `{"type":"string","format":"hostname"}`, []string{`"example.com"`, `"a-b"`}, []string{`"-a"`, `"a..b"`}},
	{"unknown format", `{"type":"string","format":"color"}`, []string{`"x"`}, nil},
}

func TestSchema(t *testing.T) {
	t.Parallel()
	for _, tt := range schemaTests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, err := grammar.Schema(small(), []byte(tt.schema))
			if err != nil {
				t.Fatal(err)
			}
			if u := g.Unknown(); len(u) > 0 {
				t.Errorf("Unknown() = %q", u)
			}
			for _, text := range tt.yes {
				if !accepts(small(), g, text) {
					t.Errorf("does not accept %s", text)
				}
			}
			for _, text := range tt.no {
				if accepts(small(), g, text) {
					t.Errorf("accepts %s", text)
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			check(t, small(), []byte(tt.schema), 20, r)
			if tt.name != "pattern, wide" { // which nothing closes without these bytes
				check(t, asciiOnly(), []byte(tt.schema), 8, r)
			}
		})
	}
}
