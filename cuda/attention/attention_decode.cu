/* attention_decode.cu - few rows of queries against a long cache: the keys split over the whole GPU.
 *
 * A block serves one KV head and one run of keys; its four warps take 16 keys each of every 64. The query
 * heads that share the KV head, times the rows, are the columns (8 to 32) of the tensor core products, so
 * each key and value is read once for all of them:
 *     S^T [16 keys x columns] = K [16 keys x head_dim] Q^T          (K as it lies in the cache)
 *     O^T [16 dims x columns] += V^T [16 dims x 16 keys] P^T        (ldmatrix transposes V, movmatrix P)
 * Each warp keeps its own running maximum, sum and O; the block joins its four, writes a partial result, and
 * the last block of a KV head joins the partials, always in the order of the keys, so that the same bits come
 * out every run. READS  2 * n_kv_heads * length * head_dim * 2 bytes of cache;  reference:
 * attention_plain.cu, test_attention.cu. */
#include "cuda/attention/attention_kernels.cuh"
#include "cuda/ptx/attention_ptx.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int WARPS = 4, KEYS = 16 * WARPS, MAX_SPLITS = ATTENTION_MAX_SPLITS;

template <int HEAD_DIM> struct Tile {
  static constexpr int STRIDE = HEAD_DIM + 8; /* halves: rows land in different banks, 16-byte aligned */
  static constexpr int HALVES = KEYS * STRIDE;
};

/* Keys and values of one or two tiles, over which the warps' results are joined, and the queries. */
constexpr size_t shared_bytes(int head_dim, int n_tiles, int stages) {
  size_t tiles = (size_t)stages * 2 * KEYS * (head_dim + 8) * sizeof(__half);
  size_t queries = (size_t)n_tiles * 8 * (head_dim + 8) * sizeof(__half);
  size_t joined = (size_t)WARPS * n_tiles * 8 * (head_dim + 2) * sizeof(float);
  return queries + (tiles > joined ? tiles : joined);
}

int tiles_of(const AttentionKernel &a, int n_tokens) {
  int columns = n_tokens * (a.n_heads / a.n_kv_heads);
  return columns <= 8 ? 1 : columns <= 16 ? 2 : 4;
}

template <int HEAD_DIM> __device__ void load_tile(__half *shared, const __half *cache, int first, int end) {
  constexpr int PIECES = HEAD_DIM / 8;
  for (int i = threadIdx.x; i < KEYS * PIECES; i += WARPS * 32) {
    int key = i / PIECES, piece = i % PIECES;
    bool valid = first + key < end;
    copy_async_16(shared + key * Tile<HEAD_DIM>::STRIDE + piece * 8,
                  cache + (size_t)(valid ? first + key : first) * HEAD_DIM + piece * 8, valid ? 16 : 0);
  }
}

__device__ __forceinline__ void add_scaled(float4 &sum, float weight, float4 value) {
  sum.x += weight * value.x, sum.y += weight * value.y, sum.z += weight * value.z, sum.w += weight * value.w;
}

/* Writes four values of query head (kv_head, column % group) of row column / group. */
__device__ __forceinline__ void store_output(const AttentionKernel &a, int column, int group, int kv_head,
                                             int dim, float4 value, float scale) {
  size_t head = (size_t)(column / group) * a.n_heads + kv_head * group + column % group;
  uint2 packed =
      make_uint2(pack_half2(value.x * scale, value.y * scale), pack_half2(value.z * scale, value.w * scale));
  *(uint2 *)(a.out + head * a.head_dim + dim) = packed;
}

/* One run of keys for one KV head. N_TILES * 8 columns: column c is row c / group, query head c % group. With
 * two STAGES the next tile is on its way while one is multiplied; one stage is for chips with little shared
 * memory. */
