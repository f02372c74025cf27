/* mlp.c - see mlp.h. */
#include "cuda/one/layers/mlp.h"

#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/ops/altup.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/one/layers/narrow.h"
#include "cuda/one/products.h"
#include "cuda/one/residual.h"
#include "cuda/one/shared.h"

/* g = activation(gate_scale * Wgate h) * (mlp_scale * Wup h), times factors [n_tokens] unless NULL. With
 * LayerConfig.sparsity ops_cut_gates() cuts Wgate h first. */
static Status multiply_gate_up(BackendState *s, int n_tokens, int layer, const float *factors,
                               LinearNorm norm, Error *err) {
  const BackendModel *m = s->loaded;
  const DeviceLayer *l = &m->layers[layer];
  const LayerConfig own = config_layer(&m->model->config, layer);
  const int n = own.intermediate;
  if (l->gate_up.parts[0].interleaved) { /* the epilogue computes the gated product */
    LinearCall call = products_call(s, l->gate_up.parts, s->h, s->h_stride, n_tokens, LINEAR_SWIGLU_F16, s->g,
                                    padded_row(n));
    call.row_factors = factors, call.norm = norm;
    call.gated = own.activation, call.limit = (float)own.mlp_limit;
    narrow_fit(s, layer, n_tokens, NARROW_GATE_UP, &call);
    return products_run(s, &call, err);
  }
  TRY(products_project(s, &l->gate_up, 0, n_tokens, s->gate_up, 2 * n, err));
  const float *const channels[] = {l->gate_factors, l->up_factors};
  for (int i = 0; l->gate_factors && i < 2; i++)
    TRY(ops_multiply(s->gate_up + i * n, false, 2 * (size_t)n, n, channels[i], 0, n_tokens, m->stream, err));
  if (own.sparsity > 0)
    TRY(ops_cut_gates(s->gate_up, 2 * (size_t)n, n, own.gate_deviations, n_tokens, m->stream, err));
  const Gated gated = {.activation = own.activation,
                       .factor = (float)m->model->config.gate_scale,
                       .up_factor = (float)m->model->config.mlp_scale,
                       .gate = s->gate_up,
                       .up = is_ungated(m->model->config.activation) ? s->gate_up : s->gate_up + n,
                       .gate_stride = 2 * (size_t)n,
                       .up_stride = 2 * (size_t)n,
                       .n = n,
                       .out = s->g,
                       .out_stride = padded_row(n),
                       .row_factors = factors,
                       .xielu = {l->xielu_alpha_p, l->xielu_alpha_n, l->xielu_beta, l->xielu_eps},
                       .limit = (float)own.mlp_limit};
  TRY(ops_gated(&gated, n_tokens, m->stream, err));
  return l->gate_factors ? ops_multiply(s->g, true, (size_t)padded_row(n), n, NULL,
                                        (float)m->model->config.norm_eps, n_tokens, m->stream, err)
                         : STATUS_OK;
}

Status cuda_norm_gate_up(BackendState *s, TokenRange span, int layer, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  const DeviceProjections *p = &l->gate_up;
  const int n = rows_of(s, span);
  const bool narrow = narrow_five_kernels(s, layer, n); /* narrow_fit() then sets the norm */
  const LinearNorm norm = !narrow && p->parts[0].interleaved
                              ? products_own_norm(s, p, l->mlp_norm_bias ? NULL : l->mlp_norm,
                                                  residual_eps(&s->loaded->model->config), n)
                              : (LinearNorm){0};
  if (!narrow && !norm.rows) TRY(residual_norm_input(s, mlp_input_norm(l), n, err));
  return multiply_gate_up(s, n, layer, NULL, norm, err);
}

static Norms mlp_norms(const BackendModel *m, int layer) {
  const DeviceLayer *l = &m->layers[layer];
  const bool is_last = m->model->config.per_layer_width == 0; /* else layer_end() adds to x once more */
  return (Norms){l->mlp_post_norm, is_last ? l->scalar : NULL, is_last ? next_attn_norm(m, layer) : NULL};
}

