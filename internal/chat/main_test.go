package chat_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a call starts outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
