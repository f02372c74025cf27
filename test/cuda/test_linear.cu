/* test_linear.cu - every entry of the dispatch table, forced, against a matmul in double. Needs a GPU.
 *
 *   test_linear quick            Qwen3-8B's o layer and awkward shapes, about ten seconds
 *   test_linear sweep            every layer of the models in `models`, every group size, many token counts
 *   test_linear sweep 2/6        the second of six parts of it, each about as long
 *   test_linear few              small shapes for the emulator (check_few): on an emulated chip of 80 all
 *                                kernels that it has, on one of 90 those that 80 lacks
 *   test_linear quick NAME,NAME  only these entries of the table; -NAME,NAME  all but these
 *
 * The reference reads the weights as the checkpoint stores them (so the re-layout is under test as well) and
 * multiplies in double by the plainest kernel there is, itself compared with the host on small shapes.
 *
 * Tolerances, normalised mean squared error (NMSE) of fp32 results:
 *   awq_planes, planes_wgmma, awq_gemv, awq_small_batch: exact sums; x is rounded to max |x| of its block /
 *     65024 at most. Blocks hold one to three of our eightfold outliers, so max ~ 20 and the error's variance
 *     is (20 / 32512)^2 / 12 = 3.2e-8 of an x whose mean square is about 2: 1.6e-8.
 *   awq_tensorcore, awq_wgmma, narrow_wgmma, awq_dequant: weights rounded to fp16, an error uniform in half a
 *     unit in the last place: mean square (2^-11)^2 / 3 of the power of two below, and the mean of
 *     1 / mantissa^2 over a binade is 0.54: 4.3e-8; fp32 sums add n * 2^-48.
 *     Both are means: a matrix of 16 outputs and one token, dominated by its outliers, strays by a factor
 *     of 4. Held to 1e-7 and 2.5e-7.
 *   awq_pipelined, awq_plain, dense: fp32 throughout, n 2^-48 / 3 < 1e-10. Held to 1e-9. bf16 through fp16:
 *     < 1e-9 too, values below 2^-14 (of +-0.05) losing at most 2^-25.
 *   float_mma: numbers and x exact in fp16, scales and sums fp32: as dense. Kernels that round weights to
 *     fp16 round FP8's too; FP4's are exact everywhere. The test's scales of FP8 are numbers that fp16 holds.
 *   int8 entries: against the matmul of the same quantised x: exact sums, fp32 scaling. Held to 1e-10.
 *   int8_token: the same with one sum of all inputs, which is rounded to fp32 once, as are the product of the
 *     scales and that of both: (3 * 2^-24)^2 = 3.2e-14 at most.
 *   int8_bytes of 4 bits: against the same rotated bytes. fp32 sums of the rotation round one number in 10^5
 *     to its neighbour, where the mean square is 32^2: 1e-8. Held to 1e-7.
 * All are inside the 5e-7 that fp16 activations are allowed. Two runs, the second with dependent launch, must
 * agree to the bit, and nothing past the outputs may be written. */
#include <algorithm>
#include <math.h>
#include <string.h>
#include <vector>

#include "cuda/kernels/linear/quantise.cuh"
#include "test/cuda/linear_reference.cuh"
#include "test/cuda/pairs.cuh"

static int failures, cases_run;
static int part = 1, n_parts = 1; /* of a sweep */
static const char *only = "";     /* entries to try, or after a '-' not to try */
static bool few;                  /* `test_linear few` */
static bool wanted(const char *kernel) {
  bool but = *only == '-';
  size_t n = strlen(kernel);
  for (const char *p = only + but; *p; p += strcspn(p, ","), p += *p == ',')
    if (strcspn(p, ",") == n && !strncmp(p, kernel, n)) return !but;
  return but || !*only;
}
static cudaStream_t stream;
static LinearContext *context;

/* `few` on a chip with wgmma: kernels that every chip has are the same code on an emulated chip without. */
static bool only_wgmma;
static bool tried(const LinearEntry &entry) {
  return wanted(entry.name) && (!only_wgmma || entry.first_chip == SM_90A);
}

/* --- one matrix by every kernel */

struct Limit {
  const char *kernel;
  double nmse;
  double most_work; /* multiply-adds that it does in a bearable time */
};

static const Limit limits[] = {
    {"planes_wgmma", 1e-7, 1e18},  {"narrow_wgmma", 2.5e-7, 1e18},   {"awq_planes", 1e-7, 1e18},
    {"awq_gemv", 1e-7, 1e18},      {"awq_small_batch", 1e-7, 1e18},  {"awq_tensorcore", 2.5e-7, 1e18},
    {"awq_wgmma", 2.5e-7, 1e18},   {"awq_dequant", 2.5e-7, 1e18},    {"awq_dequant_plain", 2.5e-7, 2e11},
    {"awq_pipelined", 1e-9, 1e10}, {"awq_plain", 1e-9, 2e9},         {"int8_gemv", 1e-10, 1e18},
    {"int8_mma", 1e-10, 1e18},     {"int8_wgmma", 1e-10, 1e18},      {"int8_token", 3.2e-14, 1e18},
    {"float_mma", 1e-9, 1e18},     {"dense_rows", 1e-9, 1e18},       {"dense_converted", 1e-9, 1e18},
    {"dense_cublas", 1e-9, 1e18},  {"dense_tensorcore", 1e-9, 1e18}, {"dense_wgmma", 1e-9, 1e18},
    {"chain_mma", 2.5e-7, 1e18},   {"int8_bytes", 1e-7, 1e18},
};

static const Limit *limit_of(const char *kernel) {
  for (const Limit &l : limits)
    if (!strcmp(l.kernel, kernel)) return &l;
  return NULL;
}

struct Worst {
  double nmse;
  int cases, n_in, n_out, group, tokens;
};

static Worst worst[sizeof limits / sizeof *limits];

static int int8_block(const DeviceLinear &w) {
  int group = w.group;
  return w.type == WEIGHT_INT8 ? -1 : group % 128 == 0 ? 128 : group % 64 == 0 ? 64 : 32;
}

