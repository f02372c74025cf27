/* attention_decode.cu - few tokens against a long cache, or one token of each of many sequences:
 * flash-decoding, the keys split over the whole GPU.
 *
 * A block serves one KV head and one split of the keys of its token or tokens. Each of its four warps takes
 * 16 of every 64 keys. The mma's columns (8 to 32) are the tokens times the query heads that share the KV
 * head. So each key and value is read once for all columns:
 *     S^T [16 keys x columns] = K [16 keys x head_dim] Q^T          (K as it lies in the cache)
 *     O^T [16 dims x columns] += V^T [16 dims x 16 keys] P^T        (ldmatrix transposes V, movmatrix P)
 * Each warp keeps its own online softmax. A block merges its four warps' states and writes a partial result
 * (without splits: the output). The last block of a KV head to finish merges the partial results. With
 * several sequences the last block of each token and KV head merges that token's results. Results are added
 * in a fixed order, so runs are bitwise equal.
 * READS  2 * n_kv_heads * length * head_dim * 2 bytes of cache; reference: attention_plain.cu.
 *
 * The ring has one or two stages. A warp copies the 16 keys and values of a tile that it multiplies itself.
 * So its lanes wait only for their own copies and, by __syncwarp(), for each other. They wait before they
 * read and before they fill again:
 *     2 stages   (K V) 0 | copy (K V) 1, wait for 0, multiply 0 | copy (K V) 2, wait for 1, multiply 1 | ...
 *     1 stage    K 0, V 0 | wait K 0, scores, copy K 1, wait V 0, outputs, copy V 1 | wait K 1, ...
 * The shared memory after the queries has three uses in succession, with a __syncthreads() between them:
 *     stages of keys and values | joined: the warps' outputs, shifts, sums | the last block: splits' weights
 *
 * A cache in 8 bits (q8.cuh) has about half as many bytes. One permutation of bytes makes its numbers halves
 * in registers, without their scales and with a constant added:
 *     K       Every 16 dims are one mma, and the key's scale of 16 dims multiplies its sums in fp32. The
 *             constant's part of a score is the dot product of the key's scales and the query's sums over
 *             16 dims. One more mma subtracts it.
 *     V       A value's scale is a factor of its weight. The constant's part of an output is the same for all
 *             dims, a sum of weights. One more mma computes it, to be subtracted.
 * A sum may take its dims in any order. The order below gives lane 4 g + t, written (g, t), its operands in
 * one word of 4 bytes. load_queries() brings q into the same order:
 *     K       lane (g, t), 16 dims: 4t .. 4t + 3 of keys g and g + 8, an mma's k 2t, 2t + 1, 2t + 8, 2t + 9
 *     V       16 dims: 2g and 2g + 1 of keys 2t, 2t + 1, 2t + 8, 2t + 9, an mma's rows g and g + 8 */
#include <algorithm>
#include <type_traits>

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/attention/planes.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kSettle = 8;                      /* tiles of keys from one settle() to the next */
constexpr int kOwn = 16, kKeys = kOwn * kWarps; /* keys of a tile: of one warp, and of all */

template <typename T> constexpr bool kIsQ8 = sizeof(T) == 1;

/* The number of a key's scales in a group, which has 128 dims. One mma subtracts the constant's part for a
 * whole group. */
constexpr int kGroup = 8;
__host__ __device__ constexpr int groups_of(int head_dim) {
  return (key_scales(head_dim) + kGroup - 1) / kGroup;
}

/* Row stride in shared memory, in elements. */
template <typename T> __host__ __device__ constexpr int row_stride(int head_dim) {
  return kIsQ8<T> ? padded_bytes(head_dim) : padded_stride(head_dim);
}
/* Row stride of queries. With 8 bits, 2 kGroup halves for each group follow a query's numbers
 * (load_sixteen()). */
template <typename T> __host__ __device__ constexpr int query_stride(int head_dim) {
  return padded_stride(head_dim + (kIsQ8<T> ? 2 * kGroup * groups_of(head_dim) : 0));
}
/* Elements that kKeys keys, or values, take in shared memory: their rows, and with 8 bits the scales. */
template <typename T> __host__ __device__ constexpr int room_of_keys(int head_dim) {
  return kKeys * (row_stride<T>(head_dim) + (kIsQ8<T> ? key_scales(head_dim) * KV_SCALE_BYTES : 0));
}
template <typename T> __host__ __device__ constexpr int room_of_values(int head_dim) {
  return kKeys * (row_stride<T>(head_dim) + (kIsQ8<T> ? KV_SCALE_BYTES : 0));
}

