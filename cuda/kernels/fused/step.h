/* step.h - a whole decode step of up to 1, 2, 4 or 8 tokens, of one sequence or of several, in one launch:
 * token ids in, logits out. plan.h says for which models.
 *
 * A step needs a GPU with clusters (sm_90 and later). Weights are laid out as for other kernels (layout.cuh),
 * and the KV cache is shared with them. Weights are read once for all tokens of a step: more tokens cost only
 * arithmetic. The same input, device and number of clusters give the same bits. Only if StepCall.n_best is 1,
 * the number of logits that are -infinity may vary.
 *
 * How it works: one_kernel.cuh, few/kernel.cuh. Measured: LOG.md, "Why one kernel". */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/status.h"

C_BEGIN

#include "base/arithmetic.h"
#include "cuda/kernels/fused/plan.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/ops/sample.h"

/* Layers after which a step copies the residual stream of its tokens, for a drafter. */
typedef struct {
  float *rows;     /* device: [n_tokens][n][hidden], or NULL */
  uint64_t layers; /* bit l: layer l */
  int n;           /* number of bits that are set in `layers` */
} StepTaps;

/* The vectors of a hybrid's layer of the delta rule, and its dense rows (delta.h). */
typedef struct {
  const float *conv, *a_log, *dt_bias, *norm;
  const void *gates; /* rows of b, then of a (StepMixers.first_a) */
} StepDelta;

/* A layer's matrices and vectors, laid out as for separate kernels. A matrix that the layer lacks has n_out
 * 0, a vector is NULL. */
typedef struct {
  /* [n_qkv] matrices; the last makes q, k and v (with gates or z in a hybrid; latent attention: q_a and
   * kv_a). In layers of the delta rule b and a come before it: as one matrix, or as two if their rows are no
   * multiple of a slab (8 outputs). b and a of all layers have one type, fp16 or bf16, and one stride. */
  const DeviceLinear *qkv;
  int n_qkv;
  const DeviceLinear *gate_up, *down; /* gate_up is interleaved; gate_up, down: of all experts */
  const DeviceLinear *o, *router, *shared_gate;
  const float *attn_norm, *mlp_norm, *q_norm, *k_norm, *sinks, *choice_bias;
  StepDelta delta;         /* conv NULL: the layer has no delta rule */
  const DeviceLinear *q_b; /* this and the rest: latent attention */
  const float *q_a_norm, *kv_a_norm;
  const void *key_halves, *value_halves; /* LinearHeads.w */
} StepLayer;

typedef struct {
  int in_flight; /* bytes of weight loads in flight in a block; 0: the default */
  /* One token, weights of 4 bits, no experts, no hybrid: stages to prefetch into L2; 0: the default,
   * negative: none. */
  int prefetch_stages;
  const StepLayer *layers;     /* [n_layers]; read only by step_open() */
  const DeviceLinear *lm_head; /* fp16 */
  const float *final_norm;     /* [hidden] */
  const void *embedding;       /* [vocab_size][embedding_stride] of embedding_type */
  size_t embedding_stride;
  Dtype embedding_type; /* F32, F16 or BF16 */
  float embedding_scale, norm_eps, attention_scale;
  const DeltaConfig *delta;     /* of a hybrid; read only by step_open() */
  bool renormalise;             /* this and the next two: ExpertConfig's */
  float sum_plus, expert_scale; /* with latent attention */
  bool neighbours;              /* likewise: rope rotates pairs (2 i, 2 i + 1), else (i, i + half) */
  uint64_t windows; /* varied experts: bit l: layer l attends to `window` positions, else to all */
  int window;
  StepTaps taps;      /* n > 0 only if step_keeps_taps(); steps of several sequences copy nothing */
  bool several;       /* there will be steps of several sequences */
  const void *screen; /* one token: lm_head in 8 bits (screen_make()), or NULL */
} StepModel;

/* A sequence's rows in a step, which are consecutive and have consecutive positions. */
typedef struct {
  int pos;        /* position of its first row: so many positions are in the cache already */
  int first;      /* index of its first row in the step */
  int first_page; /* index of its first page in StepCall.pages */
} StepPart;

/* The greedy pick of a step's input: the best token by the logits of the step before, which also had one
 * token. With a pick no kernel lies between the two steps. step_pick() makes the same pick by a kernel. */
