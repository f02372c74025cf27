/* refine.c - see refine.h. Called by: matrix.c.
 *
 * With levels k = code - zero and q = scale k, the loss of an output is (q - w) H (q - w)^T.
 *   scales: C_g is k in group g and 0 elsewhere; the best scales s solve A s = b with
 *           A_gh = C_g H C_h^T, b_g = C_g H w^T.
 *   levels: the slope r = (w - q) H; level j moves to round((q_j + r_j / H_jj) / scale), and r falls by
 *           the change of q_j times row j of H (coordinate descent). */
#include "quantize/refine.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { SOLVED = 24 }; /* outputs whose scales are solved for together */

/* Some outputs, first .. first + n_rows - 1. */
typedef struct {
  const Work *of;
  int first, n_rows;
  size_t n_in, n_groups;
  float *levels, *slopes; /* [n_rows][n_in] */
  float *products;        /* for scales [SOLVED][n_in], for levels [n_rows][group] */
  float *a, *b;           /* [SOLVED][n_groups][n_groups], [SOLVED][n_groups] */
  double *factor;         /* [n_groups][n_groups + 2] */
} Part;

static Rows rows_of_h(const Part *p, size_t row, size_t column) {
  return (Rows){(float *)(uintptr_t)p->of->h + row * p->n_in + column, p->n_in};
}

static float *scale_of(const Part *p, size_t r, size_t g) {
  return p->of->rounded->scales + g * rounded_row(p->of->weights->n_out) + (size_t)p->first + r;
}

/* --- scales */

/* Fills A and b (see above) for n outputs from `row` on. */
static void make_equations(const Part *p, size_t row, size_t n) {
  const size_t group = (size_t)p->of->weights->group, n_in = p->n_in;
  for (size_t g = 0; g < p->n_groups; g++) {
    memset(p->products, 0, n * n_in * sizeof *p->products);
    product_add(p->of->products, (Rows){p->levels + row * n_in + g * group, n_in}, (int)n,
                rows_of_h(p, g * group, 0), (int)n_in, (int)group, 1, (Rows){p->products, n_in});
    for (size_t r = 0; r < n; r++) {
      const float *levels = p->levels + (row + r) * n_in,
                  *w = p->of->weights->w + ((size_t)p->first + row + r) * n_in;
      const float *product = p->products + r * n_in;
      double b = 0;
      for (size_t h = 0; h < p->n_groups; h++) {
        float sum = 0, with_w = 0;
        for (size_t i = h * group; i < (h + 1) * group; i++) {
          sum += product[i] * levels[i];
          with_w += product[i] * w[i];
        }
        p->a[(r * p->n_groups + g) * p->n_groups + h] = sum;
        b += (double)with_w;
      }
      p->b[r * p->n_groups + g] = (float)b;
    }
  }
}

/* Solves (A + ridge) d = b - A s for one output. Adds d to each scale of the output, unless that changes the
 * scale by a factor of 2 or more or takes it out of the range of fp16. */
static void solve_scales(const Part *p, size_t row, const float *a, const float *b) {
  const size_t n = p->n_groups, stride = n + 2;
  double *l = p->factor, ridge = 0;
  for (size_t g = 0; g < n; g++) ridge += 1e-4 * (double)a[g * n + g] / (double)n;
  for (size_t i = 0; i < n; i++) {
    double right = b[i];
    for (size_t j = 0; j < n; j++) right -= (double)a[i * n + j] * (double)*scale_of(p, row, j);
    for (size_t j = 0; j <= i; j++) {
      double sum = ((double)a[i * n + j] + (double)a[j * n + i]) / 2 + (i == j ? ridge : 0);
      for (size_t k = 0; k < j; k++) sum -= l[i * stride + k] * l[j * stride + k];
      if (i == j && !(sum > 0)) return;
      l[i * stride + j] = i == j ? sqrt(sum) : sum / l[j * stride + j];
    }
    for (size_t k = 0; k < i; k++) right -= l[i * stride + k] * l[k * stride + n];
    l[i * stride + n] = right / l[i * stride + i];
  }
  for (size_t i = n; i-- > 0;) {
    double sum = l[i * stride + n];
    for (size_t k = i + 1; k < n; k++) sum -= l[k * stride + i] * l[k * stride + n + 1];
    l[i * stride + n + 1] = sum / l[i * stride + i];
    float *scale = scale_of(p, row, i);
    const double now = (double)*scale + l[i * stride + n + 1];
    if (now > 0.5 * (double)*scale && now < 2 * (double)*scale && now < 65504 && now >= 0x1p-24)
      *scale = f16_to_float(float_to_f16((float)now));
  }
}

static void fit_scales(const Part *p) {
  for (size_t row = 0; row < (size_t)p->n_rows; row += SOLVED) {
    const size_t left = (size_t)p->n_rows - row, n = left < SOLVED ? left : SOLVED;
    make_equations(p, row, n);
    for (size_t r = 0; r < n; r++)
      solve_scales(p, row + r, p->a + r * p->n_groups * p->n_groups, p->b + r * p->n_groups);
  }
}

/* --- levels */

