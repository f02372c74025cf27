/* attention_prefill.cu - many tokens: FlashAttention-2 on tensor cores.
 *
 * A block serves 64 tokens, the rows of a tile, of one query head: 16 per warp. It walks the keys in tiles
 * that pass through two stages of shared memory; scores stay in registers. Tiles wholly above the diagonal or
 * before the window are never read; only edge tiles are masked. Later tokens have more keys and start first.
 *     S [16 rows x keys] = Q K^T,   O [16 rows x head_dim] = softmax(S) V        per warp, per tile
 * Source: Dao, FlashAttention-2 (arXiv:2307.08691), algorithm 1. Reference: attention_plain.cu. */
#include "cuda/attention/attention_kernels.cuh"
#include "cuda/attention/online_softmax.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS;

__host__ __device__ constexpr int keys_of(int head_dim) {
  return head_dim > 128 ? 32 : 64;
}

/* Shared memory: the queries, and stages of keys and values. */
constexpr size_t shared_bytes(int head_dim, int stages) {
  return (size_t)(ROWS + stages * 2 * keys_of(head_dim)) * padded_row(head_dim) * sizeof(__half);
}

/* Loads keys and values of a tile. */
template <int HEAD_DIM>
__device__ __forceinline__ void load_tile(__half *stage, const __half *k, const __half *v, int first,
                                          int end) {
  constexpr int KEYS = keys_of(HEAD_DIM);
  load_rows<HEAD_DIM, KEYS, THREADS>(stage, k, HEAD_DIM, first, end);
  load_rows<HEAD_DIM, KEYS, THREADS>(stage + KEYS * padded_row(HEAD_DIM), v, HEAD_DIM, first, end);
}

/* A warp's online softmax of its 16 rows, in mma's layout: lane (g, t) has rows g and g + 8. */
template <int HEAD_DIM> struct State {
  static constexpr int STRIDE = padded_row(HEAD_DIM), KEYS = keys_of(HEAD_DIM);
  float o[HEAD_DIM / 8][4], maximum[2], sum[2];

  __device__ __forceinline__ void begin() {
    maximum[0] = maximum[1] = -INFINITY, sum[0] = sum[1] = 0;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 8; d++) o[d][0] = o[d][1] = o[d][2] = o[d][3] = 0;
  }

  /* s[n][2 h + c]: row g + 8 h with key 8 n + 2 t + c of the tile. */
  static __device__ __forceinline__ void score(const __half *queries, const __half *keys,
                                               float (&s)[KEYS / 8][4], int lane) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
      uint32_t query[4];
      ldmatrix_x4(query, shared_address(queries + (lane % 16) * STRIDE + d * 16 + lane / 16 * 8));
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        uint32_t key[4]; /* {keys 0-7, keys 8-15} x {dims 0-7, dims 8-15} */
        ldmatrix_x4(key, shared_address(keys + (n * 16 + lane % 8 + lane / 16 * 8) * STRIDE + d * 16 +
                                        lane / 8 % 2 * 8));
        mma_f16_m16n8k16(s[2 * n], query, key[0], key[1]);
        mma_f16_m16n8k16(s[2 * n + 1], query, key[2], key[3]);
      }
    }
  }

  /* Turns the scores of the keys from `tile` on into weights. The warp's first row is at first_pos; a row
   * sees the keys of its window up to its own, and none from `length` on. */
  template <bool CAPPED>
  __device__ __forceinline__ void weigh(const AttentionKernel &a, float (&s)[KEYS / 8][4], int tile,
                                        int first_pos, int length, int lane) {
    const int g = lane / 4, t = lane % 4;
    const bool edge = tile + KEYS > first_pos || tile + KEYS > length ||
                      (a.window > 0 && tile <= first_pos + 15 - a.window);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row_pos = first_pos + g + 8 * h, limit = min(row_pos, length - 1);
      int oldest = a.window > 0 ? row_pos - a.window : -1;
      float high = -INFINITY;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          int key = tile + n * 8 + 2 * t + c;
          float score = score_log2<CAPPED>(a, s[n][2 * h + c]);
          if (edge && (key > limit || key <= oldest)) score = -INFINITY;
          s[n][2 * h + c] = score;
          high = fmaxf(high, score);
        }
      const Rescale r = rescale<true>(maximum[h], lanes_max<1, 2>(high));
      float total = 0;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) total += s[n][2 * h + c] = power_of_2(s[n][2 * h + c] - r.shift);
      sum[h] = sum[h] * r.keep + total;
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 8; d++) o[d][2 * h] *= r.keep, o[d][2 * h + 1] *= r.keep;
    }
  }

  __device__ __forceinline__ void add(const __half *values, const float (&weights)[KEYS / 8][4], int lane) {
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
      const float(&low)[4] = weights[2 * n], (&high)[4] = weights[2 * n + 1];
      uint32_t p[4] = {pack_half2(low[0], low[1]), pack_half2(low[2], low[3]), pack_half2(high[0], high[1]),
                       pack_half2(high[2], high[3])};
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 16; d++) {
        uint32_t value[4]; /* {dims 0-7, dims 8-15} x {keys 0-7, keys 8-15} */
        ldmatrix_x4_transposed(
            value, shared_address(values + (n * 16 + lane % 16) * STRIDE + d * 16 + lane / 16 * 8));
        mma_f16_m16n8k16(o[2 * d], p, value[0], value[1]);
        mma_f16_m16n8k16(o[2 * d + 1], p, value[2], value[3]);
      }
    }
  }

  /* Writes rows `row` and `row` + 8 of the output, as far as there are n_tokens. */
  __device__ __forceinline__ void store(const AttentionKernel &a, int row, int n_tokens, int head,
                                        int lane) const {
#pragma unroll
    for (int h = 0; h < 2; h++, row += 8) {
      const float total = lanes_sum<1, 2>(sum[h]);
      if (row >= n_tokens) continue;
      __half *to = a.out + ((size_t)row * a.n_heads + head) * HEAD_DIM + 2 * (lane % 4);
      float scale = 1 / total;
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 8; d++)
        *(__half2 *)(to + d * 8) = __floats2half2_rn(o[d][2 * h] * scale, o[d][2 * h + 1] * scale);
    }
  }
};