/* Bytes of shared memory: queries, then stages of keys and values, which the warps' results overlay. */
template <typename T> constexpr size_t shared_bytes(int head_dim, int n_tiles, int stages) {
  size_t tiles = stages * sizeof(T) * (room_of_keys<T>(head_dim) + room_of_values<T>(head_dim));
  size_t queries = (size_t)n_tiles * 8 * query_stride<T>(head_dim) * sizeof(__half);
  size_t joined = (size_t)kWarps * n_tiles * 8 * (head_dim + 2) * sizeof(float);
  return queries + (tiles > joined ? tiles : joined);
}

int tiles_of(const AttentionArgs &a, int n_tokens) {
  int columns = n_tokens * (a.n_heads / a.n_kv_heads);
  return columns <= 8 ? 1 : columns <= 16 ? 2 : 4;
}

/* Columns of a KV head. Column c has token first_token + c / group and query head kv_head * group + c %
 * group. */
struct Columns {
  int n, group, kv_head, first_token;
  __device__ __forceinline__ int query_head(int column) const { return kv_head * group + column % group; }
  __device__ __forceinline__ size_t head(const AttentionArgs &a, int column) const {
    return (size_t)(first_token + column / group) * a.n_heads + query_head(column);
  }
};

/* A lane's part of the kOwn rows, kRow numbers each, that its warp copies of a tile: 16 bytes of row `row`
 * and of every kAtOnce-th row after it. If rows are longer than 512 bytes: 16 bytes of every 512 bytes. */
template <typename T, int kRow> struct OwnRows {
  static constexpr int kChunk = 16 / sizeof(T), kChunks = kRow / kChunk, kLanes = kChunks < 32 ? kChunks : 32,
                       kAtOnce = 32 / kLanes, kStride = row_stride<T>(kRow);
  static_assert(kChunks <= 32 || kChunks % 32 == 0, "lanes share a row");
  int row;      /* the lane's first row; kOwn: none */
  int from, to; /* where the lane's first 16 bytes are: in a tile (in uint4), in a stage (in T) */
  __device__ __forceinline__ OwnRows(int warp, int lane)
      : row(lane / kLanes < kAtOnce ? lane / kLanes : kOwn), from(warp * kOwn * kChunks + lane),
        to((warp * kOwn + row) * kStride + lane % kLanes * kChunk) {}

  /* Copies the warp's rows of the tile that begins with row `first` of the cache. All but the warp's first n
   * rows become zeros. PRECOND the keys of a layer have less than 64 GiB. */
  __device__ __forceinline__ void copy(T *stage, const void *numbers, unsigned first, int n) const {
    const uint4 *chunks = (const uint4 *)numbers + (first * kChunks + from);
    T *to_rows = stage + to;
#pragma unroll
    for (int r = 0; r < kOwn; r += kAtOnce)
#pragma unroll
      for (int c = 0; c < kChunks; c += 32)
        if ((32 % kLanes == 0 && kOwn % kAtOnce == 0) || row < kOwn - r)
          copy_async_16(to_rows + r * kStride + c * kChunk, chunks + r * kChunks + c, row < n - r ? 16 : 0);
  }
};

/* Copies the scales of the warp's kOwn rows, kPerRow each, of the tile that begins with row `first`. Reads
 * past the last key, too: a cache in 8 bits has rows up to a multiple of 64 (attention.h). */
template <int kPerRow>
__device__ __forceinline__ void copy_own_scales(void *stage, const __half *scales, unsigned first, int warp,
                                                int lane) {
  constexpr int kChunks = kOwn * kPerRow * KV_SCALE_BYTES / 16;
  const uint4 *from = (const uint4 *)(scales + (size_t)first * kPerRow);
#pragma unroll
  for (int i = lane; i < kChunks; i += 32)
    copy_async_16((uint4 *)stage + warp * kChunks + i, from + warp * kChunks + i, 16);
}

/* Loads kKeys keys, from row `row` of the cache on. All but the first n become zeros, with arbitrary scales.
 * A warp loads the keys that it multiplies itself, so it waits for no other warp. */
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_keys(T *to, const AttentionArgs &a, const OwnRows<T, kHeadDim> &own,
                                          unsigned row, int n, int warp, int lane) {
  own.copy(to, a.k, row, n - warp * kOwn);
  if constexpr (kIsQ8<T>)
    copy_own_scales<key_scales(kHeadDim)>(to + kKeys * own.kStride, a.k_scales, row, warp, lane);
}

/* load_keys() for values. */
template <typename T, int kHeadDim>
__device__ __forceinline__ void load_values(T *to, const AttentionArgs &a, const OwnRows<T, kHeadDim> &own,
                                            unsigned row, int n, int warp, int lane) {
  own.copy(to, a.v, row, n - warp * kOwn);
  if constexpr (kIsQ8<T>) copy_own_scales<1>(to + kKeys * own.kStride, a.v_scales, row, warp, lane);
}

