package upstream

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/parley-ai/parley/internal/wire"
)

// ErrNotJSON means an answer that does not have the form that was asked for.
var ErrNotJSON = errors.New("the answer is not the JSON that was asked for")

// CheckJSON fails with [ErrNotJSON] when text is not of the form that a request asks
// for: an object with json_object, any value with json_schema. It does not hold the
// value to its schema. refused says that the model told why it does not answer; then
// there need be no value of a schema. JSON mode knows no refusals: its text always parses.
func CheckJSON(format wire.FormatKind, text string, refused bool) error {
	switch format {
	case wire.FormatJSONObject:
		if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
			return ErrNotJSON
		}
	case wire.FormatJSONSchema:
		if refused && text == "" {
			return nil
		}
	default:
		return nil
	}
	if !json.Valid([]byte(text)) {
		return ErrNotJSON
	}
	return nil
}
