/* allreduce.cuh - all-reduce across clusters through L2. One 64-bit word per column holds a fixed-point sum
 * and a count of contributions. Each contributor adds its part once; readers poll until the count is full.
 * For one token (several tokens clear the words and have no `last`: few/residual.cuh):
 *
 *     totals  uint64 [3 buffers][words]      o | down in even layers | down in odd layers
 *     last    uint64 [n_clusters][3][words]  the word when the cluster last found it complete
 *
 * A buffer has a word for each column. With a mixture of experts it also has a word for each row of the
 * router: its logits are added up with o.
 *
 *     a word   63 ................... 5 | 4 .. 0
 *              sum of all contributions | their number
 *              in units of 2^-26        | (all modulo 2^64: nothing is ever cleared)
 *
 * A contribution is one atomic addition of 32 * fixed + 1. A sum is complete when the word has grown by as
 * many contributions as there are contributors. There are at most 24 contributors, so the number modulo 32
 * says whether all have contributed. The sum is a 32nd of (growth - contributors), whatever was carried or
 * overflowed in between. Value and number share a word, so neither fence nor flag is needed. Integers add up
 * to the same bits in any order.
 *
 * A buffer is used again only after every reader has contributed to a sum that the next writer waits for. For
 * o one buffer is enough: all its readers contribute to down before the next o. Down takes two, because
 * clusters without a KV head do not contribute to o. Logits of a layer may come before the layer's o: a block
 * adds to them when its columns of the previous layer's down are complete. A cluster adds to down only when
 * it has the gated product of all its blocks. By then these blocks have read the logits, to know the experts.
 * `last` is kept for the next launch: after a launch each word is as all clusters last found it.
 *
 * A contribution is rounded to 2^-26, the last place of a float of 1/8. NaN, and values of a size of 2^22 and
 * more, are added as 2^28. With 1 to 31 of them the sum (modulo 2^33 in a word) is beyond 2^27. A sum of
 * proper values is never so large, so a sum beyond 2^27 is read as NaN. NaN thus reaches the logits, and the
 * words stay valid. */
#pragma once

#include "cuda/kernels/fused/plan.h"
#include "cuda/kernels/ptx/cluster.cuh"

namespace step {

constexpr float kFixedOne = 1 << 26; /* 1.0 in fixed point */
constexpr float kMaxPart = 1 << 22, kMaxSum = 1 << 27, kNotANumber = 1 << 28;
/* Contributors of a word, at most: all clusters, and for a logit all blocks of the cluster that multiplies
 * its row of the router. */
constexpr int kMaxContributors = STEP_MAX_CLUSTERS + STEP_BLOCKS;
static_assert(STEP_SUM_BUFFERS == 3 && kMaxContributors < 32,
              "the count distinguishes some contributors from all");
static_assert(kMaxContributors * kMaxPart <= kMaxSum &&
                  kNotANumber - kMaxContributors * kMaxPart >= kMaxSum &&
                  kNotANumber * kFixedOne * 32 == 0x1p59f,
              "one to 31 parts that are no number are beyond any sum of numbers, modulo 2^64 too");

/* A sum over clusters: of the outputs of matrix O or DOWN in a layer, or of the router's logits. */
struct Sum {
  uint64_t *totals; /* the sum's buffer */
  int contributors;
};

__device__ __forceinline__ void contribute(uint64_t *total, float v) {
  const long long fixed = __float2ll_rn((fabsf(v) < kMaxPart ? v : kNotANumber) * kFixedOne);
  add_relaxed_8(total, (uint64_t)fixed * 32 + 1);
}

__device__ __forceinline__ bool is_complete(uint64_t total, uint64_t last, int contributors) {
  return ((uint32_t)total - (uint32_t)last & 31) == contributors;
}

/* The sum of the contributions by which a word has grown from `last` to `total`. */
__device__ __forceinline__ float sum_since(uint64_t total, uint64_t last, int contributors) {
  const float v = __ll2float_rn((long long)(total - last - contributors)) * (1 / (32 * kFixedOne));
  return fabsf(v) < kMaxSum ? v : __int_as_float(0x7fffffff);
}

} // namespace step
