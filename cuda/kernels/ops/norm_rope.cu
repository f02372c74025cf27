/* norm_rope.cu - see norm_rope.h. Each kernel is bound by memory bandwidth; with one token, by launch
 * latency. Reference: the CPU backend. */
#include "cuda/kernels/ops/norm_rope.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/cache/cache_rows.cuh"
#include "cuda/kernels/cache/q8.cuh"
#include "cuda/kernels/ops/elementwise.cuh"
#include "cuda/kernels/ops/heads.cuh"
#include "cuda/kernels/ops/rope.cuh"
#include "cuda/kernels/ptx/block_sum.cuh"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

/* The ids, passed to the kernel by value, so that no copy precedes it. */
struct StepIds {
  int ids[OPS_MOST_IDS];
  int n;
};

/* First kernel of a step that runs as separate kernels. It does not call dependents_may_start(), so the next
 * kernel starts only when this and all earlier kernels have ended. So even before wait_for_previous() later
 * kernels of the step can read memory that only earlier steps write (delta_step.cu does). */
__global__ void set_step_kernel(int *pos, int at, int n, int *ids, StepIds from) {
  wait_for_previous();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    pos[i] = at + i;
    if (i < from.n) ids[i] = from.ids[i];
  }
}

template <typename T, bool kScaled>
__global__ void embed_kernel(const T *table, int hidden, size_t stride, const int *ids, float *x,
                             float scale) {
  begin_overlapping();
  const T *from = table + ids[blockIdx.x] * stride;
  float *to = x + (size_t)blockIdx.x * hidden;
#pragma unroll 8
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    to[i] = kScaled ? (float)from[i] * scale : (float)from[i];
}

__global__ void add_rows_kernel(const void *table, Dtype dtype, int n, const int *rows, float *x) {
  begin_overlapping();
  const size_t from = (size_t)max(rows[blockIdx.x], 0) * n;
  float *to = x + (size_t)blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] += embedding_at(table, dtype, from + i);
}

__global__ void rope_table_kernel(RopeAngles a, float2 *table) {
  begin_overlapping();
  const bool is_long = a.is_long && a.is_long[blockIdx.x];
  const float *frequencies = is_long ? a.long_frequencies : a.frequencies;
  const float factor = is_long ? a.long_factor : a.attention_factor;
  for (int i = threadIdx.x; i < a.half; i += blockDim.x)
    table[(size_t)blockIdx.x * a.half + i] = rope_turn(a.pos[blockIdx.x], frequencies[i], factor);
}

__global__ void gather_rows_kernel(const float *x, const int *rows, int n, float *out) {
  begin_overlapping();
  const float *from = x + (size_t)rows[blockIdx.x] * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[(size_t)blockIdx.x * n + i] = from[i];
}

/* A thread moves a column, some rows at once. rows[] ascend, so no row is written before it is read. */
__global__ void compact_rows_kernel(const CompactRows a) {
  constexpr int kBatch = 8;
  begin_overlapping();
  int column = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  const bool second = column >= a.n_words[0];
  if (second) column -= a.n_words[0];
  const size_t n = (size_t)a.n_words[second];
  if (column >= a.n_words[second]) return;
  uint32_t *const of = (uint32_t *)a.of[second] + column;
  for (int first = 0; first < a.n_rows; first += kBatch) {
    uint32_t v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
      const int row = min(first + i, a.n_rows - 1);
      v[i] = of[(size_t)(a.rows ? a.rows[row] : a.first + row) * n];
    }
#pragma unroll
    for (int i = 0; i < kBatch; i++)
      if (first + i < a.n_rows) of[(size_t)(first + i) * n] = v[i];
  }
}

/* Norms of rows that stay in registers: n % 4 == 0, n <= kThreads * 4 * kChunks. Weights are fetched while
 * the previous kernel ends, which hides one of two memory latencies. */
