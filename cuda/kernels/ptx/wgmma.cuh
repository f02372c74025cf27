/* wgmma.cuh - instructions for kernels of sm_90a: warpgroup matmuls, which only it has, and tensor copies.
 *
 * PTX "wgmma" and "cp.async.bulk.tensor". */
#pragma once

#include "cuda/kernels/ptx/cluster.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* --- tensor copies: the box at (column, row) of a matrix, its bytes counted on a barrier */

__device__ __forceinline__ void copy_box(void *to, const void *map, uint64_t *barrier, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4}], "
               "[%2];" ::"r"(shared_address(to)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
               : "memory");
}

/* copy_box() to both blocks of a cluster of two: at the same address in each block, counted on the block's
 * own barrier. */
__device__ __forceinline__ void copy_box_to_pair(void *to, const void *map, uint64_t *barrier, int column,
                                                 int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"((unsigned short)3)
               : "memory");
}

/* Copies the box at (column, row, plane) of a stack of matrices. */
__device__ __forceinline__ void copy_box(void *to, const void *map, uint64_t *barrier, int column, int row,
                                         int plane) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4, %5}], "
               "[%2];" ::"r"(shared_address(to)),
               "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "r"(plane)
               : "memory");
}

/* Fetches a tensor map ahead of its first copy. */
__device__ __forceinline__ void prefetch_map(const void *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* p[0 .. 3] += v, 16-byte aligned, each atomic. PTX "red". */
__device__ __forceinline__ void add_4(float *p, float4 v) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w)
               : "memory");
}

/* Stores four 8x8 matrices of halves, transposed; lane l gives the address of row l % 8 of matrix l / 8, and
 * two halves of column l / 4 of each. PTX "stmatrix". */
__device__ __forceinline__ void store_matrices_transposed(uint32_t address, uint32_t a, uint32_t b,
                                                          uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/* --- warpgroup matmuls */

/* Makes this thread's stores to shared memory visible to wgmma, before a barrier. PTX "fence.proxy". */
__device__ __forceinline__ void fence_stores_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Matrix descriptor of operand b, or a: rows of 64 halves (128 bytes), k contiguous, in the 128-byte swizzle
 * of the tensor copy. Groups of eight rows: 1024 bytes apart. Fields: address / 16, 1 from bit 16 (ignored),
 * stride / 16 from bit 32, swizzle mode 1 from bit 62. To advance by 16 along k (32 bytes), add 2. */
__device__ __forceinline__ uint64_t operand_b(const void *rows) {
  return (uint64_t)(shared_address(rows) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
         (uint64_t)1 << 62;
}

/* operand_b() of a shared_address(), i steps of 32 bytes further. */
__device__ __forceinline__ uint64_t operand_b_at(uint32_t rows, int i) {
  return (uint64_t)(0x40000000u | 64u) << 32 | ((rows >> 4 | 1u << 16) + 2 * i);
}

/* Matrix descriptor of operand b as rows of k: 64 columns contiguous, in the same swizzle. Groups of eight
 * rows are 1024 bytes apart, the next 64 columns `next` bytes. To advance by 16 along k (2048 bytes), add
 * 128. */
__device__ __forceinline__ uint64_t operand_b_columns(const void *rows, int next) {
  return (uint64_t)(shared_address(rows) >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 | (uint64_t)64 << 32 |
         (uint64_t)1 << 62;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most kNewest groups are in flight; the registers of completed groups can be used again. */
template <int kNewest> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
}

/* Keeps the arithmetic that computes v above this point. nvcc would sink it past a wgmma_wait<>(), where it
 * does not overlap wgmma in flight. ptxas still sinks it, unless a branch follows: seen in the machine code
 * of attention_wgmma.cu (LOG.md, "What ptxas does"). */
template <int kN> __device__ __forceinline__ void compute_now(float (&v)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; i++) asm volatile("" : "+f"(v[i])::"memory");
}

/* c[64][kColumns] (+)= a[64][16] b[16][kColumns]. Fragments as in mma m16n8k16: warp w of the warpgroup holds
 * rows 16 w .. 16 w + 15, c[4i ..] is for columns 8i .. 8i + 7. add == 0 starts the sum. */
template <int kColumns>
__device__ void wgmma_f16(float (&c)[kColumns / 2], const uint32_t (&a)[4], uint64_t b, int add);

/* wgmma_f16() with b from operand_b_columns(). */
template <int kColumns>
__device__ void wgmma_f16_columns(float (&c)[kColumns / 2], const uint32_t (&a)[4], uint64_t b, int add);

/* wgmma_f16() with `a` in shared memory, by a descriptor of operand_b(). */
template <int kColumns>
__device__ void wgmma_f16_shared(float (&c)[kColumns / 2], uint64_t a, uint64_t b, int add);

/* c[64][kColumns] (+)= a[64][32] b[32][kColumns], unsigned by signed bytes. Warp w has rows 16 w .. 16 w + 15
 * as in mma m16n8k32: a[i] are bytes k .. k + 3, k = 4 t + i / 2 * 16, of row g + i % 2 * 8; c as in
 * wgmma_f16(). b: operand_b() of rows of 128 bytes; to advance by 32 along k (32 bytes), add 2. */
template <int kColumns>
__device__ void wgmma_u8s8(int (&c)[kColumns / 2], const uint32_t (&a)[4], uint64_t b, int add);

/* wgmma_u8s8() with signed bytes in both operands, `a` in shared memory by a descriptor of operand_b(). */
template <int kColumns>
__device__ void wgmma_s8s8_shared(int (&c)[kColumns / 2], uint64_t a, uint64_t b, int add);

/* clang-format off */
/* An instruction names all its registers: the sums %0 .. %(n - 1), of constraint R, then a, b and add. */
#define TEN(tens) "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, " \
                  "%" #tens "5, %" #tens "6, %" #tens "7, %" #tens "8, %" #tens "9"
#define THIRTY TEN() ", " TEN(1) ", " TEN(2)
#define SIXTY  THIRTY ", " TEN(3) ", " TEN(4) ", " TEN(5)
#define NINETY SIXTY ", " TEN(6) ", " TEN(7) ", " TEN(8)
#define NAMES_16  "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", "%12", "%13"
#define NAMES_32  TEN() ", %10, %11, %12, %13, %14, %15", "%16", "%17", "%18", "%19", "%20", "%21"
#define NAMES_48  TEN() ", " TEN(1) ", %20, %21, %22, %23", "%24", "%25", "%26", "%27", "%28", "%29"
#define NAMES_64  THIRTY ", %30, %31", "%32", "%33", "%34", "%35", "%36", "%37"
#define NAMES_80  THIRTY ", " TEN(3), "%40", "%41", "%42", "%43", "%44", "%45"
#define NAMES_96  THIRTY ", " TEN(3) ", %40, %41, %42, %43, %44, %45, %46, %47", \
                  "%48", "%49", "%50", "%51", "%52", "%53"
#define NAMES_128 SIXTY ", %60, %61, %62, %63", "%64", "%65", "%66", "%67", "%68", "%69"
#define NAMES_160 SIXTY ", " TEN(6) ", " TEN(7), "%80", "%81", "%82", "%83", "%84", "%85"
#define NAMES_192 NINETY ", %90, %91, %92, %93, %94, %95", "%96", "%97", "%98", "%99", "%100", "%101"
#define NAMES_256 NINETY ", " TEN(9) ", " TEN(10) ", " TEN(11) \
                  ", %120, %121, %122, %123, %124, %125, %126, %127", \
                  "%128", "%129", "%130", "%131", "%132", "%133"
#define EIGHT(R, i) R(c[i]), R(c[i + 1]), R(c[i + 2]), R(c[i + 3]), \
                    R(c[i + 4]), R(c[i + 5]), R(c[i + 6]), R(c[i + 7])
#define SUMS_16(R)  EIGHT(R, 0)
#define SUMS_32(R)  SUMS_16(R), EIGHT(R, 8)
#define SUMS_48(R)  SUMS_32(R), EIGHT(R, 16)
#define SUMS_64(R)  SUMS_48(R), EIGHT(R, 24)
#define SUMS_80(R)  SUMS_64(R), EIGHT(R, 32)
#define SUMS_96(R)  SUMS_80(R), EIGHT(R, 40)
#define SUMS_128(R) SUMS_96(R), EIGHT(R, 48), EIGHT(R, 56)
#define SUMS_160(R) SUMS_128(R), EIGHT(R, 64), EIGHT(R, 72)
#define SUMS_192(R) SUMS_160(R), EIGHT(R, 80), EIGHT(R, 88)
#define SUMS_256(R) SUMS_192(R), EIGHT(R, 96), EIGHT(R, 104), EIGHT(R, 112), EIGHT(R, 120)
/* SUM: type of a sum; R: its constraint in inline assembly; types: the rest of the instruction's name; last:
 * its last operands. */
#define WGMMA(name, A, columns, SUM, R, types, last, names, a_name, b_name, add_name, ...) \
  template <> \
  __device__ __forceinline__ void name<columns>(SUM(&c)[columns / 2], A, uint64_t b, int add) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_name ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #columns types " {" names "}, " a_name ", " b_name \
                 ", p" last ";\n}" \
                 : SUMS_##columns(R) \
                 : __VA_ARGS__, "l"(b), "r"(add)); \
  }
