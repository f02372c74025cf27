/* linear.c - the matmuls of a step, split among threads.
 *
 * Called by backend.c. Many rows: a task is a block of columns times a block of rows; scheduling is dynamic.
 * A few rows: split-K. Each thread takes an equal stretch of the splits of each matrix, each split
 * with all its columns, so that it reads weights in memory's order, once for all rows:
 *
 *     split 0      split 1      split 2      split 3
 *     |------- thread 0 -------|------- thread 1 -------| ...
 *
 * When all threads are done, the splits of each output are summed. A matrix whose weights lie
 * output by output has one split. */
#include <stdbool.h>

#include "cpu/cpu.h"

#include <omp.h>

enum { MIN_TASK_ROWS = 24, TASKS_A_THREAD = 4, JOIN_COLUMNS = 256 };

static int blocks(int n, int size) {
  return n / size + (n % size != 0);
}

/* Epilogue of a matmul: bias, activation and residual. `up` holds sums of w, `gate` those of the gate. */
static void finish_row(const Kernels *kernels, const Matmul *matmul, int first, int n, float *up, float *gate,
                       float *y) {
  if (matmul->w.bias) {
    for (int c = 0; c < n; c++) up[c] += matmul->w.bias[first + c];
  }
  if (matmul->gate.linear) {
    if (matmul->gate.bias) {
      for (int c = 0; c < n; c++) gate[c] += matmul->gate.bias[first + c];
    }
    kernels->activate[matmul->activation](gate, up, n);
    up = gate;
  }
  if (matmul->add) {
    for (int c = 0; c < n; c++) y[first + c] += up[c] * matmul->scale;
  } else {
    for (int c = 0; c < n; c++) y[first + c] = up[c];
  }
}

enum { MAX_MATRICES = 8 };

/* The arguments of run_matmuls(), and the matrices of matmul p: 2 p is its w, 2 p + 1 its gate or NULL. */
typedef struct {
  const BackendModel *loaded;
  const MatmulScratch *memory;
  const float *x;
  size_t x_stride;
  int n_rows;
  const Matmul *matmuls;
  int n_matmuls;
  const Linear *w[MAX_MATRICES];
  size_t parts[MAX_MATRICES]; /* the offset in memory->parts of [matmul_splits(w)][n_rows][n_out] sums */
} MatmulWork;

/* A block of a matrix for one matmul_few(): some columns of one split, or all columns of several splits. */
typedef struct {
  const Linear *w;
  int split, splits_end, first, n;
  float *y;
} Stretch;

/* The rest of a split, whole splits, the beginning of a split. */
enum { MAX_STRETCHES = 3 * MAX_MATRICES };

/* Cuts units [from, to) of a matrix's splits, laid end to end, into stretches; the sums of n_rows rows go to
 * `parts`. */
static int cut_matrix(const Linear *w, int n_rows, float *parts, int64_t from, int64_t to,
                      Stretch *stretches) {
  int n_units = blocks(w->n_out, MATMUL_UNIT), n = 0;
  while (from < to) {
    int split = (int)(from / n_units), unit = (int)(from % n_units), n_splits = 1;
    int64_t stop = to - from < n_units - unit ? to : from + n_units - unit;
    if (unit == 0 && to - from >= n_units) {
      n_splits = (int)((to - from) / n_units);
      stop = from + (int64_t)n_splits * n_units;
    }
    int first = unit * MATMUL_UNIT;
    int end = stop % n_units == 0 ? w->n_out : (int)(stop % n_units) * MATMUL_UNIT;
    float *y = parts + (size_t)split * (size_t)n_rows * (size_t)w->n_out + first;
    stretches[n++] = (Stretch){w, split, split + n_splits, first, end - first, y};
    from = stop;
  }
  return n;
}

/* The stretches of thread `me`, in order. */
static int cut_work(const MatmulWork *work, int me, int n_threads, Stretch *stretches) {
  int n = 0;
  for (int i = 0; i < 2 * work->n_matmuls; i++) {
    const Linear *w = work->w[i];
    if (!w) continue;
    int64_t n_units = (int64_t)matmul_splits(w) * blocks(w->n_out, MATMUL_UNIT);
    n += cut_matrix(w, work->n_rows, work->memory->parts + work->parts[i], n_units * me / n_threads,
                    n_units * (me + 1) / n_threads, stretches + n);
  }
  return n;
}

static const void *start_of(const Stretch *stretch) {
  const Linear *w = stretch->w;
  if (matmul_by_outputs(w)) return NULL;
  size_t row = (size_t)matmul_split_begin(w, stretch->split);
  size_t width = (size_t)w->n_out + (size_t)w->skip, at = row * width + (size_t)stretch->first;
  return (const uint8_t *)w->qweight + (w->kind == LINEAR_AWQ || w->bits == 4 ? at / 2 : at);
}

