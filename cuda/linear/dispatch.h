/* dispatch.h - which kernel multiplies which matrix: one table, known to the host alone.
 *
 * The first row that fits wins; the order and the thresholds are measured (cuda/LOG.md). Nothing here
 * includes or links CUDA, so that both sides of every threshold are tested where there is no GPU
 * (test/cuda/test_dispatch.c). Called by: linear.cu (choice before a launch, refusal at load), commands that
 * list kernels. */
#ifndef AUK_CUDA_LINEAR_DISPATCH_H
#define AUK_CUDA_LINEAR_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum { WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_INT8, WEIGHT_F16, WEIGHT_BF16, WEIGHT_F32 } WeightType;
typedef enum {
  ACT_F16,
  ACT_INT8
} ActType; /* what activations are multiplied as; int8 is the user's choice, and always WEIGHT_INT8's */

const char *weight_type_name(WeightType type); /* "4-bit", "8-bit", "int8", "fp16", "bf16", "fp32" */

/* Compute capability as one number: 8.6 is SM(8, 6). The last digit is 1 where the program holds code for the
 * instructions that only this one chip has (sm_90a). */
#define SM(major, minor) ((major)*100 + (minor)*10)
#define SM_90A           (SM(9, 0) + 1)
#define SM_ANY           99999

/* One function of linear.cu each. */
typedef enum {
  LAUNCH_AWQ_GEMV,
  LAUNCH_AWQ_SMALL_BATCH,
  LAUNCH_AWQ_PLANES,
  LAUNCH_AWQ_PIPELINED,
  LAUNCH_AWQ_TENSORCORE,
  LAUNCH_AWQ_WGMMA,
  LAUNCH_AWQ_DEQUANT,
  LAUNCH_DEQUANT_PLAIN,
  LAUNCH_AWQ_PLAIN,
  LAUNCH_INT8_GEMV,
  LAUNCH_INT8_MMA,
  LAUNCH_INT8_DP4A,
  LAUNCH_INT8_TOKEN,
  LAUNCH_DENSE_ROWS,
  LAUNCH_DENSE_CUBLAS,
  LAUNCH_COUNT
} LinearLaunch;

/* Matrices of fewer weights than this (Qwen3-8B: o, but not q, k and v together) leave large tiles without
 * work, unless the tiles happen to come out even over the SMs. */
#define DISPATCH_SMALL (20L << 20)

/* From so many as o has on they have work for smaller tiles, which awq_wgmma takes. */
#define DISPATCH_MIDDLE (16L << 20)

/* From so many inputs on a small matrix has few tile rows, and a long way along each. */
#define DISPATCH_DEEP 4096

/* The tile of awq_wgmma for many rows of x; with fewer inputs than DISPATCH_TILE_IN it may take a smaller
 * one. */
#define DISPATCH_TILE_OUT    128
#define DISPATCH_TILE_TOKENS 256
#define DISPATCH_TILE_IN     2048

/* What a block holds in shared memory for as long as it runs, which a chip or a long input may not allow. */
typedef enum {
  X_PASSING, /* a few steps of x at a time */
  X_PLANES,  /* x as two int8 planes (skinny_plan.h) */
  X_INT8,    /* x as one */
  X_HALVES   /* x as fp16 */
} LinearHeld;

typedef struct {
  unsigned weights; /* set of 1 << WeightType */
  ActType act;
  int min_tokens, max_tokens; /* rows of x it is chosen for */
  int deep_tokens;            /* ... at least, where the matrix is small and has DISPATCH_DEEP inputs */
  int small_tokens;           /* ... at most, where the matrix has less than DISPATCH_SMALL weights */
  int even_tokens;            /* ... or so many, where tiles come out even or DISPATCH_MIDDLE is reached */
  int limit_tokens;           /* rows of x it can take at all, which is what forcing asks */
  int group_multiple;         /* quantised: group % group_multiple == 0 */
  LinearHeld held;
  int min_arch, max_arch;
  LinearLaunch launch;
  const char *name;
} LinearRow;

typedef struct {
  WeightType weights;
  ActType act;
  int n_in, n_out; /* > 0 */
  int group;       /* quantised: inputs that share a scale, as laid out (linear.h); dense: 0 */
  int n_tokens;    /* > 0 */
  int arch;        /* SM(...) of the device, or SM_90A */
  int n_sms;
  size_t shared_bytes; /* most shared memory one block may take */
} LinearQuery;

/* Entry i: first the table's rows in the order of choice, then the reference forms; NULL past the last. */
const LinearRow *linear_row(int i);

/* Whether only its name reaches it. */
bool linear_row_is_reference(const LinearRow *row);

/* Whether the row can run the shape at all, whatever the row count it is meant for: what forcing asks. */
bool linear_row_runs(const LinearRow *row, const LinearQuery *query);

/* The first row that fits, or the row named `forced` if it can run the shape; otherwise STATUS_MODEL with a
 * message that names the shape (an unknown name is STATUS_USAGE). forced may be NULL. */
Status linear_dispatch(const LinearQuery *query, const char *forced, const LinearRow **row, Error *err);

/* The counts of rows to ask about in turn, from 1, for whoever wants to know all that will be chosen: the
 * last count of every stretch that one row serves is among them. */
int linear_next_count(int n_tokens);

#endif
