/* attention_prefill.cu - many rows of queries: FlashAttention's online softmax on tensor cores.
 *
 * A block serves 64 rows of one query head with four warps of 16 rows, and walks the keys in tiles that
 * stream through shared memory two deep. Nothing of size rows x keys is ever stored. Tiles wholly above the
 * diagonal or wholly before the window are never read; only edge tiles are masked. Later rows have more keys,
 * so they are started first.
 *     S [16 rows x keys] = Q K^T,   O [16 rows x head_dim] = softmax(S) V        per warp, per tile
 * Source: Dao, FlashAttention-2 (arXiv:2307.08691), algorithm 1. Reference: attention_plain.cu. */
#include "cuda/attention/attention_kernels.cuh"
#include "cuda/ptx/attention_ptx.cuh"
#include "cuda/ptx/launch.cuh"

namespace {

constexpr int WARPS = 4, ROWS = 16 * WARPS;

constexpr int keys_of(int head_dim) {
  return head_dim > 128 ? 32 : 64;
}

/* The queries, and keys and values of one or two tiles. */
constexpr size_t shared_bytes(int head_dim, int stages) {
  return (size_t)(ROWS + stages * 2 * keys_of(head_dim)) * (head_dim + 8) * sizeof(__half);
}

template <int HEAD_DIM> struct Tile {
  static constexpr int KEYS = keys_of(HEAD_DIM);
  static constexpr int STRIDE = HEAD_DIM + 8;
  static constexpr int HALVES = KEYS * STRIDE;
};

template <int HEAD_DIM, int N>
__device__ void load_rows(__half *shared, const __half *from, size_t from_stride, int first, int end) {
  constexpr int PIECES = HEAD_DIM / 8;
  for (int i = threadIdx.x; i < N * PIECES; i += WARPS * 32) {
    int row = i / PIECES, piece = i % PIECES;
    bool valid = first + row < end;
    copy_async_16(shared + row * Tile<HEAD_DIM>::STRIDE + piece * 8,
                  from + (size_t)(valid ? first + row : first) * from_stride + piece * 8, valid ? 16 : 0);
  }
}

/* With two STAGES the next tile is on its way while one is multiplied; one stage is for chips with little
 * shared memory. */
template <int HEAD_DIM, int STAGES, bool CAPPED>
__global__ void __launch_bounds__(WARPS * 32) attention_prefill_kernel(AttentionKernel a, int n_tokens) {
  begin_overlapping();
  constexpr int STRIDE = Tile<HEAD_DIM>::STRIDE, KEYS = Tile<HEAD_DIM>::KEYS;
  extern __shared__ __align__(16) unsigned char shared[];
  __half *queries = (__half *)shared, *stages = queries + ROWS * STRIDE;

  int first_row = (gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y;
  int kv_head = head / (a.n_heads / a.n_kv_heads);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int pos = *a.pos, length = pos + n_tokens;
  int last_key = min(pos + first_row + ROWS, length);
  int first_key = a.window > 0 ? max(0, pos + first_row + 1 - a.window) / KEYS * KEYS : 0;

  const __half *k = (const __half *)a.k + (size_t)kv_head * a.n_ctx * HEAD_DIM;
  const __half *v = (const __half *)a.v + (size_t)kv_head * a.n_ctx * HEAD_DIM;
  load_rows<HEAD_DIM, ROWS>(queries, (const __half *)a.q + head * HEAD_DIM, (size_t)a.n_heads * HEAD_DIM,
                            first_row, n_tokens);
  load_rows<HEAD_DIM, KEYS>(stages, k, HEAD_DIM, first_key, last_key);
  load_rows<HEAD_DIM, KEYS>(stages + Tile<HEAD_DIM>::HALVES, v, HEAD_DIM, first_key, last_key);
  copy_async_commit();

  float o[HEAD_DIM / 8][4], maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
  for (int d = 0; d < HEAD_DIM / 8; d++) o[d][0] = o[d][1] = o[d][2] = o[d][3] = 0;

  int stage = 0, row0 = first_row + warp * 16 + g; /* this lane's rows: row0 and row0 + 8 */
  for (int tile = first_key; tile < last_key; tile += KEYS, stage ^= STAGES - 1) {
    if (STAGES == 2 && tile + KEYS < last_key) {
      __half *next = stages + (stage ^ 1) * 2 * Tile<HEAD_DIM>::HALVES;
      load_rows<HEAD_DIM, KEYS>(next, k, HEAD_DIM, tile + KEYS, last_key);
      load_rows<HEAD_DIM, KEYS>(next + Tile<HEAD_DIM>::HALVES, v, HEAD_DIM, tile + KEYS, last_key);
    }
    copy_async_commit();
    copy_async_wait<STAGES - 1>();
    __syncthreads();

    const __half *keys = stages + stage * 2 * Tile<HEAD_DIM>::HALVES, *values = keys + Tile<HEAD_DIM>::HALVES;
    float s[KEYS / 8][4];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; d++) {
      uint32_t query[4];
      ldmatrix_x4(query, shared_address(queries + (warp * 16 + lane % 16) * STRIDE + d * 16 + lane / 16 * 8));
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        uint32_t key[4]; /* keys 0-7: two halves of the dims, keys 8-15: the same */
        ldmatrix_x4(key, shared_address(keys + (n * 16 + lane % 8 + lane / 16 * 8) * STRIDE + d * 16 +
                                        lane / 8 % 2 * 8));
        mma_f16_m16n8k16(s[2 * n], query, key[0], key[1]);
        mma_f16_m16n8k16(s[2 * n + 1], query, key[2], key[3]);
      }
    }

    int first_pos = pos + first_row + warp * 16; /* of this warp's 16 rows */
    bool edge = tile + KEYS > first_pos || tile + KEYS > length ||
                (a.window > 0 && tile <= first_pos + 15 - a.window);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row_pos = pos + row0 + 8 * h, limit = min(row_pos, length - 1);
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
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      float now = fmaxf(maximum[h], high), shift = now == -INFINITY ? 0 : now;
      float keep = exp2f(maximum[h] - shift), total = 0;
      maximum[h] = now;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) total += s[n][2 * h + c] = exp2f(s[n][2 * h + c] - shift);
      sum[h] = sum[h] * keep + total;
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 8; d++) o[d][2 * h] *= keep, o[d][2 * h + 1] *= keep;
    }

