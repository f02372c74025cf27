/* attention_decode.cu - few tokens against a long cache, or one token of each of many sequences:
 * flash-decoding, the keys split over the whole GPU.
 *
 * A block serves one KV head and one split of the keys of its token or tokens; each of its four warps takes
 * 16 of every 64 keys. The columns (8 to 32) of the mma are the tokens times the query heads that share the
 * KV head, so each key and value is read once for all of them:
 *     S^T [16 keys x columns] = K [16 keys x head_dim] Q^T          (K as it lies in the cache)
 *     O^T [16 dims x columns] += V^T [16 dims x 16 keys] P^T        (ldmatrix transposes V, movmatrix P)
 * Each warp keeps its own online softmax; the block merges its four and writes a partial result, and the last
 * block of a KV head merges the partial results, always in the order of the keys, so that runs are bitwise
 * equal. READS  2 * n_kv_heads * length * head_dim * 2 bytes of cache; reference: attention_plain.cu.
 *
 * A cache in 8 bits (q8.cuh) is half as many bytes, and becomes fp16 in registers. Sums may take dims in any
 * order, so that a lane gets its operands from one word of 4 dims; load_queries() brings q into this order:
 *     K       lane (g, t), 16 dims: 4t .. 4t + 3 of keys g and g + 8, an mma's k 2t, 2t + 1, 2t + 8, 2t + 9
 *     V       32 dims: 4g .. 4g + 3 of keys 2t, 2t + 1, 2t + 8, 2t + 9: rows g and g + 8 of two mma; of 16
 *             dims (heads of 80) 2g and 2g + 1, of one */
#include <algorithm>
#include <type_traits>

#include "cuda/attention/attention_kernels.cuh"
#include "cuda/attention/online_softmax.cuh"
#include "cuda/attention/planes.cuh"
#include "cuda/attention/q8.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kKeys = 16 * kWarps;

template <typename T> constexpr bool kIsQ8 = sizeof(T) == 1;

/* Row stride in shared memory, in elements. */
template <typename T> __host__ __device__ constexpr int row_stride(int head_dim) {
  return kIsQ8<T> ? padded_bytes(head_dim) : padded_stride(head_dim);
}
/* Elements that kKeys keys, or values, take in shared memory: their rows, and with 8 bits the scales. */
template <typename T> __host__ __device__ constexpr int room_of_keys(int head_dim) {
  return kKeys * (row_stride<T>(head_dim) + (kIsQ8<T> ? key_scales(head_dim) * KV_SCALE_BYTES : 0));
}
template <typename T> __host__ __device__ constexpr int room_of_values(int head_dim) {
  return kKeys * (row_stride<T>(head_dim) + (kIsQ8<T> ? KV_SCALE_BYTES : 0));
}

/* Shared memory: the queries, and stages of keys and values, which the warps' results overlay. */
template <typename T> constexpr size_t shared_bytes(int head_dim, int n_tiles, int stages) {
  size_t tiles = stages * sizeof(T) * (room_of_keys<T>(head_dim) + room_of_values<T>(head_dim));
  size_t queries = (size_t)n_tiles * 8 * padded_stride(head_dim) * sizeof(__half);
  size_t joined = (size_t)kWarps * n_tiles * 8 * (head_dim + 2) * sizeof(float);
  return queries + (tiles > joined ? tiles : joined);
}

int tiles_of(const AttentionArgs &a, int n_tokens) {
  int columns = n_tokens * (a.n_heads / a.n_kv_heads);
  return columns <= 8 ? 1 : columns <= 16 ? 2 : 4;
}

/* Columns of a KV head: column c is query head kv_head * group + c % group of token first_token + c / group.
 * */
struct Columns {
  int n, group, kv_head, first_token;
  __device__ __forceinline__ int query_head(int column) const { return kv_head * group + column % group; }
  __device__ __forceinline__ size_t head(const AttentionArgs &a, int column) const {
    return (size_t)(first_token + column / group) * a.n_heads + query_head(column);
  }
};

/* Copies the scales of kKeys rows, `per_row` of each, from row `at` on; those of rows from n on become zeros.
 */
