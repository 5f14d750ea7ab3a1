package httpserver_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a connection starts outlives its server.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
