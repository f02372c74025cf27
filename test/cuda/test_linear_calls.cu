/* test_linear_calls.cu - linear.h apart from the matmul: layouts at the ends of their sizes, calls that are
 * refused and their messages, and the forms in which checkpoints store zero points and scales.
 *
 * Weights are compared for equality. Needs a GPU; prints one line a failing case and `N passed, N failed`. */
#include <cmath>
#include <string.h>
#include <vector>

#include "cuda/kernels/linear/random_weights.h"
#include "test/cuda/random_linear.cuh"

static int passed, failed;
static cudaStream_t stream;

/* Expects a message that contains `says`, or success if says is NULL. */
static void expect_said(Status status, const char *says, const char *what) {
  const bool good = says ? status != STATUS_OK && strstr(error.text, says) : status == STATUS_OK;
  good ? passed++ : failed++;
  if (good) return;
  printf("FAIL %s: %s, expected %s\n", what, status ? error.text : "taken", says ? says : "that it is taken");
}

/* Each limit of a layout at its last size, and past it. */
static void check_layouts(void) {
  const struct {
    WeightType type;
    int n_in, n_out, group;
    bool interleaved;
    const char *says;
  } cases[] = {
      {WEIGHT_F16, 0, 8, 0, false, "a matrix of 0 inputs by 8 outputs"},
      {WEIGHT_F16, 8, 0, 0, false, "a matrix of 8 inputs by 0 outputs"},
      {WEIGHT_F16, 1 << 24, 1 << 24, 0, false, NULL},
      {WEIGHT_F16, (1 << 24) + 1, 8, 0, false, "a matrix of 16777217 inputs"},
      {WEIGHT_F16, 8, (1 << 24) + 1, 0, false, "by 16777217 outputs"},
      {WEIGHT_AWQ4, 192, 64, 80, false, "192 inputs do not divide into groups of 80"},
      {WEIGHT_AWQ8, 192, 64, 0, false, "192 inputs do not divide into groups of 0"},
      {WEIGHT_AWQ4, 192, 64, 1, false, "groups of 1 input, expected 2 or more"},
      {WEIGHT_FP8, 192, 64, 1, false, "groups of 1 input, expected 2 or more"},
      {WEIGHT_AWQ8, 192, 64, 2, false, NULL},
      {WEIGHT_AWQ4, 1, 8, 1, false, NULL},
      {WEIGHT_AWQ4, 65408, 8, 128, false, NULL},
      {WEIGHT_AWQ4, 65536, 8, 128, false, "65536 inputs, expected at most 65408"},
      {WEIGHT_INT8, 65408, 8, 0, false, NULL},
      {WEIGHT_INT8, 65409, 8, 0, false, "65409 inputs, expected at most 65408"},
      {WEIGHT_F32, 65409, 8, 0, false, NULL},
      {WEIGHT_INT8, 64, 8388609, 0, false, NULL},
      {WEIGHT_F16, 64, 8388609, 0, false, NULL},
      {WEIGHT_AWQ4, 64, 12, 64, false, "12 outputs are not a multiple of 8"},
      {WEIGHT_AWQ8, 64, 24, 64, true, "24 outputs are not a multiple of 16"},
      {WEIGHT_F16, 64, 12, 0, false, NULL},
      {WEIGHT_FP4, 64, 12, 16, false, NULL},
      {WEIGHT_FP4, 80, 12, 32, false, "80 inputs do not divide into groups of 32"},
      {WEIGHT_FP4, 96, 16, 24, false, "FP4 in groups of 24, expected 16 or 32"},
      {WEIGHT_FP4, 64, 24, 16, true, "24 outputs are not a multiple of 16"},
      {WEIGHT_FP8, 77, 21, 48, false, NULL},
      {WEIGHT_FP8, 64, 8, 0, false, "64 inputs do not divide into groups of 0"},
      {WEIGHT_FP8, 65536, 8, 128, false, "65536 inputs, expected at most 65408"},
      {WEIGHT_F16, 64, 24, 0, true, "24 outputs are not a multiple of 16"},
      {WEIGHT_INT8, 64, 21, 0, false, NULL},
  };
  for (auto c : cases) {
    DeviceLinear w;
    size_t bytes;
    expect_said(
        linear_lay_out(&w, "layout", c.type, c.n_in, c.n_out, c.group, c.interleaved, false, &bytes, &error),
        c.says, "a layout");
  }
}