template <int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads)
    rms_norm_in_registers_kernel(const float4 *x, const float4 *weight, float eps, int n, __half *out,
                                 int out_stride) {
  dependents_may_start();
  float4 w[kChunks], v[kChunks];
  int pieces = n / 4;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    int i = c * kThreads + threadIdx.x;
    w[c] = i < pieces ? weight[i] : make_float4(0, 0, 0, 0);
  }
  wait_for_previous();
  const float4 *from = x + (size_t)blockIdx.x * pieces;
  float squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    int i = c * kThreads + threadIdx.x;
    v[c] = i < pieces ? from[i] : make_float4(0, 0, 0, 0);
    squares += v[c].x * v[c].x + v[c].y * v[c].y + v[c].z * v[c].z + v[c].w * v[c].w;
  }
  float scale = rsqrtf(block_sum<kThreads>(squares) / n + eps);
  __half *to = out + (size_t)blockIdx.x * out_stride;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    int i = c * kThreads + threadIdx.x;
    if (i >= pieces) continue;
    __half2 pair[2] = {__floats2half2_rn(v[c].x * scale * w[c].x, v[c].y * scale * w[c].y),
                       __floats2half2_rn(v[c].z * scale * w[c].z, v[c].w * scale * w[c].w)};
    *(uint2 *)(to + 4 * i) = *(uint2 *)pair;
  }
}

template <int kThreads> __global__ void __launch_bounds__(kThreads) norm_rows_kernel(NormRows a) {
  begin_overlapping();
  const float *from = a.x + (size_t)blockIdx.x * a.x_stride,
              scale = a.factor * rms_scale<kThreads>(from, a.n, a.eps);
  for (int i = threadIdx.x; i < a.n; i += kThreads) {
    const float v = from[i] * scale * (a.weight ? a.weight[i] : 1.0f) + (a.bias ? a.bias[i] : 0.0f);
    if (a.wide) a.wide[(size_t)blockIdx.x * a.n + i] = v;
    if (a.out) ((__half *)a.out)[(size_t)blockIdx.x * a.out_stride + i] = clamp_half(v);
  }
}

__global__ void round_kernel(const float *x, int x_stride, float scale, int n, __half *out, int out_stride) {
  begin_overlapping();
  const float *from = x + (size_t)blockIdx.x * x_stride;
  __half *to = out + (size_t)blockIdx.x * out_stride;
  for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = clamp_half(from[i] * scale);
}

template <int kThreads> __global__ void __launch_bounds__(kThreads) centre_kernel(float *x, int n) {
  begin_overlapping();
  float *row = x + (size_t)blockIdx.x * n, sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) sum += row[i];
  const float mean = block_sum<kThreads>(sum) / n;
  for (int i = threadIdx.x; i < n; i += kThreads) row[i] -= mean;
}

__global__ void clip_kernel(float *rows, size_t stride, int n, float limit) {
  begin_overlapping();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float *at = rows + blockIdx.y * stride + i;
  *at = *at > limit ? limit : *at < -limit ? -limit : *at; /* NaN stays NaN */
}

/* A block takes one layer's input of one token. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads) layer_inputs_kernel(LayerInputs a, float *p) {
  begin_overlapping();
  const size_t row = (size_t)blockIdx.y * a.n_layers + blockIdx.x;
  const int id = a.ids[blockIdx.y];
  const size_t from = ((size_t)(id < a.n_rows ? id : 0) * a.n_layers + blockIdx.x) * a.width;
  float *to = p + row * a.width;
  const float scale = rms_scale<kThreads>(to, a.width, a.eps), factor = sqrtf((float)a.width);
  for (int i = threadIdx.x; i < a.width; i += kThreads)
    to[i] = (to[i] * scale * a.weight[i] + embedding_at(a.table, a.dtype, from + i) * factor) * sqrtf(0.5f);
}

/* Block (row, 0) takes q, block (row, 1) k. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    rms_norm_qk_kernel(float *rows, size_t stride, int n_q, int n_k, const float *q_norm, const float *k_norm,
                       float eps) {
  begin_overlapping();
  float *row = rows + (size_t)blockIdx.x * stride + (blockIdx.y ? n_q : 0);
  const float *weight = blockIdx.y ? k_norm : q_norm;
  const int n = blockIdx.y ? n_k : n_q;
  float scale = rms_scale<kThreads>(row, n, eps);
  for (int i = threadIdx.x; i < n; i += kThreads) row[i] *= scale * weight[i];
}

/* Block (row, i) takes head i; heads of q come first. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    centred_norm_heads_kernel(float *rows, size_t stride, int n_q, int head_dim, const float *q_norm,
                              const float *k_norm, float eps) {
  begin_overlapping();
  const int head = blockIdx.y;
  float *x = rows + (size_t)blockIdx.x * stride + (size_t)head * head_dim, sum = 0;
  const float *weight = head < n_q ? q_norm + head * head_dim : k_norm + (head - n_q) * head_dim;
  for (int i = threadIdx.x; i < head_dim; i += kThreads) sum += x[i];
  const float mean = block_sum<kThreads>(sum) / head_dim;
  for (int i = threadIdx.x; i < head_dim; i += kThreads) x[i] -= mean;
  __syncthreads(); /* rms_scale() reads numbers that other threads wrote */
  const float scale = rms_scale<kThreads>(x, head_dim, eps);
  for (int i = threadIdx.x; i < head_dim; i += kThreads) x[i] *= scale * weight[i];
}

