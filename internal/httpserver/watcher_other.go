//go:build !linux

package httpserver

import "errors"

// watcher is what other systems do not have yet: the server stands back for net/http's.
type watcher struct{}

func newWatcher() (*watcher, error) { return nil, errors.ErrUnsupported }

func (*watcher) add(*conn)    {}
func (*watcher) remove(*conn) {}
func (*watcher) close()       {}
