/* random_weights.cu - see random_weights.h. */
#include <algorithm>
#include <cuda_bf16.h>
#include <math.h>

#include "cuda/kernels/linear/random_weights.h"
#include "cuda/kernels/ptx/launch.cuh"

namespace {

constexpr int kThreads = 256, kBlocks = 2048, kStep = kBlocks * kThreads; /* of grid-stride loops */
constexpr size_t kMostRows = 1 << 20;                                     /* rows made at once */

/* splitmix64 (Vigna, public domain) at its i-th step. */
__device__ __forceinline__ uint64_t random_bits(uint64_t seed, size_t i) {
  uint64_t z = seed * 0xd1342543de82ef95u + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* E4M3's codes of NaN, 0x7f and 0xff, lose their last bit and become 448 and -448. */
__device__ __forceinline__ uint64_t without_nans(uint64_t codes) {
  const uint64_t past = (codes & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
  return codes & ~(past >> 7 & 0x0101010101010101u);
}

__global__ void fill_words(uint64_t *to, size_t n, bool e4m3, uint64_t seed) {
  for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += kStep)
    to[i] = e4m3 ? without_nans(random_bits(seed, i)) : random_bits(seed, i);
}

__global__ void fill_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed) {
  for (size_t i = (size_t)blockIdx.x * kThreads + threadIdx.x; i < n; i += kStep) {
    float value = low + (high - low) * (float)(random_bits(seed, i) >> 40) * 0x1p-24f;
    if (type == WEIGHT_F32)
      ((float *)to)[i] = value;
    else if (type == WEIGHT_F16)
      ((__half *)to)[i] = __float2half_rn(value);
    else
      ((__nv_bfloat16 *)to)[i] = __float2bfloat16_rn(value);
  }
}

template <class... Parameters, class... Arguments>
Status run(void (*kernel)(Parameters...), cudaStream_t stream, Error *err, Arguments... arguments) {
  return launch(kernel, dim3(kBlocks), kThreads, 0, stream, false, "random weights", err, arguments...);
}

/* A matrix as a checkpoint would store it, its stacked or interleaved parts as one layer. */
struct Stored {
  bool quantised;                 /* integers of 4 or 8 bits in groups: a row is an input */
  size_t row_bytes;               /* of weights: a row has all outputs if quantised, else all inputs */
  size_t unit;                    /* rows are filled in multiples of this */
  size_t n_groups;                /* quantised: without padding */
  size_t zero_bytes, scale_bytes; /* of all groups, rounded up to 256 */
};

/* True for matrices that linear_fill_bytes() fills. */
bool lies_in_bytes(const DeviceLinear *w) {
  return w->type == WEIGHT_INT8 || weight_has_factors(w->type);
}

Stored stored_of(const DeviceLinear *w) {
  Stored s = {};
  const size_t in = (size_t)w->n_in, out = (size_t)w->n_out;
  s.quantised = weight_has_zeros(w->type);
  s.unit = s.quantised ? 64 : 8;
  if (!s.quantised) {
    s.row_bytes = w->type == WEIGHT_FP4 ? in / 2
                  : lies_in_bytes(w)    ? in
                                        : in * (w->type == WEIGHT_F32 ? 4 : 2);
    return s;
  }
  const size_t bits = (size_t)weight_bits(w->type);
  s.row_bytes = out * bits / 8;
  s.n_groups = w->group >= w->n_in ? 1 : in / (size_t)w->group;
  s.zero_bytes = align_up(s.n_groups * out * bits / 8);
  s.scale_bytes = align_up(s.n_groups * out * 2);
  return s;
}

LinearPart all_rows(const DeviceLinear *w) {
  return LinearPart{w->n_out, 0, 1};
}

/* Dense weights are uniform from -most to most. Their variance is most^2 / 3 = 1 / n_in. */
Status fill_weights(const DeviceLinear *w, const Stored &s, char *staging, size_t staging_bytes,
                    uint64_t seed, cudaStream_t stream, Error *err) {
  const bool bytes = lies_in_bytes(w);
  const float most = sqrtf(3 / (float)w->n_in);
  const int n_rows = s.quantised ? w->n_in : w->n_out;
  const int rows = (int)std::min(staging_bytes / s.row_bytes / s.unit * s.unit, kMostRows);
  for (int first = 0; first < n_rows; first += rows) {
    const int n = std::min(rows, n_rows - first);
    if (s.quantised || bytes)
      TRY(run(fill_words, stream, err, (uint64_t *)staging, ((size_t)n * s.row_bytes + 7) / 8,
              w->type == WEIGHT_FP8, seed + first));
    else
      TRY(random_numbers(staging, w->type, (size_t)n * w->n_in, -most, most, seed + first, stream, err));
    if (s.quantised)
      TRY(linear_fill_weights(w, all_rows(w), first, n, weight_bits(w->type), staging, stream, err));
    else
      TRY((bytes ? linear_fill_bytes : linear_fill_dense)(w, all_rows(w), first, n, staging, stream, err));
  }
  return STATUS_OK;
}

/* Makes scales with which outputs have about the inputs' variance. The variance of q - z with uniform nibbles
 * is 2 (16^2 - 1) / 12 = 42.5, with bytes 10922.5; that of uniform integers from -128 to 127 is 5461.25. */
Status fill_scales(const DeviceLinear *w, const Stored &s, char *staging, uint64_t seed, cudaStream_t stream,
                   Error *err) {
  const float variance = w->type == WEIGHT_AWQ4 ? 42.5f : s.quantised ? 10922.5f : 5461.25f;
  const float scale = 1 / sqrtf(variance * (float)w->n_in), low = 0.9f * scale, high = 1.1f * scale;
  if (!s.quantised) {
    TRY(random_numbers(staging, WEIGHT_F32, (size_t)w->n_out, low, high, ~seed, stream, err));
    return linear_fill_floats(w, all_rows(w), w->scales, (const float *)staging, stream, err);
  }
  void *scales = staging + s.zero_bytes;
  TRY(run(fill_words, stream, err, (uint64_t *)staging, s.zero_bytes / 8, false, ~seed));
  TRY(random_numbers(scales, WEIGHT_F16, s.n_groups * w->n_out, low, high, ~seed + 1, stream, err));
  return linear_fill_groups(w, all_rows(w), staging, scales, false, stream, err);
}

/* FP8: random scales. FP4: scales of 1 (0x38 in E4M3), times a factor for all. The mean square of E2M1's
 * numbers is 8.6. That of E4M3's numbers, with 448 in place of NaN, is 1.15e4. */
Status fill_float_scales(const DeviceLinear *w, char *staging, size_t staging_bytes, uint64_t seed,
                         cudaStream_t stream, Error *err) {
  const float scale = 1 / sqrtf((w->type == WEIGHT_FP4 ? 8.6f : 1.15e4f) * (float)w->n_in);
  if (w->type == WEIGHT_FP8) {
    TRY(random_numbers(staging, WEIGHT_F32, (size_t)w->n_groups, 0.9f * scale, 1.1f * scale, ~seed, stream,
                       err));
    return linear_fill_fp8_scales(w, all_rows(w), (const float *)staging, w->n_out, 0, stream, err);
  }
  const size_t groups = (size_t)(w->n_in / w->group);
  const int rows = (int)std::min(staging_bytes / groups / 8 * 8, kMostRows);
  TRY(cuda_status(cudaMemsetAsync(staging, 0x38, std::min(staging_bytes, (size_t)rows * groups), stream),
                  w->name, err));
  for (int first = 0; first < w->n_out; first += rows)
    TRY(linear_fill_fp4_scales(w, all_rows(w), first, std::min(rows, w->n_out - first),
                               (const uint8_t *)staging, w->group, scale, stream, err));
  return STATUS_OK;
}

} // namespace

