package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// This file holds every 400. Codes and words are what clients match on; they
// are final once published.

func invalid(code, param, message string) *Error {
	e := &Error{Status: 400, Type: typeInvalidRequest, Code: code, Message: message}
	if param != "" {
		e.Param = &param
	}
	return e
}

func invalidJSON() *Error {
	return invalid("invalid_json", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)")
}

func bodyNotObject(got string) *Error {
	return invalid("invalid_type", "", "Invalid type for request body: expected an object, but got "+got+" instead.")
}

func missingModel() *Error {
	return invalid("missing_required_parameter", "model", "you must provide a model parameter")
}

func missing(path string) *Error {
	return invalid("missing_required_parameter", path, "Missing required parameter: '"+path+"'.")
}

func wrongType(path, want, got string) *Error {
	return invalid("invalid_type", path, "Invalid type for '"+path+"': expected "+want+", but got "+got+" instead.")
}

func integerBelow(path string, low int64, got string) *Error {
	return invalid("integer_below_min_value", path,
		fmt.Sprintf("Invalid '%s': integer below minimum value. Expected a value >= %d, but got %s instead.", path, low, clip(got)))
}

func integerAbove(path string, high int64, got string) *Error {
	return invalid("integer_above_max_value", path,
		fmt.Sprintf("Invalid '%s': integer above maximum value. Expected a value <= %d, but got %s instead.", path, high, clip(got)))
}

func decimalBelow(path string, low float64, got string) *Error {
	return invalid("decimal_below_min_value", path,
		fmt.Sprintf("Invalid '%s': decimal below minimum value. Expected a value >= %g, but got %s instead.", path, low, clip(got)))
}

func decimalAbove(path string, high float64, got string) *Error {
	return invalid("decimal_above_max_value", path,
		fmt.Sprintf("Invalid '%s': decimal above maximum value. Expected a value <= %g, but got %s instead.", path, high, clip(got)))
}

func emptyArray(path string) *Error {
	return invalid("empty_array", path,
		"Invalid '"+path+"': empty array. Expected an array with minimum length 1, but got an empty array instead.")
}

func arrayTooLong(path string, limit, got int) *Error {
	return invalid("array_above_max_length", path,
		fmt.Sprintf("Invalid '%s': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", path, limit, got))
}

func objectTooLarge(path string, limit, got int) *Error {
	return invalid("object_above_max_properties", path,
		fmt.Sprintf("Invalid '%s': too many properties. Expected an object with at most %d properties, but got an object with %d properties instead.", path, limit, got))
}

func stringTooLong(path string, limit, got int) *Error {
	return invalid("string_above_max_length", path,
		fmt.Sprintf("Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", path, limit, got))
}

func emptyString(path string) *Error {
	return invalid("empty_string", path,
		"Invalid '"+path+"': empty string. Expected a string with minimum length 1, but got an empty string instead.")
}