Status cuda_down_residual(BackendState *s, TokenRange span, int layer, Error *err) {
  const Norms norms = mlp_norms(s->loaded, layer);
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLinear *down = &s->loaded->layers[layer].down;
  const int n = rows_of(s, span);
  LinearCall call = products_call(s, down, s->g, padded_row(down->n_in), n, LINEAR_ADD_F32, s->x, c->hidden);
  if (narrow_fit(s, layer, n, NARROW_DOWN, &call)) return products_run(s, &call, err);
  TRY(residual_linear(s, down, s->g, n, norms, first_sum(layer) + 1, err));
  return residual_centre(s, OP_DOWN, n, err);
}

/* --- experts */

/* *x = the router's input in fp32. With several residual streams: their mix. In parallel layers: the
 * normalised input that attention also had. With a bias in the norm: the norm's output. NULL: the router
 * normalises the residual stream itself. */
static Status normalised(BackendState *s, int n_tokens, int layer, const float **x, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  *x = c->streams.n > 0 ? s->mixed : c->parallel || l->mlp_norm_bias ? s->wide_h : NULL;
  return l->mlp_norm_bias ? residual_norm_wide(s, mlp_input_norm(l), n_tokens, err) : STATUS_OK;
}

/* Normalises x and chooses experts; h, expert_h and choices take the results. */
static Status route(BackendState *s, int n_tokens, int layer, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceLayer *l = &m->layers[layer];
  const float *x;
  TRY(normalised(s, n_tokens, layer, &x, err));
  const Router router = {.config = &c->experts,
                         .hidden = c->hidden,
                         .eps = residual_eps(c),
                         .x = x ? x : s->x,
                         .norm = x ? NULL : l->mlp_norm,
                         .x_factor = x && c->streams.n == 0 ? 1 : (float)c->residual_scale,
                         .h = s->h,
                         .h_stride = s->h_stride,
                         .experts_norm = l->expert_norm,
                         .router_scale = l->router_scale,
                         .experts_h = s->expert_h,
                         .router = &l->router,
                         .shared_gate = l->shared_gate.n_out > 0 ? &l->shared_gate : NULL,
                         .choice_bias = l->choice_bias,
                         .scales = l->expert_scales,
                         .same_on_all_gpus = s->peers.n > 0,
                         .invariant = s->options.invariant,
                         .joined = l->experts.gate_up.n_experts > c->experts.n_experts,
                         .to = s->choices,
                         .slices = s->expert_y,
                         .slice_floats = (size_t)c->experts.n_chosen * (size_t)expert_row_width(c)};
  s->ready = READY_NONE;
  const DeviceLimits limits = linear_limits(m->linear);
  TRY(experts_route(&router, n_tokens, &limits, m->stream, err));
  if (!c->experts.scales_input) return STATUS_OK;
  return experts_scale_input(&s->choices, s->h, s->h_stride, n_tokens, s->expert_h, m->stream, err);
}

/* sum_experts() by experts_few(). */
static Status sum_few_experts(BackendState *s, int layer, const void *h, int stride, int n_tokens, bool add,
                              float *to, Error *err) {
  const DeviceLayer *l = &s->loaded->layers[layer];
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLimits limits = linear_limits(s->loaded->linear);
  const LayerConfig own = config_layer(c, layer);
  FewExperts call = {.gate_up = &l->experts.gate_up,
                     .down = &l->experts.down,
                     .choices = s->choices,
                     .h = h,
                     .h_stride = stride,
                     .n_tokens = n_tokens,
                     .parts = s->expert_y,
                     .add = add,
                     .out = to,
                     .activation = own.expert_activation,
                     .limit = (float)own.expert_limit};
  if (add && to == s->x && l->gate_up.n_parts == 0 && n_tokens <= EXPERTS_PLANES_TOKENS)
    narrow_set_next(s, layer, n_tokens, &call.next);
  return experts_few(&call, &limits, s->loaded->stream, err);
}