/* Stores dims 8 i .. 8 i + 7 (i = 0 or 1) of 16 dims of a query in the order of 8-bit keys (the file's head):
 * first 4t and 4t + 1 of all t, then 4t + 2 and 4t + 3. */
__device__ __forceinline__ void store_for_q8(__half *sixteen, int i, uint4 v) {
  *(uint2 *)(sixteen + i * 4) = make_uint2(v.x, v.z);
  *(uint2 *)(sixteen + 8 + i * 4) = make_uint2(v.y, v.w);
}

__device__ __forceinline__ float sum_of_halves(uint4 v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  float sum = 0;
#pragma unroll
  for (uint32_t word : words) {
    const float2 pair = __half22float2(*(const __half2 *)&word);
    sum += pair.x + pair.y;
  }
  return sum;
}

/* Loads a query's dims 16 i .. 16 i + 15 for a cache in 8 bits. After the query, each group has its sums of
 * 16 dims, times -kKeyOffset: kGroup halves, then kGroup remainders, together nearly as exact as fp32.
 * PRECOND sums of 16 dims are below 230,000: larger sums, times kKeyOffset, exceed fp16. */
template <int kHeadDim>
__device__ __forceinline__ void load_sixteen(__half *query, const __half *from, int i) {
  float sum = 0;
  if (i < kHeadDim / 16) {
    for (int half = 0; half < 2; half++) {
      const uint4 v = from ? __ldcg((const uint4 *)(from + i * 16 + half * 8)) : make_uint4(0, 0, 0, 0);
      store_for_q8(query + i * 16, half, v);
      sum += sum_of_halves(v);
    }
  }
  const __half high = __float2half_rn(sum * -kKeyOffset);
  __half *to = query + kHeadDim + i / kGroup * 2 * kGroup + i % kGroup;
  to[0] = high, to[kGroup] = __float2half_rn(sum * -kKeyOffset - __half2float(high));
}

/* Loads the queries; columns past the last are zeros. */
template <typename T, int kHeadDim, int kColumns>
__device__ __forceinline__ void load_queries(__half *queries, const AttentionArgs &a,
                                             const Columns &columns) {
  constexpr int kPieces = kIsQ8<T> ? kGroup * groups_of(kHeadDim) : kHeadDim / 8;
  for (int i = threadIdx.x; i < kColumns * kPieces; i += kThreads) {
    const int column = i / kPieces, piece = i % kPieces;
    const __half *from = column < columns.n ? (const __half *)a.q + columns.head(a, column) * kHeadDim : NULL;
    __half *to = queries + column * query_stride<T>(kHeadDim);
    if constexpr (kIsQ8<T>)
      load_sixteen<kHeadDim>(to, from, piece);
    else
      *(uint4 *)(to + piece * 8) = from ? __ldcg((const uint4 *)(from + piece * 8)) : make_uint4(0, 0, 0, 0);
  }
}

/* The first n of four scales of a key as floats. kScales: the number of a whole key's scales, which
 * determines their alignment. */
template <int kScales>
__device__ __forceinline__ void scales_as_floats(const __half *from, int n, float (&to)[4]) {
  using Word =
      std::conditional_t<kScales % 4 == 0, uint2, std::conditional_t<kScales % 2 == 0, uint32_t, uint16_t>>;
  constexpr int kHalves = sizeof(Word) / sizeof(__half);
#pragma unroll
  for (int i = 0; i < 4 && i < n; i += kHalves) {
    const Word word = *(const Word *)(from + i);
#pragma unroll
    for (int j = 0; j < kHalves; j++) to[i + j] = __half2float(((const __half *)&word)[j]);
  }
}

/* Scales 2 t and 2 t + 1 of N as a pair of halves; scales from N on are zeros. */
template <int N> __device__ __forceinline__ uint32_t scale_pair(const __half *scales, int t) {
  if constexpr (N % 2 == 0) return 2 * t < N ? *(const uint32_t *)(scales + 2 * t) : 0;
  const uint32_t low = 2 * t < N ? __half_as_ushort(scales[2 * t]) : 0,
                 high = 2 * t + 1 < N ? __half_as_ushort(scales[2 * t + 1]) : 0;
  return low | high << 16;
}

/* The keys that the block's tokens see. Each token sees keys up to its own position and up to length - 1,
 * inside its window or chunk. */
struct Seen {
  int pos, length, group;
  int begin, end; /* keys that all tokens of the block see */
  __device__ __forceinline__ Seen(const AttentionArgs &a, int pos_, int length_, int n_tokens, int group_)
      : pos(pos_), length(length_), group(group_), begin(newest_unseen(a, pos_ + n_tokens - 1) + 1),
        end(min(pos_ + 1, length_)) {}
};

