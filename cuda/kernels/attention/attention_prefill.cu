/* attention_prefill.cu - many tokens: FlashAttention-2 on tensor cores.
 *
 * A block serves 64 tokens, the rows of a tile, of one query head. A warp takes 16 rows. With heads longer
 * than 256 two warps share 16 rows: both compute all scores, and each computes half of the output. The keys
 * pass in tiles through one or two stages of shared memory; scores stay in registers. Tiles above the
 * diagonal or before the window are never read; only edge tiles are masked. Later tokens have more keys and
 * start first.
 *     2 stages   copy tile t + 1 | wait for t's copies | __syncthreads() | multiply t | __syncthreads()
 *     1 stage    wait for t's copies | __syncthreads() | multiply t | __syncthreads() | copy t + 1
 *     S [16 rows x keys] = Q K^T,   O [16 rows x head_dim] = softmax(S) V        per warp, per tile
 * Source: Dao, FlashAttention-2 (arXiv:2307.08691), algorithm 1. Reference: attention_plain.cu. */
#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/attention/online_softmax.cuh"
#include "cuda/kernels/attention/planes.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kRows = kPrefillRows;

/* Warps that share 16 rows, so that a warp's part of the output fits registers. */
__host__ __device__ constexpr int warps_of_rows(int head_dim) {
  return head_dim > 256 ? 2 : 1;
}

__host__ __device__ constexpr int threads_of(int head_dim) {
  return kRows / 16 * 32 * warps_of_rows(head_dim);
}

__host__ __device__ constexpr int keys_of(int head_dim) {
  return head_dim > 128 ? 32 : 64;
}

/* Bytes of shared memory: the queries, and stages of keys and values. */
constexpr size_t shared_bytes(int head_dim, int stages) {
  return (size_t)(kRows + stages * 2 * keys_of(head_dim)) * padded_stride(head_dim) * sizeof(__half);
}

/* A warp's online softmax of its 16 rows, in mma's layout: lane 4 g + t has rows g and g + 8. The warp has
 * kDims of the output's dims. */
template <int kHeadDim> struct OnlineSoftmax {
  static constexpr int kStride = padded_stride(kHeadDim), kKeys = keys_of(kHeadDim),
                       kDims = kHeadDim / warps_of_rows(kHeadDim);
  float o[kDims / 8][4], maximum[2], sum[2];

  __device__ __forceinline__ void begin() {
    maximum[0] = maximum[1] = -INFINITY, sum[0] = sum[1] = 0;
#pragma unroll
    for (int d = 0; d < kDims / 8; d++) o[d][0] = o[d][1] = o[d][2] = o[d][3] = 0;
  }

  /* Computes scores: s[n][2 h + c] is row g + 8 h with key 8 n + 2 t + c of the tile. */
  static __device__ __forceinline__ void score(const __half *queries, const __half *keys,
                                               float (&s)[kKeys / 8][4], int lane) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      uint32_t query[4];
      ldmatrix_x4(query, shared_address(queries + (lane % 16) * kStride + d * 16 + lane / 16 * 8));
#pragma unroll
      for (int n = 0; n < kKeys / 16; n++) {
        uint32_t key[4]; /* {keys 0-7, keys 8-15} x {dims 0-7, dims 8-15} */
        ldmatrix_x4(key, shared_address(keys + (n * 16 + lane % 8 + lane / 16 * 8) * kStride + d * 16 +
                                        lane / 8 % 2 * 8));
        mma_f16_m16n8k16(s[2 * n], query, key[0], key[1]);
        mma_f16_m16n8k16(s[2 * n + 1], query, key[2], key[3]);
      }
    }
  }

  /* Turns the scores of the keys from `tile` on into weights. first_pos: position of the warp's first row. A
   * row sees the keys of its window or chunk up to its own, but none from `length` on. */
  template <bool kCapped>
  __device__ __forceinline__ void softmax(const AttentionArgs &a, float (&s)[kKeys / 8][4], int tile,
                                          int first_pos, int length, int lane) {
    const int g = lane / 4, t = lane % 4;
    const bool limited = a.unseen_mask != 0; /* by a window or a chunk */
    const bool edge = tile + kKeys > first_pos || tile + kKeys > length ||
                      (limited && tile <= newest_unseen(a, first_pos + 15));
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row_pos = first_pos + g + 8 * h, limit = min(row_pos, length - 1);
      const int unseen = limited ? newest_unseen(a, row_pos) : -1;
      float high = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          int key = tile + n * 8 + 2 * t + c;
          float score = score_log2<kCapped>(a, s[n][2 * h + c]);
          if (edge && (key > limit || key <= unseen)) score = -INFINITY;
          s[n][2 * h + c] = score;
          high = fmaxf(high, score);
        }
      const Rescale r = rescale<true>(maximum[h], lanes_max<1, 2>(high));
      float total = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) total += s[n][2 * h + c] = power_of_2(s[n][2 * h + c] - r.shift);
      sum[h] = sum[h] * r.keep + total;
