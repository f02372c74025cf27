/* delta_chunks.cu - the gated delta rule and Mamba-2 for many tokens: chunks of 64 in matrix form on tensor
 * cores.
 *
 * In a chunk G_i is ln(g_1 ... g_i), K, Q and V are the chunk's rows, and S [key][value] is the state before
 * it. The changes d_i of the tokens (operations.def: beta (v - S^T k)) solve a triangular system. All the
 * rest is products:
 *     L_ij = beta_i (k_i k_j) e^(G_i - G_j) for j < i, else 0
 *     D = (1 + L)^-1 diag(beta) (V - diag(e^G) K S)
 *     O = diag(e^G) Q S + M D,                     M_ij = (q_i k_j) e^(G_i - G_j) for j <= i, else 0
 *     S = e^G_64 S + K^T diag(e^(G_64 - G)) D
 * Source: Yang, Kautz, Hatamizadeh (arXiv:2412.06464), section 3.3. Mamba-2's changes are its values:
 *     D = V,   M_ij = (q_i k_j) e^(G_i - G_j) dt_j for j <= i, plus skip for j = i
 *     S = e^G_64 S + K^T diag(e^(G_64 - G) dt) V,       dt the step sizes
 * (Dao and Gu, arXiv:2405.21060, section 6). Here q is C / kMambaScale, and O is multiplied by kMambaScale,
 * because C B can be large and M is fp16.
 *
 *   inputs  a warp takes 16 tokens of a head of q, k or v: convolution, norms     -> q, k, v in fp16
 *   system  a block takes a chunk of a value head: (1 + L)^-1 diag(beta) and M    -> fp16; G, dt in fp32
 *   scan    a block takes 32 value dimensions of a head through the chunks; S stays in registers
 *
 * Numerics: operands of products are fp16. With the delta rule |q|, |k|, e^(G_i - G_j) and numbers of
 * (1 + L)^-1 diag(beta) are at most 1 (with doubles_beta those of the inverse are at most 4); Mamba-2's are
 * clamped. Sums, S, G and the inverse's own arithmetic are fp32. S is carried in fp32, so its errors as an
 * operand do not accumulate (with states of 16 bits S is rounded after each chunk). */
#include "cuda/kernels/delta/delta_kernels.cuh"

