/* router.cu - which experts a token takes, and what each counts.
 *
 * A block has up to 8 tokens and some of the experts; it normalises its tokens itself. The last block of
 * the tokens to finish chooses for them, its threads divided among them: each counts how many experts are
 * better than one. One token has a block for 8 experts, so that the
 * router's weights are read by many SMs; many tokens have few blocks each, which read the weights once for
 * 8 tokens.
 * READS  the router once for 8 tokens, x once for each block of a token. */
#include "cuda/experts/experts.h"
#include "cuda/linear/eight.cuh"
#include "cuda/ops/elementwise.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kPad = 256; /* inputs of a warp at once */
constexpr int kTargetBlocks = 128, kDeep = 8;                 /* loads of a row that a lane has under way */

/* A dense matrix, by rows. */
struct Rows {
  const void *data;
  size_t stride;
  WeightType type;
  const float *bias;
};

struct Args {
  int n_tokens, hidden, padded; /* hidden rounded up to kPad */
  float eps, x_factor, router_factor;
  const float *x, *norm, *experts_norm, *router_scale;
  __half *h, *experts_h;
  int h_stride;
  Rows router, shared_gate;
  ExpertConfig config;
  const float *choice_bias, *scales;
  ExpertChoices to;
  int block_experts; /* of each block */
  bool joined;       /* Router */
};

/* Sums over the block of one number for each of kTokens tokens. */
template <int kTokens> __device__ __forceinline__ void block_sums(float (&sum)[kTokens]) {
  __shared__ float parts[kWarps][kTokens];
#pragma unroll
  for (int m = 0; m < kTokens; m++) {
    sum[m] = warp_sum(sum[m]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][m] = sum[m];
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kTokens; m++) {
    sum[m] = 0;
    for (int w = 0; w < kWarps; w++) sum[m] += parts[w][m];
  }
}

/* Fills x[kTokens][padded] in shared memory with the router's input, and by the first block of the tokens
 * h. */
template <int kTokens> __device__ __forceinline__ void normalise(const Args &a, int token0, float *x) {
  float inverse[kTokens] = {};
#pragma unroll
  for (int m = 0; m < kTokens; m++) {
    const float *from = a.x + (size_t)(token0 + m) * a.hidden;
    const bool inside = token0 + m < a.n_tokens;
#pragma unroll 8
    for (int i = threadIdx.x; i < a.padded; i += kThreads) {
      const float v = inside && i < a.hidden ? __ldcg(from + i) : 0.0f;
      x[m * a.padded + i] = v;
      inverse[m] += v * v;
    }
  }
  block_sums<kTokens>(inverse);
  const float *by = a.router_scale ? a.router_scale : a.norm;
#pragma unroll
  for (int m = 0; m < kTokens; m++) {
    const float factor = a.norm || a.router_scale ? rsqrtf(inverse[m] / (float)a.hidden + a.eps) : a.x_factor;
    const size_t to = (size_t)(token0 + m) * a.h_stride;
    const bool first = blockIdx.x == 0 && token0 + m < a.n_tokens;
#pragma unroll 4
    for (int i = threadIdx.x; i < a.hidden; i += kThreads) {
      const float v = x[m * a.padded + i] * factor;
      if (first) a.h[to + i] = clamp_half(a.norm ? v * a.norm[i] : v);
      if (first && a.experts_norm) a.experts_h[to + i] = clamp_half(v * a.experts_norm[i]);
      x[m * a.padded + i] = by ? v * by[i] : v;
    }
  }
  __syncthreads();
}

/* A lane's weights of up to kDeep * kPad inputs of a row, in registers. */
template <class T> struct RowPart {
  Eight<T> v[kDeep];

  __device__ __forceinline__ void load(const Rows &w, int row, int k0, int padded) {
#pragma unroll
    for (int i = 0; i < kDeep; i++) {
      const int k = k0 + i * kPad + (int)threadIdx.x % 32 * 8;
      v[i].load((const T *)w.data + (size_t)row * w.stride + k, k < padded && k < (int)w.stride);
    }
  }
};

