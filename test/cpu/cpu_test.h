/* cpu_test.h - what the tests of src/cpu share: seeded numbers, matrices and their exact values. */
#pragma once

#include <float.h>
#include <math.h>

#include "base/half.h"
#include "cpu/kernels.h"
#include "test/unit.h"

#define EPSILON 0x1p-24 /* what one fp32 operation may lose, relative */

static inline uint32_t next_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 32);
}

/* In [-1, 1). */
static inline float next_float(uint64_t *seed) {
  return (float)(next_random(seed) >> 8) * 0x1p-23f - 1;
}

static inline void *need(size_t n, size_t size) {
  void *memory = calloc(n ? n : 1, size);
  assert_non_null(memory);
  return memory;
}

/* A copy of n bytes that begins one byte off any alignment and ends where its memory does, as a mapped file
 * may; *owner is to be freed. */
static inline void *misaligned(const void *bytes, size_t n, void **owner) {
  uint8_t *memory = need(n + 1, 1);
  memcpy(memory + 1, bytes, n);
  *owner = memory;
  return memory + 1;
}

/* A matrix, its memory and its values. */
typedef struct {
  Linear linear;
  void *owners[4];
  double *weights; /* [n_out][n_in] */
  double shift;    /* the largest zero point times scale whose product fp32 rounds; 0: all are exact */
} TestLinear;

static inline void test_linear_free(TestLinear *t) {
  for (int i = 0; i < 4; i++) free(t->owners[i]);
  free(t->weights);
}

static inline TestLinear test_awq(int n_in, int n_out, int group, uint64_t seed) {
  static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* model.h */
  TestLinear t = {
      .linear = {
          .kind = LINEAR_AWQ, .n_in = n_in, .n_out = n_out, .bits = 4, .group = group, .name = "test"}};
  size_t words = (size_t)n_in * (size_t)n_out / 8, groups = (size_t)(n_in / group), row = (size_t)n_out / 8;
  uint32_t *qweight = need(words, 4), *qzeros = need(groups * row, 4);
  uint16_t *scales = need(groups * (size_t)n_out, 2);
  for (size_t i = 0; i < words; i++) qweight[i] = next_random(&seed);
  for (size_t i = 0; i < groups * row; i++) qzeros[i] = next_random(&seed);
  for (size_t i = 0; i < groups * (size_t)n_out; i++) scales[i] = float_to_f16(next_float(&seed) * 0.02f);
  scales[0] = 0x0001; /* a subnormal one */
  t.weights = need((size_t)n_in * (size_t)n_out, sizeof *t.weights);
  for (int i = 0; i < n_in; i++) {
    for (int o = 0; o < n_out; o++) {
      int nibble = 0;
      while (order[nibble] != o % 8) nibble++;
      size_t g = (size_t)(i / group), word = (size_t)(o / 8);
      int q = qweight[(size_t)i * row + word] >> 4 * nibble & 15,
          z = qzeros[g * row + word] >> 4 * nibble & 15;
      t.weights[(size_t)o * (size_t)n_in + (size_t)i] =
          (q - z) * (double)f16_to_float(scales[g * (size_t)n_out + (size_t)o]);
    }
  }
  t.linear.qweight = misaligned(qweight, words * 4, &t.owners[0]);
  t.linear.qzeros = misaligned(qzeros, groups * row * 4, &t.owners[1]);
  t.linear.scales = misaligned(scales, groups * (size_t)n_out * 2, &t.owners[2]);
  free(qweight);
  free(qzeros);
  free(scales);
  return t;
}

