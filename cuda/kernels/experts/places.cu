/* places.cu - the rows of chosen experts: their memory, their order by experts, and the sums of their
 * results. LinearExperts (linear.h) says what choices and places are. */
#include <type_traits>

#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kOrderThreads = 512;

/* A block finds the places of one expert. A warp counts its part of the choices, 32 at once. A lane keeps up
 * to kKept ids in registers; if it has more, the second pass loads all of them again. */
__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(const int *ids, const float *weights, int n, int *begins, int *choices, int *places,
                 float *place_weights) {
  constexpr int kWarps = kOrderThreads / 32, kKept = 16;
  __shared__ int sums[2][kWarps];
  const int e = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int share = (n + kOrderThreads - 1) / kOrderThreads * 32, from = min(warp * share, n),
            to = min(from + share, n);
  int id[kKept];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kKept; i++) {
      const int choice = first + 32 * i + lane;
      id[i] = choice < to ? __ldcg(ids + choice) : 0x7fffffff;
    }
  };
  begin_overlapping();
  int less = 0, own = 0;
  for (int first = from; first < to; first += 32 * kKept) {
    load(first);
#pragma unroll
    for (int i = 0; i < kKept; i++) {
      if (first + 32 * i >= to) break;
      less += __popc(__ballot_sync(~0u, id[i] < e));
      own += __popc(__ballot_sync(~0u, id[i] == e));
    }
  }
  if (lane == 0) sums[0][warp] = own, sums[1][warp] = less;
  __syncthreads();
  int begin = 0, before = 0;
  for (int w = 0; w < kWarps; w++) {
    begin += sums[1][w];
    if (w < warp) before += sums[0][w];
  }
  if (threadIdx.x == 0) begins[e] = begin;
  if (threadIdx.x == 0 && e == (int)gridDim.x - 1) begins[e + 1] = n;
  for (int first = from; first < to; first += 32 * kKept) {
    if (share > 32 * kKept) load(first);
#pragma unroll
    for (int i = 0; i < kKept; i++) {
      if (first + 32 * i >= to) break;
      const uint32_t all = __ballot_sync(~0u, id[i] == e);
      if (id[i] == e) {
        const int choice = first + 32 * i + lane, place = begin + before + __popc(all & ((1u << lane) - 1));
        choices[place] = choice;
        places[choice] = place;
        place_weights[place] = weights[choice];
      }
      before += __popc(all);
    }
  }
}

__global__ void gather_kernel(const int *choices, int n_chosen, const uint4 *from, int vectors, uint4 *to) {
  begin_overlapping();
  const int place = blockIdx.x;
  from += (size_t)(choices[place] / n_chosen) * vectors, to += (size_t)place * vectors;
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) to[i] = __ldcg(from + i);
}

constexpr int kScaleThreads = 256;

/* A block scales one token. */
__global__ void __launch_bounds__(kScaleThreads)
    scale_input_kernel(float *weights, const __half2 *h, int n, __half2 *to) {
  begin_overlapping();
  const float weight = weights[blockIdx.x];
  for (int i = threadIdx.x; i < n; i += kScaleThreads) {
    const float2 pair = __half22float2(h[(size_t)blockIdx.x * n + i]);
    to[(size_t)blockIdx.x * n + i] = __floats2half2_rn(weight * pair.x, weight * pair.y);
  }
  __syncthreads();
  if (threadIdx.x == 0) weights[blockIdx.x] = 1;
}

__device__ __forceinline__ float plus(float a, float b) {
  return a + b;
}
__device__ __forceinline__ float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* sum[c] += numbers first + c * step of a token's rows of y, in the order of its choices. A row has `width`
 * numbers; a sum whose number is past the row means nothing. kAtOnce rows are loaded at once. ptxas gives a
 * kernel registers for that only if its __launch_bounds__ has a least number of blocks. */
template <int kAtOnce, class T, int kEach>
__device__ __forceinline__ void add_choices(const int *places, int n_chosen, const T *y, int width, int first,
                                            int step, T (&sum)[kEach]) {
  for (; n_chosen >= kAtOnce; n_chosen -= kAtOnce, places += kAtOnce) {
    T v[kAtOnce][kEach];
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      const T *const from = y + (size_t)__ldcg(places + j) * width;
#pragma unroll
      for (int c = 0; c < kEach; c++) v[j][c] = __ldcg(from + min(first + c * step, width - 1));
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; j++)
#pragma unroll
      for (int c = 0; c < kEach; c++) sum[c] = plus(sum[c], v[j][c]);
  }
  if constexpr (kAtOnce > 1) add_choices<kAtOnce / 2>(places, n_chosen, y, width, first, step, sum);
}

