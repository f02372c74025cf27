/* kernels.c - the CPU's kernels for one instruction set (KERNELS_ISA), as the table that kernels.h declares.
 *
 * This file is compiled once for each set with the set's own flags. Everything except the table is static,
 * also in the headers that it includes. The elementwise kernels are here. */
#include "cpu/kernels.h"

#include "base/half.h"
#include "cpu/kernels_attention.h"
#include "cpu/kernels_delta.h"
#include "cpu/kernels_dense.h"
#include "cpu/kernels_float.h"
#include "cpu/kernels_grouped.h"
#include "cpu/kernels_int8.h"
#include "cpu/kernels_rounding.h"
#include "cpu/vector.h"

/* matmul_few() of weights that lie output by output. With more than PASS_ROWS rows it takes FEW_OUTPUTS
 * outputs at a time: their weights stay in the caches for all passes of rows. */
static void outputs_few(const Linear *w, InputRows x, int first, int n, float *y, size_t y_stride) {
  const int most = x.n <= PASS_ROWS ? n : FEW_OUTPUTS;
  for (int o = 0, some; o < n; o += some) {
    InputRows pass = x;
    float *to = y + o;
    some = n - o < most ? n - o : most;
    for (int left = x.n; left > 0; left -= pass.n) {
      pass.n = pass_rows(left, PASS_ROWS);
      (w->kind == LINEAR_DENSE ? dense_matmul_pass : float_matmul_pass)(w, pass, first + o, some, to,
                                                                        y_stride);
      pass.x += (size_t)pass.n * x.stride;
      to += (size_t)pass.n * y_stride;
    }
  }
}

static void matmul_few(const Linear *w, InputRows x, int split, int splits_end, int first, int n,
                       NextWeights next, PartialSums y) {
  if (!matmul_by_outputs(w))
    grouped_matmul_few(w, x, split, splits_end, first, n, next, y);
  else if (split < splits_end)
    outputs_few(w, x, first, n, y.at, y.row_stride);
}

static void matmul_rows(const Linear *w, const float *x, size_t x_stride, int n_rows, int first, int n,
                        float *y, size_t y_stride) {
  if (!matmul_by_outputs(w))
    grouped_matmul_rows(w, x, x_stride, n_rows, first, n, y, y_stride);
  else
    stored_matmul_rows(w, x, x_stride, n_rows, first, n, y, y_stride);
}

static void join(const float *parts, size_t stride, int n_parts, int n, float *y) {
  int c = 0;
  for (; c + LANES <= n; c += LANES) {
    vf sum = vf_load(parts + c);
    for (int p = 1; p < n_parts; p++) sum += vf_load(parts + (size_t)p * stride + c);
    vf_store(y + c, sum);
  }
  for (; c < n; c++) {
    float sum = parts[c];
    for (int p = 1; p < n_parts; p++) sum += parts[(size_t)p * stride + (size_t)c];
    y[c] = sum;
  }
}

/* Sums the squares in double, so that the mean is right to fp32's last bit for any width. */
static void rms_norm(const float *x, const float *weight, int n, double eps, float *out) {
  vd squares = {0};
  int i = 0;
  for (; i + LANES / 2 <= n; i += LANES / 2) {
    vf_half some;
    memcpy(&some, x + i, sizeof some);
    vd wide = __builtin_convertvector(some, vd);
    squares += wide * wide;
  }
  double sum = 0;
  for (int l = 0; l < LANES / 2; l++) sum += squares[l];
  for (; i < n; i++) sum += (double)x[i] * x[i];
  float factor = (float)(1 / sqrt(sum / n + eps));
  for (i = 0; i < n; i++) out[i] = weight[i] * (x[i] * factor);
}

/* x[i] = f(x[i], with[i], own), by whole vectors and then one by one; f is a constant and so inlined. */
typedef vf Elementwise(vf x, vf with, const void *own);
INLINE void each(Elementwise *f, float *x, const float *with, int n, const void *own) {
  int i = 0;
  for (; i + LANES <= n; i += LANES) vf_store(x + i, f(vf_load(x + i), vf_load(with + i), own));
  for (; i < n; i++) {
    const vf one = f(vf_set(x[i]), vf_set(with[i]), own);
    x[i] = one[0];
  }
}

/* --- activations: g of config.h, "Activation". NaN stays NaN. */

INLINE vf silu(vf gate, vf up, const void *own) {
  return gate / (vf_exp(-gate) + 1) * up;
}

/* Returns -2u for GELU, (x / 2) (1 + tanh(u)) = x / (1 + e^(-2u)). The right side has no cancellation for u
 * far below 0. */
INLINE vf gelu_exponent(vf x) {
  return (x + x * x * x * 0.044715f) * (float)(-2 * M_SQRT2 * M_2_SQRTPI / 2);
}

INLINE vf gelu(vf gate, vf up, const void *own) {
  return gate / (vf_exp(gelu_exponent(gate)) + 1) * up;
}

INLINE vf gelu_alone(vf gate, vf up, const void *own) {
  return 1 / (vf_exp(gelu_exponent(gate)) + 1) * up;
}

static void gelu_exact(float *gate, const float *up, int n) {
  for (int i = 0; i < n; i++) gate[i] = 0.5f * erfcf((float)-M_SQRT1_2 * gate[i]) * up[i];
}

/* Cuts x to -limit .. limit. */
INLINE vf cut(vf x, vf limit) {
  return vf_select(x > limit, limit, vf_select(x < -limit, -limit, x));
}

