/* cpu.h - shared by the files of src/cpu: the loaded model, a session's state, the parallel drivers.
 *
 * The drivers split work among threads so that no sum depends on the split: any number of threads gives the
 * same bits. */
#pragma once

#include "base/status.h"
#include "cpu/kernels.h"
#include "cpu/team.h"
#include "engine/probe.h"
#include "model/model.h"

typedef struct {
  const Linear *linear;
  const float *bias; /* [n_out] or NULL */
} CpuLinear;

typedef union {
  CpuLinear linear[N_EXPERT_LINEARS];
  struct {
#define EXPERT_LINEAR(SLOT, member, ...) CpuLinear member;
#include "model/tensors.def"
  };
} CpuExpert;

/* The matrices of a mix of streams (operations.def, MIX_FOR_ATTENTION); inject.linear is NULL for the mix
 * before the logits. */
typedef struct {
  CpuLinear down, up, inject;
} CpuMix;

/* A layer's tensors (model/tensors.def): matrices stay where they are, vectors are copied as fp32. A NULL
 * linear or vector: the layer has no such tensor. Some vectors have another form than in the checkpoint:
 *   norms      plus layer_vector_plus(), which is 0 or 1
 *   taps       [taps][channels], transposed; their rows and the convolutions' biases are padded with zeros
 *   conv_bias  zeros where a LAYER_CONV has no bias
 *   delta_a_log   [n_value_heads] -exp(a_log), the rate of decay
 *   router_scale  [hidden] divided by sqrt(hidden)
 *   q_norm, k_norm   `ones` with QK_NORM_PLAIN */
typedef struct {
  union {
    CpuLinear linear[N_LAYER_LINEARS];
    struct {
#define LINEAR(SLOT, member, ...) CpuLinear member;
#include "model/tensors.def"
    };
  };
  union {
    const float *vector[N_LAYER_VECTORS];
    struct {
#define VECTOR(SLOT, member, ...) const float *member;
#include "model/tensors.def"
    };
  };
  CpuExpert *experts;    /* [n_experts] */
  Xielu xielu;           /* zeros without ACTIVATION_XIELU */
  const NgramHash *hash; /* NULL: a layer without n-grams */
} CpuLayer;

typedef struct {
  float *frequencies; /* [n_pairs] made by rope_frequencies(); belongs to the BackendModel */
  int n_pairs;        /* rotary_dim / 2 */
  bool neighbours;    /* the pairs are (2 i, 2 i + 1), not (i, i + n_pairs) */
  float attention_factor;
} CpuRope;

/* Matrices stay in the Model's memory; norms and biases are copied as fp32. */
struct BackendModel {
  const Model *model;
  const Kernels *kernels;
  int n_threads;
  Team *team;         /* threads that multiply, owned by CpuProducts; NULL: OpenMP's */
  CpuLayer *layers;   /* [n_layers] */
  CpuExpert *experts; /* experts of all layers, or NULL */
  union {             /* tensors outside the layers; linear or vector NULL: the model has no such tensor */
    CpuLinear linear[N_MODEL_LINEARS];
    struct {
#define MODEL_LINEAR(SLOT, member, count, ...) CpuLinear member count;
#include "model/tensors.def"
    };
  };
  union {
    const float *vector[N_MODEL_VECTORS];
    struct {
#define MODEL_VECTOR(SLOT, member, count, ...) const float *member count;
#include "model/tensors.def"
    };
  };
  NgramHash *hashes;
  const float *ones; /* all ones, for norms without weights; NULL: the model has no such norm */
  /* q_scales: [key_dim] 1 / key_dim; k_scales: [key_dim] 1 / sqrt(key_dim). With these weights and epsilon
   * 1e-6 / key_dim rms_norm() makes q / |q| / sqrt(key_dim) and k / |k|. NULL: no layer has the delta rule */
  const float *q_scales, *k_scales;
  float *vectors;              /* owns all norms and biases above */
  CpuRope ropes[2], long_rope; /* ropes[LayerRope]; long_rope: the global rope with LongRoPE's long factors */
};

