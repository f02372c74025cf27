/* attention_ptx.cuh - instructions that only the attention kernels use: transposing loads, halves from
 * floats, powers of two. Sections are of the PTX ISA 9.0 manual. */
#ifndef AUK_CUDA_PTX_ATTENTION_PTX_CUH
#define AUK_CUDA_PTX_ATTENTION_PTX_CUH

#include "cuda/ptx/ptx.cuh"

/* Four 8x8 matrices of halves, each transposed; lane l gives the address of row l % 8 of matrix l / 8. 9.7.15
 * "ldmatrix". */
__device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/* Transposes an 8x8 matrix of halves that a warp holds, two of row lane / 4 in each lane. 9.7.15
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

/* 2^x; 2^-infinity is 0. 9.7.3 "ex2". */
__device__ __forceinline__ float power_of_2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

#endif
