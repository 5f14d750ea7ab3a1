// Command parley is the whole service: the server and the operator's command line.
package main

import "os"

// version is set by the linker: go build -ldflags "-X main.version=1.2.3".
var version string

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
