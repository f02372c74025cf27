/* index.cu - see index.h. Reference: src/cpu/mixers/sparse.c. `block`: a block of positions (IndexerConfig),
 * not of threads.
 *
 * Scores: a thread takes a block's key. The queries are in shared memory, where all lanes of a warp read the
 * same numbers at once: one load for four multiplications.
 *
 * The choice: a thread block takes a row. Scores are not negative, so their bits are ordered as unsigned
 * integers. Four passes over 8 bits each find the lowest score that is taken, and how many blocks with that
 * score are taken. */
#include "cuda/kernels/ops/index.h"

#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ops/rope.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/eight.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

/* --- index keys */

/* A thread for each dimension. */
constexpr int kKeyThreads = INDEX_MAX_HEAD_DIM;

__device__ __forceinline__ CacheRows index_rows(const IndexCall &a, int row) {
  return CacheRows(a.pages, row, 1, 0, a.n_ctx);
}

__global__ void __launch_bounds__(kKeyThreads) append_raw_kernel(IndexCall a) {
  begin_overlapping();
  const int row = blockIdx.x, d = threadIdx.x, position = a.pos[row];
  if (position < 0 || d >= a.sizes.head_dim) return;
  const float *key = a.rows + row * a.stride + (size_t)a.sizes.n_heads * a.sizes.head_dim;
  ((__half *)a.raw)[index_rows(a, row).at(position) * a.width + d] = __float2half_rn(key[d]);
}

__global__ void __launch_bounds__(kKeyThreads) block_keys_kernel(IndexCall a) {
  begin_overlapping();
  __shared__ float key[kKeyThreads];
  const int row = blockIdx.x, d = threadIdx.x, position = a.pos[row], block = a.sizes.block,
            dim = a.sizes.head_dim;
  if (position < 0 || (position + 1) % block != 0) return;
  const CacheRows rows = index_rows(a, row);
  const __half *raw = (const __half *)a.raw + d;
  const int first = position + 1 - block;
  float sum = 0;
  if (d < dim)
#pragma unroll 4
    for (int p = first; p <= position; p++) sum += __half2float(raw[rows.at(p) * a.width]);
  const float mean = sum / block;
  const float scale = rsqrtf(block_sum<kKeyThreads>(mean * mean) / dim + a.eps);
  if (d < dim) key[d] = mean * scale * a.k_norm[d];
  __syncthreads();
  if (d < a.n_pairs)
    rotate(key[d], key[d + a.n_pairs], rope_turn(first, a.frequencies[d], a.attention_factor));
  __syncthreads();
  if (d < dim) ((__half *)a.keys)[rows.at(position) * a.width + d] = __float2half_rn(key[d]);
}

/* --- scores of blocks */

constexpr int kScoreThreads = 128;
constexpr int kQueries = 16; /* index queries that are in shared memory at once */

/* The length of a query in shared memory, with zeros from head_dim on. */
__device__ __forceinline__ int padded_dim(int head_dim) {
  return (head_dim + 7) / 8 * 8;
}

/* queries[kQueries][padded_dim()] = index queries from number `first` on, normalised and rotated, then zeros.
 * turns: {cosine, sine} of the row's position. A warp takes a query. */
__device__ __forceinline__ void load_index_queries(const IndexCall &a, int row, int first,
                                                   const float2 *turns, float *queries) {
  const int lane = threadIdx.x % 32, dim = a.sizes.head_dim, stride = padded_dim(dim);
  for (int h = threadIdx.x / 32; h < kQueries; h += kScoreThreads / 32) {
    const bool exists = first + h < a.sizes.n_heads;
    const float *from = a.rows + row * a.stride + (size_t)(first + h) * dim;
    float *query = queries + h * stride, squares = 0;
    for (int d = lane; d < dim && exists; d += 32) squares += from[d] * from[d];
    const float scale = rsqrtf(warp_sum(squares) / dim + a.eps);
    for (int d = lane; d < stride; d += 32) query[d] = exists && d < dim ? from[d] * scale * a.q_norm[d] : 0;
    __syncwarp();
    for (int i = lane; i < a.n_pairs; i += 32) rotate(query[i], query[i + a.n_pairs], turns[i]);
  }
}

