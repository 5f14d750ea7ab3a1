package wire

import (
	"math"
	"strconv"
)

// topLevel reads the member name of the body. A known name that comes twice
// breaks the JSON: two readers that disagree about which one counts are how a
// free model is billed and a dear one served.
func (d *decoder) topLevel(name []byte) {
	id, known := fieldID(name)
	if !known {
		d.skip()
		return
	}
	if d.seen&(1<<id) != 0 {
		d.broken = true
		return
	}
	d.seen |= 1 << id
	d.path = append(d.path, segment{name: fieldName(id)})
	d.field(id)
	d.path = d.path[:len(d.path)-1]
}

type field uint

const (
	fieldModel field = iota
	fieldMessages
	fieldStream
	fieldStreamOptions
	fieldTemperature
	fieldTopP
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldStop
	fieldN
	fieldSeed
	fieldFrequencyPenalty
	fieldPresencePenalty
	fieldLogitBias
	fieldLogprobs
	fieldTopLogprobs
	fieldTools
	fieldToolChoice
	fieldParallelToolCalls
	fieldResponseFormat
	fieldFunctions
	fieldFunctionCall
	fieldModalities
	fieldAudio
	fieldWebSearchOptions
	fieldReasoningEffort
	fieldUser
	fieldCount
)

func fieldName(f field) string {
	return [fieldCount]string{
		"model", "messages", "stream", "stream_options", "temperature", "top_p",
		"max_tokens", "max_completion_tokens", "stop", "n", "seed",
		"frequency_penalty", "presence_penalty", "logit_bias", "logprobs",
		"top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
		"response_format", "functions", "function_call", "modalities", "audio",
		"web_search_options", "reasoning_effort", "user",
	}[f]
}

func fieldID(name []byte) (field, bool) {
	for f := range fieldCount {
		if fieldName(f) == string(name) {
			return f, true
		}
	}
	return 0, false
}

// field reads the value of one known member.
func (d *decoder) field(f field) {
	r := d.req
	switch f {
	case fieldModel:
		d.model()
	case fieldMessages:
		d.messages()
	case fieldStream:
		r.Stream, _ = d.boolean()
	case fieldStreamOptions:
		d.streamOptions()
	case fieldTemperature:
		if v, ok := d.decimal(0, 2); ok {
			r.Temperature, r.HasTemperature = v, true
		}
	case fieldTopP:
		if v, ok := d.decimal(0, 1); ok {
			r.TopP, r.HasTopP = v, true
		}
	case fieldMaxTokens:
		d.maxTokens, d.hasMaxTokens = d.tokenLimit()
	case fieldMaxCompletionTokens:
		d.maxCompletionTokens, d.hasMaxCompletionToks = d.tokenLimit()
	case fieldStop:
		d.stop()
	case fieldN:
		if v, ok := d.integer(1, MaxChoices); ok {
			r.N = int(v)
		}
	case fieldSeed:
		if v, ok := d.integer(math.MinInt64, math.MaxInt64); ok {
			r.Seed = &v
		}
	case fieldFrequencyPenalty:
		r.FrequencyPenalty, _ = d.decimal(-2, 2)
	case fieldPresencePenalty:
		r.PresencePenalty, _ = d.decimal(-2, 2)
	case fieldLogitBias:
		d.logitBias()
	case fieldLogprobs:
		r.Logprobs, _ = d.boolean()
	case fieldTopLogprobs:
		var v int64
		v, d.hasTopLogprobs = d.integer(0, 20)
		r.TopLogprobs = int(v)
	case fieldTools:
		d.tools()
	case fieldToolChoice:
		d.toolChoice()
	case fieldParallelToolCalls:
		if v, ok := d.boolean(); ok {
			r.ParallelToolCalls = v
		}
	case fieldResponseFormat:
		d.responseFormat()
	case fieldFunctions, fieldFunctionCall, fieldAudio, fieldWebSearchOptions:
		if !d.null() {
			d.skip()
			d.fail(UnsupportedParameter(fieldName(f)))
		}
	case fieldModalities:
		d.modalities()
	case fieldReasoningEffort:
		r.ReasoningEffort = effort(d.textOrIgnored())
	case fieldUser:
		d.skip() // known, so that it may not come twice
	}
}

