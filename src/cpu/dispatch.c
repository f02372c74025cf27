/* dispatch.c - the kernels that this machine can run. Compiled for the baseline instruction set. Called by
 * load.c and the tests. */
#include "cpu/kernels.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14 does not know f16c by name: CPUID leaf 1, ECX bit 29 (Intel's manual, volume 2A, CPUID). */
static bool has_f16c(void) {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & 1u << 29);
}
#endif

/* Tests for the features that the Makefile turns on for each set (ISA_FLAGS_*). */
const Kernels *const *kernels_usable(int *n) {
#if defined(__x86_64__)
  static const Kernels *const tables[] = {&kernels_baseline, &kernels_avx2, &kernels_avx512};
  *n = 1;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) *n = 2;
  if (*n == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    *n = 3;
#else
  static const Kernels *const tables[] = {&kernels_baseline};
  *n = 1;
#endif
  return tables;
}