namespace {

constexpr int kDim = 128, kChunk = SEGMENT_CHUNK, kThreads = 128, kWarps = kThreads / 32;
constexpr int kWide = kDim + 8, kSquare = kChunk + 8;   /* strides of tiles in shared memory, in halves */
constexpr int kHalf = kChunk / 2, kFloats = kChunk + 4; /* kFloats: stride of the system in fp32 */
constexpr float kMambaScale = 16;                       /* divides C: a power of two, which rounds nothing */

/* The workspace: rows of all chunks, each segment's last chunk padded with zeros. */
struct Work {
  __half *q_k, *v;          /* [rows][2 n_key_heads][kDim], [rows][n_value_heads][value_dim] */
  __half *inverses, *masks; /* [chunks][n_value_heads][kChunk][kChunk]: (1 + L)^-1 diag(beta), and M */
  float *logs, *steps;      /* [chunks][n_value_heads][kChunk]: G, dt */
  size_t bytes;
};

__host__ __device__ inline Work work_of(void *at, int n_key_heads, int n_value_heads, int value_dim,
                                        bool mamba, int n_chunks) {
  const size_t chunks = (size_t)n_chunks, rows = chunks * kChunk;
  const size_t cells = chunks * n_value_heads * kChunk;
  Work w;
  w.q_k = (__half *)at;
  w.v = w.q_k + rows * 2 * n_key_heads * kDim;
  w.inverses = w.v + rows * n_value_heads * value_dim;
  w.masks = w.inverses + (mamba ? 0 : cells * kChunk);
  w.logs = (float *)(w.masks + cells * kChunk);
  w.steps = w.logs + cells;
  w.bytes = (char *)(w.steps + (mamba ? cells : 0)) - (char *)at;
  return w;
}

__device__ __forceinline__ Work work_of(const DeltaArgs &a) {
  return work_of(a.workspace, a.n_key_heads, a.n_value_heads, a.value_dim, a.mamba, a.n_chunks);
}

/* --- inputs */

constexpr int kWarpTokens = kChunk / kWarps;

/* Block (head, chunk): heads of q, then of k, then of v; with Mamba-2 two heads of v a block. A lane takes
 * four channels. */
template <bool kMamba> __global__ void __launch_bounds__(kThreads) delta_inputs_kernel(DeltaArgs a) {
  dependents_may_start();
  a.fix_sizes<kMamba>();
  const int lane = threadIdx.x % 32, head = blockIdx.x, n_q_k = 2 * a.n_key_heads;
  const bool is_value = head >= n_q_k, is_query = head < a.n_key_heads;
  const int own = threadIdx.x / 32 * kWarpTokens, first = a.take_chunk(blockIdx.y) * kChunk + own,
            channel = (is_value   ? a.offsets.v + (head - n_q_k) * kDim
                       : is_query ? a.offsets.q + head * kDim
                                  : a.offsets.k + (head - a.n_key_heads) * kDim) +
                      4 * lane;
  float4 taps[4], x[4];
  for (int i = 0; i < 4; i++) taps[i] = *(const float4 *)(a.conv + 4 * (channel + i));
  const float4 bias = load_4(kMamba && a.conv_bias ? a.conv_bias + channel : NULL);
  wait_for_previous();
  const Work work = work_of(a);
  const int pos = a.position();
  const size_t row = (size_t)blockIdx.y * kChunk + own;
  const size_t step = is_value ? (size_t)a.n_value_heads * a.value_dim : (size_t)n_q_k * kDim;
  __half *to = is_value ? work.v + row * step + (head - n_q_k) * kDim : work.q_k + row * step + head * kDim;
#pragma unroll
  for (int t = 0; t < 3; t++)
    x[t + 1] = load_4(first - 3 + t < a.n_tokens ? a.input(pos, first - 3 + t, channel) : NULL);
#pragma unroll 8
  for (int i = 0; i < kWarpTokens; i++) {
    const int token = first + i;
#pragma unroll
    for (int t = 0; t < 3; t++) x[t] = x[t + 1];
    x[3] = load_4(token < a.n_tokens ? a.input(pos, token, channel) : NULL);
    float4 out = convolve_4<kMamba>(taps, x, bias);
    if (!is_value && !kMamba) out = scaled_4(out, rsqrtf(warp_sum(dot_4(out, out)) + kDeltaNormEps));
    if (is_query && kMamba) out = scaled_4(out, 1 / kMambaScale);
    if (token >= a.n_tokens) out = make_float4(0, 0, 0, 0);
    const __half2 pairs[2] = {{clamp_half(out.x), clamp_half(out.y)}, {clamp_half(out.z), clamp_half(out.w)}};
    *(uint2 *)(to + i * step + 4 * lane) = *(const uint2 *)pairs;
  }
}

/* --- copies and products of tiles */

/* All threads begin to copy kRows rows of kWidth halves, `step` halves apart, to rows of kStride. */
template <int kRows, int kWidth, int kStride>
__device__ __forceinline__ void copy_tile(__half *to, const __half *from, size_t step) {
  constexpr int kPieces = kWidth / 8;
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads)
    copy_async_16(to + i / kPieces * kStride + i % kPieces * 8, from + i / kPieces * step + i % kPieces * 8,
                  16);
}

/* Operand A of mma (ptx.cuh) from 16 x 16 halves at `at`; load_a_transposed(): the matrix is stored
 * transposed. */
__device__ __forceinline__ void load_a(uint32_t (&r)[4], const __half *at, int stride, int lane) {
  ldmatrix_x4(r, shared_address(at + lane % 16 * stride + lane / 16 * 8));
}
__device__ __forceinline__ void load_a_transposed(uint32_t (&r)[4], const __half *at, int stride, int lane) {
  ldmatrix_x4_transposed(r, shared_address(at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8));
}
/* Operands B of two mma, {r[0], r[1]} and {r[2], r[3]}, from 16 rows along k and 16 columns. */
__device__ __forceinline__ void load_b(uint32_t (&r)[4], const __half *at, int stride, int lane) {
  ldmatrix_x4_transposed(r, shared_address(at + lane % 16 * stride + lane / 16 * 8));
}
/* load_b() of a matrix that is stored transposed: 16 columns as rows, k along a row. */
__device__ __forceinline__ void load_b_transposed(uint32_t (&r)[4], const __half *at, int stride, int lane) {
  ldmatrix_x4(r, shared_address(at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8));
}

