#!/bin/sh
# fuzz.sh SECONDS [JOBS] - feeds every parser and writer hostile input for that long, JOBS of them at a time (as many as
# there are cores); called by `make fuzz`.
#
# test/fuzz/fuzz_NAME.c is a libFuzzer program; what it finds new is kept in build/fuzz/corpus/NAME, and what is in
# test/fuzz/corpus/NAME (if anything) is where it starts from. It fails by a crash, a leak, a finding of a sanitizer,
# or an input that takes longer than FUZZ_LIMIT seconds (5; 1 is what none takes on a machine that is not busy). Such
# an input is left in build/fuzz. With FUZZ_SEED a clean build makes the same inputs every time, as far as it gets.
# The last line is "N passed, N failed, N skipped", where without clang or its fuzzing runtime all are skipped, which
# the line before says.
set -u
seconds=$1 jobs=${2:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}
build=build/fuzz
names=$(find test/fuzz -name 'fuzz_*.c' 2>/dev/null | sort | sed 's|.*/||; s|\.c$||')
# shellcheck disable=SC2086
set -- $names

if ! printf '#include <stddef.h>\n%s\n' 'int LLVMFuzzerTestOneInput(char *p, size_t n) { return n && *p == 1; }' |
  clang -w -fsanitize=fuzzer,address,undefined -fopenmp -x c -o /dev/null - 2>/dev/null; then
  echo "$# skipped: clang with its fuzzing, sanitizer and OpenMP runtimes is not installed"
  echo "0 passed, 0 failed, $# skipped"
  exit 0
fi

"${MAKE:-make}" --no-print-directory BUILD=$build CC=clang FUZZ=1 SANITIZE= CUDA=0 fuzz-programs || exit 1

# shellcheck disable=SC2016
one='
  name=$1 build=$2 seconds=$3
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  [ ! -d "test/fuzz/corpus/$name" ] || cp -n "test/fuzz/corpus/$name"/* "$corpus"
  if ASAN_OPTIONS=detect_leaks=1 "$build/test/fuzz/$name" -max_total_time="$seconds" -timeout="${FUZZ_LIMIT:-5}" \
    ${FUZZ_SEED:+-seed="$FUZZ_SEED"} \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/$name-" "$corpus" >"$build/$name.log" 2>&1; then
    echo "$name: $(sed -n "s/^stat::number_of_executed_units: *//p" "$build/$name.log") inputs in $seconds s"
  else
    tail -n 40 "$build/$name.log"
    echo "FAILED: $name; the input is the newest of $build/$name-*"
    exit 1
  fi'
rm -f $build/failed
printf '%s\n' "$@" |
  xargs -P "$jobs" -I NAME sh -c "($one) || echo NAME >>$build/failed" fuzz NAME $build "$seconds"
failed=0
[ ! -f $build/failed ] || failed=$(wc -l <$build/failed)
echo "$(($# - failed)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