#define OF_REGISTERS(name, columns, SUM, R, types, last, names, a0, a1, a2, a3, b_name, add_name) \
  WGMMA(name, const uint32_t(&a)[4], columns, SUM, R, types, last, names, \
        "{" a0 ", " a1 ", " a2 ", " a3 "}", b_name, add_name, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))
#define OF_SHARED(name, columns, SUM, R, types, last, names, a_name, b_name, add_name, ...) \
  WGMMA(name, uint64_t a, columns, SUM, R, types, last, names, a_name, b_name, add_name, "l"(a))
#define OF_F16(form, name, columns, last) \
  EXPANDED(form, name, columns, float, "+f", "k16.f32.f16.f16", ", 1, 1, " last, NAMES_##columns)
#define OF_BYTES(form, name, columns, types) \
  EXPANDED(form, name, columns, int, "+r", "k32.s32." types, "", NAMES_##columns)
#define EXPANDED(form, ...) form(__VA_ARGS__)
#define F16(columns)         OF_F16(OF_REGISTERS, wgmma_f16, columns, "0")
#define F16_COLUMNS(columns) OF_F16(OF_REGISTERS, wgmma_f16_columns, columns, "1")
#define F16_SHARED(columns)  OF_F16(OF_SHARED, wgmma_f16_shared, columns, "0, 0")
#define U8S8(columns)        OF_BYTES(OF_REGISTERS, wgmma_u8s8, columns, "u8.s8")
#define S8S8_SHARED(columns) OF_BYTES(OF_SHARED, wgmma_s8s8_shared, columns, "s8.s8")
F16(16) F16(32) F16(48) F16(64) F16(96) F16(128) F16(160) F16(192) F16(256)
F16_COLUMNS(64) F16_COLUMNS(128) F16_COLUMNS(256)
F16_SHARED(32) F16_SHARED(64) F16_SHARED(80) F16_SHARED(128) F16_SHARED(256)
U8S8(32) U8S8(48) U8S8(64) U8S8(96) U8S8(128)
S8S8_SHARED(128) S8S8_SHARED(256)
/* clang-format on */

#endif
