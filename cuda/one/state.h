/* state.h - a session of the CUDA backend: its device memory, KV cache and ring of picked tokens.
 *
 * Read and written by: the backend's files, layers/. */
#pragma once

#include "base/status.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/ops/add_norm.h"
#include "cuda/kernels/ops/sample.h"
#include "cuda/one/device_model.h"
#include "cuda/one/fused.h"
#include "cuda/one/sequences.h"
#include "cuda/one/step_graphs.h"
#include "model/buffers.h"

enum {
  STATE_RING = 64,
  STATE_ROW_PICKS = 16, /* most rows of a sequence's step whose tokens are picked at once */
};

/* When the token of a row of the last logits is asked for, tokens_pick() also enqueues the picks of all later
 * rows if its variable `many` is true. The last n_left of n_rows rows were not asked for yet. Row r has the
 * draw number `draw` + r. */
typedef struct {
  int n_rows, n_left; /* n_rows 0: no picks, or their logits were overwritten */
  uint64_t draw;
  SamplerSettings settings;
} PicksAhead;

/* The picks of a step of several sequences. */
typedef struct {
  RowPick *picks; /* [n_sequences], n of them in use */
  int n;
  Sampled *slots;   /* [n_sequences] pinned: pick i is in slot i */
  cudaEvent_t made; /* recorded after the picks */
} RowPicks;

/* Arrays of a layer's cache, each [n_kv_heads][page_positions()][numbers] or, with several sequences,
 * [n_pages][n_kv_heads][KV_PAGE_TOKENS][numbers]. The first four are in the order of kv_copy(). */
typedef enum {
  KEYS,
  KEY_SCALES, /* only with KV_Q8 */
  VALUES,
  VALUE_SCALES, /* only with KV_Q8 */
  /* Only with an indexer (ops/index.h); each has one KV head. INDEX_KEYS has the key of a block of positions
   * in the row of the block's last position. INDEX_VALUES has each position's index key. kv_copy() puts
   * INDEX_KEYS after the heads of KEYS, and INDEX_VALUES after those of VALUES. */
  INDEX_KEYS,
  INDEX_VALUES,
  CACHE_ARRAYS
} CacheArray;

/* cache: the arrays that a layer reads: its own, another layer's (LayerConfig.kv_layer), or those of a layer
 * of the target (StateOptions.target). recurrent: where the layer's recurrent state begins among those of all
 * layers. */
typedef struct {
  void *cache[CACHE_ARRAYS];
  size_t recurrent; /* offset in floats */
} LayerState;

/* Where the previous operation left the normalised x that the next matmul reads: nowhere, in h, or in
 * planes[PLANES_H]. */
typedef enum { READY_NONE, READY_IN_H, READY_IN_PLANES } ReadyInput;

/* Operands that a kernel makes for the next matmul as int8 planes (linear/quantise.cuh, layers/narrow.h):
 * normalised x, attention's output, the gated product. */
typedef enum { PLANES_H, PLANES_A, PLANES_G, PLANES_COUNT } PlanesOf;

/* The argument of the host function multiply() of products.c, for one matrix and one number of rows. */
typedef struct {
  const BackendState *s;
  const HostMatrix *host;
  int n_rows;
} HostCall;

/* The argument of the host function read_rows() of layers/streams.c, for one layer and one number of rows. */
typedef struct {
  const BackendState *state;
  int layer, n_rows;
} NgramCall;

typedef uint16_t Half; /* the bits of a number in fp16 */

/* A session on one GPU. h_stride, projection_stride, expert_stride and all sizes that say `padded` are
 * multiples of 8, so that every fp16 row is 16-byte aligned. */
struct BackendState {
  Peers peers; /* the GPUs that share the model; n is 0 if there is one */
  const BackendModel *loaded;
  StateOptions options;
  char *memory; /* on the device */
  void *pinned; /* on the host, mapped into the device's addresses */
#define BUFFER(type, member, ...)         type *member;
#define BUFFERS(type, member, count, ...) type *member[count];
#include "cuda/one/buffers.def"
  ExpertChoices choices; /* of the last layer with experts */
  StepRows rows;         /* of the step */
  int unit_partials;     /* the argument of attention_workspace_bytes() */
  int host_rows;         /* HostRows.n */
  float *streams;        /* of the step: all_streams or spare_streams */
  bool streams_pending;  /* x has not been added to the streams yet */
  bool selects;          /* index_selects() of the step that is being enqueued */
  FusedStep *fused;      /* runs steps of few tokens as one kernel; or NULL */
  /* q, a and g have no stride here: their rows are as wide as the layer's sizes say. */
  int h_stride, projection_stride, expert_stride;
  ReadyInput ready;    /* where an operation left normalised x for the next operation */
  bool a_is_in_planes; /* planes[PLANES_A] holds attention's output instead of a */

  DeviceSampler sampler;
  uint64_t mask_pick;     /* number of the last pick with a mask, plus one */
  uint64_t notes_version; /* sampler_version() of the token counts on the device; UINT64_MAX: out of date */
  PicksAhead ahead;
  bool has_best;     /* the last step wrote its best token to device memory (fused_leaves_pick()) */
  bool is_deferred;  /* pick n_enqueued - 1 is left to the next step: greedy, without mask or penalties */
  int top_asked;     /* how many of the best logits a single sequence's last pick wanted; 0: all */
  int top_made;      /* how many of the best logits the last step made (StepCall.n_best); 0: all */
  bool logits_apart; /* each GPU has only its own part of the logits (tokens_join_logits()) */
  uint64_t n_enqueued, n_taken;

