/* linear.c - the matmuls of a step, split among threads.
 *
 * Many rows: a task is a block of columns (outputs) times a block of rows; threads take tasks one by one. A
 * few rows: split-K. Imagine the splits of all matrices of a call end to end. Each thread takes an equal
 * stretch of the first half of their bytes, then small pieces of the other half one by one. So a slower core
 * does not keep the others waiting. With few threads or few bytes all bytes are shared equally
 * (shared_first()). A stretch has all columns of each whole split in it, so that weights are read in memory's
 * order, once for all rows:
 *
 *     w: split 0      split 1      split 2      split 3    gate: split 0      split 1   ...
 *        |--- thread 0 ---|--- thread 1 ---|--- thread 2 ---| ... | piece | piece | piece | ...
 *
 * When all threads are done, the splits of each output are summed. A matrix whose weights lie output by
 * output has one split; alone in a call, it may be divided by outputs instead (is_shared_by_outputs()). */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cpu/cpu.h"

#include <omp.h>

enum { MIN_TASK_ROWS = 24, TASKS_A_THREAD = 4, JOIN_COLUMNS = 256 };

/* For a few rows. PIECES_A_THREAD: pieces that would make up a thread's equal share of all bytes;
 * LEAST_PIECE: bytes of the smallest piece; PIECES_FROM_THREADS: with fewer threads nothing is cut. Without
 * pieces 2 threads are up to 8% faster (a dense model of 0.6B, two cores), 15 threads 12% slower (experts of
 * 2.4 MB, 16 cores of an Intel Xeon). */
enum { PIECES_A_THREAD = 16, LEAST_PIECE = 16384, PIECES_FROM_THREADS = 4 };

static int blocks(int n, int size) {
  return n / size + (n % size != 0);
}

/* Epilogue of a matmul: bias, activation and residual. `up` holds the sums of matmul->w, `gate` those of
 * matmul->gate. */
static void finish_row(const Kernels *kernels, const Matmul *matmul, int first, int n, float *up, float *gate,
                       float *y) {
  if (matmul->w.bias) {
    for (int c = 0; c < n; c++) up[c] += matmul->w.bias[first + c];
  }
  if (matmul->gate.linear) {
    if (matmul->gate.bias) {
      for (int c = 0; c < n; c++) gate[c] += matmul->gate.bias[first + c];
    }
    if (matmul->scaled)
      for (int c = 0; c < n; c++) gate[c] *= matmul->gate_scale, up[c] *= matmul->up_scale;
    kernels->activate(matmul->activation, &matmul->numbers, gate, up, n);
    up = gate;
  } else if (matmul->own_gate) {
    kernels->activate(matmul->activation, &matmul->numbers, up, up, n);
  }
  if (matmul->add) {
    for (int c = 0; c < n; c++) y[first + c] += up[c] * matmul->scale;
  } else {
    for (int c = 0; c < n; c++) y[first + c] = up[c];
  }
}

/* MAX_GROUPS: most groups whose splits one run_few() shares among threads. */
enum {
  MAX_GROUPS = 32,
  MAX_MATRICES = 2 * MAX_GROUPS,
  LINE_UNITS = 2 * LINE_BYTES / MATMUL_UNIT, /* MATMUL_UNITs of 4-bit weights in a cache line */
};

/* Groups that run together, and their matrices: matrix 2 g is group g's w, matrix 2 g + 1 its gate or NULL
 * (matrix_of()). */
typedef struct {
  const BackendState *state;
  const MatmulGroup *groups;
  int n_groups;
  int64_t bytes;                               /* bytes of all matrices */
  alignas(LINE_BYTES) _Atomic int64_t claimed; /* bytes that are taken: where the next piece begins */
} MatmulWork;

static const Linear *matrix_of(const MatmulWork *work, int i) {
  const Matmul *matmul = &work->groups[i / 2].matmul;
  return i % 2 ? matmul->gate.linear : matmul->w.linear;
}

/* The number of a matrix's partial sums, [matmul_splits(w)][n_rows][n_out]; 0 for w NULL. */
static size_t n_parts(const Linear *w, int n_rows) {
  return w ? (size_t)matmul_splits(w) * (size_t)n_rows * (size_t)w->n_out : 0;
}

/* A block of a matrix for one matmul_few(): some columns of one split, or all columns of several splits. */
typedef struct {
  const Linear *w;
  const MatmulGroup *group;
  int split, splits_end, first, n;
  float *y;
} Stretch;

