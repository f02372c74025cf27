/* linear.c - the matmuls of a step, split among threads.
 *
 * Called by backend.c. Several rows: a task is a block of columns times a block of rows; scheduling is
 * dynamic. One row: split-K. Each thread takes an equal stretch of the pieces of each matrix, each piece with
 * all its columns, so that it reads weights in memory's order:
 *
 *     piece 0      piece 1      piece 2      piece 3
 *     |------- thread 0 -------|------- thread 1 -------| ...
 *
 * When all threads are done, the pieces of each output are summed. A dense matrix has one piece. */
#include <stdbool.h>

#include "cpu/cpu.h"

#include <omp.h>

enum { MIN_TASK_ROWS = 24, TASKS_A_THREAD = 4, JOIN_COLUMNS = 256 };

static int blocks(int n, int size) {
  return n / size + (n % size != 0);
}

/* Epilogue of a product: bias, activation and residual. `up` holds sums of w, `gate` those of the gate. */
static void finish_row(const Kernels *kernels, const Product *product, int first, int n, float *up,
                       float *gate, float *y) {
  if (product->w.bias) {
    for (int c = 0; c < n; c++) up[c] += product->w.bias[first + c];
  }
  if (product->gate.linear) {
    if (product->gate.bias) {
      for (int c = 0; c < n; c++) gate[c] += product->gate.bias[first + c];
    }
    kernels->activate[product->activation](gate, up, n);
    up = gate;
  }
  if (product->add) {
    for (int c = 0; c < n; c++) y[first + c] += up[c] * product->scale;
  } else {
    for (int c = 0; c < n; c++) y[first + c] = up[c];
  }
}

/* The arguments of run_products(). */
typedef struct {
  const BackendModel *loaded;
  const ProductMemory *memory;
  const float *x;
  size_t x_stride;
  int n_rows;
  const Product *products;
  int n_products;
} Work;

/* A product's matrices in the order of its parts: w, then gate (NULL: none). */
static const Linear *matrix_of(const Product *product, int which) {
  return which == 0 ? product->w.linear : product->gate.linear;
}

/* A block of a matrix for one product_row(): some columns of one piece, or all columns of several pieces. */
typedef struct {
  const Linear *w;
  int piece, pieces_end, first, n;
  float *y;
} Stretch;

/* For six matrices: the rest of a piece, whole pieces, the beginning of a piece. */
enum { MAX_STRETCHES = 3 * 6 };

/* Cuts units [from, to) of a matrix's pieces, laid end to end, into stretches; their sums go to `parts`. */
static int cut_matrix(const Linear *w, float *parts, int64_t from, int64_t to, Stretch *stretches) {
  int n_units = blocks(w->n_out, PRODUCT_UNIT), n = 0;
  while (from < to) {
    int piece = (int)(from / n_units), unit = (int)(from % n_units), n_pieces = 1;
    int64_t stop = to - from < n_units - unit ? to : from + n_units - unit;
    if (unit == 0 && to - from >= n_units) {
      n_pieces = (int)((to - from) / n_units);
      stop = from + (int64_t)n_pieces * n_units;
    }
    int first = unit * PRODUCT_UNIT;
    int end = stop % n_units == 0 ? w->n_out : (int)(stop % n_units) * PRODUCT_UNIT;
    float *y = parts + (size_t)piece * (size_t)w->n_out + first;
    stretches[n++] = (Stretch){w, piece, piece + n_pieces, first, end - first, y};
    from = stop;
  }
  return n;
}

/* The stretches of thread `me`, in order. */
static int cut_work(const Work *work, int me, int n_threads, Stretch *stretches) {
  float *parts = work->memory->parts;
  int n = 0;
  for (int p = 0; p < work->n_products; p++) {
    for (int which = 0; which < 2; which++) {
      const Linear *w = matrix_of(&work->products[p], which);
      if (!w) continue;
      int64_t n_units = (int64_t)product_pieces(w) * blocks(w->n_out, PRODUCT_UNIT);
      n += cut_matrix(w, parts, n_units * me / n_threads, n_units * (me + 1) / n_threads, stretches + n);
      parts += (size_t)product_pieces(w) * (size_t)w->n_out;
    }
  }
  return n;
}

