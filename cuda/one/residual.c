/* residual.c - see residual.h. */
#include "cuda/one/residual.h"

#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/products.h"
#include "cuda/one/shared.h"

/* out = the norm of each row of x, in fp16; `wide`, unless it is NULL, gets the same in fp32. */
static Status norm_rows(BackendState *s, const float *x, InputNorm norm, int n_rows, float *wide, void *out,
                        Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const NormRows call = {.x = x,
                         .weight = norm.weight,
                         .bias = norm.bias,
                         .x_stride = (size_t)c->hidden,
                         .eps = residual_eps(c),
                         .factor = 1,
                         .n = c->hidden,
                         .wide = wide,
                         .out = out,
                         .out_stride = s->h_stride};
  return ops_norm_rows(&call, n_rows, s->loaded->stream, err);
}

Status residual_norm(BackendState *s, const float *x, InputNorm norm, int n_rows, void *out, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const double r = c->residual_scale;
  cudaStream_t stream = s->loaded->stream;
  if (!norm.weight)
    return ops_round(x, c->hidden, (float)r, c->hidden, n_rows, out, s->h_stride, stream, err);
  if (norm.bias) return norm_rows(s, x, norm, n_rows, NULL, out, err);
  return ops_rms_norm(x, norm.weight, residual_eps(c), c->hidden, n_rows, out, s->h_stride, stream, err);
}

Status residual_norm_input(BackendState *s, InputNorm norm, int n_rows, Error *err) {
  const bool normed = s->ready == READY_IN_H;
  s->ready = READY_NONE;
  return normed ? STATUS_OK : residual_norm(s, s->x, norm, n_rows, s->h, err);
}

Status residual_norm_wide(BackendState *s, InputNorm norm, int n_rows, Error *err) {
  s->ready = READY_NONE;
  return norm_rows(s, s->x, norm, n_rows, s->wide_h, s->h, err);
}

Status residual_project(BackendState *s, const DeviceProjections *p, InputNorm norm, int n_rows, float *y,
                        int stride, Error *err) {
  LinearCall call = products_call(s, p->parts, NULL, 0, n_rows, LINEAR_TO_F32, y, stride);
  call.norm = products_own_norm(s, p, norm.bias ? NULL : norm.weight, residual_eps(&s->loaded->model->config),
                                n_rows);
  if (call.norm.rows) return products_run(s, &call, err);
  TRY(residual_norm_input(s, norm, n_rows, err));
  return products_project(s, p, 0, n_rows, y, stride, err);
}

float *residual_branch(const BackendState *s, int sum) {
  return s->peers.n > 0 ? s->peers.parts[sum & 1][s->peers.rank] : s->branch;
}

Status residual_sum_x(BackendState *s, int n_rows, Error *err) {
  return s->peers.n > 0 ? shared_add(s, s->x, n_rows, err) : STATUS_OK;
}

Status residual_centre(BackendState *s, OpKind kind, int n_rows, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  return op_centres(c, kind) ? ops_centre(s->x, c->hidden, n_rows, s->loaded->stream, err) : STATUS_OK;
}

/* True if nothing reads x between a sum that also makes x's norm and the next sum. Between these sums each
 * GPU needs only its own rows of x (AddNorm.apart). */
static bool x_may_stay_apart(const BackendState *s) {
  const ModelConfig *c = &s->loaded->model->config;
  return s->options.taps.n == 0 && !c->parallel && !norms_are_centred(c) && c->streams.n == 0 &&
         c->altup.n == 0 && c->per_layer_width == 0 && c->experts.norms != EXPERTS_OWN_NORMS;
}

/* True if each GPU sums only its own rows (AddNorm.own_rows). The answer is the same for all sums of a step:
 * where x stays apart, a GPU's x is current only in its own rows, so the next sum must be of the same
 * rows. */
static bool has_own_rows(const BackendState *s, int n_rows) {
  return shared_in_memory(s) &&
         peers_own_rows_pay(&s->peers, s->loaded->model->config.hidden, n_rows, x_may_stay_apart(s));
}

Status residual_add(BackendState *s, float *branch, bool parts, int n_tokens, Norms norms, int sum,
                    Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const bool by_memory = parts && shared_in_memory(s);
  if (parts && s->peers.n > 0 && !by_memory) TRY(shared_add(s, branch, n_tokens, err));
  const AddNorm add = {.y = branch,
                       .weight = norms.post,
                       .scalar = norms.scalar,
                       .next_weight = norms.next,
                       .eps = (float)post_norm_eps(c),
                       .next_eps = residual_eps(c),
                       .n = c->hidden,
                       .x = s->x,
                       .out = s->h,
                       .out_stride = s->h_stride,
                       .peers = by_memory ? &s->peers : NULL,
                       .sum = sum,
                       .own_rows = parts && has_own_rows(s, n_tokens),
                       .apart = norms.next && x_may_stay_apart(s)};
  s->ready = norms.next ? READY_IN_H : READY_NONE;
  return ops_add_rms_norm(&add, n_tokens, s->loaded->stream, err);
}

Status residual_sum(BackendState *s, int n_rows, int sum, float **to, Error *err) {
  const int hidden = s->loaded->model->config.hidden;
  float *branch = residual_branch(s, sum);
  const AddNorm add = {.y = branch, .n = hidden, .x = s->shared_branch, .peers = &s->peers, .sum = sum};
  const size_t bytes = (size_t)n_rows * (size_t)hidden * sizeof(float);
  *to = shared_in_memory(s) ? s->shared_branch : branch;
  if (*to == branch) return shared_add(s, branch, n_rows, err);
  TRY(cuda_status(cudaMemsetAsync(*to, 0, bytes, s->loaded->stream), "cannot clear memory", err));
  return ops_add_rms_norm(&add, n_rows, s->loaded->stream, err);
}

Status residual_linear(BackendState *s, const DeviceLinear *weights, const void *from, int n_tokens,
                       Norms norms, int sum, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const int stride = padded_row(weights->n_in);
  const bool to_branch = norms.post || shared_in_memory(s), adds = s->peers.rank == 0;
  float *branch = residual_branch(s, sum);
  if (to_branch) {
    TRY(products_matmul(s, weights, from, stride, n_tokens, LINEAR_TO_F32, branch, c->hidden, err));
    if (c->norm == NORM_SPHERE)
      TRY(ops_norm_plus(s->x, norms.post, NULL, false, residual_eps(c), c->hidden, n_tokens,
                        s->loaded->stream, err));
    return residual_add(s, branch, true, n_tokens, norms, sum, err);
  }
  TRY(products_matmul(s, weights, from, stride, n_tokens, adds ? LINEAR_ADD_F32 : LINEAR_TO_F32, s->x,
                      c->hidden, err));
  return residual_sum_x(s, n_tokens, err);
}
