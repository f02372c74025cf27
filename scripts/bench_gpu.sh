#!/bin/sh
# bench_gpu.sh - the figures of FIGURES.md that a GPU makes, as one Markdown table: beside each the fraction of what the
# machine could do, measured in the same run, and the goal where there is one.
#
# usage: sh scripts/bench_gpu.sh [PART...]      all of them unless some are named
#
#   contexts   decode of MODEL after each of DEPTHS tokens
#   rows       steps of ROWS rows against a step of one
#   sampling   decode with the settings that people use against greedy decode
#   memory     what the device's memory holds beside weights and KV cache
#   streaming  the rate of text that goes into a pipe against `auk bench`, from a file with random weights
#   start      from the start of the process to the first byte, from the same file
#   sizes      prefill and decode of every configuration in CONFIGS, random weights
#   kernels    every kernel on every matrix of MODEL, and where the table's choice is not the fastest (thresholds.py);
#              takes minutes
#
# A part ends after LIMIT seconds (540), all of them after TOTAL (a day); the rows that were measured until then are
# printed. They are also written to the folder OUT (build/bench_gpu), with kernels.json and thresholds.md. DEVICE=cpu
# and smaller PROMPTS, TOKENS, ... try the script itself: bench_gpu.py lists these variables.
set -u
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-python3} out=${OUT:-build/bench_gpu} end=$(($(date +%s) + ${TOTAL:-86400}))
most=${LIMIT:-540}
export OUT="$out"
[ $# -gt 0 ] || set -- contexts rows sampling memory streaming start sizes kernels
mkdir -p "$out"
failed=0
echo "| model | test | tokens/s | GB/s | of wall | goal |"
echo "|---|---|---:|---:|---:|---|"
for part; do
  left=$((end - $(date +%s)))
  LIMIT=$((left < most ? left : most))
  if [ $LIMIT -lt 1 ]; then
    echo "| | $part: no time was left | | | | |"
    failed=$((failed + 1))
    continue
  fi
  export LIMIT
  { timeout "$LIMIT" "$python" -u scripts/bench_gpu.py "$part" 2>"$out/$part.log"; echo $? >"$out/$part.status"; } |
    tee "$out/$part.md"
  status=$(cat "$out/$part.status")
  [ "$status" = 0 ] && continue
  failed=$((failed + 1))
  [ "$status" != 124 ] || echo "no end after $LIMIT s" >>"$out/$part.log"
  echo "| | $part: ended with status $status: $(tail -n 1 "$out/$part.log" | tr '|' ' ') | | | | |"
done
[ $failed = 0 ]
