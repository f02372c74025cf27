/* backend.h - the interface to a device: operations over rows of tokens, and its life cycle.
 *
 * forward.c writes the transformer once, over these operations; src/cpu implements them readably, cuda/ with
 * kernels. A backend that misses an operation does not build (the X-macro makes both the table's type and its
 * initialiser). fused_step() is optional: it computes a whole step, with the operations' results. So is
 * layer_end(), which some models need.
 *
 * A BackendState belongs to one session, or to the sequences of one batch (batch.h): the KV cache and every
 * intermediate value. open() allocates all of it, so no operation allocates. forward.c fixes the order of the
 * operations in a step; they pass their results on inside the state:
 *   x     [n_tokens][hidden] fp32   the residual stream
 *   q     [n_tokens][n_heads][head_dim], the KV cache at positions pos .. pos + n_tokens - 1
 *   logits [max_logit_rows][vocab_size] fp32 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "model/slice.h"

typedef struct BackendModel BackendModel; /* the weights in the device's own layout */
typedef struct BackendState BackendState; /* KV cache and intermediate values */

typedef struct BackendProbe BackendProbe;

/* Types of the KV cache. KV_Q8 is int8 with fp16 scales: x = q * scale, q = round(x / scale). A key has a
 * scale for each KEY_SCALE_DIMS numbers, since a few of its channels are far larger than the rest; a value
 * has one for each head (latent attention's on a GPU are its keys, with theirs). scale = largest |x| / 127,
 * rounded up to 7 significant bits, so that 1152 * scale is exact in fp16: GPUs read the byte q + 128 as the
 * half 1024 + 128 + q and subtract 1152 (cuda/attention/q8.cuh). */
typedef enum { KV_F16, KV_F32, KV_Q8 } KvType;

static inline const char *kv_type_name(KvType kv) {
  return kv == KV_F32 ? "f32" : kv == KV_Q8 ? "q8" : "f16";
}

enum { KEY_SCALE_DIMS = 16, KV_SCALE_BYTES = 2 };

static inline size_t kv_number_bytes(KvType kv) {
  return kv == KV_F32 ? 4 : kv == KV_Q8 ? 1 : 2;
}

/* The scales of a key, and the bytes of a key and of a value of one head. */
static inline int kv_key_scales(KvType kv, int head_dim) {
  return kv == KV_Q8 ? (head_dim - 1) / KEY_SCALE_DIMS + 1 : 0;
}
static inline size_t kv_key_bytes(KvType kv, int head_dim) {
  return (size_t)head_dim * kv_number_bytes(kv) + (size_t)kv_key_scales(kv, head_dim) * KV_SCALE_BYTES;
}
static inline size_t kv_value_bytes(KvType kv, int head_dim) {
  return (size_t)head_dim * kv_number_bytes(kv) + (kv == KV_Q8 ? KV_SCALE_BYTES : 0);
}

/* Bytes of a token's own keys and values in a layer; 0 if the layer has none. */
static inline size_t kv_token_bytes(const ModelConfig *config, int layer, KvType kv) {
  const size_t numbers = config_kv_numbers(config, layer);
  const int dim = config_layer(config, layer).head_dim;
  return numbers ? numbers / 2 / (size_t)dim * (kv_key_bytes(kv, dim) + kv_value_bytes(kv, dim)) : 0;
}

/* Layers after which a step keeps the residual stream of its rows, for a drafter (drafters/drafter.h). */
enum { MAX_TAPS = 8, GUESS_ROWS = 15 };
typedef struct {
  int n;                /* 0: none */
  int layers[MAX_TAPS]; /* [n] ascending, each within the model */
} TapList;

/* Rows of a step that belong to one sequence: consecutive positions. */
typedef struct {
  int sequence; /* 0 .. n_sequences - 1 */
  int pos;      /* >= 0; pos + n_tokens <= n_ctx; at 0 a recurrent state begins anew */
  int n_tokens; /* >= 1 */
  bool long_rope;
  /* With StateOptions.invariant: the rows are computed as others of a prompt are, even a single one. Rows of
   * other parts are computed as if each were alone. */
  bool of_prompt;
} SequenceRows;

