/* rows_beside.cuh - parts of test_linear.cu: rows whose bits do not depend on the rows beside them or on who
 * computes their norm, and some of `few`. Included there, after `context`, wanted(), with() and what makes
 * matrices. */
#pragma once

#include "cuda/kernels/ops/norm_rope.h"

/* The bits of the first or, if n < 0, last |n| rows alone are those that they have among the first of
 * `counts`, the most. */
static void check_rows_beside(const char *kernel, int n_in, int n_out, int group,
                              const std::vector<int> &counts, WeightType type = WEIGHT_AWQ4) {
  Stored s = stored_random(type, n_in, n_out, group, 12);
  const int most = counts[0];
  Operands o = make_operands(&s, 1, most);
  const size_t stride = (size_t)o.y_stride;
  const LinearEntry *chosen;
  std::vector<float> all, y(stride * (size_t)most);
  const bool runs = linear_choice(context, &o.w, ACT_F16, most, kernel, &chosen, &error) == STATUS_OK;
  if (runs) MUST(linear_prepare(context, &o.w, ACT_F16, most, kernel, &error));
  for (int count : counts) {
    if (!runs || !wanted(kernel)) break;
    const int n = abs(count), first = count < 0 ? most - n : 0;
    LinearCall call = {&o.w,
                       o.x + first * o.x_stride,
                       o.x_stride,
                       n,
                       LINEAR_TO_F32,
                       o.y[0],
                       o.y_stride,
                       ACT_F16,
                       false,
                       kernel,
                       0};
    CHECK(cudaMemsetAsync(o.y[0], 0xff, (size_t)n * stride * sizeof(float), stream));
    MUST(linear_run(context, &call, &error));
    CHECK(cudaMemcpyAsync(y.data(), o.y[0], (size_t)n * stride * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (all.empty()) all = y;
    int differ = 0;
    for (int m = 0; m < n; m++)
      differ += memcmp(&y[m * stride], &all[(first + m) * stride], (size_t)n_out * 4) != 0;
    cases_run++;
    if (differ > 0)
      printf("FAIL %s, %s: of %d rows %d differ from those of %d\n", kernel, weight_type_name(type), n,
             differ, most);
    failures += differ > 0;
  }
  stored_free(&s);
  free_operands(&o);
}

/* The same of results that are stored otherwise, in stacked or interleaved parts with biases: of 40 rows the
 * first 7 and the last 20 alone. */
static void check_outputs_beside(WeightType type, LinearOutput output) {
  constexpr int ROWS = 40, IN = 384, OUT = 208;
  const bool gated = output == LINEAR_SWIGLU_F16;
  const int width = gated ? OUT / 2 : OUT;
  Stored parts[2];
  for (int i = 0; i < 2; i++) parts[i] = stored_random(type, IN, OUT / 2, test_group(type), 31 + (uint64_t)i);
  std::vector<float> bias(OUT);
  for (int i = 0; i < OUT; i++) bias[(size_t)i] = uniform(6, (uint64_t)i) - 0.5f;
  float *bias_d, *y;
  __half *x;
  CHECK(cudaMalloc((void **)&bias_d, OUT * 4));
  CHECK(cudaMalloc((void **)&x, ROWS * IN * 2));
  CHECK(cudaMalloc((void **)&y, (size_t)ROWS * width * 4));
  CHECK(cudaMemcpy(bias_d, bias.data(), OUT * 4, cudaMemcpyHostToDevice));
  random_activations<<<64, 256, 0, stream>>>(x, ROWS, IN, IN, 14);
  DeviceLinear w;
  void *memory = place(&w, parts, 2, gated, bias_d, "outputs", stream);
  MUST(linear_prepare(context, &w, ACT_F16, ROWS, LINEAR_INVARIANT, &error));
  const size_t row = (size_t)width * (output == LINEAR_ADD_F32 ? 4 : 2);
  std::vector<unsigned char> all, got(ROWS * row);
  for (int count : {ROWS, 7, -20}) {
    const int n = abs(count), first = count < 0 ? ROWS - n : 0;
    LinearCall call = {&w, x + first * IN, IN, n, output, y, width, ACT_F16, false, LINEAR_INVARIANT, 0};
    CHECK(cudaMemsetAsync(y, 0, n * row, stream)); /* what ADD_F32 adds to */
    MUST(linear_run(context, &call, &error));
    CHECK(cudaMemcpyAsync(got.data(), y, n * row, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (all.empty()) all = got;
    const bool same = memcmp(got.data(), all.data() + first * row, n * row) == 0;
    cases_run++;
    failures += !same;
    if (!same)
      printf("FAIL invariant: %s weights, output %d: %d rows alone have other bits\n", weight_type_name(type),
             (int)output, n);
  }
  for (Stored &part : parts) stored_free(&part);
  for (void *p : {(void *)bias_d, (void *)x, (void *)y, memory}) cudaFree(p);
}

/* LinearCall.norm of int8 kernels: the same bits as after the kernel of the RMSNorm. Rotated rows add their
 * squares in another order, so that one in 2^10 numbers or so is another fp16: an NMSE of 2^-10 2^-22, and of
 * some numbers another byte, which (4 / 127)^2 2^-8 bounds. */
static void check_same_norm(const char *kernel, WeightType type, int n_in, int n_out, int group,
                            int n_tokens) {
  const LinearEntry *chosen;
  if (!wanted(kernel)) return;
  Stored s = stored_random(type, n_in, n_out, group, 22);
  Operands o = make_operands(&s, 1, n_tokens);
  std::vector<float> rows((size_t)(n_tokens + 1) * n_in); /* then the weight */
  for (size_t i = 0; i < rows.size(); i++) rows[i] = activation(23, (int)(i % n_in), (int)(i / n_in));
  std::vector<float> y[2];
  float *from;
  CHECK(cudaMalloc((void **)&from, rows.size() * 4));
  CHECK(cudaMemcpy(from, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  const float *weight = from + (size_t)n_tokens * n_in;
  LinearCall call = {&o.w,     o.x,  o.x_stride, n_tokens, LINEAR_TO_F32, o.y[0], o.y_stride,
                     ACT_INT8, true, kernel,     0};
  for (int i = 0; i < 2 && !linear_choice(context, &o.w, ACT_INT8, n_tokens, call.kernel, &chosen, &error);
       i++) {
    MUST(linear_prepare(context, &o.w, ACT_INT8, n_tokens, call.kernel, &error));
    MUST(ops_rms_norm(from, weight, 1e-6f, n_in, n_tokens, (void *)o.x, o.x_stride, stream, &error));
    CHECK(cudaMemsetAsync(o.y[0], 0xff, (size_t)n_tokens * o.y_stride * 4, stream));
    if (i == 1) call.norm = {from, weight, 1e-6f}, call.x = NULL;
    MUST(linear_run(context, &call, &error));
    CHECK(cudaStreamSynchronize(stream));
    y[i].resize((size_t)n_tokens * o.y_stride);
    CHECK(cudaMemcpy(y[i].data(), o.y[0], y[i].size() * 4, cudaMemcpyDeviceToHost));
  }
  double cost = 0, size = 0;
  for (size_t i = 0; i < y[1].size(); i++) {
    if ((int)(i % (size_t)o.y_stride) >= n_out) continue;
    cost += ((double)y[1][i] - (double)y[0][i]) * ((double)y[1][i] - (double)y[0][i]);
    size += (double)y[0][i] * (double)y[0][i];
  }
  const bool rotated = !strcmp(kernel, "int8_bytes") && type == WEIGHT_AWQ4;
  const bool same =
      y[0].size() == y[1].size() &&
      (y[0].empty() || (rotated ? cost <= 4e-6 * size : !memcmp(&y[0][0], &y[1][0], y[0].size() * 4)));
  cases_run++;
  failures += !same;
  if (!same) printf("FAIL %s: the norm of %d inputs gives other bits\n", kernel, n_in);
  cudaFree(from);
  stored_free(&s);
  free_operands(&o);
}

/* Tile shapes first .. last of a kernel give the same bits: those of awq_wgmma in whole tiles, and those
 * of dense_wgmma. */
static void check_same_tiles(const char *kernel, int first_variant, int last_variant, int n_in, int n_out,
                             int n_tokens, WeightType type = WEIGHT_AWQ4) {
  Stored s = stored_random(type, n_in, n_out, test_group(type) ? 128 : 0, 24);
  Operands o = make_operands(&s, 1, n_tokens);
  const size_t n = (size_t)n_tokens * o.y_stride;
  const LinearEntry *chosen;
  std::vector<float> first, y(n);
  LinearCall call = {&o.w,       o.x,     o.x_stride, n_tokens, LINEAR_TO_F32, o.y[0],
                     o.y_stride, ACT_F16, false,      kernel,   first_variant};
  const bool runs = !linear_choice(context, &o.w, ACT_F16, n_tokens, kernel, &chosen, &error);
  for (; runs && call.variant <= last_variant; call.variant++) {
    MUST(linear_prepare(context, &o.w, ACT_F16, n_tokens, kernel, &error));
    CHECK(cudaMemsetAsync(o.y[0], 0xff, n * 4, stream));
    MUST(linear_run(context, &call, &error));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&y[0], o.y[0], n * 4, cudaMemcpyDeviceToHost));
    if (first.empty()) first = y;
    const bool same = !memcmp(&first[0], &y[0], n * 4);
    cases_run++;
    failures += !same;
    if (!same) printf("FAIL %s: tile shape %d differs in bits at %d rows\n", kernel, call.variant, n_tokens);
  }
  stored_free(&s);
  free_operands(&o);
}

/* int8_bytes: sums are exact, so that all tile shapes give the same bits, wherever tiles are cut. With int8
 * weights they are those of int8_token. */
static void check_same_bytes(WeightType type, int n_in, int n_out, int n_tokens) {
  Stored s = stored_random(type, n_in, n_out, type == WEIGHT_INT8 ? 0 : 128, 24);
  Operands o = make_operands(&s, 1, n_tokens);
  const size_t n = (size_t)n_tokens * o.y_stride;
  const LinearEntry *chosen;
  std::vector<float> first, y(n);
  LinearCall call = {&o.w,     o.x,   o.x_stride,   n_tokens, LINEAR_TO_F32, o.y[0], o.y_stride,
                     ACT_INT8, false, "int8_bytes", 1};
  const bool runs = !linear_choice(context, &o.w, ACT_INT8, n_tokens, call.kernel, &chosen, &error);
  const int last = type == WEIGHT_INT8 ? 3 : 2;
  for (; runs && call.variant <= last; call.variant++) {
    if (call.variant == 3) call.kernel = "int8_token";
    MUST(linear_prepare(context, &o.w, ACT_INT8, n_tokens, call.kernel, &error));
    CHECK(cudaMemsetAsync(o.y[0], 0xff, n * 4, stream));
    MUST(linear_run(context, &call, &error));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&y[0], o.y[0], n * 4, cudaMemcpyDeviceToHost));
    if (first.empty()) first = y;
    const bool same = !memcmp(&y[0], &first[0], n * 4);
    cases_run++;
    failures += !same;
    if (!same) printf("FAIL %s %d differs in bits at %d rows\n", call.kernel, call.variant, n_tokens);
  }
  stored_free(&s);
  free_operands(&o);
}

/* Rotated bytes cost a product some 2e-4: with largest numbers of 4 standard deviations a step is 4 / 127 of
 * them, (4 / 127)^2 / 12 = 8e-5, of weights and of x, outliers in x or not. */
static void check_cost_of_bytes(int n_in, int n_out, int group, int n_tokens) {
  Stored s = stored_random(WEIGHT_AWQ4, n_in, n_out, group, 25);
  Operands o = make_operands(&s, 1, n_tokens);
  std::vector<double> y[2];
  double cost = 0, size = 0;
  for (int i = 0; i < 2; i++) {
    y[i].resize((size_t)n_tokens * n_out);
    CHECK(cudaMemcpy(&y[i][0], o.ref[2 * i], y[i].size() * 8, cudaMemcpyDeviceToHost));
  }
  for (size_t i = 0; i < y[0].size(); i++) {
    cost += (y[1][i] - y[0][i]) * (y[1][i] - y[0][i]);
    size += y[0][i] * y[0][i];
  }
  cases_run++;
  const bool more = !(cost <= 3e-4 * size);
  failures += more;
  if (more) printf("FAIL int8_bytes costs an NMSE of %.3g\n", cost / size);
  stored_free(&s);
  free_operands(&o);
}

/* int8_bytes: each size of the rotation's blocks of 4 bits, several warps of a row, tiles that end early; a
 * tile in parts, and several tiles a block. */
static void check_few_rotated(void) {
  const char *asked = only;
  if (*asked && !wanted("int8_bytes")) return;
  only = "int8_bytes";
  check_cost_of_bytes(1024, 72, 128, 66);
  for (int n_in : {64, 128, 256, 512, 2048, 576, 640, 896, 1280})
    check_counts(WEIGHT_AWQ4, n_in, 24, 64, {66}, 2);
  check_counts(WEIGHT_AWQ4, 1024, 136, 128, {1, 66, 300}, 2);
  check_counts(WEIGHT_AWQ4, 4480, 8, 32, {66}, 2);
  check_counts(WEIGHT_AWQ4, 8192, 24, 128, {66}, 2);
  check_counts(WEIGHT_INT8, 640, 520, 0, {300}, 2);
  only = asked;
}

/* awq_wgmma on one SM, where it leaves four of 388 tokens to narrow_wgmma. */
static void check_few_left(void) {
  with("awq_wgmma", "1", NULL, [] {
    const int stacked[] = {24, 16, 16}, gated[] = {24, 24};
    check_outputs(WEIGHT_AWQ4, 2048, gated, 2, LINEAR_SWIGLU_F16, true, 388, 0, true);
    for (LinearOutput output : {LINEAR_TO_F16, LINEAR_ADD_F32})
      check_outputs(WEIGHT_AWQ4, 2048, stacked, 3, output, true, 388);
  });
}

/* awq_wgmma: blocks of three warpgroups and of one, and all shapes in whole tiles. */
static void check_few_whole(void) {
  const int wide[] = {104, 104};
  check_counts(WEIGHT_AWQ4, 256, 520, 128, {43, 300}, 28);
  for (int v : {7, 8, 9, 10, 11, 13, 23, 28})
    check_outputs(WEIGHT_AWQ4, 128, wide, 2, LINEAR_SWIGLU_F16, true, 70, v, false, 128);
  for (WeightType type : {WEIGHT_FP4, WEIGHT_FP8})
    for (int v : {25, 28}) check_outputs(type, 192, wide, 2, LINEAR_SWIGLU_F16, true, 70, v);
  check_same_tiles("awq_wgmma", 15, 28, 384, 520, 300);
}

/* int8_bytes and int8_token in whole tiles, and in parts of them. */
static void check_few_bytes(void) {
  for (const char *sms : {"1", "6"})
    with("int8_bytes,int8_token", sms, NULL, [] {
      for (int n_tokens : {66, 300}) check_same_bytes(WEIGHT_AWQ4, 1408, 136, n_tokens);
      check_same_bytes(WEIGHT_INT8, 640, 136, 140);
    });
}

/* LINEAR_INVARIANT: several launches, single rows, rows at other places. */
static void check_invariant(int n_in, int n_out, const std::vector<int> &counts) {
  for (WeightType type :
       {WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_FP4, WEIGHT_FP8, WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32, WEIGHT_INT8})
    check_rows_beside(LINEAR_INVARIANT, n_in, n_out, test_group(type), counts, type);
  check_rows_beside(LINEAR_INVARIANT, 640, 40, 16, counts);
}

/* The shapes of real layers. */
static void check_invariant_layers(void) {
  check_invariant(4096, 6144, {300, 1, -1, 9, -34, 64, -65, 130});
  for (int n_out : {4096, 24576})
    check_rows_beside(LINEAR_INVARIANT, n_out == 4096 ? 12288 : 4096, n_out, 128, {700, 1, -64, -193});
  for (int group : {128, 32})
    check_rows_beside(LINEAR_INVARIANT, 5120, 10240, group, {300, 17, -32, 33, 1, -16});
  check_same_tiles("awq_wgmma", 15, 28, 4096, 6144, 700);
  check_rows_beside(LINEAR_INVARIANT, 1024, 17000, 0, {300, 1, -34, 64, -65, 130},
                    WEIGHT_F16); /* an lm_head */
}

/* Tiles of 64 and of 128 tokens that overlap the one before, several tiles of a block, the same bits beside
 * other rows. */
static void check_few_dense(void) {
  with("dense_wgmma,invariant", "2", NULL, [] {
    for (WeightType type : {WEIGHT_F16, WEIGHT_BF16}) {
      check_counts(type, 640, 264, 0, {43, 150}, 5);
      check_same_tiles("dense_wgmma", 1, 5, 640, 264, 300, type);
      check_rows_beside("dense_wgmma", 200, 264, 0, {150, 1, -34, 64, 65}, type);
      check_rows_beside(LINEAR_INVARIANT, 172, 260, 0, {70, 9}, type);
    }
  });
}

/* chain_mma, whose last stage may be half of one, and the bits of awq_wgmma's whole tiles from it: on 5 SMs
 * blocks of one to six tile rows. The last rows may lie past the matrix. Matrices of more outputs, and more
 * than CHAIN_TOKENS rows, are awq_wgmma's alone. */
static void check_few_chains(void) {
  with("chain_mma", "5", NULL, [] {
    const int stacked[] = {24, 16, 16}, gated[] = {104, 104};
    for (int n_in : {64, 640, 4352}) check_counts(WEIGHT_AWQ4, n_in, 104, 64, {1, 9, 17, 32});
    for (int n_out : {392, 472}) check_counts(WEIGHT_AWQ4, 640, n_out, 32, {5, 31});
    check_counts(WEIGHT_FP4, 352, 41, 32, {3, 24});
    check_counts(WEIGHT_FP8, 320, 41, 128, {3, 24});
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_FP4, WEIGHT_FP8})
      for (int n_tokens : {7, 20}) {
        for (LinearOutput output : {LINEAR_TO_F16, LINEAR_ADD_F32})
          check_outputs(type, 192, stacked, 3, output, true, n_tokens);
        check_outputs(type, 192, gated, 2, LINEAR_SWIGLU_F16, true, n_tokens);
      }
  });
  with("invariant", "5", NULL, [] {
    for (int n_out : {72, 264, 392, 472, 1000})
      check_rows_beside(LINEAR_INVARIANT, 896, n_out, 128, {196, 1, -17, -32, 33, 64});
    check_rows_beside(LINEAR_INVARIANT, 1024, 136, 32, {200, -16, -64});
    check_rows_beside(LINEAR_INVARIANT, 640, 264, 16, {200, 5, -64}, WEIGHT_FP4);
    check_rows_beside(LINEAR_INVARIANT, 640, 264, 128, {150, 20, -40}, WEIGHT_FP8);
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_FP4, WEIGHT_FP8, WEIGHT_F16})
      for (LinearOutput output : {LINEAR_TO_F16, LINEAR_ADD_F32, LINEAR_SWIGLU_F16})
        check_outputs_beside(type, output);
  });
}

