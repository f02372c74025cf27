/* backend.h - the interface to a device: operations over rows of tokens, and its life cycle.
 *
 * A model is a program (model/program.h). forward.c runs its operations by the device's function for each
 * kind; src/cpu has readable functions, cuda/ has kernels. The optional fused_step() computes a whole
 * step, with the results of the operations up to rounding.
 *
 * A BackendState has the KV cache and all intermediate results of one session, or of the sequences of one
 * batch (batch.h). open() allocates all of it, so no operation allocates. Operations pass their results on
 * inside the state, among them:
 *   x          [n_tokens][hidden] fp32: the residual stream
 *   q          [n_tokens][n_heads][head_dim]
 *   KV cache   keys and values of positions pos .. pos + n_tokens - 1
 *   logits     [max_logit_rows][vocab_size] fp32 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/state_type.h"
#include "base/status.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "model/program.h"
#include "model/slice.h"

typedef struct BackendModel BackendModel; /* the weights in the device's own layout */
typedef struct BackendState BackendState; /* KV cache and intermediate results */

typedef struct BackendProbe BackendProbe;

/* Bytes of a token's keys and values in a layer's cache; 0 if the layer has no cache of its own. */
static inline size_t kv_token_bytes(const ModelConfig *config, int layer, KvType kv) {
  const size_t numbers = config_kv_numbers(config, layer);
  const int dim = config_layer(config, layer).head_dim;
  return numbers ? numbers / 2 / (size_t)dim * (kv_key_bytes(kv, dim) + kv_value_bytes(kv, dim)) : 0;
}

/* GUESS_ROWS: the most guesses of a sequence in a step; with StateOptions.invariant, of all the step's
 * sequences together. */
enum { MAX_TAPS = 8, GUESS_ROWS = 15 };

enum { TOKEN_PICKED = -1 }; /* TokenRange.ids */

typedef enum { TO_HOST, FROM_HOST } CopyDirection; /* FROM_HOST only reads the host's memory */

/* Layers after which a step keeps the residual stream of its rows, for a drafter (drafters/drafter.h). */
typedef struct {
  int n;                /* 0: none */
  int layers[MAX_TAPS]; /* [n] ascending, each within the model */
} TapList;

/* y = W x for n_rows rows of x, without W's bias. */
typedef struct {
  const Linear *linear;
  const float *x; /* [n_rows][x_stride] */
  size_t x_stride;
  int n_rows;
  float *y; /* set by multiply(): [n_rows][n_out] in multiply()'s own memory, valid until its next call */
} OtherProduct;

/* Receives the inputs of matrices as a step computes them, for statistics (src/quantize). take() gets the
 * rows of x that n matrices are about to read; x belongs to the step. If take() returns false, the step need
 * compute neither the products nor what depends on them. multiply() has another device compute all n products
 * and returns true. If multiply is NULL or returns false, the backend computes them. */
typedef struct {
  void *user;
  bool (*take)(void *user, const Linear *const *linears, int n, const float *x, size_t stride, int n_rows);
  bool (*multiply)(void *user, OtherProduct *products, int n);
} InputSink;

/* Rows of a step that belong to one sequence, at consecutive positions. */
typedef struct {
  int sequence;   /* 0 .. n_sequences - 1 */
  int pos;        /* >= 0; pos + n_tokens <= n_ctx; at 0 a recurrent state begins anew */
  int n_tokens;   /* >= 1 */
  bool long_rope; /* as in TokenRange */
  /* Used with StateOptions.invariant. True: the rows are computed by the kernels for prompts, even if there
   * is only one row. False: each row is computed as if it were alone. */
  bool of_prompt;
} SequenceRows;

/* The rows of one step: n_tokens consecutive positions from pos, of sequence 0. A device may ignore pos while
 * it replays a captured graph that reads the position from the device's memory. With `parts` the rows belong
 * to several sequences, some decoded and some prefilled; a sequence has at most one part. The parts follow
 * one another in the rows and have n_tokens tokens together; pos and long_rope then mean nothing. */
typedef struct {
  int pos;      /* >= 0; pos + n_tokens <= n_ctx */
  int n_tokens; /* 1 .. max_chunk */
  /* LongRoPE: the whole text is longer than the original context (rope_original_context()), so every position
   * uses the long factors. Cached keys stay valid only while this does not change. */
  bool long_rope;
  const SequenceRows *parts; /* [n_parts] or NULL */
  int n_parts;
  /* [n_tokens]; NULL: the token that sample() picked last, on the device. With `parts` TOKEN_PICKED is the
   * token that sample_rows() picked last for the row's sequence. */
  const int32_t *ids;
  int n_logit_rows; /* how many rows have logits: the last rows, or with `parts` logit_rows; 0: none */
  const int32_t *logit_rows; /* [n_logit_rows] ascending */
  int first_logit;           /* without parts: the first row with logits, for OP_LOGITS; set by forward() */
  /* In a drafter's step: the row of the target's states for the first token (OP_DRAFT_EMBED). -1: the drafter
   * takes the state that its previous step left. DFlash's embedding reads no state. */
  int states;
  const TapList *taps; /* StateOptions.taps if the step is to keep them, else NULL */
  /* After the step only its logits and the layers' caches are read. So the last layer may leave rows without
   * logits unfinished. */
  bool only_logits;
  /* Set by forward() for operation Program.cut, an OP_OUT_PROJ: the operation keeps this many rows, those
   * with logits; 0: all. */
  int n_kept;
} TokenRange;