__device__ __forceinline__ void store(__half *to, float value) {
  *to = __float2half_rn(value);
}
__device__ __forceinline__ void store(float *to, float value) {
  *to = value;
}

/* A row has the blocks of one y: one block, which sums squares, or with factors several. */
template <typename T>
__global__ void __launch_bounds__(256)
    multiply_kernel(T *rows, size_t stride, int n, const float *factors, float eps) {
  begin_overlapping();
  T *row = rows + blockIdx.y * stride;
  float squares = 0, factor = 1;
  for (int i = threadIdx.x; !factors && i < n; i += 256) squares += (float)row[i] * (float)row[i];
  if (!factors) factor = rsqrtf(block_sum<256>(squares) + eps);
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
    store(row + i, (float)row[i] * (factors ? factors[i] : factor));
}

__global__ void __launch_bounds__(512)
    norm_plus_kernel(float *x, const float *rates, float *start, bool sets_start, float eps, int n) {
  begin_overlapping();
  const size_t at = (size_t)blockIdx.x * n;
  const float scale = rms_scale<512>(x + at, n, eps);
  for (int i = threadIdx.x; i < n; i += 512) {
    const float v = x[at + i] * scale * (rates ? 1 - rates[i] : 1);
    if (sets_start) start[at + i] = v;
    x[at + i] = v + (start ? start[at + i] : 0);
  }
}

/* RopePairs adds offsets to i to get the two dimensions of pair i. kWhole: (i, i + half), half = head_dim
 * / 2. kPart: (i, i + n_rotated), n_rotated = rotary_dim / 2; then the dimensions that are only copied:
 * (i + n_rotated, i + half). kNeighbours: (2 i, 2 i + 1). */
enum Pairing { kWhole, kPart, kNeighbours };
template <Pairing kPairing> struct RopePairs {
  int half, n_rotated;
  __device__ __forceinline__ int low(int pair) const {
    return kPairing == kNeighbours ? pair : kPairing == kPart && pair >= n_rotated ? n_rotated : 0;
  }
  __device__ __forceinline__ int high(int pair) const {
    return kPairing == kNeighbours ? pair + 1 : kPairing == kPart && pair < n_rotated ? n_rotated : half;
  }
};

constexpr int kAppendWarps = 4; /* of a block */

template <int kMaxPairs>
__device__ __forceinline__ void make_finite(float (&low)[kMaxPairs], float (&high)[kMaxPairs]) {
#pragma unroll
  for (int i = 0; i < kMaxPairs; i++) low[i] = finite_value(low[i]), high[i] = finite_value(high[i]);
}

/* The keys or values of a warp in shared memory, on their way to a cache in 8 bits. Each lane stores the
 * numbers of its pairs. Then it loads kOwn successive dimensions of a head, makes one scale for them and
 * stores their bytes at once. Words of 16 bytes are swapped so that the loads of eight lanes are in different
 * banks. */