/* Up to three for each matrix: the rest of a split, whole splits, the beginning of a split. */
enum { MAX_STRETCHES = 3 * MAX_MATRICES };

/* Cuts units [from, to) of a matrix's splits, laid end to end, into stretches. Their sums go to `parts`. A
 * unit is MATMUL_UNIT columns of a split. Returns the number of stretches. */
static int cut_matrix(const Linear *w, const MatmulGroup *group, float *parts, int64_t from, int64_t to,
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
    float *y = parts + (size_t)split * (size_t)group->n_rows * (size_t)w->n_out + first;
    stretches[n++] = (Stretch){w, group, split, split + n_splits, first, end - first, y};
    from = stop;
  }
  return n;
}

/* Bytes of n adjacent weights of a matrix that lies input by input. */
static size_t weight_bytes(const Linear *w, size_t n) {
  return w->kind == LINEAR_AWQ || w->bits == 4 ? n / 2 : n;
}

static int64_t bytes_of(const Linear *w) {
  const size_t bits = w->kind == LINEAR_DENSE ? 8 * dtype_bytes(w->dtype) : (size_t)w->bits;
  return (int64_t)((size_t)w->n_in * (size_t)w->n_out * bits / 8);
}

/* True if each thread's share is long enough to be cut into pieces of LEAST_PIECE bytes or more. */
static bool has_long_shares(const MatmulWork *work) {
  return work->bytes >= LEAST_PIECE * PIECES_A_THREAD * work->state->loaded->n_threads;
}

/* The unit of w in which byte `at` lies; 0 or the number of units if `at` is before or after the matrix. With
 * long shares, wide rows of weights that lie input by input are cut at cache lines: otherwise two threads
 * would read the same line. */
static int64_t unit_at(const MatmulWork *work, const Linear *w, int64_t at) {
  const int64_t bytes = bytes_of(w), n_blocks = blocks(w->n_out, MATMUL_UNIT),
                n_units = matmul_splits(w) * n_blocks;
  if (at <= 0) return 0;
  if (at >= bytes) return n_units;
  const int64_t unit = at * n_units / bytes;
  const bool at_line = n_blocks >= 4 * LINE_UNITS && !matmul_by_outputs(w) && has_long_shares(work);
  return at_line ? unit - unit % n_blocks % LINE_UNITS : unit;
}

/* Cuts bytes [from, to) of the matrices, laid end to end, into stretches. Returns the number of stretches. */
static int cut_work(const MatmulWork *work, int64_t from, int64_t to, Stretch *stretches) {
  int n = 0;
  float *parts = work->state->scratch.parts;
  for (int i = 0; i < 2 * work->n_groups && to > 0; i++) {
    const Linear *w = matrix_of(work, i);
    if (!w) continue;
    n += cut_matrix(w, &work->groups[i / 2], parts, unit_at(work, w, from), unit_at(work, w, to),
                    stretches + n);
    from -= bytes_of(w), to -= bytes_of(w);
    parts += n_parts(w, work->groups[i / 2].n_rows);
  }
  return n;
}

/* The bytes that are shared equally at first: all with few threads or short shares, else half. Short shares
 * have no pieces: a narrow piece lies on as many memory pages as a wide one, so address translation costs as
 * much. */
static int64_t shared_first(const MatmulWork *work) {
  const bool has_pieces = work->state->loaded->n_threads >= PIECES_FROM_THREADS && has_long_shares(work);
  return has_pieces ? work->bytes / 2 : work->bytes;
}

/* Takes the next piece of the second half for one of n threads. Returns the number of its stretches, 0 if
 * none is left. */
static int claim_piece(MatmulWork *work, int n_threads, Stretch *stretches) {
  const int64_t piece = work->bytes / (PIECES_A_THREAD * n_threads) + 1;
  for (int64_t at; (at = atomic_fetch_add(&work->claimed, piece)) < work->bytes;) {
    const int n = cut_work(work, at, at + piece, stretches);
    if (n > 0) return n;
  }
  return 0;
}

static const NextWeights none = {NULL, 0, 0};