/* A warp's online softmax of each column, in mma's layout: lane 4 g + t has columns 8 n + 2 t + c. A key's
 * weight is 2^(score - shift); if the cache has 8 bits, this is multiplied by the scale of the key's value.
 * Raising a shift takes a maximum over lanes and a product for each output. So a column's shift is raised
 * only where a weight would exceed kMostWeight or, with 8 bits, the column's sum kMostSum. This is rare after
 * the first keys. */
template <typename T, int kHeadDim, int kTiles> struct OnlineSoftmax {
  static constexpr int kCached = row_stride<T>(kHeadDim), kSteps = kHeadDim / 16; /* steps of 16 dims */
  /* After its shift was raised, a column's largest weight is at most 2^kRaisedLog2; until then kMostWeight.
   * fp16 has 11 bits from 2^-14 to 2^16. With 8 bits the sum has its own limit, because its terms lack the
   * values' scales: a scale of 0 makes a weight 0, but leaves the term of the sum large. */
  static constexpr float kRaisedLog2 = 8, kMostWeight = 1 << 15, kMostSum = 1e30f;
  float o[kSteps][kTiles][4], shift[kTiles][2], sum[kTiles][2];
  float offset[kTiles][4]; /* with 8 bits: what the constant of values has added to each o */

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      shift[n][0] = shift[n][1] = -1e30f, sum[n][0] = sum[n][1] = 0;
      offset[n][0] = offset[n][1] = offset[n][2] = offset[n][3] = 0;
#pragma unroll
      for (int d = 0; d < kSteps; d++) o[d][n][0] = o[d][n][1] = o[d][n][2] = o[d][n][3] = 0;
    }
  }

  /* The lane's address for ldmatrix of 16 rows by 32 dims of one byte; `at` is dim 16 d of the first row. The
   * matrices: rows 0 .. 7, then 8 .. 15, of the first 16 dims; then the same rows of the next 16 dims. If the
   * head has no next dims, the first dims are read again. */
  static __device__ __forceinline__ uint32_t of_16_rows(const T *at, int d, int lane) {
    return shared_address(at + lane % 16 * kCached + (d + 1 < kSteps ? lane / 16 * 16 : 0));
  }

  /* Operands a of the keys' dims 16 d .. 16 d + 31, or 16 d .. 16 d + 15 if these are the last. */
  static __device__ __forceinline__ void key_operands(const T *keys, int d, uint32_t (&key)[2][4], int lane) {
    if constexpr (kIsQ8<T>) {
      uint32_t bytes[4];
      ldmatrix_x4(bytes, of_16_rows(keys + d * 16, d, lane));
#pragma unroll
      for (int i = 0; i < 4; i++)
        key[i / 2][i % 2] = key_halves<false>(bytes[i]), key[i / 2][2 + i % 2] = key_halves<true>(bytes[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 2 && d + i < kSteps; i++)
        ldmatrix_x4(key[i], shared_address(keys + lane % 16 * kCached + (d + i) * 16 + lane / 16 * 8));
    }
  }

  /* Operands b of queries 8 n .. 8 n + 7: of dims 16 d .. 16 d + 15 and, with `two`, the next 16. */
  static __device__ __forceinline__ void query_operands(const __half *queries, int n, int d, bool two,
                                                        uint32_t (&query)[4], int lane) {
    ldmatrix_x4(query, shared_address(queries + (n * 8 + lane % 8) * query_stride<T>(kHeadDim) + d * 16 +
                                      lane / 8 % (two ? 4 : 2) * 8));
  }

  /* Adds up s[n][2 h + c], the score of key g + 8 h of 16 with column 8 n + 2 t + c. */
  static __device__ __forceinline__ void score(const __half *queries, const T *keys, const __half *scales,
                                               float (&s)[kTiles][4], int lane) {
    if constexpr (kIsQ8<T>) {
      score_group<0>(queries, keys, scales, s, lane);
    } else {
#pragma unroll
      for (int d = 0; d < kSteps; d += 2) {
        uint32_t key[2][4], query[4];
        key_operands(keys, d, key, lane);
#pragma unroll
        for (int n = 0; n < kTiles; n++) {
          query_operands(queries, n, d, d + 1 < kSteps, query, lane);
          mma_f16_m16n8k16(s[n], key[0], query[0], query[1]);
          if (d + 1 < kSteps) mma_f16_m16n8k16(s[n], key[1], query[2], query[3]);
        }
      }
    }
  }

  /* score() for 8 bits, over the groups of dims from kFirst on. A group has kGroup scales of 16 dims each,
   * the last group perhaps fewer. */
  template <int kFirst>
  static __device__ __forceinline__ void score_group(const __half *queries, const T *keys,
                                                     const __half *scales, float (&s)[kTiles][4], int lane) {
    constexpr int kScales = key_scales(kHeadDim), kLeft = kScales - kFirst * kGroup,
                  kOwnScales = kLeft < kGroup ? kLeft : kGroup;
    const __half *row = scales + lane / 4 * kScales + kFirst * kGroup;
    uint32_t pairs[4];
#pragma unroll
    for (int h = 0; h < 2; h++)
      pairs[h] = pairs[2 + h] = scale_pair<kOwnScales>(row + 8 * h * kScales, lane % 4);
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      uint32_t offsets[4];
      query_operands(queries, n, kSteps + kFirst, false, offsets, lane);
      mma_f16_m16n8k16(s[n], pairs, offsets[0], offsets[1]);
    }
    float scale[2][4];
#pragma unroll
    for (int d = 0; d < kOwnScales; d += 2) {
      if (d % 4 == 0) {
        compiler_fence();
#pragma unroll
        for (int h = 0; h < 2; h++)
          scales_as_floats<kScales>(row + 8 * h * kScales + d, kOwnScales - d, scale[h]);
      }
      const int step = kFirst * kGroup + d;
      uint32_t key[2][4], query[4];
      key_operands(keys, step, key, lane);
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        query_operands(queries, n, step, step + 1 < kSteps, query, lane);
#pragma unroll
        for (int i = 0; i < 2 && d + i < kOwnScales; i++) {
          float part[4] = {};
          mma_f16_m16n8k16(part, key[i], query[2 * i], query[2 * i + 1]);
#pragma unroll
          for (int j = 0; j < 4; j++) s[n][j] += part[j] * scale[j / 2][(d + i) % 4];
        }
      }
    }
    if constexpr (kLeft > kGroup) score_group<kFirst + 1>(queries, keys, scales, s, lane);
  }

  /* The scores of keys `position` and `position` + 8 that a token does not see become -infinity. */
  static __device__ __forceinline__ void hide_unseen(const AttentionArgs &a, const Seen &seen, int position,
                                                     int n, float (&s)[4], int t) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int token = (n * 8 + 2 * t + c) / seen.group, limit = min(seen.pos + token, seen.length - 1),
                unseen = newest_unseen(a, seen.pos + token);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int key = position + 8 * h;
        if (key > limit || key <= unseen) s[2 * h + c] = -INFINITY;
      }
    }
  }

  /* Raises a column's shift if `good` is false for the column in any lane. Scores are s times `factor`; v:
   * the scales of the keys' values. Shifts are integers, so a change of shift is a power of 2, which is
   * exact. */
  __device__ __forceinline__ void raise(int n, const float (&s)[4], float factor, const float (&v)[2],
                                        const bool (&good)[2], int t) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const bool wanted = __ballot_sync(~0u, !good[c]) & 0x11111111u << t;
      float high = -INFINITY;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int above = (int)(__float_as_uint(fmaxf(fabsf(v[h]), 0x1p-24f)) >> 23) - 126; /* v < 2^above */
        high = fmaxf(high, s[2 * h + c] * factor + (kIsQ8<T> ? (float)above : 0));
      }
      high = ceilf(lanes_max<4, 8, 16>(high)) - kRaisedLog2;
      const float keep = wanted ? power_of_2(shift[n][c] - high) : 1;
      if (wanted) shift[n][c] = high;
      sum[n][c] *= keep, offset[n][c] *= keep, offset[n][2 + c] *= keep;
