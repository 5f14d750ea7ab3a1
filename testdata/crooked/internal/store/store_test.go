package store_test

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStore_Bubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
	})
}

func TestStore(t *testing.T) {
	time.Sleep(time.Second)
}
