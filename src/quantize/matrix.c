/* matrix.c - see matrix.h. Called by: layer.c and scales.c through cpu_quantizer.c; layer.c and layouts.c
 * call rounded_make() themselves.
 *
 * Outputs are independent of one another, so threads take chunks of them. Compensation is that of GPTQ
 * (Frantar et al., arXiv:2210.17323), a group of inputs at a time. The group's zero point and scale are
 * chosen for the weights as compensated so far. Its weights are rounded one by one, and their errors are
 * passed on to all later groups at once. */
#include "quantize/refine.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const float no_shift[] = {0}, no_shrink[] = {1}, shifts[] = {0, -1, 1, -2, 2},
                   shrinks[] = {1, .95f, .9f, .85f, .8f, .75f, .7f}, few_shrinks[] = {1, .92f, .84f, .76f};
const GroupSearch plain_rounding = {no_shift, no_shrink, 1, 1, false};
const Recipe usual_recipe = {.scales = true,
                             .compensates = true,
                             .drift = 0.5,
                             .damp = 0.03,
                             .refinements = 2,
                             .search = {shifts, shrinks, 5, 7, true},
                             .trial = {no_shift, few_shrinks, 1, 4, false}};

Status rounded_make(int n_out, int n_in, int group, Rounded *rounded, Error *err) {
  const size_t groups = (size_t)(n_in / group) * rounded_row(n_out);
  *rounded = (Rounded){.codes = mem_alloc((size_t)n_out, (size_t)n_in, "codes", err)};
  if (rounded->codes) rounded->scales = mem_alloc(2 * groups, sizeof *rounded->scales, "scales", err);
  if (!rounded->scales) {
    rounded_release(rounded);
    return STATUS_FAILED;
  }
  rounded->zeros = rounded->scales + groups;
  return STATUS_OK;
}

void rounded_release(Rounded *rounded) {
  free(rounded->codes);
  free(rounded->scales);
  *rounded = (Rounded){0};
}

