package app

import (
	"runtime/debug"
	"strings"
)

// Version is the version of this build, without a leading v: linked where the linker
// was told one, else that of the tag or commit it was built from, else "devel".
func Version(linked string) string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case linked != "":
	case !ok || info.Main.Version == "" || info.Main.Version == "(devel)":
		linked = "devel"
	default:
		linked = info.Main.Version
	}
	return strings.TrimPrefix(linked, "v")
}