template <int kMaxPairs, int kHeads> struct HeadsInOrder {
  static constexpr unsigned kNumbers = 64 * kMaxPairs, kLanes = 32 / kHeads, kOwn = kNumbers / kLanes;
  static_assert(KEY_SCALE_DIMS % kOwn == 0, "a lane's numbers have one scale");
  struct __align__(kOwn) Bytes {
    uint32_t words[kOwn / 4];
  };
  float (&numbers)[kHeads][kNumbers];

  static __device__ __forceinline__ unsigned place(unsigned dim) { return dim ^ dim / 32 % (kOwn / 4) * 4; }

  /* Makes and stores the bytes of the lane's numbers. The first of the lanes that share a scale stores it.
   * The first head's bytes and scales go to `to` and `scales`, each next head's `apart` rows farther. */
  __device__ __forceinline__ void store(int head_dim, bool is_key, uint8_t *to, __half *scales, int apart,
                                        unsigned lane) const {
    const unsigned h = lane / kLanes, dim = lane % kLanes * kOwn;
    __align__(16) float x[kOwn];
    float size = 0;
#pragma unroll
    for (int i = 0; i < kOwn; i += 4) *(float4 *)(x + i) = *(const float4 *)(numbers[h] + place(dim | i));
#pragma unroll
    for (int i = 0; i < kOwn; i++) size = max_or_nan(size, fabsf(x[i]));
    uint32_t largest = largest_size<KEY_SCALE_DIMS / kOwn>(__float_as_uint(size));
    if (!is_key) largest = largest_size<kLanes>(largest);
    const __half scale = scale_of_largest(largest);
    const ToQ8 to_q8(scale);
    Bytes bytes;
#pragma unroll
    for (int i = 0; i < kOwn / 4; i++) bytes.words[i] = to_q8.four_bytes(x + 4 * i);
    if (dim >= head_dim) return;
    const size_t row = (size_t)h * apart;
    if (dim % (is_key ? KEY_SCALE_DIMS : kNumbers) == 0)
      scales[is_key ? row * key_scales(head_dim) + dim / KEY_SCALE_DIMS : row] = scale;
    to += row * head_dim + dim;
    if (head_dim % kOwn == 0) {
      *(Bytes *)to = bytes;
      return;
    }
#pragma unroll
    for (int i = 0; i < kOwn; i++)
      if (dim + i < head_dim) to[i] = (uint8_t)(bytes.words[i / 4] >> i % 4 * 8);
  }
};

/* A warp takes kHeads heads of one token: heads 0 .. n_heads - 1 are queries, then come keys, then values;
 * kHeads > 1 divides the number of each. All loads of the warp are under way at once. kMaxPairs: pairs of a
 * lane, a 64th of the longest head. */