static const void *start_of(const Stretch *stretch) {
  const Linear *w = stretch->w;
  if (w->kind == LINEAR_DENSE || w->kind == LINEAR_INT8) return NULL;
  size_t row = (size_t)product_piece_begin(w, stretch->piece);
  size_t width = (size_t)w->n_out + (size_t)w->skip, at = row * width + (size_t)stretch->first;
  return (const uint8_t *)w->qweight + (w->kind == LINEAR_AWQ || w->bits == 4 ? at / 2 : at);
}

static void run_pieces(const Work *work, int me, int n_threads) {
  Stretch stretches[MAX_STRETCHES];
  int n = cut_work(work, me, n_threads, stretches);
  const char *start = n > 0 ? start_of(stretches) : NULL;
  if (start) {
    for (int byte = 0; byte < FETCH_AHEAD; byte += LINE_BYTES) __builtin_prefetch(start + byte);
  }
  for (int i = 0; i < n; i++) {
    const Stretch *s = &stretches[i];
    const Kernels *kernels = work->loaded->kernels;
    if (s->w->kind == LINEAR_INT8)
      kernels->product_int8(s->w, work->memory->rounded, 1, s->first, s->n, s->y, 0);
    else
      kernels->product_row(s->w, work->x, s->piece, s->pieces_end, s->first, s->n,
                           i + 1 < n ? start_of(s + 1) : NULL, s->y, (size_t)s->w->n_out);
  }
}

/* Sums the pieces of columns [first, first + n) and applies the epilogue. */
static void finish_parts(const Work *work, const Product *product, const float *parts, int first, int n) {
  float tiles[2][JOIN_COLUMNS] __attribute__((aligned(64)));
  for (int which = 0; which < 2; which++) {
    const Linear *w = matrix_of(product, which);
    if (!w) break;
    work->loaded->kernels->join(parts + first, (size_t)w->n_out, product_pieces(w), n, tiles[which]);
    parts += (size_t)product_pieces(w) * (size_t)w->n_out;
  }
  finish_row(work->loaded->kernels, product, first, n, tiles[0], tiles[1], product->y);
}

static void finish_share(const Work *work, int me, int n_threads) {
  const float *parts = work->memory->parts;
  for (int p = 0; p < work->n_products; p++) {
    const Product *product = &work->products[p];
    int n_out = product->w.linear->n_out, n_units = blocks(n_out, PRODUCT_UNIT);
    int first = (int)((int64_t)n_units * me / n_threads) * PRODUCT_UNIT;
    int end = me + 1 == n_threads ? n_out : (int)((int64_t)n_units * (me + 1) / n_threads) * PRODUCT_UNIT;
    for (; first < end; first += JOIN_COLUMNS)
      finish_parts(work, product, parts, first, end - first < JOIN_COLUMNS ? end - first : JOIN_COLUMNS);
    for (int which = 0; which < 2; which++) {
      const Linear *w = matrix_of(product, which);
      if (w) parts += (size_t)product_pieces(w) * (size_t)w->n_out;
    }
  }
}

static void run_row(const Work *work) {
#pragma omp parallel num_threads(work->loaded->n_threads)
  {
    int n = omp_get_num_threads(), me = omp_get_thread_num();
    run_pieces(work, me, n);
#pragma omp barrier
    finish_share(work, me, n);
  }
}

/* One dense product of one row: the lm_head. */
static void run_dense_row(const BackendModel *loaded, const float *x, const Product *product) {
  const Linear *w = product->w.linear;
  int n_units = blocks(w->n_out, JOIN_COLUMNS);
#pragma omp parallel for num_threads(loaded->n_threads)
  for (int unit = 0; unit < n_units; unit++) {
    float tile[JOIN_COLUMNS] __attribute__((aligned(64)));
    int first = unit * JOIN_COLUMNS, n = w->n_out - first < JOIN_COLUMNS ? w->n_out - first : JOIN_COLUMNS;
    loaded->kernels->product_row(w, x, 0, 1, first, n, NULL, tile, 0);
    finish_row(loaded->kernels, product, first, n, tile, NULL, product->y);
  }
}

