/* step.h - a whole step of up to 1, 2, 4 or 8 tokens of neighbouring positions as one launch: embeddings in,
 * logits out (plan.h says for which models).
 *
 * For GPUs with clusters (sm_90 and later). The weights are those that the products read (layout.cuh), the
 * cache that of the other kernels; position, ids and rope table come from device memory, so one captured
 * graph serves every step of one token. Weights are read once a step: what more tokens cost is arithmetic.
 * Same input, same device, same clusters: same bits.
 *
 * Called by: fused.c, test_step.cu, test_step_rows.cu, bench_step.cu.   How it works: one_token.cu,
 * few_tokens.cu, and cuda/README.md. */
#ifndef AUK_CUDA_FUSED_STEP_H
#define AUK_CUDA_FUSED_STEP_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/fused/plan.h"
#include "cuda/weights.h"

typedef struct {
  int in_flight;             /* bytes of weights under way to a block; 0: the usual */
  int ahead;                 /* of one token: stages to prefetch into L2; 0: the usual, negative: none */
  const DeviceLayer *layers; /* [n_layers], qkv one part, gate_up one paired part */
  const DeviceLinear *head;  /* fp16 */
  const float *final_norm;   /* [hidden] */
  const void *embedding;     /* [vocab_size][embedding_stride] of embedding_type */
  size_t embedding_stride;
  Dtype embedding_type; /* F32, F16 or BF16 */
  float embedding_scale, norm_eps, attention_scale;
} StepModel;

/* What a step reads and writes, all on the device but the numbers. */
typedef struct {
  const int *pos, *ids;   /* position of the first row; ids[n_rows] */
  const void *rope_table; /* float2 [n_rows][head_dim / 2] (layer_rope_table) */
  void *k, *v;            /* fp16 [n_layers][n_kv_heads][n_ctx][head_dim] */
  int n_ctx;
  int n_rows;          /* 1 .. the plan's rows */
  int first_logit_row; /* logits are wanted of this row and those after it; of one token 0 */
  float *logits;       /* [n_rows - first_logit_row][vocab_size] */
} StepCall;

/* Marks of the clock in a layer, for measuring: what was finished. */
typedef enum {
  STEP_MARK_BEGIN,
  STEP_MARK_SUM,    /* ready for the sums of all clusters' down */
  STEP_MARK_X_SENT, /* they were there, and the row went out */
  STEP_MARK_X,      /* the normalised row was there */
  STEP_MARK_QKV,
  STEP_MARK_QKV_SENT,
  STEP_MARK_PROJECTIONS, /* q, k and v of the cluster were there */
  STEP_MARK_HEADS,
  STEP_MARK_KEYS, /* all keys of the block looked at */
  STEP_MARK_STATES_SENT,
  STEP_MARK_STATES, /* what the cluster's blocks made of their keys was there */
  STEP_MARK_MERGED,
  STEP_MARK_O,
  STEP_MARK_O_STORED,
  STEP_MARK_SUM_O,
  STEP_MARK_X_SENT_O,
  STEP_MARK_X_O,
  STEP_MARK_GATE_UP,
  STEP_MARK_GATED_SENT,
  STEP_MARK_GATED,
  STEP_MARK_DOWN,
  STEP_MARK_DOWN_STORED,
  STEP_MARKS,
  /* Cycles, not times: what the first warp waited for pieces to be loaded, in each product and for keys. */
  STEP_WAITED_QKV = STEP_MARKS,
  STEP_WAITED_KEYS,
  STEP_WAITED_O,
  STEP_WAITED_GATE_UP,
  STEP_WAITED_DOWN,
  STEP_NUMBERS
} StepMark;

/* Where a thread that waits waits, as the watchdog tells it. */
typedef enum {
  STEP_AT_PIECE, /* for weights or keys to be loaded */
  STEP_AT_SLOT,  /* for a place to load to */
  STEP_AT_LIMIT, /* for earlier loads, of which only so many are to be under way */
  STEP_AT_X,
  STEP_AT_PROJECTIONS,
  STEP_AT_STATES,
  STEP_AT_GATED,
  STEP_AT_VALUES, /* for other clusters' sums */
} StepPlace;

/* What a wait that took too long leaves in the host's memory before it ends the kernel. */
typedef struct {
  int hung; /* 0: nothing did */
  int block, warp, lane, layer, place, parity;
  int number; /* STEP_AT_PIECE: the slot; STEP_AT_VALUES: the column; else 0 */
} StepHang;

typedef struct {
  StepHang *hang;         /* pinned host memory, zeroed */
  long long patience;     /* cycles that a wait may take */
  long long *marks;       /* device: [blocks][n_layers][STEP_NUMBERS], or NULL */
  long long *whole_marks; /* device: [blocks][3]: begin, last layer's end, end; or NULL */
} StepDebug;

typedef struct Step Step;

/* How many clusters of the kernels run at once on GPU `gpu`, at most STEP_MAX_CLUSTERS; 0: none, or no
 * clusters. */
int step_clusters(int gpu, size_t shared_bytes);

/* Whether the kernel of one token was measured on such a GPU, and led: compute capability 9.0. */
bool step_measured(int gpu);

/* Bytes of device memory that step_open() takes. */
size_t step_bytes(const StepShape *shape, int rows);

/* `memory` is step_bytes(), 256-byte aligned. Waits for the stream. */
Status step_open(const StepModel *model, const StepPlan *plan, void *memory, cudaStream_t stream, Step **step,
                 Error *err);
void step_close(Step *step);

/* Enqueues a step. debug: NULL, or the slower form of the kernel that tells where it hangs and where time
 * goes. One step after the other: what one launch leaves in `memory` the next one needs. */
Status step_run(const Step *step, const StepCall *call, const StepDebug *debug, cudaStream_t stream,
                Error *err);

#ifdef __cplusplus
}
#endif
#endif