__device__ __forceinline__ void load_scales(void *to, const __half *scales, size_t at, int per_row, int n) {
  const int bytes = n * per_row * KV_SCALE_BYTES, all = kKeys * per_row * KV_SCALE_BYTES;
  const char *from = (const char *)(scales + at * per_row);
  for (int i = threadIdx.x * 16; i < all; i += kThreads * 16) {
    const int valid = max(0, min(16, bytes - i));
    copy_async_16((char *)to + i, from + (valid > 0 ? i : 0), valid);
  }
}

/* Loads n of kKeys keys from number `at` of the cache on, the beginning of a row; the others become zeros. */
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_keys(T *to, const AttentionArgs &a, size_t at, int n) {
  constexpr int kStride = row_stride<T>(kHeadDim);
  load_strided<kHeadDim, kStride, kKeys, kThreads>(to, (const T *)a.k + at, kHeadDim, 0, n);
  if constexpr (kIsQ8<T>)
    load_scales(to + kKeys * kStride, a.k_scales, at / kHeadDim, key_scales(kHeadDim), n);
}

/* The same for values. */
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_values(T *to, const AttentionArgs &a, size_t at, int n) {
  constexpr int kStride = row_stride<T>(kHeadDim);
  load_strided<kHeadDim, kStride, kKeys, kThreads>(to, (const T *)a.v + at, kHeadDim, 0, n);
  if constexpr (kIsQ8<T>) load_scales(to + kKeys * kStride, a.v_scales, at / kHeadDim, 1, n);
}

/* Stores dims 8 i .. 8 i + 7 (i = 0 or 1) of 16 dims of a query in the order of 8-bit keys (the file's head):
 * first 4t and 4t + 1 of all t, then 4t + 2 and 4t + 3. */
__device__ __forceinline__ void store_for_q8(__half *sixteen, int i, uint4 v) {
  *(uint2 *)(sixteen + i * 4) = make_uint2(v.x, v.z);
  *(uint2 *)(sixteen + 8 + i * 4) = make_uint2(v.y, v.w);
}

/* Loads the queries; columns past the last are zeros. */
template <typename T, int kHeadDim, int kColumns>
__device__ __forceinline__ void load_queries(__half *queries, const AttentionArgs &a,
                                             const Columns &columns) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = threadIdx.x; i < kColumns * kChunks; i += kThreads) {
    int column = i / kChunks, chunk = i % kChunks;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (column < columns.n)
      value = *(const uint4 *)((const __half *)a.q + columns.head(a, column) * kHeadDim + chunk * 8);
    __half *to = queries + column * padded_stride(kHeadDim);
    if (kIsQ8<T>)
      store_for_q8(to + chunk / 2 * 16, chunk % 2, value);
    else
      *(uint4 *)(to + chunk * 8) = value;
  }
}

/* A warp's online softmax of each column, in mma's layout: lane (g, t) has columns 8 n + 2 t + c. */
template <typename T, int kHeadDim, int kTiles> struct OnlineSoftmax {
  static constexpr int kStride = padded_stride(kHeadDim), kCached = row_stride<T>(kHeadDim); /* of rows */
  float o[kHeadDim / 16][kTiles][4], maximum[kTiles][2], sum[kTiles][2];

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      maximum[n][0] = maximum[n][1] = -INFINITY, sum[n][0] = sum[n][1] = 0;
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; d++) o[d][n][0] = o[d][n][1] = o[d][n][2] = o[d][n][3] = 0;
    }
  }

  /* Operand a of the keys' dims 16 d .. 16 d + 15, those in 8 bits with their scales. */
  static __device__ __forceinline__ void key_operand(const T *keys, const __half *scales, int d,
                                                     uint32_t (&key)[4], int lane) {
    if constexpr (kIsQ8<T>) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = lane / 4 + 8 * h;
        const uint32_t bytes = *(const uint32_t *)(keys + row * kCached + d * 16 + lane % 4 * 4);
        const Scale8 scale(__half2half2(scales[row * key_scales(kHeadDim) + d * 16 / KEY_SCALE_DIMS]));
        key[h] = scaled_halves<false>(bytes, scale);
        key[2 + h] = scaled_halves<true>(bytes, scale);
      }
    } else {
      ldmatrix_x4(key, shared_address(keys + (lane % 16) * kCached + d * 16 + lane / 16 * 8));
    }
  }

  /* s[n][2 h + c]: key g + 8 h of 16 with column 8 n + 2 t + c. */
  static __device__ __forceinline__ void score(const __half *queries, const T *keys, const __half *scales,
                                               float (&s)[kTiles][4], int lane) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      uint32_t key[4], query[4];
      key_operand(keys, scales, d, key, lane);
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        /* Matrices 0 and 1 are the halves of the 16 dims; 2 and 3 repeat them, unused. */
        ldmatrix_x4(query,
                    shared_address(queries + (n * 8 + lane % 8) * kStride + d * 16 + lane / 8 % 2 * 8));
        mma_f16_m16n8k16(s[n], key, query[0], query[1]);
      }
    }
  }

  /* Turns the scores of keys `position` and `position` + 8 into weights, operand b of the mma with values.
   * A token sees keys up to its own and to length - 1, inside its window or chunk. */
  template <bool kCapped>
  __device__ __forceinline__ void softmax(const AttentionArgs &a, const float (&s)[kTiles][4], int position,
                                          int pos, int length, int group, uint32_t (&weights)[kTiles][2],
                                          int t) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      float p[4];