Status random_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed,
                      cudaStream_t stream, Error *err) {
  return run(fill_numbers, stream, err, to, type, n, low, high, seed);
}

size_t random_staging_bytes(const DeviceLinear *w) {
  const Stored s = stored_of(w);
  const size_t piece = align_up(s.row_bytes * s.unit);
  const size_t floats = w->has_bias || w->type == WEIGHT_INT8 ? (size_t)w->n_out * 4 : 0;
  const size_t scales = weight_has_factors(w->type) ? align_up((size_t)w->n_groups * 8) : 0;
  return std::max({piece, s.zero_bytes + s.scale_bytes, align_up(floats), scales});
}

Status random_linear(const DeviceLinear *w, void *staging, size_t staging_bytes, uint64_t seed,
                     cudaStream_t stream, Error *err) {
  const Stored s = stored_of(w);
  if (staging_bytes < random_staging_bytes(w))
    return error_set(err, STATUS_FAILED, "%s: %zu bytes are too few to make random weights in", w->name,
                     staging_bytes);
  seed <<= 32; /* each piece of rows adds the number of its first row */
  TRY(fill_weights(w, s, (char *)staging, staging_bytes, seed, stream, err));
  if (weight_has_factors(w->type))
    TRY(fill_float_scales(w, (char *)staging, staging_bytes, seed, stream, err));
  else if (s.quantised || w->type == WEIGHT_INT8)
    TRY(fill_scales(w, s, (char *)staging, seed, stream, err));
  if (!w->has_bias) return STATUS_OK;
  TRY(random_numbers(staging, WEIGHT_F32, (size_t)w->n_out, -0.1f, 0.1f, ~seed + 2, stream, err));
  return linear_fill_floats(w, all_rows(w), w->bias, (const float *)staging, stream, err);
}

/* --- the ceiling of all kernels */

namespace {

constexpr int kReaders = 512, kBlocksPerSm = 2, kInFlight = 8; /* 128 KB of loads in flight per SM */

__device__ __forceinline__ unsigned folded(uint4 v) {
  return v.x ^ v.y ^ v.z ^ v.w;
}

/* READS  n * 16 bytes once, coalesced. */
__global__ void __launch_bounds__(kReaders) read_words(const uint4 *from, size_t n, unsigned *never) {
  const size_t step = (size_t)gridDim.x * kReaders;
  size_t i = (size_t)blockIdx.x * kReaders + threadIdx.x;
  unsigned sum = 0;
  for (; i + (kInFlight - 1) * step < n; i += kInFlight * step) {
    uint4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; j++) v[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < kInFlight; j++) sum ^= folded(v[j]);
  }
  for (; i < n; i += step) sum ^= folded(__ldcs(from + i));
  if (sum == 0x9e3779b9u) *never = sum; /* random data: once in 2^32 threads, and harmless */
}

} // namespace

Status streaming_read(const void *from, size_t bytes, int n_sms, unsigned *never, cudaStream_t stream,
                      Error *err) {
  return launch(read_words, dim3((unsigned)(n_sms * kBlocksPerSm)), kReaders, 0, stream, false, "reading",
                err, (const uint4 *)from, bytes / 16, never);
}