/* A context without preparation, outputs that do not suit their matrix, rows past its end; and what is
 * prepared for 40 tokens serves every count up to 40. */
static void check_calls(void) {
  LinearContext *fresh;
  MUST(linear_open(0, stream, &fresh, &error));
  Stored parts[2] = {stored_random(WEIGHT_AWQ4, 128, 24, 64, 3), stored_random(WEIGHT_AWQ4, 128, 24, 64, 4)};
  DeviceLinear stacked, interleaved;
  void *memory[] = {place(&stacked, parts, 2, false, NULL, "stacked", stream),
                    place(&interleaved, parts, 2, true, NULL, "interleaved", stream)};
  __half *x;
  float *y;
  CHECK(cudaMalloc((void **)&x, 40 * 128 * 2));
  CHECK(cudaMalloc((void **)&y, 48 * 128 * 2)); /* 40 tokens of results, or all weights */
  random_activations<<<8, 256, 0, stream>>>(x, 40, 128, 128, 5);
  LinearCall call = {&stacked, x, 128, 40, LINEAR_TO_F32, y, 48, ACT_F16, false, "awq_dequant", 0};
  expect_said(linear_run(fresh, &call, &error), "stacked: not prepared for 40 rows by ", "a first call");
  call.kernel = NULL;
  MUST(linear_prepare(fresh, &stacked, ACT_F16, 40, NULL, &error));
  for (int n : {1, 2, 7, 8, 9, 16, 31, 32, 33, 40}) {
    call.n_tokens = n;
    expect_said(linear_run(fresh, &call, &error), NULL, "a call that was prepared");
  }
  const char *gated = "a gated matmul needs interleaved weights";
  call.output = LINEAR_SWIGLU_F16;
  expect_said(linear_run(fresh, &call, &error), gated, "a gated matmul of stacked weights");
  call.weights = &interleaved, call.output = LINEAR_ADD_F32;
  expect_said(linear_run(fresh, &call, &error), gated, "interleaved weights without a gated matmul");
  call.output = LINEAR_SWIGLU_F16, call.kernel = "dense_rows";
  expect_said(linear_run(fresh, &call, &error), "interleaved: kernel dense_rows never multiplies",
              "a dense kernel");
  CHECK(cudaStreamSynchronize(stream));
  const struct {
    int first, n;
    const char *says;
  } rows[] = {
      {0, 48, NULL},       {32, 16, NULL},          {8, 16, "rows 8 to 24 of 48"}, {32, 17, "rows 32 to 49"},
      {0, 0, "rows 0 to"}, {-16, 16, "rows -16 to"}};
  for (auto c : rows)
    expect_said(linear_dequantise(&stacked, c.first, c.n, false, y, stream, &error), c.says,
                "dequantised rows");
  stacked.type = WEIGHT_F16;
  expect_said(linear_dequantise(&stacked, 0, 16, false, y, stream, &error), "fp16 weights are not quantised",
              "dequantised fp16");
  linear_close(fresh);
  for (Stored &s : parts) stored_free(&s);
  for (void *m : memory) cudaFree(m);
  cudaFree(x);
  cudaFree(y);
}

/* linear_prepare() asks a kernel for its workspace at some counts of tokens only, so more tokens must never
 * need less of it. The shapes are those of models whose sums take several slices. */
static void check_workspace_of_cublas(void) {
  const struct {
    WeightType type;
    int n_in, n_out, group;
  } cases[] = {{WEIGHT_BF16, 2048, 22016, 0},
               {WEIGHT_F16, 4096, 28672, 0},
               {WEIGHT_F32, 2048, 12288, 0},
               {WEIGHT_AWQ8, 1536, 17920, 128}};
  for (auto c : cases) {
    DeviceLinear w;
    size_t bytes, before = 0, falls = 0;
    MUST(linear_lay_out(&w, "gate_up", c.type, c.n_in, c.n_out, c.group, true, false, &bytes, &error));
    for (int n = 1; n <= 4096; n++) {
      const size_t now = cublas_kernel.workspace(&w, n, DeviceLimits{});
      falls += now < before;
      before = now;
    }
    falls ? failed++ : passed++;
    if (falls)
      printf("FAIL %d -> %d: the workspace shrinks %zu times as tokens grow\n", c.n_in, c.n_out, falls);
  }
}