/* --- system */

struct System {
  float inverse[kChunk * kFloats]; /* first the keys in fp16; then (1 + L)^-1 */
  float lower[kChunk * kFloats];   /* first the queries; then L, and in its upper right quarter a product */
  float logs[kChunk], betas[kChunk];
};
static_assert(kChunk * kFloats * sizeof(float) >= kChunk * kWide * sizeof(__half), "a tile fits");

/* beta, and G summed anew from each half's first token on; tokens past the last one have g = 1, beta = 0. */
__device__ __forceinline__ void make_gates(const DeltaArgs &a, System &s, int first, int head) {
  const int i = threadIdx.x, lane = i % 32;
  if (i >= kChunk) return;
  const bool there = first + i < a.n_tokens;
  float sum = there ? a.log_decay(first + i, head) : 0;
  s.betas[i] = there ? a.beta(first + i, head) : 0;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float before = __shfl_sync(~0u, sum, lane - d);
    if (lane >= d) sum += before;
  }
  s.logs[i] = sum;
}

/* Inverts a diagonal block of 1 + L, 32 x 32, from the first row to the last: a warp takes a block, a lane a
 * column. */
__device__ __forceinline__ void invert_block(System &s, int first, int lane) {
  float x[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; i++) {
    const float *row = s.lower + (first + i) * kFloats + first;
    float sums[4] = {i == lane ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; j++) sums[j % 4] -= row[j] * x[j];
    x[i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    s.inverse[(first + i) * kFloats + first + lane] = x[i];
  }
}

/* The row and the first column of a thread's 8 neighbouring numbers of a 32 x 32 product
 * (multiply_blocks()). */
__device__ __forceinline__ int eighth_row() {
  return threadIdx.x / 4;
}
__device__ __forceinline__ int eighth_column() {
  return threadIdx.x % 4 * 8;
}
__device__ __forceinline__ void multiply_blocks(float (&sum)[8], const float *left, const float *right) {
#pragma unroll
  for (int c = 0; c < 8; c++) sum[c] = 0;
#pragma unroll 8
  for (int k = 0; k < kHalf; k++) {
    const float l = left[eighth_row() * kFloats + k];
#pragma unroll
    for (int c = 0; c < 8; c++) sum[c] += l * right[k * kFloats + eighth_column() + c];
  }
}

/* (1 + L)^-1 from L. The lower left block is -B^-1 L_21 A^-1 for the diagonal blocks A and B of 1 + L. */
__device__ __forceinline__ void invert(System &s) {
  const int warp = threadIdx.x / 32;
  float *product = s.lower + kHalf, sum[8];
  if (warp < 2) invert_block(s, warp * kHalf, threadIdx.x % 32);
  __syncthreads();
  multiply_blocks(sum, s.lower + kHalf * kFloats, s.inverse);
  for (int c = 0; c < 8; c++) product[eighth_row() * kFloats + eighth_column() + c] = sum[c];
  __syncthreads();
  multiply_blocks(sum, s.inverse + kHalf * kFloats + kHalf, product);
  for (int c = 0; c < 8; c++) s.inverse[(kHalf + eighth_row()) * kFloats + eighth_column() + c] = -sum[c];
  __syncthreads();
}

/* Block (chunk, value head). */
template <bool kMamba> __global__ void __launch_bounds__(kThreads) delta_system_kernel(DeltaArgs a) {
  begin_overlapping();
  a.fix_sizes<kMamba>();
  __shared__ __align__(16) System s;
  const Work work = work_of(a);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int head = blockIdx.y, first = a.take_chunk(blockIdx.x) * kChunk, n_q_k = 2 * a.n_key_heads;
  const size_t at = (size_t)blockIdx.x * a.n_value_heads + head, row_step = (size_t)n_q_k * kDim;
  __half *keys = (__half *)s.inverse, *queries = (__half *)s.lower;
  const __half *from = work.q_k + ((size_t)blockIdx.x * kChunk * n_q_k + head / a.group) * kDim;
  copy_tile<kChunk, kDim, kWide>(queries, from, row_step);
  copy_tile<kChunk, kDim, kWide>(keys, from + (size_t)a.n_key_heads * kDim, row_step);
  copy_async_commit();
  make_gates(a, s, first, head);
  copy_async_wait<0>();
  __syncthreads();
  const float first_half = s.logs[kHalf - 1];
  __syncthreads();
  if (threadIdx.x >= kHalf && threadIdx.x < kChunk) s.logs[threadIdx.x] += first_half;

  /* [n][2 h + c] in lane 4 g + t is row 16 warp + g + 8 h, column 8 n + 2 t + c of K K^T (Mamba-2: 0) and of
   * Q K^T. Blocks of 16 columns right of the diagonal stay 0. */
  float k_k[kChunk / 8][4] = {}, q_k[kChunk / 8][4] = {};
#pragma unroll
  for (int d = 0; d < kDim; d += 16) {
    uint32_t key_rows[4], query_rows[4];
    if (!kMamba) load_a(key_rows, keys + 16 * warp * kWide + d, kWide, lane);
    load_a(query_rows, queries + 16 * warp * kWide + d, kWide, lane);
#pragma unroll
    for (int n = 0; n < kWarps; n++) {
      if (n > warp) break;
      uint32_t b[4];
      load_b_transposed(b, keys + 16 * n * kWide + d, kWide, lane);
      if (!kMamba) {
        mma_f16_m16n8k16(k_k[2 * n], key_rows, b[0], b[1]);
        mma_f16_m16n8k16(k_k[2 * n + 1], key_rows, b[2], b[3]);
      }
      mma_f16_m16n8k16(q_k[2 * n], query_rows, b[0], b[1]);
      mma_f16_m16n8k16(q_k[2 * n + 1], query_rows, b[2], b[3]);
    }
  }
  __syncthreads();
  if (threadIdx.x < kChunk) work.logs[at * kChunk + threadIdx.x] = s.logs[threadIdx.x];
  if (kMamba && threadIdx.x < kChunk) work.steps[at * kChunk + threadIdx.x] = s.betas[threadIdx.x];
  const float skip = kMamba ? a.skip[head] / kMambaScale : 0;
  __half *masks = work.masks + at * kChunk * kChunk, *inverses = work.inverses + at * kChunk * kChunk;
#pragma unroll
  for (int n = 0; n < kChunk / 8; n++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int i = 16 * warp + g + 8 * h, j = 8 * n + 2 * t;
      float mask[2];
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const float decay = j + c <= i ? expf(s.logs[i] - s.logs[j + c]) : 0;
        mask[c] = q_k[n][2 * h + c] * decay;
        if (kMamba)
          mask[c] = mask[c] * s.betas[j + c] + (j + c == i ? skip : 0);
        else
          s.lower[i * kFloats + j + c] = j + c < i ? s.betas[i] * k_k[n][2 * h + c] * decay : 0;
      }
      if (kMamba)
        *(__half2 *)(masks + i * kChunk + j) = __half2{clamp_half(mask[0]), clamp_half(mask[1])};
      else /* no clamp: |M| is at most 1 */
        *(uint32_t *)(masks + i * kChunk + j) = pack_half2(mask[0], mask[1]);
    }
  if (kMamba) return;
  __syncthreads();
  invert(s);
  for (int i = 2 * threadIdx.x; i < kChunk * kChunk; i += 2 * kThreads) {
    const int row = i / kChunk, column = i % kChunk;
    const float *x = s.inverse + row * kFloats + column;
    *(uint32_t *)(inverses + i) = pack_half2(column <= row ? x[0] * s.betas[column] : 0,
                                             column + 1 <= row ? x[1] * s.betas[column + 1] : 0);
  }
}