/* A matrix of stacked parts on the device, x of up to `most` tokens, its references as fp16 [0], as int8
 * [1] and, with a rotated copy, as int8_bytes rounds both [2], and the results of two runs. */
struct Operands {
  DeviceLinear w;
  void *memory, *rotated;
  int x_stride, y_stride;
  __half *x;
  double *ref[3];
  float *y[2];
};

static Operands make_operands(const Stored *parts, int n_parts, int most) {
  Operands o;
  o.memory = place(&o.w, parts, n_parts, false, NULL, "test", stream);
  o.rotated = rotate(&o.w, stream);
  const DeviceLinear &w = o.w;
  double *wd, *xd, *scratch;
  o.x_stride = (w.n_in + 7) / 8 * 8 + 8, o.y_stride = w.n_out + 24;
  CHECK(cudaMalloc((void **)&o.x, (size_t)most * o.x_stride * 2));
  CHECK(cudaMalloc((void **)&wd, (size_t)w.n_in * w.n_out * 8));
  CHECK(cudaMalloc((void **)&xd, (size_t)w.n_in * most * 8));
  for (double *&ref : o.ref) CHECK(cudaMalloc((void **)&ref, (size_t)w.n_out * most * 8));
  for (float *&y : o.y) CHECK(cudaMalloc((void **)&y, (size_t)(most + 1) * o.y_stride * sizeof(float)));
  random_activations<<<1024, 256, 0, stream>>>(o.x, most, w.n_in, o.x_stride, 77);
  for (int i = 0, row = 0; i < n_parts; row += parts[i++].n_out)
    expand<<<4096, 256, 0, stream>>>(parts[i], wd, w.n_out, row);
  dim3 grid((unsigned)(w.n_out + 63) / 64, (unsigned)(most + 63) / 64);
  for (int i = 0; i < (weight_is_quantised(w.type) || w.type == WEIGHT_INT8 ? 2 : 1); i++) {
    expand_x<<<512, 128, 0, stream>>>(o.x, o.x_stride, xd, w.n_in, most, i ? int8_block(w) : 0);
    multiply_double<<<grid, 256, 0, stream>>>(wd, xd, o.ref[i], w.n_in, w.n_out, most);
  }
  if (o.rotated) {
    CHECK(cudaMalloc((void **)&scratch, (size_t)w.n_in * w.n_out * 8));
    for (int i = 0, row = 0; i < n_parts; row += parts[i++].n_out)
      expand_rotated<<<ceil_div(parts[i].n_out, 64), 64, 0, stream>>>(parts[i], scratch, wd, w.n_out, row);
    expand_x_rotated<<<ceil_div(most, 64), 64, 0, stream>>>(o.x, o.x_stride, xd, w.n_in, most);
    multiply_double<<<grid, 256, 0, stream>>>(wd, xd, o.ref[2], w.n_in, w.n_out, most);
    cudaFree(scratch);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaStreamSynchronize(stream));
  cudaFree(wd);
  cudaFree(xd);
  return o;
}

static void free_operands(Operands *o) {
  cudaFree(o->memory);
  cudaFree(o->rotated);
  cudaFree(o->x);
  for (double *ref : o->ref) cudaFree(ref);
  for (float *y : o->y) cudaFree(y);
}

struct Case {
  const LinearEntry *entry;
  int tokens, variant;
};

/* Runs a case so many times, the second time with dependent launch. Returns false if the kernel has no such
 * tile shape and `optional` says so. */
static bool run_times(int times, const Operands &o, const Case &c, bool optional) {
  for (int again = 0; again < times; again++) {
    CHECK(cudaMemsetAsync(o.y[again], 0xff, (size_t)(c.tokens + 1) * o.y_stride * sizeof(float), stream));
    LinearCall call = {&o.w,       o.x,          o.x_stride, c.tokens,      LINEAR_TO_F32, o.y[again],
                       o.y_stride, c.entry->act, again == 1, c.entry->name, c.variant};
    Status status = linear_run(context, &call, &error);
    if (status == STATUS_USAGE && optional) return false;
    if (status == STATUS_OK) continue;
    printf("FAIL %s %d -> %d group %d rows %d: %s\n", c.entry->name, o.w.n_in, o.w.n_out, o.w.group, c.tokens,
           error.text);
    failures++;
  }
  return true;
}

static void exit_if_failed(cudaError_t e, const DeviceLinear &w, const char *kernel) {
  if (!e) return;
  printf("FAIL %s %d -> %d group %d: %s\n", kernel, w.n_in, w.n_out, w.group, cudaGetErrorString(e));
  exit(1);
}

/* Holds what compare() found of a case to the kernel's limit. */
static void judge(const DeviceLinear &w, const Case &c, const double *found) {
  const Limit *limit = limit_of(c.entry->name);
  Worst *worst_of = &worst[limit - limits];
  const double nmse = found[0] / found[1];
  worst_of->cases++;
  cases_run++;
  if (!(nmse <= worst_of->nmse)) *worst_of = {nmse, worst_of->cases, w.n_in, w.n_out, w.group, c.tokens};
  if (nmse <= limit->nmse && found[2] == 0 && found[3] == 0) return;
  failures++;
  if (failures < 60)
    printf("FAIL %s variant %d, %s %d -> %d group %d rows %d: NMSE %.3g (limit %.1g), %.0f values differ "
           "again, %.0f written outside\n",
           c.entry->name, c.variant, weight_type_name(w.type), w.n_in, w.n_out, w.group, c.tokens, nmse,
           limit->nmse, found[2], found[3]);
}

/* Multiplies the matrix of the stored parts, stacked, by every kernel that can, for all token counts: in its
 * own tile shape and the next `variants`, or if `variants` is negative in the -variants-th alone, of kernels
 * that have it. */
