package store_test

import (
	"testing"
	"time"
)

func TestStore(t *testing.T) {
	time.Sleep(time.Second)
}
