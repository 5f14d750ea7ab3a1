package ledger

import "github.com/parley-ai/parley/internal/money"

// Traffic is what calls of a short time add up to.
type Traffic struct {
	// Ended calls are those that were Answered, Failed on our side, were Left by their
	// callers, or lost their key meanwhile. Refused ones never began and are not of them.
	Ended, Answered, Failed, Left, Refused int64
	PromptTokens, CompletionTokens         int64
	Charged                                money.Amount
}
