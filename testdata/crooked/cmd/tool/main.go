// Tool may import anything of ours, and hold the client.
package main

import (
	"net/http"

	"github.com/parley-ai/parley/internal/store"
)

func main() {
	_ = http.Client{}
}