/* LINEAR_GROUPED: fp32 scales of all their bits, zero points of a byte, also with 4 bits. */
static inline TestLinear test_grouped(int bits, int n_in, int n_out, int group, uint64_t seed) {
  static const int nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* model.h, the other way */
  TestLinear t = {.linear = {.kind = LINEAR_GROUPED,
                             .bits = bits,
                             .n_in = n_in,
                             .n_out = n_out,
                             .group = group,
                             .name = "test"}};
  size_t in = (size_t)n_in, out = (size_t)n_out, groups = (size_t)(n_in / group),
         row = out * (size_t)bits / 8;
  uint8_t *codes = need(in * row, 1), *zeros = need(groups * out, 1);
  float *scales = need(groups * out, sizeof *scales);
  for (size_t i = 0; i < in * row; i++) codes[i] = (uint8_t)next_random(&seed);
  for (size_t i = 0; i < groups * out; i++) {
    zeros[i] = (uint8_t)(next_random(&seed) % (bits == 4 ? 17 : 256));
    scales[i] = next_float(&seed) * (bits == 4 ? 0.02f : 0.001f);
    t.shift = fmax(t.shift, zeros[i] * fabs((double)scales[i]));
  }
  t.weights = need(in * out, sizeof *t.weights);
  for (size_t i = 0; i < in; i++) {
    for (size_t o = 0; o < out; o++) {
      size_t at = i / (size_t)group * out + o;
      int q = codes[i * row + o * (size_t)bits / 8];
      if (bits == 4)
        q = codes[i * row + o / 8 * 4 + (size_t)nibble_of[o % 8] / 2] >> nibble_of[o % 8] % 2 * 4 & 15;
      t.weights[o * in + i] = (q - zeros[at]) * (double)scales[at];
    }
  }
  t.linear.qweight = misaligned(codes, in * row, &t.owners[0]);
  t.linear.qzeros = misaligned(zeros, groups * out, &t.owners[1]);
  t.linear.scales = misaligned(scales, groups * out * sizeof *scales, &t.owners[2]);
  free(codes);
  free(zeros);
  free(scales);
  return t;
}

static inline TestLinear test_dense(int n_in, int n_out, Dtype dtype, uint64_t seed) {
  TestLinear t = {
      .linear = {.kind = LINEAR_DENSE, .n_in = n_in, .n_out = n_out, .dtype = dtype, .name = "test"}};
  size_t n = (size_t)n_in * (size_t)n_out;
  uint16_t *halves = need(n, 2);
  float *floats = need(n, 4);
  t.weights = need(n, sizeof *t.weights);
  for (size_t i = 0; i < n; i++) {
    float value = next_float(&seed) * 0.1f;
    halves[i] = dtype == DTYPE_F16 ? float_to_f16(value) : (uint16_t)(float_bits(value) >> 16);
    floats[i] = value;
    t.weights[i] = dtype == DTYPE_F32   ? (double)value
                   : dtype == DTYPE_F16 ? (double)f16_to_float(halves[i])
                                        : (double)bf16_to_float(halves[i]);
  }
  t.linear.weight =
      dtype == DTYPE_F32 ? misaligned(floats, n * 4, &t.owners[0]) : misaligned(halves, n * 2, &t.owners[0]);
  free(halves);
  free(floats);
  return t;
}

/* LINEAR_INT8; its weights meet inputs as test_round() leaves them. */
static inline TestLinear test_int8(int n_in, int n_out, uint64_t seed) {
  TestLinear t = {.linear = {.kind = LINEAR_INT8, .bits = 8, .n_in = n_in, .n_out = n_out, .name = "test"}};
  const size_t in = (size_t)n_in, out = (size_t)n_out;
  int8_t *codes = need(in * out, 1);
  float *scales = need(out, sizeof *scales);
  t.weights = need(in * out, sizeof *t.weights);
  for (size_t o = 0; o < out; o++) {
    scales[o] = next_float(&seed) * 0.001f;
    for (size_t i = 0; i < in; i++) {
      codes[o * in + i] = (int8_t)(next_random(&seed) >> 8);
      t.weights[o * in + i] = codes[o * in + i] * (double)scales[o];
    }
  }
  t.linear.weight = misaligned(codes, in * out, &t.owners[0]);
  t.linear.scales = misaligned(scales, out * sizeof *scales, &t.owners[1]);
  free(codes);
  free(scales);
  return t;
}

/* LINEAR_FP8 with every code but NaN. The first `first` outputs of the first block belong to another layer. A
 * weight is the product of code and scale, rounded to fp32. */
static inline TestLinear test_fp8(int n_in, int n_out, int block, int group, int first, uint64_t seed) {
  TestLinear t = {.linear = {.kind = LINEAR_FP8,
                             .bits = 8,
                             .n_in = n_in,
                             .n_out = n_out,
                             .block = block,
                             .block_first = first,
                             .group = group,
                             .name = "test"}};
  const size_t in = (size_t)n_in, out = (size_t)n_out, groups = (in - 1) / (size_t)group + 1,
               blocks = ((size_t)first + out - 1) / (size_t)block + 1;
  uint8_t *codes = need(in * out, 1);
  float *scales = need(blocks * groups, sizeof *scales);
  t.weights = need(in * out, sizeof *t.weights);
  for (size_t i = 0; i < blocks * groups; i++) scales[i] = next_float(&seed) * 0.001f;
  for (size_t o = 0; o < out; o++) {
    for (size_t i = 0; i < in; i++) {
      uint8_t code = (uint8_t)(next_random(&seed) >> 8);
      if ((code & 0x7f) == 0x7f) code = 0x80;
      codes[o * in + i] = code;
      const float scale = scales[((size_t)first + o) / (size_t)block * groups + i / (size_t)group];
      t.weights[o * in + i] = (double)(e4m3_to_float(code) * scale);
    }
  }
  t.linear.weight = misaligned(codes, in * out, &t.owners[0]);
  t.linear.scales = misaligned(scales, blocks * groups * sizeof *scales, &t.owners[1]);
  free(codes);
  free(scales);
  return t;
}