constexpr int kSumThreads = 256;

/* T: float or float4; a row has n of them. */
template <class T>
__global__ void __launch_bounds__(kSumThreads, 1024 / kSumThreads)
    sum_kernel(const int *places, int n_chosen, const T *y, int n, bool add, T *out) {
  const int i = blockIdx.x * kSumThreads + threadIdx.x, token = blockIdx.y;
  begin_overlapping();
  if (i >= n) return;
  T sum[1] = {}, *const to = out + (size_t)token * n + i;
  const T before = add ? *to : T{};
  add_choices<8>(places + token * n_chosen, n_chosen, y, n, i, 0, sum);
  *to = plus(before, sum[0]);
}

/* Most outputs of a row that sum_norm_kernel() sums: two groups of four a thread. */
constexpr int kSummedThreads = 512, kMostSummed = 4 * kSummedThreads * 2;

/* A block sums the rows of one token, as sum_kernel() does, and normalises the result, as ops_rms_norm()
 * does. n % 4 == 0, n <= 4 * kSummedThreads * kFours. */
template <int kFours>
__global__ void __launch_bounds__(kSummedThreads, 1024 / kSummedThreads)
    sum_norm_kernel(const int *places, int n_chosen, const float4 *y, int n, bool add, float4 *out,
                    SumNorm next) {
  const int fours = n / 4, token = blockIdx.x;
  float4 w[kFours], sum[kFours] = {}, before[kFours] = {};
  dependents_may_start();
#pragma unroll
  for (int c = 0; c < kFours; c++) {
    const int i = c * kSummedThreads + (int)threadIdx.x;
    w[c] = i < fours ? __ldg((const float4 *)next.weight + i) : make_float4(0, 0, 0, 0);
  }
  wait_for_previous();
  out += (size_t)token * fours;
#pragma unroll
  for (int c = 0; c < kFours; c++) {
    const int i = c * kSummedThreads + (int)threadIdx.x;
    if (add && i < fours) before[c] = out[i];
  }
  add_choices<8 / kFours>(places + token * n_chosen, n_chosen, y, fours, (int)threadIdx.x, kSummedThreads,
                          sum);
  float squares = 0;
#pragma unroll
  for (int c = 0; c < kFours; c++) {
    const int i = c * kSummedThreads + (int)threadIdx.x;
    if (i >= fours) continue;
    const float4 v = sum[c] = plus(before[c], sum[c]);
    out[i] = v;
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float scale = rsqrtf(block_sum<kSummedThreads>(squares) / n + next.eps);
  __half *const h = (__half *)next.out + (size_t)token * next.out_stride;
#pragma unroll
  for (int c = 0; c < kFours; c++) {
    const int i = c * kSummedThreads + (int)threadIdx.x;
    if (i >= fours) continue;
    const __half2 pair[2] = {__floats2half2_rn(sum[c].x * scale * w[c].x, sum[c].y * scale * w[c].y),
                             __floats2half2_rn(sum[c].z * scale * w[c].z, sum[c].w * scale * w[c].w)};
    *(uint2 *)(h + 4 * i) = *(const uint2 *)pair;
  }
}

constexpr int kNormThreads = 512;

/* Sums a and b over the block; each thread gets both sums. */
__device__ __forceinline__ float2 block_sums(float a, float b) {
  __shared__ float2 parts[kNormThreads / 32];
  a = warp_sum(a), b = warp_sum(b);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float2(a, b);
  __syncthreads();
  float2 sum = make_float2(0, 0);
  for (const float2 &part : parts) sum.x += part.x, sum.y += part.y;
  return sum;
}

/* A block adds the normalised results of one token. */
__global__ void __launch_bounds__(kNormThreads)
    add_norms_kernel(float *a, const float *a_weight, const float *b, const float *b_weight, float eps,
                     int n) {
  begin_overlapping();
  a += (size_t)blockIdx.x * n;
  if (b) b += (size_t)blockIdx.x * n;
  float squares[2] = {0, 0};
  for (int i = threadIdx.x; i < n; i += kNormThreads) {
    squares[0] += a[i] * a[i];
    if (b) squares[1] += b[i] * b[i];
  }
  const float2 sum = block_sums(squares[0], squares[1]);
  const float by_a = rsqrtf(sum.x / (float)n + eps), by_b = rsqrtf(sum.y / (float)n + eps);
  for (int i = threadIdx.x; i < n; i += kNormThreads)
    a[i] = a[i] * by_a * a_weight[i] + (b ? b[i] * by_b * b_weight[i] : 0.0f);
}

} // namespace