/* 4 bits laid out as they are, or as 8 bits with scales of fp32; zero points given (bytes for 8-bit weights),
 * or left out by the checkpoint: 8, and 128. */
static void check_fills(void) {
  const int n_in = 192, n_out = 40, group = 32, n_groups = n_in / group;
  Stored s = stored_random(WEIGHT_AWQ4, n_in, n_out, group, 21);
  std::vector<uint32_t> words((size_t)n_in * n_out / 8), no_zeros((size_t)n_groups * n_out / 8);
  CHECK(cudaMemcpy(words.data(), s.weights, words.size() * 4, cudaMemcpyDeviceToHost));
  std::vector<__half> ones((size_t)n_groups * n_out, __float2half_rn(1)), half_scales(ones.size());
  std::vector<float> scales;
  std::vector<uint8_t> zeros;
  for (size_t i = 0; i < ones.size(); i++) {
    scales.push_back(0.01f + 0.1f * uniform(22, i)), half_scales[i] = __float2half_rn(scales[i]);
    zeros.push_back((uint8_t)random_bits(23, i));
  }
  void *scales_device, *halves_device, *zeros_device;
  __half *out;
  CHECK(cudaMalloc(&scales_device, scales.size() * 4));
  CHECK(cudaMalloc(&halves_device, scales.size() * 2));
  CHECK(cudaMalloc(&zeros_device, zeros.size()));
  CHECK(cudaMalloc((void **)&out, (size_t)n_in * n_out * 2));
  CHECK(cudaMemcpy(scales_device, scales.data(), scales.size() * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(halves_device, half_scales.data(), scales.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(zeros_device, zeros.data(), zeros.size(), cudaMemcpyHostToDevice));
  for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8})
    for (bool given : {false, true}) {
      if (given && type == WEIGHT_AWQ4) continue; /* stored_random()'s, which all other cases have */
      DeviceLinear w;
      size_t bytes;
      void *memory;
      const LinearPart part = {n_out, 0, 1};
      MUST(linear_lay_out(&w, "fills", type, n_in, n_out, group, false, false, &bytes, &error));
      CHECK(cudaMalloc(&memory, bytes));
      MUST(linear_place(&w, memory, stream, &error));
      for (int first = 0; first < n_in; first += 128)
        MUST(linear_fill_weights(&w, part, first, n_in - first < 128 ? n_in - first : 128, 4,
                                 s.weights + (size_t)first * n_out / 8, stream, &error));
      const void *of_zeros = given ? zeros_device : NULL;
      const bool f32 = type == WEIGHT_AWQ8;
      MUST(linear_fill_groups(&w, part, of_zeros, f32 ? scales_device : halves_device, f32, stream, &error));
      MUST(linear_dequantise(&w, 0, n_out, false, out, stream, &error));
      CHECK(cudaStreamSynchronize(stream));
      std::vector<__half> got((size_t)n_in * n_out);
      CHECK(cudaMemcpy(got.data(), out, got.size() * 2, cudaMemcpyDeviceToHost));
      int wrong = 0;
      for (int o = 0; o < n_out; o++)
        for (int k = 0; k < n_in; k++) {
          const size_t at = (size_t)(k / group) * n_out + o;
          const double q = stored_weight(s, words.data(), no_zeros.data(), ones.data(), k, o),
                       z = given                 ? zeros[at]
                           : type == WEIGHT_AWQ4 ? 8
                                                 : 128;
          const __half want = __float2half_rn((float)(q - z) * __half2float(half_scales[at]));
          wrong += __half2float(got[(size_t)o * n_in + k]) != __half2float(want);
        }
      wrong ? failed++ : passed++;
      if (wrong)
        printf("FAIL %s from 4 bits, zeros %s: %d weights wrong\n", weight_type_name(type),
               given ? "given" : "left out", wrong);
      cudaFree(memory);
    }
  stored_free(&s);
  for (void *p : {scales_device, halves_device, zeros_device, (void *)out}) cudaFree(p);
}