template <typename T, Pairing kPairing, int kMaxPairs, int kHeads>
__global__ void qk_norm_rope_append_kernel(QkvHeads a) {
  dependents_may_start();
  int lane = threadIdx.x, head = (blockIdx.x * blockDim.y + threadIdx.y) * kHeads, row = blockIdx.y,
      half = a.head_dim / 2;
  int n_all = a.n_heads + 2 * a.n_kv_heads;
  if (head >= n_all) return;
  __shared__ __align__(16) float heads[kAppendWarps][kHeads][64 * kMaxPairs]; /* for a cache in 8 bits */
  const RopePairs<kPairing> pairs = {half, kPairing == kWhole ? half : a.rotary_dim / 2};
  bool is_query = head < a.n_heads, is_value = head >= a.n_heads + a.n_kv_heads;
  const float *weight = is_value ? NULL : is_query ? a.q_norm : a.k_norm;
  const bool has_norm = is_value ? a.v_norm : weight || a.plain_qk_norm;
  float low_weight[kMaxPairs], high_weight[kMaxPairs]; /* fetched while the previous kernel ends */
#pragma unroll
  for (int i = 0; i < kMaxPairs; i++) {
    int pair = lane + 32 * i;
    low_weight[i] = weight && pair < half ? weight[pair + pairs.low(pair)] : 1;
    high_weight[i] = weight && pair < half ? weight[pair + pairs.high(pair)] : 1;
  }
  wait_for_previous();
  const int position = a.pos[row];
  const int own = is_value && a.k_as_v ? head - a.n_kv_heads : head; /* the head whose projection is read */
  const int step = is_query ? a.query_step : a.head_dim;
  const float *from = a.projections + row * a.stride +
                      (is_query ? own * step : a.n_heads * a.query_step + (own - a.n_heads) * step);
  float low[kHeads][kMaxPairs], high[kHeads][kMaxPairs];
#pragma unroll
  for (int h = 0; h < kHeads; h++)
#pragma unroll
    for (int i = 0; i < kMaxPairs; i++) {
      int pair = lane + 32 * i;
      low[h][i] = pair < half ? from[h * step + pair + pairs.low(pair)] : 0;
      high[h][i] = pair < half ? from[h * step + pair + pairs.high(pair)] : 0;
    }
  const float2 *table = (const float2 *)a.rope_table + (size_t)row * pairs.n_rotated;
  float2 angle[kMaxPairs];
#pragma unroll
  for (int i = 0; i < kMaxPairs; i++) {
    int pair = lane + 32 * i;
    angle[i] = !is_value && pair < pairs.n_rotated ? table[pair] : make_float2(1, 0);
  }
  const bool scaled = is_query && a.query_scale_beta != 0;
  const float factor =
      scaled ? query_factor(a.query_scale_beta, a.query_scale_step, position + a.query_scale_ahead) : 1;
  const size_t to_step = (size_t)(is_query ? 1 : a.n_ctx) * a.head_dim;
  const int kv_head = head - a.n_heads - (is_value ? a.n_kv_heads : 0);
  __half *to_query = (__half *)a.q + ((size_t)row * a.n_heads + head) * a.head_dim;
  if (position < 0 && !is_query) return;
  T *to_cache = (T *)(is_value ? a.v_cache : a.k_cache);
  size_t cache_row; /* of a key or value */
  if (!is_query) {
    cache_row = CacheRows(a.pages, row, a.n_kv_heads, kv_head, a.n_ctx).at(position);
    to_cache += cache_row * a.head_dim;
  }
#pragma unroll
  for (int h = 0; h < kHeads; h++) {
    const auto normalise = [&] {
      normalise_head(low[h], high[h], low_weight, high_weight, a.head_dim, a.eps);
    };
    if (has_norm && !(a.norm_after_rope && !is_value)) normalise();
#pragma unroll
    for (int i = 0; i < kMaxPairs; i++)
      if (!is_value && lane + 32 * i < pairs.n_rotated) rotate(low[h][i], high[h][i], angle[i]);
    if (has_norm && a.norm_after_rope && !is_value) normalise();
    if (scaled)
#pragma unroll
      for (int i = 0; i < kMaxPairs; i++) low[h][i] *= factor, high[h][i] *= factor;
    if (is_value && sizeof(T) == sizeof(__half)) make_finite(low[h], high[h]);
    const auto store_head = [&](auto *to) {
#pragma unroll
      for (int i = 0; i < kMaxPairs; i++) {
        int pair = lane + 32 * i;
        if (pair >= half) continue;
        store(to + pair + pairs.low(pair), low[h][i]);
        store(to + pair + pairs.high(pair), high[h][i]);
      }
    };
    if (is_query)
      store_head(to_query + h * to_step);
    else if constexpr (sizeof(T) > 1)
      store_head(to_cache + h * to_step);
  }
  if constexpr (sizeof(T) == 1) {
    if (is_query) return;
    const HeadsInOrder<kMaxPairs, kHeads> in_order = {heads[threadIdx.y]};
#pragma unroll
    for (int i = 0; i < kMaxPairs; i++) {
      const int pair = lane + 32 * i; /* no pairs from `half` on: zeros go to places after the head */
      const int low_at = in_order.place(pair + (pair < half ? pairs.low(pair) : half)),
                high_at = in_order.place(pair + (pair < half ? pairs.high(pair) : 32 * kMaxPairs));
#pragma unroll
      for (int h = 0; h < kHeads; h++)
        in_order.numbers[h][low_at] = low[h][i], in_order.numbers[h][high_at] = high[h][i];
    }
    __syncwarp();
    __half *scales = (__half *)(is_value ? a.v_scales : a.k_scales);
    in_order.store(a.head_dim, !is_value, to_cache,
                   scales + cache_row * (is_value ? 1 : key_scales(a.head_dim)), a.n_ctx, lane);
  }
}

__device__ __forceinline__ float gate_factor(float x, bool is_softplus) {
  if (is_softplus) return softplus(x);
  return 1 / (1 + expf(-x));
}

/* A thread takes two numbers of a row. */
__global__ void gate_heads_kernel(HeadGates g, __half2 *a) {
  begin_overlapping();
  const int n = g.n_heads * g.head_dim;
  const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x), d = i % g.head_dim;
  if (i >= n) return;
  const float *gate = g.gates + blockIdx.y * g.stride + i / g.head_dim * g.step + (g.by_head ? 0 : d);
  __half2 *at = a + ((size_t)blockIdx.y * n + i) / 2;
  const float2 value = __half22float2(*at);
  /* A softplus has no upper bound, so a product can be more than fp16 holds. */
  *at = __halves2half2(clamp_half(value.x * gate_factor(gate[0], g.softplus)),
                       clamp_half(value.y * gate_factor(gate[g.by_head ? 0 : 1], g.softplus)));
}

/* ACTIVATION_XIELU (model.h); its parameters are as stored. */
__device__ __forceinline__ float xielu(float u, const DeviceXielu &own) {
  const float beta = own.beta ? *own.beta : 0.5f, eps = own.eps ? *own.eps : -1e-6f;
  if (u > 0) return (softplus(*own.alpha_p) * u + beta) * u;
  return (expm1f(u < eps ? u : eps) - u) * (beta + softplus(*own.alpha_n)) + beta * u;
}

