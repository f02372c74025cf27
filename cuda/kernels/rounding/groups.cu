/* groups.cu - rounds groups of weights to 4 bits; see rounding.h.
 *
 * A warp has one group of one output: lane l holds inputs l, l + 32, ... Each candidate is judged by one
 * lane, so no sum goes across lanes. The arithmetic is that of the CPU's kernels; equal operands give equal
 * bits. (The compiler does not fuse multiplications and additions of this file.) */
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>

#include "cuda/kernels/ptx/lanes.cuh"
#include "cuda/kernels/ptx/launch.cuh"
#include "cuda/kernels/rounding/rounding.h"

namespace {

constexpr int kWarps = 8, kMostSlots = ROUNDING_MOST_GROUP / 32;
constexpr unsigned kAll = 0xffffffffu;

__device__ __forceinline__ float round_to_f16(float x) {
  return fmaxf(__half2float(__float2half_rn(fminf(x, 65504.0f))), 0x1p-24f);
}

__device__ __forceinline__ float round_weight(float w, float inverse, float zero) {
  return rintf(fminf(fmaxf(w * inverse, -zero), 15.0f - zero));
}

struct GroupScale {
  float scale, zero;
};

/* Returns the best scale (weighted least squares) for the codes to which `scale` rounds the weights, or
 * `scale` itself if the best is not above 0. */
__device__ float fit_scale(const float *w, const float *importance, int n, float scale, float zero) {
  float dot = 0, square = 0;
  const float inverse = 1.0f / scale;
  for (int i = 0; i < n; i++) {
    const float k = round_weight(w[i], inverse, zero), weighted = k * importance[i];
    dot = fmaf(weighted, w[i], dot);
    square = fmaf(weighted, k, square);
  }
  const float best = dot / fmaxf(square, 1e-20f);
  return best > 0 ? best : scale;
}

__device__ float group_error(const float *w, const float *importance, int n, GroupScale s) {
  float error = 0;
  const float inverse = 1.0f / s.scale;
  for (int i = 0; i < n; i++) {
    const float difference = fmaf(round_weight(w[i], inverse, s.zero), s.scale, -w[i]);
    error = fmaf(difference * importance[i], difference, error);
  }
  return error;
}

/* The best candidate for w[n], which is in shared memory. low <= 0 and high >= 0 bound the weights. */
__device__ GroupScale search_group(const RoundingSearch &search, const float *w, const float *importance,
                                   int n, float low, float high) {
  const int lane = threadIdx.x % 32, n_candidates = search.n_shifts * search.n_shrinks;
  const float near = rintf(low * -15.0f / fmaxf(high - low, 1e-7f));
  GroupScale best = {1, 0};
  float least = INFINITY;
  int which = n_candidates;
  for (int c = lane; c < n_candidates; c += 32) {
    const float zero = fmaxf(fminf(near + search.shifts[c / search.n_shrinks], 15.0f), 0.0f);
    const float whole = fmaxf(-low / fmaxf(zero, 0.5f), high / fmaxf(15.0f - zero, 0.5f));
    float scale = fmaxf(whole * search.shrinks[c % search.n_shrinks], 0x1p-24f);
    if (search.fits) scale = fit_scale(w, importance, n, scale, zero);
    scale = round_to_f16(scale);
    const float error = group_error(w, importance, n, {scale, zero});
    if (error < least) least = error, best = {scale, zero}, which = c;
  }
  for (int step = 16; step > 0; step /= 2) {
    const float error = __shfl_xor_sync(kAll, least, step), scale = __shfl_xor_sync(kAll, best.scale, step),
                zero = __shfl_xor_sync(kAll, best.zero, step);
    const int other = __shfl_xor_sync(kAll, which, step);
    if (error < least || (error == least && other < which))
      least = error, best = {scale, zero}, which = other;
  }
  return best;
}

/* Rounds the warp's group (round_group(), cpu/kernels.h): weights one after another if u is given, all at
 * once if it is NULL. w: on entry the lane's weights, on return their errors. If u is given, each error is
 * divided by u[j][j]. */
template <int kSlots>
__device__ void round_group(float (&w)[kSlots], int n, const float *u, GroupScale s, float (&codes)[kSlots]) {
  const int lane = threadIdx.x % 32;
  const float inverse = 1.0f / s.scale;
  if (!u) {
#pragma unroll
    for (int t = 0; t < kSlots; t++) {
      const float k = round_weight(w[t], inverse, s.zero);
      codes[t] = k + s.zero;
      w[t] = w[t] - k * s.scale;
    }
    return;
  }
#pragma unroll
  for (int slot = 0; slot < kSlots; slot++)
    for (int j = 32 * slot; j < min(n, 32 * (slot + 1)); j++) {
      const float own = __shfl_sync(kAll, w[slot], j % 32), k = round_weight(own, inverse, s.zero);
      const float *row = u + (size_t)j * n;
      const float error = (own - k * s.scale) / row[j];
#pragma unroll
      for (int t = slot; t < kSlots; t++)
        if (lane + 32 * t > j && lane + 32 * t < n) w[t] = fmaf(-row[lane + 32 * t], error, w[t]);
      if (lane == j % 32) w[slot] = error, codes[slot] = k + s.zero;
    }
}

template <int kSlots> __global__ void __launch_bounds__(32 * kWarps) round_groups(RoundingGroups g) {
  __shared__ float weights[kWarps * ROUNDING_MOST_GROUP], importance[ROUNDING_MOST_GROUP];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, o = blockIdx.x * kWarps + warp;
  const size_t at = (size_t)blockIdx.y * g.group;
  for (int i = threadIdx.x; i < g.group; i += 32 * kWarps) importance[i] = g.importance[at + i];
  __syncthreads();
  if (o >= g.n_out) return;
  float w[kSlots], codes[kSlots], low = 0, high = 0, *own = weights + warp * ROUNDING_MOST_GROUP;
#pragma unroll
  for (int t = 0; t < kSlots; t++) {
    const int i = lane + 32 * t;
    w[t] = i < g.group ? g.w[o * g.stride + at + i] : 0;
    if (g.factors && i < g.group) w[t] *= g.factors[at + i];
    if (i < g.group) own[i] = w[t];
    low = fminf(w[t], low), high = fmaxf(w[t], high);
  }
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) {
    low = fminf(low, __shfl_xor_sync(kAll, low, step));
    high = fmaxf(high, __shfl_xor_sync(kAll, high, step));
  }
  const GroupScale s = search_group(g.search, own, importance, g.group, low, high);
  round_group<kSlots>(w, g.group, g.u, s, codes);
#pragma unroll
  for (int t = 0; t < kSlots; t++) {
    const int i = lane + 32 * t;
    if (i >= g.group) continue;
    if (g.codes) g.codes[o * g.stride + at + i] = (uint8_t)codes[t];
    if (g.inverse) w[t] *= g.inverse[at + i];
    g.errors[o * g.errors_stride + at + i] = g.u ? -w[t] : w[t];
  }
  if (g.codes && lane == 0) {
    g.scales[blockIdx.y * g.row + o] = s.scale;
    g.zeros[blockIdx.y * g.row + o] = s.zero;
  }
}