/* Where a stretch's weights lie, for prefetching; none for matrices that lie output by output. */
static NextWeights weights_of(const Stretch *stretch) {
  const Linear *w = stretch->w;
  if (matmul_by_outputs(w)) return none;
  const size_t step = weight_bytes(w, (size_t)w->n_out + (size_t)w->skip),
               row = (size_t)matmul_split_begin(w, stretch->split);
  return (NextWeights){(const uint8_t *)w->qweight + row * step + weight_bytes(w, (size_t)stretch->first),
                       weight_bytes(w, (size_t)stretch->n), step};
}

/* The rounded rows from `first` on. */
static RoundedRows rounded_rows(const BackendState *state, int first) {
  RoundedRows rows = state->scratch.rounded;
  rows.numbers += (size_t)first * rows.stride;
  rows.scales += first;
  return rows;
}

static void run_stretch(const MatmulWork *work, const Stretch *s, NextWeights next) {
  const Kernels *kernels = work->state->loaded->kernels;
  const MatmulGroup *group = s->group;
  const size_t n_out = (size_t)s->w->n_out, n_rows = (size_t)group->n_rows;
  if (s->w->kind == LINEAR_INT8)
    kernels->matmul_int8(s->w, rounded_rows(work->state, group->rounded), group->n_rows, s->first, s->n, s->y,
                         n_out);
  else
    kernels->matmul_few(s->w, (InputRows){group->x, group->x_stride, group->n_rows}, s->split, s->splits_end,
                        s->first, s->n, next, (PartialSums){s->y, n_rows * n_out, n_out});
}

/* Prefetches the first FETCH_AHEAD bytes of a thread's first weights; a narrow row counts as a line. */
static void fetch(NextWeights first) {
  const char *row = first.start;
  const size_t width = first.width > LINE_BYTES ? first.width : LINE_BYTES;
  for (size_t fetched = 0; row && fetched < FETCH_AHEAD; fetched += width, row += first.step)
    for (size_t byte = 0; byte < first.width && fetched + byte < FETCH_AHEAD; byte += LINE_BYTES)
      __builtin_prefetch(row + byte);
}

static void run_splits(MatmulWork *work, int me, int n_threads) {
  Stretch stretches[2][MAX_STRETCHES];
  const int64_t bytes = shared_first(work);
  int n = cut_work(work, bytes * me / n_threads, bytes * (me + 1) / n_threads, stretches[0]);
  if (n > 0) fetch(weights_of(stretches[0]));
  for (int turn = 0, more = 1; n > 0 || more > 0; turn ^= 1, n = more) {
    const Stretch *now = stretches[turn], *then = stretches[turn ^ 1];
    /* The next piece is claimed before `now` runs: the end of `now` prefetches the piece's first weights. */
    more = claim_piece(work, n_threads, stretches[turn ^ 1]);
    for (int i = 0; i < n; i++) {
      const Stretch *next = i + 1 < n ? &now[i + 1] : more > 0 ? then : NULL;
      run_stretch(work, &now[i], next ? weights_of(next) : none);
    }
  }
}

/* Sums the splits of columns [first, first + n) of a group and applies the epilogue, row by row. The sums of
 * the splits begin at `parts`. */
static void finish_columns(const MatmulWork *work, int g, const float *parts, int first, int n) {
  float tiles[2][JOIN_COLUMNS] __attribute__((aligned(64)));
  const MatmulGroup *group = &work->groups[g];
  const Matmul *matmul = &group->matmul;
  const size_t n_rows = (size_t)group->n_rows;
  for (size_t r = 0; r < n_rows; r++) {
    const float *from = parts;
    for (int which = 0; which < 2; which++) {
      const Linear *w = matrix_of(work, 2 * g + which);
      if (!w) break;
      const size_t n_out = (size_t)w->n_out;
      work->state->loaded->kernels->join(from + r * n_out + first, n_rows * n_out, matmul_splits(w), n,
                                         tiles[which]);
      from += n_parts(w, group->n_rows);
    }
    finish_row(work->state->loaded->kernels, matmul, first, n, tiles[0], tiles[1],
               matmul->y + r * matmul->y_stride);
  }
}