/* --- scan */

constexpr int kValues = 32, kNarrow = kValues + 8, kTiles = kValues / 8;

/* Shared memory of a block of the scan. */
struct Scan {
  __half keys[2][kChunk * kWide], queries[kChunk * kWide];
  __half inverse[kChunk * kSquare], mask[kChunk * kSquare];
  __half values[kChunk * kNarrow];
  __half state[kDim * kNarrow];
  __half rest[kChunk * kNarrow];                             /* V - diag(e^G) K S */
  __half changes[kChunk * kNarrow], faded[kChunk * kNarrow]; /* D, diag(e^(G_64 - G)) D */
  float logs[kChunk], steps[kChunk];
};

/* Addresses of a segment's chunks in the workspace for this block, and functions that copy the data to shared
 * memory. */
struct ChunkSource {
  const DeltaArgs &a;
  Work work;
  int head, first_value;
  __device__ __forceinline__ size_t square(int chunk) const {
    return ((size_t)(a.own_chunk + chunk) * a.n_value_heads + head) * kChunk;
  }
  __device__ __forceinline__ const __half *query(int chunk) const {
    return work.q_k + ((size_t)(a.own_chunk + chunk) * kChunk * 2 * a.n_key_heads + head / a.group) * kDim;
  }
  __device__ __forceinline__ size_t row_step() const { return (size_t)2 * a.n_key_heads * kDim; }
  __device__ __forceinline__ void copy_keys(Scan &s, int chunk) const {
    copy_tile<kChunk, kDim, kWide>(s.keys[chunk % 2], query(chunk) + (size_t)a.n_key_heads * kDim,
                                   row_step());
  }
  /* Begins to copy queries, values, G and dt. */
  __device__ __forceinline__ void copy_rows(Scan &s, int chunk) const {
    copy_tile<kChunk, kDim, kWide>(s.queries, query(chunk), row_step());
    copy_tile<kChunk, kValues, kNarrow>(
        s.values,
        work.v + ((size_t)(a.own_chunk + chunk) * kChunk * a.n_value_heads + head) * a.value_dim +
            first_value,
        (size_t)a.n_value_heads * a.value_dim);
    if (threadIdx.x < kChunk / 4)
      copy_async_16(s.logs + 4 * threadIdx.x, work.logs + square(chunk) + 4 * threadIdx.x, 16);
    else if (a.mamba && threadIdx.x < kChunk / 2)
      copy_async_16(s.steps + 4 * threadIdx.x - kChunk, work.steps + square(chunk) + 4 * threadIdx.x - kChunk,
                    16);
  }
  __device__ __forceinline__ void copy_inverse(Scan &s, int chunk) const {
    copy_tile<kChunk, kChunk, kSquare>(s.inverse, work.inverses + square(chunk) * kChunk, kChunk);
  }
  __device__ __forceinline__ void copy_mask(Scan &s, int chunk) const {
    copy_tile<kChunk, kChunk, kSquare>(s.mask, work.masks + square(chunk) * kChunk, kChunk);
  }
};