/* Matrices that go through cuBLAS in parts of 256 rows, the last of 8. */
static void check_few_slices(void) {
  const int stacked[] = {264, 256}, interleaved[] = {264, 264};
  with("awq_dequant,awq_dequant_plain,dense_cublas,dense_converted", "6", NULL, [&] {
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_FP4, WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32}) {
      check_counts(type, 64, 520, test_group(type), {3}, -20);
      check_outputs(type, 64, stacked, 2, LINEAR_ADD_F32, type != WEIGHT_AWQ4, 3, 20);
      check_outputs(type, 64, interleaved, 2, LINEAR_SWIGLU_F16, type == WEIGHT_AWQ4, 3, 20);
    }
  });
}

/* NVFP4 (groups of 16), MXFP4 (32), and FP8 in blocks that end within the inputs, with one group for all
 * inputs, and in groups that only the simplest kernels take. */
static void check_few_floats(void) {
  if (!only_wgmma) {
    check_dequantise(WEIGHT_FP4, 192, 48, 16);
    check_dequantise(WEIGHT_FP4, 96, 41, 32);
    check_dequantise(WEIGHT_FP8, 120, 40, 48);
    check_dequantise(WEIGHT_FP8, 77, 21, 77);
  }
  check_counts(WEIGHT_FP4, 192, 72, 16, {1, 2, 5, 9, 17, 40});
  check_counts(WEIGHT_FP4, 352, 41, 32, {1, 3, 7, 10, 24});
  check_counts(WEIGHT_FP4, 1024, 16, 16, {2, 8, 31});
  check_counts(WEIGHT_FP8, 172, 24, 172, {1, 4, 16, 33});
  check_counts(WEIGHT_FP8, 320, 41, 128, {1, 3, 7, 10, 24, 41});
  check_counts(WEIGHT_FP8, 1024, 16, 128, {2, 8, 31});
  check_counts(WEIGHT_FP8, 120, 40, 48, {1, 9});
}

