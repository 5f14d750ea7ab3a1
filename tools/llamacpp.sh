#!/usr/bin/env bash
# Builds llama.cpp's own benchmarks into .cache/llamacpp/bin for `make bench-engine`, which
# measures the embedded engine beside them; nothing else uses them. The source is the one inside
# the Python package llama-cpp-python, pinned by its SHA-256 and fetched with pip. It is built for
# this processor with OpenMP, as its own instructions say. What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

package='llama-cpp-python==0.3.36'
sum='832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e'
dir=.cache/llamacpp
log=$dir/log
options=(-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF)

fail() {
  echo "llamacpp: $1" >&2
  exit 1
}

stamp="$package $sum ${options[*]}"
if [ "$(cat $dir/bin/stamp 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi

if { ! command -v cmake || ! command -v g++ || ! command -v make; } >/dev/null &&
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo 'llamacpp: installing cmake, g++ and make'
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends cmake g++ make >/dev/null
fi
for tool in cmake g++ make python3; do
  command -v $tool >/dev/null || fail "$tool is missing: install it to have llama.cpp measured beside"
done
python3 -m pip --version >/dev/null 2>&1 || fail 'pip is missing: install it (python3-pip)'

rm -rf $dir
mkdir -p $dir/bin
echo "$package --hash=sha256:$sum" >$dir/requirements.txt
echo "llamacpp: fetching $package"
# With a hash pip looks at nothing inside the archive before it is known to be the right one.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
  --dest $dir -r $dir/requirements.txt >$log 2>&1 ||
  fail "pip could not fetch $package: $(tail -n 1 $log)"
tar -xzf $dir/llama_cpp_python-*.tar.gz -C $dir --strip-components=1 --wildcards '*/vendor/llama.cpp'

echo 'llamacpp: building it, which takes some minutes'
{
  cmake -S $dir/vendor/llama.cpp -B $dir/build "${options[@]}" &&
    cmake --build $dir/build --parallel "$(nproc)" --target llama-bench llama-batched-bench
} >$log 2>&1 || fail "it does not build: see $log"
cp $dir/build/bin/llama-bench $dir/build/bin/llama-batched-bench $dir/bin/
rm -rf $dir/build $dir/vendor $dir/*.tar.gz
echo "$stamp" >$dir/bin/stamp
