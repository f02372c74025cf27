/* few_tokens.h - a decode step of up to 2, 4 or 8 rows at once, of neighbouring positions, as one launch:
 * embeddings in, logits out. As step.h for one row, with other products: what it costs beside one row is
 * arithmetic, since weights are read once.
 *
 * Called by: backend.c, test_step_rows.cu, bench_step.cu.   How it works: few_tokens.cu, and STEP.md. */
#ifndef AUK_CUDA_FUSED_FEW_TOKENS_H
#define AUK_CUDA_FUSED_FEW_TOKENS_H

#include "cuda/fused/step.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/fused/few_plan.h"

/* What a step reads and writes, all on the device but the numbers. */
typedef struct {
  const int *pos, *ids;   /* position of the first row; ids[n_rows] */
  const void *rope_table; /* float2 [n_rows][head_dim / 2] (layer_rope_table) */
  void *k, *v;            /* fp16 [n_layers][n_kv_heads][n_ctx][head_dim] */
  int n_ctx;
  int n_rows;          /* 1 .. the plan's rows */
  int first_logit_row; /* logits are wanted of this row and those after it */
  float *logits;       /* [n_rows - first_logit_row][vocab_size] */
} StepRowsCall;

typedef struct StepRows StepRows;

/* Bytes of device memory that step_rows_open() takes. */
size_t step_rows_bytes(const StepRowsPlan *plan);

/* `model`'s plan is not looked at. `memory` is step_rows_bytes(), 256-byte aligned. Waits for the stream. */
Status step_rows_open(const StepModel *model, const StepRowsPlan *plan, void *memory, cudaStream_t stream,
                      StepRows **step, Error *err);
void step_rows_close(StepRows *step);

/* Enqueues a step, as step_run(). */
Status step_rows_run(StepRows *step, const StepRowsCall *call, const StepDebug *debug, cudaStream_t stream,
                     Error *err);

#ifdef __cplusplus
}
#endif
#endif