#pragma unroll
      for (int c = 0; c < 2; c++) {
        int token = (n * 8 + 2 * t + c) / group, limit = min(pos + token, length - 1);
        const int unseen = newest_unseen(a, pos + token);
        float high = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
          int key = position + 8 * h;
          float score = key <= limit && key > unseen ? score_log2<kCapped>(a, s[n][2 * h + c]) : -INFINITY;
          p[2 * h + c] = score;
          high = fmaxf(high, score);
        }
        const Rescale r = rescale<true>(maximum[n][c], lanes_max<4, 8, 16>(high));
        p[c] = power_of_2(p[c] - r.shift), p[2 + c] = power_of_2(p[2 + c] - r.shift);
        sum[n][c] = sum[n][c] * r.keep + p[c] + p[2 + c];
#pragma unroll
        for (int d = 0; d < kHeadDim / 16; d++) o[d][n][c] *= r.keep, o[d][n][2 + c] *= r.keep;
      }
      weights[n][0] = transpose_matrix(pack_half2(p[0], p[1]));
      weights[n][1] = transpose_matrix(pack_half2(p[2], p[3]));
    }
  }

  /* Operands A of kDims / 2 mma from 8-bit values: dims kDims * (lane / 4) and after of keys 2t, 2t + 1,
   * 2t + 8 and 2t + 9 (t = lane % 4), read as a word of kDims bytes for each key. */
  template <int kDims>
  static __device__ __forceinline__ void value_operands(const T *values, const Scale8 (&scales)[2],
                                                        uint32_t (&value)[kDims / 2][4], int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      uint32_t word[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const T *from = values + (2 * t + i + 8 * h) * kCached + kDims * g;
        word[i] = kDims == 4 ? *(const uint32_t *)from : *(const uint16_t *)from;
      }
#pragma unroll
      for (int m = 0; m < kDims / 2; m++) { /* dims 2 m and 2 m + 1 of both keys */
        const uint32_t both = m ? prmt<0x7362>(word[0], word[1]) : prmt<0x5140>(word[0], word[1]);
        value[m][2 * h] = scaled_halves<false>(both, scales[h]);
        value[m][2 * h + 1] = scaled_halves<true>(both, scales[h]);
      }
    }
  }

  __device__ __forceinline__ void multiply(int d, const uint32_t (&value)[4],
                                           const uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) mma_f16_m16n8k16(o[d][n], value, weights[n][0], weights[n][1]);
  }

  __device__ __forceinline__ void accumulate(const T *values, const __half *scales,
                                             const uint32_t (&weights)[kTiles][2], int lane) {
    if constexpr (kIsQ8<T>) {
      const Scale8 of_keys[2] = {Scale8(*(const __half2 *)(scales + lane % 4 * 2)),
                                 Scale8(*(const __half2 *)(scales + 8 + lane % 4 * 2))};
#pragma unroll
      for (int d = 0; d + 1 < kHeadDim / 16; d += 2) {
        uint32_t value[2][4];
        value_operands<4>(values + d * 16, of_keys, value, lane);
        multiply(d, value[0], weights);
        multiply(d + 1, value[1], weights);
      }
      if constexpr (kHeadDim % 32 != 0) {
        uint32_t value[1][4];
        value_operands<2>(values + kHeadDim - 16, of_keys, value, lane);
        multiply(kHeadDim / 16 - 1, value[0], weights);
      }
    } else {
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; d++) {
        uint32_t value[4];
        ldmatrix_x4_transposed(
            value, shared_address(values + (lane % 8 + lane / 16 * 8) * kCached + d * 16 + lane / 8 % 2 * 8));
        multiply(d, value, weights);
      }
    }
  }

  /* The dim of o[d][n][2 h + c] in lane (g, t). */
  static __device__ __forceinline__ int dim_of(int d, int h, int g) {
    if (!kIsQ8<T>) return d * 16 + 8 * h + g;
    return d == kHeadDim / 16 - 1 && kHeadDim % 32 ? d * 16 + 2 * g + h : d / 2 * 32 + 4 * g + d % 2 * 2 + h;
  }

  /* Writes to shared memory: outputs [kWarps][columns][kHeadDim], maxima and sums [kWarps][columns]. */
  __device__ __forceinline__ void store(float *outputs, float *maxima, float *sums, int warp,
                                        int lane) const {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const float total = lanes_sum<4, 8, 16>(sum[n][c]);
        const int at = warp * kTiles * 8 + n * 8 + 2 * t + c;
        if (g == 0) maxima[at] = maximum[n][c], sums[at] = total;
#pragma unroll
        for (int d = 0; d < kHeadDim / 16; d++)
          outputs[at * kHeadDim + dim_of(d, 0, g)] = o[d][n][c],
                                               outputs[at * kHeadDim + dim_of(d, 1, g)] = o[d][n][2 + c];
      }
  }
};