size_t experts_choices_bytes(const ExpertConfig *config, int n_tokens) {
  const size_t tokens = (size_t)n_tokens, n = tokens * (size_t)config->n_chosen;
  return align_up(tokens * (size_t)config->n_experts * 4) + 5 * align_up(n * 4) + 2 * align_up(tokens * 4) +
         align_up((size_t)(config->n_experts + 1) * 4);
}

void experts_place_choices(ExpertChoices *c, const ExpertConfig *config, int n_tokens, void *memory) {
  const size_t tokens = (size_t)n_tokens, n = tokens * (size_t)config->n_chosen;
  char *at = (char *)memory;
  const auto take = [&](auto *&to, size_t numbers) {
    to = (std::remove_reference_t<decltype(to)>)at;
    at += align_up(numbers * 4);
  };
  take(c->logits, tokens * (size_t)config->n_experts);
  take(c->ids, n);
  take(c->weights, n);
  take(c->choices, n);
  take(c->places, n);
  take(c->place_weights, n);
  take(c->shared_factors, tokens);
  take(c->counters, tokens);
  take(c->begins, (size_t)config->n_experts + 1);
}

Status experts_scale_input(const ExpertChoices *choices, const void *h, int stride, int n_tokens, void *to,
                           cudaStream_t stream, Error *err) {
  return launch(scale_input_kernel, dim3((unsigned)n_tokens), kScaleThreads, 0, stream, true,
                "scaled input of experts", err, choices->weights, (const __half2 *)h, stride / 2,
                (__half2 *)to);
}

Status experts_order(const ExpertConfig *config, const ExpertChoices *to, int n_tokens, cudaStream_t stream,
                     Error *err) {
  return launch(order_kernel, dim3((unsigned)config->n_experts), kOrderThreads, 0, stream, true,
                "order of rows", err, to->ids, to->weights, n_tokens * config->n_chosen, to->begins,
                to->choices, to->places, to->place_weights);
}

Status experts_gather(const ExpertChoices *choices, int n_chosen, const void *h, int stride, int n_tokens,
                      void *to, cudaStream_t stream, Error *err) {
  return launch(gather_kernel, dim3((unsigned)(n_tokens * n_chosen)), 256, 0, stream, true, "gathered rows",
                err, choices->choices, n_chosen, (const uint4 *)h, stride / 8, (uint4 *)to);
}

Status experts_sum(const ExpertChoices *choices, int n_chosen, const float *y, int n, int n_tokens, bool add,
                   float *out, const SumNorm *next, cudaStream_t stream, Error *err) {
  const bool fours = n % 4 == 0;
  if (next && fours && n <= kMostSummed)
    return launch(n <= kMostSummed / 2 ? sum_norm_kernel<1> : sum_norm_kernel<2>, dim3((unsigned)n_tokens),
                  kSummedThreads, 0, stream, true, "sum of experts", err, choices->places, n_chosen,
                  (const float4 *)y, n, add, (float4 *)out, *next);
  const auto sum = [&](auto kernel, auto *from, auto *to, int width) {
    return launch(kernel, dim3((unsigned)ceil_div(width, kSumThreads), (unsigned)n_tokens), kSumThreads, 0,
                  stream, true, "sum of experts", err, choices->places, n_chosen, from, width, add, to);
  };
  TRY(fours ? sum(sum_kernel<float4>, (const float4 *)y, (float4 *)out, n / 4)
            : sum(sum_kernel<float>, y, out, n));
  if (!next) return STATUS_OK;
  return ops_rms_norm(out, next->weight, next->eps, n, n_tokens, next->out, next->out_stride, stream, err);
}

Status experts_add_norms(float *a, const float *a_weight, const float *b, const float *b_weight, float eps,
                         int n, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(add_norms_kernel, dim3((unsigned)n_tokens), kNormThreads, 0, stream, true, "norms of experts",
                err, a, a_weight, b, b_weight, eps, n);
}
