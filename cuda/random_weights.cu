/* random_weights.cu - see random_weights.h. */
#include <cuda_bf16.h>
#include <math.h>

#include "cuda/launch.cuh"
#include "cuda/random_weights.h"

namespace {

constexpr int kThreads = 256, kBlocks = 2048; /* every kernel strides over the grid */

/* splitmix64 (Vigna, public domain) at its i-th step. */
__device__ __forceinline__ uint64_t random_bits(uint64_t seed, size_t i) {
  uint64_t z = seed * 0xd1342543de82ef95u + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

__device__ __forceinline__ float random_number(uint64_t seed, size_t i, float low, float high) {
  return low + (high - low) * (float)(random_bits(seed, i) >> 40) * 0x1p-24f;
}

__device__ __forceinline__ size_t first_index() {
  return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ size_t index_step() {
  return (size_t)gridDim.x * blockDim.x;
}

__device__ __forceinline__ void store_number(void *to, WeightType type, size_t i, float value) {
  if (type == WEIGHT_F32)
    ((float *)to)[i] = value;
  else if (type == WEIGHT_F16)
    ((__half *)to)[i] = __float2half_rn(value);
  else
    ((__nv_bfloat16 *)to)[i] = __float2bfloat16_rn(value);
}

__global__ void fill_words(uint64_t *to, size_t n, uint64_t seed) {
  for (size_t i = first_index(); i < n; i += index_step()) to[i] = random_bits(seed, i);
}

__global__ void fill_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed) {
  for (size_t i = first_index(); i < n; i += index_step())
    store_number(to, type, i, random_number(seed, i, low, high));
}

/* scales [n_out / 16][n_groups][8] u32, row g below and g + 8 above; those past n_out stay 0. */
__global__ void fill_scales(__half *to, size_t n, int n_groups, int n_out, float low, float high,
                            uint64_t seed) {
  for (size_t i = first_index(); i < n; i += index_step()) {
    size_t tile = i / 16 / (size_t)n_groups;
    size_t row = tile * 16 + i % 16 / 2 + i % 2 * 8;
    to[i] = __float2half_rn(row < (size_t)n_out ? random_number(seed, i, low, high) : 0.0f);
  }
}

/* dense [n_out rounded up to 16][stride]; what is past n_out or n_in stays 0. */
__global__ void fill_dense(void *to, WeightType type, int n_in, int n_out, size_t stride, float most,
                           uint64_t seed) {
  size_t n = (size_t)n_out * stride;
  for (size_t i = first_index(); i < n; i += index_step())
    store_number(to, type, i, i % stride < (size_t)n_in ? random_number(seed, i, -most, most) : 0.0f);
}

template <class... Parameters, class... Arguments>
Status run(void (*kernel)(Parameters...), cudaStream_t stream, Error *err, Arguments... arguments) {
  return launch(kernel, dim3(kBlocks), kThreads, 0, stream, false, "random weights", err, arguments...);
}

} // namespace

Status random_numbers(void *to, WeightType type, size_t n, float low, float high, uint64_t seed,
                      cudaStream_t stream, Error *err) {
  return run(fill_numbers, stream, err, to, type, n, low, high, seed);
}

/* q - z of independent even nibbles has the variance 2 (16^2 - 1) / 12 = 42.5, of bytes likewise 10922.5;
 * even numbers from -a to a have a^2 / 3. */
static Status random_quantised(const DeviceLinear *w, uint64_t seed, cudaStream_t stream, Error *err) {
  const size_t bits = w->type == WEIGHT_AWQ4 ? 4 : 8;
  const size_t tiles_out = (size_t)ceil_div(w->n_out, kTileOut),
               tiles_in = (size_t)ceil_div(w->n_in, kTileIn);
  const size_t groups = tiles_out * kTileOut * (size_t)w->n_groups;
  const float scale = 1 / sqrtf((bits == 4 ? 42.5f : 10922.5f) * (float)w->n_in);
  TRY(run(fill_words, stream, err, (uint64_t *)w->tiles,
          tiles_out * tiles_in * kTileOut * kTileIn * bits / 64, seed));
  /* At least 8 rows of zeros a group: whole words. */
  TRY(run(fill_words, stream, err, (uint64_t *)w->zeros, groups * bits / 64, seed + 1));
  return run(fill_scales, stream, err, (__half *)w->scales, groups, w->n_groups, w->n_out, 0.9f * scale,
             1.1f * scale, seed + 2);
}

Status random_linear(const DeviceLinear *w, uint64_t seed, cudaStream_t stream, Error *err) {
  seed *= 4; /* one for each kind of number in it */
  if (w->type == WEIGHT_AWQ4 || w->type == WEIGHT_AWQ8)
    TRY(random_quantised(w, seed, stream, err));
  else
    TRY(run(fill_dense, stream, err, (void *)w->dense, w->type, w->n_in, w->n_out, w->stride,
            sqrtf(3 / (float)w->n_in), seed));
  if (!w->bias) return STATUS_OK;
  return random_numbers((void *)w->bias, WEIGHT_F32, (size_t)w->n_out, -0.1f, 0.1f, seed + 3, stream, err);
}