  RowPicks row_picks[2];                  /* of steps, in turn */
  uint64_t n_picked_steps, n_taken_steps; /* steps whose picks were listed; whose picks were taken */

  StepGraphs graphs, draft_graphs; /* draft_graphs: of draft_context() */
  Sequences sequences;             /* zeros for one sequence */
  int n_logit_rows;                /* rows of logits that the last step left */
};

/* Elements of a row of n numbers: padded to 8, so that every row is 16-byte aligned. */
static inline int padded_row(int n) {
  return (n + 7) / 8 * 8;
}

/* The step's number of rows, including those that pad a step of several sequences. */
static inline int rows_of(const BackendState *s, TokenRange span) {
  return span.parts ? s->sequences.n_rows : span.n_tokens;
}

/* Consecutive positions of a KV head in the cache: those of a page; for one sequence n_ctx, rounded up. */
int page_positions(const StateOptions *options);
/* Pages of a layer's cache: as many as were asked for, rounded up to an even number; 1 for one sequence. */
int state_pages(const StateOptions *options);

/* Sequences of a session, at least 1. */
size_t state_sequences(const StateOptions *options);
/* Floats of the recurrent states of all layers before `layer` together. */
size_t state_floats_before(const ModelConfig *config, StatesType type, int layer);
/* Bytes of a position of one KV head in an array of the cache. */
size_t state_array_bytes(KvType kv, int head_dim, CacheArray array);
/* True with latent attention: only keys are stored, and values are a part of them. */
bool state_keys_are_values(const ModelConfig *config);
/* Rows of an array of the layer's own cache: one for each position and KV head. 0: the layer lacks it. */
size_t state_cache_rows(const ModelConfig *config, const StateOptions *options, int layer, CacheArray array);
/* Bytes of an array in the caches of all layers before `layer`. Each layer's array begins at a multiple of
 * 256 bytes. */
size_t state_array_before(const ModelConfig *config, const StateOptions *options, int layer,
                          CacheArray array);

/* Length of a row of latent_in: the queries or their latent, kv_a's outputs, the heads' gates. */
int state_latent_inputs(const ModelConfig *config);
/* Outputs of b (not in Mamba-2), a, qkv and z together, in a layer of the delta rule or Mamba-2; with a
 * gate_rank also those of z_in and a_in. 0: the model has no such layer. With delta_beside, q, k and v
 * follow. */
int delta_outputs(const DeltaConfig *delta);
/* Outputs of q, k and v together. With shares_kv there is no k and no v, with k_as_v no v. With value_dim a
 * head of v counts head_dim, as after ops_spread_values(). If attn_gate is a matrix of its own, its outputs
 * come next. */
int qkv_outputs(const LayerConfig *layer);
/* The first output of the index queries among a layer's projections: after q, k, v and the gates. */
int state_index_outputs(const LayerConfig *layer);

/* The backend's recurrent_bytes, state_save, state_restore and state_copy. */
size_t state_recurrent_bytes(const ModelConfig *config, int layer);
/* The floats of a layer's n-grams. They follow the layer's other recurrent state. */
float *state_of_ngrams(const BackendState *s, int layer);
Status state_save(BackendState *s, int slot, Error *err);
Status state_restore(BackendState *s, int slot, Error *err);
Status state_copy(BackendState *s, CopyDirection direction, int slot, int layer, void *host, Error *err);
/* Copies this GPU's part of a layer's recurrent state between a slot and the host. This is GPU `rank` of
 * n_gpus. The host's layout is that of a model on one GPU (state.c, Run). Any thread may call this. Waits for
 * the copy. */
Status state_copy_part(BackendState *s, CopyDirection direction, int slot, int layer, void *host, int rank,
                       int n_gpus, Error *err);

/* The backend's kv_copy. */
Status state_kv_copy(BackendState *s, CopyDirection direction, TokenRange span, int layer, int n, void *host,
                     Error *err);
/* state_kv_copy() for this device's KV heads. On the host they are heads first_head, first_head + 1 .. of
 * n_heads. Any thread may call this: it sets the thread's device. Waits for the copy. */
Status state_copy_heads(BackendState *s, CopyDirection direction, TokenRange span, int layer, int n,
                        char *host, int first_head, int n_heads, Error *err);

/* The layer's attention without what depends on the call: `past` is 0. */
Attention state_attention(const BackendState *s, int layer);

/* The layer's current recurrent state of sequence 0; the other sequences' states follow at distances of
 * state_floats(). */
float *state_recurrent(const BackendState *s, int layer);
/* A sequence's recurrent states: those of all layers, one after the other. */
float *state_of_sequence(const BackendState *s, int sequence);
size_t state_floats(const ModelConfig *config, StatesType type);
/* The segments of a step, for kernels of recurrent states; zeros for a step without span.parts. */
Segments state_segments(const BackendState *s, TokenRange span);

/* The backend's keep_tap and read_taps. */
Status state_keep_tap(BackendState *s, TokenRange span, int index, Error *err);
Status state_read_taps(BackendState *s, int row, int n, float *out, Error *err);

/* The backend's set_pages and copy_page. */
Status state_set_pages(BackendState *s, int sequence, int first, const int32_t *pages, int n, Error *err);
Status state_copy_page(BackendState *s, int from, int to, Error *err);

/* Waits for all work on the stream. */
Status state_wait(BackendState *s, Error *err);
