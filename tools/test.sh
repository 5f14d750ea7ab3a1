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
unit=$(go list ./... | grep -v /e2e | tr '\n' ' ')
# Excused is only what the machine itself cannot show, such as a step begun within 30 ms.
noskip=()
[ "${CI:-}" = true ] && noskip=(-noskip -mayskip "this machine")

export PARLEY_BIN=$PWD/bin/parley
exec .cache/bin/testcount "${noskip[@]}" -- \
  "-C tools -count=1 ./loadgen ./testcount" \
  "$race -shuffle=on -count=1 -timeout 15m $unit" \
  "-count=1 -timeout 15m ./e2e/..."