#pragma unroll
      for (int d = 0; d < kSteps; d++) o[d][n][c] *= keep, o[d][n][2 + c] *= keep;
    }
  }

  /* Turns the scores of keys `position` and `position` + 8 into weights, operand b of the mma with values.
   * value_scales: with 8 bits, from key `position` on. */
  template <bool kCapped>
  __device__ __forceinline__ void softmax(const AttentionArgs &a, float (&s)[kTiles][4], const Seen &seen,
                                          int position, bool all_seen, const __half *value_scales,
                                          uint32_t (&weights)[kTiles][2], int t) {
    const float factor = kCapped ? 1 : a.scale_log2;
    float v[2] = {1, 1};
    if constexpr (kIsQ8<T>) v[0] = __half2float(value_scales[0]), v[1] = __half2float(value_scales[8]);
    if (kCapped) {
#pragma unroll
      for (int n = 0; n < kTiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = score_log2<true>(a, s[n][i]);
    }
    if (!all_seen) {
#pragma unroll
      for (int n = 0; n < kTiles; n++) hide_unseen(a, seen, position, n, s[n], t);
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (position + 8 * h >= seen.length) v[h] = 0; /* scales past the last value may be NaN */
    }
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
      float w[4], total[2];
      bool good[2];
      const auto weigh = [&]() {
        total[0] = sum[n][0], total[1] = sum[n][1];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float p = power_of_2(s[n][i] * factor - shift[n][i % 2]);
          total[i % 2] += p, w[i] = kIsQ8<T> ? p * v[i / 2] : p;
        }
#pragma unroll
        for (int c = 0; c < 2; c++)
          good[c] = fmaxf(fabsf(w[c]), fabsf(w[2 + c])) <= kMostWeight && (!kIsQ8<T> || total[c] <= kMostSum);
      };
      weigh();
      if (!__all_sync(~0u, good[0] && good[1])) {
        raise(n, s[n], factor, v, good, t);
        weigh();
      }
      sum[n][0] = total[0], sum[n][1] = total[1];
      weights[n][0] = transpose_matrix(pack_half2(w[0], w[1]));
      weights[n][1] = transpose_matrix(pack_half2(w[2], w[3]));
    }
  }

  __device__ __forceinline__ void multiply(int d, const uint32_t (&value)[4],
                                           const uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (int n = 0; n < kTiles; n++) mma_f16_m16n8k16(o[d][n], value, weights[n][0], weights[n][1]);
  }

  __device__ __forceinline__ void accumulate(const T *values, const uint32_t (&weights)[kTiles][2],
                                             int lane) {
    if constexpr (kIsQ8<T>) {
#pragma unroll
      for (int d = 0; d < kSteps; d += 2) {
        uint32_t bytes[4];
        ldmatrix_x4_transposed(bytes, of_16_rows(values + d * 16, d, lane));
#pragma unroll
        for (int i = 0; i < 2 && d + i < kSteps; i++) {
          const uint32_t *two = bytes + 2 * i; /* words of keys 0 .. 7 and 8 .. 15 */
          const uint32_t value[4] = {value_halves<0>(two[0]), value_halves<1>(two[0]),
                                     value_halves<0>(two[1]), value_halves<1>(two[1])};
          multiply(d + i, value, weights);
        }
      }
      const uint32_t value[4] = {kValueOffsets, kValueOffsets, kValueOffsets, kValueOffsets};
#pragma unroll
      for (int n = 0; n < kTiles; n++) mma_f16_m16n8k16(offset[n], value, weights[n][0], weights[n][1]);
    } else {
#pragma unroll
      for (int d = 0; d < kSteps; d++) {
        uint32_t value[4];
        ldmatrix_x4_transposed(
            value, shared_address(values + (lane % 8 + lane / 16 * 8) * kCached + d * 16 + lane / 8 % 2 * 8));
        multiply(d, value, weights);
      }
    }
  }

  /* With 8 bits: subtracts the offset from o. An mma truncates its terms to the last bit of the largest one.
   * The larger o and the offset are, the more their losses differ. A simulation (random numbers and weights,
   * sums with 2 bits more than fp32) has an NMSE of 3e-5 after 512 tiles, and of 1e-9 with settle() every 8
   * tiles. */
  __device__ __forceinline__ void settle() {
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int d = 0; d < kSteps; d++) o[d][n][i] -= offset[n][i];
        offset[n][i] = 0;
      }
  }

  /* The dim of o[d][n][2 h + c] in lane (g, t). */
  static __device__ __forceinline__ int dim_of(int d, int h, int g) {
    return d * 16 + (kIsQ8<T> ? 2 * g + h : 8 * h + g);
  }

  /* Writes to shared memory: outputs [kWarps][columns][kHeadDim], shifts and sums [kWarps][columns]. */
  __device__ __forceinline__ void store(float *outputs, float *shifts, float *sums, int warp, int lane) {
    const int g = lane / 4, t = lane % 4;
    constexpr float kUnit = kIsQ8<T> ? 1 / kValueUnit : 1;
    if constexpr (kIsQ8<T>) settle();
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const float total = lanes_sum<4, 8, 16>(sum[n][c]);
        const int at = warp * kTiles * 8 + n * 8 + 2 * t + c;
        if (g == 0) shifts[at] = shift[n][c], sums[at] = total;
#pragma unroll
        for (int d = 0; d < kSteps; d++)
          outputs[at * kHeadDim + dim_of(d, 0, g)] = o[d][n][c] * kUnit,
                                               outputs[at * kHeadDim + dim_of(d, 1, g)] =
                                                   o[d][n][2 + c] * kUnit;
      }
  }
};