template <int kSlots>
__global__ void __launch_bounds__(32 * kWarps)
    move_groups(RoundingLevels l, int g, const float *h, const float *slopes, float *changes) {
  const int lane = threadIdx.x % 32, o = blockIdx.x * kWarps + threadIdx.x / 32;
  if (o >= l.n_out) return;
  const size_t at = (size_t)g * l.group;
  const float scale = l.scales[g * l.row + o], zero = l.zeros[g * l.row + o], inverse = 1.0f / scale;
  float levels[kSlots], slope[kSlots], change[kSlots];
#pragma unroll
  for (int t = 0; t < kSlots; t++) {
    const int i = lane + 32 * t;
    const size_t place = (size_t)o * l.n_in + at + i;
    levels[t] = i < l.group ? l.levels[place] : 0;
    slope[t] = i < l.group ? slopes[place] : 0;
  }
#pragma unroll
  for (int slot = 0; slot < kSlots; slot++)
    for (int j = 32 * slot; j < min(l.group, 32 * (slot + 1)); j++) {
      const float *row = h + (at + j) * l.n_in + at;
      const float own = __shfl_sync(kAll, levels[slot], j % 32),
                  best = own - __shfl_sync(kAll, slope[slot], j % 32) * inverse / row[j],
                  moved = rintf(fminf(fmaxf(best, -zero), 15.0f - zero)), grown = (moved - own) * scale;
#pragma unroll
      for (int t = 0; t < kSlots; t++)
        if (lane + 32 * t < l.group) slope[t] = fmaf(row[lane + 32 * t], grown, slope[t]);
      if (lane == j % 32) levels[slot] = moved, change[slot] = grown;
    }
#pragma unroll
  for (int t = 0; t < kSlots; t++) {
    const int i = lane + 32 * t;
    if (i >= l.group) continue;
    l.levels[(size_t)o * l.n_in + at + i] = levels[t];
    changes[(size_t)o * l.group + i] = change[t];
  }
}