/* How a step of up to 8 rows runs: the form measured as fastest; the operations' separate kernels; or one
 * fused kernel for the whole step (an error where the model has none for one row). */
typedef enum { DECODE_AUTO, DECODE_KERNELS, DECODE_FUSED } DecodeStep;

/* How the GPUs that share a model add up their results. SUMS_AUTO is SUMS_MEMORY where the GPUs reach each
 * other's memory, else SUMS_NCCL. */
typedef enum { SUMS_AUTO, SUMS_MEMORY, SUMS_NCCL } SplitSums;

/* Reports how many of the checkpoint's bytes are on the device; may be NULL. */
typedef void (*LoadProgress)(void *user, size_t done, size_t total);

/* Where load() puts weights. If a device has memory of its own, weights that do not fit there stay in the
 * host's memory: at first the experts of the last layers, then the last layers' other matrices. */
typedef struct {
  size_t weights;    /* bytes of the device's memory that load() takes */
  size_t free_bytes; /* free bytes of that memory; on a CPU, mapped weights count as free */
  size_t on_host;    /* bytes of weights that stay in the host's memory though the device has its own */
  /* host_experts: how many of the last layers have their experts in the host's memory. host_layers: how many
   * of the last layers also have their other matrices there, except the matrices from MATRIX_ON_DEVICE on
   * (model/layers.h). */
  int host_experts, host_layers;
  /* Bytes of copies of weights that make long prompts faster (BackendOptions.copies), not among `weights`. */
  size_t copies;
} DeviceMemory;

typedef struct {
  int n_threads; /* CPU threads; 0 = all cores this process may use */
  int gpu;       /* CUDA: the device's number */
  int split;     /* CUDA: if above 1, how many GPUs share each layer; `gpus` has their numbers */
  int gpus[MAX_SPLIT];
  SplitSums sums;          /* CUDA, with split */
  struct Ranks *ranks;     /* CUDA: the processes that share the model, this process among them; or NULL */
  int ranks_rank;          /* the rank of this process */
  size_t ranks_free_bytes; /* the least free bytes of any rank's GPU */
  size_t weight_bytes;     /* CUDA: the most bytes of a GPU's memory that weights may take; 0: no limit */
  bool int8_activations;   /* CUDA: quantised layers multiply int8 activations (W4A8) */
  bool copies;             /* CUDA: load() makes the copies of DeviceMemory.copies, too */
  bool no_graphs;          /* CUDA: launch every step kernel by kernel */
  DecodeStep decode_step;  /* CUDA */
  /* CUDA, for a drafter: it shares the target's CUDA stream, and uses the target's embedding and head where
   * it has none of its own. */
  const BackendModel *target;
  const char *kernel; /* CUDA: the kernel of every quantised layer, or NULL: the dispatch table's choice */
  LoadProgress progress;
  void *progress_user;
} BackendOptions;

typedef struct {
  int n_ctx;          /* positions the KV cache holds */
  int max_chunk;      /* most tokens of one step */
  int max_logit_rows; /* most rows whose logits one step keeps */
  KvType kv;
  int n_slots; /* recurrent states that state_save() can keep; 0 unless the model has such a state */
  /* For several sequences: they share n_pages pages, each of the backend's page_tokens positions, in place of
   * a cache of n_ctx. Each sequence has a page table and, if the model is recurrent, a recurrent state.
   * n_sequences 0: one sequence, whose positions lie one after another. */
  int n_sequences, n_pages;
  /* For several sequences: a row gets the same bits whatever rows of other sequences are in its step, and
   * however its prompt is divided into steps. With recurrent states, each step but the last of a prompt must
   * have whole pages. The caller gives a step at most n_sequences + GUESS_ROWS rows that belong to no prompt.
   * A backend whose rows always have these bits ignores `invariant`. */
  bool invariant;
  StatesType states;       /* for several sequences; else STATES_F32 */
  TapList taps;            /* the layers after which steps may keep the residual stream (TokenRange.taps) */
  const InputSink *inputs; /* outlives the state; NULL: none. Only a backend with carry() heeds it. */
  /* The target's state, for a drafter whose layers use the target's keys and values (DRAFT_ASSISTANT). It has
   * one sequence and a cache of the same type, and outlives the drafter's state. NULL: any other model. */
  const BackendState *target;
} StateOptions;

