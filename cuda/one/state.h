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
  STATE_ROW_PICKS = 16, /* rows of a step that are picked from at once */
};

/* Picks that tokens.c enqueues at once, for a row of the last logits that is asked for and all rows after it.
 * The last n_left of n_rows rows were not asked for yet. Row r is picked by draw number `draw` + r. */
typedef struct {
  int n_rows, n_left; /* n_rows 0: no picks, or their logits are gone */
  uint64_t draw;
  SamplerSettings settings;
} PicksAhead;

/* Parts of a layer's cache, each [n_kv_heads][n_ctx][numbers] or, with several sequences,
 * [n_pages][n_kv_heads][KV_PAGE_TOKENS][numbers]. Their order is that of kv_read(). */
typedef enum {
  KEYS,
  KEY_SCALES, /* with KV_Q8, else nothing */
  VALUES,
  VALUE_SCALES, /* with KV_Q8, else nothing */
  /* INDEX_KEYS: one KV head, with the index keys of blocks; INDEX_VALUES: one, with those of positions
   * (ops/index.h); or nothing. In kv_read() they come after the heads of KEYS and of VALUES. */
  INDEX_KEYS,
  INDEX_VALUES,
  CACHE_PARTS
} CachePart;

/* Where a layer's cache lies, or the cache that it shares; and where its recurrent state lies in a session's
 * states. */
typedef struct {
  void *cache[CACHE_PARTS];
  size_t recurrent; /* offset in floats */
} LayerPlace;

/* Pinned rows of matmuls with weights on the host (products.h); zeros if there are none. */
typedef struct HostCall HostCall;
typedef struct {
  float *x, *y, *weights; /* x, y: rows of the widest such matrices; experts' weights [n_rows][n_chosen] */
  int *ids;               /* [n_rows][n_chosen] */
  HostCall *calls;        /* [n_host][n_rows] */
  int n_rows;             /* most rows that the CPU multiplies at once */
} HostRows;

/* Memory of residual streams and n-grams (layers/streams.h); zeros in other models. S: streams.n * hidden; R:
 * rows of a step or of its logits, whichever are more. */
typedef struct NgramCall NgramCall;
typedef struct {
  float *streams;        /* [rows of the step][S]: `all` or `spare` */
  float *all, *spare;    /* [max_chunk][S], [STREAMS_FEW_ROWS][S] */
  bool pending;          /* x is still to be injected */
  float *sums, *weights; /* [R][rank + n], [R][S] results of a mix's matrices */
  float *inverses, *factors,
      *spare_factors;                  /* [R][n]; the next mix writes spare_factors, then they are swapped */
  void *u, *ranks;                     /* f16 [R][S, padded], [R][rank, padded]: inputs of a mix's matrices */
  float *few_ranks;                    /* [STREAMS_FEW_ROWS][rank] */
  float *mixed;                        /* [max_chunk][hidden] what the block reads, in fp32 */
  float *ngram_rows;                   /* [max_chunk][ngrams.width] rows of the table */
  void *ngram_x;                       /* f16 [max_chunk][ngrams.width, padded] ngram_rows */
  float *values, *gated, *conv_inputs; /* [max_chunk][hidden], [max_chunk][S] twice; keys: in `weights` */
  int32_t *tokens;                     /* pinned [max_chunk][longest]: ops_ngram_tokens() */
  float *host_rows;                    /* pinned copy of ngram_rows */
  NgramCall *calls;                    /* [layers with n-grams][max_chunk], by the number of rows */
  NgramHash *hashes;                   /* [layers with n-grams] */
} StreamState;

/* Memory of AltUp's streams (layers/altup.h); zeros in other models. S: altup.n * hidden */
typedef struct {
  float *streams, *projected; /* [max_chunk][S], [max_logit_rows][S] matmuls of streams for the logits */
  void *ranks;                /* f16 [max_chunk][laurel_rank, padded] */
} AltupState;

/* Memory of the choice of positions (layers/index.h); zeros in other models. */
typedef struct {
  float *scores;          /* [rows at once][index_row_scores()] */
  int *chosen, *n_chosen; /* [rows at once][index_most_chosen()], [rows at once] */
  float *workspace;       /* of chosen_workspace_bytes() */
  bool selects;           /* in the step that is enqueued: index_selects() */
} IndexState;