__device__ __forceinline__ void add_scaled(float4 &sum, float weight, float4 value) {
  sum.x += weight * value.x, sum.y += weight * value.y, sum.z += weight * value.z, sum.w += weight * value.w;
}

/* Writes four dims of a column's output; for planes the warp has the whole head. */
template <bool kPlanes>
__device__ __forceinline__ void store_output(const AttentionArgs &a, const Columns &columns, int column,
                                             int dim, float4 value, float scale) {
  if constexpr (kPlanes) {
    const int head = columns.query_head(column);
    store_planes_of_four(a, columns.first_token + column / columns.group, head,
                         make_float4(value.x * scale, value.y * scale, value.z * scale, value.w * scale));
    return;
  }
  uint2 packed =
      make_uint2(pack_half2(value.x * scale, value.y * scale), pack_half2(value.z * scale, value.w * scale));
  *(uint2 *)(a.out + columns.head(a, column) * a.head_dim + dim) = packed;
}

/* Partial results of a KV head in device memory: {maximum, sum} [split][column], outputs
 * [split][column][kHeadDim]. */
struct Partials {
  float2 *states;
  float4 *outputs;
};

/* Merges the warps' states into the output if this block has all of the keys, else into a partial result. */
template <int kHeadDim, int kColumns, bool kPlanes>
__device__ __forceinline__ void merge_warps(const AttentionArgs &a, const Columns &columns,
                                            const float *outputs, const float *maxima, const float *sums,
                                            const Partials &to, int split, bool is_whole) {
  for (int i = threadIdx.x; i < columns.n * (kHeadDim / 4); i += kThreads) {
    int column = i / (kHeadDim / 4), chunk = i % (kHeadDim / 4);
    float high = -INFINITY, total = 0;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kWarps; w++) high = fmaxf(high, maxima[w * kColumns + column]);
    float shift = high == -INFINITY ? 0 : high;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
      float weight = power_of_2(maxima[w * kColumns + column] - shift);
      total += weight * sums[w * kColumns + column];
      add_scaled(value, weight, ((float4 *)outputs)[(w * kColumns + column) * (kHeadDim / 4) + chunk]);
    }
    if (is_whole) {
      total += sink_weight(a, columns.query_head(column), shift);
      store_output<kPlanes>(a, columns, column, chunk * 4, value, 1 / total);
    } else {
      __stcg(&to.outputs[(split * kColumns + column) * (kHeadDim / 4) + chunk], value);
      if (chunk == 0) __stcg(&to.states[split * kColumns + column], make_float2(high, total));
    }
  }
}