template <int HEAD_DIM, int N_TILES, int STAGES, bool CAPPED>
__global__ void __launch_bounds__(WARPS * 32) attention_decode_kernel(AttentionKernel a, int n_tokens) {
  begin_overlapping();
  constexpr int STRIDE = Tile<HEAD_DIM>::STRIDE, COLUMNS = N_TILES * 8;
  extern __shared__ __align__(16) unsigned char shared[];
  __half *queries = (__half *)shared, *stages = queries + COLUMNS * STRIDE;
  float *joined = (float *)stages; /* [WARPS][COLUMNS][HEAD_DIM], then maxima and sums [WARPS][COLUMNS] */
  __shared__ bool last;

  int group = a.n_heads / a.n_kv_heads, n_columns = n_tokens * group;
  int kv_head = blockIdx.x, split = blockIdx.y, n_splits = gridDim.y;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  int pos = *a.pos + a.first_row, length = pos + n_tokens;
  int start = a.window > 0 && pos + 1 > a.window ? (pos + 1 - a.window) / KEYS * KEYS : 0;
  int tiles = (length - start + KEYS - 1) / KEYS, per_split = (tiles + n_splits - 1) / n_splits;
  int n_used = (tiles + per_split - 1) / per_split; /* splits that have any keys */
  if (split >= n_used) return;
  int first = start + split * per_split * KEYS, end = min(length, first + per_split * KEYS);

  const __half *k = (const __half *)a.k + (size_t)kv_head * a.n_ctx * HEAD_DIM;
  const __half *v = (const __half *)a.v + (size_t)kv_head * a.n_ctx * HEAD_DIM;
  load_tile<HEAD_DIM>(stages, k, first, end);
  load_tile<HEAD_DIM>(stages + Tile<HEAD_DIM>::HALVES, v, first, end);
  copy_async_commit();

  const __half *q = (const __half *)a.q;
  for (int i = threadIdx.x; i < COLUMNS * HEAD_DIM / 8; i += WARPS * 32) {
    int column = i / (HEAD_DIM / 8), piece = i % (HEAD_DIM / 8);
    uint4 value = make_uint4(0, 0, 0, 0);
    if (column < n_columns) {
      size_t head = (size_t)(column / group) * a.n_heads + kv_head * group + column % group;
      value = *(const uint4 *)(q + head * HEAD_DIM + piece * 8);
    }
    *(uint4 *)(queries + column * STRIDE + piece * 8) = value;
  }

  float o[HEAD_DIM / 16][N_TILES][4], maximum[N_TILES][2], sum[N_TILES][2];
#pragma unroll
  for (int n = 0; n < N_TILES; n++) {
    maximum[n][0] = maximum[n][1] = -INFINITY, sum[n][0] = sum[n][1] = 0;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) o[d][n][0] = o[d][n][1] = o[d][n][2] = o[d][n][3] = 0;
  }

  int stage = 0;
  for (int tile = first; tile < end; tile += KEYS, stage ^= STAGES - 1) {
    if (STAGES == 2 && tile + KEYS < end) {
      __half *next = stages + (stage ^ 1) * 2 * Tile<HEAD_DIM>::HALVES;
      load_tile<HEAD_DIM>(next, k, tile + KEYS, end);
      load_tile<HEAD_DIM>(next + Tile<HEAD_DIM>::HALVES, v, tile + KEYS, end);
    }
    copy_async_commit();
    copy_async_wait<STAGES - 1>();
    __syncthreads();

    const __half *keys = stages + stage * 2 * Tile<HEAD_DIM>::HALVES + warp * 16 * STRIDE;
    const __half *values = keys + Tile<HEAD_DIM>::HALVES;
    float s[N_TILES][4] = {};
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
      uint32_t key[4], query[4];
      ldmatrix_x4(key, shared_address(keys + (lane % 16) * STRIDE + d * 16 + lane / 16 * 8));
#pragma unroll
      for (int n = 0; n < N_TILES; n++) {
        /* matrices 0 and 1 are the two halves of these 16 dims; lanes 16.. repeat them, their results unused
         * */
        ldmatrix_x4(query, shared_address(queries + (n * 8 + lane % 8) * STRIDE + d * 16 + lane / 8 % 2 * 8));
        mma_f16_m16n8k16(s[n], key, query[0], query[1]);
      }
    }

    int position = tile + warp * 16 + g;
    uint32_t probability[N_TILES][2];
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
      float p[4];