#pragma unroll
      for (int d = 0; d < kDims / 8; d++) o[d][2 * h] *= r.keep, o[d][2 * h + 1] *= r.keep;
    }
  }

  /* Adds the weighted values. values: from the warp's first dim on. */
  __device__ __forceinline__ void accumulate(const __half *values, const float (&weights)[kKeys / 8][4],
                                             int lane) {
#pragma unroll
    for (int n = 0; n < kKeys / 16; n++) {
      const float(&low)[4] = weights[2 * n], (&high)[4] = weights[2 * n + 1];
      uint32_t p[4] = {pack_half2(low[0], low[1]), pack_half2(low[2], low[3]), pack_half2(high[0], high[1]),
                       pack_half2(high[2], high[3])};
#pragma unroll
      for (int d = 0; d < kDims / 16; d++) {
        uint32_t value[4]; /* {dims 0-7, dims 8-15} x {keys 0-7, keys 8-15} */
        ldmatrix_x4_transposed(
            value, shared_address(values + (n * 16 + lane % 16) * kStride + d * 16 + lane / 16 * 8));
        mma_f16_m16n8k16(o[2 * d], p, value[0], value[1]);
        mma_f16_m16n8k16(o[2 * d + 1], p, value[2], value[3]);
      }
    }
  }

  /* Writes rows `row` and `row` + 8 of the output, if they are before end_row. first_dim: the warp's first
   * dim. */
  template <bool kPlanes>
  __device__ __forceinline__ void store(const AttentionArgs &a, int row, int end_row, int head, int first_dim,
                                        int lane) const {
#pragma unroll
    for (int h = 0; h < 2; h++, row += 8) {
      const float total = lanes_sum<1, 2>(sum[h]) + sink_weight(a, head, maximum[h]);
      if constexpr (kPlanes) {
        static_assert(kDims == kPlanesHead, "four lanes have a head");
        float v[8][4];
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
          for (int i = 0; i < 4; i++) v[j][i] = o[2 * j + i % 2][2 * h + i / 2] * (1 / total);
        store_planes<8>(a, row, head, v, row < end_row);
        continue;
      }
      if (row >= end_row) continue;
      __half *to = a.out + ((size_t)row * a.n_heads + head) * kHeadDim + first_dim + 2 * (lane % 4);
      float scale = 1 / total;
#pragma unroll
      for (int d = 0; d < kDims / 8; d++)
        *(__half2 *)(to + d * 8) = __floats2half2_rn(o[d][2 * h] * scale, o[d][2 * h + 1] * scale);
    }
  }
};

/* With two stages the next tile loads while one is multiplied; one stage is for chips with little shared
 * memory. */