Status run_chunks(const Work *work, size_t floats, ChunkWork *compute, double *loss, Error *err) {
  const int n_out = work->weights->n_out, n = (n_out + CHUNK - 1) / CHUNK,
            n_threads = work->products->n_threads;
  floats = (floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
  float *scratch = mem_alloc((size_t)n_threads * floats, sizeof *scratch, "rounding", err);
  double *parts = scratch ? mem_alloc((size_t)n, sizeof *parts, "rounding", err) : NULL;
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
  for (int i = 0; i < (parts ? n : 0); i++) {
    const int first = i * CHUNK, left = n_out - first;
    parts[i] =
        compute(work, first, left < CHUNK ? left : CHUNK, scratch + (size_t)omp_get_thread_num() * floats);
  }
  if (loss) *loss = 0;
  for (int i = 0; loss && parts && i < n; i++) *loss += parts[i];
  const bool there = parts != NULL;
  free(scratch);
  free(parts);
  return there ? STATUS_OK : STATUS_FAILED;
}

/* The sum over rows of d H d^T. product[n_rows][n_in] is scratch. H is symmetric, so for some columns at a
 * time only the block on the diagonal and the part below it are multiplied. The part below counts twice, in
 * place of its mirror image above the diagonal. */
static double sum_of_changes(const Work *work, Rows d, int n_rows, float *product) {
  const size_t n = (size_t)work->weights->n_in;
  double sum = 0;
  memset(product, 0, (size_t)n_rows * n * sizeof *product);
  for (size_t i = 0, next; i < n; i = next) {
    next = i + 2 * PRODUCT_BLOCK < n ? i + 2 * PRODUCT_BLOCK : n;
    const Rows to = {product + i, n};
    float *h = (float *)(uintptr_t)work->h;
    product_add(work->products, (Rows){d.at + i, d.stride}, n_rows, (Rows){h + i * n + i, n}, (int)(next - i),
                (int)(next - i), 1, to);
    product_add(work->products, (Rows){d.at + next, d.stride}, n_rows, (Rows){h + next * n + i, n},
                (int)(next - i), (int)(n - next), 2, to);
  }
  for (size_t r = 0; r < (size_t)n_rows; r++) {
    float row[8] = {0}; /* short chains of fp32, then double */
    for (size_t from = 0; from < n; from += 256) {
      const size_t to = from + 256 < n ? from + 256 : n;
      memset(row, 0, sizeof row);
      for (size_t i = from; i < to; i++) row[i % 8] += d.at[r * d.stride + i] * product[r * n + i];
      for (int i = 0; i < 8; i++) sum += (double)row[i];
    }
  }
  return sum;
}

/* --- rounding */

/* Rounds the group of inputs that begins at `at`, for a block of outputs. w points at the block's first
 * weight, in rows of n_in; the errors go to errors[n_rows][group]. u: the diagonal block of U at the group,
 * or NULL. */
static void round_block(const Work *work, int at, int first_out, int n_rows, const float *w, const float *u,
                        float *errors) {
  const Weights *weights = work->weights;
  const size_t n_in = (size_t)weights->n_in, row = rounded_row(weights->n_out);
  const int group = weights->group;
  const size_t place = (size_t)(at / group) * row + (size_t)first_out;
  float block[128 * ROUND_OUTPUTS], error[128 * ROUND_OUTPUTS];
  uint8_t codes[128 * ROUND_OUTPUTS];
  float *scales = work->rounded->scales + place, *zeros = work->rounded->zeros + place;
  transpose_in(w, n_in, n_rows, group, block);
  work->products->kernels->search_group(block, work->importance + at, group, work->search, scales, zeros);
  work->products->kernels->round_group(block, group, u, (size_t)group, scales, zeros, codes, error);
  for (int o = 0; o < n_rows; o++)
    for (int i = 0; i < group; i++)
      work->rounded->codes[(size_t)(first_out + o) * n_in + (size_t)(at + i)] = codes[i * ROUND_OUTPUTS + o];
  transpose_out(error, n_rows, group, errors, (size_t)group);
}

/* Passes the errors of a group on to all later inputs: w -= errors U. */
static void pass_on(const Work *work, int at, int n_rows, float *errors, float *w) {
  const size_t n_in = (size_t)work->weights->n_in;
  const int group = work->weights->group, next = at + group;
  const Rows later = {(float *)(uintptr_t)work->lower + (size_t)next * n_in + (size_t)at, n_in};
  product_add_transposed(work->products, (Rows){errors, (size_t)group}, n_rows, later, (int)n_in - next,
                         group, -1, (Rows){w + next, n_in});
}

static double round_chunk(const Work *work, int first, int n_rows, float *scratch) {
  const Weights *weights = work->weights;
  const size_t n_in = (size_t)weights->n_in;
  const int group = weights->group;
  float *w = scratch, *u = w + CHUNK * n_in, *errors = u + (size_t)group * (size_t)group;
  memcpy(w, weights->w + (size_t)first * n_in, (size_t)n_rows * n_in * sizeof *w);
  for (int at = 0; at < weights->n_in; at += group) {
    for (int i = 0; work->lower && i < group; i++)
      for (int j = i; j < group; j++)
        u[i * group + j] = work->lower[(size_t)(at + j) * n_in + (size_t)(at + i)];
    for (int o = 0; o < n_rows; o += ROUND_OUTPUTS)
      round_block(work, at, first + o, n_rows - o < ROUND_OUTPUTS ? n_rows - o : ROUND_OUTPUTS,
                  w + (size_t)o * n_in + at, work->lower ? u : NULL, errors + o * group);
    if (work->lower) pass_on(work, at, n_rows, errors, w);
  }
  return 0;
}

Status matrix_round(const Products *products, const Recipe *recipe, const Weights *weights, const float *h,
                    const float *lower, const Rounded *rounded, Error *err) {
  const size_t n_in = (size_t)weights->n_in, group = (size_t)weights->group;
  OWNED(mem_release) float *importance = NULL;
  TRY(NEW(importance, n_in, "rounding", err));
  for (size_t i = 0; i < n_in; i++) importance[i] = h[i * n_in + i];
  const Work work = {.products = products,
                     .weights = weights,
                     .h = h,
                     .recipe = recipe,
                     .search = &recipe->search,
                     .lower = lower,
                     .importance = importance,
                     .rounded = rounded};
  TRY(run_chunks(&work, CHUNK * n_in + group * group + CHUNK * group, round_chunk, NULL, err));
  return recipe->refinements > 0 ? matrix_refine(&work, err) : STATUS_OK;
}

/* --- losses */

static double loss_chunk(const Work *work, int first, int n_rows, float *scratch) {
  const Weights *weights = work->weights;
  const Rounded *rounded = work->rounded;
  const size_t n_in = (size_t)weights->n_in, row = rounded_row(weights->n_out);
  const Rows d = {scratch, n_in};
  for (size_t r = 0; r < (size_t)n_rows; r++)
    for (size_t i = 0; i < n_in; i++) {
      const size_t o = (size_t)first + r, place = i / (size_t)weights->group * row + o;
      float *to = d.at + r * n_in + i;
      *to = -weights->w[o * n_in + i];
      if (rounded)
        *to += ((float)rounded->codes[o * n_in + i] - rounded->zeros[place]) * rounded->scales[place];
    }
  return sum_of_changes(work, d, n_rows, d.at + CHUNK * n_in);
}

Status matrix_loss(const Products *products, const Weights *weights, const float *h, const Rounded *rounded,
                   double *loss, Error *err) {
  const Work work = {.products = products, .weights = weights, .h = h, .rounded = rounded};
  return run_chunks(&work, 2 * CHUNK * (size_t)weights->n_in, loss_chunk, loss, err);
}

static double trial_chunk(const Work *work, int first, int n_rows, float *scratch) {
  const Weights *weights = work->weights;
  const size_t n_in = (size_t)weights->n_in;
  const int group = weights->group;
  const Rows d = {scratch, n_in};
  float block[128 * ROUND_OUTPUTS], error[128 * ROUND_OUTPUTS];
  float scales[ROUND_OUTPUTS], zeros[ROUND_OUTPUTS];
  uint8_t codes[128 * ROUND_OUTPUTS];
  for (int o = 0; o < n_rows; o += ROUND_OUTPUTS) {
    const int n = n_rows - o < ROUND_OUTPUTS ? n_rows - o : ROUND_OUTPUTS;
    for (int at = 0; at < weights->n_in; at += group) {
      const float *factors = work->factors + at, *inverse = work->inverse + at;
      transpose_in(weights->w + (size_t)(first + o) * n_in + (size_t)at, n_in, n, group, block);
      for (int i = 0; i < group; i++)
        for (int k = 0; k < ROUND_OUTPUTS; k++) block[i * ROUND_OUTPUTS + k] *= factors[i];
      work->products->kernels->search_group(block, work->importance + at, group, work->search, scales, zeros);
      work->products->kernels->round_group(block, group, NULL, 0, scales, zeros, codes, error);
      for (int i = 0; i < group; i++)
        for (int k = 0; k < ROUND_OUTPUTS; k++) error[i * ROUND_OUTPUTS + k] *= inverse[i];
      transpose_out(error, n, group, d.at + (size_t)o * n_in + (size_t)at, n_in);
    }
  }
  return sum_of_changes(work, d, n_rows, d.at + CHUNK * n_in);
}

Status matrix_trial(const Products *products, const GroupSearch *search, const Weights *weights,
                    const float *h, const float *factors, double *loss, Error *err) {
  const size_t n_in = (size_t)weights->n_in;
  OWNED(mem_release) float *importance = NULL;
  TRY(NEW(importance, 2 * n_in, "rounding", err));
  float *inverse = importance + n_in;
  for (size_t i = 0; i < n_in; i++) {
    inverse[i] = 1 / factors[i];
    importance[i] = h[i * n_in + i] * inverse[i] * inverse[i];
  }
  const Work work = {.products = products,
                     .weights = weights,
                     .h = h,
                     .search = search,
                     .importance = importance,
                     .inverse = inverse,
                     .factors = factors};
  return run_chunks(&work, 2 * CHUNK * n_in, trial_chunk, loss, err);
}
