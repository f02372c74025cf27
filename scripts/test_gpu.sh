#!/bin/sh
# test_gpu.sh - runs the tests that need a GPU, from what `make gpu-programs` built (here, or elsewhere with STATIC=1).
#
# usage: test_gpu.sh BUILD [few] [PART...]      few: what an emulated GPU does in a minute
#
#   test_linear, test_attention, test_sample ... the programs of test/cuda (`programs`: all of them), and
#   pytest                                       test/cuda/test_*.py. Without a PART these two run
#   short                                        the pytests that take an emulated GPU some two minutes: whole models
#   fused                                        the pytests of the decode step as one kernel, of one token and several
#   sweep-1 .. sweep-6                           test_linear over every layer of the models, in six parts
#   memcheck, racecheck, initcheck, synccheck    compute-sanitizer over whole answers of tiny models
#   all                                          programs, pytest, sweep-* and *check
#
# A part that takes more than LIMIT seconds (540; few: 5400), or all that take more than TOTAL (a day), are ended,
# which is a failure; so is a part in which no test passed and none was skipped. Needs python3 with pytest and numpy.
# Ends with a line for each part, one "N skipped: REASON" for each reason, and "N passed, N failed, N skipped".
cd "$(dirname "$0")/.." || exit 1
build=${1:?usage: test_gpu.sh BUILD [few] [PART...]} size=''
auk=${AUK:-$build/auk} log=$build/test_gpu.$$.log reasons=$build/test_gpu.$$.skipped
limit=540 end=$(($(date +%s) + ${TOTAL:-86400}))
shift
# An emulated kernel takes less time than idle threads spin for the next one, and they take cores from those that work.
[ "${1:-}" != few ] || { size=few limit=5400; export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"; shift; }
limit=${LIMIT:-$limit}
programs=
for file in test/cuda/test_*.cu; do
  file=${file##*/}
  programs="$programs${programs:+ }${file%.cu}"
done
fused='one_kernel_is and (qwen2 or tie) or several_rows and qwen3-3 or fall_behind or layers_in_groups_of_128'
fused="$fused or last_sequence or several_sequences"
# Each kind of arithmetic once, one token at a time and many.
short='gpu_equals_cpu and f16 and (stories260K-awq or gemma2 or glm4-moe-lite or qwen4) or published_sizes and 512-3'
short="$short or quantize_writes"
short="$short or single_tokens and (stories260K or granite)"
short="$short or graphs_change and stories260K-awq or penalties or records or two_gpus or layers_in_groups_of_128"
short="$short or processes_answer or lost_in_the_middle or two_machines or cable"
sanitizers="memcheck racecheck initcheck synccheck"
sweeps="sweep-1 sweep-2 sweep-3 sweep-4 sweep-5 sweep-6"
# shellcheck disable=SC2046 # these are lists
[ $# -eq 0 ] || set -- $(echo " $* " | sed "s/ programs / $programs /g")
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $programs pytest
# shellcheck disable=SC2086
[ "$*" != all ] || set -- $programs pytest $sweeps $sanitizers

passed=0 failed=0 skipped=0 lines=''
: >"$reasons"
trap 'rm -f "$log" "$reasons"' EXIT
count() { grep -oE "[0-9]+ $1" "$2" | tail -n 1 | cut -d' ' -f1; }

# limited COMMAND...: its output to the log and on, its status as ours; 124 where the part's time is over.
limited() {
  left=$((part_end - $(date +%s)))
  timeout $((left > 0 ? left : 1)) "$@" >"$log" 2>&1
  status=$?
  cat "$log"
  [ $status != 124 ] || echo "FAILED: no time was left for $*"
  return $status
}

# record PART PASSED FAILED SKIPPED [WHY]: adds a part to the totals and to the lines at the end.
record() {
  # On an emulated GPU nothing is missing that tests of whole models need.
  case $size-$1 in
  few-pytest | few-short | few-fused) needs_one=1 ;;
  *) needs_one=0 ;;
  esac
  if [ $(($2 + $3 + $4)) = 0 ] || { [ $needs_one = 1 ] && [ $(($2 + $3)) = 0 ]; }; then
    set -- "$1" 0 1 "$4" "no test ran"
    echo "FAILED: $1: no test ran"
  fi
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
  lines="$lines$1: $2 passed, $3 failed, $4 skipped${5:+, $5}
"
}

# A program that ends with "N passed, N failed" and, after lines "N skipped: REASON", with ", N skipped".
run_program() { # PART PROGRAM [ARGUMENT...]
  part=$1 p=0 f=0 s=0
  shift
  if [ ! -x "$1" ]; then
    echo "FAILED: $1 is not built: make gpu-programs"
    record "$part" 0 1 0 "not built"
    return
  fi
  limited "$@"
  status=$?
  tail -n 1 "$log" >"$log.summary"
  p=$(count passed "$log.summary") f=$(count failed "$log.summary") s=$(count skipped "$log.summary")
  grep -aE '^[0-9]+ skipped: ' "$log" >>"$reasons"
  if [ $status != 0 ] && [ "${f:-0}" = 0 ] || [ -z "$p" ]; then
    echo "FAILED: $* ended with status $status"
    record "$part" "${p:-0}" $((${f:-0} + 1)) "${s:-0}" "status $status"
  else
    record "$part" "$p" "${f:-0}" "${s:-0}"
  fi
}

run_pytest() { # PART [ARGUMENT...]
  part=$1
  shift
  AUK="$auk" AUK_TEST_SIZE=$size limited "${PYTHON:-python3}" -m pytest -q -rs -p no:cacheprovider test/cuda "$@"
  status=$?
  sed -nE 's/^SKIPPED \[([0-9]+)\] [^ ]*: /\1 skipped: /p' "$log" >>"$reasons"
  tail -n 1 "$log" >"$log.summary"
  p=$(count passed "$log.summary") f=$(count failed "$log.summary")
  s=$(count skipped "$log.summary")
  [ $status = 0 ] || [ "${f:-0}" != 0 ] || f=1
  record "$part" "${p:-0}" "${f:-0}" "${s:-0}"
}

# One run under a sanitizer; its findings are its status.
sanitized() { # TOOL ARGUMENT...
  tool=$1
  shift
  if limited compute-sanitizer --tool "$tool" --error-exitcode 99 "$auk" "$@" --device cuda; then
    p=$((p + 1))
  else
    f=$((f + 1))
  fi
}

# Steps of several rows. initcheck takes what cuBLAS writes for never written, the logits of many rows among it: there
# prompts are computed, and as far as our own kernels do it.
sanitized_rows() { # TOOL MODEL
  for rows in 2 8 40 100; do
    if [ "$1" != initcheck ]; then
      sanitized "$1" eval -m "$2" --ids-file "$build/test_gpu.ids" --chunk $rows
    elif [ "$2" != test/data/stories260K-awq ] || [ $rows -lt 64 ]; then # its groups of 16 are cuBLAS's from 64 rows on
      sanitized "$1" -m "$2" --raw -p "$(printf "%${rows}s" '' | tr ' ' a)" -n 2 --ignore-eos --temp 0
    fi
  done
}

# Steps of several sizes, with and without graphs, greedy and sampled.
run_sanitizer() { # TOOL
  if ! command -v compute-sanitizer >/dev/null; then
    echo "1 skipped: there is no compute-sanitizer on PATH" >>"$reasons"
    record "$1" 0 0 1
    return
  fi
  p=0 f=0
  seq 0 99 >"$build/test_gpu.ids"
  for model in test/data/stories260K-awq test/data/miniatures/qwen3-awq test/data/miniatures/gemma2-awq; do
    sanitized "$1" -m $model --raw -p "Once upon a time there was" -n 12 --ignore-eos --temp 0
    sanitized "$1" -m $model --raw -p "Once upon a time there was" -n 12 --ignore-eos --temp 0.8 -s 1 --top-k 20 \
      --top-p 0.95 --repeat-penalty 1.1 --no-graphs
    sanitized_rows "$1" $model
  done
  record "$1" $p $f 0
}

for part; do
  echo "== $part"
  now=$(date +%s)
  part_end=$((now + limit < end ? now + limit : end))
  [ $part_end -gt "$now" ] || { record "$part" 0 1 0 "no time was left"; continue; }
  case " $programs $sweeps $sanitizers pytest short fused " in
  *" $part "*) ;;
  *) echo "FAILED: there is no part $part"; record "$part" 0 1 0 "no such part"; continue ;;
  esac
  case $part in
  pytest) run_pytest "$part" ;;
  short) run_pytest "$part" -k "$short" ;;
  fused) run_pytest "$part" -k "$fused" ;;
  sweep-*) run_program "$part" "$build/test/cuda/test_linear" sweep "${part#sweep-}/6" ;;
  *check) run_sanitizer "$part" ;;
  *) run_program "$part" "$build/test/cuda/$part" $size ;;
  esac
done
printf '%s' "$lines"
# The same reason in several parts is one line.
awk -F ' skipped: ' '{ n[$2] += $1 } END { for (why in n) print n[why] " skipped: " why }' "$reasons" | sort -k1,1rn -k2
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