template <int kHeadDim, int kStages, bool kCapped, bool kPlanes = false>
__global__ void __launch_bounds__(threads_of(kHeadDim))
    attention_prefill_kernel(AttentionArgs a, int n_tokens) {
  begin_overlapping();
  constexpr int kThreads = threads_of(kHeadDim), kStride = padded_stride(kHeadDim), kKeys = keys_of(kHeadDim),
                kStage = 2 * kKeys * kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  __half *queries = (__half *)shared, *stages = queries + kRows * kStride;

  const int number = gridDim.x - 1 - blockIdx.x, head = blockIdx.y;
  const int first_token = a.tiles ? a.tiles[number].row : number * kRows;
  const int tokens = a.tiles ? a.tiles[number].n_tokens : min(kRows, n_tokens - first_token);
  int kv_head = head / (a.n_heads / a.n_kv_heads);
  int warp = threadIdx.x / 32 % (kRows / 16), lane = threadIdx.x % 32;
  int first_dim = threadIdx.x / (kRows * 2) * OnlineSoftmax<kHeadDim>::kDims;
  const int pos = a.pos[first_token], length = pos + tokens;
  const int first_key = first_step<kKeys>(a, pos);
  const CacheRows rows(a.pages, first_token, a.n_kv_heads, kv_head, a.n_ctx);
  load_rows<kHeadDim, kRows, kThreads>(queries, (const __half *)a.q + head * kHeadDim,
                                       (size_t)a.n_heads * kHeadDim, first_token, first_token + tokens);
  load_tile<kHeadDim, kKeys, kThreads>(stages, a, rows.at(first_key), length - first_key);
  copy_async_commit();

  OnlineSoftmax<kHeadDim> state;
  state.begin();
  int stage = 0;
  for (int tile = first_key; tile < length; tile += kKeys, stage ^= kStages - 1) {
    const int next = tile + kKeys;
    if (kStages == 2 && next < length)
      load_tile<kHeadDim, kKeys, kThreads>(stages + (stage ^ 1) * kStage, a, rows.at(next), length - next);
    copy_async_commit();
    copy_async_wait<kStages - 1>();
    __syncthreads();

    const __half *keys = stages + stage * kStage;
    float s[kKeys / 8][4];
    state.score(queries + warp * 16 * kStride, keys, s, lane);
    state.template softmax<kCapped>(a, s, tile, pos + warp * 16, length, lane);
    state.accumulate(keys + kKeys * kStride + first_dim, s, lane);
    __syncthreads();
    if (kStages == 1 && next < length)
      load_tile<kHeadDim, kKeys, kThreads>(stages, a, rows.at(next), length - next);
  }
  state.template store<kPlanes>(a, first_token + warp * 16 + lane / 4, first_token + tokens, head, first_dim,
                                lane);
}

/* The kernel with one stage is compiled only where two can exceed a chip's shared memory (sm_75: 64 KB). */
template <int kHeadDim, bool kCapped>
Status launch_stages(const AttentionArgs &a, int n_tokens, int n_tiles, cudaStream_t stream, Error *err) {
  auto kernel = attention_prefill_kernel<kHeadDim, 2, kCapped>;
  size_t bytes = shared_bytes(kHeadDim, 2);
  if constexpr (shared_bytes(kHeadDim, 2) > kLeastShared)
    if (bytes > a.shared_limit)
      kernel = attention_prefill_kernel<kHeadDim, 1, kCapped>, bytes = shared_bytes(kHeadDim, 1);
  if constexpr (kHeadDim == kPlanesHead && !kCapped)
    if (a.planes) kernel = attention_prefill_kernel<kHeadDim, 2, false, true>;
  return launch(kernel, dim3(a.tiles ? n_tiles : ceil_div(n_tokens, kRows), a.n_heads), threads_of(kHeadDim),
                bytes, stream, true, "attention", err, a, n_tokens);
}

} // namespace

size_t attention_prefill_shared(const AttentionArgs &a) {
  return shared_bytes(a.head_dim, 1);
}

Status attention_prefill(const AttentionArgs &a, int n_tokens, int n_tiles, cudaStream_t stream, Error *err) {
  return with_head_size(a, err, [&](auto size, auto capped) {
    return launch_stages<decltype(size)::value, decltype(capped)::value>(a, n_tokens, n_tiles, stream, err);
  });
}