static void run_splits(const MatmulWork *work, int me, int n_threads) {
  Stretch stretches[MAX_STRETCHES];
  int n = cut_work(work, me, n_threads, stretches);
  const char *start = n > 0 ? start_of(stretches) : NULL;
  if (start) {
    for (int byte = 0; byte < FETCH_AHEAD; byte += LINE_BYTES) __builtin_prefetch(start + byte);
  }
  const InputRows x = {work->x, work->x_stride, work->n_rows};
  for (int i = 0; i < n; i++) {
    const Stretch *s = &stretches[i];
    const Kernels *kernels = work->loaded->kernels;
    const size_t n_out = (size_t)s->w->n_out;
    if (s->w->kind == LINEAR_INT8)
      kernels->matmul_int8(s->w, work->memory->rounded, x.n, s->first, s->n, s->y, n_out);
    else
      kernels->matmul_few(s->w, x, s->split, s->splits_end, s->first, s->n,
                          i + 1 < n ? start_of(s + 1) : NULL,
                          (PartialSums){s->y, (size_t)x.n * n_out, n_out});
  }
}

/* Sums the splits of columns [first, first + n) of matmul p and applies the epilogue, row by row. */
static void finish_columns(const MatmulWork *work, int p, int first, int n) {
  float tiles[2][JOIN_COLUMNS] __attribute__((aligned(64)));
  const Matmul *matmul = &work->matmuls[p];
  for (size_t r = 0; r < (size_t)work->n_rows; r++) {
    for (int which = 0; which < 2; which++) {
      const Linear *w = work->w[2 * p + which];
      if (!w) break;
      const size_t n_out = (size_t)w->n_out;
      const float *parts = work->memory->parts + work->parts[2 * p + which] + r * n_out + first;
      work->loaded->kernels->join(parts, (size_t)work->n_rows * n_out, matmul_splits(w), n, tiles[which]);
    }
    finish_row(work->loaded->kernels, matmul, first, n, tiles[0], tiles[1], matmul->y + r * matmul->y_stride);
  }
}

static void finish_share(const MatmulWork *work, int me, int n_threads) {
  for (int p = 0; p < work->n_matmuls; p++) {
    int n_out = work->w[2 * p]->n_out, n_units = blocks(n_out, MATMUL_UNIT);
    int first = (int)((int64_t)n_units * me / n_threads) * MATMUL_UNIT;
    int end = me + 1 == n_threads ? n_out : (int)((int64_t)n_units * (me + 1) / n_threads) * MATMUL_UNIT;
    for (; first < end; first += JOIN_COLUMNS)
      finish_columns(work, p, first, end - first < JOIN_COLUMNS ? end - first : JOIN_COLUMNS);
  }
}

static void run_few(const MatmulWork *work) {
#pragma omp parallel num_threads(work->loaded->n_threads)
  {
    int n = omp_get_num_threads(), me = omp_get_thread_num();
    run_splits(work, me, n);
#pragma omp barrier
    finish_share(work, me, n);
  }
}

/* True if threads may share the outputs without parts: int8 kernels take rows rounded. */
static bool is_shared_by_outputs(const Linear *w) {
  return matmul_by_outputs(w) && w->kind != LINEAR_INT8;
}

/* One matmul of a few rows by outputs: a dense lm_head. */
static void run_few_by_outputs(const MatmulWork *work) {
  const BackendModel *loaded = work->loaded;
  const Matmul *matmul = work->matmuls;
  const Linear *w = matmul->w.linear;
  const InputRows x = {work->x, work->x_stride, work->n_rows};
  int n_units = blocks(w->n_out, JOIN_COLUMNS);
#pragma omp parallel for num_threads(loaded->n_threads)
  for (int unit = 0; unit < n_units; unit++) {
    float tile[FEW_ROWS * JOIN_COLUMNS] __attribute__((aligned(64)));
    int first = unit * JOIN_COLUMNS, n = w->n_out - first < JOIN_COLUMNS ? w->n_out - first : JOIN_COLUMNS;
    loaded->kernels->matmul_few(w, x, 0, 1, first, n, NULL, (PartialSums){tile, 0, JOIN_COLUMNS});
    for (size_t r = 0; r < (size_t)x.n; r++)
      finish_row(loaded->kernels, matmul, first, n, tile + r * JOIN_COLUMNS, NULL,
                 matmul->y + r * matmul->y_stride);
  }
}

