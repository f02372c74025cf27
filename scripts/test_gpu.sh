#!/bin/sh
# test_gpu.sh - runs the tests that need a GPU, from what `make gpu-programs` built (here, or elsewhere with STATIC=1).
#
# usage: test_gpu.sh BUILD [few]      few: what an emulated GPU does in a minute
#
# Needs python3 with pytest and numpy. Ends with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
build=${1:?usage: test_gpu.sh BUILD [few]} size=${2:-}
passed=0 failed=0
for program in "$build"/test/cuda/test_*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  case $program in *.o | *.d | */test_dispatch) continue ;; esac
  echo "== $program"
  "$program" $size >"$build/test_gpu.log" 2>&1
  status=$?
  cat "$build/test_gpu.log"
  totals=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$build/test_gpu.log" | tail -n 1)
  if [ -z "$totals" ] || { [ $status != 0 ] && [ "$totals" != "${totals% 0 failed*}" ]; }; then
    echo "FAILED: $program ended with status $status"
    failed=$((failed + 1))
  else
    passed=$((passed + ${totals%% *}))
    totals=${totals#* passed, }
    failed=$((failed + ${totals%% *}))
  fi
done
echo "== test/cuda/test_*.py"
AUK=${AUK:-$build/auk} AUK_TEST_SIZE=$size \
  "${PYTHON:-python3}" -m pytest -q -rs -p no:cacheprovider test/cuda >"$build/test_gpu.log" 2>&1
status=$?
cat "$build/test_gpu.log"
summary=$(tail -n 1 "$build/test_gpu.log")
count() { echo "$summary" | grep -oE "[0-9]+ $1" | cut -d' ' -f1; }
more=$(count passed)
passed=$((passed + ${more:-0}))
more=$(count failed)
failed=$((failed + ${more:-0}))
[ $status = 0 ] || [ "${more:-0}" != 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ $failed = 0 ]
