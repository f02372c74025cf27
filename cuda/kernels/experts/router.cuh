/* router.cuh - what the kernels of the router (experts.h) share: their arguments, what they store, and the
 * choice of a token's experts from its logits.
 *
 *   router_token.cu  1 to 32 tokens
 *   router_tiles.cu  more tokens, and any number with `invariant`, on tensor cores
 *   router.cu        all calls that the other two do not take */
#pragma once

#include "cuda/kernels/experts/choice.cuh"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/ptx.cuh"

namespace router {

constexpr int kPad = 256; /* hidden is rounded up to a multiple of this many inputs */

/* A dense matrix, by rows. */
struct Rows {
  const void *data;
  size_t stride;
  WeightType type;
  const float *bias;
};

struct Args {
  int n_tokens, hidden, padded; /* padded: hidden rounded up to kPad */
  float eps, x_factor, router_factor;
  const float *x, *norm, *experts_norm, *router_scale;
  __half *h, *experts_h;
  int h_stride;
  Rows router, shared_gate;
  ExpertConfig config;
  const float *choice_bias, *scales;
  ExpertChoices to;
  int block_experts; /* experts of each block */
  int token_blocks;  /* router_token.cu: blocks of a token, which follow one another */
  /* For router_tiles.cu. block_inputs: inputs of a block; slices: sums [n_slices][n_tokens][n_experts + 1],
   * with room for slice_floats numbers a token */
  int block_inputs, n_slices;
  float *slices;
  size_t slice_floats;
  bool joined; /* Router.joined */
};

__device__ __forceinline__ float4 times(float4 v, float by) {
  return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}
__device__ __forceinline__ float4 times(float4 v, const float4 &by) {
  return make_float4(v.x * by.x, v.y * by.y, v.z * by.z, v.w * by.w);
}

/* Four weights from number k on, k a multiple of 4; ones if `by` is NULL. */
__device__ __forceinline__ float4 weights_at(const float *by, int k) {
  return by ? __ldg((const float4 *)(by + k)) : make_float4(1, 1, 1, 1);
}

/* Stores numbers k .. k + 3 of a row of n halves. */
__device__ __forceinline__ void store_four(__half *to, float4 v, int k, int n) {
  const __half four[4] = {clamp_half(v.x), clamp_half(v.y), clamp_half(v.z), clamp_half(v.w)};
  if (k + 4 <= n) {
    const __half2 low = __halves2half2(four[0], four[1]), high = __halves2half2(four[2], four[3]);
    *(uint2 *)(to + k) = make_uint2(*(const uint32_t *)&low, *(const uint32_t *)&high);
    return;
  }
  for (int i = 0; k + i < n; i++) to[k + i] = four[i];
}

/* logit_of(): an expert's logit; sum: the product of its row and a token. shared_factor_of(): the shared
 * expert's factor; sum: the product of its gate and a token. */
__device__ __forceinline__ float logit_of(const Args &a, int e, float sum) {
  return sum * a.router_factor + (a.router.bias ? a.router.bias[e] : 0.0f);
}
__device__ __forceinline__ void store_logit(const Args &a, int token, int e, float sum) {
  a.to.logits[(size_t)token * a.config.n_experts + e] = logit_of(a, e, sum);
}
__device__ __forceinline__ float shared_factor_of(const Args &a, float sum) {
  return 1 / (1 + expf(-(sum + (a.shared_gate.bias ? a.shared_gate.bias[0] : 0.0f))));
}
__device__ __forceinline__ void store_shared_factor(const Args &a, int token, float sum) {
  a.to.shared_factors[token] = shared_factor_of(a, sum);
}

/* Counts this block, whose results are written. True for all threads of the last of `n_blocks` blocks to
 * arrive. */
__device__ __forceinline__ bool is_last_block(unsigned *counter, unsigned n_blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = count_up(counter) == n_blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  return last;
}

/* Calls work() with a value of the type of the shared gate's weights. */
template <class Work> __device__ __forceinline__ void with_gate_type(const Args &a, Work work) {
  if (a.shared_gate.type == WEIGHT_F16)
    work(__half());
  else if (a.shared_gate.type == WEIGHT_BF16)
    work(__nv_bfloat16());
  else
    work(float());
}

/* Group-limited routing. Keeps the n_chosen_groups groups whose two best experts have the largest sum of
 * fitness (judge(); DeepSeek-V3). With group_is_best it keeps the groups whose best expert is the fittest
 * (V2). Sets the fitness in other groups to -inf. Called by a whole warp. */
__device__ __forceinline__ void choose_groups(const ExpertConfig &c, float *fitness) {
  const int lane = threadIdx.x % 32, size = c.n_experts / c.n_groups;
  for (int left = c.n_groups - c.n_chosen_groups; left > 0; left--) { /* removes the worst remaining group */
    float worst = INFINITY;
    int which = -1;
    for (int g = lane; g < c.n_groups; g += 32) {
      float first = -INFINITY, second = -INFINITY;
      for (int i = 0; i < size; i++) {
        const float v = fitness[g * size + i];
        if (v > first)
          second = first, first = v;
        else if (v > second)
          second = v;
      }
      const float good = size > 1 && !c.group_is_best ? first + second : first;
      if (good > -INFINITY && good <= worst) worst = good, which = g;
    }
    const uint32_t least = ~warp_most(which >= 0 ? ~ordered(worst) : 0);
    const uint32_t last = warp_most(which >= 0 && ordered(worst) == least ? which + 1 : 0);
    for (int i = lane; last > 0 && i < size; i += 32) fitness[(last - 1) * size + i] = -INFINITY;
    __syncwarp();
  }
}

/* Floats of shared memory in which a warp chooses for a token: scores, fitness, the list of best_of(). */
__host__ __device__ constexpr int choice_floats(int n_experts) {
  const int padded = (n_experts + 3) / 4 * 4, list = best_of_words(n_experts);
  return 2 * padded + (list + 3) / 4 * 4;
}

/* Fills scores[n_experts] and fitness[n_experts] of a token's experts from their logit(e). Scores are softmax
 * or sigmoid of the logits; from SCORE_CHOSEN on, the logits themselves. Fitness is the score plus the
 * expert's bias, if it has one; it decides the choice. Returns the largest logit. For a warp. */
template <class Logit>
__device__ __forceinline__ float judge(const Args &a, Logit logit, float *scores, float *fitness) {
  const ExpertConfig &c = a.config;
  const int n = c.n_experts, lane = threadIdx.x % 32;
  float top = -INFINITY, all = 0;
#pragma unroll 4
  for (int e = lane; e < n; e += 32) scores[e] = logit(e), top = fmaxf(top, scores[e]);
  top = lanes_max<16, 8, 4, 2, 1>(top);
#pragma unroll 2
  for (int e = lane; e < n && c.score < SCORE_CHOSEN; e += 32) {
    scores[e] = c.score == SCORE_SIGMOID ? 1 / (1 + expf(-scores[e])) : expf(scores[e] - top);
    all += scores[e];
  }
  const float by = c.score == SCORE_SOFTMAX ? 1 / warp_sum(all) : 1;
#pragma unroll 2
  for (int e = lane; e < n; e += 32) {
    scores[e] *= by;
    fitness[e] = scores[e] + (a.choice_bias ? a.choice_bias[e] : 0.0f);
  }
  __syncwarp();
  return top;
}

/* SCORE_CHOSEN_NEAR (base/arithmetic.h): the weight of the chosen expert ids[lane]. `scores` are logits;
 * the logits of chosen experts become -inf. For a warp. */
__device__ __forceinline__ float share_among_near(const ExpertConfig &c, const int *ids, float *scores) {
  const int lane = threadIdx.x % 32;
  float own = 0;
  for (int rank = 0; rank < c.n_chosen; rank++) {
    const float top = scores[ids[rank]];
    float sum = 0;
    for (int e = lane; e < c.n_experts; e += 32) {
      const float v = scores[e];
      if (v > -INFINITY && !((top - v) / fmaxf(fabsf(v), top) > (float)c.near)) sum += expf(v - top);
    }
    sum = warp_sum(sum);
    if (lane == rank) own = 1 / sum;
    if (lane == 0) scores[ids[rank]] = -INFINITY;
    __syncwarp();
  }
  return own;
}

/* Chooses a token's experts by their logit(e). room: [choice_floats()] in shared memory. shared_factor: the
 * sigmoid of the shared expert's gate, or 1. For a warp. */
template <class Logit>
__device__ __forceinline__ void choose(const Args &a, int token, float *room, Logit logit,
                                       float shared_factor) {
  const ExpertConfig &c = a.config;
  const int n = c.n_experts, padded = (n + 3) / 4 * 4, lane = threadIdx.x % 32;
  const int n_choices = c.n_chosen + a.joined, to = token * n_choices;
  float *scores = room, *fitness = scores + padded;
  const float top = judge(a, logit, scores, fitness);
  if (c.n_chosen_groups < c.n_groups) choose_groups(c, fitness);
  const auto key = [&](int i) { return 32 * i + lane < n ? ordered(fitness[32 * i + lane]) : 0; };
  int *ids = (int *)fitness; /* free once the best are listed */
  best_of<2>(c.n_chosen, (n + 31) / 32, key, (uint2 *)(fitness + padded),
             [&](int rank, int e) { a.to.ids[to + rank] = e, ids[rank] = e; });
  const bool chosen = lane < c.n_chosen;
  const int id = chosen ? ids[lane] : 0;
  float own = chosen ? scores[id] : 0.0f;
  if (c.score == SCORE_CHOSEN) own = chosen ? expf(own - top) : 0.0f;
  if (c.score == SCORE_CHOSEN_SIGMOID) own = chosen ? 1 / (1 + expf(-own)) : 0.0f;
  if (c.score == SCORE_CHOSEN_NEAR) own = share_among_near(c, ids, scores);
  if (c.renormalise || c.score == SCORE_CHOSEN) own /= warp_sum(own) + (float)c.sum_plus;
  if (chosen) {
    a.to.weights[to + lane] = own * (float)c.scale * (a.scales ? a.scales[id] : 1.0f);
  } else if (lane < n_choices) {
    a.to.ids[to + lane] = n;
    a.to.weights[to + lane] = c.shared_output == SHARED_HALVED ? shared_factor / 2 : shared_factor;
  }
  if (c.shared_output == SHARED_HALVED && lane == 0) a.to.shared_factors[token] = shared_factor / 2;
}

/* choose() by the logits and the shared expert's factor in a.to. */
__device__ __forceinline__ void choose_of_stored(const Args &a, int token, float *room) {
  const float *const logits = a.to.logits + (size_t)token * a.config.n_experts;
  choose(
      a, token, room, [&](int e) { return __ldcg(logits + e); },
      a.shared_gate.data ? __ldcg(a.to.shared_factors + token) : 1.0f);
}

/* router_token.cu: token_applies() is true if it takes the call, launch_token() launches it. arch: the
 * chip's compute capability, as SM() numbers it. */
bool token_applies(const Args &a);
Status launch_token(const Args &a, int arch, cudaStream_t stream, Error *err);

/* router_tiles.cu: tiles_apply() is true if it can take the call, with at most shared_bytes of shared memory;
 * launch_tiles() launches it. A token's bits do not depend on the number of tokens. From kTilesLeastTokens
 * tokens on this kernel is the fastest. */
constexpr int kTilesLeastTokens = 33;
bool tiles_apply(const Args &a, size_t shared_bytes);
Status launch_tiles(const Args &a, int n_sms, cudaStream_t stream, Error *err);

} // namespace router
