//go:build !linux

package store

import "errors"

// Other systems have no such call, or one of their own.
func renameNew(string, string) error { return errors.ErrUnsupported }