/* slopes = (w - q) H */
static void make_slopes(const Part *p) {
  const size_t group = (size_t)p->of->weights->group, n_in = p->n_in;
  memset(p->slopes, 0, (size_t)p->n_rows * n_in * sizeof *p->slopes);
  for (size_t g = 0; g < p->n_groups; g++) {
    for (size_t r = 0; r < (size_t)p->n_rows; r++)
      for (size_t i = 0; i < group; i++) {
        const size_t at = g * group + i;
        const float change = p->of->weights->w[((size_t)p->first + r) * n_in + at] -
                             p->levels[r * n_in + at] * *scale_of(p, r, g);
        p->products[r * group + i] = change;
      }
    product_add(p->of->products, (Rows){p->products, group}, p->n_rows, rows_of_h(p, g * group, 0), (int)n_in,
                (int)group, 1, (Rows){p->slopes, n_in});
  }
}

/* Moves the levels of group g for the n outputs from `row` on, and writes to changes[n][group] by how much
 * each q grew. h[group][group] is the group's block on the diagonal of H. */
static void move_block(const Part *p, size_t g, size_t row, int n, const float *h, float *changes) {
  const int group = p->of->weights->group;
  const size_t n_in = p->n_in, at = row * n_in + g * (size_t)group,
               place = g * rounded_row(p->of->weights->n_out) + (size_t)p->first + row;
  float levels[128 * ROUND_OUTPUTS], slopes[128 * ROUND_OUTPUTS], moved[128 * ROUND_OUTPUTS];
  float *own_levels = p->levels + at, *own_slopes = p->slopes + at;
  transpose_in(own_levels, n_in, n, group, levels);
  transpose_in(own_slopes, n_in, n, group, slopes);
  p->of->products->kernels->move_group(levels, slopes, group, h, p->of->rounded->scales + place,
                                       p->of->rounded->zeros + place, moved);
  transpose_out(levels, n, group, own_levels, n_in);
  transpose_out(slopes, n, group, own_slopes, n_in);
  transpose_out(moved, n, group, changes, (size_t)group);
}

/* Moves the levels of all groups. After a group only the slopes of the groups still to come are updated. */
static void sweep(const Part *p) {
  const size_t group = (size_t)p->of->weights->group, n_in = p->n_in;
  float h[128 * 128];
  for (size_t g = 0; g < p->n_groups; g++) {
    const size_t at = g * group, next = at + group;
    for (size_t i = 0; i < group; i++)
      for (size_t j = 0; j < group; j++) h[i * group + j] = p->of->h[(at + i) * n_in + at + j];
    for (size_t row = 0; row < (size_t)p->n_rows; row += ROUND_OUTPUTS) {
      const size_t left = (size_t)p->n_rows - row;
      move_block(p, g, row, left < ROUND_OUTPUTS ? (int)left : ROUND_OUTPUTS, h, p->products + row * group);
    }
    const Rows changes = {p->products, group};
    product_add(p->of->products, changes, p->n_rows, rows_of_h(p, at, next), (int)(n_in - next), (int)group,
                -1, (Rows){p->slopes + next, n_in});
  }
}

/* levels = codes - zeros, or with `back` codes = levels + zeros. */
static void take_levels(const Part *p, bool back) {
  const size_t group = (size_t)p->of->weights->group, row = rounded_row(p->of->weights->n_out);
  for (size_t r = 0; r < (size_t)p->n_rows; r++)
    for (size_t i = 0; i < p->n_in; i++) {
      uint8_t *code = p->of->rounded->codes + ((size_t)p->first + r) * p->n_in + i;
      const float zero = p->of->rounded->zeros[i / group * row + (size_t)p->first + r];
      float *level = p->levels + r * p->n_in + i;
      if (back)
        *code = (uint8_t)(*level + zero);
      else
        *level = (float)*code - zero;
    }
}

static double refine_chunk(const Work *of, int first, int n_rows, float *scratch) {
  const size_t n_in = (size_t)of->weights->n_in, n_groups = n_in / (size_t)of->weights->group;
  Part p = {.of = of, .first = first, .n_rows = n_rows, .n_in = n_in, .n_groups = n_groups};
  p.factor = (double *)scratch;
  p.levels = scratch + 2 * n_groups * (n_groups + 2);
  p.slopes = p.levels + CHUNK * n_in;
  p.products = p.slopes + CHUNK * n_in;
  p.a = p.products + CHUNK * n_in;
  p.b = p.a + SOLVED * n_groups * n_groups;
  take_levels(&p, false);
  for (int i = 0; i < of->recipe->refinements; i++) {
    fit_scales(&p);
    make_slopes(&p);
    sweep(&p);
  }
  fit_scales(&p);
  take_levels(&p, true);
  return 0;
}

Status matrix_refine(const Work *work, Error *err) {
  const size_t n_in = (size_t)work->weights->n_in, n_groups = n_in / (size_t)work->weights->group,
               factor = 2 * n_groups * (n_groups + 2), sums = SOLVED * n_groups * (n_groups + 1);
  return run_chunks(work, factor + 3 * CHUNK * n_in + sums, refine_chunk, NULL, err);
}