#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
      uint32_t p[4] = {pack_half2(s[2 * n][0], s[2 * n][1]), pack_half2(s[2 * n][2], s[2 * n][3]),
                       pack_half2(s[2 * n + 1][0], s[2 * n + 1][1]),
                       pack_half2(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 16; d++) {
        uint32_t value[4]; /* dims 0-7: keys 0-7 and 8-15, dims 8-15: the same */
        ldmatrix_x4_transposed(
            value, shared_address(values + (n * 16 + lane % 16) * STRIDE + d * 16 + lane / 16 * 8));
        mma_f16_m16n8k16(o[2 * d], p, value[0], value[1]);
        mma_f16_m16n8k16(o[2 * d + 1], p, value[2], value[3]);
      }
    }
    __syncthreads();
    if (STAGES == 1 && tile + KEYS < last_key) {
      load_rows<HEAD_DIM, KEYS>(stages, k, HEAD_DIM, tile + KEYS, last_key);
      load_rows<HEAD_DIM, KEYS>(stages + Tile<HEAD_DIM>::HALVES, v, HEAD_DIM, tile + KEYS, last_key);
    }
  }

#pragma unroll
  for (int h = 0; h < 2; h++) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    int row = row0 + 8 * h;
    if (row >= n_tokens) continue;
    __half *to = a.out + ((size_t)row * a.n_heads + head) * HEAD_DIM;
    float scale = 1 / total;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 8; d++)
      *(__half2 *)(to + d * 8 + 2 * t) = __floats2half2_rn(o[d][2 * h] * scale, o[d][2 * h + 1] * scale);
  }
}

template <int HEAD_DIM, int STAGES, bool CAPPED>
Status launch_form(const AttentionKernel &a, int n_tokens, cudaStream_t stream, Error *err) {
  auto kernel = attention_prefill_kernel<HEAD_DIM, STAGES, CAPPED>;
  constexpr size_t bytes = shared_bytes(HEAD_DIM, STAGES);
  return launch(kernel, dim3((n_tokens + ROWS - 1) / ROWS, a.n_heads), WARPS * 32, bytes, stream, true,
                "attention", err, a, n_tokens);
}

/* One stage is only compiled where two may be too large for a chip that this runs on (sm_75: 64 KB). */
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
  if (a.cap_log2 != 0) {
    switch (a.head_dim) {
    case 128: return launch_stages<128, true>(a, n_tokens, stream, err);
    case 256: return launch_stages<256, true>(a, n_tokens, stream, err);
    default: return refuse_form(a, err);
    }
  }
  switch (a.head_dim) {
  case 64: return launch_stages<64, false>(a, n_tokens, stream, err);
  case 80: return launch_stages<80, false>(a, n_tokens, stream, err);
  case 96: return launch_stages<96, false>(a, n_tokens, stream, err);
  case 128: return launch_stages<128, false>(a, n_tokens, stream, err);
  case 256: return launch_stages<256, false>(a, n_tokens, stream, err);
  default: return refuse_form(a, err);
  }
}