func badEnum(path, got string, values ...string) *Error {
	var b strings.Builder
	for i, v := range values {
		switch {
		case i > 0 && i == len(values)-1 && i == 1:
			b.WriteString(" and ")
		case i > 0 && i == len(values)-1:
			b.WriteString(", and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("'" + v + "'")
	}
	return invalid("invalid_value", path, "Invalid value: '"+clip(got)+"'. Supported values are: "+b.String()+".")
}

func badPattern(path string) *Error {
	return invalid("invalid_value", path,
		"Invalid '"+path+"': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.")
}

func badLogitBiasKey(key string) *Error {
	return invalid("invalid_value", "logit_bias",
		"Invalid key in 'logit_bias': '"+clip(key)+"'. You should only be submitting non-negative integers.")
}

// UnknownBiasToken is the 400 for a bias of a token that a vocabulary of tokens does
// not have.
func UnknownBiasToken(id, tokens int) *Error {
	return invalid("invalid_value", "logit_bias",
		"Invalid key in 'logit_bias': '"+itoa(id)+"'. The tokens of this model are 0 to "+itoa(tokens-1)+".")
}

func nullContent(i int) *Error {
	return invalid("invalid_type", "messages.["+itoa(i)+"].content", "Invalid value for 'content': expected a string, got null.")
}

func bothTokenLimits() *Error {
	return invalid("invalid_parameter_combination", "max_tokens",
		"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
}

func streamOptionsWithoutStream() *Error {
	return invalid("invalid_value", "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
}

func topLogprobsWithoutLogprobs() *Error {
	return invalid("invalid_value", "top_logprobs", "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.")
}

func toolChoiceWithoutTools() *Error {
	return invalid("invalid_value", "tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
}

func toolChoiceNotFound(name string) *Error {
	return invalid("invalid_value", "tool_choice", "Tool choice '"+clip(name)+"' not found in 'tools' parameter.")
}

func duplicateFunction(i int, name string) *Error {
	return invalid("invalid_value", "tools["+itoa(i)+"].function.name", "Invalid 'tools': duplicate function name '"+clip(name)+"'.")
}

func duplicateToolCallID(path, id string) *Error {
	return invalid("invalid_value", path, "Invalid '"+path+"': duplicate tool call id '"+clip(id)+"' in 'tool_calls'.")
}

func orphanTool(i int) *Error {
	return invalid("invalid_value", "messages.["+itoa(i)+"].role",
		// The spelling is the convention's own; clients compare the text.
		"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
}

func unknownToolCallID(i int, id string) *Error {
	return invalid("invalid_value", "messages.["+itoa(i)+"].tool_call_id",
		"Invalid parameter: 'tool_call_id' of '"+clip(id)+"' not found in 'tool_calls' of previous message.")
}

func unansweredCalls(param string, ids []string) *Error {
	// Four are enough to find the turn; a message must not grow with the input.
	const shown = 4
	var b strings.Builder
	for i, id := range ids[:min(len(ids), shown)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clip(id))
	}
	if n := len(ids) - shown; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return invalid("invalid_value", param,
		"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: "+b.String())
}

func invalidFormatSchema(name, fault string) *Error {
	return invalid("invalid_json_schema", "response_format", "Invalid schema for response_format '"+clip(name)+"': "+fault)
}

func invalidFunctionSchema(path, name, fault string) *Error {
	return invalid("invalid_function_parameters", path, "Invalid schema for function '"+clip(name)+"': "+fault)
}

// UnsupportedFormatSchema is the 400 for a response_format whose schema cannot be kept
// to, because of what stands at path, a JSON pointer into it.
func UnsupportedFormatSchema(name, path, reason string) *Error {
	return invalidFormatSchema(clip(name), "at '"+clip(path)+"': "+reason+".")
}

// UnsupportedFunctionSchema is the same for the parameters of a tool.
func UnsupportedFunctionSchema(i int, name, path, reason string) *Error {
	return invalidFunctionSchema("tools["+itoa(i)+"].function.parameters", clip(name), "at '"+clip(path)+"': "+reason+".")
}

func unsupportedValue(path, value string) *Error {
	return invalid("unsupported_value", path, "Unsupported value: '"+path+"' does not support '"+clip(value)+"' with this model.")
}

func unsupportedFormat(kind FormatKind) *Error {
	// LangChain falls back to another method when it reads these words.
	return invalid("unsupported_value", "response_format",
		"Invalid parameter: 'response_format' of type '"+string(kind)+"' is not supported with this model.")
}

// UnsupportedParameter is the 400 for a parameter the model has no use for.
func UnsupportedParameter(path string) *Error {
	return invalid("unsupported_parameter", path, "Unsupported parameter: '"+path+"' is not supported with this model.")
}

// ValueRefused is the 400 for a field that what runs the model does not take as the client
// set it.
func ValueRefused(path string) *Error {
	return invalid("unsupported_value", path, "Unsupported value: this model does not take '"+clip(path)+"' as it was given.")
}

// UnsupportedContent is the 400 for part number part of message number message
// when the model takes text only; kind is the type of the part.
func UnsupportedContent(message, part int, kind string) *Error {
	return invalid("unsupported_value", fmt.Sprintf("messages.[%d].content.[%d].type", message, part),
		"Invalid content type. "+clip(kind)+" is only supported by certain models.")
}

// MaxTokensAbovePlan is the 400 for an output limit above the plan's, which a bigger plan
// may allow.
func MaxTokensAbovePlan(param string, given, limit int) *Error {
	e := MaxTokensTooLarge(param, given, limit)
	e.Message = fmt.Sprintf("%s is too large: %d. Your plan supports at most %d completion tokens, whereas you provided %d.", param, given, limit, given)
	return e
}

// MaxTokensTooLarge is the 400 for an output limit above the model's own.
// param is the field the client used.
func MaxTokensTooLarge(param string, given, limit int) *Error {
	return invalid("invalid_value", param,
		fmt.Sprintf("%s is too large: %d. This model supports at most %d completion tokens, whereas you provided %d.", param, given, limit, given))
}

// MaxTokensTooSmall is the 400 for an answer that must have a form, of which the
// shortest has least tokens. param is "" when the context and not the caller left only
// given.
func MaxTokensTooSmall(param string, given, least int) *Error {
	if param == "" {
		return invalid("invalid_value", "max_tokens", fmt.Sprintf("What you ask for takes at least %d completion tokens, and there is room for %d. Please reduce the length of the messages, or use a model with a larger context.", least, given))
	}
	return invalid("invalid_value", param, fmt.Sprintf("%s is too small: %d. What you ask for takes at least %d completion tokens.", param, given, least))
}

// ContextLengthExceeded is the 400 for a prompt of tokens in a window. atLeast
// says that counting stopped there. Clients recognise the case by its words.
func ContextLengthExceeded(window, tokens int, atLeast bool) *Error {
	count := strconv.Itoa(tokens)
	if atLeast {
		count = "at least " + count
	}
	return invalid("context_length_exceeded", "messages",
		fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %s tokens. Please reduce the length of the messages. (context_length_exceeded)", window, count))
}

// JSONWordMissing is the 400 for json_object without the word json in any
// message, for servers that insist on it.
func JSONWordMissing() *Error {
	return invalid("invalid_value", "messages",
		"'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.")
}
