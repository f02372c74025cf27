#!/bin/sh
# fuzz.sh SECONDS - feeds every parser hostile input for that long; called by `make fuzz`.
#
# test/fuzz/fuzz_NAME.c is a libFuzzer program; what it finds new is kept in build/fuzz/corpus/NAME, and what is in
# test/fuzz/corpus/NAME (if anything) is where it starts from. An input that makes one fail is left in build/fuzz.
# The last line is "N passed, N failed, N skipped", where without clang or its fuzzing runtime all are skipped.
set -u
seconds=$1
build=build/fuzz
all=$(find test/fuzz -name 'fuzz_*.c' 2>/dev/null | sort)
# shellcheck disable=SC2086
set -- $all

if ! printf '#include <stddef.h>\n%s\n' 'int LLVMFuzzerTestOneInput(char *p, size_t n) { return n && *p == 1; }' |
  clang -w -fsanitize=fuzzer,address,undefined -fopenmp -x c -o /dev/null - 2>/dev/null; then
  echo "skipped: clang with its fuzzing, sanitizer and OpenMP runtimes is not installed"
  echo "0 passed, 0 failed, $# skipped"
  exit 0
fi

"${MAKE:-make}" --no-print-directory BUILD=$build CC=clang FUZZ=1 SANITIZE= CUDA=0 fuzz-programs || exit 1

passed=0 failed=0
for source in "$@"; do
  name=$(basename "$source" .c)
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  [ ! -d "test/fuzz/corpus/$name" ] || cp -n "test/fuzz/corpus/$name"/* "$corpus"
  if ASAN_OPTIONS=detect_leaks=1 "$build/test/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$build/$name-" "$corpus" >"$build/$name.log" 2>&1; then
    passed=$((passed + 1))
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log") inputs in $seconds s"
  else
    failed=$((failed + 1))
    tail -n 40 "$build/$name.log"
    echo "FAILED: $name; the input is the newest of $build/$name-*"
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
