/* norm_rope.h - a step's operations other than matmuls and attention: embedding, norms, rope, activation.
 *
 * Functions that take a stream only enqueue. Kernels read position and ids from device memory, where
 * ops_set_step() puts them, so a graph serves every step. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/arithmetic.h"
#include "base/status.h"
#include "cuda/kernels/cache/pages.h"

C_BEGIN

/* Returns an error such as cudaErrorNoKernelImageForDevice if the program has no code for the current GPU.
 * Loads a kernel (cudaFuncGetAttributes()), but launches nothing. */
cudaError_t ops_probe(void);

enum { OPS_MOST_IDS = 16 };
/* pos[i] = at + i for i < n, and to_ids[i] = ids[i] for i < n_ids; at and ids are passed by value. PRECOND
 * n_ids <= n, n_ids <= OPS_MOST_IDS. */
Status ops_set_step(int *pos, int at, int n, int *to_ids, const int32_t *ids, int n_ids, cudaStream_t stream,
                    Error *err);

/* x[row][i] = scale * table[ids[row]][i]; table [vocab][stride >= hidden] of F32, F16 or BF16; x fp32
 * [n_tokens][hidden]. */
Status ops_embed(const void *table, Dtype dtype, int hidden, size_t stride, const int *ids, int n_tokens,
                 float scale, float *x, cudaStream_t stream, Error *err);

/* x[row][i] += table[rows[row]][i]; a negative rows[row], as a padded step has them, counts as 0. table [][n]
 * of F32, F16 or BF16; x fp32 [n_tokens][n]. */
Status ops_add_rows(const void *table, Dtype dtype, int n, const int *rows, int n_tokens, float *x,
                    cudaStream_t stream, Error *err);

/* table[row][i] = {cos, sin}(pos[row] * frequencies[i]) * attention_factor, the angle rounded to fp32 first,
 * as transformers does. Called once a step for each rope; all layers read the table. frequencies fp32 [half],
 * table float2 [n_tokens][half]. Rows with is_long (NULL: no row) take long_frequencies and long_factor. */
typedef struct {
  const float *frequencies, *long_frequencies;
  int half;
  float attention_factor, long_factor;
  const int *pos, *is_long; /* [n_tokens] */
} RopeAngles;
Status ops_rope_table(const RopeAngles *angles, int n_tokens, void *table, cudaStream_t stream, Error *err);

/* out[i] = row rows[i] of x, for i < n_rows; a row of x or out has n fp32 numbers. */
Status ops_gather_rows(const float *x, const int *rows, int n, int n_rows, float *out, cudaStream_t stream,
                       Error *err);

/* Moves rows within each of two matrices: row i < n_rows becomes the former row rows[i] (first + i if rows is
 * NULL). rows[] ascend. A row of of[m] has n_words[m] words of 4 bytes. */
typedef struct {
  void *of[2];
  int n_words[2];
  const int *rows; /* [n_rows], in device memory */
  int first, n_rows;
} CompactRows;
Status ops_compact_rows(const CompactRows *call, cudaStream_t stream, Error *err);

/* out = x * rsqrt(mean(x^2) + eps) * weight; x fp32 [n_tokens][n], weight fp32 [n], out fp16
 * [n_tokens][out_stride]. */
Status ops_rms_norm(const float *x, const float *weight, float eps, int n, int n_tokens, void *out,
                    int out_stride, cudaStream_t stream, Error *err);

/* ops_rms_norm() of rows x_stride numbers apart, times factor. bias, fp32 [n], is added after the weights;
 * weight and bias can be NULL. `wide` gets the results in fp32, [n_tokens][n], and can be x. out gets them as
 * fp16, clamped to its range. out or wide can be NULL. */
typedef struct {
  const float *x, *weight, *bias;
  size_t x_stride;
  float eps, factor;
  int n;
  float *wide;
  void *out;
  int out_stride;
} NormRows;
Status ops_norm_rows(const NormRows *call, int n_tokens, cudaStream_t stream, Error *err);

/* out = x * scale, clamped to fp16's range: for inputs without a norm. Shapes as in ops_rms_norm(), but rows
 * of x are x_stride numbers apart. */
Status ops_round(const float *x, int x_stride, float scale, int n, int n_tokens, void *out, int out_stride,
                 cudaStream_t stream, Error *err);

/* x = x - mean(x) in place; x fp32 [n_tokens][n]. */
Status ops_centre(float *x, int n, int n_tokens, cudaStream_t stream, Error *err);

/* Clamps the first n numbers of each row to -limit .. limit, in place; rows are fp32, `stride` numbers
 * apart. */
Status ops_clip(float *rows, size_t stride, int n, float limit, int n_tokens, cudaStream_t stream,
                Error *err);

/* Makes each row, of n numbers, fp32 or with `halves` fp16, `stride` numbers apart: row * factors; without
 * factors row / sqrt(|row|^2 + eps). factors fp32 [n]. */
Status ops_multiply(void *rows, bool halves, size_t stride, int n, const float *factors, float eps,
                    int n_tokens, cudaStream_t stream, Error *err);

/* x = v + start, v = x * rsqrt(mean(x^2) + eps) * (1 - rates); with sets_start, start = v first. rates or
 * start NULL: zeros. x and start fp32 [n_tokens][n], rates fp32 [n]. */
Status ops_norm_plus(float *x, const float *rates, float *start, bool sets_start, float eps, int n,
                     int n_tokens, cudaStream_t stream, Error *err);

