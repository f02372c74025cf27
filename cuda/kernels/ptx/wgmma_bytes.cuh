/* wgmma_bytes.cuh - warpgroup matmuls of bytes with both operands in shared memory, and an atomic OR in
 * global memory. PTX ISA 9.0, sections 9.7.15 "wgmma" and 9.7.13 "red". */
#pragma once

#include "cuda/kernels/ptx/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* c[64][kColumns] (+)= a[64][32] b[32][kColumns], signed bytes, both described by operand_b() of rows of 128
 * bytes: to advance by 32 k, add 2. c as in wgmma_f16(). */
template <int kColumns>
__device__ void wgmma_s8s8_shared(int (&c)[kColumns / 2], uint64_t a, uint64_t b, int add);

/* clang-format off */
#define INTS_128 INTS_64, EIGHT_INTS(64), EIGHT_INTS(72), EIGHT_INTS(80), EIGHT_INTS(88), EIGHT_INTS(96), \
                 EIGHT_INTS(104), EIGHT_INTS(112), EIGHT_INTS(120)
#define WGMMA_BYTES_SHARED(columns, sums, names, a_name, b_name, add_name)                                  \
  template <>                                                                                               \
  __device__ __forceinline__ void wgmma_s8s8_shared<columns>(int(&c)[columns / 2], uint64_t a, uint64_t b,  \
                                                             int add) {                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_name ", 0;\n"                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32.s8.s8 {" names "}, " a_name ", "     \
                 b_name ", p;\n}"                                                                           \
                 : sums                                                                                     \
                 : "l"(a), "l"(b), "r"(add));                                                               \
  }
WGMMA_BYTES_SHARED(128, INTS_64, NAMES_64, "%64", "%65", "%66")
WGMMA_BYTES_SHARED(256, INTS_128, NAMES_128, "%128", "%129", "%130")
/* clang-format on */

#endif

/* *p |= bits, atomic. */
__device__ __forceinline__ void set_bits(uint32_t *p, uint32_t bits) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(p), "r"(bits) : "memory");
}