/* 16 rows x kValues of an mma: lane 4 g + t has row g + 8 h, column 8 n + 2 t + c at [n][2 h + c]. */
typedef float Tile[kTiles][4];

__device__ __forceinline__ void multiply(Tile &sum, const uint32_t (&a)[4], const uint32_t (&low)[4],
                                         const uint32_t (&high)[4]) {
  mma_f16_m16n8k16(sum[0], a, low[0], low[1]);
  mma_f16_m16n8k16(sum[1], a, low[2], low[3]);
  mma_f16_m16n8k16(sum[2], a, high[0], high[1]);
  mma_f16_m16n8k16(sum[3], a, high[2], high[3]);
}

/* Stores two neighbouring numbers in fp16. */
__device__ __forceinline__ void store_pair(__half *to, float low, float high) {
  *(__half2 *)to = __half2{clamp_half(low), clamp_half(high)};
}

/* sum += a [16 x 16 n] b [16 n x kValues], both in shared memory. */
__device__ __forceinline__ void multiply_square(Tile &sum, const __half *a, const __half *b, int n,
                                                int lane) {
#pragma unroll
  for (int k = 0; k < kWarps; k++) {
    if (k >= n) break;
    uint32_t rows[4], low[4], high[4];
    load_a(rows, a + 16 * k, kSquare, lane);
    load_b(low, b + 16 * k * kNarrow, kNarrow, lane);
    load_b(high, b + 16 * k * kNarrow + 16, kNarrow, lane);
    multiply(sum, rows, low, high);
  }
}

/* Calls work(x, i) for each number x of a warp's 32 key dimensions of the state. i: the index of x among the
 * block's rows of the state in memory. These rows are value dimensions. */