/* An operation of a program (model/operations.def has the formulas): computes the rows of a step for a
 * layer. */
typedef Status Operation(BackendState *state, TokenRange range, int layer, Error *err);

typedef struct Backend {
  const char *name;          /* "cpu", "cuda" */
  const BackendProbe *probe; /* for bench and inspect: probe.h */
  int chunk;                 /* default number of tokens of a prefill step */
  double row_cost;           /* extra time of a row in a step of few rows; unit: a step of one row */
  /* Returns [GUESS_ROWS + 1]: entry n is the extra time of n more rows; the unit is the time of a step of one
   * row. For a device whose steps are not timed (guessing.h), so that every run computes the same rows.
   * NULL: n * row_cost. */
  const double *(*row_costs)(const BackendModel *loaded);
  int guesses;                  /* default limit of guesses of a sequence in a step (guessing.h) */
  Operation *run[N_OPERATIONS]; /* NULL: forward_prepare() refuses models that have such an operation */
  /* *id = the sampler's pick from a row of logits; id NULL: the pick stays on the device */
  Status (*sample)(BackendState *state, Sampler *sampler, int row, int32_t *id, Error *err);
  /* Refuses (STATUS_MODEL) a model with a part that the backend does not support, and names the part. NULL:
   * the backend supports all models. */
  Status (*check_model)(const Model *model, Error *err);
  /* Refuses (STATUS_MODEL) models and options that open() does not take with StateOptions.invariant, and
   * says why: "--invariant does not go with int8 activations on a GPU". NULL: open() takes all. */
  Status (*check_invariant)(const Model *model, const BackendOptions *options, Error *err);
  /* True if StateOptions.invariant should be the default for several sequences: the device then still
   * multiplies all matrices of the model at about its usual rate. PRECOND check_invariant() takes the model
   * and the options. NULL: no. */
  bool (*prefers_invariant)(const Model *model, const BackendOptions *options);
  /* The device's own memory, so that a model that does not fit is refused before loading. memory->weights may
   * exceed options->weight_bytes: it is then the least that load() needs. NULL: the weights stay mapped in
   * the host's memory. */
  Status (*memory)(const Model *model, const BackendOptions *options, DeviceMemory *memory, Error *err);
  bool prepares_experts; /* calls model_prepare_expert() before it reads an expert */
  /* Only the thread that loads a model uses the model and its states: CUDA's current device belongs to a
   * thread. Other threads may call kv_copy() and state_copy(), and may use other models at the same
   * time. */
  Status (*load)(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err);
  void (*unload)(BackendModel *loaded);
  /* Bytes that open() takes for these options, KV cache included. */
  size_t (*state_bytes)(const ModelConfig *config, const StateOptions *options);
  Status (*open)(BackendModel *loaded, const StateOptions *options, BackendState **state, Error *err);
  void (*close)(BackendState *state);
  /* Copies row `row` of the logits that OP_LOGITS made last to out[vocab_size] on the host. */
  Status (*read_logits)(BackendState *state, int row, float *out, Error *err);

  /* Copies the keys and values of a range, of any length within n_ctx, in a layer with a cache of its own.
   * `host` has room for n >= range.n_tokens tokens; those of the range come first. Its layout: keys
   * [n_cache_heads][n][head_dim] of the cache's type and, with KV_Q8, their scales
   * [n_cache_heads][n][kv_key_scales()]; then values [n_cache_heads][n][head_dim] and their scales
   * [n_cache_heads][n]. With KV_Q8 a GPU stores q + 128 where a CPU stores q. Threads may copy from the host
   * at the same time for different layers or positions. NULL: not supported. */
  Status (*kv_copy)(BackendState *state, CopyDirection direction, TokenRange range, int layer, int n,
                    void *host, Error *err);
  /* Writes to out[size] a text that names all that the bits of keys and values depend on, besides the model,
   * the ids and the cache's type. */
  Status (*arithmetic)(const BackendModel *loaded, char *out, size_t size, Error *err);

  /* Computes a whole step, from ids to the logits of its last n_logit_rows rows. The results are those of the
   * operations up to rounding. *done is false if the device has no kernel for this step: the operations then
   * compute it. NULL: the operations compute every step. */
  Status (*fused_step)(BackendState *state, TokenRange range, bool *done, Error *err);
  /* For a device that records steps and replays them (CUDA graphs); NULL: it does not. begin_step() comes
   * before the operations. It either replays the whole step and sets *replayed (neither operations nor
   * end_step() follow), or it may begin to record. end_step() gets the status so far, after the last
   * operation or the first failure; it runs what was recorded and returns the first failure. */
  Status (*begin_step)(BackendState *state, TokenRange range, bool *replayed, Error *err);
  Status (*end_step)(BackendState *state, Status so_far, Error *err);
  /* True if the step shall drop rows without logits after operation Program.cut. If no row has logits, such a
   * step ends before operation Program.kept. NULL: never. */
  bool (*cuts_rows)(const BackendState *state, TokenRange range);

  /* For asynchronous decode, where sample() with id NULL leaves its pick on the device. NULL: the device
   * cannot, and sample() never gets id NULL. */
  Status (*wait_token)(BackendState *state, int32_t *id, Error *err); /* waits for the oldest unread pick */
  Status (*drain)(BackendState *state, Error *err); /* waits for all work and drops the unread picks */
  /* How many bytes fewer a step of one token at `pos` reads with an 8-bit copy of lm_head, if the picks
   * before and after this step stay on the device; NULL: none. */
  size_t (*head_spares)(const BackendState *state, const Sampler *sampler, int pos);
  /* For layers with a recurrent state (config_layer()). The state exists for one position only, after the
   * tokens that were computed last. A step at position 0 begins with an empty state. recurrent_bytes(): bytes
   * of one layer's state, 0 if it has none. state_save() keeps the current state in a slot of open()'s
   * n_slots. state_restore() makes a slot's state the current one. Both run in the order of steps. NULL: the
   * backend refuses models with such layers. state_copy() copies one layer's part of a slot, in the device's
   * layout. Threads may copy from the host at the same time for different layers. */
  size_t (*recurrent_bytes)(const ModelConfig *config, int layer);
  Status (*state_save)(BackendState *state, int slot, Error *err);
  Status (*state_restore)(BackendState *state, int slot, Error *err);
  Status (*state_copy)(BackendState *state, CopyDirection direction, int slot, int layer, void *host,
                       Error *err);
  /* For several sequences (StateOptions.n_sequences); calls run in the order of steps. page_tokens 0: not
   * supported. set_pages() puts pages[0 .. n) into a sequence's page table, from its entry `first` on: entry
   * i is the page of positions i * page_tokens on. Sequences may share a page that no step writes to.
   * copy_page() copies the keys and values of one page to another, in all layers. sample_rows() picks ids[i]
   * by samplers[i] from row i of the logits, for i < n; samplers[i] NULL: no pick. With ids NULL
   * sample_rows() does not wait for the picks; the samplers then have no mask and no penalties. take_rows()
   * waits for the oldest such call and writes its ids. At most two such calls may be outstanding. take_rows
   * NULL: ids is never NULL. */
  int page_tokens;
  int sequences; /* more sequences than this at once give hardly more tokens a second */
  Status (*set_pages)(BackendState *state, int sequence, int first, const int32_t *pages, int n, Error *err);
  Status (*copy_page)(BackendState *state, int from, int to, Error *err);
  Status (*sample_rows)(BackendState *state, Sampler *const *samplers, int n, int32_t *ids, Error *err);
  Status (*take_rows)(BackendState *state, int32_t *ids, Error *err);
  /* Drafters (config.h, DraftKind). Their state keeps max_chunk + 1 rows of the target's hidden states, each
   * [n_states][target_hidden]. draft_take() copies rows row .. row + n - 1 of the target's last step to rows
   * `to` on. State i of a row is tap taps[i], after the target's final norm if the kind wants that.
   * draft_move() copies a row. draft_context(), for DRAFT_DFLASH, makes keys and values of all layers from
   * the rows that begin at range.states, and appends them to the cache. A row of a later step attends to the
   * whole cache and to all rows of its step. NULL: the backend supports no drafters. */
  Status (*draft_take)(BackendState *state, BackendState *target, int row, int n, const int *taps, int to,
                       Error *err);
  Status (*draft_move)(BackendState *state, int from, int to, Error *err);
  Status (*draft_context)(BackendState *state, TokenRange range, Error *err);
  /* For forward_part(), which computes a part of a layer. carry() copies what one layer hands to the next (x
   * and further residual streams) from the state to rows[n_tokens][carried_floats()] on the host. With `into`
   * it copies rows into the state. NULL: not supported. */
  size_t (*carried_floats)(const BackendState *state);
  Status (*carry)(BackendState *state, TokenRange range, bool into, float *rows, Error *err);
  const struct Quantizer *quantizer; /* of `auk quantize` (quantize/quantizer.h); NULL: the CPU's */
  /* Taps: keep_tap() keeps x after layer taps->layers[index]; read_taps() copies the taps of the last step's
   * rows row .. row + n - 1 to the host: out[n][taps.n][hidden]. NULL: not supported. */
  Status (*keep_tap)(BackendState *state, TokenRange range, int index, Error *err);
  Status (*read_taps)(BackendState *state, int row, int n, float *out, Error *err);
} Backend;

extern const Backend cpu_backend;
