/* cpu.h - what the parts of the CPU backend share: the loaded model, a session's state, the parallel drivers.
 *
 * Private to src/cpu. Drivers split work among threads so that no sum depends on who does what: any number of
 * threads gives the same bits. */
#ifndef AUK_CPU_CPU_H
#define AUK_CPU_CPU_H

#include "cpu/kernels.h"
#include "engine/probe.h"
#include "model/model.h"

typedef struct {
  const Linear *linear;
  const float *bias; /* [n_out] or NULL */
} CpuLinear;

typedef struct {
  /* What norms multiply by, NULL where there is no such norm. */
  const float *attn_norm, *attn_post_norm, *mlp_norm, *mlp_post_norm; /* [hidden] */
  const float *q_norm, *k_norm; /* [head_dim], or of all heads together */
  CpuLinear q, k, v, o, gate, up, down;
} CpuLayer;

typedef struct {
  float *frequencies; /* [rotary_dim / 2] rope_frequencies(); belongs to the model */
  float attention_factor;
} CpuRope;

/* Matrices stay where the Model has them; what is here is small and fp32. */
struct BackendModel {
  const Model *model;
  const Kernels *kernels;
  int n_threads;
  CpuLayer *layers; /* [n_layers] */
  CpuLinear head;
  const float *final_norm;     /* [hidden] */
  float *vectors;              /* owner of all norms and biases above */
  CpuRope ropes[2], long_rope; /* by LayerRope; the global one of long texts */
};

/* Where things lie in a session's one piece of memory, in bytes; a total of SIZE_MAX: it is too much. */
typedef struct {
  size_t x, h, q, k, v, g;     /* rows of activations */
  size_t cosines, sines;       /* [n_ropes][max_chunk][rotary_dim / 2] */
  size_t parts;                /* products of one row, piece by piece */
  size_t rounded, row_scales;  /* rows of activations as int8, where the model has int8 products */
  size_t rounded_stride;       /* their width; 0: it has none */
  size_t part_sums, part_outs; /* attention of one row, segment by segment */
  size_t logits, kv, total;
  size_t head_k_bytes, head_bytes; /* of the cache of one KV head of one layer: its K, all of it */
  int hidden, heads, kv_heads, intermediate, v_width; /* widths, padded to ALIGN_FLOATS */
  int n_segments, n_ropes;
} StatePlan;

/* What run_products() needs beside its inputs and outputs. */
typedef struct {
  float *parts;        /* MAX_PIECES for each output of all matrices of a call together */
  RoundedRows rounded; /* for as many rows, of the widest input; numbers NULL: no product rounds its inputs */
} ProductMemory;

struct BackendState {
  const BackendModel *loaded;
  StateOptions options;
  StatePlan plan;
  void *memory;
  ProductMemory products; /* run_products()'s */
  float *x;               /* [max_chunk][plan.hidden] the residual stream */
  float *h;               /* [max_chunk][plan.hidden] normalised */
  float *q;               /* [max_chunk][plan.heads] queries times attention_scale; then attention's values */
  float *k, *v;           /* [max_chunk][plan.kv_heads] */
  float *g;               /* [max_chunk][plan.intermediate] */
  float *cosines, *sines; /* [n_ropes][max_chunk][rotary_dim / 2] of the step's positions, made by embed */
  SoftmaxSum *part_sums;  /* [n_heads][n_segments] in the order of attention.c */
  float *part_outs;       /* [n_heads][n_segments][v_width] */
  float *logits;          /* [max_logit_rows][vocab_size] */
  uint8_t *kv;            /* [n_layers][n_kv_heads][plan.head_bytes] */
  int n_logit_rows;       /* rows the last norm_logits made */
  int32_t last_id;        /* what sample picked last */
};

/* The cache of one KV head. PRECOND both are within the model's; valid until the session is closed */
KvHead state_kv_head(const BackendState *state, int layer, int kv_head);

/* y[r][o] = w x + bias; with add, times `scale` and added to what is there; with gate, y =
 * activation(gate x) * (w x). */
typedef struct {
  CpuLinear w, gate; /* gate.linear NULL: none */
  Activation activation;
  bool add;
  float scale;
  float *y;
  size_t y_stride;
} Product;

/* All from the same rows of x. */
void run_products(const BackendModel *loaded, const ProductMemory *memory, const float *x, size_t x_stride,
                  int n_rows, const Product *products, int n_products);

/* state->q: from queries to attention's values. */
void run_attention(BackendState *state, Span span, int layer);

/* Backend's kv_read() and kv_write(). */
Status kv_rows_read(BackendState *state, Span span, int layer, void *out, Error *err);
Status kv_rows_write(BackendState *state, Span span, int layer, int n_stored, const void *from, Error *err);

/* BackendProbe.measure_machine: memory's rate alone. */
Status cpu_measure_machine(const BackendOptions *options, MachineRates *rates, Error *err);

#endif