/* to = the first n of 8 numbers, then zeros. kWide: `from` is 16-byte aligned. */
template <bool kWide> __device__ __forceinline__ void load_eight(float (&to)[8], const __half *from, int n) {
  if (kWide && n >= 8) {
    unpack_halves(to, *(const uint4 *)from);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) to[i] = i < n ? __half2float(from[i]) : 0;
}

/* Sum over kHeads queries of max(q . key, 0). */
template <bool kWide, int kHeads>
__device__ __forceinline__ float score_heads(const float *queries, const __half *key, int dim) {
  const int stride = padded_dim(dim);
  float products[kHeads] = {}, score = 0;
#pragma unroll 4
  for (int d = 0; d < dim; d += 8) {
    float k[8];
    load_eight<kWide>(k, key + d, dim - d);
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
      const float4 low = *(const float4 *)(queries + h * stride + d),
                   high = *(const float4 *)(queries + h * stride + d + 4);
      products[h] += low.x * k[0];
      products[h] += low.y * k[1];
      products[h] += low.z * k[2];
      products[h] += low.w * k[3];
      products[h] += high.x * k[4];
      products[h] += high.y * k[5];
      products[h] += high.z * k[6];
      products[h] += high.w * k[7];
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; h++) score += products[h] < 0 ? 0 : products[h]; /* NaN stays */
  return score;
}

/* kHeads: queries that a thread multiplies at once, a divisor of kQueries. */
template <bool kWide, int kHeads>
__global__ void __launch_bounds__(kScoreThreads) score_kernel(IndexCall a, float *scores, size_t row_scores) {
  begin_overlapping();
  __shared__ __align__(16) float queries[kQueries * INDEX_MAX_HEAD_DIM];
  __shared__ float2 turns[INDEX_MAX_HEAD_DIM / 2];
  const int row = blockIdx.y, position = a.pos[row], block = a.sizes.block, dim = a.sizes.head_dim;
  const int n_blocks = (position + 1) / block, first = blockIdx.x * kScoreThreads;
  if (n_blocks <= a.sizes.budget / block || first >= n_blocks) return;
  for (int i = threadIdx.x; i < a.n_pairs; i += kScoreThreads)
    turns[i] = rope_turn(position, a.frequencies[i], a.attention_factor);
  /* A thread without a block of its own reads the last block's key, and writes nothing. */
  const int own = first + (int)threadIdx.x, taken = min(own, n_blocks - 1);
  const __half *key = (const __half *)a.keys + index_rows(a, row).at((taken + 1) * block - 1) * a.width;
  float score = 0;
  for (int h = 0; h < a.sizes.n_heads; h += kQueries) {
    __syncthreads();
    load_index_queries(a, row, h, turns, queries);
    __syncthreads();
    const int n = min(kQueries, a.sizes.n_heads - h);
    for (int i = 0; i < n; i += kHeads)
      score += score_heads<kWide, kHeads>(queries + i * padded_dim(dim), key, dim);
  }
  if (own < n_blocks) scores[row * row_scores + own] = isnan(score) ? 0 : score;
}

/* --- the choice */

constexpr int kChoiceThreads = 1024, kChoiceWarps = kChoiceThreads / 32;
constexpr int kBins = 256;
/* Scores are alike in their high bits, so the threads of a warp would count in the same bin, one after
 * another. Therefore neighbouring threads count in different copies of a bin. */
constexpr int kCopies = 16;

struct ChoiceMemory {
  unsigned counts[kBins * kCopies], totals[kBins];
  unsigned digit, left;
  int greater[kChoiceWarps], ties[kChoiceWarps]; /* counts of each warp's blocks */
};