/* Rows [row, row + n_rows) of x times outputs [first, first + n) of w. */
static void multiply(const Work *work, const Linear *w, int row, int n_rows, int first, int n, float *y) {
  const Kernels *kernels = work->loaded->kernels;
  if (w->kind == LINEAR_INT8) {
    RoundedRows x = work->memory->rounded;
    x.numbers += (size_t)row * x.stride;
    x.scales += row;
    kernels->product_int8(w, x, n_rows, first, n, y, PRODUCT_COLUMNS);
  } else {
    kernels->product_rows(w, work->x + (size_t)row * work->x_stride, work->x_stride, n_rows, first, n, y,
                          PRODUCT_COLUMNS);
  }
}

static void run_tile(const Work *work, const Product *product, int row, int n_rows, int first, int n) {
  float up[PRODUCT_SIZE] __attribute__((aligned(64))), gate[PRODUCT_SIZE] __attribute__((aligned(64)));
  multiply(work, product->w.linear, row, n_rows, first, n, up);
  if (product->gate.linear) multiply(work, product->gate.linear, row, n_rows, first, n, gate);
  for (int r = 0; r < n_rows; r++) {
    size_t at = (size_t)r * PRODUCT_COLUMNS;
    finish_row(work->loaded->kernels, product, first, n, up + at, gate + at,
               product->y + (size_t)(row + r) * product->y_stride);
  }
}

static void run_rows(const Work *work) {
  const Product *products = work->products;
  const int n_threads = work->loaded->n_threads, n_rows = work->n_rows;
  int64_t n_columns = 0; /* in blocks */
  for (int p = 0; p < work->n_products; p++)
    n_columns += blocks(products[p].w.linear->n_out, PRODUCT_COLUMNS);
  int n_blocks = blocks(n_rows, PRODUCT_ROWS);
  while (n_blocks * n_columns < TASKS_A_THREAD * n_threads && n_rows / (n_blocks + 1) >= MIN_TASK_ROWS)
    n_blocks++;
  int task_rows = blocks(blocks(n_rows, n_blocks), TILE_ROWS) * TILE_ROWS;
  n_blocks = blocks(n_rows, task_rows);
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
  for (int64_t task = 0; task < n_blocks * n_columns; task++) {
    int row = (int)(task / n_columns) * task_rows, p = 0;
    int64_t column = task % n_columns;
    for (;; p++) {
      int n = blocks(products[p].w.linear->n_out, PRODUCT_COLUMNS);
      if (column < n) break;
      column -= n;
    }
    int first = (int)column * PRODUCT_COLUMNS, left = products[p].w.linear->n_out - first;
    run_tile(work, &products[p], row, n_rows - row < task_rows ? n_rows - row : task_rows, first,
             left < PRODUCT_COLUMNS ? left : PRODUCT_COLUMNS);
  }
}

/* Rounds all rows to int8 if a matrix of the work is LINEAR_INT8. */
static void round_rows(const Work *work) {
  const RoundedRows *rounded = &work->memory->rounded;
  const int n_in = work->products->w.linear->n_in;
  bool wanted = false;
  for (int p = 0; p < work->n_products; p++) {
    for (int which = 0; which < 2; which++) {
      const Linear *w = matrix_of(&work->products[p], which);
      wanted = wanted || (w && w->kind == LINEAR_INT8);
    }
  }
  if (!wanted) return;
#pragma omp parallel for num_threads(work->n_rows > 1 ? work->loaded->n_threads : 1)
  for (int r = 0; r < work->n_rows; r++)
    rounded->scales[r] = work->loaded->kernels->round_row(work->x + (size_t)r * work->x_stride, n_in,
                                                          rounded->numbers + (size_t)r * rounded->stride);
}

void run_products(const BackendModel *loaded, const ProductMemory *memory, const float *x, size_t x_stride,
                  int n_rows, const Product *products, int n_products) {
  const Work work = {loaded, memory, x, x_stride, n_rows, products, n_products};
  round_rows(&work);
  if (n_rows > 1)
    run_rows(&work);
  else if (n_products == 1 && !products->gate.linear && products->w.linear->kind == LINEAR_DENSE)
    run_dense_row(loaded, x, products);
  else
    run_row(&work);
}