func (d *decoder) model() {
	if d.null() {
		return
	}
	s, ok := d.text()
	// A model of a wrong type is there, if useless; "" is not.
	d.hasModel = s != "" || !ok
	if len(s) > MaxModelBytes {
		d.fail(stringTooLong("model", MaxModelBytes, len(s)))
		return
	}
	d.req.Model = s
}

func (d *decoder) tokenLimit() (int, bool) {
	v, ok := d.integer(1, math.MaxInt64)
	return int(v), ok
}

func (d *decoder) streamOptions() {
	if d.null() {
		return
	}
	if d.kind() != '{' {
		d.wrongType("an object")
		return
	}
	d.hasStreamOptions = true
	d.object(func(name []byte) {
		if string(name) != "include_usage" {
			d.skip()
			return
		}
		d.path = append(d.path, segment{name: "include_usage"})
		d.req.IncludeUsage, _ = d.boolean()
		d.path = d.path[:len(d.path)-1]
	})
}

func (d *decoder) stop() {
	switch d.kind() {
	case 'n':
		d.scalar()
	case '"':
		d.stopSequence()
	case '[':
		n := d.array(MaxStops, func(int) {
			if d.kind() != '"' {
				d.wrongType("a string")
				return
			}
			d.stopSequence()
		})
		if n > MaxStops {
			d.fail(arrayTooLong("stop", MaxStops, n))
		}
	default:
		d.wrongType("one of a string or array of strings")
	}
}

func (d *decoder) stopSequence() {
	s, _ := d.text()
	switch {
	case s == "":
		d.fail(emptyString(d.pathString()))
	case len(s) > MaxStopBytes:
		d.fail(stringTooLong(d.pathString(), MaxStopBytes, len(s)))
	default:
		d.req.Stop = append(d.req.Stop, s)
	}
}

func (d *decoder) logitBias() {
	if d.null() {
		return
	}
	if d.kind() != '{' {
		d.wrongType("an object")
		return
	}
	n := 0
	d.object(func(name []byte) {
		if n++; n > MaxLogitBias || d.failing() {
			d.skip()
			return
		}
		key := string(name)
		token, err := strconv.ParseUint(key, 10, 31)
		if err != nil {
			d.skip()
			d.fail(badLogitBiasKey(key))
			return
		}
		d.path = append(d.path, segment{name: strconv.FormatUint(token, 10)})
		defer func() { d.path = d.path[:len(d.path)-1] }()
		if d.kind() == 'n' {
			d.wrongType("a decimal number")
			return
		}
		if v, ok := d.decimal(-100, 100); ok {
			if d.req.LogitBias == nil {
				d.req.LogitBias = make(map[int]float64)
			}
			d.req.LogitBias[int(token)] = v
		}
	})
	if n > MaxLogitBias {
		d.fail(objectTooLarge("logit_bias", MaxLogitBias, n))
	}
}

func (d *decoder) modalities() {
	if d.null() {
		return
	}
	if d.kind() != '[' {
		d.wrongType("an array of strings")
		return
	}
	d.array(math.MaxInt, func(int) {
		if d.kind() != '"' {
			d.wrongType("a string")
			return
		}
		if s := d.unquote(d.scalar()); string(s) == "audio" {
			d.fail(unsupportedValue("modalities", "audio"))
		}
	})
}

// textOrIgnored reads a string, or any other value as "". Clients send these
// fields as objects too.
func (d *decoder) textOrIgnored() string {
	if d.kind() != '"' {
		d.skip()
		return ""
	}
	return string(d.unquote(d.scalar()))
}

// effort drops a word that is none of the convention's: clients have their own, and a
// provider would refuse the call.
func effort(word string) string {
	switch word {
	case "none", "minimal", "low", "medium", "high", "xhigh", "max":
		return word
	}
	return ""
}
