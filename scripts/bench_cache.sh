#!/bin/sh
# bench_cache.sh - how soon a long text is ready when it comes from the prefix cache, beside prefilling it: FIGURES.md's
# figures.
#
# usage: sh scripts/bench_cache.sh TEXT [TOKENS]      the first 4,000 tokens of a file by default; `make demo` first
#
# Each run asks another question after the text. The files of the cache are in the page cache: they were just written.
set -eu
cd "$(dirname "$0")/.."
auk=${AUK:-build/auk} threads=${THREADS:-2} model=${MODEL:-models/smollm2-135m-awq}
text=${1:?usage: bench_cache.sh TEXT [TOKENS]} tokens=${2:-4000}
[ -d "$model" ] || { echo "bench_cache: $model is not there: make demo" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$auk" tokenize -m "$model" -f "$text" | tr ' ' '\n' | head -n "$tokens" |
  "$auk" tokenize -m "$model" --decode >"$folder/text"
ask() {
  "$auk" -m "$model" --device cpu -t "$threads" --raw -f "$folder/text" -n 1 --temp 0 -v "$@" 2>&1 >/dev/null |
    sed -n 's/^auk: \(cache: \|prompt \)/\1/p'
}
echo "## Without a cache"
ask -p "What is it about?"
echo "## Kept"
ask -p "What is it about?" --cache-dir "$folder/cache"
for question in "Who wrote it?" "When was it?" "Where was it?" "Why was it?" "How was it?"; do
  echo "## Another question"
  ask -p "$question" --cache-dir "$folder/cache"
done