#pragma unroll
      for (int c = 0; c < 2; c++) {
        int row = (n * 8 + 2 * t + c) / group, limit = min(pos + row, length - 1);
        int oldest = a.window > 0 ? pos + row - a.window : -1; /* the newest position it does not see */
        float high = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
          int key = position + 8 * h;
          float score = key <= limit && key > oldest ? score_log2<CAPPED>(a, s[n][2 * h + c]) : -INFINITY;
          p[2 * h + c] = score;
          high = fmaxf(high, score);
        }
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 4));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 8));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 16));
        float before = maximum[n][c], now = fmaxf(before, high);
        float shift = now == -INFINITY ? 0 : now, keep = exp2f(before - shift);
        p[c] = exp2f(p[c] - shift), p[2 + c] = exp2f(p[2 + c] - shift);
        maximum[n][c] = now;
        sum[n][c] = sum[n][c] * keep + p[c] + p[2 + c];
#pragma unroll
        for (int d = 0; d < HEAD_DIM / 16; d++) o[d][n][c] *= keep, o[d][n][2 + c] *= keep;
      }
      probability[n][0] = transpose_matrix(pack_half2(p[0], p[1]));
      probability[n][1] = transpose_matrix(pack_half2(p[2], p[3]));
    }
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
      uint32_t value[4];
      ldmatrix_x4_transposed(
          value, shared_address(values + (lane % 8 + lane / 16 * 8) * STRIDE + d * 16 + lane / 8 % 2 * 8));
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
        mma_f16_m16n8k16(o[d][n], value, probability[n][0], probability[n][1]);
    }
    __syncthreads();
    if (STAGES == 1 && tile + KEYS < end) {
      load_tile<HEAD_DIM>(stages, k, tile + KEYS, end);
      load_tile<HEAD_DIM>(stages + Tile<HEAD_DIM>::HALVES, v, tile + KEYS, end);
    }
  }

  /* The warps' results go to shared memory, over the stages that nobody reads any more. */
  float *maxima = joined + WARPS * COLUMNS * HEAD_DIM, *sums = maxima + WARPS * COLUMNS;
#pragma unroll
  for (int n = 0; n < N_TILES; n++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      float total = sum[n][c];
      total += __shfl_xor_sync(~0u, total, 4);
      total += __shfl_xor_sync(~0u, total, 8);
      total += __shfl_xor_sync(~0u, total, 16);
      int column = n * 8 + 2 * t + c;
      if (g == 0) maxima[warp * COLUMNS + column] = maximum[n][c], sums[warp * COLUMNS + column] = total;
      float *to = joined + (warp * COLUMNS + column) * HEAD_DIM;
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 16; d++)
        to[d * 16 + g] = o[d][n][c], to[d * 16 + 8 + g] = o[d][n][2 + c];
    }
  __syncthreads();

  /* Partial results: pairs {maximum, sum} [kv_head][split][column], then O
   * [kv_head][split][column][HEAD_DIM]. */
  float2 *pairs = (float2 *)a.partials + (size_t)kv_head * n_splits * COLUMNS;
  float4 *partials = (float4 *)((float2 *)a.partials + (size_t)a.n_kv_heads * n_splits * COLUMNS) +
                     (size_t)kv_head * n_splits * COLUMNS * (HEAD_DIM / 4);
  for (int i = threadIdx.x; i < n_columns * (HEAD_DIM / 4); i += WARPS * 32) {
    int column = i / (HEAD_DIM / 4), piece = i % (HEAD_DIM / 4);
    float high = -INFINITY, total = 0;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < WARPS; w++) high = fmaxf(high, maxima[w * COLUMNS + column]);
    float shift = high == -INFINITY ? 0 : high;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      float weight = exp2f(maxima[w * COLUMNS + column] - shift);
      total += weight * sums[w * COLUMNS + column];
      add_scaled(value, weight, ((float4 *)joined)[(w * COLUMNS + column) * (HEAD_DIM / 4) + piece]);
    }
    if (n_used == 1) {
      store_output(a, column, group, kv_head, piece * 4, value, 1 / total);
    } else {
      __stcg(&partials[(split * COLUMNS + column) * (HEAD_DIM / 4) + piece], value);
      if (piece == 0) __stcg(&pairs[split * COLUMNS + column], make_float2(high, total));
    }
  }
  if (n_used == 1) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&a.tickets[kv_head], 1) == n_used - 1;
    if (last) a.tickets[kv_head] = 0; /* ready for the next layer */
  }
  __syncthreads();
  if (!last) return;
  __threadfence();

  /* The last block joins the splits. First what each counts for: a warp a column, a lane two splits. */
  float *weights = joined; /* [COLUMNS][MAX_SPLITS] */