/* Products of a row of T with the tokens' x, in each lane. `part` holds the row's first inputs. */
template <class T, int kTokens>
__device__ __forceinline__ void multiply_row(const Rows &w, int row, const float *x, int padded,
                                             RowPart<T> &part, float (&sum)[kTokens]) {
#pragma unroll
  for (int m = 0; m < kTokens; m++) sum[m] = 0;
  for (int k0 = 0; k0 < padded; k0 += kDeep * kPad) {
    if (k0 > 0) part.load(w, row, k0, padded);
#pragma unroll
    for (int i = 0; i < kDeep; i++) {
      const int k = k0 + i * kPad + (int)threadIdx.x % 32 * 8;
      if (k0 + i * kPad >= padded) break;
      float v[8];
      part.v[i].floats(v);
#pragma unroll
      for (int m = 0; m < kTokens; m++) {
        const float4 low = *(const float4 *)(x + m * padded + k),
                     high = *(const float4 *)(x + m * padded + k + 4);
        sum[m] += v[0] * low.x + v[1] * low.y + v[2] * low.z + v[3] * low.w + v[4] * high.x + v[5] * high.y +
                  v[6] * high.z + v[7] * high.w;
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTokens; m++) sum[m] = warp_sum(sum[m]);
}

/* The factor of the MLP beside the experts: the gate is a row after the experts'. */
template <class T, int kTokens>
__device__ __forceinline__ void multiply_shared(const Args &a, int token0, const float *x) {
  float sum[kTokens];
  RowPart<T> part;
  const Rows &w = a.shared_gate;
  part.load(w, 0, 0, a.padded);
  multiply_row<T, kTokens>(w, 0, x, a.padded, part, sum);
#pragma unroll
  for (int m = 0; m < kTokens; m++)
    if (threadIdx.x % 32 == 0 && token0 + m < a.n_tokens)
      a.to.shared_factors[token0 + m] = 1 / (1 + expf(-(sum[m] + (w.bias ? w.bias[0] : 0.0f))));
}

/* A float's bits in the order of numbers. */
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ uint32_t warp_most(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, v);
#else
  for (int o = 16; o; o /= 2) v = max(v, __shfl_xor_sync(~0u, v, o));
  return v;
#endif
}

/* Makes all but the best groups unfit. A group is as good as the sum of its two best. For a warp. */
__device__ __forceinline__ void choose_groups(const ExpertConfig &c, float *fitness) {
  const int lane = threadIdx.x % 32, size = c.n_experts / c.n_groups;
  for (int left = c.n_groups - c.n_chosen_groups; left > 0; left--) { /* removes the worst that is left */
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
      const float good = size > 1 ? first + second : first;
      if (good > -INFINITY && good <= worst) worst = good, which = g;
    }
    const uint32_t least = ~warp_most(which >= 0 ? ~ordered(worst) : 0);
    const uint32_t last = warp_most(which >= 0 && ordered(worst) == least ? which + 1 : 0);
    for (int i = lane; last > 0 && i < size; i += 32) fitness[(last - 1) * size + i] = -INFINITY;
    __syncwarp();
  }
}

/* Threads that choose for one token, all of the same block; the others choose for other tokens. */
template <int kTokens> struct Team {
  static constexpr int kSize = kThreads / kTokens, kTeamWarps = kSize / 32;

  static __device__ __forceinline__ int number() { return threadIdx.x / kSize; }
  static __device__ __forceinline__ int member() { return threadIdx.x % kSize; }

  /* Combines a number of each warp (of all its lanes) by `work`. For all threads of the block. */
  template <class Work> static __device__ __forceinline__ float combine(float of_warp, Work work) {
    __shared__ float parts[kWarps];
    if (kTeamWarps == 1) return of_warp;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = of_warp;
    __syncthreads();
    float all = parts[number() * kTeamWarps];
    for (int w = 1; w < kTeamWarps; w++) all = work(all, parts[number() * kTeamWarps + w]);
    return all;
  }
};

/* The number of experts before e in the order of choice: those of greater fitness, and of equal ones those
 * with smaller numbers. fitness: [n_fours] vectors of ordered() numbers
 * below ~0. */
__device__ __forceinline__ int rank_of(const uint4 *fitness, int n_fours, int e) {
  const uint32_t own = ((const uint32_t *)fitness)[e];
  int rank = 0;
#pragma unroll 4
  for (int i = 0; i < n_fours; i++) {
    const uint4 v = fitness[i];
    const uint32_t least = i < e / 4 ? own : own + 1;
    rank += (v.x >= least) + (v.y >= least) + (v.z >= least) + (v.w >= least);
  }
  for (int i = e & ~3; i < e; i++) rank += ((const uint32_t *)fitness)[i] == own;
  return rank;
}