/* Where the operation before left the normalised x of the next matmul: nowhere, in h, or in
 * planes[PLANES_H]. */
typedef enum { READY_NONE, READY_IN_H, READY_IN_PLANES } ReadyInput;

/* Operands that a kernel hands to the next matmul as planes (layers/narrow.h): normalised x, attention's
 * output, the gated product. */
typedef enum { PLANES_H, PLANES_A, PLANES_G, PLANES_COUNT } PlanesOf;

/* A session on one GPU. Row strides are padded to 8 so that every row is 16-byte aligned. */
struct BackendState {
  Peers peers;         /* the GPUs that share the model; n is 0 if there is one */
  uint32_t *first_tag; /* peers.first_tag */
  const BackendModel *loaded;
  StateOptions options;
  void *memory;
  float *x;      /* [max_chunk][hidden] the residual stream divided by residual_scale */
  void *h;       /* f16 [max_chunk][h_stride] normalised x */
  float *wide_h; /* [max_chunk][hidden] normalised x in fp32, for a router that does not normalise x itself */
  float *projections; /* [max_chunk][projection_stride] outputs of the layer's qkv */
  /* Results that are not added to x at once, fp32 rows of `hidden`. One GPU: [max_chunk], o or down before
   * its norm. Several GPUs: [2][max_chunk], this GPU's part of o, then of down; with EXPERTS_OWN_NORMS
   * down's part is [2 * max_chunk]: the sum of the experts, then the output of the MLP beside them. */
  float *branch;
  void *q,
      *a; /* f16 [max_chunk][n_heads * head_dim, padded] queries; attention's output, or a delta layer's */
  void *ordered; /* f16 [max_chunk][widest_input()] the x of a matrix in the order of its inputs */
  void *beside;  /* f16 [max_chunk][n_value_heads * value_dim, padded] Mamba-2's output with delta_beside */
  /* Latent attention (layers/latent.c). */
  float *latent_in;      /* [max_chunk][state_latent_inputs(), padded] outputs of q_a, or q, and kv_a */
  void *q_latents;       /* f16 [max_chunk][q_rank, padded] normalised */
  float *latent_queries; /* [max_chunk][n_heads * (nope_dim + rope_dim)] with a q_rank */
  /* f16 [max_chunk][n_heads], inputs of the heads' matrices: queries without their rotated parts, each
   * linear_heads_stride(nope_dim) numbers; then attention's outputs, each kv_rank. */
  void *head_x;
  float *gate_up;        /* [max_chunk][2 * intermediate], unless one matmul computes g */
  void *g;               /* f16 [max_chunk][intermediate, padded] activation(gate) * up */
  ExpertChoices choices; /* of the last layer with experts */
  void *expert_h;        /* f16 [max_chunk][h_stride] the experts' input, if it is not h */
  void *expert_g;        /* f16 [max_chunk * n_chosen][expert_stride] like g; zeros past the expert's width */
  float *expert_up;      /* [max_chunk * n_chosen][expert_stride] if ungated */
  /* With L = ExpertConfig.latent: f16 [max_chunk][L, padded] latent_in's output, later the experts' sum;
   * [max_chunk][L] the experts' sum in fp32. */
  void *latent_h;
  float *latent_sum;
  void *gathered;  /* f16 [max_chunk * n_chosen][h_stride] x by expert; memory of expert_y, written later */
  float *expert_y; /* [max_chunk * n_chosen, and experts_few_parts()][expert_row_width()] experts' results */
  float *shared_branch; /* [max_chunk][hidden] output of the MLP beside experts, if a norm follows; on several
                         * GPUs [2 * max_chunk]: sums over GPUs of the experts' outputs, then of the MLP's */
  float *inputs;        /* [max_chunk][n_layers][per_layer_width] set by embed */
  float *input_gate;    /* [max_chunk][per_layer_width] */
  void *lm_head_in;     /* f16 [max_logit_rows][h_stride] */
  float *logits;        /* [max_logit_rows][vocab_size] */
  float *taps;          /* [max_chunk][taps.n][hidden] x after the layers of options.taps */
  /* A drafter's rows of the target's states (draft_take()), and the rows of a step in fp16. */
  float *draft_rows;    /* [max_chunk + 1][n_states * target_hidden] */
  void *draft_h;        /* f16 [max_chunk][n_states * target_hidden, padded]; for W_join an embedding first */
  int *draft_seen;      /* DRAFT_ASSISTANT: the last position that the target has computed */
  void *rope_tables[2]; /* by LayerRope: float2 [max_chunk][n_pairs] of the step; or NULL */
  StepRows rows;        /* of the step */
  float *logit_x; /* [max_logit_rows][hidden] with several sequences: rows of x whose logits are asked for */
  void *cache[CACHE_PARTS];   /* of all layers that have one, one after the other */
  void *halves[2];            /* with KV_Q8: one layer's keys and values unpacked (Attention.k_halves) */
  void *planes[PLANES_COUNT]; /* each of linear_planes_bytes() for LINEAR_MOST_PLANES rows */
  CachePlace *caches;         /* [n_layers * CACHE_PARTS] pages' places as distances from cache[KEYS] */
  void *workspace;            /* of attention_workspace_bytes() */
  int unit_places;            /* the argument of attention_workspace_bytes() */
  void *gate_h;               /* f16 [max_chunk][gate_rank, padded] input of a gate's second matrix */
  void *delta_workspace;      /* of delta_workspace_bytes() */
  float *recurrent;   /* [n_sequences, at least 1, + n_slots][states of all layers], kept states last */
  LayerPlace *layers; /* [n_layers] on the host */
  HostRows host;
  StreamState stream; /* of models with streams */
  AltupState altup;
  IndexState index;
  FusedStep *fused; /* runs steps of few tokens as one kernel; or NULL */
  int h_stride, projection_stride,
      expert_stride;   /* each layer's q and a are as wide as o's input, and its g as down's input */
  ReadyInput ready;    /* where the operation before left normalised x for the next one */
  bool a_is_in_planes; /* planes[PLANES_A] holds attention's output instead of a */