/* Returns true in the last of n_used blocks to take the ticket. It then sees what the other blocks wrote. */
__device__ __forceinline__ bool is_last(int *ticket, int n_used) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1) == n_used - 1;
    if (last) *ticket = 0; /* ready for the next layer */
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

/* Merges the splits, in the last block. First come their weights[kColumns][kMaxSplits]: a warp takes a
 * column, a lane two splits. */
template <int kHeadDim, int kColumns, bool kPlanes>
__device__ __forceinline__ void merge_splits(const AttentionArgs &a, const Columns &columns,
                                             const Partials &from, int n_used, float *weights) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 4
  for (int column = warp; column < columns.n; column += kWarps) {
    float2 pair[kMaxSplits / 32];
    float high = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < kMaxSplits / 32; i++) {
      int p = lane + 32 * i;
      pair[i] = p < n_used ? __ldcg(&from.states[p * kColumns + column]) : make_float2(-INFINITY, 0);
      high = fmaxf(high, pair[i].x);
    }
    high = lanes_max<16, 8, 4, 2, 1>(high);
#pragma unroll
    for (int i = 0; i < kMaxSplits / 32; i++) total += power_of_2(pair[i].x - high) * pair[i].y;
    total = warp_sum(total) + sink_weight(a, columns.query_head(column), high);
#pragma unroll
    for (int i = 0; i < kMaxSplits / 32; i++)
      weights[column * kMaxSplits + lane + 32 * i] = power_of_2(pair[i].x - high) / total;
  }
  __syncthreads();
  /* Longer heads: several numbers at once, so that more loads are in flight. */
  constexpr int kChunks = kHeadDim / 4, kAtOnce = kHeadDim > 128 ? kHeadDim / 128 : 1;
  for (int first = threadIdx.x; first < columns.n * kChunks; first += kAtOnce * kThreads) {
    float4 values[kAtOnce] = {};
#pragma unroll 8
    for (int p = 0; p < n_used; p++)
#pragma unroll
      for (int j = 0; j < kAtOnce; j++) {
        const int i = min(first + j * kThreads, columns.n * kChunks - 1);
        add_scaled(values[j], weights[i / kChunks * kMaxSplits + p],
                   __ldcg(from.outputs + p * kColumns * kChunks + i));
      }
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      const int i = first + j * kThreads;
      if (i < columns.n * kChunks)
        store_output<kPlanes>(a, columns, i / kChunks, i % kChunks * 4, values[j], 1);
    }
  }
}

/* Loads a tile of keys, from this row of the cache on, and their values. */
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_tile(T *to, const AttentionArgs &a, size_t row, int n) {
  load_keys<T, kHeadDim>(to, a, row * kHeadDim, n);
  load_values<T, kHeadDim>(to + room_of_keys<T>(kHeadDim), a, row * kHeadDim, n);
}

/* One split of the keys of one KV head, kTiles * 8 columns. With two stages the next tile loads while one is
 * multiplied; with one the next keys load while the values are multiplied, and the next values while the keys
 * are. */
template <typename T, int kHeadDim, int kTiles, int kStages, bool kCapped, bool kWhole = false,
          bool kPlanes = false>
