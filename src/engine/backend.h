/* backend.h - what a device must be able to do: eight operations over rows of tokens, and its life cycle.
 *
 * The transformer is written once, in forward.c, over these; src/cpu implements them readably, cuda/ with
 * kernels. A backend that misses an operation does not build (the X-macro makes both the table's type and its
 * initialiser). fused_step() is optional: a whole step at once, held to the operations' results.
 *
 * A BackendState belongs to one session: the KV cache and every intermediate value, all allocated by open(),
 * so that no operation allocates. The operations of a step run in the order forward.c calls them and hand
 * their results to each other inside the state:
 *   x     [n_tokens][hidden] fp32   the residual stream
 *   q     [n_tokens][n_heads][head_dim], the KV cache at positions pos .. pos + n_tokens - 1
 *   logits [max_logit_rows][vocab_size] fp32 */
#ifndef AUK_ENGINE_BACKEND_H
#define AUK_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/sampler.h"
#include "model/model.h"

typedef struct BackendModel BackendModel; /* the weights in the device's own layout */
typedef struct BackendState BackendState; /* one session's KV cache and intermediate values */

typedef struct BackendProbe BackendProbe;

typedef enum { KV_F16, KV_F32 } KvType;

/* The rows of one step: n_tokens consecutive positions from pos. A device that keeps the position in its own
 * memory (a captured graph) may ignore pos while it replays. */
typedef struct {
  int pos;      /* >= 0; pos + n_tokens <= n_ctx */
  int n_tokens; /* 1 .. max_chunk */
  /* LongRoPE: the whole text is longer than the original context (rope_original_context()), so every position
   * uses the long factors. Cached keys stay valid only while this does not change. */
  bool long_text;
} Span;

/* How a step of one row is computed: what is the fastest that was measured, a kernel for each operation, or
 * one kernel for all of it, which refuses models that it is not for. */
typedef enum { DECODE_AUTO, DECODE_KERNELS, DECODE_CLUSTER } DecodeStep;

/* Told of the bytes of the checkpoint that are on the device so far, of all; may be NULL. */
typedef void (*LoadProgress)(void *user, size_t done, size_t total);

typedef struct {
  int n_threads;          /* CPU threads; 0 = all cores this process may use */
  int gpu;                /* CUDA: which one */
  bool int8_activations;  /* CUDA: quantised layers multiply int8 activations (W4A8) */
  bool no_graphs;         /* CUDA: every step is launched kernel by kernel */
  DecodeStep decode_step; /* CUDA */
  const char *kernel;     /* CUDA: this row of the dispatch table for every quantised layer, or NULL */
  LoadProgress progress;
  void *progress_user;
} BackendOptions;

typedef struct {
  int n_ctx;          /* positions the KV cache holds */
  int max_chunk;      /* most tokens of one step */
  int max_logit_rows; /* most rows whose logits one step keeps */
  KvType kv;
} StateOptions;

/* Of each layer in this order. Norms multiply by 1 + weight where config.norm_plus_one says so. */
#define BACKEND_OPERATIONS(X)                                                                                \
  /* x = embedding_scale * embedding[ids]; ids NULL: the token that `sample` put last (on the device) */     \
  X(embed, (BackendState * state, Span span, const int32_t *ids, Error *err))                                \
  /* h = rmsnorm(x) * attn_norm, or x where there is no such norm; q, k, v = W h + bias; */                  \
  /* q, k = rmsnorm of each head or of all together, where the model has it; */                              \
  /* q, k = rope(pos + row) of the layer's kind (config_layer_rope); the cache takes k and v */              \
  X(norm_qkv_rope_append, (BackendState * state, Span span, int layer, Error *err))                          \
  /* a = softmax(cap(attention_scale * q k), causal, inside the layer's window) v; */                        \
  /* cap(s) = attention_cap * tanh(s / attention_cap), where there is one */                                 \
  X(attention, (BackendState * state, Span span, int layer, Error *err))                                     \
  /* x = x + residual_scale * o; o = Wo a + bias, or rmsnorm(Wo a + bias) * attn_post_norm */                \
  X(out_proj_residual, (BackendState * state, Span span, int layer, Error *err))                             \
  /* h = rmsnorm(x) * mlp_norm, or x; g = activation(Wgate h) * (Wup h) */                                   \
  X(norm_gate_up, (BackendState * state, Span span, int layer, Error *err))                                  \
  /* x = x + residual_scale * d; d = Wdown g + bias, or rmsnorm(Wdown g + bias) * mlp_post_norm */           \
  X(down_residual, (BackendState * state, Span span, int layer, Error *err))                                 \
  /* logits[0 .. n_rows) = cap(Whead (rmsnorm(x) * final_norm) / logit_divisor), cap with logit_cap, */      \
  /* of the rows from first_row on */                                                                        \
  X(norm_logits, (BackendState * state, Span span, int first_row, int n_rows, Error *err))                   \
  /* *id = the sampler's pick from the last row of logits; id NULL: it stays on the device */                \
  X(sample, (BackendState * state, Sampler * sampler, int32_t * id, Error * err))

