/* dispatch.c - the table of linear kernels, and the search in it. Host only; called by linear.cu and by
 * tests.
 *
 * Always true: for fp16 activations every weight type has a row that takes any token count, group and chip
 * the program is built for, so a shape is refused only where a row is forced or int8 activations are asked
 * of it. */
#include "cuda/dispatch.h"

#include <limits.h>
#include <string.h>

#include "cuda/row_plan.h"

#define AWQ4  (1u << WEIGHT_AWQ4)
#define AWQ8  (1u << WEIGHT_AWQ8)
#define QUANT (AWQ4 | AWQ8)
#define INT8  (1u << WEIGHT_INT8)
#define F16   (1u << WEIGHT_F16)
#define DENSE (F16 | 1u << WEIGHT_BF16 | 1u << WEIGHT_F32)
#define ANY   INT_MAX

/* From one chip to another; CUDA 13 builds for none older than 7.5. */
#define SINCE_75 SM(7, 5), SM_ANY
#define SINCE_80 SM(8, 0), SM_ANY
#define ONLY_75  SM(7, 5), SM(7, 9)
#define ONLY_90A SM_90A, SM_90A

/* clang-format off */
/* First match wins. Thresholds: cuda/NOTES.md, "Which row wins". */
static const LinearRow rows[] = {
  /* weights act    tokens small limit group held     chips     launch, name */
  {QUANT, ACT_F16,   1,   8,   8,   8, 32, X_PLANES,  SINCE_80, LAUNCH_AWQ_PLANES, "awq_planes"},
  {QUANT, ACT_F16,   1,   1,   1,   1, 32, X_PLANES,  SINCE_75, LAUNCH_AWQ_GEMV, "awq_gemv"},
  {AWQ4,  ACT_F16,  33, ANY, 256, ANY, 32, X_PASSING, ONLY_90A, LAUNCH_AWQ_WGMMA, "awq_wgmma"},
  {QUANT, ACT_F16,   1, 192, 112, ANY, 32, X_PASSING, SINCE_80, LAUNCH_AWQ_TENSORCORE, "awq_tensorcore"},
  {QUANT, ACT_F16,   2,   8,   8,   8, 32, X_PLANES,  SINCE_75, LAUNCH_AWQ_SMALL_BATCH, "awq_small_batch"},
  {QUANT, ACT_F16,   1, 192, 112, ANY, 32, X_PASSING, ONLY_75,  LAUNCH_AWQ_TENSORCORE, "awq_tensorcore_sm75"},
  {QUANT, ACT_F16,  64, ANY, ANY, ANY,  1, X_PASSING, SINCE_75, LAUNCH_AWQ_DEQUANT, "awq_dequant"},
  {QUANT, ACT_F16,   9, ANY, ANY, ANY, 32, X_PASSING, SINCE_75, LAUNCH_AWQ_PIPELINED, "awq_pipelined"},
  {QUANT, ACT_F16,   1, ANY, ANY, ANY,  1, X_PASSING, SINCE_75, LAUNCH_AWQ_PLAIN, "awq_plain"},
  {QUANT, ACT_F16,   1, ANY, ANY, ANY,  1, X_PASSING, SINCE_75, LAUNCH_DEQUANT_PLAIN, "awq_dequant_plain"},
  {QUANT, ACT_INT8,  1,   4,   8,   8, 32, X_INT8,    SINCE_75, LAUNCH_INT8_GEMV, "int8_gemv"},
  {QUANT, ACT_INT8,  1, ANY, ANY, ANY, 32, X_PASSING, SINCE_75, LAUNCH_INT8_MMA, "int8_mma"},
  {QUANT, ACT_INT8,  1, ANY, ANY, ANY, 32, X_PASSING, SINCE_75, LAUNCH_INT8_DP4A, "int8_dp4a"},
  {INT8,  ACT_INT8,  1, ANY, ANY, ANY,  0, X_PASSING, SINCE_75, LAUNCH_INT8_TOKEN, "int8_token"},
  {F16,   ACT_F16,   3, ANY, ANY, ANY,  0, X_PASSING, SINCE_75, LAUNCH_DENSE_CUBLAS, "dense_cublas"},
  {DENSE, ACT_F16,   1,   8,   8,   8,  0, X_HALVES,  SINCE_75, LAUNCH_DENSE_ROWS, "dense_rows"},
  {DENSE, ACT_F16,   1, ANY, ANY, ANY,  0, X_PASSING, SINCE_75, LAUNCH_DENSE_CUBLAS, "dense_converted"},
};
/* clang-format on */

