/* step_rows_sums.cuh - the residual stream of several rows: sums over all clusters, and normalised rows, as
 * integers, to the blocks of a cluster.
 *
 * A block keeps some groups of 128 columns (first_columns()), a warp one of a row at a time, a lane four
 * columns. What a cluster's share of o or down adds goes through L2 as in step_sums.cuh, each value with its
 * own tag:
 *
 * o     [n_kv_heads][rows][hidden] float               down  [2][n_clusters][rows][hidden] float, by turns
 *
 * x = residual * norm becomes integers here, and their planes and scale go to the cluster's blocks; the
 * division by the root of the mean follows after the product. Order of additions: fixed, by cluster. */
#ifndef AUK_CUDA_STEP_ROWS_SUMS_CUH
#define AUK_CUDA_STEP_ROWS_SUMS_CUH

#include "cuda/planes.cuh"
#include "cuda/step_rows_block.cuh"
#include "cuda/step_sums.cuh"

namespace step {
namespace rows {

/* The values of one sum: of matrix O or DOWN in a layer. */
struct Sum {
  float *values; /* [givers][rows][hidden] */
  int givers;
  uint32_t tag; /* the bit that they carry */
};

template <int kR, bool kDebug>
__device__ __forceinline__ Sum sum_of(const Block<kR, kDebug> &b, int matrix, int layer) {
  const StepShape &s = b.args().plan.shape;
  const unsigned launches = b.launches();
  if (matrix == O) return {b.args().partials, s.n_kv_heads, (launches * s.n_layers + layer + 1) & 1};
  const unsigned turn = layer % 2, uses = (s.n_layers + 1 - turn) / 2;
  return {b.args().partials + (size_t)(s.n_kv_heads + turn * s.n_clusters) * kR * s.hidden, s.n_clusters,
          (launches * uses + layer / 2 + 1) & 1};
}

/* Four columns of a row, summed over clusters. */
template <int kR, bool kDebug>
__device__ __forceinline__ float4 take_sum(const Block<kR, kDebug> &b, const Sum &sum, int row, int column) {
  const size_t stride = (size_t)kR * b.args().plan.shape.hidden;
  const float *from = sum.values + (size_t)row * b.args().plan.shape.hidden + column;
  ulonglong2 v[STEP_MAX_CLUSTERS];
  const long long since = kDebug ? clock64() : 0;
#pragma unroll
  for (int i = 0; i < STEP_MAX_CLUSTERS; i++) {
    v[i].x = v[i].y = sum.tag ? 0x0000000100000001ull : 0; /* zeros from those that there are not */
    if (i < sum.givers) v[i] = load_relaxed_16(from + i * stride);
  }
  for (;;) { /* reads again what was not there, and that alone, and looks at it the next time */
    uint32_t missing = 0;
#pragma unroll
    for (int i = 0; i < STEP_MAX_CLUSTERS; i++) {
      const uint32_t absent = without_tag(v[i], sum.tag) & 1;
      missing |= absent;
      if (absent) v[i] = load_relaxed_16(from + i * stride);
    }
    if (__all_sync(~0u, !missing)) break;
    if (kDebug && missing) b.look_at_clock(since, STEP_AT_VALUES, column, (int)sum.tag);
  }
  float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < STEP_MAX_CLUSTERS; i++) {
    total.x += untagged(v[i].x), total.y += untagged(v[i].x >> 32);
    total.z += untagged(v[i].y), total.w += untagged(v[i].y >> 32);
  }
  return total;
}

/* Four columns of a row's embedding. */
__device__ __forceinline__ float4 embedded(const Args &a, int row, int column) {
  const size_t at = (size_t)a.call.ids[min(row, a.call.n_rows - 1)] * a.embedding_stride + column;
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    v[i] = a.embedding_scale *
           (a.embedding_type == DTYPE_F16   ? __half2float(((const __half *)a.embedding)[at + i])
            : a.embedding_type == DTYPE_F32 ? ((const float *)a.embedding)[at + i]
                                            : (float)((const __nv_bfloat16 *)a.embedding)[at + i]);
  return make_float4(v[0], v[1], v[2], v[3]);
}

/* A group of 128 values of a row, four a lane (those of quantise_values: k, k + 8, k + 1, k + 9 of k = 16
 * (lane / 4) + 2 (lane % 4)), as integers to all blocks of the cluster. `planes`, `notes`: of the group, in
 * bytes of shared memory. */
template <int kR, bool kDebug>
__device__ __forceinline__ void send_group(const Block<kR, kDebug> &b, const float (&v)[4], int planes,
                                           int notes, int row, uint64_t *barrier) {
  uint32_t word[2];
  int sum;
  const float d = quantise_values<2, STEP_GROUP>(v, word, &sum);
  /* Of 16 runs of 16 bytes (64 inputs, plane, t) a lane has one, for every other peer. */
  const int lane = b.lane(), half = lane >> 3 & 1, plane = lane >> 2 & 1, t = lane & 3;
  uint32_t run[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int from = (4 * half + j) * 4 + t;
    const uint32_t high = __shfl_sync(~0u, word[0], from), low = __shfl_sync(~0u, word[1], from);
    run[j] = plane ? low : high;
  }
  const unsigned char *to = b.state + planes + half * Planes<kR>::kHalf + Planes<kR>::row_at(row) +
                            plane * Planes<kR>::kPlane + t * 16;
#pragma unroll
  for (int i = 0; i < STEP_BLOCKS; i += 2) {
    const int peer = (lane >> 4) + i;
    send_16(peer_address(to, peer), make_uint4(run[0], run[2], run[1], run[3]), peer_address(barrier, peer));
  }
  if (lane < STEP_BLOCKS)
    send_8(peer_address(b.state + notes + row * 8, lane),
           make_uint2(__float_as_uint(d), __float_as_uint(d * (float)sum)), peer_address(barrier, lane));
}

/* From four neighbouring columns a lane to those of quantise_values(). */
__device__ __forceinline__ void spread(const float4 &x, float (&v)[4], int lane) {
  const int near = (lane & ~3) + (lane >> 1 & 1), far = near + 2;
  const bool odd = lane & 1;
  const float n0 = __shfl_sync(~0u, x.x, near), n1 = __shfl_sync(~0u, x.y, near),
              n2 = __shfl_sync(~0u, x.z, near), n3 = __shfl_sync(~0u, x.w, near),
              f0 = __shfl_sync(~0u, x.x, far), f1 = __shfl_sync(~0u, x.y, far),
              f2 = __shfl_sync(~0u, x.z, far), f3 = __shfl_sync(~0u, x.w, far);
  v[0] = odd ? n2 : n0, v[1] = odd ? f2 : f0, v[2] = odd ? n3 : n1, v[3] = odd ? f3 : f1;
}

/* Adds what came out of `matrix` in `layer` (below 0: the embedding begins) to the residual stream, and if
 * anybody wants it, gives hand_on(group, row, v, squares) x = residual * norm of this block's columns, a group
 * of a row a warp at a time: four values a lane, those of quantise_values(), and the sum of the residual's
 * squares. */
template <int kR, bool kDebug, class HandOn>
__device__ __forceinline__ void add_sums(Block<kR, kDebug> &b, int matrix, int layer, const float *norm,
                                         bool wanted, HandOn hand_on) {
  const StepRowsPlan &p = b.args().plan;
  const int hidden = p.shape.hidden;
  Sum sum = {};
  if (layer >= 0) sum = sum_of(b, matrix, layer);
  b.mark(matrix == O ? STEP_MARK_SUM_O : STEP_MARK_SUM);
#pragma unroll 1
  for (int item = first_columns(p.shape, b.rank()) * kR + b.warp();
       item < first_columns(p.shape, b.rank() + 1) * kR; item += STEP_WARPS) {
    const int row = item % kR, group = item / kR, column = group * STEP_GROUP + 4 * b.lane();
    const float4 weight = __ldg((const float4 *)(norm + column));
    float4 *kept = (float4 *)(b.args().residual + ((size_t)b.cluster() * kR + row) * hidden + column);
    float4 r;
    if (layer < 0) {
      r = embedded(b.args(), row, column);
    } else {
      const float4 old = *kept, more = take_sum(b, sum, row, column);
      r = make_float4(old.x + more.x, old.y + more.y, old.z + more.z, old.w + more.w);
    }
    *kept = r;
    if (!wanted) continue;
    float squares = (r.x * r.x + r.y * r.y) + (r.z * r.z + r.w * r.w);
#pragma unroll
    for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
    float v[4];
    spread(make_float4(r.x * weight.x, r.y * weight.y, r.z * weight.z, r.w * weight.w), v, b.lane());
    hand_on(group, row, v, squares);
  }
  b.mark(matrix == O ? STEP_MARK_X_SENT_O : STEP_MARK_X_SENT);
}

/* Where the sum of squares of a group of a row lies. */
template <int kR, bool kDebug>
__device__ __forceinline__ float *square_of(const Block<kR, kDebug> &b, int row, int group) {
  return (float *)(b.state + b.places().squares) + row * (b.args().plan.shape.hidden / STEP_GROUP) + group;
}

/* x to the cluster's blocks. */
template <int kR, bool kDebug>
__device__ __forceinline__ void add_and_send(Block<kR, kDebug> &b, int matrix, int layer, const float *norm,
                                             bool wanted, uint64_t *barrier) {
  const StepRowsShared &at = b.places();
  add_sums(b, matrix, layer, norm, wanted, [&](int group, int row, const float(&v)[4], float squares) {
    if (b.lane() < STEP_BLOCKS)
      send_4(peer_address(square_of(b, row, group), b.lane()), __float_as_uint(squares),
             peer_address(barrier, b.lane()));
    send_group(b, v, at.x + group * Planes<kR>::kGroup, at.x_notes + group * kR * 8, row, barrier);
  });
}

/* 1 / rms of a row of x, the row the same for lanes 8 i .. 8 i + 7. */
template <int kR, bool kDebug>
__device__ __forceinline__ float inverse_of(const Block<kR, kDebug> &b, int row) {
  const StepShape &s = b.args().plan.shape;
  const int groups = s.hidden / STEP_GROUP; /* a multiple of four */
  const float *from = (const float *)(b.state + b.places().squares) + row * groups;
  float squares = 0;
#pragma unroll 1
  for (int group = 4 * (b.lane() & 7); group < groups; group += 32) {
    const float4 v = *(const float4 *)(from + group);
    squares += (v.x + v.y) + (v.z + v.w);
  }
#pragma unroll
  for (int step = 1; step <= 4; step *= 2) squares += __shfl_xor_sync(~0u, squares, step);
  return rsqrtf(__fdividef(squares, small_float(s.hidden)) + b.args().norm_eps);
}

/* The lane's four values of a group of a row as integers in this block's shared memory. `planes`, `notes`: of
 * the group. */
template <int kR, bool kDebug>
__device__ __forceinline__ void keep_group(const Block<kR, kDebug> &b, const float (&v)[4], int planes,
                                           int notes, int row) {
  const int lane = b.lane(), g = lane >> 2, t = lane & 3, j = g & 3;
  uint32_t word[2];
  int sum;
  const float d = quantise_values<2, STEP_GROUP>(v, word, &sum);
  unsigned char *to = b.state + planes + (g >> 2) * Planes<kR>::kHalf + Planes<kR>::row_at(row) + t * 16 +
                      (j & 1) * 8 + (j & 2) * 2;
  *(uint32_t *)to = word[0];
  *(uint32_t *)(to + Planes<kR>::kPlane) = word[1];
  if (lane == 0) *(float2 *)(b.state + notes + row * 8) = make_float2(d, d * (float)sum);
}

/* Turns the cluster's gated product into planes: a warp a group of a row at a time. */
template <int kR, bool kDebug> __device__ __forceinline__ void make_planes(const Block<kR, kDebug> &b) {
  const int lane = b.lane(), g = lane >> 2, t = lane & 3;
#pragma unroll 1
  for (int item = b.warp(); item < b.share(DOWN).n_groups * kR; item += STEP_WARPS) {
    const float *from = b.exchange() + item * STEP_GROUP + g * 16 + 2 * t;
    const float2 near = *(const float2 *)from, far = *(const float2 *)(from + 8);
    const float v[4] = {near.x, far.x, near.y, far.y};
    const int group = item / kR, row = item % kR;
    keep_group(b, v, b.places().in + group * Planes<kR>::kGroup, b.places().in_notes + group * kR * 8, row);
  }
}

} // namespace rows
} // namespace step

#endif