/* Chooses for a token of each team. room: [kTokens][2][n_experts rounded up to 4] in shared memory. For all
 * threads of the block. */
template <int kTokens> __device__ __forceinline__ void choose(const Args &a, int token0, float *room) {
  using Own = Team<kTokens>;
  __shared__ float picked[kTokens][LINEAR_MAX_CHOSEN]; /* the best experts' scores, and their ids */
  __shared__ int picked_ids[kTokens][LINEAR_MAX_CHOSEN];
  const ExpertConfig &c = a.config;
  const int n = c.n_experts, n_fours = (n + 3) / 4, me = Own::member(), team = Own::number(),
            token = min(token0 + team, a.n_tokens - 1);
  float *scores = room + (size_t)team * 8 * n_fours, *fitness = scores + 4 * n_fours;
  const float *logits = a.to.logits + (size_t)token * n;
  float top = -INFINITY, all = 0;
  for (int e = me; e < n; e += Own::kSize) {
    scores[e] = __ldcg(logits + e);
    top = fmaxf(top, scores[e]);
  }
  top = Own::combine(lanes_max<16, 8, 4, 2, 1>(top), [](float x, float y) { return fmaxf(x, y); });
  if (c.score != SCORE_CHOSEN)
    for (int e = me; e < n; e += Own::kSize) {
      scores[e] = c.score == SCORE_SIGMOID ? 1 / (1 + expf(-scores[e])) : expf(scores[e] - top);
      all += scores[e];
    }
  if (c.score == SCORE_SOFTMAX) {
    all = Own::combine(warp_sum(all), [](float x, float y) { return x + y; });
    for (int e = me; e < n; e += Own::kSize) scores[e] /= all;
  }
  for (int e = me; e < 4 * n_fours; e += Own::kSize)
    fitness[e] = e < n ? scores[e] + (a.choice_bias ? a.choice_bias[e] : 0.0f) : -INFINITY;
  __syncthreads();
  if (c.n_chosen_groups < c.n_groups) {
    if (me < 32) choose_groups(c, fitness);
    __syncthreads();
  }
  for (int e = me; e < 4 * n_fours; e += Own::kSize)
    ((uint32_t *)fitness)[e] = e < n ? min(ordered(fitness[e]), ~1u) : 0; /* NaN, too, is below ~0 */
  __syncthreads();
  for (int e = me; e < n; e += Own::kSize) {
    const int rank = rank_of((const uint4 *)fitness, n_fours, e);
    if (rank < c.n_chosen) picked[team][rank] = scores[e], picked_ids[team][rank] = e;
  }
  __syncthreads();
  if (me >= 32 || token0 + team >= a.n_tokens) return;
  const bool chosen = me < c.n_chosen;
  const int id = chosen ? picked_ids[team][me] : 0;
  float own = chosen ? picked[team][me] : 0.0f;
  if (c.score == SCORE_CHOSEN) own = chosen ? expf(own - top) : 0.0f;
  if (c.renormalise || c.score == SCORE_CHOSEN) own /= warp_sum(chosen ? own : 0.0f) + (float)c.sum_plus;
  const int n_choices = c.n_chosen + a.joined, to = token * n_choices + me;
  if (chosen) {
    a.to.ids[to] = id;
    a.to.weights[to] = own * (float)c.scale * (a.scales ? a.scales[id] : 1.0f);
  } else if (me < n_choices) {
    a.to.ids[to] = n;
    a.to.weights[to] = a.shared_gate.data ? __ldcg(a.to.shared_factors + token) : 1.0f;
  }
}

