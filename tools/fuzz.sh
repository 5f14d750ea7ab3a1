#!/usr/bin/env bash
# Fuzzes every target of the module for the given time each: tools/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."

each=${1:-10s}
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