/* The widths of a session's rows, each the largest of all layers. The members down to start count floats,
 * padded to ALIGN_FLOATS, and are 0 where the model has no such rows. */
typedef struct {
  int hidden, heads, kv_heads, gates, intermediate, v_width;
  int inputs;        /* a token's per-layer inputs */
  int states, pairs; /* for a drafter's token. states: the target's states; pairs: an embedding and a state */
  int queries, channels, delta_heads, delta_width, beside;
  int delta_decays, gate_rank; /* gate_rank 0: one matrix for each gate */
  int q_rank, kv_a, head_in;   /* of latent attention */
  /* routes: the router's outputs; expert_width: outputs of an expert's gate or up; expert_row: its input. */
  int routes, expert_width, expert_row;
  int streams, stream_rank, stream_factors, ngrams, index; /* of streams.c, altup.c and sparse.c */
  int up;    /* up's outputs in layers that need gates and up apart */
  int start; /* what each loop over layers adds to x */
  /* selected: the most positions that a row selects; block_scores: floats for the blocks' scores, twice. */
  int selected, block_scores;
  size_t gathered_bytes;           /* K, V and scales of `selected` positions of one KV head */
  size_t recurrent_bytes;          /* a sequence's states, of all layers together */
  int n_segments, n_ropes, angles; /* angles: rotated pairs of a row, for one rope */
  int n_sequences, n_table;        /* n_table: entries of a page table */
} StatePlan;

/* The KV cache of one layer. Layers that share a cache have equal structs. */
typedef struct {
  uint8_t *heads;             /* [n_cache_heads][head_bytes] */
  size_t k_bytes, head_bytes; /* of one KV head. k_bytes: K without scales; head_bytes: K, V, scales */
  /* With KV_Q8: the offset of K's scales in a KV head, and their bytes. V's scales follow. */
  size_t scales, scales_bytes;
  int head_dim, v_width;
} LayerCache;

/* Scratch memory of run_matmuls() and run_groups(). */
typedef struct {
  float *parts; /* [n_parts] partial sums of a call: outputs x splits x up to FEW_ROWS rows */
  size_t n_parts;
  RoundedRows rounded; /* all rows of a call; stride: the widest input; numbers NULL: no int8 matmuls */
  float *ordered;      /* [n_ordered] floats: rows of x gathered for permuted inputs (Linear.order) */
  size_t n_ordered;
} MatmulScratch;

/* For each row y = w x + bias; with add, y += scale * (w x + bias). With gate, y is the gated product g
 * (config.h, "Activation") of gate x + bias and w x + bias; with own_gate, w x + bias stands for both. */
typedef struct {
  CpuLinear w, gate; /* gate.linear NULL: none */
  bool own_gate;
  bool scaled; /* with gate: (gate x + bias) * gate_scale and (w x + bias) * up_scale before the activation */
  float gate_scale, up_scale;
  Activation activation;
  ActivationNumbers numbers;
  bool add;
  float scale;
  float *y;
  size_t y_stride;
} Matmul;

/* A matmul and its rows of x. */
typedef struct {
  Matmul matmul;
  const float *x; /* [n_rows][x_stride] */
  size_t x_stride;
  int n_rows;
  /* Set by linear.c. rounded: the group's first row in MatmulScratch.rounded; task_rows: most rows of a task;
   * first_task: the index of the group's first task. */
  int rounded, task_rows;
  int64_t first_task;
} MatmulGroup;

/* An expert that a row chose. */
typedef struct {
  int expert, place; /* place: the index of the row's copy in expert_rows (experts.c) */
  float weight;
} ExpertChoice;

struct BackendState {
  const BackendModel *loaded;
  StateOptions options;
  StatePlan plan;
  void *memory;          /* owns the arrays of buffers.def and of scratch */
  MatmulScratch scratch; /* run_matmuls()'s */
#define BUFFER(type, member, ...) type *member;
#include "cpu/buffers.def"
  int n_logit_rows; /* rows of `logits` that are valid */
  int32_t last_id;  /* the token that sample() picked last */
};

