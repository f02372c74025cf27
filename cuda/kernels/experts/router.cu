/* router.cu - the router of a mixture of experts: logits, scores, choice of the experts and their weights.
 *
 * A block has 8, 2 or 1 tokens and some of the experts. Among the blocks with the same tokens, the last to
 * finish chooses, a warp for each token.
 *
 * A block normalises its tokens into shared memory. A warp multiplies whole rows, one or four at a time: with
 * four, one read of a number of x serves four products. experts_route() takes this kernel for the calls that
 * router_token.cu and router_tiles.cu do not take.
 *
 * READS  the router once for a block's tokens, x once for each block of a token. */
#include "cuda/kernels/experts/router.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

using namespace router;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kTargetBlocks = 128, kManyTokens = 256; /* from kManyTokens tokens on, a block has 8 */

/* Four numbers of a row of n floats, from number i on; zeros from n on. Bypasses L1, which may still hold
 * older numbers. */
__device__ __forceinline__ float4 four_of(const float *row, int i, int n, bool aligned) {
  if (aligned) return i < n ? __ldcg((const float4 *)(row + i)) : make_float4(0, 0, 0, 0);
  return make_float4(i < n ? __ldcg(row + i) : 0, i + 1 < n ? __ldcg(row + i + 1) : 0,
                     i + 2 < n ? __ldcg(row + i + 2) : 0, i + 3 < n ? __ldcg(row + i + 3) : 0);
}

/* v times by[k .. k + 3], k a multiple of 4, with zeros for by[n] and later numbers. If `by` is NULL: v. */
__device__ __forceinline__ float4 times_weights(float4 v, const float *by, int k, int n) {
  if (!by) return v;
  if (k + 4 <= n) return times(v, weights_at(by, k));
  return make_float4(v.x * by[k], k + 1 < n ? v.y * by[k + 1] : 0, k + 2 < n ? v.z * by[k + 2] : 0, 0);
}

/* Fills x[kTokens][padded] in shared memory with the router's input. The first block of the tokens also
 * stores h and experts_h. kWarps / kTokens warps take a token; each warp takes 128 of every kStep inputs. */
template <int kTokens> __device__ __forceinline__ void normalise(const Args &a, int token0, float *shared) {
  constexpr int kShare = kWarps / kTokens, kStep = 128 * kShare;
  __shared__ float squares[kWarps];
  const int warp = threadIdx.x / 32, token = token0 + warp / kShare,
            k0 = warp % kShare * 128 + threadIdx.x % 32 * 4;
  const bool inside = token < a.n_tokens, aligned = a.hidden % 4 == 0, first = blockIdx.x == 0 && inside;
  const float *from = a.x + (size_t)min(token, a.n_tokens - 1) * a.hidden;
  float *x = shared + warp / kShare * a.padded, sum = 0;
#pragma unroll 8
  for (int k = k0; k < a.padded; k += kStep) {
    const float4 v = four_of(from, k, inside ? a.hidden : 0, aligned);
    *(float4 *)(x + k) = v;
    sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) squares[warp] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kShare; w++) sum += squares[warp / kShare * kShare + w];
  const float *by = a.router_scale ? a.router_scale : a.norm;
  const float factor = by ? rsqrtf(sum / (float)a.hidden + a.eps) : a.x_factor;
  const size_t to = (size_t)token * a.h_stride;
#pragma unroll 2
  for (int k = k0; k < a.hidden; k += kStep) {
    const float4 v = times(*(const float4 *)(x + k), factor);
    if (first) store_four(a.h + to, times_weights(v, a.norm, k, a.hidden), k, a.hidden);
    if (first && a.experts_norm)
      store_four(a.experts_h + to, times_weights(v, a.experts_norm, k, a.hidden), k, a.hidden);
    *(float4 *)(x + k) = times_weights(v, by, k, a.hidden);
  }
  __syncthreads();
}

