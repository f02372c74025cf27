/* kernels.c - the CPU's kernels for one instruction set (KERNELS_ISA), as the table that kernels.h declares.
 *
 * Compiled once for each set with its own flags, so that everything in the parts is static. The parts: vector.h,
 * outer.h, kernels_awq.h, kernels_dense.h, kernels_attention.h; the row-wise rest is here. */
#include "cpu/kernels.h"

#include "base/half.h"
#include "cpu/kernels_attention.h"
#include "cpu/kernels_awq.h"
#include "cpu/kernels_dense.h"
#include "cpu/vector.h"

static void product(const Linear *w, const float *x, size_t x_stride, int n_rows, int first, int n, float *y,
                    size_t y_stride) {
  if (w->kind == LINEAR_AWQ) {
    if (n_rows == 1)
      awq_product_row(w, x, first, n, y);
    else
      awq_product_rows(w, x, x_stride, n_rows, first, n, y, y_stride);
  } else if (n_rows > 1) {
    dense_product_rows(w, x, x_stride, n_rows, first, n, y, y_stride);
  } else {
    switch (w->dtype) {
    case DTYPE_F16: dense_product_row(DTYPE_F16, w, x, first, n, y); break;
    case DTYPE_BF16: dense_product_row(DTYPE_BF16, w, x, first, n, y); break;
    default: dense_product_row(DTYPE_F32, w, x, first, n, y); break;
    }
  }
}

/* The squares are summed in double: the mean is then right to fp32's last bit for any width. */
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

static void silu_multiply(float *gate, const float *up, int n) {
  int i = 0;
  for (; i + LANES <= n; i += LANES) {
    vf g = vf_load(gate + i);
    vf_store(gate + i, g / (vf_exp(-g) + 1) * vf_load(up + i));
  }
  for (; i < n; i++) gate[i] = gate[i] / (exp_of(-gate[i]) + 1) * up[i];
}

#define TABLE_NAMED(isa) kernels_##isa
#define TABLE_OF(isa)    TABLE_NAMED(isa)
#define NAME_OF(isa)     #isa
#define NAME(isa)        NAME_OF(isa)

const Kernels TABLE_OF(KERNELS_ISA) = {
    .name = NAME(KERNELS_ISA),
    .product = product,
    .rms_norm = rms_norm,
    .silu_multiply = silu_multiply,
    .append = kv_append,
    .attend = attend_segment,
    .merge = softmax_merge,
};
