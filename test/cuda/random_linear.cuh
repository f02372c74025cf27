/* random_linear.cuh - random matrices and activations on the device, for test_linear.cu and bench_linear.cu.
 *
 * Everything is a function of (seed, index), so that the host can make the same numbers where it checks. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "cuda/kernels/linear/kernel.cuh"
#include "test/cuda/check.cuh"

/* splitmix64's finaliser, public domain (Vigna). */
__host__ __device__ inline uint32_t random_bits(uint64_t seed, uint64_t i) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + i + 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (uint32_t)((z ^ z >> 31) >> 16);
}

__host__ __device__ inline float uniform(uint64_t seed, uint64_t i) {
  return (float)(random_bits(seed, i) >> 8) * 0x1p-24f;
}

/* Near normal, deviation 1, with every 61st input eight times as large, as real activations have outlier
 * channels. */
__host__ __device__ inline float activation(uint64_t seed, int token, int k) {
  uint64_t i = ((uint64_t)token << 24 | (uint64_t)k) * 4;
  float v = uniform(seed, i) + uniform(seed, i + 1) + uniform(seed, i + 2) + uniform(seed, i + 3) - 2.0f;
  return v * 1.7320508f * (k % 61 == 7 ? 8.0f : 1.0f);
}

static __global__ void random_words(uint32_t *to, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = random_bits(seed, i);
}

/* E4M3's codes of NaN become its largest numbers: the kernels differ in what they make of a NaN. */
static __global__ void replace_nans(uint8_t *codes, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    if ((codes[i] & 0x7f) == 0x7f) codes[i] ^= 1;
}

static __global__ void random_scales(__half *to, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = __float2half_rn(0.002f + 0.02f * uniform(seed, i));
}

static __global__ void random_float_scales(float *to, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = 0.0002f + 0.002f * uniform(seed, i);
}

static __global__ void random_activations(__half *to, int n_tokens, int n_in, int stride, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)n_tokens * stride;
       i += (size_t)gridDim.x * blockDim.x) {
    int token = (int)(i / stride), k = (int)(i % stride);
    to[i] =
        __float2half_rn(k < n_in ? activation(seed, token, k) : NAN); /* what is past n_in must not be used */
  }
}

static __global__ void random_dense(void *to, WeightType type, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    float v = (uniform(seed, i) - 0.5f) * 0.1f;
    if (type == WEIGHT_F32)
      ((float *)to)[i] = v;
    else if (type == WEIGHT_F16)
      ((__half *)to)[i] = __float2half_rn(v);
    else
      ((uint16_t *)to)[i] = (uint16_t)(__float_as_uint(v) >> 16);
  }
}

/* Scales of FP4: any of E4M3 but NaN, or powers of two. */
static __global__ void random_codes(uint8_t *to, size_t n, bool e4m3, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    const uint32_t random = random_bits(seed, i);
    to[i] = (uint8_t)(e4m3 ? random % 0x7f : random % 64 == 0 ? 0 : 95 + random % 25);
  }
}

/* Scales of FP8, which fp16 can hold. */
static __global__ void random_block_scales(float *to, size_t n, uint64_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = __half2float(__float2half_rn((uniform(seed, i) - 0.3f) * 0.02f)) * 0x1p-5f;
}

/* A checkpoint's tensors of one layer on the device, as stored. */
struct Stored {
  WeightType type;
  int n_in, n_out, group;
  /* u32 [n_in][n_out / 8], u8 [n_in][n_out], i8 or FP8 [n_out][n_in], FP4 [n_out][n_in / 2], or the dense
   * matrix */
  uint32_t *weights;
  uint32_t *zeros;
  /* int8 weights: float [n_out]; FP8: float [blocks of outputs][groups]; FP4: u8 [n_out][n_in / group] */
  __half *scales;
};

/* Outputs that share FP8's scales, and those of the first block that are not the layer's; the number by which
 * NVFP4's scales are multiplied. */
constexpr int kStoredBlock = 24, kStoredBlockFirst = 5;
constexpr float kStoredFactor = 0x1.3p-9f;

inline size_t stored_scales(WeightType type, int n_in, int n_out, int group) {
  const int rows = type == WEIGHT_FP8 ? (kStoredBlockFirst + n_out - 1) / kStoredBlock + 1 : n_out;
  return (size_t)((n_in + group - 1) / group) * rows;
}

__host__ __device__ inline double e4m3_number(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double size = exponent ? ldexp(8.0 + fraction, exponent - 10) : ldexp((double)fraction, -9);
  return code & 0x80 ? -size : size;
}