#pragma unroll 4
  for (int column = warp; column < n_columns; column += WARPS) {
    float2 pair[MAX_SPLITS / 32];
    float high = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < MAX_SPLITS / 32; i++) {
      int p = lane + 32 * i;
      pair[i] = p < n_used ? __ldcg(&pairs[p * COLUMNS + column]) : make_float2(-INFINITY, 0);
      high = fmaxf(high, pair[i].x);
    }
    for (int step = 16; step; step /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, step));
#pragma unroll
    for (int i = 0; i < MAX_SPLITS / 32; i++) total += exp2f(pair[i].x - high) * pair[i].y;
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
#pragma unroll
    for (int i = 0; i < MAX_SPLITS / 32; i++)
      weights[column * MAX_SPLITS + lane + 32 * i] = exp2f(pair[i].x - high) / total;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n_columns * (HEAD_DIM / 4); i += WARPS * 32) {
    int column = i / (HEAD_DIM / 4), piece = i % (HEAD_DIM / 4);
    const float4 *from = partials + column * (HEAD_DIM / 4) + piece;
    float4 value = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int p = 0; p < n_used; p++)
      add_scaled(value, weights[column * MAX_SPLITS + p], __ldcg(from + p * COLUMNS * (HEAD_DIM / 4)));
    store_output(a, column, group, kv_head, piece * 4, value, 1);
  }
}

template <int HEAD_DIM, int N_TILES, int STAGES, bool CAPPED>
Status launch_form(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream, Error *err) {
  constexpr size_t bytes = shared_bytes(HEAD_DIM, N_TILES, STAGES);
  auto kernel = attention_decode_kernel<HEAD_DIM, N_TILES, STAGES, CAPPED>;
  return launch(kernel, dim3(a.n_kv_heads, n_splits), WARPS * 32, bytes, stream, true, "attention", err, a,
                n_tokens);
}

/* One stage is only compiled where two may be too large for a chip that this runs on (sm_75: 64 KB). */
template <int HEAD_DIM, int N_TILES, bool CAPPED>
Status launch_stages(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream, Error *err) {
  if constexpr (shared_bytes(HEAD_DIM, N_TILES, 2) > ATTENTION_LEAST_SHARED)
    if (shared_bytes(HEAD_DIM, N_TILES, 2) > a.shared_limit)
      return launch_form<HEAD_DIM, N_TILES, 1, CAPPED>(a, n_tokens, n_splits, stream, err);
  return launch_form<HEAD_DIM, N_TILES, 2, CAPPED>(a, n_tokens, n_splits, stream, err);
}

template <int HEAD_DIM, bool CAPPED>
Status launch_columns(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream, Error *err) {
  switch (tiles_of(a, n_tokens)) {
  case 1: return launch_stages<HEAD_DIM, 1, CAPPED>(a, n_tokens, n_splits, stream, err);
  case 2: return launch_stages<HEAD_DIM, 2, CAPPED>(a, n_tokens, n_splits, stream, err);
  }
  if constexpr (HEAD_DIM <= 128)
    return launch_stages<HEAD_DIM, 4, CAPPED>(a, n_tokens, n_splits, stream, err);
  return refuse_form(a, err);
}

} // namespace

size_t attention_decode_shared(const AttentionKernel &a, int n_tokens) {
  return shared_bytes(a.head_dim, tiles_of(a, n_tokens), 1);
}

Status attention_decode(const AttentionKernel &a, int n_tokens, int n_splits, cudaStream_t stream,
                        Error *err) {
  if (a.cap_log2 != 0) {
    switch (a.head_dim) {
    case 128: return launch_columns<128, true>(a, n_tokens, n_splits, stream, err);
    case 256: return launch_columns<256, true>(a, n_tokens, n_splits, stream, err);
    default: return refuse_form(a, err);
    }
  }
  switch (a.head_dim) {
  case 64: return launch_columns<64, false>(a, n_tokens, n_splits, stream, err);
  case 80: return launch_columns<80, false>(a, n_tokens, n_splits, stream, err);
  case 96: return launch_columns<96, false>(a, n_tokens, n_splits, stream, err);
  case 128: return launch_columns<128, false>(a, n_tokens, n_splits, stream, err);
  case 256: return launch_columns<256, false>(a, n_tokens, n_splits, stream, err);
  default: return refuse_form(a, err);
  }
}