static void check_matrix(const Stored *parts, int n_parts, const int *tokens, int n_counts, int variants) {
  Operands o = make_operands(parts, n_parts, *std::max_element(tokens, tokens + n_counts));
  const DeviceLinear &w = o.w;
  const std::vector<LinearEntry> entries = every_entry();
  std::vector<Case> cases;
  const int first_variant = variants < 0 ? -variants : 0, end_variant = abs(variants) + 1;
  const size_t result_bytes =
      sizeof(double) * 4 * entries.size() * (size_t)n_counts * (size_t)(end_variant - first_variant);
  double *result;
  CHECK(cudaMalloc((void **)&result, result_bytes));
  CHECK(cudaMemsetAsync(result, 0, result_bytes, stream));
  for (const LinearEntry &entry : entries) {
    const Limit *limit = limit_of(entry.name);
    for (int i = 0; i < n_counts && limit && tried(entry); i++) {
      const LinearEntry *chosen;
      if (linear_choice(context, &w, entry.act, tokens[i], entry.name, &chosen, &error) != STATUS_OK ||
          (double)tokens[i] * w.n_in * w.n_out > limit->most_work)
        continue;
      MUST(linear_prepare(context, &w, entry.act, tokens[i], entry.name, &error));
      /* An emulated chip has no dependent launch and repeats its sums: there the last count runs twice, and
       * what a launch leaves in memory is seen by the next count. */
      const int times = few && i + 1 < n_counts ? 1 : 2;
      for (int v = first_variant; v < end_variant; v++) {
        const Case c = {&entry, tokens[i], v};
        if (!run_times(times, o, c, v > 0)) continue;
        const bool bytes = entry.launch == LAUNCH_INT8_BYTES && w.type == WEIGHT_AWQ4;
        const double *ref = o.ref[bytes ? 2 : entry.act == ACT_INT8];
        compare<<<256, 256, 0, stream>>>(o.y[0], o.y[times - 1], ref, w.n_out, o.y_stride, tokens[i],
                                         result + 4 * cases.size());
        cases.push_back(c);
        exit_if_failed(cudaPeekAtLastError(), w, entry.name);
      }
    }
    exit_if_failed(cudaStreamSynchronize(stream), w, entry.name);
  }
  std::vector<double> found(4 * cases.size());
  CHECK(cudaMemcpyAsync(found.data(), result, found.size() * sizeof(double), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < cases.size(); i++) judge(w, cases[i], &found[4 * i]);
  cudaFree(result);
  free_operands(&o);
}

static void check_shape(WeightType type, int n_in, int n_out, int group, const int *tokens, int n_counts,
                        int variants) {
  Stored s = stored_random(type, n_in, n_out, group, (uint64_t)n_in * 31 + (uint64_t)n_out);
  check_matrix(&s, 1, tokens, n_counts, variants);
  stored_free(&s);
}

/* --- the reference itself, and what surrounds a matmul */

/* The double kernel against the host. Differences are double's own. */
static void check_reference(WeightType type, int group) {
  const int n_in = 192, n_out = 48, n_tokens = 5;
  Stored s = stored_random(type, n_in, n_out, group, 5);
  size_t bytes = stored_weight_bytes(type, (size_t)n_in * n_out), groups = (size_t)(n_in / group) * n_out;
  std::vector<uint32_t> weights(bytes / 4 + 1), zeros(groups / 4 + 1);
  std::vector<__half> scales(groups);
  double *wd, *xd, *yd;
  CHECK(cudaMalloc((void **)&wd, n_in * n_out * 8));
  CHECK(cudaMalloc((void **)&xd, n_in * n_tokens * 8));
  CHECK(cudaMalloc((void **)&yd, n_out * n_tokens * 8));
  __half *x;
  CHECK(cudaMalloc((void **)&x, n_tokens * n_in * 2));
  random_activations<<<8, 256>>>(x, n_tokens, n_in, n_in, 9);
  expand<<<8, 256>>>(s, wd, n_out, 0);
  expand_x<<<8, 128>>>(x, n_in, xd, n_in, n_tokens, 0);
  multiply_double<<<dim3(1, 1), 256>>>(wd, xd, yd, n_in, n_out, n_tokens);
  std::vector<double> y(n_out * n_tokens);
  CHECK(cudaMemcpy(y.data(), yd, y.size() * 8, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(weights.data(), s.weights, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(zeros.data(), s.zeros, type == WEIGHT_AWQ4 ? groups / 2 : groups, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(scales.data(), s.scales, groups * 2, cudaMemcpyDeviceToHost));
  double worst_error = 0;
  for (int m = 0; m < n_tokens; m++)
    for (int o = 0; o < n_out; o++) {
      double sum = 0, size = 0;
      for (int k = 0; k < n_in; k++) {
        double p = stored_weight(s, weights.data(), zeros.data(), scales.data(), k, o) *
                   (double)__half2float(__float2half_rn(activation(9, m, k)));
        sum += p;
        size += fabs(p);
      }
      worst_error = fmax(worst_error, fabs(y[m * n_out + o] - sum) / size);
    }
  if (!(worst_error < 1e-13)) {
    printf("FAIL the reference differs from the host by %.3g (%s, group %d)\n", worst_error,
           weight_type_name(type), group);
    failures++;
  }
  stored_free(&s);
  cudaFree(wd);
  cudaFree(xd);
  cudaFree(yd);
  cudaFree(x);
}

/* A group that the type's fast kernels take. */
static int test_group(WeightType type) {
  return type == WEIGHT_FP4 ? 16 : type == WEIGHT_FP8 ? 128 : weight_has_zeros(type) ? 64 : 1;
}

/* Both dequantisation forms give the same bits: the weights, without factors, rounded once to fp16. */
static void check_dequantise(WeightType type, int n_in, int n_out, int group) {
  Stored s = stored_random(type, n_in, n_out, group, 11);
  DeviceLinear w;
  void *memory = place(&w, &s, 1, false, NULL, "dequantise", stream);
  double *wd;
  __half *out[2];
  CHECK(cudaMalloc((void **)&wd, (size_t)n_in * n_out * 8));
  expand<<<64, 256, 0, stream>>>(s, wd, n_out, 0);
  std::vector<double> want((size_t)n_in * n_out);
  std::vector<__half> got[2];
  for (int plain = 0; plain < 2; plain++) {
    CHECK(cudaMalloc((void **)&out[plain], (size_t)n_in * n_out * 2));
    MUST(linear_dequantise(&w, 0, n_out, plain, out[plain], stream, &error));
    got[plain].resize(want.size());
    CHECK(cudaMemcpyAsync(got[plain].data(), out[plain], want.size() * 2, cudaMemcpyDeviceToHost, stream));
  }
  CHECK(cudaMemcpyAsync(want.data(), wd, want.size() * 8, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<float> factors((size_t)n_out, 1);
  if (w.factors) CHECK(cudaMemcpy(factors.data(), w.factors, factors.size() * 4, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int o = 0; o < n_out; o++)
    for (int k = 0; k < n_in; k++) {
      __half h = __float2half_rn((float)(want[(size_t)k * n_out + o] / (double)factors[(size_t)o]));
      for (int plain = 0; plain < 2; plain++) {
        __half g = got[plain][(size_t)o * n_in + k];
        wrong += __half2float(g) != __half2float(h);
      }
    }
  if (wrong) {
    printf("FAIL dequantise %s %d -> %d group %d: %d values wrong\n", weight_type_name(type), n_in, n_out,
           group, wrong);
    failures++;
  }
  stored_free(&s);
  for (void *each : {memory, (void *)wd, (void *)out[0], (void *)out[1]}) cudaFree(each);
}

constexpr int kGap = 8; /* elements between the results of two tokens */

/* How many elements of the gaps changed: results lie in runs of `width`. */
template <class T> static int changed_gaps(const float *got, const float *before, size_t n, int width) {
  const T *now = (const T *)got, *then = (const T *)before;
  int changed = 0;
  for (size_t i = 0; i < n; i++) changed += (int)(i % (width + kGap)) >= width && now[i] != then[i];
  return changed;
}

/* Bias, fp16 results, adding to a residual, and SwiGLU, of stacked and interleaved parts, against the host on
 * the double matmul. fp16 results may be off by half a unit of 11 bits plus the error of the sums. With a
 * bias some results exceed fp16's range and become its largest number. The gaps between tokens stay as they
 * were. `factored`: with row_factors, of a gated matmul. group: 0 for test_group(). */
static void check_outputs(WeightType type, int n_in, const int *n_out, int n_parts, LinearOutput output,
                          bool with_bias, int n_tokens, int variant = 0, bool factored = false, int group = 0,
                          Activation activation = ACTIVATION_SILU) {
  Stored parts[3];
  int total = 0;
  const bool interleaved = output == LINEAR_SWIGLU_F16;
  for (int i = 0; i < n_parts; i++)
    parts[i] = stored_random(type, n_in, n_out[i], group ? group : test_group(type), 100 + (uint64_t)i),
    total += n_out[i];
  const int width = interleaved ? total / 2 : total;
  const bool half = output == LINEAR_TO_F16 || interleaved;
  const int y_stride = width + kGap;
  std::vector<float> bias((size_t)total), residual((size_t)n_tokens * y_stride), factors((size_t)n_tokens);
  for (int i = 0; i < total; i++) bias[(size_t)i] = uniform(3, (uint64_t)i) - 0.5f;
  if (interleaved) bias[0] = bias[(size_t)width] = 300; /* silu(300) * 300 */
  if (output == LINEAR_TO_F16) bias[1] = 7e4f, bias[(size_t)total - 1] = -7e4f;
  for (size_t i = 0; i < residual.size(); i++) residual[i] = uniform(4, i);
  for (size_t i = 0; i < factors.size(); i++) factors[i] = 0.5f + uniform(5, i);
  float *bias_d, *factors_d;
  CHECK(cudaMalloc((void **)&bias_d, (size_t)total * 4));
  CHECK(cudaMemcpy(bias_d, bias.data(), (size_t)total * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMalloc((void **)&factors_d, factors.size() * 4));
  CHECK(cudaMemcpy(factors_d, factors.data(), factors.size() * 4, cudaMemcpyHostToDevice));
  DeviceLinear w;
  void *memory = place(&w, parts, n_parts, interleaved, with_bias ? bias_d : NULL, "outputs", stream);
  double *wd, *xd, *yd;
  __half *x;
  float *y;
  CHECK(cudaMalloc((void **)&wd, (size_t)n_in * total * 8));
  CHECK(cudaMalloc((void **)&xd, (size_t)n_in * n_tokens * 8));
  CHECK(cudaMalloc((void **)&yd, (size_t)total * n_tokens * 8));
  CHECK(cudaMalloc((void **)&x, (size_t)n_tokens * n_in * 2));
  CHECK(cudaMalloc((void **)&y, residual.size() * 4));
  random_activations<<<64, 256, 0, stream>>>(x, n_tokens, n_in, n_in, 13);
  for (int i = 0, row = 0; i < n_parts; row += n_out[i++])
    expand<<<64, 256, 0, stream>>>(parts[i], wd, total, row);
  expand_x<<<64, 128, 0, stream>>>(x, n_in, xd, n_in, n_tokens, type == WEIGHT_INT8 ? -1 : 0);
  multiply_double<<<dim3((unsigned)(total + 63) / 64, (unsigned)(n_tokens + 63) / 64), 256, 0, stream>>>(
      wd, xd, yd, n_in, total, n_tokens);
  std::vector<double> ref((size_t)total * n_tokens);
  CHECK(cudaMemcpyAsync(ref.data(), yd, ref.size() * 8, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (const LinearEntry &entry : every_entry()) {
    const LinearEntry *chosen;
    const ActType act = entry.act;
    if (!tried(entry) || (act == ACT_INT8 && type != WEIGHT_INT8) ||
        linear_choice(context, &w, act, n_tokens, entry.name, &chosen, &error) != STATUS_OK)
      continue;
    MUST(linear_prepare(context, &w, act, n_tokens, entry.name, &error));
    CHECK(cudaMemcpyAsync(y, residual.data(), residual.size() * 4, cudaMemcpyHostToDevice, stream));
    LinearCall call = {&w, x, n_in, n_tokens, output, y, y_stride, act, false, entry.name, variant};
    if (factored) call.row_factors = factors_d;
    call.gated = activation;
    MUST(linear_run(context, &call, &error));
    std::vector<float> got(residual.size());
    CHECK(cudaMemcpyAsync(got.data(), y, got.size() * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    double num = 0, den = 0;
    int wrong = half ? changed_gaps<uint16_t>(got.data(), residual.data(), residual.size(), width)
                     : changed_gaps<uint32_t>(got.data(), residual.data(), residual.size(), width);
    cases_run++;
    for (int m = 0; m < n_tokens; m++)
      for (int o = 0; o < width; o++) {
        size_t i = (size_t)m * total + o, at = (size_t)m * y_stride + o;
        double want = ref[i] + (with_bias ? bias[(size_t)o] : 0);
        if (output == LINEAR_ADD_F32) want += residual[at];
        if (interleaved) {
          double up = ref[i + (size_t)width] + (with_bias ? bias[(size_t)(o + width)] : 0);
          const double cubic = want + 0.044715 * want * want * want,
                       power = activation == ACTIVATION_SILU ? want : sqrt(8 / M_PI) * cubic;
          want = want / (1 + exp(-power)) * up * (factored ? factors[(size_t)m] : 1);
        }
        double have = half ? (double)__half2float(((const __half *)got.data())[at]) : (double)got[at];
        if (half && fabs(want) > 65504) {
          wrong += have != copysign(65504, want);
          continue;
        }
        num += (have - want) * (have - want);
        den += want * want;
      }
    if (!(num / den < 5e-7) || wrong) {
      printf("FAIL %s %s output %d%s%s, %d rows: NMSE %.3g, %d numbers beyond fp16 or between rows wrong\n",
             entry.name, weight_type_name(type), (int)output, with_bias ? " bias" : "",
             factored ? " row_factors" : "", n_tokens, num / den, wrong);
      failures++;
    }
  }
  for (int i = 0; i < n_parts; i++) stored_free(&parts[i]);
  for (void *each :
       {memory, (void *)bias_d, (void *)factors_d, (void *)wd, (void *)xd, (void *)yd, (void *)x, (void *)y})
    cudaFree(each);
}

/* Tokens that are all zeros, or hold an infinity or a NaN, give 0 and NaN and leave the others alone. */
static void check_strange_rows(void) {
  const int n_in = 200, n_out = 24, n_tokens = 5;
  Stored s = stored_random(WEIGHT_INT8, n_in, n_out, 1, 8);
  DeviceLinear w;
  void *memory = place(&w, &s, 1, false, NULL, "strange", stream);
  std::vector<__half> x((size_t)n_tokens * n_in);
  for (size_t i = 0; i < x.size(); i++) x[i] = __float2half_rn(activation(3, (int)i / n_in, (int)i % n_in));
  __half *xd;
  float *yd;
  std::vector<float> y[2];
  CHECK(cudaMalloc((void **)&xd, x.size() * 2));
  CHECK(cudaMalloc((void **)&yd, (size_t)n_tokens * n_out * 4));
  MUST(linear_prepare(context, &w, ACT_INT8, n_tokens, NULL, &error));
  for (int strange = 0; strange < 2; strange++) {
    if (strange) {
      for (int k = 0; k < n_in; k++) x[(size_t)k] = __float2half_rn(0.0f);
      x[(size_t)2 * n_in + 150] = __float2half_rn(-INFINITY);
      x[(size_t)4 * n_in + 7] = __float2half_rn(NAN);
    }
    CHECK(cudaMemcpyAsync(xd, x.data(), x.size() * 2, cudaMemcpyHostToDevice, stream));
    LinearCall call = {&w, xd, n_in, n_tokens, LINEAR_TO_F32, yd, n_out, ACT_F16, false, NULL, 0};
    MUST(linear_run(context, &call, &error));
    y[strange].resize((size_t)n_tokens * n_out);
    CHECK(cudaMemcpyAsync(y[strange].data(), yd, y[strange].size() * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  int wrong = 0;
  for (int i = 0; i < n_tokens * n_out; i++) {
    float before = y[0][(size_t)i], after = y[1][(size_t)i];
    int row = i / n_out;
    wrong += row == 0 ? after != 0 : row == 2 || row == 4 ? !isnan(after) : after != before || after == 0;
  }
  if (wrong) {
    printf("FAIL int8_token: %d products of rows of zeros, infinities and NaN are wrong\n", wrong);
    failures++;
  }
  stored_free(&s);
  cudaFree(memory);
  cudaFree(xd);
  cudaFree(yd);
}

static void check_all_outputs(void) {
  const int stacked[] = {136, 24, 40}, interleaved[] = {200, 200};
  const WeightType types[] = {WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_FP4,  WEIGHT_FP8,
                              WEIGHT_INT8, WEIGHT_F16,  WEIGHT_BF16, WEIGHT_F32};
  for (WeightType type : types)
    for (int tokens : {1, 3, 7, 16, 40, 130, 300})
      for (int bias = 0; bias < 2; bias++) {
        for (LinearOutput output : {LINEAR_TO_F16, LINEAR_TO_F32, LINEAR_ADD_F32})
          check_outputs(type, 320, stacked, 3, output, bias, tokens);
        for (bool factored : {false, true})
          check_outputs(type, 320, interleaved, 2, LINEAR_SWIGLU_F16, bias, tokens, 0, factored);
      }
}

/* n_in and n_out of qkv, o, gate and up, down: Qwen3 0.6B 1.7B 4B 8B 14B 32B, Qwen2.5-7B, Llama-3.1-8B (from
 * their config.json). */
static const int models[][2] = {
    {1024, 4096},  {2048, 1024},  {1024, 6144},  {3072, 1024},  {2048, 4096},  {2048, 2048},
    {2048, 12288}, {6144, 2048},  {2560, 6144},  {4096, 2560},  {2560, 19456}, {9728, 2560},
    {4096, 6144},  {4096, 4096},  {4096, 24576}, {12288, 4096}, {5120, 7168},  {5120, 5120},
    {5120, 34816}, {17408, 5120}, {5120, 10240}, {8192, 5120},  {5120, 51200}, {25600, 5120},
    {3584, 4608},  {3584, 3584},  {3584, 37888}, {18944, 3584}, {4096, 28672}, {14336, 4096},
};

/* Does `work` with these entries of the table alone (none if the caller asked for others), on a chip with
 * this many SMs and this much shared memory per block. */
template <class Work>
static void with(const char *kernels, const char *n_sms, const char *shared_bytes, Work work) {
  const char *asked = only;
  LinearContext *usual = context;
  if (*asked) return;
  only = kernels;
  setenv("EMULATED_SMS", n_sms, 1);
  if (shared_bytes) setenv("EMULATED_SHARED", shared_bytes, 1);
  MUST(linear_open(0, stream, &context, &error));
  work();
  CHECK(cudaStreamSynchronize(stream));
  linear_close(context);
  unsetenv("EMULATED_SHARED");
  setenv("EMULATED_SMS", "6", 1);
  context = usual, only = asked;
}

template <int kCounts>
static void check_counts(WeightType type, int n_in, int n_out, int group, const int (&counts)[kCounts],
                         int variants = 0) {
  check_shape(type, n_in, n_out, group, counts, kCounts, variants);
}

/* Blocks with several tile rows and batches of them; blocks that share a tile row, and matrices in several
 * launches (x and its sums do not fit); x and outputs in more than one turn. */
static void check_few_rows(void) {
  const char *kernels = "awq_planes,awq_gemv,awq_small_batch,int8_gemv,dense_rows,float_mma";
  with(kernels, "1", NULL, [] {
    check_counts(WEIGHT_AWQ4, 640, 232, 128, {1, 4, 8});
    check_counts(WEIGHT_AWQ8, 576, 232, 32, {1, 2, 7});
    check_counts(WEIGHT_FP4, 640, 232, 16, {1, 4});
    check_counts(WEIGHT_FP8, 576, 232, 128, {2, 7});
    check_counts(WEIGHT_F16, 2120, 40, 0, {1, 4});
    check_counts(WEIGHT_BF16, 2120, 40, 0, {2});
    check_counts(WEIGHT_F32, 2120, 40, 0, {1, 8});
  });
  with(kernels, "6", "94208", [] {
    check_counts(WEIGHT_AWQ4, 1600, 24, 64, {8}); /* the last split ends within a batch */
    check_counts(WEIGHT_AWQ4, 64, 200, 64, {7});
    check_counts(WEIGHT_FP4, 1600, 24, 32, {8});
  });
}

/* One check of awq_wgmma's tiles of 256 tokens, which fails as well if no pairs of blocks shared x. */
template <class Check> static void by_pairs(Check check) {
  const long before = copies_to_pairs();
  check();
  cases_run++;
  if (before < 0 || copies_to_pairs() > before) return;
  printf("FAIL awq_wgmma ran without pairs of blocks\n");
  failures++;
}

/* Two groups of outputs, whose waves go through the tokens forwards, then backwards; a last tile of tokens
 * that overlaps the one before, also where y is added to; a last tile row that is half full. */
static void check_few_pairs(void) {
  if (!only_wgmma) return; /* awq_wgmma is for Hopper */
  with("awq_wgmma", "8", NULL, [] {
    by_pairs([] { check_counts(WEIGHT_AWQ4, 192, 2048, 64, {512}, -6); });
    by_pairs([] { check_counts(WEIGHT_AWQ4, 192, 512, 32, {2000}, -6); });
    by_pairs([] { check_counts(WEIGHT_FP4, 256, 1024, 16, {512}, -6); });
    by_pairs([] { check_counts(WEIGHT_FP8, 192, 1992, 64, {500}, -6); });
    const int whole[] = {1000}, halves[] = {512, 512};
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_FP4, WEIGHT_FP8}) {
      by_pairs([=] { check_outputs(type, 192, whole, 1, LINEAR_ADD_F32, true, 500, 6); });
      by_pairs([=] { check_outputs(type, 192, halves, 2, LINEAR_SWIGLU_F16, true, 500, 6); });
    }
  });
}

#include "test/cuda/own_norm.cuh"
#include "test/cuda/rows_beside.cuh"
#include "test/cuda/waits.cuh"

/* For the emulator, some 100,000 times slower than a GPU: every entry of the table, shapes that reach
 * padding, several groups and splits, both sides of the thresholds of small counts. */
static void check_few(void) {
  const int shapes[][2] = {{192, 72}, {172, 24}, {320, 40}, {1024, 16}};
  const int counts[] = {1, 2, 5, 9, 17, 40};
  for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8}) {
    if (!only_wgmma) {
      check_reference(type, 32);
      for (int n_out : {48, 40}) check_dequantise(type, 192, n_out, 32); /* whole tiles, and half of one */
      check_dequantise(type, 120, 40, 24); /* groups that begin within 16 inputs */
    }
    check_counts(type, 120, 40, 24, {1, 9});
    check_counts(type, 192, 72, 64, counts);
    check_counts(type, 172, 24, 172, {1, 4, 16, 33});
    check_counts(type, 320, 40, 32, {1, 3, 7, 10, 24, 41});
    for (int group : {128, 16}) check_counts(type, 1024, 16, group, {2, 6, 8, 31});
    check_counts(type, 208, 24, 16, {1, 3, 9});
  }
  check_few_floats();
  if (!only_wgmma) {
    for (const int *s : shapes) check_counts(WEIGHT_INT8, s[0], s[1], 0, counts);
    check_counts(WEIGHT_INT8, 77, 21, 0, {1, 8, 33}); /* rows of bytes and of outputs at odd places */
    check_counts(WEIGHT_INT8, 320, 40, 0, {17, 40}, 3);
    check_strange_rows();
    for (WeightType type : {WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32})
      check_counts(type, 172, 24, 0, {1, 2, 5, 9, 33});
    for (WeightType type : {WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32})
      check_norm("dense_rows", type, 172, 24, 0, 1);
    check_few_rows();
    check_few_tiles();
    check_few_slices();
  }
  const int stacked[] = {24, 16, 16}, interleaved[] = {24, 24};
  for (int tokens : {1, 3, 40})
    for (WeightType type :
         {WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_FP4, WEIGHT_FP8, WEIGHT_INT8, WEIGHT_F16, WEIGHT_BF16}) {
      const bool bias = type != WEIGHT_BF16;
      if (tokens == 40 && (type == WEIGHT_AWQ8 || type == WEIGHT_FP8)) continue;
      if (only_wgmma && (type == WEIGHT_INT8 || type == WEIGHT_BF16)) continue;
      for (LinearOutput output : {LINEAR_TO_F16, LINEAR_ADD_F32})
        check_outputs(type, 192, stacked, 3, output, bias, tokens);
      for (bool factored : {false, true})
        check_outputs(type, 192, interleaved, 2, LINEAR_SWIGLU_F16, bias, tokens, 0, factored);
    }
  for (int tokens : {3, 40})
    check_outputs(WEIGHT_AWQ4, 192, interleaved, 2, LINEAR_SWIGLU_F16, true, tokens, 0, false, 0,
                  ACTIVATION_GELU_TANH);
  for (LinearOutput output : {LINEAR_TO_F16, LINEAR_ADD_F32}) /* which cuBLAS writes itself */
    check_outputs(WEIGHT_F16, 192, stacked, 3, output, false, 3);
  check_few_dense();
  check_few_chains();
  check_waits(WEIGHT_AWQ4, 192, 72, 9);
  check_invariant(640, 40, {128, 1, -34, -70});
}

/* Every tile shape of wgmma, if the chip has it: tiles that overlap the one before, rings that wrap; gated
 * matmuls of more tokens than are done at once. */
static void check_few_wgmma(void) {
  const int gated[] = {24, 24};
  check_few_left();
  const char *asked = only;
  if (*asked && !wanted("awq_wgmma")) return;
  only = "awq_wgmma";
  check_counts(WEIGHT_AWQ4, 192, 136, 64, {43, 300}, 28);
  check_counts(WEIGHT_AWQ4, 1024, 72, 32, {43, 300}, 14);
  check_counts(WEIGHT_FP4, 192, 136, 16, {43, 300}, 16);
  check_counts(WEIGHT_FP8, 1024, 72, 128, {43, 300}, 16);
  for (bool of : {false, true})
    check_outputs(WEIGHT_AWQ4, 64, gated, 2, LINEAR_SWIGLU_F16, true, 2059, 0, of, 0,
                  of ? ACTIVATION_SILU : ACTIVATION_GELU_TANH);
  check_few_whole();
  only = asked;
}

/* Every tile shape of the wgmma kernels of few tokens, if the chip has them: rings that wrap, several token
 * tiles, blocks with the end of one tile and the beginning of the next. */
static void check_few_narrow(void) {
  const char *asked = only;
  if (*only && !strstr(only, "s_wgmma") && !wanted("narrow_wgmma") && !strstr(only, "int8_")) return;
  only = "planes_wgmma,int8_wgmma,int8_bytes";
  check_counts(WEIGHT_AWQ4, 1024, 200, 128, {9, 24, 43, 150}, 3);
  check_counts(WEIGHT_AWQ4, 640, 264, 64, {24, 130}, 3);
  check_counts(WEIGHT_AWQ4, 320, 40, 32, {66}, 3);
  for (int n_in : {77, 640}) check_counts(WEIGHT_INT8, n_in, 264, 0, {9, 130}, 3);
  check_rows_beside("planes_wgmma", 1024, 136, 128, {24, 9, 20});
  check_norm("planes_wgmma", WEIGHT_AWQ4, 1024, 200, 128, 9);
  check_norm("planes_wgmma", WEIGHT_AWQ4, 192, 72, 64, 24);
  only = "narrow_wgmma";
  check_counts(WEIGHT_AWQ4, 1024, 200, 128, {9, 100, 150}, 12);
  for (int group : {32, 16}) check_counts(WEIGHT_AWQ4, 640, 264, group, {30, 70}, 12);
  check_counts(WEIGHT_AWQ4, 640, 72, 128, {70, 128}); /* two tiles of tokens, which overlap */
  check_counts(WEIGHT_FP4, 640, 136, 16, {20, 100});
  check_counts(WEIGHT_FP8, 640, 136, 128, {20, 100});
  check_rows_beside("narrow_wgmma", 1024, 136, 128, {64, 9, 40});
  only = asked;
  for (int n_in : {640, 1024, 4224}) {
    check_same_norm("int8_bytes", WEIGHT_AWQ4, n_in, 72, 128, 66);
    check_same_norm("int8_bytes", WEIGHT_INT8, n_in, 72, 0, 66);
  }
  check_few_rotated();
  check_few_bytes();
}

/* True if the next matrix of a sweep belongs to its part: matrices are dealt out in turn. */
static bool next_is_ours(void) {
  static int n;
  return n++ % n_parts == part - 1;
}

static const int some_counts[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 100, 129, 300, 512, 513};
static const int n_some = sizeof some_counts / sizeof *some_counts;

/* The reference, outputs, shapes that no real layer has. */
static void check_awkward(void) {
  for (int group : {16, 32, 64, 192})
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8}) {
      check_reference(type, group);
      check_dequantise(type, 192, 48, group);
      check_dequantise(type, 960, 200, group * 5);
    }
  printf("outputs\n");
  check_strange_rows();
  check_all_outputs();
  printf("awkward shapes\n");
  const int awkward[][3] = {{576, 1000, 64},  {576, 1000, 32}, {576, 1000, 96}, {576, 1000, 576},
                            {1000, 72, 1000}, {1000, 72, 8},   {256, 128, 16},  {172, 64, 172},
                            {64, 8, 64},      {128, 16, 128},  {8192, 16, 128}, {320, 8008, 160},
                            {448, 24, 224},   {4096, 8, 32}};
  for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8})
    for (const int *s : awkward) check_shape(type, s[0], s[1], s[2], some_counts, n_some, 0);
  const int awkward_floats[][3] = {{576, 1000, 16}, {576, 1000, 32}, {8192, 16, 32}, {320, 8007, 16},
                                   {448, 24, 32},   {4096, 8, 16},   {64, 7, 16}};
  for (const int *s : awkward_floats) check_shape(WEIGHT_FP4, s[0], s[1], s[2], some_counts, n_some, 0);
  for (const int *s : awkward)
    check_shape(WEIGHT_FP8, s[0], s[1] + 3, s[2] % 16 ? s[0] : s[2], some_counts, n_some, 0);
  for (WeightType type : {WEIGHT_INT8, WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32})
    for (const int *s : awkward) check_shape(type, s[0], s[1], s[2], some_counts, n_some, 0);
}

/* The shapes of real layers: with `sweep` all of them, groups and counts; it takes minutes. */
static void check_layers(bool sweep) {
  int all[40], n_all = 0;
  for (int i = 1; i <= 17; i++) all[n_all++] = i;
  for (int i : {31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 2048})
    all[n_all++] = i;
  printf("layers\n");
  if (part == 1) {
    check_invariant_layers();
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_FP4, WEIGHT_FP8, WEIGHT_F16, WEIGHT_INT8})
      for (int n_tokens : {1, 8, 24, 130, 256}) check_waits(type, 4096, 4096, n_tokens);
    check_rows_beside("planes_wgmma", 4096, 6144, 128, {24, 9, 16, 17});
    check_norm("planes_wgmma", WEIGHT_AWQ4, 4096, 6144, 128, 16);
    check_norm("planes_wgmma", WEIGHT_AWQ4, 5120, 24576, 64, 23);
    check_norm("dense_rows", WEIGHT_BF16, 2880, 5120, 0, 1);
    check_norm("dense_rows", WEIGHT_F16, 7680, 10240, 0, 1);
    check_rows_beside("narrow_wgmma", 4096, 6144, 128, {64, 9, 16, 17, 25, 33, 49});
  }
  if (!sweep) { /* with 132 SMs all of awq_wgmma's sixth shape by pairs of blocks */
    check_counts(WEIGHT_AWQ4, 512, 24576, 128, {512, 1250, 2000}, -6);
    check_counts(WEIGHT_AWQ4, 512, 6144, 32, {1250, 2000}, -6);
    check_counts(WEIGHT_FP4, 512, 24576, 16, {512, 1250, 2000}, -6);
    check_counts(WEIGHT_FP8, 512, 24576, 128, {512, 1250, 2000}, -6);
    for (int group : {128, 16}) check_shape(WEIGHT_AWQ4, 4096, 4096, group, some_counts, n_some, 28);
    for (int group : {128, 16}) check_shape(WEIGHT_AWQ8, 4096, 1024, group, some_counts, n_some, 28);
    check_shape(WEIGHT_FP4, 4096, 4096, 16, some_counts, n_some, 28);
    check_shape(WEIGHT_FP4, 12288, 4096, 32, some_counts, n_some, 28);
    check_shape(WEIGHT_FP8, 4096, 4096, 128, some_counts, n_some, 28);
    check_shape(WEIGHT_FP8, 12288, 1024, 12288, some_counts, n_some, 28);
    check_shape(WEIGHT_INT8, 4096, 4096, 0, some_counts, n_some, 28);
    check_shape(WEIGHT_AWQ4, 2560, 6144, 64, some_counts, n_some, 28);
    check_shape(WEIGHT_AWQ4, 12288, 4096, 32, some_counts, n_some, 28);
  } else {
    for (const int *s : models)
      for (int group : {32, 64, 128, s[0]})
        if (s[0] % group == 0 && next_is_ours()) check_shape(WEIGHT_AWQ4, s[0], s[1], group, all, n_all, 0);
    for (const int *s : models)
      for (int group : {16, 128})
        if (next_is_ours())
          check_shape(group == 16 ? WEIGHT_FP4 : WEIGHT_FP8, s[0], s[1], group, some_counts, n_some, 0);
    for (int group : {32, 128})
      if (next_is_ours()) check_shape(WEIGHT_AWQ8, 4096, 6144, group, all, n_all, 0);
    for (WeightType type : {WEIGHT_INT8, WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32})
      if (next_is_ours()) check_shape(type, 4096, 6144, 0, all, n_all, 0);
  }
}

int main(int argc, char **argv) {
  if (argc > 2 && sscanf(argv[2], "%d/%d", &part, &n_parts) != 2) only = argv[2];
  few = argc > 1 && !strcmp(argv[1], "few");
  int major = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  only_wgmma = few && major == 9;
  if (few) setenv("EMULATED_SMS", "6", 0); /* few blocks, of many steps each */
  CHECK(cudaStreamCreate(&stream));
  MUST(linear_open(0, stream, &context, &error));
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (few) {
    check_few();
    check_few_wgmma();
    check_few_pairs();
    check_few_narrow();
  } else {
    if (part == 1) check_awkward();
    check_layers(argc > 1 && !strcmp(argv[1], "sweep"));
  }
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    printf("%-18s %6d cases, worst NMSE %.2e of %.0e at %d -> %d group %d, %d rows\n", limits[i].kernel,
           worst[i].cases, worst[i].nmse, limits[i].nmse, worst[i].n_in, worst[i].n_out, worst[i].group,
           worst[i].tokens);
  printf("%d passed, %d failed\n", cases_run > failures ? cases_run - failures : 0, failures);
  linear_close(context);
  return failures != 0;
}