/* True if experts_few() multiplies a layer's experts for n_tokens tokens. */
static bool few_take(const BackendState *s, const DeviceExperts *e, int n_tokens) {
  const BackendModel *m = s->loaded;
  const DeviceLimits limits = linear_limits(m->linear);
  return !m->kernel && !s->options.invariant && !e->gate_up.host && !e->down.host &&
         experts_few_takes(&e->gate_up, &e->down, &limits, n_tokens);
}

/* True if the sum of experts is the last that the layer adds to x, and the next layer reads a plain RMSNorm
 * of x. Then *next is that norm. */
static bool sum_completes(const BackendState *s, int layer, SumNorm *next) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const Norms norms = mlp_norms(s->loaded, layer);
  if (s->peers.n > 0 || l->gate_up.n_parts > 0 || norms.post || norms.scalar || !norms.next ||
      l[1].attn_norm_bias || norms_are_centred(c) || c->parallel || c->streams.n > 0 || c->altup.n > 0)
    return false;
  *next = (SumNorm){norms.next, residual_eps(c), s->h, s->h_stride};
  return true;
}

/* to = (with `add`: +=) the sum of the chosen experts' outputs; a row of `to` is expert_row_width()
 * numbers. */
static Status sum_experts(BackendState *s, int n_tokens, int layer, bool add, float *to, Error *err) {
  const BackendModel *m = s->loaded;
  const ModelConfig *c = &m->model->config;
  const DeviceExperts *e = &m->layers[layer].experts;
  const ExpertChoices *choices = &s->choices;
  const int width = expert_row_width(c), stride = c->experts.latent > 0 ? padded_row(width) : s->h_stride;
  const void *h = m->layers[layer].expert_norm || c->experts.scales_input ? s->expert_h
                  : c->experts.latent > 0                                 ? s->latent_h
                                                                          : s->h;
  if (products_on_cpu(m, &e->gate_up, n_tokens))
    return products_sum_experts(s, e, h, stride, n_tokens, add, to, err);
  if (few_take(s, e, n_tokens)) return sum_few_experts(s, layer, h, stride, n_tokens, add, to, err);
  const bool as_one = n_tokens == 1 && !s->options.invariant &&
                      linear_experts_as_one(m->linear, &e->gate_up) &&
                      linear_experts_as_one(m->linear, &e->down);
  ExpertConfig all = c->experts; /* including the shared expert if that is laid out as one more expert */
  all.n_experts = e->gate_up.n_experts, all.n_chosen = e->gate_up.n_chosen;
  if (!as_one) TRY(experts_order(&all, choices, n_tokens, m->stream, err));
  const bool gathered = linear_experts_gathered(m->linear, &e->gate_up, n_tokens, products_kernel(s));
  const LinearExperts one = {.ids = choices->ids}, same = {.ids = choices->ids, .known = true},
                      many = {.ids = choices->ids,
                              .begins = choices->begins,
                              .choices = choices->choices,
                              .gathered = gathered};
  if (gathered) {
    void *rows = s->expert_y; /* `down` writes expert_y after gate_up has read these rows */
    TRY(experts_gather(choices, all.n_chosen, h, stride, n_tokens, rows, m->stream, err));
    h = rows;
  }
  const float *factors = as_one ? choices->weights : choices->place_weights;
  LinearCall gate_up = products_call(s, &e->gate_up, h, stride, n_tokens, LINEAR_SWIGLU_F16, s->expert_g,
                                     s->expert_stride),
             down = products_call(s, &e->down, s->expert_g, s->expert_stride, n_tokens,
                                  as_one && add ? LINEAR_ADD_F32 : LINEAR_TO_F32, as_one ? to : s->expert_y,
                                  width);
  down.row_factors = factors;
  gate_up.experts = as_one ? &one : &many;
  down.experts = as_one ? &same : &many;
  const LayerConfig own = config_layer(c, layer);
  gate_up.gated = own.expert_activation, gate_up.limit = (float)own.expert_limit;
  gate_up.row_factors = factors;
  TRY(products_run(s, &gate_up, err));
  TRY(products_run(s, &down, err));
  if (as_one) return STATUS_OK;
  SumNorm next;
  const bool completes = add && to == s->x && sum_completes(s, layer, &next);
  if (completes) s->ready = READY_IN_H;
  return experts_sum(choices, all.n_chosen, s->expert_y, width, n_tokens, add, to, completes ? &next : NULL,
                     m->stream, err);
}

