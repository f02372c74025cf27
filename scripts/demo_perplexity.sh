#!/bin/sh
# demo_perplexity.sh - what the demo's conversion to AutoAWQ's layout costs: perplexity of both directories on
# a text.
#
# usage: sh scripts/demo_perplexity.sh TEXT [FLAG...]        `make demo` first; FLAGs go to `auk eval`
#
# FIGURES.md's figures: TEXT is the test part of WikiText-2 (its CRLF line ends kept), the first 20,000 tokens.
set -eu

text=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
auk=${AUK:-build/auk}

for directory in models/smollm2-135m-f16 models/smollm2-135m-awq; do
  echo "$directory:"
  "$auk" eval -m $directory -f "$text" --max-tokens 20000 --window 2048 "$@"
done
