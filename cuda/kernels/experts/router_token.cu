/* router_token.cu - the router for few tokens: the experts of each token are divided among the blocks of a
 * cluster, whose first block chooses.
 *
 * A thread has the same inputs of all rows of its block: it loads its numbers of x once and shares none. It
 * requests weights before it waits for x. It multiplies before the norm is known, because 1 / rms is a factor
 * of the sums. The logits go into the first block's shared memory. The barrier `full` there has one phase: an
 * arrival of thread 0 before the cluster meets, and 4 bytes of each expert. The first warp waits for it. With
 * many experts and few tokens, and on chips without clusters, the blocks of a token are no cluster. Then the
 * logits go through device memory, and the last block to finish chooses.
 *
 * The order of the sums does not depend on the number of tokens, so a token's logits do not either.
 *
 * READS  the router once for each token, x once for each block of a token. */
#include "cuda/kernels/experts/router.cuh"
#include "cuda/kernels/linear/layout.cuh"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/early.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

using namespace router;

constexpr int kWarps = 16, kThreads = 32 * kWarps, kMostBlocks = 8; /* kMostBlocks: of a cluster */
/* A cluster multiplies kBatchOf rows per block in a turn. From sm_90 on, if up to kApartTokens tokens would
 * take more than kMostTurns turns, each token has up to kMostApart blocks instead, which are no cluster. */
constexpr int kMostTurns = 2, kMostApart = 64, kApartTokens = 4;
constexpr int kStep = 4 * kThreads; /* inputs of a part: four a thread */
constexpr int kMostParts = 4;
constexpr int kFewTokens = 32; /* with more the other kernels run (LOG.md, "The router of several tokens") */
constexpr int kBatchNumbers =
    64; /* weights of 16 bits that a thread holds of a batch of rows; or half as many floats */

/* Rows that a block multiplies at once. */
template <class T, int kParts> constexpr int kBatchOf = kBatchNumbers * 2 / ((int)sizeof(T) * 4 * kParts);

/* Four neighbouring weights of a row. */
template <class T> struct Four {
  std::conditional_t<sizeof(T) == 4, uint4, uint2> v;

  __device__ __forceinline__ void load(const T *from, bool inside) {
    v = {};
    if (inside) v = load_early((const decltype(v) *)from);
  }
  __device__ __forceinline__ float times(const float4 &x) const {
    const uint32_t *u = (const uint32_t *)&v;
    if constexpr (sizeof(T) == 4)
      return (__uint_as_float(u[0]) * x.x + __uint_as_float(u[1]) * x.y) +
             (__uint_as_float(u[2 % (sizeof v / 4)]) * x.z + __uint_as_float(u[3 % (sizeof v / 4)]) * x.w);
    else if constexpr (std::is_same<T, __nv_bfloat16>::value)
      return (__uint_as_float(u[0] << 16) * x.x + __uint_as_float(u[0] & 0xffff0000u) * x.y) +
             (__uint_as_float(u[1] << 16) * x.z + __uint_as_float(u[1] & 0xffff0000u) * x.w);
    else
      return (f16_low(u[0]) * x.x + f16_high(u[0]) * x.y) + (f16_low(u[1]) * x.z + f16_high(u[1]) * x.w);
  }
};

/* The factors of four numbers from k on: ones if `by` is NULL. */
__device__ __forceinline__ float4 factors_at(const float *by, int k, bool inside) {
  if (!by) return make_float4(1, 1, 1, 1);
  Four<float> four;
  four.load(by + k, inside);
  return *(const float4 *)&four.v;
}

/* The sum of parts[kWarps], one of each warp, in each of the 16 lanes that call it together. */
__device__ __forceinline__ float total_of(const float *parts) {
  static_assert(kWarps == 16, "a lane a part");
  return lanes_sum<8, 4, 2, 1>(parts[threadIdx.x % kWarps]);
}

/* The index in a row where the thread's four numbers of part `part` begin. */
__device__ __forceinline__ int number_of(int part) {
  return 4 * (int)threadIdx.x + part * kStep;
}