/* --- levels: blockIdx.y is the output */

__device__ __forceinline__ size_t scale_place(const RoundingLevels &l, int o, int i) {
  return (size_t)(i / l.group) * l.row + o;
}

__global__ void take_levels(RoundingLevels l, const uint8_t *codes) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y;
  const size_t at = (size_t)o * l.n_in + i;
  if (i < l.n_in) l.levels[at] = (float)codes[at] - l.zeros[scale_place(l, o, i)];
}

__global__ void put_levels(RoundingLevels l, uint8_t *codes) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y;
  const size_t at = (size_t)o * l.n_in + i;
  if (i < l.n_in) codes[at] = (uint8_t)(l.levels[at] + l.zeros[scale_place(l, o, i)]);
}

__global__ void take_differences(RoundingLevels l, const float *w, float *d) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y;
  const size_t at = (size_t)o * l.n_in + i;
  if (i < l.n_in) d[at] = l.levels[at] * l.scales[scale_place(l, o, i)] - w[at];
}

dim3 each_level(const RoundingLevels *l) {
  return dim3(ceil_div(l->n_in, 256), l->n_out);
}

} // namespace

Status rounding_groups(const RoundingGroups *g, cudaStream_t stream, Error *err) {
  const dim3 grid(ceil_div(g->n_out, kWarps), g->n_groups);
  const auto kernel = g->group <= 32   ? round_groups<1>
                      : g->group == 64 ? round_groups<2>
                                       : round_groups<kMostSlots>;
  return launch(kernel, grid, 32 * kWarps, 0, stream, false, "groups of weights", err, *g);
}

Status rounding_move(const RoundingLevels *l, int g, const float *h, const float *slopes, float *changes,
                     cudaStream_t stream, Error *err) {
  const auto kernel = l->group <= 32   ? move_groups<1>
                      : l->group == 64 ? move_groups<2>
                                       : move_groups<kMostSlots>;
  return launch(kernel, ceil_div(l->n_out, kWarps), 32 * kWarps, 0, stream, false, "codes of weights", err,
                *l, g, h, slopes, changes);
}

Status rounding_take_levels(const RoundingLevels *l, const uint8_t *codes, cudaStream_t stream, Error *err) {
  return launch(take_levels, each_level(l), 256, 0, stream, false, "levels", err, *l, codes);
}

Status rounding_put_levels(const RoundingLevels *l, uint8_t *codes, cudaStream_t stream, Error *err) {
  return launch(put_levels, each_level(l), 256, 0, stream, false, "codes", err, *l, codes);
}

Status rounding_differences(const RoundingLevels *l, const float *w, float *d, cudaStream_t stream,
                            Error *err) {
  return launch(take_differences, each_level(l), 256, 0, stream, false, "differences", err, *l, w, d);
}