/* The rows of one step: n_tokens consecutive positions from pos, of sequence 0. A device that keeps the
 * position in its own memory (a captured graph) may ignore pos while it replays. With `parts` the rows of
 * several sequences, some of them decoded and some prefilled; a sequence has at most one part. The parts
 * follow one another in the rows and have n_tokens together; pos and long_rope then mean nothing. */
typedef struct {
  int pos;      /* >= 0; pos + n_tokens <= n_ctx */
  int n_tokens; /* 1 .. max_chunk */
  /* LongRoPE: the whole text is longer than the original context (rope_original_context()), so every position
   * uses the long factors. Cached keys stay valid only while this does not change. */
  bool long_rope;
  const SequenceRows *parts; /* [n_parts] or NULL */
  int n_parts;
  const int32_t *logit_rows; /* with parts: the rows that norm_logits() takes, ascending */
  const TapList *taps;       /* the state's, if the step is to keep them; or NULL */
  /* Nothing of the step is read after it but its logits and what the layers keep, so that the last layer need
   * not compute other rows to their end. */
  bool only_logits;
  int n_kept; /* by forward.c: out_proj_residual() keeps so many rows, those of logits; 0: all */
} TokenRange;

/* How a step of one row runs: the form measured as fastest, one kernel for each operation, or one fused
 * kernel for the whole step (an error where it does not support the model). */
typedef enum { DECODE_AUTO, DECODE_KERNELS, DECODE_FUSED } DecodeStep;

/* How the GPUs that share a model add up what they compute: SUMS_MEMORY where they reach each other's memory,
 * else by NCCL. */
typedef enum { SUMS_AUTO, SUMS_MEMORY, SUMS_NCCL } SplitSums;

/* Reports how many of the checkpoint's bytes are on the device; may be NULL. */
typedef void (*LoadProgress)(void *user, size_t done, size_t total);

/* Where load() puts weights. A device with memory of its own leaves in the host's what does not fit: experts
 * of the last layers, then all matrices of the last layers. */
typedef struct {
  size_t weights;    /* bytes of the device's memory that load() takes */
  size_t free_bytes; /* of it; on a CPU with what mapped weights occupy */
  size_t on_host;    /* bytes of weights that stay in the host's memory, beside a device with its own */
  int host_experts, host_layers; /* layers, the last ones, whose experts and whose matrices do */
  /* Bytes of copies of weights that make long prompts faster (BackendOptions.copies), not among `weights`. */
  size_t copies;
} DeviceMemory;

typedef struct {
  int n_threads; /* CPU threads; 0 = all cores this process may use */
  int gpu;       /* CUDA: the device's number */
  int split;     /* CUDA: > 1: so many GPUs share each layer, and `gpus` has their numbers */
  int gpus[MAX_SPLIT];
  SplitSums sums;      /* CUDA, with split */
  struct Ranks *ranks; /* CUDA: the processes that share the model, this one's GPU among theirs; or NULL */
  int ranks_rank;      /* which of them this is */
  size_t ranks_free_bytes; /* the least free memory of their GPUs */
  size_t weight_bytes; /* CUDA: the most bytes of its memory that weights may take; 0: as many as there are */
  bool int8_activations;      /* CUDA: quantised layers multiply int8 activations (W4A8) */
  bool copies;                /* CUDA: load() makes the copies of DeviceMemory.copies, too */
  bool no_graphs;             /* CUDA: launch every step kernel by kernel */
  DecodeStep decode_step;     /* CUDA */
  const BackendModel *target; /* CUDA, of a drafter: its stream, embedding and head are shared */
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
  /* For several sequences: they share n_pages pages of the backend's page_tokens positions in place of a
   * cache of n_ctx, and each has a page table and, where the model has one, a recurrent state. 0: one
   * sequence, whose positions lie one after another. */
  int n_sequences, n_pages;
  /* For several sequences: a row gets the same bits whatever rows of other sequences are in its step, and
   * however its prompt is divided into steps (with recurrent states: into parts of whole pages, and the
   * rest). In a step at most n_sequences + GUESS_ROWS rows are of no prompt. A backend that gives these
   * anyway ignores it. */
  bool invariant;
  TapList taps; /* of one sequence */
  /* The target's state for a drafter whose layers use its keys and values (DRAFT_GEMMA4): it has one sequence
   * and the same kv, and outlives this one. NULL: any other model. */
  const BackendState *target;
} StateOptions;