/* The cache of one KV head, with the page table of a sequence; valid until the state is closed. */
KvHead state_kv_head(const BackendState *state, int sequence, int layer, int kv_head);

/* The number of a step's parts, and part i: a range without parts is one part. */
static inline int cpu_n_parts(const TokenRange *range) {
  return range->parts ? range->n_parts : 1;
}
static inline SequenceRows cpu_part(const TokenRange *range, int i) {
  if (range->parts) return range->parts[i];
  return (SequenceRows){.pos = range->pos, .n_tokens = range->n_tokens, .long_rope = range->long_rope};
}

enum { MAX_MATMULS = 6 };
/* Computes matmuls of the same rows of x, at most MAX_MATMULS. run_matmul(): y = w x + bias alone. */
void run_matmuls(const BackendState *state, const float *x, int x_stride, int n_rows, const Matmul *matmuls,
                 int n_matmuls);
void run_matmul(const BackendState *state, CpuLinear w, const float *x, int x_stride, int n_rows, float *y,
                int y_stride);
/* Computes matmuls, each of its own rows. PRECOND the rows of all LINEAR_INT8 matmuls together fit into
 * state->scratch.rounded. */
void run_groups(const BackendState *state, MatmulGroup *groups, int n_groups);
/* Passes rows of x to StateOptions.inputs as the inputs of `linear`. run_matmuls(), run_matmul() and
 * run_groups() do so themselves. None of them gets kv_b, since latent attention multiplies it head by head,
 * in another form. */
void show_input(const BackendState *state, const float *x, int x_stride, int n_rows, const Linear *linear);

typedef void SharedItem(void *context, int i);
/* Calls item(context, i) for 0 <= i < n. The threads of the model's team or OpenMP's share the items; if n is
 * 1, the caller computes the item itself. */
void cpu_share(const BackendState *state, int n, SharedItem *item, void *context);

/* Positions of rows (rope.c). cpu_place_rows(): sets the rows' sequences, positions and angles.
 * cpu_rotate_queries(): norm, rope and scale of state->q. cpu_append(): norm and rope of state->k; then
 * state->k and state->v go to the cache. */
void cpu_place_rows(BackendState *state, TokenRange range);
void cpu_rotate_queries(BackendState *state, TokenRange range, int layer);
void cpu_append(BackendState *state, TokenRange range, int layer);

/* The matmul of a layer's gate and up (products.c); the caller sets y. */
Matmul cpu_gate_up(const BackendModel *loaded, int layer);

/* The input of a matmul: rmsnorm(x) * weight + bias, in state->h. bias may be NULL. weight NULL: the input is
 * state->x. With streams: state->h as the mix left it. */
const float *cpu_normalised(BackendState *state, int n_rows, const float *weight, const float *bias);

/* A row of rows that are `stride` floats apart. */
static inline float *cpu_row(float *rows, int stride, int row) {
  return rows + (size_t)row * (size_t)stride;
}

/* to[r] = rmsnorm(from[r]) * weight, for n_rows rows of n numbers; `to` may be `from`. */
void cpu_norm_rows(const BackendState *state, const float *from, int from_stride, int n_rows,
                   const float *weight, int n, double eps, float *to, int to_stride);
void cpu_centre(float *x, int n); /* x = x - mean(x) */

/* The operation norm_experts_residual (experts.c). */
void cpu_experts(BackendState *state, int n_rows, int layer);
/* For products.c: computes the experts in state->expert_choices for the rows `from`, which have
 * plan.expert_row numbers each. y[n_rows][y_stride] = the sum of their outputs, weighted as by
 * norm_experts_residual. */
void cpu_chosen_experts(BackendState *state, int n_rows, int layer, const float *from, float *y,
                        size_t y_stride);