__global__ void __launch_bounds__(kThreads) attention_decode_kernel(AttentionArgs a, int n_tokens) {
  begin_overlapping();
  constexpr int kColumns = kTiles * 8, kStride = row_stride<T>(kHeadDim), kOfKeys = room_of_keys<T>(kHeadDim),
                kStage = kOfKeys + room_of_values<T>(kHeadDim);
  extern __shared__ __align__(16) unsigned char shared[];
  __half *queries = (__half *)shared;
  T *stages = (T *)(queries + kColumns * padded_stride(kHeadDim));

  const AttentionUnit unit =
      a.units ? a.units[blockIdx.y] : AttentionUnit{a.first_token, (int)blockIdx.y, (int)gridDim.y, 0};
  if (unit.row < 0) return;
  int group = a.n_heads / a.n_kv_heads, kv_head = blockIdx.x, split = unit.split, n_splits = unit.n_splits;
  const Columns columns = {n_tokens * group, group, kv_head, unit.row};
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  int pos = a.pos[unit.row], length = pos + n_tokens;
  if (kWhole) pos = length = a.pos[0] + a.whole;
  const int start = first_step<kKeys>(a, pos);
  int tiles = (length - start + kKeys - 1) / kKeys, per_split = (tiles + n_splits - 1) / n_splits;
  int n_used = (tiles + per_split - 1) / per_split; /* splits that have keys */
  if (split >= n_used) return;
  int first = start + split * per_split * kKeys, end = min(length, first + per_split * kKeys);

  const CacheRows rows(a.pages, unit.row, a.n_kv_heads / a.kv_sharers, kv_head / a.kv_sharers, a.n_ctx);
  size_t at = rows.at(first) * kHeadDim;
  load_keys<T, kHeadDim>(stages, a, at, end - first);
  if (kStages == 1) copy_async_commit();
  load_values<T, kHeadDim>(stages + kOfKeys, a, at, end - first);
  copy_async_commit();
  if (first + kKeys < end) at = rows.at(first + kKeys) * kHeadDim; /* of the next keys, asked for early */
  load_queries<T, kHeadDim, kColumns>(queries, a, columns);

  OnlineSoftmax<T, kHeadDim, kTiles> state;
  state.begin();
  int stage = 0;
  for (int tile = first; tile < end; tile += kKeys, stage ^= kStages - 1) {
    const int left = end - tile - kKeys; /* keys after the tile */
    if (kStages > 1 && left > 0)
      load_tile<T, kHeadDim>(stages + (stage ^ 1) * kStage, a, at / kHeadDim, left);
    if (kStages > 1) copy_async_commit();
    if (kStages > 1 && left > kKeys) at = rows.at(tile + 2 * kKeys) * kHeadDim;
    copy_async_wait<1>(); /* the tile, or with one stage its keys */
    __syncthreads();

    const T *tile_keys = stages + stage * kStage, *keys = tile_keys + warp * 16 * kStride;
    const __half *key_scale =
                     (const __half *)(tile_keys + kKeys * kStride) + warp * 16 * key_scales(kHeadDim),
                 *value_scale = (const __half *)(tile_keys + kOfKeys + kKeys * kStride) + warp * 16;
    float s[kTiles][4] = {};
    uint32_t weights[kTiles][2];
    state.score(queries, keys, key_scale, s, lane);
    if (kStages == 1) {
      __syncthreads();
      if (left > 0) load_keys<T, kHeadDim>(stages, a, at, left);
      copy_async_commit();
      copy_async_wait<1>(); /* the values */
      __syncthreads();
    }
    state.template softmax<kCapped>(a, s, tile + warp * 16 + lane / 4, pos, length, group, weights, lane % 4);
    state.accumulate(keys + kOfKeys, value_scale, weights, lane);
    __syncthreads();
    if (kStages == 1) {
      if (left > 0) load_values<T, kHeadDim>(stages + kOfKeys, a, at, left);
      if (left > kKeys) at = rows.at(tile + 2 * kKeys) * kHeadDim;
      copy_async_commit();
    }
  }

  /* The warps' states, and later the splits' weights, overlay the stages, which are dead. */
  float *joined = (float *)stages, *maxima = joined + kWarps * kColumns * kHeadDim,
        *sums = maxima + kWarps * kColumns;
  state.store(joined, maxima, sums, warp, lane);
  __syncthreads();
  const size_t of_head = ((size_t)unit.first * a.n_kv_heads + kv_head * n_splits) * kColumns;
  const size_t n_blocks = a.units ? a.unit_places : a.n_kv_heads * n_splits;
  float2 *all_states = (float2 *)a.partials;
  const Partials partials = {all_states + of_head,
                             (float4 *)(all_states + n_blocks * kColumns) + of_head * (kHeadDim / 4)};
  merge_warps<kHeadDim, kColumns, kPlanes>(a, columns, joined, maxima, sums, partials, split, n_used == 1);
  if (n_used == 1 || !is_last(&a.tickets[unit.first * a.n_kv_heads + kv_head], n_used)) return;
  merge_splits<kHeadDim, kColumns, kPlanes>(a, columns, partials, n_used, joined);
}

/* Blocks that run at once on an H200 (132 SMs of 228 KB of shared memory, 1 KB of it taken for each block; a
 * block's threads take up to 102 registers). */