/* sum_experts() in a latent space: to = (with `add`: +=) W_latent_out times the sum of the chosen experts.
 * Their input is W_latent_in h; a row of `to` is `hidden` numbers. */
static Status sum_latent_experts(BackendState *s, int n_tokens, int layer, bool add, float *to, Error *err) {
  const BackendModel *m = s->loaded;
  const DeviceLayer *l = &m->layers[layer];
  const int latent = m->model->config.experts.latent, stride = padded_row(latent);
  TRY(products_matmul(s, &l->latent_in, s->h, s->h_stride, n_tokens, LINEAR_TO_F16, s->latent_h, stride,
                      err));
  TRY(sum_experts(s, n_tokens, layer, false, s->latent_sum, err));
  TRY(ops_round(s->latent_sum, latent, 1, latent, n_tokens, s->latent_h, stride, m->stream, err));
  return products_matmul(s, &l->latent_out, s->latent_h, stride, n_tokens,
                         add ? LINEAR_ADD_F32 : LINEAR_TO_F32, to, m->model->config.hidden, err);
}

/* x = scalar * (x + rmsnorm(rmsnorm(e) * expert_post_norm + rmsnorm(m) * shared_post_norm) * mlp_post_norm);
 * also makes h. e is the sum of the experts, m the output of the shared expert. One GPU: e is in s->branch, m
 * in s->shared_branch. Several GPUs: sum number `sum` has n_tokens rows of e, then n_tokens rows of m. */
static Status add_expert_norms(BackendState *s, int n_tokens, int layer, int sum, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const bool shared = l->gate_up.n_parts > 0;
  float *own = s->branch, *beside = s->shared_branch;
  if (s->peers.n > 0) {
    TRY(residual_sum(s, shared ? 2 * n_tokens : n_tokens, sum, &own, err));
    beside = own + (size_t)n_tokens * (size_t)c->hidden;
  }
  TRY(experts_add_norms(own, l->expert_post_norm, shared ? beside : NULL, l->shared_post_norm,
                        (float)post_norm_eps(c), c->hidden, n_tokens, s->loaded->stream, err));
  return residual_add(s, own, false, n_tokens, mlp_norms(s->loaded, layer), sum, err);
}

Status cuda_norm_experts_residual(BackendState *s, TokenRange span, int layer, Error *err) {
  const ModelConfig *c = &s->loaded->model->config;
  const DeviceLayer *l = &s->loaded->layers[layer];
  const int n_tokens = rows_of(s, span), sum = first_sum(layer) + 1;
  const bool several = s->peers.n > 0, to_branch = l->mlp_post_norm || shared_in_memory(s);
  float *to = to_branch ? residual_branch(s, sum) : s->x;
  TRY(route(s, n_tokens, layer, err));
  TRY((c->experts.latent > 0 ? sum_latent_experts : sum_experts)(s, n_tokens, layer,
                                                                 !to_branch && s->peers.rank == 0, to, err));
  if (l->gate_up.n_parts > 0) { /* the shared expert */
    const float *factors = c->experts.shared_output ? s->choices.shared_factors : NULL;
    float *apart = several ? to + (size_t)n_tokens * (size_t)c->hidden : s->shared_branch;
    TRY(multiply_gate_up(s, n_tokens, layer, factors, (LinearNorm){0}, err));
    TRY(products_matmul(s, &l->down, s->g, padded_row(l->down.n_in), n_tokens,
                        l->expert_post_norm ? LINEAR_TO_F32 : LINEAR_ADD_F32,
                        l->expert_post_norm ? apart : to, c->hidden, err));
  }
  if (l->expert_post_norm) return add_expert_norms(s, n_tokens, layer, sum, err);
  if (to_branch) return residual_add(s, to, true, n_tokens, mlp_norms(s->loaded, layer), sum, err);
  TRY(residual_sum_x(s, n_tokens, err));
  return residual_centre(s, OP_EXPERTS, n_tokens, err);
}