/* Rows [row, row + n_rows) of x times outputs [first, first + n) of w. */
static void multiply(const MatmulWork *work, const Linear *w, int row, int n_rows, int first, int n,
                     float *y) {
  const Kernels *kernels = work->loaded->kernels;
  if (w->kind == LINEAR_INT8) {
    RoundedRows x = work->memory->rounded;
    x.numbers += (size_t)row * x.stride;
    x.scales += row;
    kernels->matmul_int8(w, x, n_rows, first, n, y, MATMUL_COLUMNS);
  } else {
    kernels->matmul_rows(w, work->x + (size_t)row * work->x_stride, work->x_stride, n_rows, first, n, y,
                         MATMUL_COLUMNS);
  }
}

static void run_tile(const MatmulWork *work, const Matmul *matmul, int row, int n_rows, int first, int n) {
  float up[MATMUL_SIZE] __attribute__((aligned(64))), gate[MATMUL_SIZE] __attribute__((aligned(64)));
  multiply(work, matmul->w.linear, row, n_rows, first, n, up);
  if (matmul->gate.linear) multiply(work, matmul->gate.linear, row, n_rows, first, n, gate);
  for (int r = 0; r < n_rows; r++) {
    size_t at = (size_t)r * MATMUL_COLUMNS;
    finish_row(work->loaded->kernels, matmul, first, n, up + at, gate + at,
               matmul->y + (size_t)(row + r) * matmul->y_stride);
  }
}

static void run_rows(const MatmulWork *work) {
  const Matmul *matmuls = work->matmuls;
  const int n_threads = work->loaded->n_threads, n_rows = work->n_rows;
  int64_t n_columns = 0; /* in blocks */
  for (int p = 0; p < work->n_matmuls; p++) n_columns += blocks(matmuls[p].w.linear->n_out, MATMUL_COLUMNS);
  int n_blocks = blocks(n_rows, MATMUL_ROWS);
  while (n_blocks * n_columns < TASKS_A_THREAD * n_threads && n_rows / (n_blocks + 1) >= MIN_TASK_ROWS)
    n_blocks++;
  int task_rows = blocks(blocks(n_rows, n_blocks), TILE_ROWS) * TILE_ROWS;
  n_blocks = blocks(n_rows, task_rows);
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
  for (int64_t task = 0; task < n_blocks * n_columns; task++) {
    int row = (int)(task / n_columns) * task_rows, p = 0;
    int64_t column = task % n_columns;
    for (;; p++) {
      int n = blocks(matmuls[p].w.linear->n_out, MATMUL_COLUMNS);
      if (column < n) break;
      column -= n;
    }
    int first = (int)column * MATMUL_COLUMNS, left = matmuls[p].w.linear->n_out - first;
    run_tile(work, &matmuls[p], row, n_rows - row < task_rows ? n_rows - row : task_rows, first,
             left < MATMUL_COLUMNS ? left : MATMUL_COLUMNS);
  }
}

/* Rounds all rows to int8 if a matrix of the work is LINEAR_INT8. */
static void round_rows(const MatmulWork *work) {
  const RoundedRows *rounded = &work->memory->rounded;
  const int n_in = work->matmuls->w.linear->n_in;
  bool wanted = false;
  for (int i = 0; i < 2 * work->n_matmuls; i++)
    wanted = wanted || (work->w[i] && work->w[i]->kind == LINEAR_INT8);
  if (!wanted) return;
#pragma omp parallel for num_threads(work->n_rows > 1 ? work->loaded->n_threads : 1)
  for (int r = 0; r < work->n_rows; r++)
    rounded->scales[r] = work->loaded->kernels->round_row(work->x + (size_t)r * work->x_stride, n_in,
                                                          rounded->numbers + (size_t)r * rounded->stride);
}

void run_matmuls(const BackendModel *loaded, const MatmulScratch *memory, const float *x, size_t x_stride,
                 int n_rows, const Matmul *matmuls, int n_matmuls) {
  MatmulWork work = {loaded, memory, x, x_stride, n_rows, matmuls, n_matmuls, {0}, {0}};
  size_t parts = 0;
  for (int i = 0; i < 2 * n_matmuls; i++) {
    const Linear *w = i % 2 ? matmuls[i / 2].gate.linear : matmuls[i / 2].w.linear;
    work.w[i] = w;
    work.parts[i] = parts;
    if (w) parts += (size_t)matmul_splits(w) * (size_t)n_rows * (size_t)w->n_out;
  }
  round_rows(&work);
  if (n_rows > loaded->kernels->few_rows)
    run_rows(&work);
  else if (n_matmuls == 1 && !matmuls->gate.linear && is_shared_by_outputs(matmuls->w.linear))
    run_few_by_outputs(&work);
  else
    run_few(&work);
}