/* A thread makes kStep numbers of a row. With kStep > 1 all rows are aligned to kStep numbers. `up` can be
 * `gate`. */
template <Activation kActivation, int kStep> __global__ void __launch_bounds__(256) gated_kernel(Gated a) {
  begin_overlapping();
  struct alignas(4 * kStep) Floats {
    float of[kStep];
  };
  struct alignas(2 * kStep) Halves {
    __half of[kStep];
  } product;
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * kStep;
  if (i >= a.n) return;
  const Floats gates = *(const Floats *)(a.gate + blockIdx.y * a.gate_stride + i),
               ups = *(const Floats *)(a.up + blockIdx.y * a.up_stride + i);
  const float factor = a.row_factors ? a.row_factors[blockIdx.y] : 1.0f;
#pragma unroll
  for (int k = 0; k < kStep; k++) {
    const float gate = a.factor * gates.of[k], up = a.up_factor * ups.of[k];
    product.of[k] = clamp_half(
        factor * (kActivation == ACTIVATION_XIELU        ? xielu(gate, a.xielu)
                  : kActivation == ACTIVATION_GELU_ALONE ? gated_product(ACTIVATION_GELU_TANH, gate, 1, 0)
                  : kActivation == ACTIVATION_GELU_EXACT ? 0.5f * gate * erfcf(-0.70710678f * gate)
                                                         : gated_product(kActivation, gate, up, a.limit)));
  }
  *(Halves *)((__half *)a.out + (size_t)blockIdx.y * a.out_stride + i) = product;
}

__global__ void finish_logits_kernel(float *logits, size_t n, float divisor, float cap) {
  begin_overlapping();
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    float value = logits[i] / divisor;
    logits[i] = cap != 0 ? cap * tanhf(value / cap) : value;
  }
}

} // namespace

cudaError_t ops_probe(void) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, set_step_kernel);
}

Status ops_set_step(int *pos, int at, int n, int *to_ids, const int32_t *ids, int n_ids, cudaStream_t stream,
                    Error *err) {
  StepIds from = {};
  from.n = n_ids;
  for (int i = 0; i < n_ids; i++) from.ids[i] = ids[i];
  return launch(set_step_kernel, 1, n < 256 ? n : 256, 0, stream, true, "set step", err, pos, at, n, to_ids,
                from);
}

template <typename T>
static Status embed(const void *table, int hidden, size_t stride, const int *ids, int n_tokens, float scale,
                    float *x, cudaStream_t stream, Error *err) {
  auto kernel = scale == 1 ? embed_kernel<T, false> : embed_kernel<T, true>;
  return launch(kernel, n_tokens, 256, 0, stream, true, "embedding", err, (const T *)table, hidden, stride,
                ids, x, scale);
}

Status ops_embed(const void *table, Dtype dtype, int hidden, size_t stride, const int *ids, int n_tokens,
                 float scale, float *x, cudaStream_t stream, Error *err) {
  auto of_type = dtype == DTYPE_F32   ? embed<float>
                 : dtype == DTYPE_F16 ? embed<__half>
                                      : embed<__nv_bfloat16>;
  return of_type(table, hidden, stride, ids, n_tokens, scale, x, stream, err);
}

Status ops_add_rows(const void *table, Dtype dtype, int n, const int *rows, int n_tokens, float *x,
                    cudaStream_t stream, Error *err) {
  return launch(add_rows_kernel, n_tokens, 256, 0, stream, true, "rows of a table", err, table, dtype, n,
                rows, x);
}

Status ops_rope_table(const RopeAngles *angles, int n_tokens, void *table, cudaStream_t stream, Error *err) {
  return launch(rope_table_kernel, n_tokens, 64, 0, stream, true, "rope table", err, *angles,
                (float2 *)table);
}

Status ops_gather_rows(const float *x, const int *rows, int n, int n_rows, float *out, cudaStream_t stream,
                       Error *err) {
  return launch(gather_rows_kernel, n_rows, 256, 0, stream, true, "rows of logits", err, x, rows, n, out);
}

Status ops_compact_rows(const CompactRows *call, cudaStream_t stream, Error *err) {
  const int n = call->n_words[0] + call->n_words[1];
  return launch(compact_rows_kernel, ceil_div(n, 128), 128, 0, stream, true, "rows of logits", err, *call);
}

