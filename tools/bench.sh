#!/usr/bin/env bash
# Measures bin/parley beside nginx and a bare httputil.ReverseProxy: tools/bench.sh [-out FILE]. Where
# nginx is not installed, Debian's package is unpacked under .cache, which starts no server; where
# that cannot be had either, its row is left out. It ends within 4 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/sbin:$PWD/.cache/nginx/usr/sbin
if ! command -v nginx >/dev/null && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
  mkdir -p .cache/nginx
  echo "bench: fetching nginx"
  { [ "$(id -u)" = 0 ] && apt-get update -qq; } >/dev/null 2>&1 || true
  (cd .cache/nginx && apt-get download nginx && dpkg-deb -x nginx_*.deb .) >/dev/null 2>&1 || true
fi
if ! nginx -v 2>/dev/null; then
  echo "bench: no nginx that runs, so its row is left out" >&2
  set -- -nginx "" "$@"
fi

go build -o .cache/bin/bench ./internal/bench
exec timeout 240 .cache/bin/bench "$@"
