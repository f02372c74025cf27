/* residual.h - the residual stream of a step: its norms, and how results of o, down and experts are added to
 * it, on one GPU or on several that share each layer (ops/add_norm.h, "Peers").
 *
 * x is the residual stream divided by config.residual_scale, so that layers add to it without a factor.
 * Functions that return a Status only enqueue, but weights_stream() also waits for earlier copies. */
#pragma once

#include "cuda/one/state.h"

/* The epsilon of norms of x, which is the residual divided by residual_scale. */
static inline float residual_eps(const ModelConfig *c) {
  return (float)(c->norm_eps / (c->residual_scale * c->residual_scale));
}

/* A layer has two sums over GPUs: this is the first one's number. The exchange of logits is number
 * first_sum(n_layers). tokens_join_logits() uses this number after a fused step, too, although
 * that step has used none of the numbers before it. */
static inline int first_sum(int layer) {
  return 2 * layer;
}

/* The number of tags that a step uses, an even number. */
static inline int step_sums(const ModelConfig *c) {
  return first_sum(c->n_layers) + 2;
}

/* The weight of the next layer's attention norm; NULL after the last layer. */
static inline const float *next_attn_norm(const BackendModel *m, int layer) {
  return layer + 1 < m->model->config.n_layers ? m->layers[layer + 1].attn_norm : NULL;
}

/* A norm of the residual: rmsnorm(residual) * weight + bias. */
typedef struct {
  const float *weight; /* [hidden]; NULL: no norm */
  const float *bias;   /* [hidden] or NULL */
} InputNorm;
static inline InputNorm attn_input_norm(const DeviceLayer *l) {
  return (InputNorm){l->attn_norm, l->attn_norm_bias};
}
static inline InputNorm mlp_input_norm(const DeviceLayer *l) {
  return (InputNorm){l->mlp_norm, l->mlp_norm_bias};
}

/* out, fp16 [n_rows][h_stride] = the norm of n_rows rows of the residual (residual_scale * x). */
Status residual_norm(BackendState *s, const float *x, InputNorm norm, int n_rows, void *out, Error *err);
/* h = the norm of the residual, unless the operation before made it. */
Status residual_norm_input(BackendState *s, InputNorm norm, int n_rows, Error *err);
/* wide_h = h = the norm of the residual. PRECOND norm.weight is not NULL. */
Status residual_norm_wide(BackendState *s, InputNorm norm, int n_rows, Error *err);
/* y = the projections of the norm of the residual, fp32 [n_rows][stride]. The matmul computes the norm
 * itself where that is faster; then h does not change. */
Status residual_project(BackendState *s, const DeviceProjections *p, InputNorm norm, int n_rows, float *y,
                        int stride, Error *err);

/* x = x - mean(x), if operations of this kind end with that. */
Status residual_centre(BackendState *s, OpKind kind, int n_rows, Error *err);

/* Weights of the norms around a matmul into the residual stream, and a factor; each may be NULL. */
typedef struct {
  const float *post;   /* [hidden] of the matmul's output */
  const float *scalar; /* [1] multiplies x afterwards; only with `post` */
  const float *next;   /* [hidden] of the new x's norm, which the next operation reads */
} Norms;

/* Where o or down writes rows of `hidden` that are not added to x at once (BackendState.branch). With several
 * GPUs: this GPU's part of the step's sum number `sum`. */
float *residual_branch(const BackendState *s, int sum);
/* x = scalar * (x + rmsnorm(branch) * norms.post), or x += branch without norms.post. With norms.next also
 * makes h. With `parts`, `branch` is this GPU's residual_branch(), and the sum of all GPUs' branches is
 * added in its place. PRECOND norms.post, or shared_in_memory() and `parts`. */
Status residual_add(BackendState *s, float *branch, bool parts, int n_tokens, Norms norms, int sum,
                    Error *err);
/* *to = the sum over all GPUs of n_rows rows of residual_branch(). PRECOND s->peers.n > 0 */
Status residual_sum(BackendState *s, int n_rows, int sum, float **to, Error *err);
/* For several GPUs that cannot add branches in memory (shared_in_memory() is false): the first GPU has added
 * its part to x, and each other GPU has replaced x by its part. Makes x the sum of all GPUs' x. Does nothing
 * on one GPU. */
Status residual_sum_x(BackendState *s, int n_rows, Error *err);
/* x += W f, or with norms.post x = scalar * (x + rmsnorm(W f) * norms.post). W: `weights`. f: `from`, fp16
 * [n_tokens][n_in, padded]. Also makes h by norms.next, but only with norms.post or if GPUs add branches in
 * memory. */
Status residual_linear(BackendState *s, const DeviceLinear *weights, const void *from, int n_tokens,
                       Norms norms, int sum, Error *err);