Status ops_rms_norm(const float *x, const float *weight, float eps, int n, int n_tokens, void *out,
                    int out_stride, cudaStream_t stream, Error *err) {
  const float4 *rows = (const float4 *)x, *weights = (const float4 *)weight;
  if (n % 4 == 0 && n <= 4096)
    return launch(rms_norm_in_registers_kernel<512, 2>, n_tokens, 512, 0, stream, true, "norm", err, rows,
                  weights, eps, n, (__half *)out, out_stride);
  if (n % 4 == 0 && n <= 8192)
    return launch(rms_norm_in_registers_kernel<1024, 2>, n_tokens, 1024, 0, stream, true, "norm", err, rows,
                  weights, eps, n, (__half *)out, out_stride);
  const NormRows call = {x, weight, NULL, (size_t)n, eps, 1, n, NULL, out, out_stride};
  return ops_norm_rows(&call, n_tokens, stream, err);
}

Status ops_norm_rows(const NormRows *call, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(norm_rows_kernel<512>, n_tokens, 512, 0, stream, true, "norm", err, *call);
}

Status ops_round(const float *x, int x_stride, float scale, int n, int n_tokens, void *out, int out_stride,
                 cudaStream_t stream, Error *err) {
  return launch(round_kernel, n_tokens, 256, 0, stream, true, "rounding", err, x, x_stride, scale, n,
                (__half *)out, out_stride);
}

Status ops_centre(float *x, int n, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(centre_kernel<512>, n_tokens, 512, 0, stream, true, "mean", err, x, n);
}

Status ops_clip(float *rows, size_t stride, int n, float limit, int n_tokens, cudaStream_t stream,
                Error *err) {
  return launch(clip_kernel, dim3((n + 255) / 256, n_tokens), 256, 0, stream, true, "limit", err, rows,
                stride, n, limit);
}

template <typename T>
static Status multiply(void *rows, size_t stride, int n, const float *factors, float eps, int n_tokens,
                       cudaStream_t stream, Error *err) {
  return launch(multiply_kernel<T>, dim3(factors ? (n + 255) / 256 : 1, n_tokens), 256, 0, stream, true,
                "factors", err, (T *)rows, stride, n, factors, eps);
}

Status ops_multiply(void *rows, bool halves, size_t stride, int n, const float *factors, float eps,
                    int n_tokens, cudaStream_t stream, Error *err) {
  return (halves ? multiply<__half> : multiply<float>)(rows, stride, n, factors, eps, n_tokens, stream, err);
}

Status ops_norm_plus(float *x, const float *rates, float *start, bool sets_start, float eps, int n,
                     int n_tokens, cudaStream_t stream, Error *err) {
  return launch(norm_plus_kernel, n_tokens, 512, 0, stream, true, "norm", err, x, rates, start, sets_start,
                eps, n);
}

Status ops_layer_inputs(const LayerInputs *call, int n_tokens, float *p, cudaStream_t stream, Error *err) {
  return launch(layer_inputs_kernel<128>, dim3(call->n_layers, n_tokens), 128, 0, stream, true,
                "inputs of layers", err, *call, p);
}

Status ops_rms_norm_qk(float *rows, size_t stride, int n_q, int n_k, const float *q_norm, const float *k_norm,
                       float eps, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(rms_norm_qk_kernel<512>, dim3(n_tokens, 2), 512, 0, stream, true, "norm of q and k", err,
                rows, stride, n_q, n_k, q_norm, k_norm, eps);
}

Status ops_centred_norm_heads(float *rows, size_t stride, int n_q, int n_k, int head_dim, const float *q_norm,
                              const float *k_norm, float eps, int n_tokens, cudaStream_t stream, Error *err) {
  return launch(centred_norm_heads_kernel<128>, dim3(n_tokens, n_q + n_k), 128, 0, stream, true,
                "norms of heads", err, rows, stride, n_q, head_dim, q_norm, k_norm, eps);
}

template <typename T, Pairing kPairing, int kMaxPairs, int kHeads>
static Status append_heads(const QkvHeads *heads, int n_tokens, cudaStream_t stream, Error *err) {
  const int warps = kAppendWarps, groups = (heads->n_heads + 2 * heads->n_kv_heads) / kHeads;
  return launch(qk_norm_rope_append_kernel<T, kPairing, kMaxPairs, kHeads>,
                dim3((groups + warps - 1) / warps, n_tokens), dim3(32, warps), 0, stream, true, "rope", err,
                *heads);
}