/* Weight (k, o) of a layer in FP8 or FP4. */
__host__ __device__ inline double stored_float(const Stored &s, const uint8_t *weights, const void *scales,
                                               int k, int o) {
  const size_t groups = (size_t)((s.n_in + s.group - 1) / s.group), group = (size_t)(k / s.group);
  if (s.type == WEIGHT_FP8)
    return e4m3_number(weights[(size_t)o * s.n_in + k]) *
           (double)((const float *)scales)[(kStoredBlockFirst + o) / kStoredBlock * groups + group];
  const double numbers[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int code = weights[(size_t)o * (s.n_in / 2) + k / 2] >> (k % 2 ? 4 : 0) & 15,
            scale = ((const uint8_t *)scales)[o * groups + group];
  return (code & 8 ? -1 : 1) * numbers[code & 7] *
         (s.group == 16 ? e4m3_number(scale) * (double)kStoredFactor : ldexp(1.0, scale - 127));
}

/* Weight (k, o) of a stored layer. AutoAWQ's order of nibbles, spelled out on purpose unlike relayout.cu. */
__host__ __device__ inline double stored_weight(const Stored &s, const uint32_t *weights,
                                                const uint32_t *zeros, const __half *scales, int k, int o) {
  size_t at = (size_t)k * s.n_out + o;
  if (s.type == WEIGHT_F32) return ((const float *)weights)[at];
  if (s.type == WEIGHT_F16) return __half2float(((const __half *)weights)[at]);
  if (s.type == WEIGHT_FP4 || s.type == WEIGHT_FP8)
    return stored_float(s, (const uint8_t *)weights, scales, k, o);
  int group = k / s.group, q, z;
  size_t of_group = (size_t)group * s.n_out + o;
  if (s.type == WEIGHT_AWQ8) {
    q = ((const uint8_t *)weights)[at];
    z = ((const uint8_t *)zeros)[of_group];
  } else {
    const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    int nibble = 0;
    while (order[nibble] != o % 8) nibble++;
    q = weights[at / 8] >> (4 * nibble) & 15;
    z = zeros[of_group / 8] >> (4 * nibble) & 15;
  }
  return (q - z) * (double)__half2float(scales[of_group]);
}

inline size_t stored_weight_bytes(WeightType type, size_t weights) {
  if (weight_is_quantised(type)) return weights * (size_t)weight_bits(type) / 8;
  return type == WEIGHT_INT8 ? weights : type == WEIGHT_F32 ? 4 * weights : 2 * weights;
}

inline Stored stored_random(WeightType type, int n_in, int n_out, int group, uint64_t seed) {
  Stored s = {type, n_in, n_out, group, nullptr, nullptr, nullptr};
  size_t bytes = stored_weight_bytes(type, (size_t)n_in * n_out);
  CHECK(cudaMalloc((void **)&s.weights, bytes + 16));
  if (type == WEIGHT_INT8) {
    CHECK(cudaMalloc((void **)&s.scales, (size_t)n_out * 4));
    random_words<<<1024, 256>>>(s.weights, (bytes + 3) / 4, seed);
    random_float_scales<<<64, 256>>>((float *)s.scales, (size_t)n_out, seed + 2);
    CHECK(cudaGetLastError());
    return s;
  }
  if (weight_has_factors(type)) {
    const size_t n = stored_scales(type, n_in, n_out, group);
    CHECK(cudaMalloc((void **)&s.scales, n * 4));
    random_words<<<1024, 256>>>(s.weights, (bytes + 3) / 4, seed);
    if (type == WEIGHT_FP8) {
      replace_nans<<<1024, 256>>>((uint8_t *)s.weights, bytes);
      random_block_scales<<<64, 256>>>((float *)s.scales, n, seed + 2);
    } else
      random_codes<<<64, 256>>>((uint8_t *)s.scales, n, group == 16, seed + 2);
    CHECK(cudaGetLastError());
    return s;
  }
  if (!weight_is_quantised(type)) {
    random_dense<<<1024, 256>>>(s.weights, type, (size_t)n_in * n_out, seed);
    return s;
  }
  size_t groups = (size_t)(n_in / group) * n_out, zero_bytes = type == WEIGHT_AWQ4 ? groups / 2 : groups;
  CHECK(cudaMalloc((void **)&s.zeros, zero_bytes + 16));
  CHECK(cudaMalloc((void **)&s.scales, groups * 2));
  random_words<<<1024, 256>>>(s.weights, (bytes + 3) / 4, seed);
  random_words<<<1024, 256>>>(s.zeros, (zero_bytes + 3) / 4, seed + 1);
  random_scales<<<1024, 256>>>(s.scales, groups, seed + 2);
  CHECK(cudaGetLastError());
  return s;
}

inline void stored_free(Stored *s) {
  cudaFree(s->weights);
  cudaFree(s->zeros);
  cudaFree(s->scales);
}

/* Lays out a part that is stored by outputs, in two parts, as a loader would. */
inline void place_bytes(const DeviceLinear *w, LinearPart part, const Stored *s, cudaStream_t stream) {
  const int half = s->n_out > 24 ? 24 : s->n_out, rest = s->n_out - half;
  const char *weights = (const char *)s->weights;
  const uint8_t *codes = (const uint8_t *)s->scales;
  const size_t row = s->type == WEIGHT_FP4 ? (size_t)s->n_in / 2 : (size_t)s->n_in;
  MUST(linear_fill_bytes(w, part, 0, half, weights, stream, &error));
  if (rest) MUST(linear_fill_bytes(w, part, half, rest, weights + half * row, stream, &error));
  if (s->type == WEIGHT_INT8)
    MUST(linear_fill_floats(w, part, w->scales, (const float *)s->scales, stream, &error));
  if (s->type == WEIGHT_FP8)
    MUST(linear_fill_fp8_scales(w, part, (const float *)s->scales, kStoredBlock, kStoredBlockFirst, stream,
                                &error));
  if (s->type != WEIGHT_FP4) return;
  MUST(linear_fill_fp4_scales(w, part, 0, half, codes, s->group, kStoredFactor, stream, &error));
  if (rest)
    MUST(linear_fill_fp4_scales(w, part, half, rest, codes + half * (s->n_in / s->group), s->group,
                                kStoredFactor, stream, &error));
}

/* Fills a matrix that has been placed. bias: fp32 of all parts, one after another, or NULL. */
inline void fill_parts(const DeviceLinear *w, const Stored *parts, int n_parts, const float *bias,
                       cudaStream_t stream) {
  for (int i = 0, rows = 0; i < n_parts; rows += parts[i++].n_out) {
    const Stored *s = &parts[i];
    LinearPart part = {s->n_out, w->interleaved ? i : rows / 8, w->interleaved ? 2 : 1};
    if (weight_has_zeros(s->type)) {
      /* In two parts if there is more than one tile, as a loader would. */
      int half = s->n_in > 128 ? s->n_in / 128 * 64 : s->n_in;
      size_t row = stored_weight_bytes(s->type, (size_t)s->n_out);
      const int bits = weight_bits(s->type);
      MUST(linear_fill_weights(w, part, 0, half, bits, s->weights, stream, &error));
      if (half < s->n_in)
        MUST(linear_fill_weights(w, part, half, s->n_in - half, bits, (char *)s->weights + row * half, stream,
                                 &error));
      MUST(linear_fill_groups(w, part, s->zeros, s->scales, false, stream, &error));
    } else if (s->type == WEIGHT_INT8 || weight_has_factors(s->type)) {
      place_bytes(w, part, s, stream);
    } else {
      MUST(linear_fill_dense(w, part, 0, s->n_out, s->weights, stream, &error));
    }
    if (bias) MUST(linear_fill_floats(w, part, w->bias, bias + rows, stream, &error));
  }
}

/* Lays parts out as one matrix; returns the memory to free. */
inline void *place(DeviceLinear *w, const Stored *parts, int n_parts, bool interleaved, const float *bias,
                   const char *name, cudaStream_t stream) {
  int n_out = 0;
  for (int i = 0; i < n_parts; i++) n_out += parts[i].n_out;
  size_t bytes;
  void *memory;
  MUST(linear_lay_out(w, name, parts[0].type, parts[0].n_in, n_out,
                      weight_is_quantised(parts[0].type) ? parts[0].group : 0, interleaved, bias != NULL,
                      &bytes, &error));
  CHECK(cudaMalloc(&memory, bytes));
  MUST(linear_place(w, memory, stream, &error));
  fill_parts(w, parts, n_parts, bias, stream);
  return memory;
}

/* Gives a matrix of 4 bits its rotated copy, if it can have one. Returns the memory to free, or NULL. */
inline void *rotate(DeviceLinear *w, cudaStream_t stream) {
  const size_t bytes = linear_rotated_bytes(w, "int8_bytes"), staging_bytes = (size_t)48 * w->n_in * 2;
  void *memory = NULL, *staging;
  if (bytes == 0) return NULL;
  CHECK(cudaMalloc(&memory, bytes));
  CHECK(cudaMalloc(&staging, staging_bytes));
  MUST(linear_rotate(w, memory, staging, staging_bytes, stream, &error));
  CHECK(cudaStreamSynchronize(stream));
  cudaFree(staging);
  return memory;
}

/* Every kernel there is: the table's, then the reference forms. */
inline std::vector<LinearEntry> every_entry() {
  std::vector<LinearEntry> entries;
  for (int i = 0; linear_entry(i); i++) entries.push_back(*linear_entry(i));
  return entries;
}