/* Two STAGES load the next tile while one is multiplied; one stage is for chips with little shared memory. */
template <int HEAD_DIM, int STAGES, bool CAPPED>
__global__ void __launch_bounds__(THREADS) attention_prefill_kernel(AttentionKernel a, int n_tokens) {
  begin_overlapping();
  constexpr int STRIDE = padded_row(HEAD_DIM), KEYS = keys_of(HEAD_DIM), STAGE = 2 * KEYS * STRIDE;
  extern __shared__ __align__(16) unsigned char shared[];
  __half *queries = (__half *)shared, *stages = queries + ROWS * STRIDE;

  int first_row = (gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y;
  int kv_head = head / (a.n_heads / a.n_kv_heads);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int pos = *a.pos, length = pos + n_tokens;
  int last_key = min(pos + first_row + ROWS, length);
  int first_key = a.window > 0 ? max(0, pos + first_row + 1 - a.window) / KEYS * KEYS : 0;

  const __half *k = (const __half *)a.k + (size_t)kv_head * a.n_ctx * HEAD_DIM;
  const __half *v = (const __half *)a.v + (size_t)kv_head * a.n_ctx * HEAD_DIM;
  load_rows<HEAD_DIM, ROWS, THREADS>(queries, (const __half *)a.q + head * HEAD_DIM,
                                     (size_t)a.n_heads * HEAD_DIM, first_row, n_tokens);
  load_tile<HEAD_DIM>(stages, k, v, first_key, last_key);
  copy_async_commit();

  State<HEAD_DIM> state;
  state.begin();
  int stage = 0;
  for (int tile = first_key; tile < last_key; tile += KEYS, stage ^= STAGES - 1) {
    if (STAGES == 2 && tile + KEYS < last_key)
      load_tile<HEAD_DIM>(stages + (stage ^ 1) * STAGE, k, v, tile + KEYS, last_key);
    copy_async_commit();
    copy_async_wait<STAGES - 1>();
    __syncthreads();

    const __half *keys = stages + stage * STAGE;
    float s[KEYS / 8][4];
    state.score(queries + warp * 16 * STRIDE, keys, s, lane);
    state.template weigh<CAPPED>(a, s, tile, pos + first_row + warp * 16, length, lane);
    state.add(keys + KEYS * STRIDE, s, lane);
    __syncthreads();
    if (STAGES == 1 && tile + KEYS < last_key) load_tile<HEAD_DIM>(stages, k, v, tile + KEYS, last_key);
  }
  state.store(a, first_row + warp * 16 + lane / 4, n_tokens, head, lane);
}

template <int HEAD_DIM, int STAGES, bool CAPPED>
Status launch_form(const AttentionKernel &a, int n_tokens, cudaStream_t stream, Error *err) {
  auto kernel = attention_prefill_kernel<HEAD_DIM, STAGES, CAPPED>;
  constexpr size_t bytes = shared_bytes(HEAD_DIM, STAGES);
  return launch(kernel, dim3((n_tokens + ROWS - 1) / ROWS, a.n_heads), THREADS, bytes, stream, true,
                "attention", err, a, n_tokens);
}

/* One stage is compiled only if two may exceed a chip's shared memory (sm_75: 64 KB). */
template <int HEAD_DIM, bool CAPPED>
Status launch_stages(const AttentionKernel &a, int n_tokens, cudaStream_t stream, Error *err) {
  if constexpr (shared_bytes(HEAD_DIM, 2) > ATTENTION_LEAST_SHARED)
    if (shared_bytes(HEAD_DIM, 2) > a.shared_limit)
      return launch_form<HEAD_DIM, 1, CAPPED>(a, n_tokens, stream, err);
  return launch_form<HEAD_DIM, 2, CAPPED>(a, n_tokens, stream, err);
}

} // namespace

size_t attention_prefill_shared(const AttentionKernel &a) {
  return shared_bytes(a.head_dim, 1);
}

Status attention_prefill(const AttentionKernel &a, int n_tokens, cudaStream_t stream, Error *err) {
  return with_head_size(a, err, [&](auto size, auto capped) {
    return launch_stages<decltype(size)::value, decltype(capped)::value>(a, n_tokens, stream, err);
  });
}