/* For few tokens a warp for each head is fastest. For many tokens a warp has several heads, with all their
 * loads in flight. */
template <typename T, Pairing kPairing>
static Status append(const QkvHeads *heads, int n_tokens, cudaStream_t stream, Error *err) {
  const int dim = heads->head_dim;
  auto run = dim > 256   ? append_heads<T, kPairing, 8, 1>
             : dim > 128 ? append_heads<T, kPairing, 4, 1>
                         : append_heads<T, kPairing, 2, 1>;
  if constexpr (sizeof(T) <= sizeof(__half))
    if (n_tokens > 64 && heads->n_heads % 4 == 0 && heads->n_kv_heads % 4 == 0 && dim <= 256)
      run = dim > 128 ? append_heads<T, kPairing, 4, 2> : append_heads<T, kPairing, 2, 4>;
  return run(heads, n_tokens, stream, err);
}

template <typename T>
static Status append_to(const QkvHeads *heads, int n_tokens, cudaStream_t stream, Error *err) {
  if (heads->neighbours) return append<T, kNeighbours>(heads, n_tokens, stream, err);
  const bool whole = heads->rotary_dim == heads->head_dim;
  return whole ? append<T, kWhole>(heads, n_tokens, stream, err)
               : append<T, kPart>(heads, n_tokens, stream, err);
}

Status ops_qk_norm_rope_append(const QkvHeads *heads, int n_tokens, cudaStream_t stream, Error *err) {
  switch (heads->kv) {
  case KV_F32: return append_to<float>(heads, n_tokens, stream, err);
  case KV_Q8: return append_to<uint8_t>(heads, n_tokens, stream, err);
  default: return append_to<__half>(heads, n_tokens, stream, err);
  }
}

template <int kStep> static Status gated(const Gated *call, int n_tokens, cudaStream_t stream, Error *err) {
  auto kernel = call->activation == ACTIVATION_SILU         ? gated_kernel<ACTIVATION_SILU, kStep>
                : call->activation == ACTIVATION_GELU_TANH  ? gated_kernel<ACTIVATION_GELU_TANH, kStep>
                : call->activation == ACTIVATION_RELU       ? gated_kernel<ACTIVATION_RELU, kStep>
                : call->activation == ACTIVATION_XIELU      ? gated_kernel<ACTIVATION_XIELU, kStep>
                : call->activation == ACTIVATION_GELU_ALONE ? gated_kernel<ACTIVATION_GELU_ALONE, kStep>
                : call->activation == ACTIVATION_GELU_EXACT ? gated_kernel<ACTIVATION_GELU_EXACT, kStep>
                : call->activation == ACTIVATION_LIMITED    ? gated_kernel<ACTIVATION_LIMITED, kStep>
                                                            : gated_kernel<ACTIVATION_CLAMPED, kStep>;
  return launch(kernel, dim3((call->n + 256 * kStep - 1) / (256 * kStep), n_tokens), 256, 0, stream, true,
                "gated product", err, *call);
}

Status ops_gated(const Gated *call, int n_tokens, cudaStream_t stream, Error *err) {
  const bool aligned = ((uintptr_t)call->gate | (uintptr_t)call->up | (uintptr_t)call->out) % 16 == 0 &&
                       (call->n | call->gate_stride | call->up_stride | call->out_stride) % 4 == 0;
  return (aligned ? gated<4> : gated<1>)(call, n_tokens, stream, err);
}

Status ops_gate_heads(const HeadGates *gates, int n_tokens, void *a, cudaStream_t stream, Error *err) {
  const int n = gates->n_heads * gates->head_dim;
  return launch(gate_heads_kernel, dim3((n + 511) / 512, n_tokens), 256, 0, stream, true, "attention's gate",
                err, *gates, (__half2 *)a);
}

Status ops_finish_logits(float *logits, int vocab_size, int n_rows, float divisor, float cap,
                         cudaStream_t stream, Error *err) {
  const size_t n = (size_t)n_rows * (size_t)vocab_size, blocks = (n + 1023) / 1024;
  return launch(finish_logits_kernel, (unsigned)(blocks < 65536 ? blocks : 65536), 256, 0, stream, true,
                "logits", err, logits, n, divisor, cap);
}