/* In the order of a step. Norms multiply by 1 + weight if norms_plus_one(). With norms_are_centred()
 * embed() and down_residual() end with x = x - mean(x), and out_proj_residual() too unless config.parallel;
 * with NORM_CENTRED_BIAS norms of x add a bias after their weights. */
#define BACKEND_OPERATIONS(X)                                                                                \
  /* x = embedding_scale * embedding[ids]; ids NULL: the token that sample() picked last, on the device */   \
  /* with config.embedding_norm x is rmsnorm(embedding[ids]) */                                              \
  /* with config.per_layer_width the inputs of each layer: */                                                \
  /* p = (rmsnorm(Wprojection x / sqrt(hidden)) * norm + sqrt(width) * input_table[ids]) / sqrt(2), */       \
  /* with row 0 for ids beyond the table's last row */                                                       \
  X(embed, (BackendState * state, TokenRange range, const int32_t *ids, Error *err))                         \
  /* h = rmsnorm(x) * attn_norm, or x without that norm; q, k, v = W h + bias; */                            \
  /* q, k = rmsnorm over each head, over all heads together, or unchanged, as the model says; */             \
  /* v = value_scale * v, of value_dim numbers a head, if the model has these; */                            \
  /* with shares_kv only q: attention reads the cache of kv_layer; */                                        \
  /* v = rmsnorm(v or, with k_as_v, k) over each head, without a weight, if config.v_norm is set; */         \
  /* (q, k: this before their rope, or after it with config.qk_norm_after_rope) */                           \
  /* q, k = rope(pos + row) of the layer's kind (config_layer()); k and v go to the cache */                 \
  X(norm_qkv_rope_append, (BackendState * state, TokenRange range, int layer, Error *err))                   \
  /* q is multiplied by config.query_scale_beta's factor of its position */                                  \
  /* a = softmax(cap(attention_scale * q k), causal, inside the layer's window or the query's chunk) v; */   \
  /* each softmax with the head's sink as one more logit, if the model has sinks; */                         \
  /* cap(s) = attention_cap * tanh(s / attention_cap), or s if attention_cap is 0 */                         \
  X(attention, (BackendState * state, TokenRange range, int layer, Error *err))                              \
  /* Replaces these two in layers of LAYER_DELTA: gated delta rule (Yang et al., arXiv:2412.06464). */       \
  /* h as above; c = silu(causal convolution of Wqkv h, each channel with its taps); c holds q and k of */   \
  /* each key head and v of each value head; q = q / |q| / sqrt(key_dim), k = k / |k|, where |u| is */       \
  /* sqrt(sum(u^2) + 1e-6); g = exp(-exp(a_log) softplus(Wa h + dt_bias)); beta = sigmoid(Wb h). */          \
  /* Each value head has a state S [key_dim][value_dim], zeros before position 0: */                         \
  /* S = g S; S = S + k (beta (v - S^T k))^T; a = rmsnorm(S^T q) * norm * silu(Wz h) */                      \
  /* With by_channel (Kimi Team, arXiv:2510.26692) Wa h, dt_bias and g are numbers of each number of a */    \
  /* value head's key, and S = diag(g) S; with log_bound ln g is log_bound sigmoid(exp(a_log) (Wa h + */     \
  /* dt_bias)); with gate_rank Wa h is Wa (Wa_in h), and Wz h likewise; with gate_is_sigmoid sigmoid */      \
  /* stands for the silu of Wz h; with doubles_beta beta is 2 sigmoid(Wb h) */                               \
  /* With RULE_MAMBA2 (Dao and Gu, arXiv:2405.21060): c = silu(convolution + its bias) holds v, k and q; */  \
  /* dt = softplus(Wa h + dt_bias), at least least_step, at most largest_step; g = exp(-exp(a_log) dt); */   \
  /* S = g S + k (dt v)^T; y = S^T q + skip v; a = rmsnorm(y * silu(Wz h)) * norm over a group's heads */    \
  /* or without that norm; with DeltaConfig's factors of Wz h, of Wa h and of a */                           \
  /* With LayerConfig.delta_beside a layer calls it before these two, and its output is kept as d, not a */  \
  X(norm_delta_rule, (BackendState * state, TokenRange range, int layer, Error *err))                        \
  /* Replaces them in layers of LAYER_CONV: b, c, u = Win h + bias, hidden numbers each (h as above); */     \
  /* a = c * (causal convolution of b * u, each channel with its taps, + its bias) */                        \
  X(norm_short_conv, (BackendState * state, TokenRange range, int layer, Error *err))                        \
  /* a = a * sigmoid(attn_gate h), by number or by head, if the model has that gate (h as above); */         \
  /* x = x + residual_scale * o; o = Wo a + bias, or rmsnorm(Wo a + bias) * attn_post_norm; */               \
  /* o = Wo a + delta.o d with delta_beside. With range.n_kept rows 0 .. n_kept - 1 of x become those of */  \
  /* the last n_kept rows, or of range.logit_rows, and the others have no meaning after it */                \
  X(out_proj_residual, (BackendState * state, TokenRange range, int layer, Error *err))                      \
  /* h = rmsnorm(x) * mlp_norm, or x without that norm; g = activation(Wgate h) * (Wup h), */                \
  /* with config.parallel h is that of attention; */                                                         \
  /* with mlp_scale * activation(gate_scale * Wgate h) */                                                    \
  /* with LayerConfig.sparsity Wgate h is max(Wgate h - c, 0), c as there */                                 \
  X(norm_gate_up, (BackendState * state, TokenRange range, int layer, Error *err))                           \
  /* x = x + residual_scale * d; d = Wdown g + bias, or rmsnorm(Wdown g + bias) * mlp_post_norm */           \
  X(down_residual, (BackendState * state, TokenRange range, int layer, Error *err))                          \
  /* Replaces these two in layers with experts. h as there; r = Wrouter h + bias. The score of an expert */  \
  /* is softmax(r), sigmoid(r) or, from SCORE_CHOSEN on, r itself. Chosen are the n_chosen experts with */   \
  /* the largest score + choice_bias, of equal ones the first, out of the best groups (ExpertConfig). */     \
  /* Their weights w are the scores or, from SCORE_CHOSEN on, softmax over the chosen r, sigmoid of each, */ \
  /* or what SCORE_CHOSEN_NEAR says; then w = w / (sum(w) + sum_plus) with renormalise, and w = scale * */   \
  /* w. e = sum over the chosen of w (Wdown g + bias), g = activation(Wgate h + bias) * (Wup h + bias); s */ \
  /* = the same of the MLP beside them, if there is one, times sigmoid(Wshared_gate h) with shared_gate; */  \
  /* x = x + residual_scale * (e + s), or of rmsnorm(e + s) * mlp_post_norm with that norm. With */          \
  /* scales_input e = sum over the chosen of what they make of w h. With OWN_NORMS r = Wrouter */            \
  /* (rmsnorm(x) * router_scale / sqrt(hidden)), w is also multiplied by moe.scales, the experts' h is */    \
  /* rmsnorm(x) * moe.norm, and x = x + rmsnorm(rmsnorm(e) * moe.post_norm + rmsnorm(s) * */                 \
  /* moe.shared_post_norm) * mlp_post_norm */                                                                \
  X(norm_experts_residual, (BackendState * state, TokenRange range, int layer, Error *err))                  \
  /* logits[0 .. n_rows) = cap((Whead (rmsnorm(x) * final_norm) + bias) / logit_divisor) for the rows of */  \
  /* x from first_row on, or for range.logit_rows; cap as above, with logit_cap */                           \
  X(norm_logits, (BackendState * state, TokenRange range, int first_row, int n_rows, Error *err))            \
  /* *id = the sampler's pick from a row of logits; id NULL: it stays on the device */                       \
  X(sample, (BackendState * state, Sampler * sampler, int row, int32_t *id, Error *err))

