#!/usr/bin/env bash
# Sets up what the tests need beyond Go: a C compiler for the race detector, curl, Chromium, the official
# Python client in .cache/venv, the Node clients in e2e/node/node_modules. It installs Debian
# packages only as root on Debian; otherwise it says what will be left out. With CI=true nothing
# may be left out.
set -euo pipefail
cd "$(dirname "$0")/.."

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

left_out() {
  echo "setup: $1" >&2
  if [ "${CI:-}" = true ]; then
    echo "setup: with CI=true nothing may be left out" >&2
    exit 1
  fi
}

packages=()
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
command -v curl >/dev/null || packages+=(curl ca-certificates)
command -v git >/dev/null || packages+=(git)
command -v mount >/dev/null || packages+=(mount)
command -v python3 >/dev/null || packages+=(python3)
# Debian ships venv and its pip apart from python3.
python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
command -v npm >/dev/null || packages+=(nodejs npm)
command -v chromium >/dev/null || packages+=(chromium fonts-dejavu-core)
if [ "${#packages[@]}" -gt 0 ] && may_install; then
  echo "setup: installing ${packages[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

command -v gcc >/dev/null ||
  left_out "no C compiler, so the tests run without the race detector (install gcc)"
command -v curl >/dev/null ||
  left_out "no curl, so the printed example is not tried (install curl)"
command -v chromium >/dev/null ||
  left_out "no Chromium, so the console is not looked at (install chromium)"
[ "$(id -u)" = 0 ] ||
  left_out "not root, so the full disk is not tried (it needs to mount a small tmpfs)"

# python_in makes the environment .cache/NAME of the requirements in FILE; WHAT is in it.
# The stamp holds the requirements it was made from, so a changed pin is installed.
python_in() {
  local name=$1 file=$2 what=$3
  local stamp=.cache/$name/requirements.txt
  cmp -s "$file" "$stamp" && return
  rm -rf ".cache/$name"
  if python3 -m venv ".cache/$name" 2>/dev/null &&
    ".cache/$name/bin/pip" install --quiet --disable-pip-version-check -r "$file"; then
    cp "$file" "$stamp"
  else
    left_out "$what cannot be installed, so its checks are left out (install python3-venv)"
  fi
}
python_in venv e2e/python/requirements.txt "the Python client"
python_in schemathesis e2e/python/schemathesis.txt "Schemathesis"

# Node leaves a stamp of its own, which does not say what it was made from.
stamp=e2e/node/node_modules/.made-from.json
if ! cmp -s e2e/node/package-lock.json "$stamp"; then
  if command -v npm >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0] >= 20')" = true ] &&
    npm ci --prefix e2e/node --ignore-scripts --loglevel=error; then
    cp e2e/node/package-lock.json "$stamp"
  else
    left_out "the Node clients cannot be installed, so their checks are left out (install Node 20 or later with npm)"
  fi
fi