  DeviceSampler *sampler;
  uint64_t
      *mask; /* pinned, after the ring: [(vocab_size + 63) / 64] of pick mask_pick, or of each sequence */
  uint64_t mask_pick;     /* number of the last pick with a mask, plus one */
  uint64_t notes_version; /* sampler_version() of the notes on the device */
  PicksAhead ahead;
  bool has_best;     /* the last step left its best token (fused_leaves_pick()) */
  bool is_deferred;  /* pick n_enqueued - 1 is left to the next step: greedy, without mask or penalties */
  int n_wanted;      /* how many of the best logits a single sequence's last pick wanted; 0: all */
  int n_best;        /* how many the last step made (StepCall.n_best); 0: all. lm_head_in gives the others */
  bool logits_apart; /* each GPU has only those that it made itself (tokens_join_logits()) */
  Sampled
      *ring; /* pinned: pick n is in slot n % STATE_RING; of several sequences, a step's pick i in slot i */
  uint64_t n_enqueued, n_taken;
  void *staging; /* [vocab_size] pinned, after the mask: logits or notes that are being copied */

  uint64_t *row_versions; /* [n_sequences] versions of the notes on the device, after the last pick */
  RowPick *row_picks;     /* [n_sequences] */
  int n_row_picks;        /* of the last step */

  StepGraphs graphs, draft_graphs; /* of steps; of draft_context() */
  Sequences sequences;             /* zeros for one sequence */
  int n_logit_rows;                /* rows of logits that the last step left */
};

/* Elements of a row of n numbers: padded to 8, so that every row is 16-byte aligned. */
static inline int padded_row(int n) {
  return (n + 7) / 8 * 8;
}

/* Number of the step's rows, with the rows that pad a step of several sequences. */
static inline int rows_of(const BackendState *s, TokenRange span) {
  return span.parts ? s->sequences.n_rows : span.n_tokens;
}

/* Positions of a KV head that lie together in the cache: those of a page, or n_ctx rounded up. */
int page_positions(const StateOptions *options);
/* Bytes of a part of all layers' caches. */
size_t state_cache_bytes(const BackendState *s, CachePart part);
/* Pages of a layer's cache: as many as were asked for, rounded up to an even number; 1 for one sequence. */
int state_pages(const StateOptions *options);