typedef struct {
  int32_t *token; /* device: where the token goes; NULL: no pick, a step's input is ids[0] */
  Sampled *slot;  /* mapped host memory that gets the token as well, or NULL */
} StepPick;

/* Input and output of a step: pointers to device memory, and counts. */
typedef struct {
  StepPart parts[STEP_MAX_TOKENS]; /* in the order of their rows; the first part begins at row 0 */
  int n_parts;                     /* 1 without `pages` */
  const int *ids;                  /* [n_tokens] */
  StepPick pick;                   /* from the step before; an error unless step_leaves_pick() */
  const float *frequencies;        /* of rope: one for each pair of a head's dimensions that rope rotates */
  float attention_factor;          /* RopeAngles */
  /* fp16, or int8 with StepShape.q8, [n_layers][n_kv_heads][n_ctx][head_dim]; a hybrid has only its layers of
   * attention there. With `pages` [n_layers][n_pages][n_kv_heads][KV_PAGE_TOKENS][head_dim]
   * (cache/pages.h). With latent attention k has the latents, and v is not used. */
  void *k, *v;
  const int *pages; /* page numbers of each sequence, up to the page of its last row; or NULL */
  int n_ctx, n_pages;
  int n_tokens;    /* 1 .. the plan's tokens */
  int first_logit; /* the first token whose logits are wanted; with one token: 0 */
  float *logits;   /* [n_tokens - first_logit][vocab_size] */
  /* 0: all logits. Else the n_best greatest are computed; any other is either computed or -infinity. n_best >
   * 0 needs n_best <= STEP_MOST_BEST, step_screens(), and a head_x; else it is an error. The step then writes
   * lm_head's input to head_x, fp16 [hidden]. screen_all_logits() makes all logits from it. */
  int n_best;
  void *head_x;
  /* If k and v are int8: their fp16 scales, laid out alike, but with kv_key_scales() numbers for a key and
   * one for a value in place of head_dim. Without pages n_ctx % 64 is 0. */
  void *k_scales, *v_scales;
  float
      *states; /* a hybrid: recurrent states of the layers of the delta rule, one after the other (delta.h) */
} StepCall;

/* Clock marks within a layer, for profiling: each says how far the block has come. */
typedef enum {
  STEP_MARK_BEGIN,
  STEP_MARK_SUM,    /* about to wait for the all-reduce of down */
  STEP_MARK_X_SENT, /* all-reduce done, normalised x sent */
  STEP_MARK_X,      /* normalised x received */
  STEP_MARK_QKV,
  STEP_MARK_QKV_SENT,
  STEP_MARK_PROJECTIONS, /* the cluster's q, k and v received */
  STEP_MARK_HEADS,
  STEP_MARK_KEYS, /* attention to the block's keys done */
  STEP_MARK_STATES_SENT,
  STEP_MARK_STATES, /* states of the cluster's blocks received */
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
  /* Cycles, not readings of a clock: how long warp 0 waited for stages of each matrix, and of keys. */
  STEP_WAITED = STEP_MARKS,
  STEP_NUMBERS = STEP_WAITED + 5
} StepMark;

/* The wait that the watchdog interrupted. */
typedef enum {
  STEP_AT_STAGE, /* until a stage of weights or keys is loaded */
  STEP_AT_SLOT,  /* until a slot of the ring, or of the chunks of several tokens, is free */
  STEP_AT_LIMIT, /* until few enough loads are in flight, or the loads of a stage have begun */
  STEP_AT_X,
  STEP_AT_PROJECTIONS,
  STEP_AT_STATES,
  STEP_AT_GATED,
  STEP_AT_ROUTES, /* until experts are chosen, all blocks' logits have come, or the block's columns of the
                   * residual stream are written */
  STEP_AT_VALUES, /* until all clusters have contributed to a sum, or sent their largest x, or all blocks have
                   * reported a bound */
} StepEvent;

/* When a wait takes too long, the watchdog writes this to host memory, then ends the kernel. */
typedef struct {
  int hung; /* 0: no wait was too long */
  int block, warp, lane, layer, event, parity;
  int number; /* By `event`: STEP_AT_STAGE: the slot. STEP_AT_PROJECTIONS of several tokens: the chunk, or 0.
               * STEP_AT_VALUES: for a sum one of the words that the lane polls (several tokens: token *
               * hidden + column), for the largest x the matrix, for bounds -1. Else 0. */
} StepHang;