static void finish_share(const MatmulWork *work, int me, int n_threads) {
  const float *parts = work->state->scratch.parts;
  for (int g = 0; g < work->n_groups; g++) {
    int n_out = matrix_of(work, 2 * g)->n_out, n_units = blocks(n_out, MATMUL_UNIT);
    int first = (int)((int64_t)n_units * me / n_threads) * MATMUL_UNIT;
    int end = me + 1 == n_threads ? n_out : (int)((int64_t)n_units * (me + 1) / n_threads) * MATMUL_UNIT;
    for (; first < end; first += JOIN_COLUMNS)
      finish_columns(work, g, parts, first, end - first < JOIN_COLUMNS ? end - first : JOIN_COLUMNS);
    const int n_rows = work->groups[g].n_rows;
    parts += n_parts(matrix_of(work, 2 * g), n_rows) + n_parts(matrix_of(work, 2 * g + 1), n_rows);
  }
}

/* The part of thread `me` of n, in a parallel region of OpenMP or as a job of the model's team. */
static void run_share(void *given, int me, int n) {
  MatmulWork *work = given;
  run_splits(work, me, n);
  if (work->state->loaded->team) {
    team_wait(work->state->loaded->team);
  } else {
#pragma omp barrier
  }
  finish_share(work, me, n);
}

/* Calls part(context, me, n) in all threads, those of the model's team or OpenMP's, and waits for them. */
static void run_in_parallel(const BackendState *state, TeamWork *part, void *context) {
  const BackendModel *loaded = state->loaded;
  if (loaded->team) {
    team_run(loaded->team, part, context);
    return;
  }
#pragma omp parallel num_threads(loaded->n_threads)
  part(context, omp_get_thread_num(), omp_get_num_threads());
}

typedef struct {
  int n;
  SharedItem *item;
  void *context;
} SharedItems;

static void run_items(void *given, int me, int n_threads) {
  const SharedItems *items = given;
  const int end = (int)((int64_t)items->n * (me + 1) / n_threads);
  for (int i = (int)((int64_t)items->n * me / n_threads); i < end; i++) items->item(items->context, i);
}

void cpu_share(const BackendState *state, int n, SharedItem *item, void *context) {
  SharedItems items = {n, item, context};
  if (n > 1)
    run_in_parallel(state, run_items, &items);
  else
    run_items(&items, 0, 1);
}

static void run_few(MatmulWork *work) {
  for (int i = 0; i < 2 * work->n_groups; i++)
    if (matrix_of(work, i)) work->bytes += bytes_of(matrix_of(work, i));
  work->claimed = shared_first(work);
  run_in_parallel(work->state, run_share, work);
}

/* True if threads may divide w's matmul with a few rows by outputs, without partial sums. LINEAR_INT8 is
 * excluded, since its rows must be rounded first. */
static bool is_shared_by_outputs(const Linear *w) {
  return matmul_by_outputs(w) && w->kind != LINEAR_INT8;
}

/* One matmul of a few rows that threads divide by outputs, such as a dense lm_head. */
typedef struct {
  const Kernels *kernels;
  InputRows x;
  const Matmul *matmul;
} OutputWork;

static void run_output_block(void *given, int unit) {
  const OutputWork *work = given;
  const InputRows x = work->x;
  const Matmul *matmul = work->matmul;
  const Kernels *kernels = work->kernels;
  const int first = unit * JOIN_COLUMNS, left = matmul->w.linear->n_out - first,
            n = left < JOIN_COLUMNS ? left : JOIN_COLUMNS;
  float tile[FEW_ROWS * JOIN_COLUMNS] __attribute__((aligned(64)));
  kernels->matmul_few(matmul->w.linear, x, 0, 1, first, n, none, (PartialSums){tile, 0, JOIN_COLUMNS});
  for (size_t r = 0; r < (size_t)x.n; r++)
    finish_row(kernels, matmul, first, n, tile + r * JOIN_COLUMNS, NULL, matmul->y + r * matmul->y_stride);
}

/* Rows [row, row + n_rows) of a group times outputs [first, first + n) of w. */
static void multiply(const MatmulWork *work, const MatmulGroup *group, const Linear *w, int row, int n_rows,
                     int first, int n, float *y) {
  const Kernels *kernels = work->state->loaded->kernels;
  if (w->kind == LINEAR_INT8)
    kernels->matmul_int8(w, rounded_rows(work->state, group->rounded + row), n_rows, first, n, y,
                         MATMUL_COLUMNS);
  else
    kernels->matmul_rows(w, group->x + (size_t)row * group->x_stride, group->x_stride, n_rows, first, n, y,
                         MATMUL_COLUMNS);
}