/* Sequences of a session, at least 1. */
size_t state_sequences(const StateOptions *options);
/* Floats of the recurrent states of the layers before `layer`, one after the other. */
size_t state_floats_before(const ModelConfig *config, int layer);
/* Bytes of a position of one KV head in a part of the cache. */
size_t state_part_bytes(KvType kv, int head_dim, CachePart part);
/* True if values are a part of the keys, which are then kept once: latent attention. */
bool state_keys_are_values(const ModelConfig *config);
/* Positions times KV heads of a part of a layer's own cache. */
size_t state_cache_rows(const ModelConfig *config, const StateOptions *options, int layer, CachePart part);
/* Bytes of a part of the caches of all layers before `layer`: each cache begins at a multiple of 256. */
size_t state_part_before(const ModelConfig *config, const StateOptions *options, int layer, CachePart part);

/* Numbers of a row of latent_in: queries, or their latent, then kv_a's outputs, then the heads' gates. */
int state_latent_inputs(const ModelConfig *config);
/* Outputs of a layer's q: queries and, with ATTN_GATE_IN_Q, gates. */
int query_outputs(const ModelConfig *config, const LayerConfig *layer);
/* How many outputs b (not in Mamba-2), a, qkv and z have together in a layer of the delta rule or Mamba-2; 0
 * if the model has no such layer. With a gate_rank the outputs of z_in and a_in count, too. With delta_beside
 * the outputs of q come after all these. */
int delta_outputs(const DeltaConfig *delta);
/* Outputs of q, k and v together. If attn_gate is a layer, its outputs come next. */
int qkv_outputs(const ModelConfig *config, const LayerConfig *layer);
/* The first output of the index queries among a layer's projections: after q, k, v and the gates. */
int state_index_outputs(const ModelConfig *config, const LayerConfig *layer);

/* The backend's recurrent_bytes, state_save, state_restore, state_read and state_write. */
size_t state_recurrent_bytes(const ModelConfig *config, int layer);
/* The floats of a layer's n-grams, which follow its other recurrent state. */
float *state_of_ngrams(const BackendState *s, int layer);
Status state_save(BackendState *s, int slot, Error *err);
Status state_restore(BackendState *s, int slot, Error *err);
Status state_read(BackendState *s, int slot, int layer, void *out, Error *err);
Status state_write(BackendState *s, int slot, int layer, const void *from, Error *err);
/* Copies a layer's state between a slot and the host, which has the state as laid out on one GPU; each of
 * n_gpus GPUs has its share of every run of numbers. Any thread may call this. Waits for the copy. */
Status state_copy_kept(BackendState *s, int slot, int layer, void *host, bool to_host, int rank, int n_gpus,
                       Error *err);

/* The backend's kv_read and kv_write. */
Status state_kv_read(BackendState *s, TokenRange span, int layer, void *out, Error *err);
Status state_kv_write(BackendState *s, TokenRange span, int layer, int n_stored, const void *from,
                      Error *err);
/* Copies a layer's cache between device and host. `host` is laid out as for kv_read(), with n_heads KV heads;
 * the device has the heads from first_head on. n_stored 0: to the host; else from the host, the first
 * span.n_tokens of n_stored tokens. Any thread may call this: it sets the thread's device. Waits for the
 * copy. */
Status state_kv_copy(BackendState *s, TokenRange span, int layer, int n_stored, char *host, int first_head,
                     int n_heads, Error *err);

/* The layer's attention without what depends on the call: `past` is 0. */
Attention state_attention(const BackendState *s, int layer);

/* The layer's current recurrent state of sequence 0; the other sequences' states follow at distances of
 * state_floats(). */
float *state_recurrent(const BackendState *s, int layer);
/* The recurrent states of all layers of a sequence, one after the other. */
float *state_of_sequence(const BackendState *s, int sequence);
size_t state_floats(const ModelConfig *config);
/* The segments of a step, for kernels of recurrent states; zeros if it is of one sequence. */
Segments state_segments(const BackendState *s, TokenRange span);

/* The backend's keep_tap and read_taps. */
Status state_keep_tap(BackendState *s, TokenRange span, int index, Error *err);
Status state_read_taps(BackendState *s, int row, int n, float *out, Error *err);

/* The backend's set_pages and copy_page. */
Status state_set_pages(BackendState *s, int sequence, int first, const int32_t *pages, int n, Error *err);
Status state_copy_page(BackendState *s, int from, int to, Error *err);

/* Waits for all work on the stream. */
Status state_wait(BackendState *s, Error *err);
