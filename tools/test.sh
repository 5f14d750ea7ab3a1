#!/usr/bin/env bash
# Runs every test there is and ends with "N passed, N failed": go vet, the unit tests under the
# race detector, the tools' own tests, and the end-to-end tests against the built binary.
set -euo pipefail
cd "$(dirname "$0")/.."

# Whatever stops this script early is a failure that must be counted.
trap 'echo "0 passed, 1 failed"' ERR
make --no-print-directory setup build
go vet ./...
mkdir -p .cache/bin
go build -C tools -buildvcs=false -o ../.cache/bin/testcount ./testcount

race="CGO_ENABLED=1 -race"
command -v gcc >/dev/null || race=""
# The end-to-end tests watch another process, so the race detector would only slow their clients.
# The proofs are SQLite for the most part, which the race detector makes thirty times slower; what
# they drive is under it in its own tests.
unit=$(go list ./... | grep -Ev '/e2e|/internal/proof' | tr '\n' ' ')
noskip=()
[ "${CI:-}" = true ] && noskip=(-noskip)

export PARLEY_BIN=$PWD/bin/parley
# Several end-to-end tests only wait for a limit: four at a time, on however few processors.
exec .cache/bin/testcount "${noskip[@]}" -- \
  "-C tools -count=1 ./bundle ./loadgen ./testcount" \
  "$race -shuffle=on -count=1 -timeout 15m $unit" \
  "-count=1 -timeout 15m ./internal/proof/..." \
  "-count=1 -parallel 4 -timeout 20m ./e2e/..."