/* A causal convolution of rows; each column has its own taps. */
typedef struct {
  const float *rows; /* [n_rows][stride], padded with zeros after the last column */
  size_t stride;
  float *tail;       /* [n_taps - 1][width] the rows before `rows`, the oldest first */
  const float *taps; /* [n_taps][width], the last one for the row itself */
  int n_rows, n_taps;
  int width;          /* columns, padded to ALIGN_FLOATS */
  const float *gates; /* [n_rows][gate_stride] or NULL */
  size_t gate_stride;
  const float *bias; /* [width]; without gates it may be NULL */
  float *out;        /* without gates silu(sum + bias), else gates * (sum + bias); may be `rows` */
  size_t out_stride;
} Convolution;

enum { CONVOLUTION_BLOCK = 64 }; /* columns of a task */
/* Convolves the block of columns that begins at `first`, and sets `tail` for the next rows. */
void cpu_convolve(const Kernels *kernels, const Convolution *convolution, int first);

/* cpu_take_...() copy numbers as fp32 to place[*next] and advance *next; with place NULL they only count. In
 * the order below: n numbers that the caller sets; taps, transposed; n numbers padded with zeros (without
 * data all are zeros); a vector plus `plus`, or NULL for an absent vector; a linear layer's bias. */
float *cpu_take_floats(size_t n, float *place, size_t *next);
const float *cpu_take_taps(const Vector *from, int n_taps, float *place, size_t *next);
const float *cpu_take_padded(const Vector *from, size_t n, float *place, size_t *next);
/* x = x * factors; factors NULL: x stays. */
static inline void cpu_multiply(float *x, const float *factors, int n) {
  for (int i = 0; factors && i < n; i++) x[i] *= factors[i];
}
const float *cpu_take_vector(const Vector *vector, float plus, float *place, size_t *next);
CpuLinear cpu_take_linear(const Linear *linear, float *place, size_t *next);
int cpu_padded(int64_t n); /* floats of a row of n, padded to ALIGN_FLOATS; at most INT32_MAX */

/* Recurrent states (states.c). cpu_layer_state(): a sequence's state of a layer. cpu_begin_states(): zeroes
 * the states of the sequences that begin at position 0, except the n-grams' states. */
float *cpu_layer_state(const BackendState *state, int layer, int sequence);
void cpu_begin_states(const BackendState *state, int layer, TokenRange range);
size_t cpu_delta_numbers(const DeltaConfig *config); /* floats of a layer's state, rows padded */
size_t cpu_recurrent_bytes(const ModelConfig *config, int layer);
size_t cpu_all_recurrent_bytes(const ModelConfig *config);
Status cpu_state_save(BackendState *state, int slot, Error *err);
Status cpu_state_restore(BackendState *state, int slot, Error *err);
Status cpu_state_copy(BackendState *state, CopyDirection direction, int slot, int layer, void *host,
                      Error *err);
/* The operations norm_delta_rule and norm_short_conv without their norm. They write the layer's output before
 * o to state->q, or with delta_beside to state->beside. `from`: [range.n_tokens][plan.hidden]. */
void cpu_delta_rule(BackendState *state, TokenRange range, int layer, const float *from);
void cpu_short_conv(BackendState *state, TokenRange range, int layer, const float *from);

/* Backend's load(), unload() and arithmetic() (load.c). */
Status cpu_load(const Model *model, const BackendOptions *options, BackendModel **out, Error *err);
void cpu_unload(BackendModel *loaded);
Status cpu_arithmetic(const BackendModel *loaded, char *out, size_t size, Error *err);

/* Residual streams and n-grams (streams.c), with their operations. cpu_mix(): h = the weighted mean of the
 * streams of n_rows rows: rows[i], or first_row + i with rows NULL. cpu_ngram_state(): a sequence's state of
 * a layer's n-grams, cpu_ngram_numbers() floats. */
void cpu_mix(BackendState *state, const float *norm, const CpuMix *mix, const int32_t *rows, int first_row,
             int n_rows);
Operation cpu_mix_for_attention, cpu_mix_for_mlp, cpu_inject_streams, cpu_add_ngrams;
size_t cpu_ngram_numbers(const ModelConfig *config, int layer);
float *cpu_ngram_state(const BackendState *state, int layer, int sequence);