/* Tiles of 64 tokens and more, several rows of tiles, blocks with the end of one tile and the beginning of
 * the next; chips with so little shared memory that they take smaller tiles. */
static void check_few_tiles(void) {
  const char *kernels = "awq_tensorcore,int8_mma,int8_token,awq_pipelined,dense_tensorcore";
  with(kernels, "6", NULL, [] {
    check_counts(WEIGHT_BF16, 640, 264, 0, {70, 128});
    for (int group : {32, 16}) check_counts(WEIGHT_AWQ4, 640, 264, group, {9, 33, 70});
    check_counts(WEIGHT_AWQ8, 640, 136, 64, {70});
    check_counts(WEIGHT_FP4, 640, 136, 16, {33, 70});
    check_counts(WEIGHT_FP8, 640, 136, 64, {70});
    check_counts(WEIGHT_INT8, 640, 264, 0, {9, 70});
  });
  with(kernels, "6", "65536", [] {
    check_counts(WEIGHT_AWQ4, 192, 72, 64, {17, 70});
    for (int group : {32, 48}) check_counts(WEIGHT_AWQ8, 192, 72, group, {17, 70});
    check_counts(WEIGHT_FP8, 192, 72, 192, {17, 70});
    check_counts(WEIGHT_INT8, 192, 72, 0, {70});
  });
}