int blocks_at_once(size_t bytes) {
  return 132 * std::min(5, (int)((228 << 10) / (bytes + 1024)));
}

/* One stage instead of two where two fit no chip (heads of 512 in fp16) or not this one (sm_75: 64 KB), and
 * where all blocks run at once only with one: a second wave of a few blocks takes as long as the first. The
 * bits are the same. */
template <typename T, int kHeadDim, int kTiles, bool kCapped, bool kPlanes>
Status launch_of(const AttentionArgs &a, int n_tokens, int n_blocks, cudaStream_t stream, Error *err) {
  constexpr int kStages = kHeadDim > 256 ? 1 : 2;
  constexpr size_t kBytes = shared_bytes<T>(kHeadDim, kTiles, kStages),
                   kLess = shared_bytes<T>(kHeadDim, kTiles, 1);
  auto kernel = attention_decode_kernel<T, kHeadDim, kTiles, kStages, kCapped, false, kPlanes>;
  size_t bytes = kBytes;
  if constexpr (kStages > 1 && kBytes > kLeastShared) {
    const int blocks = a.n_kv_heads * n_blocks;
    if (kBytes > a.shared_limit || (blocks > blocks_at_once(kBytes) && blocks <= blocks_at_once(kLess))) {
      kernel = attention_decode_kernel<T, kHeadDim, kTiles, 1, kCapped, false, kPlanes>;
      bytes = kLess;
    }
  }
  return launch(kernel, dim3(a.n_kv_heads, n_blocks), kThreads, bytes, stream, true, "attention", err, a,
                n_tokens);
}

template <typename T, int kHeadDim, int kTiles, bool kCapped>
Status launch_stages(const AttentionArgs &a, int n_tokens, int n_blocks, cudaStream_t stream, Error *err) {
  if constexpr (std::is_same<T, __half>::value && kHeadDim == kPlanesHead && !kCapped)
    if (a.planes) return launch_of<T, kHeadDim, kTiles, false, true>(a, n_tokens, n_blocks, stream, err);
  return launch_of<T, kHeadDim, kTiles, kCapped, false>(a, n_tokens, n_blocks, stream, err);
}

template <typename T, int kHeadDim, bool kCapped>
Status launch_columns(const AttentionArgs &a, int n_tokens, int n_blocks, cudaStream_t stream, Error *err) {
  const int tiles = tiles_of(a, n_tokens);
  if (tiles == 1) return launch_stages<T, kHeadDim, 1, kCapped>(a, n_tokens, n_blocks, stream, err);
  if constexpr (kHeadDim <= 256)
    if (tiles == 2) return launch_stages<T, kHeadDim, 2, kCapped>(a, n_tokens, n_blocks, stream, err);
  if constexpr (kHeadDim <= 128)
    return launch_stages<T, kHeadDim, 4, kCapped>(a, n_tokens, n_blocks, stream, err);
  return error_set(err, STATUS_FAILED, "attention: no kernel for %d tokens at once", n_tokens);
}

} // namespace

size_t attention_decode_shared(const AttentionArgs &a, int n_tokens) {
  if (a.whole) return shared_bytes<__half>(a.head_dim, 4, 2);
  const int tiles = tiles_of(a, n_tokens);
  return a.k_scales ? shared_bytes<uint8_t>(a.head_dim, tiles, 1)
                    : shared_bytes<__half>(a.head_dim, tiles, 1);
}

Status attention_decode(const AttentionArgs &a, int n_tokens, int n_blocks, cudaStream_t stream, Error *err) {
  if (a.whole)
    return launch(attention_decode_kernel<__half, kWholeHead, 4, 2, false, true>,
                  dim3(a.n_kv_heads, n_blocks), kThreads, shared_bytes<__half>(kWholeHead, 4, 2), stream,
                  true, "attention", err, a, n_tokens);
  return with_head_size(a, err, [&](auto size, auto capped) {
    constexpr int kHeadDim = decltype(size)::value;
    constexpr bool kCapped = decltype(capped)::value;
    return a.k_scales ? launch_columns<uint8_t, kHeadDim, kCapped>(a, n_tokens, n_blocks, stream, err)
                      : launch_columns<__half, kHeadDim, kCapped>(a, n_tokens, n_blocks, stream, err);
  });
}