INLINE vf clamped(vf gate, vf up, const void *own) {
  const vf limit = vf_set(7);
  gate = vf_select(gate > limit, limit, gate);
  return gate / (vf_exp(gate * -1.702f) + 1) * (cut(up, limit) + 1);
}

INLINE vf limited(vf gate, vf up, const void *own) {
  const vf limit = vf_set(((const ActivationNumbers *)own)->limit);
  gate = gate / (vf_exp(-gate) + 1);
  return vf_select(gate > limit, limit, gate) * cut(up, limit);
}

INLINE vf relu(vf gate, vf up, const void *own) {
  return vf_select(gate < (vf){0}, (vf){0}, gate) * up;
}

/* e^m - 1 for m < 0. Near 0, where the subtraction would cancel, it is the first four terms of the series;
 * the rest is less than 2^-30 of the sum. */
INLINE vf exp_minus_one(vf m) {
  const vf near = m * (1 + m * 0.5f * (1 + m * (1 / 3.0f) * (1 + m * 0.25f)));
  return vf_select(m > -0x1p-6f, near, vf_exp(m) - 1);
}

INLINE vf xielu(vf gate, vf u, const void *own) {
  const Xielu x = ((const ActivationNumbers *)own)->xielu;
  const vf eps = vf_set(x.eps), below = exp_minus_one(vf_select(u < eps, u, eps)) - u;
  return vf_select(u > vf_set(0), u * u * x.alpha_p, below * x.alpha_n) + u * x.beta;
}

static void activate(Activation how, const ActivationNumbers *own, float *gate, const float *up, int n) {
  switch (how) {
  case ACTIVATION_SILU: each(silu, gate, up, n, NULL); break;
  case ACTIVATION_GELU_TANH: each(gelu, gate, up, n, NULL); break;
  case ACTIVATION_CLAMPED: each(clamped, gate, up, n, NULL); break;
  case ACTIVATION_LIMITED: each(limited, gate, up, n, own); break;
  case ACTIVATION_RELU: each(relu, gate, up, n, NULL); break;
  case ACTIVATION_GELU_ALONE: each(gelu_alone, gate, up, n, NULL); break;
  case ACTIVATION_GELU_EXACT: gelu_exact(gate, up, n); break;
  case ACTIVATION_XIELU: each(xielu, gate, up, n, own); break;
  case N_ACTIVATIONS: break;
  }
}

INLINE vf sigmoid_of(vf x, vf with, const void *own) {
  return 1 / (vf_exp(-x) + 1);
}

static void sigmoid(float *x, int n) {
  each(sigmoid_of, x, x, n, NULL);
}

INLINE vf capped(vf x, vf with, const void *cap) {
  return vf_tanh(x / *(const float *)cap) * *(const float *)cap;
}

static void soft_cap(float *x, int n, float cap) {
  each(capped, x, x, n, &cap);
}

static void rotate(float *head, const float *cosines, const float *sines, int half, int dim, float scale) {
  int i = 0;
  for (; i + LANES <= half; i += LANES) {
    vf a = vf_load(head + i), b = vf_load(head + half + i), c = vf_load(cosines + i), s = vf_load(sines + i);
    vf_store(head + i, (a * c - b * s) * scale);
    vf_store(head + half + i, (b * c + a * s) * scale);
  }
  for (; i < half; i++) {
    float a = head[i], b = head[half + i];
    head[i] = (a * cosines[i] - b * sines[i]) * scale;
    head[half + i] = (b * cosines[i] + a * sines[i]) * scale;
  }
  for (i = 2 * half; i < dim; i++) head[i] *= scale;
}

static void rotate_neighbours(float *head, const float *cosines, const float *sines, int half, int dim,
                              float scale) {
  for (int i = 0; i < half; i++) {
    float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = (a * cosines[i] - b * sines[i]) * scale;
    head[2 * i + 1] = (b * cosines[i] + a * sines[i]) * scale;
  }
  for (int i = 2 * half; i < dim; i++) head[i] *= scale;
}

#define TABLE_NAMED(isa) kernels_##isa
#define TABLE_OF(isa)    TABLE_NAMED(isa)
#define NAME_OF(isa)     #isa
#define NAME(isa)        NAME_OF(isa)

/* FEW: Kernels.few_rows. SmolLM2-135M AWQ on a Xeon (Sapphire Rapids) took, in ms by matmul_few() and by
 * matmul_rows(), with AVX-512: 16 rows 47 and 58, 24 rows 70 and 75; AVX2: 8 rows 44 and 55, 16 rows 82 and
 * 78; SSE2: 4 rows 75 and 89, 8 rows 142 and 129. */
#if LANES == 16
#define FEW FEW_ROWS
#elif LANES == 8 || defined(__aarch64__)
#define FEW 12
#else
#define FEW 6
#endif

const Kernels TABLE_OF(KERNELS_ISA) = {
    .name = NAME(KERNELS_ISA),
    .few_rows = FEW,
    .matmul_few = matmul_few,
    .join = join,
    .matmul_rows = matmul_rows,
    .round_row = round_row,
    .matmul_int8 = matmul_int8,
    .search_group = search_group,
    .round_group = round_group,
    .move_group = move_group,
    .add_product = add_product,
    .rms_norm = rms_norm,
    .activate = activate,
    .sigmoid = sigmoid,
    .convolve = convolve,
    .gated_convolve = gated_convolve,
    .delta_rule = delta_rule,
    .soft_cap = soft_cap,
    .rotate = rotate,
    .rotate_neighbours = rotate_neighbours,
    .append = kv_append,
    .attend = attend_segment,
    .merge = softmax_merge,
};