static void run_tile(const MatmulWork *work, const MatmulGroup *group, int row, int n_rows, int first,
                     int n) {
  const Matmul *matmul = &group->matmul;
  float up[MATMUL_SIZE] __attribute__((aligned(64))), gate[MATMUL_SIZE] __attribute__((aligned(64)));
  multiply(work, group, matmul->w.linear, row, n_rows, first, n, up);
  if (matmul->gate.linear) multiply(work, group, matmul->gate.linear, row, n_rows, first, n, gate);
  for (int r = 0; r < n_rows; r++) {
    size_t at = (size_t)r * MATMUL_COLUMNS;
    finish_row(work->state->loaded->kernels, matmul, first, n, up + at, gate + at,
               matmul->y + (size_t)(row + r) * matmul->y_stride);
  }
}

static int column_blocks(const MatmulGroup *group) {
  return blocks(group->matmul.w.linear->n_out, MATMUL_COLUMNS);
}

/* Sets task_rows: cuts the group's rows into blocks of at most MATMUL_ROWS. If all groups together have too
 * few tasks for all threads, blocks are smaller: MIN_TASK_ROWS rows or more on average. Returns the number of
 * blocks. */
static int cut_rows(MatmulGroup *group, int64_t n_columns, int n_threads) {
  const int n_rows = group->n_rows;
  int n_blocks = blocks(n_rows, MATMUL_ROWS);
  while (n_blocks * n_columns < TASKS_A_THREAD * n_threads && n_rows / (n_blocks + 1) >= MIN_TASK_ROWS)
    n_blocks++;
  group->task_rows = blocks(blocks(n_rows, n_blocks), TILE_ROWS) * TILE_ROWS;
  return blocks(n_rows, group->task_rows);
}

/* Groups of many rows. A task is a block of a group's columns times a block of its rows. */
typedef struct {
  MatmulWork work;
  int64_t n_tasks;
  _Atomic int64_t next; /* the first task that no thread has taken */
} TaskWork;

static void run_tasks(void *given, int me, int n_threads) {
  TaskWork *tasks = given;
  const MatmulGroup *groups = tasks->work.groups;
  for (int64_t task; (task = atomic_fetch_add(&tasks->next, 1)) < tasks->n_tasks;) {
    int low = 0;
    for (int high = tasks->work.n_groups; high - low > 1;) {
      const int middle = low + (high - low) / 2;
      if (groups[middle].first_task <= task)
        low = middle;
      else
        high = middle;
    }
    const MatmulGroup *group = &groups[low];
    const int n_blocks = column_blocks(group), at = (int)(task - group->first_task);
    const int row = at / n_blocks * group->task_rows, first = at % n_blocks * MATMUL_COLUMNS;
    const int rows = group->n_rows - row, left = group->matmul.w.linear->n_out - first;
    run_tile(&tasks->work, group, row, rows < group->task_rows ? rows : group->task_rows, first,
             left < MATMUL_COLUMNS ? left : MATMUL_COLUMNS);
  }
}

static void run_rows(const BackendState *state, MatmulGroup *groups, int n_groups) {
  TaskWork tasks = {.work = {.state = state, .groups = groups, .n_groups = n_groups}};
  int64_t n_columns = 0;
  for (int g = 0; g < n_groups; g++) n_columns += column_blocks(&groups[g]);
  for (int g = 0; g < n_groups; g++) {
    groups[g].first_task = tasks.n_tasks;
    tasks.n_tasks +=
        (int64_t)cut_rows(&groups[g], n_columns, state->loaded->n_threads) * column_blocks(&groups[g]);
  }
  run_in_parallel(state, run_tasks, &tasks);
}

/* Runs groups of a few rows, as many at a time as the scratch holds, at most MAX_GROUPS. */
static void run_groups_of_few(const BackendState *state, MatmulGroup *groups, int n_groups) {
  for (int from = 0, to; from < n_groups; from = to) {
    size_t parts = 0;
    for (to = from; to < n_groups && to - from < MAX_GROUPS; to++) {
      const MatmulGroup *group = &groups[to];
      parts +=
          n_parts(group->matmul.w.linear, group->n_rows) + n_parts(group->matmul.gate.linear, group->n_rows);
      if (to > from && parts > state->scratch.n_parts) break;
    }
    MatmulWork work = {.state = state, .groups = groups + from, .n_groups = to - from};
    run_few(&work);
  }
}

