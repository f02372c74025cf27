/* allreduce.cuh - all-reduce across clusters through L2. One 64-bit word per column holds a fixed-point sum
 * and a count of contributions: each cluster adds its part once and polls until the count is full.
 *
 *     totals  uint64 [3 buffers][tokens][hidden]      o | down in even layers | down in odd layers
 *     last    uint64 [n_clusters][3][tokens][hidden]  the word when this cluster last found it complete
 *
 *     a word   63 ................... 5 | 4 .. 0
 *              sum of all contributions | their number
 *              in units of 2^-26        | (all modulo 2^64: nothing is ever cleared)
 *
 * A contribution is one atomic addition of 32 * fixed + 1. A sum is complete when the word has grown by as
 * many contributions as there are contributors; there are at most 16, so their number modulo 32
 * distinguishes some from all. The sum is the growth less that number, carries and overflows included.
 * Value and number share a word, so neither fence nor flag is needed, and integers add up to the same bits
 * in any order.
 *
 * A buffer is used again only after every reader has contributed to a sum that the next writer waits for.
 * For o one buffer is enough: all its readers contribute to down before the next o. Down takes two, since
 * clusters without a KV head do not contribute to o. `last` is kept for the next launch: after a launch
 * each word is as all clusters last found it.
 *
 * A contribution is rounded to 2^-26, the last place of floats from 1/8 on. Infinity, NaN, and values of
 * 2^23 and more are added as 2^28. With 1 to 16 of them the sum (modulo 2^33 in a word) is beyond 2^27,
 * where no sum of proper values is, and is read as NaN. So NaN reaches the logits, and the words stay
 * valid. */
#ifndef AUK_CUDA_FUSED_ALLREDUCE_CUH
#define AUK_CUDA_FUSED_ALLREDUCE_CUH

#include "cuda/fused/plan.h"
#include "cuda/ptx/cluster.cuh"

namespace step {

constexpr float kUnits = 1 << 26; /* units in 1.0 */
constexpr float kMostGiven = 1 << 23, kMostSum = 1 << 27, kNoNumber = 1 << 28;
static_assert(STEP_PLACES == 3 && STEP_MAX_CLUSTERS < 32, "a part of all givers is told from all of them");
static_assert(STEP_MAX_CLUSTERS * kMostGiven <= kMostSum &&
                  kNoNumber - STEP_MAX_CLUSTERS * kMostGiven >= kMostSum &&
                  STEP_MAX_CLUSTERS * kNoNumber * kUnits * 32 <= 0x1p63f,
              "no number, of one to all givers, is no sum of others, nor that modulo 2^64");

/* The sum of matrix O or DOWN in a layer. */
struct Sum {
  uint64_t *totals; /* [rows][hidden]: its buffer */
  int givers;
};

__device__ __forceinline__ Sum sum_of(uint64_t *totals, const StepShape &s, int rows, bool is_down,
                                      int layer) {
  const int place = is_down ? 1 + (layer & 1) : 0;
  return {totals + place * rows * s.hidden, is_down ? s.n_clusters : s.n_kv_heads};
}

/* The distance from a word of totals to this cluster's copy in `last`. */
__device__ __forceinline__ int to_last(const StepShape &s, int rows, int cluster) {
  return (1 + cluster) * STEP_PLACES * rows * s.hidden;
}

__device__ __forceinline__ void give(uint64_t *total, float v) {
  const long long fixed = __float2ll_rn((fabsf(v) < kMostGiven ? v : kNoNumber) * kUnits);
  add_relaxed_8(total, (uint64_t)fixed * 32 + 1);
}

__device__ __forceinline__ bool all_gave(uint64_t total, uint64_t last, int givers) {
  return ((uint32_t)total - (uint32_t)last & 31) == givers;
}

/* The sum of the contributions since `last`. */
__device__ __forceinline__ float sum_since(uint64_t total, uint64_t last, int givers) {
  const float v = __ll2float_rn((long long)(total - last - givers)) * (1 / (32 * kUnits));
  return fabsf(v) < kMostSum ? v : __int_as_float(0x7fffffff);
}

} // namespace step

#endif
