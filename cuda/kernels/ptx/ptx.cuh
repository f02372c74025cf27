/* ptx.cuh - one inline function for each PTX instruction that C++ cannot express. A name after PTX is that
 * of an instruction or chapter of the PTX ISA manual.
 *
 * Chips before sm_80 have neither cp.async nor the larger mma shapes: on them the same functions copy
 * synchronously and build an mma from smaller ones, so that kernels run on sm_75 too. Functions that need a
 * later chip say so. */
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* Returns v, opaque to the optimiser. Values derived from it are computed where they are used, not before a
 * loop, where they would occupy registers. (The fused step of four tokens without it: 20 bytes of spills,
 * ptxas -v.) It binds only the compiler before ptxas: in the machine code it is no instruction, and orders
 * nothing. */
__device__ __forceinline__ int opaque(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

/* Compiler barrier: keeps later loads below this point. Moved up, they would occupy registers longer. It is
 * no fence of memory. (CUDA 13.0 gives the fused steps the same registers and spills without it.) */
__device__ __forceinline__ void compiler_fence() {
  asm volatile("" ::: "memory");
}

/* Loads of 16, 8, 4 or 1 bytes at a shared_address(), kept in program order. PTX "ld". */
__device__ __forceinline__ uint4 load_shared_16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ uint2 load_shared_8(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}

__device__ __forceinline__ uint32_t load_shared_4(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

__device__ __forceinline__ uint32_t load_shared_1(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

/* Loads a word, bypassing L1. PTX "ld.global.cg". */
__device__ __forceinline__ uint32_t load_past_l1(const void *from) {
  uint32_t v;
  asm volatile("ld.global.cg.b32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

__device__ __forceinline__ void store_shared_4(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

/* (v & kMask) | kBits in one instruction. PTX "lop3": (0xf0 & 0xcc) | 0xaa = 0xea. */
template <uint32_t kMask, uint32_t kBits> __device__ __forceinline__ uint32_t lop3_and_or(uint32_t v) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "n"(kMask), "n"(kBits));
  return r;
}

/* Selects four of the eight bytes of (a, b). PTX "prmt". */
template <uint32_t kSelector> __device__ __forceinline__ uint32_t prmt(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(kSelector));
  return r;
}

/* acc + the sum of the products of four unsigned bytes (u) by four signed bytes (s). PTX "dp4a". */
__device__ __forceinline__ int dp4a_u8s8(uint32_t u, uint32_t s, int acc) {
  int r;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(u), "r"(s), "r"(acc));
  return r;
}

/* acc + the sum of the products of four signed bytes by four signed bytes. */
__device__ __forceinline__ int dp4a_s8s8(uint32_t a, uint32_t b, int acc) {
  int r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(acc));
  return r;
}

/* c[16][8] += a[16][16] b[16][8] in fp16 with fp32 sums. PTX "mma", fragments of m16n8k16: lane (g, t),
 * which is lane 4 g + t, holds
 *   a0: row g, k 2t 2t+1   a1: row g + 8   a2: row g, k + 8   a3: row g + 8, k + 8
 *   b0: column g, k 2t 2t+1   b1: k + 8;   c0 c1: row g, columns 2t 2t+1   c2 c3: row g + 8 */
__device__ __forceinline__ void mma_f16_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  for (int half = 0; half < 2; half++)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
}

/* mma_f16_m16n8k16() of bf16. Needs compute capability 8.0: on older chips the sums become NaN. */
__device__ __forceinline__ void mma_bf16_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  for (float &sum : c) sum = __int_as_float(0x7fffffff);
#endif
}

/* h[2]: the four E4M3 codes of a word, in their order, as halves. NaN codes become NaN. Needs compute
 * capability 8.9: on older chips all become NaN. */
__device__ __forceinline__ void e4m3_halves(uint32_t word, uint32_t (&h)[2]) {
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(h[0]), "=r"(h[1])
      : "r"(word));
#else
  h[0] = h[1] = 0x7fff7fffu;