/* Rows of x that are rounded to int8. */
typedef struct {
  const Kernels *kernels;
  const MatmulGroup *group;
  RoundedRows to;
} RoundWork;

static void round_row(void *given, int row) {
  const RoundWork *work = given;
  const size_t r = (size_t)row;
  work->to.scales[r] =
      work->kernels->round_row(work->group->x + r * work->group->x_stride, work->group->matmul.w.linear->n_in,
                               work->to.numbers + r * work->to.stride);
}

/* Rounds to int8 all rows that are multiplied by a LINEAR_INT8 matrix. PRECOND groups with the same x have
 * equally many rows and are adjacent. */
static void round_rows(const BackendState *state, MatmulGroup *groups, int n_groups) {
  const float *last = NULL;
  int next = 0, last_rounded = 0;
  for (int g = 0; g < n_groups; g++) {
    MatmulGroup *group = &groups[g];
    const Linear *w = group->matmul.w.linear, *gate = group->matmul.gate.linear;
    if (w->kind != LINEAR_INT8 && !(gate && gate->kind == LINEAR_INT8)) continue;
    group->rounded = group->x == last ? last_rounded : next;
    if (group->x == last) continue;
    last = group->x;
    last_rounded = next;
    cpu_share(state, group->n_rows, round_row,
              &(RoundWork){state->loaded->kernels, group, rounded_rows(state, next)});
    next += group->n_rows;
  }
}

/* A group whose sums another device has computed. */
typedef struct {
  const Kernels *kernels;
  const MatmulGroup *group;
  float *up, *gate; /* [n_rows][n_out] */
} FinishWork;

static void finish_other_row(void *given, int row) {
  const FinishWork *work = given;
  const Matmul *matmul = &work->group->matmul;
  const size_t r = (size_t)row, n = (size_t)matmul->w.linear->n_out;
  finish_row(work->kernels, matmul, 0, (int)n, work->up + r * n, work->gate ? work->gate + r * n : NULL,
             matmul->y + r * matmul->y_stride);
}

static OtherProduct other_product(const MatmulGroup *group, const Linear *linear) {
  return (OtherProduct){linear, group->x, group->x_stride, group->n_rows, NULL};
}

/* Lets another device compute the first groups, as many as it accepts, and returns how many. */
static int multiply_elsewhere(const BackendState *state, const MatmulGroup *groups, int n_groups) {
  const InputSink *sink = state->options.inputs;
  OtherProduct products[MAX_MATRICES];
  for (int from = 0, to; from < n_groups; from = to) {
    int n = 0;
    for (to = from; to < n_groups && to - from < MAX_GROUPS; to++) {
      const Matmul *matmul = &groups[to].matmul;
      products[n++] = other_product(&groups[to], matmul->w.linear);
      if (matmul->gate.linear) products[n++] = other_product(&groups[to], matmul->gate.linear);
    }
    if (!sink->multiply(sink->user, products, n)) return from;
    for (int g = from, at = 0; g < to; g++) {
      FinishWork work = {state->loaded->kernels, &groups[g], products[at++].y, NULL};
      if (groups[g].matmul.gate.linear) work.gate = products[at++].y;
      cpu_share(state, groups[g].n_rows, finish_other_row, &work);
    }
  }
  return n_groups;
}

/* Computes groups whose rows are already permuted as their matrices need it (order_rows()). */
static void compute_ordered(const BackendState *state, MatmulGroup *groups, int n_groups) {
  int n_few = 0;
  const bool elsewhere = state->options.inputs && state->options.inputs->multiply;
  const int n_done = elsewhere ? multiply_elsewhere(state, groups, n_groups) : 0;
  groups += n_done, n_groups -= n_done;
  for (int g = 0; g < n_groups; g++) { /* groups of a few rows first */
    if (groups[g].n_rows > state->loaded->kernels->few_rows) continue;
    const MatmulGroup few = groups[g];
    groups[g] = groups[n_few];
    groups[n_few++] = few;
  }
  round_rows(state, groups, n_groups);
  if (n_few > 0) run_groups_of_few(state, groups, n_few);
  if (n_groups > n_few) run_rows(state, groups + n_few, n_groups - n_few);
}

/* Rows of x to gather for a matrix with permuted inputs (Linear.order). */
typedef struct {
  const MatmulGroup *group;
  const int32_t *order;
  float *to; /* [n_rows][padded n_in] */
} OrderWork;