/* The bits of the lowest score taken, and how many blocks with that score are taken. */
struct Threshold {
  unsigned bits;
  int n_ties;
};

/* For warp 0. m.digit = the digit of the `left`-th greatest of the counted numbers. m.left = that number's
 * rank, from 1, among the numbers with this digit. A lane has 8 digits. */
__device__ __forceinline__ void find_digit(ChoiceMemory &m, unsigned left) {
  constexpr int kOwn = kBins / 32;
  const int last = kBins - 1 - kOwn * (int)threadIdx.x;
  unsigned own = 0;
  for (int i = 0; i < kOwn; i++) own += m.totals[last - i];
  unsigned before = warp_sum_up_to(own) - own;
  if (before >= left || before + own < left) return;
  int digit = last;
  for (; before + m.totals[digit] < left; digit--) before += m.totals[digit];
  m.digit = digit, m.left = left - before;
}

/* The Threshold of the k greatest of n scores, 1 <= k <= n. */
__device__ __forceinline__ Threshold find_threshold(ChoiceMemory &m, const float *scores, int n, int k) {
  const int thread = threadIdx.x;
  unsigned bits = 0, known = 0, left = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = thread; i < kBins * kCopies; i += kChoiceThreads) m.counts[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (int i = thread; i < n; i += kChoiceThreads) {
      const unsigned score = __float_as_uint(scores[i]);
      if ((score & known) == bits)
        atomicAdd(&m.counts[(score >> shift) % kBins * kCopies + thread % kCopies], 1u);
    }
    __syncthreads();
    if (thread < kBins) {
      unsigned total = 0;
      for (int i = 0; i < kCopies; i++) total += m.counts[thread * kCopies + (thread + i) % kCopies];
      m.totals[thread] = total;
    }
    __syncthreads();
    if (thread < 32) find_digit(m, left);
    __syncthreads();
    bits |= m.digit << shift, known |= 0xffu << shift, left = m.left;
  }
  return {bits, (int)left};
}

/* Sum of the numbers of the warps before this warp. */
__device__ __forceinline__ int sum_before(const int (&of_warps)[kChoiceWarps]) {
  const int lane = threadIdx.x % 32;
  return warp_sum(lane < (int)threadIdx.x / 32 ? of_warps[lane] : 0);
}

/* Writes the positions of the blocks that the threshold admits. A warp has consecutive blocks, and counts
 * those above and at the threshold. The earlier warps' counts say where its first block goes. */
__device__ __forceinline__ void write_blocks(ChoiceMemory &m, const float *scores, int n,
                                             const Threshold &least, int block, int *to) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int of_warp = ((n + kChoiceWarps - 1) / kChoiceWarps + 31) / 32 * 32, begin = min(n, warp * of_warp),
            end = min(n, begin + of_warp);
  int n_greater = 0, n_ties = 0;
#pragma unroll 8
  for (int b = begin + lane; b < end; b += 32) {
    const unsigned score = __float_as_uint(scores[b]);
    n_greater += score > least.bits, n_ties += score == least.bits;
  }
  n_greater = warp_sum(n_greater), n_ties = warp_sum(n_ties);
  if (lane == 0) m.greater[warp] = n_greater, m.ties[warp] = n_ties;
  __syncthreads();
  int ties = sum_before(m.ties), place = sum_before(m.greater) + min(ties, least.n_ties);
  const unsigned lanes_before = (1u << lane) - 1;
#pragma unroll 4
  for (int at = begin; at < end; at += 32) {
    const int b = at + lane;
    const unsigned score = b < end ? __float_as_uint(scores[b]) : 0;
    const bool is_tie = b < end && score == least.bits;
    const unsigned tied = __ballot_sync(~0u, is_tie);
    const bool is_taken =
        b < end && (score > least.bits || (is_tie && ties + __popc(tied & lanes_before) < least.n_ties));
    const unsigned taken = __ballot_sync(~0u, is_taken);
    int *own = to + (size_t)(place + __popc(taken & lanes_before)) * block;
    for (int i = 0; i < block && is_taken; i++) own[i] = b * block + i;
    ties += __popc(tied), place += __popc(taken);
  }
}