/* LINEAR_FP4; each of the 256 codes of a scale stands for another number. */
static inline TestLinear test_fp4(int n_in, int n_out, int group, uint64_t seed) {
  static const float sizes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  TestLinear t = {
      .linear = {
          .kind = LINEAR_FP4, .bits = 4, .n_in = n_in, .n_out = n_out, .group = group, .name = "test"}};
  const size_t in = (size_t)n_in, out = (size_t)n_out, groups = in / (size_t)group;
  uint8_t *codes = need(in * out / 2, 1), *scales = need(groups * out, 1);
  float *values = need(256, sizeof *values);
  t.weights = need(in * out, sizeof *t.weights);
  for (size_t i = 0; i < in * out / 2; i++) codes[i] = (uint8_t)(next_random(&seed) >> 8);
  for (size_t i = 0; i < groups * out; i++) scales[i] = (uint8_t)(next_random(&seed) >> 8);
  for (int i = 0; i < 256; i++) values[i] = next_float(&seed);
  for (size_t o = 0; o < out; o++) {
    for (size_t i = 0; i < in; i++) {
      const int code = codes[(o * in + i) / 2] >> i % 2 * 4 & 15;
      const float number = code & 8 ? -sizes[code & 7] : sizes[code];
      t.weights[o * in + i] = (double)(number * values[scales[o * groups + i / (size_t)group]]);
    }
  }
  t.linear.weight = misaligned(codes, in * out / 2, &t.owners[0]);
  t.linear.scales = misaligned(scales, groups * out, &t.owners[1]);
  t.linear.scale_values = t.owners[2] = values;
  free(codes);
  free(scales);
  return t;
}

/* q = x / scale to the nearest whole number, ties to even, in -128 .. 127, in fp32 as compressed-tensors does
 * it; the scale. */
static inline float test_round(const float *x, int n, int16_t *out) {
  float largest = 0;
  for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
  float scale = largest / 127.5f;
  if (scale == 0) scale = FLT_EPSILON;
  for (int i = 0; i < n; i++) out[i] = (int16_t)fmaxf(-128, fminf(127, rintf(x[i] / scale)));
  return scale;
}

/* Rows of numbers, each followed by zeros up to a multiple of ALIGN_FLOATS. */
static inline float *test_rows(int n_rows, int n, size_t *stride, uint64_t seed) {
  *stride = ((size_t)n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
  float *rows = need((size_t)n_rows * *stride, sizeof *rows);
  for (int r = 0; r < n_rows; r++) {
    for (int i = 0; i < n; i++) rows[(size_t)r * *stride + (size_t)i] = next_float(&seed);
  }
  return rows;
}

/* Bytes of the recurrent states of all layers. */
static inline size_t all_recurrent_bytes(const ModelConfig *config) {
  size_t bytes = 0;
  for (int layer = 0; layer < config->n_layers; layer++) bytes += cpu_backend.recurrent_bytes(config, layer);
  return bytes;
}

/* Moves a kept state to the host and back, layer by layer; in between the slot has the current state. */
static inline void through_the_host(BackendState *state, const ModelConfig *config, int slot) {
  unsigned char *host = need(1, all_recurrent_bytes(config) + 1);
  size_t at = 0;
  for (int layer = 0; layer < config->n_layers; layer++) {
    assert_int_equal(cpu_backend.state_copy(state, TO_HOST, slot, layer, host + at, NULL), STATUS_OK);
    at += cpu_backend.recurrent_bytes(config, layer);
  }
  assert_int_equal(cpu_backend.state_save(state, slot, NULL), STATUS_OK);
  for (int layer = config->n_layers; layer-- > 0;) {
    at -= cpu_backend.recurrent_bytes(config, layer);
    assert_int_equal(cpu_backend.state_copy(state, FROM_HOST, slot, layer, host + at, NULL), STATUS_OK);
  }
  assert_int_equal(at, 0);
  free(host);
}