template <class Work>
__device__ __forceinline__ void for_state(Tile (&state)[2], int warp, int lane, Work work) {
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        work(state[m][n][i],
             (8 * n + lane % 4 * 2 + i % 2) * kDim + 32 * warp + 16 * m + lane / 4 + i / 2 * 8);
}

/* Stores a warp's 32 key dimensions of the state in fp16, as an operand. */
__device__ __forceinline__ void store_state(Scan &s, const Tile (&state)[2], int warp, int lane) {
  __half *to = s.state + (32 * warp + lane / 4) * kNarrow + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        store_pair(to + (16 * m + 8 * h) * kNarrow + 8 * n, state[m][n][2 * h], state[m][n][2 * h + 1]);
}

/* Stores the outputs of a warp's 16 tokens in place of their values. */
__device__ __forceinline__ void store_outputs(DeltaArgs &a, const Tile &out, float scale, int first_token,
                                              int column) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int token = first_token + g + 8 * h;
    if (token >= a.n_tokens) continue;
    float *to = a.row(token) + column + 2 * t;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
      *(float2 *)(to + 8 * n) = make_float2(out[n][2 * h] * scale, out[n][2 * h + 1] * scale);
  }
}

/* S = fade S + K^T diag(e^(G_64 - G)) D for a warp's 32 key dimensions. */
__device__ __forceinline__ void change_state(Tile (&state)[2], const Scan &s, const __half *keys, float fade,
                                             int warp, int lane) {
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) state[m][n][i] *= fade;
#pragma unroll
  for (int k = 0; k < kChunk; k += 16) {
    uint32_t low[4], high[4];
    load_b(low, s.faded + k * kNarrow, kNarrow, lane);
    load_b(high, s.faded + k * kNarrow + 16, kNarrow, lane);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      uint32_t key_columns[4];
      load_a_transposed(key_columns, keys + k * kWide + 32 * warp + 16 * m, kWide, lane);
      multiply(state[m], key_columns, low, high);
    }
  }
}

/* Block (value dimensions, value head, segment). A warp owns 16 tokens of a chunk and 32 key dimensions of
 * the state. Each chunk has three groups of copies, and a group begins when its destination is free. Each of
 * the three parts of chunk c begins with a wait for all groups of copies but the newest, then a
 * __syncthreads():
 *
 *     part   begins to copy               reads                               writes
 *     1      mask c, keys c + 1           keys, queries, values, logs, state  rest (Mamba-2: changes, faded)
 *     2      queries, values, logs c + 1  inverse, rest                       changes, faded
 *     3      inverse c + 1 (not Mamba-2)  mask, changes, faded, keys          outputs; then state of c + 1 */
template <bool kMamba, class S>
__global__ void __launch_bounds__(kThreads, 2) delta_scan_kernel(DeltaArgs a) {
  begin_overlapping();
  a.fix_sizes<kMamba>();
  extern __shared__ __align__(16) unsigned char shared[];
  Scan &s = *(Scan *)shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int head = blockIdx.y, first_value = blockIdx.x * kValues, own = 16 * warp;
  a.take(blockIdx.z);
  const int n_chunks = (a.n_tokens + kChunk - 1) / kChunk;
  const ChunkSource source = {a, work_of(a), head, first_value};
  const int first_number = (head * a.value_dim + first_value) * kDim;
  S *kept = (S *)a.states + first_number;

  source.copy_keys(s, 0);
  copy_async_commit();
  source.copy_rows(s, 0);
  copy_async_commit();
  if (!kMamba) source.copy_inverse(s, 0);
  copy_async_commit();
  Tile state[2] = {};
  const int pos = a.position();
  if (pos > 0) for_state(state, warp, lane, [&](float &x, int i) { x = kept[i]; });

  for (int chunk = 0; chunk < n_chunks; chunk++) {
    const bool more = chunk + 1 < n_chunks;
    const __half *keys = s.keys[chunk % 2];
    store_state(s, state, warp, lane);
    copy_async_wait<1>(); /* keys, queries, values, G, dt */
    __syncthreads();
    source.copy_mask(s, chunk);
    if (more) source.copy_keys(s, chunk + 1);
    copy_async_commit();

    Tile known = {}, out = {}, change = {}; /* K S, Q S, D */
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t key_rows[4], query_rows[4], low[4], high[4];
      if (!kMamba) load_a(key_rows, keys + own * kWide + d, kWide, lane);
      load_a(query_rows, s.queries + own * kWide + d, kWide, lane);
      load_b(low, s.state + d * kNarrow, kNarrow, lane);
      load_b(high, s.state + d * kNarrow + 16, kNarrow, lane);
      if (!kMamba) multiply(known, key_rows, low, high);
      multiply(out, query_rows, low, high);
    }
    const float last = s.logs[kChunk - 1], fade = expf(last);
    float decay[2], fades[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int i = own + g + 8 * h;
      decay[h] = expf(s.logs[i]);
      fades[h] = expf(last - s.logs[i]);
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        const int cell = i * kNarrow + 8 * n + 2 * t;
        const __half2 pair = *(const __half2 *)(s.values + cell);
        const float2 value = __half22float2(pair);
        if (kMamba) {
          *(__half2 *)(s.changes + cell) = pair;
          store_pair(s.faded + cell, value.x * fades[h] * s.steps[i], value.y * fades[h] * s.steps[i]);
        } else
          store_pair(s.rest + cell, value.x - decay[h] * known[n][2 * h],
                     value.y - decay[h] * known[n][2 * h + 1]);
        out[n][2 * h] *= decay[h], out[n][2 * h + 1] *= decay[h];
      }
    }
    copy_async_wait<1>(); /* the inverse */
    __syncthreads();
    if (more) source.copy_rows(s, chunk + 1);
    copy_async_commit();

    if (!kMamba) multiply_square(change, s.inverse + own * kSquare, s.rest, warp + 1, lane);
