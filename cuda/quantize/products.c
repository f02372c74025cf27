/* products.c - matrix products of the forward pass, for the CPU backend. Called by: state.c's table.
 *
 * Weights are in GPU memory, in fp32, from a matrix's first product to forget(). Rows of x and y are copied
 * by way of pinned memory. */
#include "cuda/quantize/state.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/ptx/device.h"
#include "quantize/layer.h"

/* With fewer multiply-adds in a call the CPU is faster than the copies to the GPU and back. */
#define LEAST_WORK ((size_t)1 << 24)

static void fill_weights(const void *user, int row, float *to) {
  const Linear *linear = user;
  linear_read(linear, row, 0, linear->n_in, to);
}

/* *w = a matrix's weights in GPU memory; the first call for the matrix loads them. */
static Status find_weights(const QuantizerState *state, const Linear *linear, const float **w, Error *err) {
  Gpu *gpu = state->gpu;
  for (size_t i = 0; i < gpu->n_loaded; i++) {
    *w = gpu->loaded[i].weights.w;
    if (gpu->loaded[i].linear == linear) return STATUS_OK;
  }
  TRY(mem_grow(&gpu->loaded, &gpu->loaded_capacity, gpu->n_loaded + 1, sizeof *gpu->loaded, "weights", err));
  LoadedLinear *to = &gpu->loaded[gpu->n_loaded];
  *to = (LoadedLinear){linear, {linear->n_out, linear->n_in, 1, NULL}};
  Status status = gpu_load(state, fill_weights, linear, linear->name, &to->weights, err);
  gpu->n_loaded += to->weights.w != NULL; /* also after a failure, so that it is released */
  *w = to->weights.w;
  return status;
}

void gpu_forget(const QuantizerState *state) {
  Gpu *gpu = state->gpu;
  for (size_t i = 0; i < gpu->n_loaded; i++) cudaFree(gpu->loaded[i].weights.w);
  gpu->n_loaded = 0;
}

/* Rows of several products one after another. */
typedef struct {
  const OtherProduct *products;
} ProductRows;

static void fill_row(const void *user, int row, float *to) {
  const OtherProduct *product = ((const ProductRows *)user)->products;
  for (; row >= product->n_rows; product++) row -= product->n_rows;
  memcpy(to, product->x + (size_t)row * product->x_stride, (size_t)product->linear->n_in * sizeof *to);
}

static bool has_same_rows(const OtherProduct *a, const OtherProduct *b) {
  return a->x == b->x && a->n_rows == b->n_rows && a->linear->n_in == b->linear->n_in;
}

/* Copies the x of n products, which have the same n_in, to GPU memory at `there`. Neighbouring products with
 * the same x share one copy. where[i] = the rows of product i. */
static Status send_rows(Gpu *gpu, const OtherProduct *products, int n, float *there, float **where,
                        Error *err) {
  OWNED(mem_release) OtherProduct *sent = NULL;
  TRY(NEW(sent, (size_t)n, "products", err));
  int n_sent = 0, n_rows = 0;
  const size_t n_in = (size_t)products->linear->n_in;
  for (int i = 0; i < n; i++) {
    if (n_sent > 0 && has_same_rows(&products[i], &sent[n_sent - 1])) {
      where[i] = where[i - 1];
      continue;
    }
    where[i] = there + (size_t)n_rows * n_in;
    n_rows += products[i].n_rows;
    sent[n_sent++] = products[i];
  }
  return gpu_send_rows(gpu, fill_row, &(ProductRows){sent}, n_rows, (int)n_in, there, err);
}

static Status multiply_all(const QuantizerState *state, OtherProduct *products, int n, float **where,
                           Error *err) {
  Gpu *gpu = state->gpu;
  size_t floats_in = 0, floats_out = 0, at = 0;
  for (int i = 0; i < n; i++) {
    floats_in += (size_t)products[i].n_rows * (size_t)products[i].linear->n_in;
    floats_out += (size_t)products[i].n_rows * (size_t)products[i].linear->n_out;
  }
  TRY(gpu_grow(&gpu->rows, false, (floats_in + floats_out) * sizeof(float), "inputs", err));
  TRY(gpu_grow(&gpu->results, true, floats_out * sizeof(float), "products", err));
  float *x = gpu->rows.at, *y = x + floats_in, *here = gpu->results.at;
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && products[end].linear->n_in == products[i].linear->n_in;) end++;
    TRY(send_rows(gpu, products + i, end - i, x, where + i, err));
    for (int k = i; k < end; k++) x += (size_t)products[k].n_rows * (size_t)products[k].linear->n_in;
  }
  for (int i = 0; i < n; i++) {
    const Linear *linear = products[i].linear;
    const size_t n_in = (size_t)linear->n_in, n_out = (size_t)linear->n_out;
    const float *w;
    TRY(find_weights(state, linear, &w, err));
    TRY(gpu_product_tf32(gpu, (Rows){where[i], n_in}, products[i].n_rows, (Rows){(float *)(uintptr_t)w, n_in},
                         linear->n_out, linear->n_in, 0, (Rows){y + at, n_out}, err));
    products[i].y = here + at;
    at += (size_t)products[i].n_rows * n_out;
  }
  return gpu_fetch(gpu, here, y, floats_out * sizeof *y, err);
}

Status gpu_multiply(const QuantizerState *state, OtherProduct *products, int n, bool *done, Error *err) {
  size_t work = 0;
  for (int i = 0; i < n; i++) {
    const Linear *linear = products[i].linear;
    const bool reads =
        linear->kind == LINEAR_DENSE || linear->kind == LINEAR_FP8 || linear->kind == LINEAR_AWQ;
    work += (size_t)products[i].n_rows * (size_t)linear->n_in * (size_t)linear->n_out;
    if (!reads || linear->input_skip) return STATUS_OK;
  }
  if (work < LEAST_WORK) return STATUS_OK;
  OWNED(mem_release) float **where = NULL;
  TRY(NEW(where, (size_t)n, "products", err));
  TRY(multiply_all(state, products, n, where, err));
  *done = true;
  return STATUS_OK;
}