/* The inputs of each layer (operations.def, embed): p = (p * scale * weight + sqrt(width) * table[ids]) /
 * sqrt(2) in place, where scale = 1 / sqrt(mean(p^2) + eps) of each layer's part of p. p fp32
 * [n_tokens][n_layers][width], weight fp32 [width], table [vocab][n_layers * width]. */
typedef struct {
  const void *table;
  Dtype dtype;
  int n_layers, width, n_rows; /* n_rows: of the table; ids beyond its end read row 0 */
  const int *ids;
  const float *weight;
  float eps;
} LayerInputs;
Status ops_layer_inputs(const LayerInputs *call, int n_tokens, float *p, cudaStream_t stream, Error *err);

/* RMSNorm in place over the first n_q and, separately, over the next n_k elements of each row; rows fp32
 * [n_tokens][stride], weights fp32 [n_q] and [n_k]. */
Status ops_rms_norm_qk(float *rows, size_t stride, int n_q, int n_k, const float *q_norm, const float *k_norm,
                       float eps, int n_tokens, cudaStream_t stream, Error *err);

/* LayerNorm in place of each head of each row: n_q heads, then n_k, each with its own weights. rows fp32
 * [n_tokens][stride], weights fp32 [n_q][head_dim] and [n_k][head_dim]. */
Status ops_centred_norm_heads(float *rows, size_t stride, int n_q, int n_k, int head_dim, const float *q_norm,
                              const float *k_norm, float eps, int n_tokens, cudaStream_t stream, Error *err);

/* Makes queries, keys and values from fp32 projections; a row has first the queries, then keys, then values.
 * Each head of q and k gets RMSNorm (weights fp32 [head_dim]; NULL: no norm, but see plain_qk_norm), then
 * rope over pairs (i, i + rotary_dim / 2) or (2 i, 2 i + 1). q is also multiplied by its position's factor. q
 * is stored as fp16 [n_tokens][n_heads][head_dim]. k and v are stored at position pos[t] of the cache
 * (pages.h), unless pos[t] is negative. k_as_v: v has no projections and is k before norm and rope. */
typedef struct QkvHeads {
  int n_heads, n_kv_heads, head_dim; /* n_kv_heads 0: only queries */
  int n_ctx;                         /* positions of a page */
  float eps;
  KvType kv;
  const float *q_norm, *k_norm;
  const void *rope_table; /* float2 [n_tokens][rotary_dim / 2] */
  const int *pos;         /* [n_tokens] */
  AttentionPages pages;
  const float *projections; /* [n_tokens][stride] */
  size_t stride;
  int query_step; /* floats from a query to the next: head_dim, or more where gates are between */
  void *q;
  void *k_cache, *v_cache;
  void *k_scales, *v_scales;                /* with KV_Q8, as in Attention */
  int rotary_dim;                           /* even, 0 .. head_dim: further dimensions are not rotated */
  bool neighbours, norm_after_rope;         /* pairs are (2 i, 2 i + 1); q and k get rope before RMSNorm */
  bool plain_qk_norm, v_norm, k_as_v;       /* plain_qk_norm, v_norm: RMSNorm without weights */
  float query_scale_beta, query_scale_step; /* ModelConfig's; beta 0: no factor */
  int query_scale_ahead;                    /* the factor is that of position pos + query_scale_ahead */
} QkvHeads;
Status ops_qk_norm_rope_append(const QkvHeads *heads, int n_tokens, cudaStream_t stream, Error *err);

/* a *= sigmoid(gates), or with `softplus` ln(1 + e^gates): a fp16 [n_tokens][n_heads * head_dim], head_dim
 * even. A head has head_dim gates, or with by_head one gate. The gates of two heads begin `step` floats
 * apart, those of two rows `stride` floats. */
typedef struct {
  const float *gates;
  size_t stride;
  int step;
  bool by_head, softplus;
  int n_heads, head_dim;
} HeadGates;
Status ops_gate_heads(const HeadGates *gates, int n_tokens, void *a, cudaStream_t stream, Error *err);

/* The numbers of xIELU (model.h, Xielu), as stored. All NULL: no xIELU. Else beta NULL means 0.5,
 * eps NULL -1e-6. */
typedef struct {
  const float *alpha_p, *alpha_n, *beta, *eps; /* [1] */
} DeviceXielu;

/* out = activation(factor * gate) * up_factor * up, clamped to fp16's range; gate and up fp32, rows of n
 * numbers, gate_stride and up_stride apart; out fp16 [n_tokens][out_stride]. ACTIVATION_XIELU
 * (parameters: `xielu`), _GELU_ALONE and _GELU_EXACT are functions of gate, without up; the formulas of
 * _CLAMPED and _LIMITED are in config.h. PRECOND n_tokens <= 65,535, a grid's largest y. */
typedef struct {
  Activation activation;
  float factor, up_factor;
  const float *gate, *up;
  size_t gate_stride, up_stride;
  int n;
  void *out;
  int out_stride;
  const float *row_factors; /* [n_tokens] multiply the product, or NULL */
  DeviceXielu xielu;
  float limit; /* of ACTIVATION_LIMITED */
} Gated;
Status ops_gated(const Gated *call, int n_tokens, cudaStream_t stream, Error *err);

/* logits = logits / divisor, and then cap * tanh(logits / cap) unless cap is 0; fp32 [n_rows][vocab_size]. */
Status ops_finish_logits(float *logits, int vocab_size, int n_rows, float divisor, float cap,
                         cudaStream_t stream, Error *err);

C_END