__device__ __forceinline__ void add_scaled(float4 &sum, float weight, float4 value) {
  sum.x += weight * value.x, sum.y += weight * value.y, sum.z += weight * value.z, sum.w += weight * value.w;
}

/* Writes four dims of a column's output; with kPlanes the lanes of the warp together have the whole head. */
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

/* Partial results of a KV head in device memory. states: {shift, sum of 2^(score - shift)} [split][column].
 * outputs: [split][column][kHeadDim], not divided by the sum. */
struct Partials {
  float2 *states;
  float4 *outputs;
};

/* Merges the warps' states into the output if this block has all of the keys, else into a partial result. */
template <int kHeadDim, int kColumns, bool kPlanes>
__device__ __forceinline__ void merge_warps(const AttentionArgs &a, const Columns &columns,
                                            const float *outputs, const float *shifts, const float *sums,
                                            const Partials &to, int split, bool is_whole) {
  for (int i = threadIdx.x; i < columns.n * (kHeadDim / 4); i += kThreads) {
    int column = i / (kHeadDim / 4), chunk = i % (kHeadDim / 4);
    float high = -INFINITY, total = 0;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kWarps; w++) high = fmaxf(high, shifts[w * kColumns + column]);
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
      float weight = power_of_2(shifts[w * kColumns + column] - high);
      total += weight * sums[w * kColumns + column];
      add_scaled(value, weight, ((float4 *)outputs)[(w * kColumns + column) * (kHeadDim / 4) + chunk]);
    }
    if (is_whole) {
      total += sink_weight(a, columns.query_head(column), high);
      store_output<kPlanes>(a, columns, column, chunk * 4, value, 1 / total);
    } else {
      __stcg(&to.outputs[(split * kColumns + column) * (kHeadDim / 4) + chunk], value);
      if (chunk == 0) __stcg(&to.states[split * kColumns + column], make_float2(high, total));
    }
  }
}