typedef struct Backend {
  const char *name;          /* "cpu", "cuda" */
  const BackendProbe *probe; /* for bench and inspect: probe.h */
  int chunk;                 /* default number of tokens of a prefill step */
  double row_cost;           /* extra time of one more row in a step of few rows; a step of one row is 1 */
  /* [GUESS_ROWS + 1] extra time of n more rows in a step of one row, for a device that is not timed
   * (guessing.h), so that it computes the same rows in every run; NULL: n * row_cost. */
  const double *(*row_costs)(const BackendModel *loaded);
  int guesses; /* tokens that a step guesses by default (guessing.h), at most */
  /* Refuses (STATUS_MODEL) a model with a part that the backend does not support, and names the part. NULL:
   * it supports all models. */
  Status (*check_model)(const Model *model, Error *err);
  /* Refuses (STATUS_MODEL) models and options that open() does not take with StateOptions.invariant, and
   * says what stands against it: "--invariant does not go with int8 activations on a GPU". NULL: it takes
   * all. */
  Status (*check_invariant)(const Model *model, const BackendOptions *options, Error *err);
  /* True if several sequences should be computed with StateOptions.invariant unless the user wants it
   * otherwise: the device then multiplies all matrices of the model at about its usual rate. PRECOND
   * check_invariant() takes the model and the options. NULL: no. */
  bool (*prefers_invariant)(const Model *model, const BackendOptions *options);
  /* The device's own memory, so that a model that does not fit is refused before loading. With
   * options->weight_bytes what load() takes may still be more than that: it is then the least that it needs.
   * NULL: the weights stay mapped in the host's memory. */
  Status (*memory)(const Model *model, const BackendOptions *options, DeviceMemory *memory, Error *err);
  bool prepares_experts; /* calls model_prepare_expert() before it reads an expert */
  /* The thread that loads a model is the one that uses it and its states: CUDA's current device is the
   * thread's. Threads may use models of their own at the same time. */
  Status (*load)(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err);
  void (*unload)(BackendModel *loaded);
  /* Bytes that open() takes for these options, KV cache included. */
  size_t (*state_bytes)(const ModelConfig *config, const StateOptions *options);
  Status (*open)(BackendModel *loaded, const StateOptions *options, BackendState **state, Error *err);
  void (*close)(BackendState *state);
  /* Copies row `row` of the logits that norm_logits() made last to out[vocab_size] on the host. */
  Status (*read_logits)(BackendState *state, int row, float *out, Error *err);

  /* The keys and then the values of one layer that does not share another's as bytes: keys
   * [n_cache_heads][n][head_dim] of the cache's type and, with KV_Q8, their scales [n_cache_heads][n]
   * [kv_key_scales()]; then values [n_cache_heads][n][head_dim] and their scales [n_cache_heads][n]. With
   * KV_Q8 a GPU keeps q + 128 where a CPU keeps q. kv_read() copies those of a range (of any length within
   * n_ctx) to the host. kv_write() puts the first range.n_tokens of n_stored tokens into the cache; threads
   * may call it at the same time for different layers or positions. NULL: not supported. */
  Status (*kv_read)(BackendState *state, TokenRange range, int layer, void *out, Error *err);
  Status (*kv_write)(BackendState *state, TokenRange range, int layer, int n_stored, const void *from,
                     Error *err);
  /* Writes to out[size] a text that names everything else that decides the bits of keys and values: all but
   * the model, the ids and the cache's type. */
  Status (*arithmetic)(const BackendModel *loaded, char *out, size_t size, Error *err);

  /* Computes a whole step, from ids to the logits of its last n_logit_rows rows, with the results of the
   * operations. *done is false where the device has no kernel for this step: the operations then
   * compute it. NULL: they always do. */
  Status (*fused_step)(BackendState *state, TokenRange range, const int32_t *ids, int n_logit_rows,
                       bool *done, Error *err);
  /* For a device that records steps and replays them (CUDA graphs); NULL: it does not. begin_step() comes
   * before embed(). It either replays the whole step and sets *replayed (neither operations nor end_step()
   * follow), or it may begin to record. end_step() comes after the last operation or the first failure with
   * the status so far; it runs what was recorded and returns the first failure. */
  Status (*begin_step)(BackendState *state, TokenRange range, const int32_t *ids, int n_logit_rows,
                       bool *replayed, Error *err);
  Status (*end_step)(BackendState *state, Status so_far, Error *err);
  /* True if the last layer of the step shall compute only rows of logits from out_proj_residual() on
   * (range.n_kept), and without rows of logits nothing after its keys and values or its recurrent state.
   * NULL: it never does. */
  bool (*cuts_rows)(const BackendState *state, TokenRange range, int n_logit_rows);

  /* For asynchronous decode, where sample() with id NULL leaves its pick on the device. NULL: the device
   * cannot, and sample() never gets id NULL. */
  Status (*wait_token)(BackendState *state, int32_t *id, Error *err); /* waits for the oldest unread pick */
  Status (*drain)(BackendState *state, Error *err); /* waits for all work and drops the unread picks */
  /* Bytes of lm_head that a step of one token at `pos` between two such picks need not read; NULL: none. */
  size_t (*head_spares)(const BackendState *state, const Sampler *sampler, int pos);
  /* Layers with a recurrent state (config_layer()), which exists for one position only: that after the tokens
   * computed last. A step at position 0 begins with an empty state. recurrent_bytes(): bytes of one layer's
   * state, 0 if it has none. state_save() keeps the current state in a slot of open()'s n_slots,
   * state_restore() makes a slot's state the current one; both in the order of steps. NULL: the backend
   * refuses models with such layers. state_read() copies one layer's part of a slot to the host, and
   * state_write() puts it back, in the layout of the device; threads may call it at the same time for
   * different layers. */
  size_t (*recurrent_bytes)(const ModelConfig *config, int layer);
  Status (*state_save)(BackendState *state, int slot, Error *err);
  Status (*state_restore)(BackendState *state, int slot, Error *err);
  Status (*state_read)(BackendState *state, int slot, int layer, void *out, Error *err);
  Status (*state_write)(BackendState *state, int slot, int layer, const void *from, Error *err);
  /* After down_residual() of models with config.layer_scalar or per_layer_width; NULL: check_model() refuses
   * them.
   *   x = x + residual_scale * rmsnorm(Wprojection (activation(Wgate x) * p)) * input_norm,
   *   p being this layer's part of what embed() made;     x = scalar * x */
  Status (*layer_end)(BackendState *state, TokenRange range, int layer, Error *err);
  /* Only of models with config.streams.n, n below; NULL: check_model() refuses them. embed() makes each
   * stream s_i the embedding. mix_streams() comes before attention, or what stands in its place, and with
   * `mlp` before the MLP, in place of their norms: u = the streams, each normalised by itself, times norm;
   *   h = mean over i of sigmoid((Wup silu(Wdown u / n))_i) * u_i;   x = 0
   * inject_streams() comes after them: s_i = s_i + 2 sigmoid((Winject u)_i / n) x. norm_logits()
   * reads a mix made in the same way. add_ngrams() comes before a layer with LayerConfig.ngrams: e = the
   * rows of the table for the token's n-grams (ngram_hash()), k = Wkey e, v = Wvalue e,
   *   g_i = (norm(k)_i . norm(s)_i) / sqrt(hidden);  g_i = sign(g_i) sqrt(max(|g_i|, 1e-6));
   *   c_i = sigmoid(g_i) v;   s_i = s_i + c_i + silu(convolution over tokens of norm(c)_i)
   * models.md, "Residual streams, n-grams and chosen positions". */
  Status (*add_ngrams)(BackendState *state, TokenRange range, int layer, Error *err);
  Status (*mix_streams)(BackendState *state, TokenRange range, int layer, bool mlp, Error *err);
  Status (*inject_streams)(BackendState *state, TokenRange range, Error *err);
  /* Only of models with config.altup.n, n below, whose layers all have attention and norms around it. embed()
   * makes the streams: s_0 the embedding x, s_i = Win_i x times |x| / |Win_i x|, where |u|^2 is the mean of
   * u's squares, in divisors at least 1e-5. predict_streams() comes before a layer:
   *   m = tanh(Wrouter (rmsnorm(s_0) * router_norm) / hidden);
   *   s_j = s_j + sum over i of (Wpredict m)_(j n + i) s_i;   x = s_0
   * add_laurel() comes after norm_qkv_rope_append(), whose h it reads, and with out_proj_residual():
   *   x = (x + h + rmsnorm(Wright Wleft h) * laurel_norm + o) / sqrt(2)
   * correct_streams() comes after the MLP: m as above, of x for s_0; e = x - s_0;
   *   s_i = s_i + (1 + (Wcorrect m)_i) e;   x = s_0 * output_scale
   * layer_end() then adds what it computes to s_1 .. s_(n-1), not to x. norm_logits() takes the mean of s_0
   * and of Wout_i s_i times |s_0| / |Wout_i s_i| for x. models.md, "AltUp and LAuReL". */
  Status (*predict_streams)(BackendState *state, TokenRange range, int layer, Error *err);
  Status (*add_laurel)(BackendState *state, TokenRange range, int layer, Error *err);
  Status (*correct_streams)(BackendState *state, TokenRange range, int layer, Error *err);

  /* Several sequences (StateOptions.n_sequences), all in the order of steps; page_tokens 0: not supported.
   * set_pages() puts pages[0 .. n) into a sequence's page table, from its entry `first` on: entry i is the
   * page of positions i * page_tokens on. Sequences may share a page that no step writes to. copy_page()
   * copies the keys and values of one page to another, in all layers. sample_rows() picks ids[i] by
   * samplers[i] from row i of the logits, for i < n; samplers[i] NULL: nothing. */
  int page_tokens;
  int sequences; /* from so many at once on, more give hardly more tokens a second */
  Status (*set_pages)(BackendState *state, int sequence, int first, const int32_t *pages, int n, Error *err);
  Status (*copy_page)(BackendState *state, int from, int to, Error *err);
  Status (*sample_rows)(BackendState *state, Sampler *const *samplers, int n, int32_t *ids, Error *err);
  /* Drafters (config.h, DraftKind). Their state keeps max_chunk + 1 rows of the target's states, each
   * [n_states][target_hidden]. draft_take() makes rows `to` on from rows `row` on of the target's last
   * step: state i is its tap taps[i], after the target's final norm where the kind wants that. draft_move()
   * copies a row. draft_embed() comes in place of embed(): it makes x, and what else the first layer takes,
   * from the embeddings of ids and the rows from `states` on. With states -1 it takes one row, and the
   * drafter's own state after its last step, which had one row and made its logits. draft_context() appends
   * the keys and values of all layers that DRAFT_DFLASH makes of rows. In a step of DRAFT_DFLASH each row
   * attends to all of them. draft_step() computes a whole step of a drafter with the results of draft_embed()
   * and of the operations, if *done; it may be NULL. The others NULL: not supported. */
  Status (*draft_take)(BackendState *state, BackendState *target, int row, int n, const int *taps, int to,
                       Error *err);
  Status (*draft_move)(BackendState *state, int from, int to, Error *err);
  Status (*draft_embed)(BackendState *state, TokenRange range, const int32_t *ids, int states, Error *err);
  Status (*draft_context)(BackendState *state, TokenRange range, int states, Error *err);
  Status (*draft_step)(BackendState *state, TokenRange range, const int32_t *ids, int states,
                       int n_logit_rows, bool *done, Error *err);
  /* Taps: keep_tap() copies x after taps->layers[index], read_taps() gives those of the last step's rows
   * row .. row + n - 1 to the host: out[n][taps.n][hidden]. NULL: not supported. */
  Status (*keep_tap)(BackendState *state, TokenRange range, int index, Error *err);
  Status (*read_taps)(BackendState *state, int row, int n, float *out, Error *err);
#define BACKEND_DECLARE(name, arguments) Status(*name) arguments;
  BACKEND_OPERATIONS(BACKEND_DECLARE)
#undef BACKEND_DECLARE
} Backend;

extern const Backend cpu_backend;