const char *weight_type_name(WeightType type) {
  static const char *const names[] = {"4-bit", "8-bit", "int8", "fp16", "bf16", "fp32"};
  return names[type];
}

const LinearRow *linear_rows(int *n) {
  *n = (int)(sizeof rows / sizeof *rows);
  return rows;
}

/* fp16 rows of x; dense_rows pads each row to 2048 inputs. */
static bool rows_fit(const LinearQuery *query) {
  size_t padded = ((size_t)query->n_in + 2047) / 2048 * 2048, held = 1;
  while (held < (size_t)query->n_tokens) held *= 2;
  return padded * held * 2 + 1024 <= query->shared_bytes;
}

static bool planes_fit(const LinearQuery *query, int planes) {
  RowShape shape = {query->weights == WEIGHT_AWQ4 ? 4 : 8,
                    query->n_in,
                    query->n_out,
                    query->group,
                    planes,
                    query->n_tokens,
                    query->n_sms,
                    query->shared_bytes};
  return query->n_tokens <= ROW_MAX_TOKENS && row_plan(&shape).splits > 0;
}

static bool held_fits(const LinearRow *row, const LinearQuery *query) {
  switch (row->held) {
  case X_PLANES: return planes_fit(query, 2);
  case X_INT8: return planes_fit(query, 1);
  case X_HALVES: return rows_fit(query);
  case X_PASSING: break;
  }
  return true;
}

bool linear_row_runs(const LinearRow *row, const LinearQuery *query) {
  if (!(row->weights & 1u << query->weights) || row->act != query->act) return false;
  if (query->arch < row->min_arch || query->arch > row->max_arch) return false;
  if (row->group_multiple && query->group % row->group_multiple) return false;
  return query->n_tokens <= row->limit_tokens && held_fits(row, query);
}

static Status refuse(const LinearQuery *query, const char *what, Error *err) {
  return error_set(
      err, STATUS_MODEL,
      "%s multiplies %d inputs by %d outputs of %s weights in groups of %d with %d rows of %s activations on"
      " compute capability %d.%d",
      what, query->n_in, query->n_out, weight_type_name(query->weights), query->group, query->n_tokens,
      query->act == ACT_INT8 ? "int8" : "fp16", query->arch / 100, query->arch / 10 % 10);
}

Status linear_dispatch(const LinearQuery *query, const char *forced, const LinearRow **row, Error *err) {
  bool known = false;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const LinearRow *r = &rows[i];
    int most = (long)query->n_in * query->n_out < DISPATCH_SMALL ? r->small_tokens : r->max_tokens;
    bool meant = query->n_tokens >= r->min_tokens && query->n_tokens <= most;
    bool named = forced && !strcmp(forced, r->name);
    known |= named;
    if ((forced ? named : meant) && linear_row_runs(r, query)) {
      *row = r;
      return STATUS_OK;
    }
  }
  if (!forced) return refuse(query, "no kernel", err);
  if (!known) return error_set(err, STATUS_USAGE, "there is no kernel \"%s\"", forced);
  char what[64] = "kernel ";
  strncat(what, forced, sizeof what - sizeof "kernel  never" - 1);
  strcat(what, " never");
  return refuse(query, what, err);
}
