#!/bin/sh
# bench_tokenizer.sh - how fast tokenizers load, encode and decode on this machine, without the rest of the program.
#
# usage: sh scripts/bench_tokenizer.sh [TEXT [TOKENIZER.json...]]
#
# Without arguments: the committed tokenizers over this repository's own test data.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
make -s "BUILD=$build" "$build/tokenizer.a" "$build/base.a"
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -O2 -D_GNU_SOURCE -Isrc -I. -o "$build/bench_tokenizer" test/tokenizer/bench_tokenizer.c \
  "$build/tokenizer.a" "$build/base.a" $(pkg-config --libs libcjson libutf8proc libpcre2-8) -lm
if [ $# -gt 1 ]; then
  exec "$build/bench_tokenizer" "$@"
fi
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
for name in gpt2 mistral_v0_1 smollm2; do
  mkdir "$unpacked/$name"
  gzip -dc "test/data/tokenizers/$name/tokenizer.json.gz" >"$unpacked/$name/tokenizer.json"
done
text=${1:-$unpacked/text}
[ $# -gt 0 ] || cat README.md models.md test/data/tokenizers/*.md tokenizer/*.[ch] tokenizer/*/*.[ch] \
  >"$unpacked/text" 2>/dev/null || true
"$build/bench_tokenizer" "$text" "$unpacked"/*/tokenizer.json
