#!/bin/sh
# Builds the CUDA room's objects, test_linear, bench_linear and test_dispatch under a directory of its own.
#   sh test/cuda/build.sh DIRECTORY [ARCHITECTURES] [JOBS] [nvcc flags]     ARCHITECTURES as in "80 90a"
set -e
dir=$1 archs=${2:-90a} jobs=${3:-2} flags=${4:-}
mkdir -p "$dir"
code=
for a in $archs; do
  code="$code -gencode=arch=compute_$a,code=sm_$a"
  [ "$a" = 90a ] && flags="$flags -DAUK_HAS_SM90A"
done
nvcc="nvcc -std=c++17 -O3 -Isrc -I. $code $flags -Xcompiler -Wall,-Wextra -MMD"
for c in cuda/dispatch src/base/status src/base/utf8; do
  ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -Isrc -I. -c $c.c -o "$dir/$(basename $c).o"
done
# The slowest first, so that the last to finish is not started last.
linear="awq_dequant awq_gemv awq_pipelined awq_plain awq_planes awq_small_batch dense int8_gemv linear relayout"
(for f in int8_act awq_wgmma awq_tensorcore $linear; do echo cuda/$f.cu; done; echo test/cuda/test_linear.cu; echo test/cuda/bench_linear.cu) |
  xargs -P "$jobs" -I{} sh -c 'o='"$dir"'/$(basename {} .cu).o; [ -e $o ] && [ -z "$(sed "s/.*://; s/\\\\//" ${o%.o}.d | tr " " "\n" | grep -v "^/usr" | grep . | xargs -I@ find @ -newer $o 2>/dev/null)" ] || '"$nvcc"' -c {} -o $o || exit 255'
kernels=$(for f in int8_act awq_wgmma awq_tensorcore $linear; do echo "$dir/$f.o"; done)
for t in test_linear bench_linear; do
  nvcc -o "$dir/$t" "$dir/$t.o" $kernels "$dir/dispatch.o" "$dir/status.o" "$dir/utf8.o" -lcublas
done