/* A thread's numbers of a token: as they are, and times the factors of the router's input. */
template <int kParts> struct Inputs {
  float4 raw[kParts], x[kParts];

  /* by: the factors. */
  __device__ __forceinline__ void load(const float *row, int n, const float4 (&by)[kParts]) {
#pragma unroll
    for (int part = 0; part < kParts; part++)
      raw[part] =
          number_of(part) < n ? __ldcg((const float4 *)(row + number_of(part))) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int part = 0; part < kParts; part++) x[part] = times(raw[part], by[part]);
  }
  __device__ __forceinline__ float squares() const {
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kParts; part++) {
      const float4 v = raw[part];
      sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
    }
    return sum;
  }
  /* Stores the thread's numbers of h, and of experts_h if the experts have their own norm: x times the norm's
   * factor and weights. */
  __device__ __forceinline__ void store_h(const Args &a, int token, float factor) const {
    const size_t to = (size_t)token * a.h_stride;
#pragma unroll
    for (int part = 0; part < kParts; part++) {
      const int k = number_of(part);
      if (k >= a.hidden) break;
      const float4 v = times(raw[part], factor);
      store_four(a.h + to, times(v, weights_at(a.norm, k)), k, a.hidden);
      if (a.experts_norm) store_four(a.experts_h + to, times(v, weights_at(a.experts_norm, k)), k, a.hidden);
    }
  }
};

/* A thread's numbers of a row of weights; zeros if there is no such row. */
template <class T, int kParts> struct Weights {
  Four<T> of[kParts];

  __device__ __forceinline__ void load(const Rows &rows, int row, int n, bool is_there) {
    const T *const from = (const T *)rows.data + (size_t)row * rows.stride;
#pragma unroll
    for (int part = 0; part < kParts; part++)
      of[part].load(from + number_of(part), is_there && number_of(part) < n);
  }
  __device__ __forceinline__ float product(const Inputs<kParts> &in) const {
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kParts; part++) sum += of[part].times(in.x[part]);
    return sum;
  }
};

/* kClusters: the blocks of a token are a cluster.
 * PRECOND  hidden % 4 == 0, hidden <= kParts * kStep; the shared gate, if there is one, is of type T. */
