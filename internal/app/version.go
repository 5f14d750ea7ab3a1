package app

import (
	"runtime/debug"
	"strings"
)

// Version is the version of this build, without a leading v: that of the tag it was
// built from, one derived from the commit, or "devel".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}