typedef struct {
  StepHang *hang;         /* pinned host memory, zeroed */
  long long patience;     /* cycles that a wait may take, at most */
  long long *marks;       /* device: [blocks][n_layers][STEP_NUMBERS], or NULL */
  long long *whole_marks; /* device: [blocks][3]: begin, last layer's end, end; or NULL */
} StepDebug;

/* Several GPUs that share each layer (allreduce.cuh). */
typedef struct {
  int n, rank;               /* n: number of GPUs, or 0 if there is only this one; rank: this GPU's number */
  int first_token;           /* the token of the first row of this GPU's lm_head */
  uint64_t *mail[MAX_SPLIT]; /* of each GPU: the sums and best logits that GPUs have sent to it */
  int *lost;                 /* pinned; other than 0: a GPU has given up, and all stop waiting */
  uint64_t patience;         /* nanoseconds that a GPU waits for another GPU */
} StepPeers;

/* A hybrid's layers of the delta rule. */
typedef struct {
  const StepDelta *layers; /* device: [n_layers]; unused for layers of attention */
  int gates_stride;        /* elements from a row of b or a to the next, in all layers */
  bool gates_bf16;         /* else fp16 */
  size_t state_floats;     /* of a layer: inputs of the convolution (input_floats), then the state */
  size_t input_floats;
  float q_scale;
  int first_a; /* distance from b's first row to a's first, in rows; with one GPU: n_value_heads */
} StepMixers;

typedef struct Step Step;

/* The number of clusters, at most STEP_MAX_CLUSTERS, that run at once on GPU `gpu` if each block has
 * shared_bytes of shared memory; 0 on a chip without clusters, or if CUDA reports an error. */
int step_clusters(int gpu, size_t shared_bytes);

/* True on compute capability 9.0: there the one-token kernel was measured, and beat separate kernels. */
bool step_measured(int gpu);

/* True if there are kernels that copy the residual stream: on one GPU, for groups and heads of 128, no
 * experts, an fp16 cache, and at most 64 layers. */
bool step_keeps_taps(const StepShape *shape);

/* Bytes of device memory that step_open() needs. */
size_t step_bytes(const StepShape *shape, int tokens);

/* Opens the kernels of a plan. `memory` is 256-byte aligned and has step_bytes() bytes; the caller frees it
 * after step_close(). Waits for the stream. */
Status step_open(const StepModel *model, const StepPlan *plan, void *memory, cudaStream_t stream, Step **step,
                 Error *err);
void step_close(Step *step);

/* True if the plan is for one token. Its steps leave the best logit of each block in device memory, on
 * several GPUs in that of all GPUs. The next step can begin with the best token (StepCall.pick). If no such
 * step follows, step_pick() enqueues a kernel that finds this token. */
bool step_leaves_pick(const Step *step);
Status step_pick(const Step *step, StepPick pick, cudaStream_t stream, Error *err);

/* True if the step can find its greatest logits by an 8-bit copy of lm_head (StepModel.screen). It then reads
 * only few rows of the fp16 lm_head (StepCall.n_best). */
bool step_screens(const Step *step);

/* For several GPUs, whose plans have to be alike. step_mail(): this GPU's memory that the other GPUs write
 * to. step_connect(): called before the first step, with the memory of all GPUs. */
uint64_t *step_mail(const Step *step);
void step_connect(Step *step, const StepPeers *peers);

/* Enqueues a step. `debug` is NULL, or selects the slower kernel that reports where it hangs and where time
 * goes. Only heads of 128 with an fp16 cache on one GPU have such a kernel; with several tokens only in
 * groups of 128. Varied experts and steps with taps have none. Other kernels ignore `debug`. Steps run one
 * after another: each launch reads what the previous one left in `memory`. A step lets the kernel after it
 * start early (ptx/launch.cuh), and begins early itself unless it has a pick. A CUDA graph cannot hold a
 * step: each launch has a number of its own. */
Status step_run(const Step *step, const StepCall *call, const StepDebug *debug, cudaStream_t stream,
                Error *err);

C_END