__global__ void __launch_bounds__(kChoiceThreads)
    choose_kernel(IndexerConfig sizes, const int *pos, const float *scores, size_t row_scores, int *chosen,
                  int *n_chosen) {
  begin_overlapping();
  __shared__ ChoiceMemory memory;
  const int row = blockIdx.x, n_seen = pos[row] + 1, block = sizes.block, n_blocks = n_seen / block,
            n_best = sizes.budget / block;
  if (n_seen <= 0) return;
  int *to = chosen + (size_t)row * (sizes.budget + block - 1);
  int n_written = 0; /* positions in chosen blocks; those after the last whole block follow them */
  if (n_blocks > n_best) {
    scores += row * row_scores;
    write_blocks(memory, scores, n_blocks, find_threshold(memory, scores, n_blocks, n_best), block, to);
    n_written = n_best * block;
  }
  /* Every position from `first` to the row's own is taken, without a choice. */
  const int first = n_blocks > n_best ? n_blocks * block : 0;
  for (int p = first + threadIdx.x; p < n_seen; p += kChoiceThreads) to[n_written + p - first] = p;
  if (threadIdx.x == 0) n_chosen[row] = n_written + n_seen - first;
}

Status check_index(const IndexCall *call, Error *err) {
  const IndexerConfig &s = call->sizes;
  if (s.head_dim < 1 || s.head_dim > INDEX_MAX_HEAD_DIM || 2 * call->n_pairs > s.head_dim)
    return error_set(err, STATUS_FAILED, "index keys: no kernel for %d dimensions, %d of them in pairs",
                     s.head_dim, 2 * call->n_pairs);
  if (s.block < 1 || s.budget < s.block || s.budget % s.block != 0)
    return error_set(err, STATUS_FAILED, "index keys: the budget %d is no multiple of a block of %d",
                     s.budget, s.block);
  return STATUS_OK;
}

} // namespace

Status index_append(const IndexCall *call, int n_rows, cudaStream_t stream, Error *err) {
  TRY(check_index(call, err));
  TRY(launch(append_raw_kernel, n_rows, kKeyThreads, 0, stream, true, "index keys", err, *call));
  return launch(block_keys_kernel, n_rows, kKeyThreads, 0, stream, true, "index keys", err, *call);
}

size_t index_most_chosen(const IndexerConfig *sizes) {
  return (size_t)sizes->budget + sizes->block - 1;
}

size_t index_row_scores(const IndexerConfig *sizes, int n_ctx_all) {
  return (size_t)(n_ctx_all / sizes->block) + 1;
}

Status index_choose(const IndexCall *call, int n_rows, int n_ctx_all, float *scores, int *chosen,
                    int *n_chosen, cudaStream_t stream, Error *err) {
  TRY(check_index(call, err));
  const IndexerConfig *sizes = &call->sizes;
  const size_t row_scores = index_row_scores(sizes, n_ctx_all);
  const int most_blocks = n_ctx_all / sizes->block;
  const bool wide = call->width % 8 == 0 && (uintptr_t)call->keys % 16 == 0;
  auto kernel = sizes->n_heads <= 4 ? score_kernel<false, 4> : score_kernel<false, 8>;
  if (wide) kernel = sizes->n_heads <= 4 ? score_kernel<true, 4> : score_kernel<true, 8>;
  if (most_blocks > sizes->budget / sizes->block)
    TRY(launch(kernel, dim3(ceil_div(most_blocks, kScoreThreads), n_rows), kScoreThreads, 0, stream, true,
               "scores of blocks", err, *call, scores, row_scores));
  return launch(choose_kernel, n_rows, kChoiceThreads, 0, stream, true, "choice of blocks", err, *sizes,
                call->pos, (const float *)scores, row_scores, chosen, n_chosen);
}
