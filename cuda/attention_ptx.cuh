/* attention_ptx.cuh - the PTX instructions that the attention kernels use, each behind its name.
 * PTX ISA 8.x: 9.7.14 (mma, ldmatrix, movmatrix), 9.7.9.25 (cp.async). */
#ifndef AUK_CUDA_ATTENTION_PTX_CUH
#define AUK_CUDA_ATTENTION_PTX_CUH

#include <cuda_fp16.h>
#include <stdint.h>

/* c[16x8] += a[16x16] b[16x8], fp16 in, fp32 out. With g = lane / 4, t = lane % 4:
 * a[0..3] = (row g, g+8, g, g+8; k 2t,2t+1 twice then 2t+8,2t+9), b[0..1] = (k 2t,2t+1 and 2t+8,2t+9; column g),
 * c[0..3] = (row g: columns 2t, 2t+1; row g+8: the same). */
__device__ __forceinline__ void mma_f16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else /* sm_75 has the k = 8 form only */
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

__device__ __forceinline__ uint32_t shared_address(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8x8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ __forceinline__ void load_matrix_x4(uint32_t *r, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void load_matrix_x4_transposed(uint32_t *r, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/* Transposes an 8x8 matrix of 16-bit values that a warp holds, two values of row lane / 4 in each lane. */
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t value) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(value));
  return result;
}

/* 16 bytes from global to shared memory in the background; zeros where !valid. Below sm_80 a plain copy. */
__device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
#else
  *(uint4 *)shared = valid ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
#endif
}

__device__ __forceinline__ void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int PENDING> __device__ __forceinline__ void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

__device__ __forceinline__ uint32_t pack_half2(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *(uint32_t *)&pair;
}

#endif