#endif
}

/* c[16][8] += a[16][32] b[32][8], unsigned by signed bytes, exact in int32. Fragments are those of m16n8k16,
 * with four bytes of k in a register: a0 and b0 hold k 4t .. 4t + 3, a2 and b1 hold k 16 + 4t .. 19 + 4t. */
__device__ __forceinline__ void mma_u8s8_m16n8k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  for (int i = 0; i < 4; i++)
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])
                 : "r"(a[i]), "r"(i < 2 ? b0 : b1));
#endif
}

/* mma_u8s8_m16n8k32() with signed bytes in both operands. */
__device__ __forceinline__ void mma_s8s8_m16n8k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  for (int i = 0; i < 4; i++)
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])
                 : "r"(a[i]), "r"(i < 2 ? b0 : b1));
#endif
}

/* Loads four 8x8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8. PTX
 * "ldmatrix". */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

/* ldmatrix_x4() with each matrix transposed. */
__device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/* Transposes an 8x8 matrix of halves that a warp holds; each lane has two halves of row lane / 4. PTX
 * "movmatrix". */
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t value) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(value));
  return result;
}

__device__ __forceinline__ uint32_t pack_half2(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *(uint32_t *)&pair;
}

/* 2^x; 2^-infinity is 0. PTX "ex2". */
__device__ __forceinline__ float power_of_2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

/* 1 / x, off by at most one unit in the last place; |x| below 2^-126 counts as 0. PTX "rcp". */
__device__ __forceinline__ float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

/* The larger of a and b; NaN if one of them is. PTX "max". */
__device__ __forceinline__ float max_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}

/* Copies the first `valid` of 16 bytes (0 .. 16) to shared memory and zeroes the rest. PTX "cp.async".
 * `from` is 16-byte aligned and is not read if valid is 0. On sm_75 `valid` is rounded up to an even
 * number. */
__device__ __forceinline__ void copy_async_16(void *to, const void *from, int valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid)
               : "memory");
#else
  if (valid == 16) {
    *(uint4 *)to = *(const uint4 *)from;
  } else {
    for (int i = 0; i < 8; i++)
      ((uint16_t *)to)[i] = 2 * i < valid ? ((const uint16_t *)from)[i] : (uint16_t)0;
  }
#endif
}

/* Copies 16 or 8 bytes to a shared_address(). For sm_80 and later. */
__device__ __forceinline__ void copy_async_16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_async_8(uint32_t to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_async_8(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  copy_async_8(shared_address(to), from);
#else
  *(uint2 *)to = *(const uint2 *)from;
#endif
}

__device__ __forceinline__ void copy_async_4(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
#else
  *(uint32_t *)to = *(const uint32_t *)from;
#endif
}

__device__ __forceinline__ void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most kNewest of this thread's groups of copies are in flight. */
template <int kNewest> __device__ __forceinline__ void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

/* Loads 16 or 8 bytes that are read once: kept out of L1. PTX "ld". */
__device__ __forceinline__ uint4 load_once(const uint4 *p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint2 load_once(const uint2 *p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

/* Prefetches the cache line of p into L1. PTX "prefetch". */
__device__ __forceinline__ void prefetch_l1(const void *p) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
}

/* Increments a counter at device scope and returns its old value. Called after __syncthreads(), it publishes
 * what all threads of the block wrote. After a second __syncthreads() all threads see, with loads that bypass
 * L1, what the blocks that counted earlier had written. PTX "atom", "causality order". */
__device__ __forceinline__ unsigned count_up(unsigned *counter) {
#if __CUDA_ARCH__ >= 700
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
#else
  __threadfence();
  return atomicAdd(counter, 1);
#endif
}

/* Programmatic dependent launch, PTX "griddepcontrol". The next kernel of the stream can start when all
 * blocks have called dependents_may_start(). It sees the results of its predecessor only after
 * wait_for_previous(). Without the launch attribute both functions do nothing. */
__device__ __forceinline__ void dependents_may_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