/* Weights of all signs. An output in eight has positive ones alone, a group of each output zeros. */
static float plain_weight(int o, int k) {
  const float v = uniform(11, (uint64_t)o << 20 | (uint64_t)k) - (o % 8 == 3 ? 0 : 0.5f);
  return k / 128 == o % 3 ? 0 : v * 0.1f;
}

/* A weight after rounding to 4 bits, in a group with these limits (src/model/quant/round.c). */
static float rounded_weight(float x, float low, float high) {
  auto code = [](float v) { return v < 0 ? 0 : v > 15 ? 15 : rintf(v); };
  const float scale = __half2float(__float2half_rn(high > low ? (high - low) / 15 : 1)),
              zero = code(-low / scale);
  return __half2float(__float2half_rn((code(x / scale + zero) - zero) * scale));
}

static std::vector<__half> weights_of(const DeviceLinear *w, int first, int n_rows) {
  std::vector<__half> got((size_t)w->n_in * n_rows);
  __half *out;
  CHECK(cudaMalloc((void **)&out, got.size() * 2));
  MUST(linear_dequantise(w, first, n_rows, false, out, stream, &error));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(got.data(), out, got.size() * 2, cudaMemcpyDeviceToHost));
  cudaFree(out);
  return got;
}

static void expect_same(int n_wrong, const char *type, const char *what) {
  n_wrong ? failed++ : passed++;
  if (n_wrong) printf("FAIL %s %s: %d weights wrong\n", type, what, n_wrong);
}

/* Dense matrices rounded to 4 bits, and outputs of one as a matrix of their own. */
static void check_derived(void) {
  const int n_in = 384, n_out = 56;
  for (WeightType type : {WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32}) {
    DeviceLinear dense, rounded;
    size_t bytes;
    void *memory, *made;
    MUST(linear_lay_out(&dense, "dense", type, n_in, n_out, 0, false, false, &bytes, &error));
    CHECK(cudaMalloc(&memory, bytes));
    MUST(linear_place(&dense, memory, stream, &error));
    std::vector<float> values((size_t)n_in * n_out);
    std::vector<unsigned char> stored(values.size() * (type == WEIGHT_F32 ? 4 : 2));
    for (size_t i = 0; i < values.size(); i++) {
      const float v = plain_weight((int)i / n_in, (int)i % n_in);
      const __half half = __float2half_rn(v);
      uint32_t bits;
      memcpy(&bits, &v, 4);
      bits &= 0xffff0000;
      if (type == WEIGHT_F32) memcpy(&stored[4 * i], &v, 4), values[i] = v;
      if (type == WEIGHT_F16) memcpy(&stored[2 * i], &half, 2), values[i] = __half2float(half);
      if (type == WEIGHT_BF16) memcpy(&stored[2 * i], (char *)&bits + 2, 2), memcpy(&values[i], &bits, 4);
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(memory, stored.data(), stored.size(), cudaMemcpyHostToDevice));
    expect_said(linear_can_round(&dense) ? STATUS_OK : STATUS_FAILED, NULL, weight_type_name(type));
    MUST(linear_round(&dense, &rounded, &made, stream, &error));
    const std::vector<__half> got = weights_of(&rounded, 0, n_out);
    int n_wrong = 0;
    for (int o = 0; o < n_out; o++)
      for (int group = 0; group < n_in; group += 128) {
        const float *x = &values[(size_t)o * n_in + group];
        float low = 0, high = 0;
        for (int k = 0; k < 128; k++) low = fminf(low, x[k]), high = fmaxf(high, x[k]);
        for (int k = 0; k < 128; k++)
          n_wrong += __half2float(got[(size_t)o * n_in + group + k]) != rounded_weight(x[k], low, high);
      }
    expect_same(n_wrong, weight_type_name(type), "rounded to 4 bits");
    const DeviceLinear last = linear_outputs_from(&rounded, 32);
    const std::vector<__half> cut = weights_of(&last, 0, last.n_out);
    expect_same(last.n_out == n_out - 32 ? memcmp(cut.data(), &got[(size_t)32 * n_in], cut.size() * 2) != 0
                                         : 1,
                weight_type_name(type), "outputs from 32 on");
    cudaFree(made);
    cudaFree(memory);
  }
}