#pragma unroll
    for (int h = 0; h < 2 && !kMamba; h++)
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        const int cell = (own + g + 8 * h) * kNarrow + 8 * n + 2 * t;
        const float low = change[n][2 * h], high = change[n][2 * h + 1];
        store_pair(s.changes + cell, low, high);
        store_pair(s.faded + cell, low * fades[h], high * fades[h]);
      }
    copy_async_wait<1>(); /* M */
    __syncthreads();
    if (more && !kMamba) source.copy_inverse(s, chunk + 1);
    copy_async_commit();

    multiply_square(out, s.mask + own * kSquare, s.changes, warp + 1, lane);
    store_outputs(a, out, kMamba ? kMambaScale : a.q_scale, chunk * kChunk + own,
                  a.first_value(head) + first_value);
    change_state(state, s, keys, fade, warp, lane);
    const int last_pos = pos + min((chunk + 1) * kChunk, a.n_tokens) - 1;
    for_state(state, warp, lane, [&](float &x, int i) { x = rounded<S>(x, last_pos, first_number + i); });
  }
  for_state(state, warp, lane, [&](float &x, int i) { kept[i] = (S)x; });
}

} // namespace

size_t delta_chunks_shared(void) {
  return sizeof(Scan);
}

size_t delta_chunks_workspace(const DeltaConfig &sizes, int max_tokens) {
  return work_of(NULL, sizes.n_key_heads, sizes.n_value_heads, sizes.value_dim, sizes.rule == RULE_MAMBA2,
                 ceil_div(max_tokens, kChunk))
      .bytes;
}

Status delta_chunks_prepare(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const unsigned heads = (unsigned)(2 * a.n_key_heads + a.n_value_heads * a.value_dim / kDim);
  TRY(launch(a.mamba ? delta_inputs_kernel<true> : delta_inputs_kernel<false>, dim3(heads, a.n_chunks),
             kThreads, 0, stream, true, "delta rule", err, a));
  return launch(a.mamba ? delta_system_kernel<true> : delta_system_kernel<false>,
                dim3(a.n_chunks, a.n_value_heads), kThreads, 0, stream, true, "delta rule", err, a);
}

Status delta_chunks_scan(const DeltaArgs &a, cudaStream_t stream, Error *err) {
  const auto kernel = of_type(a.type, [&](auto s) {
    return a.mamba ? delta_scan_kernel<true, decltype(s)> : delta_scan_kernel<false, decltype(s)>;
  });
  return launch(kernel, dim3(a.value_dim / kValues, a.n_value_heads, a.n_segments), kThreads, sizeof(Scan),
                stream, true, "delta rule", err, a);
}
