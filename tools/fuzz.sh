#!/usr/bin/env bash
# Fuzzes every target of the module for the given number of inputs each: tools/fuzz.sh 20000x
# A count and not a time: until Go 1.27 a run that ends by time may report its own deadline as a
# failure (go.dev/issue/75804), and CI would be red for nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

each=${1:-20000x}
found=0
while IFS=: read -r file target; do
  found=$((found + 1))
  echo "fuzz ./$(dirname "$file") $target $each"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$each"
done < <(
  find cmd engine internal -name '*_test.go' -print0 | sort -z |
    xargs -0 grep -oE '^func Fuzz[A-Za-z0-9_]+' /dev/null | sed -E 's/func //'
)
echo "$found fuzz targets, $each each"