static void expect_near(double off, double norm, double bound, const char *type, const char *what) {
  const bool good = off <= bound * norm;
  good ? passed++ : failed++;
  if (!good) printf("FAIL %s %s: NMSE %.3g\n", type, what, off / norm);
}

static __global__ void stored_weights(Stored s, double *to) {
  const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < (size_t)s.n_in * s.n_out)
    to[i] = stored_weight(s, s.weights, s.zeros, s.scales, (int)(i % s.n_in), (int)(i / s.n_in));
}

static double dense_number(WeightType type, const unsigned char *at, size_t i) {
  if (type == WEIGHT_F32) return ((const float *)at)[i];
  if (type == WEIGHT_F16) return __half2float(((const __half *)at)[i]);
  const uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

/* Products of heads' own matrices with their parts of x, which lie among other numbers, as y does. Sums of
 * fp16 products in fp32 are rounded once to fp16: 2^-22 / 3 of their square; weights that became fp16, twice
 * with a factor, each as much. */
static void check_heads_of(LinearContext *context, WeightType type, int n_in, int group) {
  const int n_heads = 3, n_out = 40, rows = n_heads * n_out;
  const bool dense = !weight_is_quantised(type);
  const size_t stride = linear_heads_stride(n_in);
  Stored s = {type, n_in, rows, group, nullptr, nullptr, nullptr};
  if (dense) {
    CHECK(cudaMalloc((void **)&s.weights, (size_t)rows * n_in * 4));
    random_dense<<<64, 256, 0, stream>>>(s.weights, type, (size_t)rows * n_in, 31);
  } else {
    s = stored_random(type, n_in, rows, group, 31);
  }
  DeviceLinear w;
  void *memory = place(&w, &s, 1, false, NULL, "heads", stream);
  __half *halves;
  CHECK(cudaMalloc((void **)&halves, rows * stride * 2));
  CHECK(cudaMemsetAsync(halves, 0xff, rows * stride * 2, stream));
  MUST(linear_fill_heads(&w, halves, stream, &error));
  std::vector<__half> got(rows * stride);
  std::vector<double> want((size_t)rows * n_in);
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(got.data(), halves, got.size() * 2, cudaMemcpyDeviceToHost));
  if (dense) {
    std::vector<unsigned char> stored(want.size() * 4);
    CHECK(cudaMemcpy(stored.data(), s.weights, want.size() * (type == WEIGHT_F32 ? 4 : 2),
                     cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < want.size(); i++) want[i] = dense_number(type, stored.data(), i);
  } else {
    double *device;
    CHECK(cudaMalloc((void **)&device, want.size() * 8));
    stored_weights<<<(unsigned)((want.size() + 255) / 256), 256>>>(s, device);
    CHECK(cudaMemcpy(want.data(), device, want.size() * 8, cudaMemcpyDeviceToHost));
    cudaFree(device);
  }
  double off = 0, norm = 0;
  for (int o = 0; o < rows; o++)
    for (size_t k = 0; k < stride; k++) {
      const double v = k < (size_t)n_in ? want[(size_t)o * n_in + k] : 0,
                   d = (double)__half2float(got[o * stride + k]) - v;
      off += d * d, norm += v * v;
    }
  expect_near(off, norm, 2e-7, weight_type_name(type), "heads as fp16");

  const int most = 40, x_step = (int)stride + 8, x_stride = n_heads * x_step + 16, y_step = n_out + 8,
            y_stride = n_heads * y_step;
  __half *x, *y;
  std::vector<__half> x_host((size_t)most * x_stride), y_host((size_t)most * y_stride + 8);
  for (size_t i = 0; i < x_host.size(); i++) {
    const int at = (int)(i % x_stride) % x_step;
    x_host[i] = __float2half_rn(at < n_in ? uniform(7, i) - 0.5f : at < (int)stride ? 0 : NAN);
  }
  CHECK(cudaMalloc((void **)&x, x_host.size() * 2));
  CHECK(cudaMalloc((void **)&y, y_host.size() * 2));
  CHECK(cudaMemcpy(x, x_host.data(), x_host.size() * 2, cudaMemcpyHostToDevice));
  std::vector<__half> invariant;
  for (int n : {1, 2, 3, 7, 8, 9, 16, 17, most, -most, -1, -9}) { /* < 0: LINEAR_INVARIANT */
    const char *kernel = n < 0 ? LINEAR_INVARIANT : NULL;
    n = abs(n);
    CHECK(cudaMemset(y, 0xff, y_host.size() * 2));
    const LinearHeads call = {halves,   n_heads, n_in,  n_out,    (int)stride, x,
                              x_stride, x_step,  y + 8, y_stride, y_step,      n};
    MUST(linear_run_heads(context, &call, kernel, &error));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(y_host.data(), y, y_host.size() * 2, cudaMemcpyDeviceToHost));
    if (kernel && invariant.empty()) invariant = y_host;
    expect_same(kernel && memcmp(&y_host[8], &invariant[8], (size_t)n * y_stride * 2) != 0,
                weight_type_name(type), "bits of heads' results beside fewer tokens");
    double error_of_y = 0, norm_of_y = 0;
    int written = 0;
    for (size_t i = 0; i < y_host.size(); i++) written += !std::isnan(__half2float(y_host[i]));
    for (int t = 0; t < n; t++)
      for (int row = 0; row < rows; row++) {
        const int h = row / n_out;
        double sum = 0;
        for (int k = 0; k < n_in; k++)
          sum += (double)__half2float(got[row * stride + k]) *
                 (double)__half2float(x_host[(size_t)t * x_stride + h * x_step + k]);
        const double d =
            (double)__half2float(y_host[8 + (size_t)t * y_stride + h * y_step + row % n_out]) - sum;
        error_of_y += d * d, norm_of_y += sum * sum;
      }
    expect_near(error_of_y, norm_of_y, 2e-7, weight_type_name(type), "heads times x");
    expect_same(written != n * rows, weight_type_name(type), "numbers beside heads' results");
  }
  for (void *p : {memory, (void *)halves, (void *)x, (void *)y}) cudaFree(p);
  stored_free(&s);
}

