/* allreduce.cuh - sums over all clusters, through L2: one word a column, to which each cluster adds its
 * part, and at which every cluster looks until all have given.
 *
 *     totals  uint64 [3 places][rows][hidden]      of o | of down in even layers | of down in odd layers
 *     last    uint64 [n_clusters][3][rows][hidden] the word as this cluster found it whole the last time
 *
 *     a word   63 ................... 5 | 4 .. 0
 *              all that was ever given, | how often
 *              in 2^-26                 | (all modulo 2^64: nothing is ever cleared)
 *
 * To give is one addition of 32 * fixed + 1. A sum is there when the word has grown by as many gifts as there
 * are givers, at most 16, so that their number modulo 32 tells a part of them from all; the sum is what the
 * word has grown by, less the gifts, carries and overflows included. Value and number are one word, so nobody
 * needs a fence or a flag; integers add up to the same bits in any order.
 *
 * A place is used again only after every reader has given what its writer needed since: of o one place is
 * enough, since its readers all give to down before the next o; of down it takes two, as clusters without a
 * KV head give nothing to o. What a thread knows of a word is its own and for the next launch too: one that
 * has ended leaves every word as all clusters last found it.
 *
 * A part is rounded to 2^-26: the last place of floats from 1/8 on. One of 2^23 and more, of infinity or of
 * no number is given as 2^28: with up to 16 of these among the parts, modulo 2^33 as words are, a sum is
 * beyond 2^27, where none of proper parts is, and taken as NaN. So it reaches the logits, and words stay
 * whole. */
#ifndef AUK_CUDA_FUSED_ALLREDUCE_CUH
#define AUK_CUDA_FUSED_ALLREDUCE_CUH

#include "cuda/fused/plan.h"
#include "cuda/ptx/cluster.cuh"

namespace step {

constexpr float kUnits = 1 << 26; /* in 1 */
constexpr float kMostGiven = 1 << 23, kMostSum = 1 << 27, kNoNumber = 1 << 28;
static_assert(STEP_PLACES == 3 && STEP_MAX_CLUSTERS < 32, "a part of all givers is told from all of them");
static_assert(STEP_MAX_CLUSTERS * kMostGiven <= kMostSum &&
                  kNoNumber - STEP_MAX_CLUSTERS * kMostGiven >= kMostSum &&
                  STEP_MAX_CLUSTERS * kNoNumber * kUnits * 32 <= 0x1p63f,
              "no number, of one to all givers, is no sum of others, nor that modulo 2^64");

/* One sum: of matrix O or DOWN in a layer. */
struct Sum {
  uint64_t *totals; /* [rows][hidden]: its place */
  int givers;
};

__device__ __forceinline__ Sum sum_of(uint64_t *totals, const StepShape &s, int rows, bool is_down,
                                      int layer) {
  const int place = is_down ? 1 + (layer & 1) : 0;
  return {totals + place * rows * s.hidden, is_down ? s.n_clusters : s.n_kv_heads};
}

/* From a word of totals to where a cluster keeps it. */
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

/* What was given since. */
__device__ __forceinline__ float sum_since(uint64_t total, uint64_t last, int givers) {
  const float v = __ll2float_rn((long long)(total - last - givers)) * (1 / (32 * kUnits));
  return fabsf(v) < kMostSum ? v : __int_as_float(0x7fffffff);
}

} // namespace step

#endif