/* A lane's weights, in registers: some inputs of kRows rows, which are kWarps rows apart. */
template <class T, int kRows> struct RowParts {
  static constexpr int kDeep = 8 / kRows; /* loads of a row under way */
  Eight<T> v[kRows][kDeep];
  const T *row[kRows];

  __device__ __forceinline__ void load(int i, int k, const Rows &w, int padded) {
#pragma unroll
    for (int r = 0; r < kRows; r++) v[r][i].load(row[r] + k, k < padded && k < (int)w.stride);
  }
  /* Loads the first inputs of rows first, first + kWarps, ...; of row `last` in place of rows after it. */
  __device__ __forceinline__ void begin(const Rows &w, int first, int last, int padded) {
#pragma unroll
    for (int r = 0; r < kRows; r++)
      row[r] = (const T *)w.data + (size_t)min(first + r * kWarps, last) * w.stride;
#pragma unroll
    for (int i = 0; i < kDeep; i++) load(i, i * kPad + (int)threadIdx.x % 32 * 8, w, padded);
  }
};

/* sum[r][m] = the product, summed over the warp, of row r of `parts` with token m's x. PRECOND parts.begin()
 * has run. */
template <class T, int kTokens, int kRows>
__device__ __forceinline__ void multiply_rows(const Rows &w, const float *x, int padded,
                                              RowParts<T, kRows> &parts, float (&sum)[kRows][kTokens]) {
  constexpr int kDeep = RowParts<T, kRows>::kDeep;
#pragma unroll
  for (int r = 0; r < kRows; r++)
#pragma unroll
    for (int m = 0; m < kTokens; m++) sum[r][m] = 0;
  for (int k0 = 0; k0 < padded; k0 += kDeep * kPad) {
#pragma unroll
    for (int i = 0; i < kDeep; i++) {
      const int k = k0 + i * kPad + (int)threadIdx.x % 32 * 8;
      if (k0 + i * kPad >= padded) break;
      float v[kRows][8];
#pragma unroll
      for (int r = 0; r < kRows; r++) parts.v[r][i].floats(v[r]);
      if (k0 + (kDeep + i) * kPad < padded) parts.load(i, k + kDeep * kPad, w, padded);
#pragma unroll
      for (int m = 0; m < kTokens; m++) {
        const float4 low = *(const float4 *)(x + m * padded + k),
                     high = *(const float4 *)(x + m * padded + k + 4);
#pragma unroll
        for (int r = 0; r < kRows; r++)
          sum[r][m] += v[r][0] * low.x + v[r][1] * low.y + v[r][2] * low.z + v[r][3] * low.w +
                       v[r][4] * high.x + v[r][5] * high.y + v[r][6] * high.z + v[r][7] * high.w;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; r++)
#pragma unroll
    for (int m = 0; m < kTokens; m++) sum[r][m] = warp_sum(sum[r][m]);
}

/* Computes the shared expert's factor. Its gate counts as the row of weights after the experts' rows. */
template <class T, int kTokens>
__device__ __forceinline__ void multiply_shared(const Args &a, int token0, const float *x) {
  float sum[1][kTokens];
  RowParts<T, 1> part;
  const Rows &w = a.shared_gate;
  part.begin(w, 0, 0, a.padded);
  multiply_rows<T, kTokens, 1>(w, x, a.padded, part, sum);
#pragma unroll
  for (int m = 0; m < kTokens; m++)
    if (threadIdx.x % 32 == 0 && token0 + m < a.n_tokens) store_shared_factor(a, token0 + m, sum[0][m]);
}

/* With 8 tokens registers are limited, so that two blocks fit an SM. Only multiply_shared() then spills, and
 * only one warp of one block calls it for these tokens. */
template <class T, int kTokens, int kRows>
__global__ void __launch_bounds__(kThreads, kTokens == 8 ? 2 : 1)
    route_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) float x[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token0 = blockIdx.y * kTokens,
            n_experts = a.config.n_experts, first = blockIdx.x * a.block_experts;
  const int end = min(first + a.block_experts, n_experts);
  int e = first + warp;
  RowParts<T, kRows> parts;
  dependents_may_start();
  if (e < end) parts.begin(a.router, e, end - 1, a.padded); /* weights do not depend on the previous kernel */
  for (int i = threadIdx.x * 32; a.norm && i < a.hidden; i += kThreads * 32) prefetch_l1(a.norm + i);
  wait_for_previous();
  normalise<kTokens>(a, token0, x);
  while (e < end) {
    float sum[kRows][kTokens];
    multiply_rows<T, kTokens, kRows>(a.router, x, a.padded, parts, sum);
#pragma unroll
    for (int r = 0; r < kRows; r++)
#pragma unroll
      for (int m = 0; m < kTokens; m++) {
        const int own = e + r * kWarps;
        if (lane == 0 && own < end && token0 + m < a.n_tokens) store_logit(a, token0 + m, own, sum[r][m]);
      }
    e += kRows * kWarps;
    if (e < end) parts.begin(a.router, e, end - 1, a.padded);
  }
  if (a.shared_gate.data && n_experts >= first && n_experts < first + a.block_experts &&
      warp == (n_experts - first) % kWarps)
    with_gate_type(a, [&](auto weight) { multiply_shared<decltype(weight), kTokens>(a, token0, x); });
  if (!is_last_block(a.to.counters + blockIdx.y, gridDim.x)) return;
  const int n_floats = choice_floats(n_experts);
  if (warp < kTokens && token0 + warp < a.n_tokens)
    choose_of_stored(a, token0 + warp, x + (size_t)kTokens * a.padded + (size_t)warp * n_floats);
}

Rows rows_of(const DeviceLinear *w) {
  if (!w) return {};
  return {w->dense, w->stride, w->type, w->bias};
}

/* Shared memory of a block with `tokens` tokens. */
size_t block_bytes(const Args &a, int tokens) {
  return (size_t)tokens * (size_t)(a.padded + choice_floats(a.config.n_experts)) * sizeof(float);
}

/* invariant: any number of tokens takes the same kernel, with the same number of experts a block. */
template <int kTokens> Status launch_tokens(Args a, bool invariant, cudaStream_t stream, Error *err) {
  const int groups = ceil_div(a.n_tokens, kTokens), n = a.config.n_experts;
  const int blocks = groups < kTargetBlocks ? kTargetBlocks / groups : 1;
  a.block_experts = invariant ? 4 * kWarps : (int)align_up((size_t)ceil_div(n, blocks), kWarps);
  const int n_rows = n + (a.shared_gate.data ? 1 : 0);
  const dim3 grid((unsigned)ceil_div(n_rows, a.block_experts), (unsigned)groups);
  const auto run = [&](auto one_row, auto four_rows) {
    return launch(a.block_experts > kWarps ? four_rows : one_row, grid, kThreads, block_bytes(a, kTokens),
                  stream, true, "router", err, a);
  };
  return a.router.type == WEIGHT_F16 ? run(route_kernel<__half, kTokens, 1>, route_kernel<__half, kTokens, 4>)
         : a.router.type == WEIGHT_BF16
             ? run(route_kernel<__nv_bfloat16, kTokens, 1>, route_kernel<__nv_bfloat16, kTokens, 4>)
             : run(route_kernel<float, kTokens, 1>, route_kernel<float, kTokens, 4>);
}

} // namespace

Status experts_route(const Router *r, int n_tokens, const DeviceLimits *device, cudaStream_t stream,
                     Error *err) {
  const size_t shared_bytes = device->shared_bytes;
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
  a.slices = r->slices, a.slice_floats = r->slice_floats;
  constexpr size_t kStatic = 3072;
  if (!r->same_on_all_gpus && (r->invariant || n_tokens >= kTilesLeastTokens) && tiles_apply(a, shared_bytes))
    return router::launch_tiles(a, device->n_sms, stream, err);
  if (!r->invariant && token_applies(a)) return launch_token(a, device->arch, stream, err);
  if ((r->invariant || n_tokens >= kManyTokens) && block_bytes(a, 8) + kStatic <= shared_bytes)
    return launch_tokens<8>(a, r->invariant, stream, err);
  if ((r->invariant || n_tokens >= 2) && block_bytes(a, 2) + kStatic <= shared_bytes)
    return launch_tokens<2>(a, r->invariant, stream, err);
  return launch_tokens<1>(a, r->invariant, stream, err);
}