static void order_row(void *given, int row) {
  const OrderWork *work = given;
  const int n = work->group->matmul.w.linear->n_in, padded = cpu_padded(n);
  const float *from = work->group->x + (size_t)row * work->group->x_stride;
  float *to = work->to + (size_t)row * (size_t)padded;
  for (int i = 0; i < n; i++) to[i] = from[work->order[i]];
  for (int i = n; i < padded; i++) to[i] = 0;
}

/* Gathers the rows of groups whose matrix has permuted inputs (Linear.order), until the scratch is full or
 * all n_groups are done. Returns how many groups, at least one, can now be computed. */
static int order_rows(const BackendState *state, MatmulGroup *groups, int n_groups) {
  const float *last = NULL;
  OrderWork work = {0};
  size_t used = 0;
  for (int g = 0; g < n_groups; g++) {
    MatmulGroup *group = &groups[g];
    const int32_t *order = group->matmul.w.linear->order;
    if (!order) continue;
    const size_t stride = (size_t)cpu_padded(group->matmul.w.linear->n_in);
    if (group->x != last || order != work.order) {
      const size_t floats = stride * (size_t)group->n_rows;
      if (used > 0 && used + floats > state->scratch.n_ordered) return g;
      last = group->x;
      work = (OrderWork){group, order, state->scratch.ordered + used};
      cpu_share(state, group->n_rows, order_row, &work);
      used += floats;
    }
    group->x = work.to, group->x_stride = stride;
  }
  return n_groups;
}

static void compute_groups(const BackendState *state, MatmulGroup *groups, int n_groups) {
  for (int from = 0, n; from < n_groups; from += n) {
    n = order_rows(state, groups + from, n_groups - from);
    compute_ordered(state, groups + from, n);
  }
}

/* Hands the rows that matrices read to StateOptions.inputs. False: the products are not wanted. */
static bool show_inputs(const BackendState *state, const float *x, size_t x_stride, int n_rows,
                        const Matmul *matmuls, int n_matmuls) {
  const InputSink *sink = state->options.inputs;
  const Linear *read[2 * MAX_MATMULS] = {0};
  int n = 0;
  if (!sink) return true;
  for (int i = 0; i < n_matmuls; i++) {
    read[n++] = matmuls[i].w.linear;
    if (matmuls[i].gate.linear) read[n++] = matmuls[i].gate.linear;
  }
  return sink->take(sink->user, read, n, x, x_stride, n_rows);
}

void show_input(const BackendState *state, const float *x, int x_stride, int n_rows, const Linear *linear) {
  show_inputs(state, x, (size_t)x_stride, n_rows, &(Matmul){.w.linear = linear}, 1);
}

void run_groups(const BackendState *state, MatmulGroup *groups, int n_groups) {
  bool wanted = n_groups > 0;
  for (int g = 0; g < n_groups; g++)
    wanted &= show_inputs(state, groups[g].x, groups[g].x_stride, groups[g].n_rows, &groups[g].matmul, 1);
  if (wanted) compute_groups(state, groups, n_groups);
}

void run_matmuls(const BackendState *state, const float *x, int x_stride, int n_rows, const Matmul *matmuls,
                 int n_matmuls) {
  MatmulGroup groups[MAX_MATMULS];
  const size_t stride = (size_t)x_stride;
  if (!show_inputs(state, x, stride, n_rows, matmuls, n_matmuls)) return;
  const bool few = n_rows <= state->loaded->kernels->few_rows;
  for (int i = 0; i < n_matmuls; i++)
    groups[i] = (MatmulGroup){.matmul = matmuls[i], .x = x, .x_stride = stride, .n_rows = n_rows};
  if (few && n_matmuls == 1 && !matmuls->gate.linear && is_shared_by_outputs(matmuls->w.linear))
    cpu_share(state, blocks(matmuls->w.linear->n_out, JOIN_COLUMNS), run_output_block,
              &(OutputWork){state->loaded->kernels, {x, stride, n_rows}, matmuls});
  else
    compute_groups(state, groups, n_matmuls);
}

void run_matmul(const BackendState *state, CpuLinear w, const float *x, int x_stride, int n_rows, float *y,
                int y_stride) {
  run_matmuls(state, x, x_stride, n_rows, &(Matmul){.w = w, .y = y, .y_stride = (size_t)y_stride}, 1);
}