/* AltUp and LAuReL (altup.c), with their operations. cpu_begin_streams(): makes the streams of n_rows
 * embeddings x. cpu_join_streams(): h = the lm_head's normalised input for n_rows rows: rows[i], or
 * first_row + i with rows NULL. cpu_add_to_streams(): adds x to all streams but the first. */
void cpu_begin_streams(BackendState *state, int n_rows);
void cpu_join_streams(BackendState *state, const int32_t *rows, int first_row, int n_rows);
void cpu_add_to_streams(BackendState *state, int n_rows);
Operation cpu_predict_streams, cpu_add_laurel, cpu_correct_streams;

/* Sparse attention (sparse.c). cpu_index(): computes index queries and keys of normalised rows `from`; the
 * keys go to the cache. cpu_selects(): true if some row of the step attends to selected positions only. Then
 * cpu_select() selects each row's positions, at most cpu_most_selected(). cpu_gather() copies a row's
 * selected keys and values of a KV head to `memory`, as a cache of their own. */
void cpu_index(BackendState *state, TokenRange range, int layer, const float *from);
bool cpu_selects(const BackendState *state, int n_rows);
void cpu_select(BackendState *state, int n_rows, int layer);
int cpu_most_selected(const IndexerConfig *indexer);
KvHead cpu_gather(const BackendState *state, const KvHead *from, int row, uint8_t *memory);
enum { GATHERERS = 32 };                       /* most threads that select or gather at once */
int cpu_gatherers(const BackendModel *loaded); /* how many threads select or gather */
size_t cpu_gathered_bytes(const StatePlan *plan, KvType type, int head_dim);
/* Sets cosines[n_pairs] and sines[n_pairs] of a position. */
void cpu_angles(const CpuRope *rope, int position, float *cosines, float *sines);

/* Latent attention (latent.c). cpu_latent_project(): makes q, and appends to the cache, from normalised rows
 * `from`. cpu_latent_values(): queries = each head's value matrix times attention's output in q. */
void cpu_latent_project(BackendState *state, TokenRange range, int layer, const float *from);
void cpu_latent_values(BackendState *state, int n_rows, int layer);

/* The operation `attention`: replaces the queries in state->q by its output. */
Operation cpu_attention;

/* The operation draft_embed, and Backend's functions for drafters (draft.c). */
Status cpu_draft_take(BackendState *state, BackendState *target, int row, int n, const int *taps, int to,
                      Error *err);
Status cpu_draft_move(BackendState *state, int from, int to, Error *err);
Operation cpu_draft_embed;
Status cpu_draft_context(BackendState *state, TokenRange range, Error *err);
/* Sets x to the embedding of a token without its scale. */
void cpu_read_embedding(const BackendState *state, int32_t id, float *x);

/* Backend's functions for hidden states (taps.c). */
Status cpu_keep_tap(BackendState *state, TokenRange range, int index, Error *err);
Status cpu_read_taps(BackendState *state, int row, int n, float *out, Error *err);
size_t cpu_carried_floats(const BackendState *state);
Status cpu_carry(BackendState *state, TokenRange range, bool into, float *rows, Error *err);

/* From logits to tokens (tokens.c). */
Status cpu_read_logits(BackendState *state, int row, float *out, Error *err);
Status cpu_sample(BackendState *state, Sampler *sampler, int row, int32_t *id, Error *err);
Status cpu_sample_rows(BackendState *state, Sampler *const *samplers, int n, int32_t *ids, Error *err);

/* Backend's functions for several sequences (pages.c). */
Status cpu_set_pages(BackendState *state, int sequence, int first, const int32_t *pages, int n, Error *err);
Status cpu_copy_page(BackendState *state, int from, int to, Error *err);

/* Backend's kv_copy() (kv_rows.c). */
Status kv_rows_copy(BackendState *state, CopyDirection direction, TokenRange range, int layer, int n_stored,
                    void *host, Error *err);

/* BackendProbe.measure_machine: memory bandwidth only. */
Status cpu_measure_machine(const BackendOptions *options, MachineRates *rates, Error *err);