static void check_heads(void) {
  LinearContext *context;
  MUST(linear_open(0, stream, &context, &error));
  linear_prepare_heads(context, 40);
  for (WeightType type : {WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32}) check_heads_of(context, type, 20, 0);
  check_heads_of(context, WEIGHT_F16, 520, 0); /* more than eight lanes hold at once */
  check_heads_of(context, WEIGHT_AWQ4, 128, 64);
  check_heads_of(context, WEIGHT_AWQ8, 128, 64);
  check_heads_of(context, WEIGHT_FP8, 128, 128);
  check_heads_of(context, WEIGHT_FP4, 64, 16);
  linear_close(context);
}

/* Random weights in FP8 have none of E4M3's two codes of NaN, which kernels read differently. */
static void check_random_weights(void) {
  const int n_in = 128, n_out = 200;
  Stored s = stored_random(WEIGHT_FP8, n_in, n_out, 128, 5);
  DeviceLinear w;
  void *memory = place(&w, &s, 1, false, NULL, "random", stream), *staging;
  const size_t bytes = random_staging_bytes(&w);
  std::vector<uint8_t> codes((size_t)n_in * n_out);
  CHECK(cudaMalloc(&staging, bytes));
  MUST(random_linear(&w, staging, bytes, 7, stream, &error));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(codes.data(), w.tiles, codes.size(), cudaMemcpyDeviceToHost));
  bool nan = false, largest = false;
  for (uint8_t code : codes) nan |= (code & 0x7f) == 0x7f, largest |= (code & 0x7f) == 0x7e;
  expect_same(nan || !largest, "FP8", "random codes but NaN");
  for (void *p : {memory, staging}) cudaFree(p);
  stored_free(&s);
}

int main(void) {
  CHECK(cudaStreamCreate(&stream));
  check_layouts();
  check_calls();
  check_workspace_of_cublas();
  check_fills();
  check_derived();
  check_heads();
  check_random_weights();
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