template <class T, int kTokens>
__global__ void __launch_bounds__(kThreads) route_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) float x[];
  __shared__ bool last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token0 = blockIdx.y * kTokens,
            n_experts = a.config.n_experts, first = blockIdx.x * a.block_experts;
  const int end = min(first + a.block_experts, n_experts);
  int e = first + warp;
  RowPart<T> part;
  dependents_may_start();
  if (e < end) part.load(a.router, e, 0, a.padded); /* the router does not wait for the token */
  for (int i = threadIdx.x * 32; a.norm && i < a.hidden; i += kThreads * 32) prefetch_l1(a.norm + i);
  wait_for_previous();
  normalise<kTokens>(a, token0, x);
  while (e < end) {
    float sum[kTokens];
    multiply_row<T, kTokens>(a.router, e, x, a.padded, part, sum);
#pragma unroll
    for (int m = 0; m < kTokens; m++)
      if (lane == 0 && token0 + m < a.n_tokens)
        a.to.logits[(size_t)(token0 + m) * n_experts + e] =
            sum[m] * a.router_factor + (a.router.bias ? a.router.bias[e] : 0.0f);
    e += kWarps;
    if (e < end) part.load(a.router, e, 0, a.padded);
  }
  if (a.shared_gate.data && n_experts >= first && n_experts < first + a.block_experts &&
      warp == (n_experts - first) % kWarps) {
    if (a.shared_gate.type == WEIGHT_F16)
      multiply_shared<__half, kTokens>(a, token0, x);
    else if (a.shared_gate.type == WEIGHT_BF16)
      multiply_shared<__nv_bfloat16, kTokens>(a, token0, x);
    else
      multiply_shared<float, kTokens>(a, token0, x);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    last = count_up(a.to.counters + blockIdx.y) == gridDim.x - 1;
    if (last) a.to.counters[blockIdx.y] = 0;
  }
  __syncthreads();
  if (!last) return;
  choose<kTokens>(a, token0, x + (size_t)kTokens * a.padded);
}

Rows rows_of(const DeviceLinear *w) {
  if (!w) return {};
  return {w->dense, w->stride, w->type, w->bias};
}

/* Shared memory of a block with `tokens` tokens. */
size_t block_bytes(const Args &a, int tokens) {
  return (size_t)tokens * (size_t)(a.padded + 8 * ceil_div(a.config.n_experts, 4)) * sizeof(float);
}

template <int kTokens> Status launch_tokens(Args a, cudaStream_t stream, Error *err) {
  const int groups = ceil_div(a.n_tokens, kTokens), n = a.config.n_experts;
  const int blocks = groups < kTargetBlocks ? kTargetBlocks / groups : 1;
  a.block_experts = (int)align_up((size_t)ceil_div(n, blocks), kWarps);
  const int n_rows = n + (a.shared_gate.data ? 1 : 0);
  const dim3 grid((unsigned)ceil_div(n_rows, a.block_experts), (unsigned)groups);
  const auto run = [&](auto kernel) {
    return launch(kernel, grid, kThreads, block_bytes(a, kTokens), stream, true, "router", err, a);
  };
  return a.router.type == WEIGHT_F16    ? run(route_kernel<__half, kTokens>)
         : a.router.type == WEIGHT_BF16 ? run(route_kernel<__nv_bfloat16, kTokens>)
                                        : run(route_kernel<float, kTokens>);
}

} // namespace

Status experts_route(const Router *r, int n_tokens, size_t shared_bytes, cudaStream_t stream, Error *err) {
  Args a = {};
  a.n_tokens = n_tokens;
  a.hidden = r->hidden;
  a.padded = (int)align_up((size_t)r->hidden, kPad);
  a.eps = r->eps;
  a.x_factor = r->x_factor;
  a.router_factor = r->router_scale ? 1 / sqrtf((float)r->hidden) : 1.0f;
  a.x = r->x, a.norm = r->norm, a.experts_norm = r->experts_norm, a.router_scale = r->router_scale;
  a.h = (__half *)r->h, a.experts_h = (__half *)r->experts_h, a.h_stride = r->h_stride;
  a.router = rows_of(r->router), a.shared_gate = rows_of(r->shared_gate);
  a.config = *r->config;
  a.choice_bias = r->choice_bias, a.scales = r->scales;
  a.joined = r->joined;
  a.to = r->to;
  constexpr size_t kStatic = 3072;
  if (n_tokens >= 8 && block_bytes(a, 8) + kStatic <= shared_bytes) return launch_tokens<8>(a, stream, err);
  if (n_tokens >= 2 && block_bytes(a, 2) + kStatic <= shared_bytes) return launch_tokens<2>(a, stream, err);
  return launch_tokens<1>(a, stream, err);
}
