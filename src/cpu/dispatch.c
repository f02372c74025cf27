/* dispatch.c - the kernels that this machine can run. Compiled for the baseline instruction set. Called by
 * load.c, quantize/products.c and the tests. */
#include "cpu/kernels.h"

#include <stdbool.h>

#if defined(__x86_64__)
#if __has_include(<sys/platform/x86.h>)
/* glibc from 2.33 on says what ld.so has found. __builtin_cpu_init() would execute some thirty CPUIDs, which
 * take a virtual machine 2 us each. */
#include <sys/platform/x86.h>
#define USABLE(feature, name) CPU_FEATURE_ACTIVE(feature)
#else
#define USABLE(feature, name) __builtin_cpu_supports(name)
#endif
#endif

/* Tests for the features that the Makefile turns on for each set (ISA_FLAGS_*). */
const Kernels *const *kernels_usable(int *n) {
#if defined(__x86_64__)
  static const Kernels *const tables[] = {&kernels_baseline, &kernels_avx2, &kernels_avx512};
  *n = 1;
  if (USABLE(AVX2, "avx2") && USABLE(FMA, "fma") && USABLE(F16C, "f16c")) *n = 2;
  /* AVX512VL is not tested: a CPU with AVX512BW has it, and glibc's header shifts an int by 31 to read it. */
  if (*n == 2 && USABLE(AVX512F, "avx512f") && USABLE(AVX512BW, "avx512bw") && USABLE(AVX512DQ, "avx512dq"))
    *n = 3;
#else
  static const Kernels *const tables[] = {&kernels_baseline};
  *n = 1;
#endif
  return tables;
}