typedef struct Backend {
  const char *name;          /* "cpu", "cuda" */
  const BackendProbe *probe; /* for bench and inspect (probe.h), which need it */
  int chunk;                 /* tokens of one prefill step that serve it well */
  /* Refuses (STATUS_MODEL), by its name, what of a model it does not compute. NULL: it computes all. */
  Status (*check_model)(const Model *model, Error *err);
  /* Bytes that load() takes of the device's own memory, and what is free there, for refusing before loading.
   * NULL: the weights stay mapped, and memory is the host's. */
  Status (*memory)(const Model *model, const BackendOptions *options, size_t *needed, size_t *free_bytes,
                   Error *err);
  Status (*load)(const Model *model, const BackendOptions *options, BackendModel **loaded, Error *err);
  void (*unload)(BackendModel *loaded);
  /* Bytes open() will take for these options, KV cache included, for refusing before loading. */
  size_t (*state_bytes)(const ModelConfig *config, const StateOptions *options);
  Status (*open)(BackendModel *loaded, const StateOptions *options, BackendState **state, Error *err);
  void (*close)(BackendState *state);
  /* Copies row `row` of the logits the last norm_logits left to out[vocab_size] on the host. */
  Status (*read_logits)(BackendState *state, int row, float *out, Error *err);

  /* Keys and values as bytes, the same on every device: of one layer, its keys and then its values, each
   * [n_kv_heads][n][head_dim] in the cache's type. kv_read() copies those of a span to the host. kv_write()
   * puts the first span.n_tokens of n_stored tokens into the cache; several threads may call it at once, for
   * other layers or positions. The span is of any length within n_ctx. NULL: they are not handed out. */
  Status (*kv_read)(BackendState *state, Span span, int layer, void *out, Error *err);
  Status (*kv_write)(BackendState *state, Span span, int layer, int n_stored, const void *from, Error *err);
  /* What decides their bits beside the model, the ids and the cache's type, in words, in out[size]. */
  Status (*arithmetic)(const BackendModel *loaded, char *out, size_t size, Error *err);

  /* A whole step, from ids to the logits of its last n_logit_rows rows, where the device has a kernel for it,
   * with the results of the eight operations above. *done is false where those have to compute it; NULL: they
   * always do. */
  Status (*fused_step)(BackendState *state, Span span, const int32_t *ids, int n_logit_rows, bool *done,
                       Error *err);
  /* The brackets of a step of operations, for a device that records steps; NULL: none. begin_step() comes
   * before embed() and may answer that it replayed the whole step; end_step() comes after the last operation,
   * with the status so far, which it returns where it has no failure of its own. */
  Status (*begin_step)(BackendState *state, Span span, const int32_t *ids, int n_logit_rows, bool *replayed,
                       Error *err);
  Status (*end_step)(BackendState *state, Status so_far, Error *err);

  /* For a device that runs ahead of the host; NULL: it does not, and sample() is never given id NULL. */
  Status (*take_token)(BackendState *state, int32_t *id, Error *err); /* waits for the oldest unseen pick */
  Status (*settle)(BackendState *state, Error *err); /* waits for everything, drops the picks nobody took */
#define BACKEND_DECLARE(name, arguments) Status(*name) arguments;
  BACKEND_OPERATIONS(BACKEND_DECLARE)
#undef BACKEND_DECLARE
} Backend;

extern const Backend cpu_backend;

#endif
