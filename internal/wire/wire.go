// Package wire is the JSON of the convention: the chat-completion request,
// the completion, its stream chunks, models and errors.
//
// Requests are decoded strictly and in one pass ([DecodeChat]); answers are
// written by append-style encoders whose bytes are the contract. The package
// does no I/O and imports nothing of ours. Every refusal a client can meet is
// built here, so that its words stand in one place: errors.go for everything
// but 400, invalid.go for 400, explain.go for the sentence that explains it.
package wire

// Limits of a request that are known without looking at the model.
const (
	// MaxDepth is the deepest nesting of a request body; agents' tool schemas
	// stay below 40, and a stack of 100 cannot hurt any later reader.
	MaxDepth = 100
	// MaxMessages is the longest conversation accepted.
	MaxMessages = 2048
	// MaxTools is the number of functions a request may define, and of tool
	// calls one assistant message may carry.
	MaxTools = 128
	// MaxStops is the number of stop sequences; editors send dozens.
	MaxStops = 64
	// MaxStopBytes is the length of one stop sequence.
	MaxStopBytes = 256
	// MaxChoices is the largest n.
	MaxChoices = 8
	// MaxModelBytes is the length of a model id.
	MaxModelBytes = 256
	// MaxNameBytes is the length of the name of a function or a schema.
	MaxNameBytes = 64
	// MaxLogitBias is the number of biased tokens.
	MaxLogitBias = 1024
)
