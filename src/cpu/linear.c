/* linear.c - the matrix products of a step, split among threads.
 *
 * Called by backend.c. One row: each thread takes a contiguous share of all columns of all products (the weights stream
 * past once). Several rows: tasks of a block of columns and a block of rows, taken as threads come free. */
#include <stdbool.h>

#include "cpu/cpu.h"

#include <omp.h>

enum { MIN_TASK_ROWS = 24, TASKS_A_THREAD = 4 };

static int blocks(int n, int size) {
  return n / size + (n % size != 0);
}

/* What becomes of a finished tile of sums. `up` is w's, `gate` the gate's where there is one. */
static void finish_row(const Kernels *kernels, const Product *product, int first, int n, float *up,
                       float *gate, float *y) {
  if (product->w.bias) {
    for (int c = 0; c < n; c++) up[c] += product->w.bias[first + c];
  }
  if (product->gate.linear) {
    if (product->gate.bias) {
      for (int c = 0; c < n; c++) gate[c] += product->gate.bias[first + c];
    }
    kernels->silu_multiply(gate, up, n);
    up = gate;
  }
  if (product->add) {
    for (int c = 0; c < n; c++) y[first + c] += up[c];
  } else {
    for (int c = 0; c < n; c++) y[first + c] = up[c];
  }
}

static void run_tile(const Kernels *kernels, const Product *product, const float *x, size_t x_stride,
                     int n_rows, int row, int first, int n) {
  float up[PRODUCT_SIZE] __attribute__((aligned(64))), gate[PRODUCT_SIZE] __attribute__((aligned(64)));
  const float *from = x + (size_t)row * x_stride;
  kernels->product(product->w.linear, from, x_stride, n_rows, first, n, up, PRODUCT_COLUMNS);
  if (product->gate.linear)
    kernels->product(product->gate.linear, from, x_stride, n_rows, first, n, gate, PRODUCT_COLUMNS);
  for (int r = 0; r < n_rows; r++) {
    size_t at = (size_t)r * PRODUCT_COLUMNS;
    finish_row(kernels, product, first, n, up + at, gate + at,
               product->y + (size_t)(row + r) * product->y_stride);
  }
}

/* Units [begin, end) of all products' columns laid end to end. */
static void run_share(const Kernels *kernels, const float *x, const Product *products, int n_products,
                      int64_t begin, int64_t end) {
  int64_t base = 0;
  for (int p = 0; p < n_products; p++) {
    int n_out = products[p].w.linear->n_out, n_units = blocks(n_out, PRODUCT_UNIT);
    int64_t from = begin > base ? begin - base : 0, to = end - base < n_units ? end - base : n_units;
    while (from < to) {
      int64_t stop = to - from < PRODUCT_SIZE / PRODUCT_UNIT ? to : from + PRODUCT_SIZE / PRODUCT_UNIT;
      int first = (int)from * PRODUCT_UNIT;
      int n = stop * PRODUCT_UNIT < n_out ? (int)stop * PRODUCT_UNIT - first : n_out - first;
      run_tile(kernels, &products[p], x, 0, 1, 0, first, n);
      from = stop;
    }
    base += n_units;
  }
}

static void run_row(const BackendModel *loaded, const float *x, const Product *products, int n_products) {
  int64_t n_units = 0;
  for (int p = 0; p < n_products; p++) n_units += blocks(products[p].w.linear->n_out, PRODUCT_UNIT);
#pragma omp parallel num_threads(loaded->n_threads)
  {
    int n = omp_get_num_threads(), me = omp_get_thread_num();
    run_share(loaded->kernels, x, products, n_products, n_units * me / n, n_units * (me + 1) / n);
  }
}

static void run_rows(const BackendModel *loaded, const float *x, size_t x_stride, int n_rows,
                     const Product *products, int n_products) {
  int64_t n_columns = 0; /* in blocks */
  for (int p = 0; p < n_products; p++) n_columns += blocks(products[p].w.linear->n_out, PRODUCT_COLUMNS);
  int n_blocks = blocks(n_rows, PRODUCT_ROWS);
  while (n_blocks * n_columns < TASKS_A_THREAD * loaded->n_threads &&
         n_rows / (n_blocks + 1) >= MIN_TASK_ROWS)
    n_blocks++;
  int task_rows = blocks(blocks(n_rows, n_blocks), 6) * 6; /* whole tiles of outer.h */
  n_blocks = blocks(n_rows, task_rows);
#pragma omp parallel for schedule(dynamic) num_threads(loaded->n_threads)
  for (int64_t task = 0; task < n_blocks * n_columns; task++) {
    int row = (int)(task / n_columns) * task_rows, p = 0;
    int64_t column = task % n_columns;
    for (;; p++) {
      int n = blocks(products[p].w.linear->n_out, PRODUCT_COLUMNS);
      if (column < n) break;
      column -= n;
    }
    int first = (int)column * PRODUCT_COLUMNS, left = products[p].w.linear->n_out - first;
    run_tile(loaded->kernels, &products[p], x, x_stride, n_rows - row < task_rows ? n_rows - row : task_rows,
             row, first, left < PRODUCT_COLUMNS ? left : PRODUCT_COLUMNS);
  }
}

void run_products(const BackendModel *loaded, const float *x, size_t x_stride, int n_rows,
                  const Product *products, int n_products) {
  if (n_rows == 1)
    run_row(loaded, x, products, n_products);
  else
    run_rows(loaded, x, x_stride, n_rows, products, n_products);
}