/* Returns true in the last of n_used blocks to take the ticket. This block sees what the other blocks wrote:
 * all blocks have a fence before the ticket, and the last block has another after it. */
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

/* Merges the splits, in the last block. First it computes the splits' weights [kColumns][kMaxSplits]: a warp
 * takes a column, and a lane two of its splits. */
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
  /* With longer heads a thread takes several chunks at once, so that more loads are in flight. */
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

/* Blocks per SM that the use of registers must allow; 0: the compiler decides. */
template <typename T> constexpr int blocks_wanted(int head_dim, int n_tiles) {
  if (head_dim > 128 || (!kIsQ8<T> && (head_dim == 128 || n_tiles < 4))) return 0;
  return n_tiles == 1 ? 4 : (head_dim == 128 ? 4 : 5) - n_tiles / 2;
}

/* Attends to one split of the keys of one KV head, with kTiles * 8 columns. With two stages the next tile
 * loads while one is multiplied. With one stage the next keys load while values are multiplied, and the next
 * values load while keys are multiplied. */
template <typename T, int kHeadDim, int kTiles, int kStages, bool kCapped, bool kWhole, bool kPlanes>
__device__ __forceinline__ void attend_split(const AttentionArgs &a, int n_tokens) {
  constexpr int kColumns = kTiles * 8, kStride = row_stride<T>(kHeadDim), kOfKeys = room_of_keys<T>(kHeadDim),
                kStage = kOfKeys + room_of_values<T>(kHeadDim), kPerKey = key_scales(kHeadDim);
  extern __shared__ __align__(16) unsigned char shared[];
  __half *queries = (__half *)shared;
  T *stages = (T *)(queries + kColumns * query_stride<T>(kHeadDim));

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
  const OwnRows<T, kHeadDim> own(opaque(warp), opaque(lane));
  unsigned row = (unsigned)rows.at(first);
  load_keys<T, kHeadDim>(stages, a, own, row, end - first, warp, lane);
  if (kStages == 1) copy_async_commit();
  load_values<T, kHeadDim>(stages + kOfKeys, a, own, row, end - first, warp, lane);
  copy_async_commit();
  if (first + kKeys < end) row = (unsigned)rows.at(first + kKeys); /* row of the next keys, looked up early */
  load_queries<T, kHeadDim, kColumns>(queries, a, columns);
  __syncthreads();

  const Seen seen(a, pos, length, n_tokens, group);
  OnlineSoftmax<T, kHeadDim, kTiles> state;
  state.begin();
  int stage = 0;
  for (int tile = first; tile < end; tile += kKeys, stage ^= kStages - 1) {
    const int left = end - tile - kKeys; /* keys after the tile */
    if (kStages > 1 && left > 0) {
      T *next = stages + (stage ^ 1) * kStage;
      load_keys<T, kHeadDim>(next, a, own, row, left, warp, lane);
      load_values<T, kHeadDim>(next + kOfKeys, a, own, row, left, warp, lane);
    }
    if (kStages > 1) copy_async_commit();
    if (kStages > 1 && left > kKeys) row = (unsigned)rows.at(tile + 2 * kKeys);
    copy_async_wait<1>(); /* the tile, or with one stage its keys */
    __syncwarp();

    const T *tile_keys = stages + stage * kStage, *keys = tile_keys + warp * kOwn * kStride;
    const __half *scales_of_keys = (const __half *)(tile_keys + kKeys * kStride) + warp * kOwn * kPerKey,
                 *scales_of_values = (const __half *)(tile_keys + kOfKeys + kKeys * kStride) + warp * kOwn;
    float s[kTiles][4] = {};
    uint32_t weights[kTiles][2];
    state.score(queries, keys, scales_of_keys, s, lane);
    if (kStages == 1) {
      __syncwarp();
      if (left > 0) load_keys<T, kHeadDim>(stages, a, own, row, left, warp, lane);
      copy_async_commit();
      copy_async_wait<1>(); /* the values */
      __syncwarp();
    }
    const bool all_seen = tile >= seen.begin && tile + kKeys <= seen.end;
    state.template softmax<kCapped>(a, s, seen, tile + warp * kOwn + lane / 4, all_seen,
                                    scales_of_values + lane / 4, weights, lane % 4);
    state.accumulate(keys + kOfKeys, weights, lane);
    if (kIsQ8<T> && (unsigned)tile / kKeys % kSettle == kSettle - 1) state.settle();
    __syncwarp();
    if (kStages == 1) {
      if (left > 0) load_values<T, kHeadDim>(stages + kOfKeys, a, own, row, left, warp, lane);
      if (left > kKeys) row = (unsigned)rows.at(tile + 2 * kKeys);
      copy_async_commit();
    }
  }
  __syncthreads();

  /* The warps' states, and later the splits' weights, overlay the stages, which are dead. */
  float *joined = (float *)stages, *shifts = joined + kWarps * kColumns * kHeadDim,
        *sums = shifts + kWarps * kColumns;
  state.store(joined, shifts, sums, warp, lane);
  __syncthreads();
  const size_t of_head = ((size_t)unit.first * a.n_kv_heads + kv_head * n_splits) * kColumns;
  const size_t n_blocks = a.units ? a.unit_partials : a.n_kv_heads * n_splits;
  float2 *all_states = (float2 *)a.partials;
  const Partials partials = {all_states + of_head,
                             (float4 *)(all_states + n_blocks * kColumns) + of_head * (kHeadDim / 4)};
  merge_warps<kHeadDim, kColumns, kPlanes>(a, columns, joined, shifts, sums, partials, split, n_used == 1);
  if (n_used == 1 || !is_last(&a.tickets[unit.first * a.n_kv_heads + kv_head], n_used)) return;
  merge_splits<kHeadDim, kColumns, kPlanes>(a, columns, partials, n_used, joined);
}