template <class T, int kParts, bool kClusters>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Args a) {
  constexpr int kBatch = kBatchOf<T, kParts>, kEach = 32 / kBatch; /* kEach: lanes with a row's sum */
  extern __shared__ __align__(16) float room[];                    /* for choose(), then logits */
  __shared__ float parts[2][kBatch][kWarps], squares[kWarps], gates[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_blocks = a.token_blocks,
            token = blockIdx.x / n_blocks, rank = blockIdx.x % n_blocks, n_experts = a.config.n_experts;
  const int first = rank * a.block_experts, end = min(first + a.block_experts, n_experts);
  const bool has_gate = a.shared_gate.data && rank == 0;
  dependents_may_start();
  float *logits = a.to.logits + (size_t)token * n_experts;
#if __CUDA_ARCH__ >= 900
  __shared__ uint64_t full; /* in the first block: completes when all logits have arrived */
  if (kClusters) {
    logits = room + choice_floats(n_experts);
    if (threadIdx.x == 0) {
      barrier_init(&full, 1);
      barrier_init_fence();
      barrier_expect(&full, n_experts * 4);
    }
    cluster_arrive();
  }
#endif
  Weights<T, kParts> w[kBatch], gate;
#pragma unroll
  for (int i = 0; i < kBatch; i++) w[i].load(a.router, first + i, a.hidden, first + i < end);
  gate.load(a.shared_gate, 0, a.hidden, has_gate);
  const float *const factors = a.router_scale ? a.router_scale : a.norm;
  float4 by[kParts];
#pragma unroll
  for (int part = 0; part < kParts; part++)
    by[part] = factors_at(factors, number_of(part), number_of(part) < a.hidden);
  wait_for_previous();
  Inputs<kParts> in;
  in.load(a.x + (size_t)token * a.hidden, a.hidden, by);
#if __CUDA_ARCH__ >= 900
  if (kClusters) cluster_wait(); /* the first block's barrier is initialised */
#endif
  float factor = a.x_factor;
#pragma unroll 1
  for (int e = first, turn = 0; e < end || e == first; e += kBatch, turn ^= 1) {
    float sum[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
      sum[i] = w[i].product(in);
      if (e + kBatch < end) w[i].load(a.router, e + kBatch + i, a.hidden, e + kBatch + i < end);
    }
    const float row_sum = warp_sums(sum);
    if (lane % kEach == 0) parts[turn][lane / kEach][warp] = row_sum;
    if (e == first) {
      const float of_squares = warp_sum(in.squares());
      const float of_gate = has_gate ? warp_sum(gate.product(in)) : 0;
      if (lane == 0) squares[warp] = of_squares, gates[warp] = of_gate;
    }
    __syncthreads();
    if (e == first && factors) factor = rsqrtf(total_of(squares) / (float)a.hidden + a.eps);
    const int row = threadIdx.x / kWarps, expert = e + row;
    if (warp >= kBatch / 2) continue; /* kWarps lanes add up a row */
    const float total = total_of(parts[turn][row]) * factor;
    if (threadIdx.x % kWarps > 0 || expert >= end) continue;
    const float logit = logit_of(a, expert, total);
#if __CUDA_ARCH__ >= 900
    if (kClusters) {
      send_4(peer_address(logits + expert, 0), __float_as_uint(logit), peer_address(&full, 0));
      continue;
    }
#endif
    logits[expert] = logit;
  }
  /* The first kWarps blocks of a token store a part of h each. Block 0 has the last part. So with several
   * parts its first warp need not store: in a cluster this warp chooses the experts. */
  const int n_stores = min(n_blocks, kWarps); /* blocks that store a part */
  if ((int)threadIdx.x / (kThreads / n_stores) == n_stores - 1 - rank) in.store_h(a, token, factor);
  float shared_factor = 1;
  if (has_gate && warp == 0) {
    shared_factor = shared_factor_of(a, total_of(gates) * factor);
    if (lane == 0) a.to.shared_factors[token] = shared_factor;
  }
#if __CUDA_ARCH__ >= 900
  if (kClusters) {
    if (rank > 0 || warp > 0) return;
    barrier_wait(&full, 0);
    choose(
        a, token, room, [&](int e) { return logits[e]; }, shared_factor);
    return;
  }
#endif
  if (is_last_block(a.to.counters + token, n_blocks) && warp == 0) choose_of_stored(a, token, room);
}

template <class T, int kParts> Status launch_parts(Args a, int arch, cudaStream_t stream, Error *err) {
  const int n = a.config.n_experts, batch = kBatchOf<T, kParts>;
  const bool many = a.n_tokens <= kApartTokens && n > kMostTurns * kMostBlocks * batch,
             clusters = arch >= SM(9, 0) && !many;
  const int most = arch >= SM(9, 0) && !clusters ? kMostApart : kMostBlocks;
  int n_blocks = 1;
  while (n_blocks < most && n_blocks * batch < n) n_blocks *= 2;
  a.token_blocks = n_blocks, a.block_experts = ceil_div(n, n_blocks);
  const size_t shared = (size_t)(choice_floats(n) + n) * sizeof(float);
  cudaLaunchAttribute attributes[2] = {cluster_attribute((unsigned)n_blocks)};
  return launch_with(
      attributes, clusters ? 1 : 0, clusters ? kernel<T, kParts, true> : kernel<T, kParts, false>,
      dim3((unsigned)(n_blocks * a.n_tokens)), kThreads, shared, stream, true, "router", err, a);
}

template <class T> Status launch_type(const Args &a, int arch, cudaStream_t stream, Error *err) {
  return a.hidden <= kStep       ? launch_parts<T, 1>(a, arch, stream, err)
         : a.hidden <= 2 * kStep ? launch_parts<T, 2>(a, arch, stream, err)
                                 : launch_parts<T, kMostParts>(a, arch, stream, err);
}

} // namespace

bool router::token_applies(const Args &a) {
  return a.n_tokens <= kFewTokens && a.hidden % 4 == 0 && a.hidden <= kMostParts * kStep &&
         (!a.shared_gate.data || a.shared_gate.type == a.router.type);
}

Status router::launch_token(const Args &a, int arch, cudaStream_t stream, Error *err) {
  return a.router.type == WEIGHT_F16    ? launch_type<__half>(a, arch, stream, err)
         : a.router.type == WEIGHT_BF16 ? launch_type<__nv_bfloat16>(a, arch, stream, err)
                                        : launch_type<float>(a, arch, stream, err);
}