/* With a.is_beside the kernel runs beside the launch before. The kernel's last block ends by waiting for that
 * launch, so a kernel that waits for this kernel finds both complete. */
template <typename T, int kHeadDim, int kTiles, int kStages, bool kCapped, bool kWhole = false,
          bool kPlanes = false>
__global__ void __launch_bounds__(kThreads, blocks_wanted<T>(kHeadDim, kTiles))
    attention_decode_kernel(AttentionArgs a, int n_tokens) {
  dependents_may_start();
  if (!a.is_beside) wait_for_previous();
  attend_split<T, kHeadDim, kTiles, kStages, kCapped, kWhole, kPlanes>(a, n_tokens);
  if (a.is_beside && blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y) wait_for_previous();
}

/* Blocks that run at once on an H200: 132 SMs with 228 KB of shared memory. A block takes `bytes` plus 1 KB.
 * An SM's 65,536 registers suffice for 5 blocks if a thread has at most 96. */
int blocks_at_once(size_t bytes) {
  return 132 * std::min(5, (int)((228 << 10) / (bytes + 1024)));
}

/* Heads of 512 take one stage (in fp16 two fit no chip). Other heads take two stages. If two stages need more
 * than 64 KB, one is taken in two cases: two do not fit this chip (sm_75), or all blocks run at once only
 * with one stage each. A second wave of blocks would take as long as the first. One and two stages give the
 * same bits. */
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
  AttentionArgs own = a;
  if (a.k_scales) own.scale_log2 /= kKeyUnit;
  return with_head_size(a, err, [&](auto size, auto capped) {
    constexpr int kHeadDim = decltype(size)::value;
    constexpr bool kCapped = decltype(capped)::value;
    return a.k_scales ? launch_columns<uint8_t, kHeadDim, kCapped>(own, n_tokens, n_blocks, stream, err)
                      : launch_columns<__half, kHeadDim, kCapped>(own, n_tokens, n_blocks, stream, err);
  });
}
