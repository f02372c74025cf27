/* step_models.c - see step_models.h. */
#include "cuda/one/step_models.h"

#include "model/layers.h"
#include "model/program.h"

/* StepShape.group for this matrix. 4 bits and FP4: how many inputs share a scale. Other weights: a code for
 * their type (STEP_HALF_GROUP ..). 0: no kernel reads such weights. */
static int group_of(const Linear *l) {
  if (l->kind == LINEAR_FP4) return STEP_FP4_GROUP;
  if (l->kind == LINEAR_INT8) return STEP_INT8_GROUP;
  if (l->kind == LINEAR_DENSE) return l->dtype == DTYPE_F16 || l->dtype == DTYPE_BF16 ? STEP_HALF_GROUP : 0;
  if (l->kind == LINEAR_FP8) return l->group == STEP_GROUP || l->group >= l->n_in ? STEP_FP8_GROUP : 0;
  return l->kind == LINEAR_AWQ && (l->group == STEP_GROUP || l->group == 64 || l->group == 32) ? l->group : 0;
}

/* True for experts like gpt-oss's (plan.h, "varied experts"). */
static bool is_varied(const ModelConfig *c) {
  return c->experts.n_experts > 0 && c->activation == ACTIVATION_CLAMPED;
}

static bool is_latent(const ModelConfig *c) {
  return c->latent.kv_rank > 0;
}

StepShape step_shape(const ModelConfig *c) {
  const ExpertConfig *e = &c->experts;
  const int unit = STEP_VARIED_COLUMNS;
  const int n_chosen = e->n_chosen + (e->shared_width > 0); /* the shared expert counts as one */
  StepShape s = {.hidden = is_varied(c) ? (c->hidden + unit - 1) / unit * unit : c->hidden,
                 .width = is_varied(c) ? c->hidden : 0,
                 .intermediate = e->n_experts > 0 ? n_chosen * e->width : c->intermediate,
                 .n_layers = c->n_layers,
                 .n_heads = c->n_heads,
                 .n_kv_heads = c->n_kv_heads,
                 .vocab_size = c->vocab_size,
                 .head_dim = c->head_dim,
                 .n_experts = e->n_experts,
                 .n_chosen = n_chosen,
                 .n_gpus = c->split,
                 .q_rank = c->latent.q_rank,
                 .nope_dim = c->latent.nope_dim,
                 .value_dim = c->latent.value_dim,
                 .n_key_heads = c->delta.n_key_heads,
                 .n_value_heads = c->delta.n_value_heads};
  while (is_latent(c) && s.n_dense < c->n_layers && config_layer(c, s.n_dense).n_experts == 0) s.n_dense++;
  s.dense_width = s.n_dense > 0 ? config_layer(c, 0).intermediate : 0;
  for (int i = 0; i < c->n_layers && i < STEP_HYBRID_LAYERS; i++)
    if (config_layer(c, i).kind == LAYER_DELTA) s.delta_layers |= UINT64_C(1) << i;
  return s;
}

int step_group(const Model *model) {
  return group_of(is_varied(&model->config) ? &model->layers[0].experts[0].down : &model->layers[0].o);
}

int step_attn_group(const Model *model) {
  return is_varied(&model->config) ? group_of(&model->layers[0].o) : 0;
}

/* True if this matrix (delta_b or delta_a) is dense, has the type of `first` (fp16, bf16) and no bias. */
static bool is_gate(const Linear *l, const Linear *first) {
  return l->kind == LINEAR_DENSE && l->dtype == first->dtype && !l->bias.data &&
         (l->dtype == DTYPE_F16 || l->dtype == DTYPE_BF16);
}

static const char *unsupported_delta(const Model *model, int layer) {
  const ModelLayer *l = &model->layers[layer];
  int first = 0;
  while (config_layer(&model->config, first).kind != LAYER_DELTA) first++;
  const Linear *gate = &model->layers[first].delta_b;
  if (!is_gate(&l->delta_b, gate) || !is_gate(&l->delta_a, gate))
    return "gates of the delta rule that are not fp16 or bf16";
  return l->delta_qkv.bias.data || l->delta_z.bias.data ? "a bias of the delta rule" : NULL;
}

uint64_t step_windows(const ModelConfig *c, int *window) {
  uint64_t layers = 0;
  *window = 0;
  for (int i = 0; i < c->n_layers && i < STEP_HYBRID_LAYERS; i++) {
    const LayerConfig own = config_layer(c, i);
    if (own.window > 0) *window = own.window, layers |= UINT64_C(1) << i;
  }
  return layers;
}

/* Names a property of a layer with varied experts (plan.h) for which there is no kernel, or NULL. */
static const char *unsupported_varied(const Model *model, int layer) {
  const ModelConfig *c = &model->config;
  const ModelLayer *l = &model->layers[layer];
  const LayerConfig own = config_layer(c, layer);
  if (own.chunk > 0) return "attention in chunks";
  int window;
  step_windows(c, &window);
  if (own.window > 0 && own.window != window) return "windows of different sizes";
  if (!own.sinks) return "clamped experts without sinks of attention";
  for (int which = 0; which < expert_linear(1, 0); which++)
    if (layer_linear_exists(c, layer, which) && !layer_linear(l, which)->bias.data)
      return "clamped experts without all biases";
  const Dtype router = l->router.dtype;
  if (router != model->layers[0].router.dtype || (router != DTYPE_F16 && router != DTYPE_BF16))
    return "a router that is not fp16 or bf16";
  return NULL;
}

/* Names a property of the layer's experts, router or shared expert for which there is no kernel, or NULL. The
 * shared expert has to be like the routed ones. */
static const char *unsupported_experts(const Model *model, int layer) {
  const ExpertConfig *e = &model->config.experts;
  const ModelLayer *l = &model->layers[layer];
  const Linear *gate = &l->shared_gate;
  if (e->n_experts == 0) return NULL;
  if (config_layer(&model->config, layer).n_experts == 0)
    return layer < step_shape(&model->config).n_dense ? NULL : "layers with and without experts";
  if (is_varied(&model->config)) return unsupported_varied(model, layer);
  const Dtype router = l->router.dtype;
  if (router != model->layers[step_shape(&model->config).n_dense].router.dtype ||
      (router != DTYPE_F16 && router != DTYPE_BF16))
    return "a router that is not fp16 or bf16";
  if (e->shared_width == 0) return NULL;
  if (e->shared_output == SHARED_GATED &&
      (gate->kind != LINEAR_DENSE || gate->dtype != router || gate->bias.data))
    return "a gate beside experts that is not of the router's type";
  for (int part = 0; part < N_EXPERT_LINEARS; part++) {
    const Linear *m = &l->linear[mlp_linear(part)];
    if (group_of(m) != step_group(model) || m->bias.data)
      return "an MLP beside experts that is not like them";
  }
  return NULL;
}

/* Looks at all matrices that `auk quantize` would round, except kv_b and an MLP beside experts. Only the
 * first expert is looked at: all are alike (weights.c, check_alike()). */
static const char *unsupported_layer(const Model *model, int layer) {
  const ModelConfig *c = &model->config;
  const ModelLayer *l = &model->layers[layer];
  const char *unsupported = unsupported_experts(model, layer);
  if (unsupported) return unsupported;
  const LayerConfig own = config_layer(c, layer);
  const bool hybrid = c->head_dim == STEP_WIDE_HEAD, experts = own.n_experts > 0;
  for (int which = 0; which < expert_linear(1, 0); which++) {
    const bool plain_mlp = which >= LAYER_GATE && which <= LAYER_UP,
               of_mlp = plain_mlp || which >= N_LAYER_LINEARS;
    if (!layer_linear_exists(c, layer, which) || !layer_linear_is_rounded(which) || which == LAYER_KV_B ||
        (plain_mlp && experts))
      continue;
    const Linear *m = layer_linear(l, which),
                 *like =
                     !of_mlp ? &l->o : layer_linear(l, experts ? expert_linear(0, EXPERT_DOWN) : LAYER_DOWN);
    const int group = group_of(m);
    if (!group)
      return "layers that are not fp16, bf16, FP4, FP8 in groups of 128 or one group, int8, or 4 bits in "
             "groups of 32, 64 or 128";
    if (m->order) return "inputs in the order of activations";
    if (group != (is_varied(c) && !of_mlp ? step_attn_group(model) : step_group(model)))
      return "layers with groups of different sizes";
    if (m->kind == LINEAR_DENSE && m->dtype != like->dtype) return "layers in fp16 and in bf16";
    if ((of_mlp || which == LAYER_O) && m->bias.data && !is_varied(c))
      return "a bias of another layer than q, k and v";
    if (hybrid && m->bias.data) return "a bias in a model with heads of 256";
    if (is_latent(c) && m->bias.data) return "a bias beside latent attention";
  }
  return hybrid && own.kind == LAYER_DELTA ? unsupported_delta(model, layer) : NULL;
}

static const char *unsupported_latent(const ModelConfig *c) {
  const ExpertConfig *e = &c->experts;
  if (c->latent.kv_rank != STEP_LATENT || c->latent.rope_dim != STEP_LATENT_ROPE)
    return "latents of other sizes than 512 + 64";
  if (c->latent.q_rank == 0) return "latent attention without a latent of queries";
  if (e->n_experts == 0) return "latent attention without experts";
  if (e->score != SCORE_SIGMOID || !e->choice_bias || e->n_groups != 1 || e->biases || e->latent > 0 ||
      e->norms != EXPERTS_NO_NORMS || e->scales_input)
    return "experts of another kind than GLM-4.7-Flash's beside latent attention";
  if (e->shared_width != e->width || e->shared_output != SHARED_WHOLE)
    return "experts without an MLP of their width beside them";
  return NULL;
}

/* Names a property of the config for which the fused step has no kernel, or NULL. */
static const char *unsupported_sizes(const ModelConfig *c) {
  const ExpertConfig *e = &c->experts;
  const bool hybrid = c->head_dim == STEP_WIDE_HEAD;
  if (is_latent(c)) return unsupported_latent(c);
  if (c->head_dim != 64 && c->head_dim != 128 && !hybrid) return "heads of another size than 64, 128 or 256";
  if (is_varied(c) && (e->score != SCORE_CHOSEN || e->n_chosen_groups < e->n_groups || e->scale != 1 ||
                       e->sum_plus != 0 || e->choice_bias || !e->biases || e->norms != EXPERTS_NO_NORMS ||
                       e->latent > 0 || e->scales_input || e->shared_width > 0))
    return "clamped experts of another kind than gpt-oss's";
  if (!hybrid) return NULL;
  if (e->n_experts > 0 && e->shared_width != e->width)
    return "experts without an MLP of their width beside them";
  if (e->n_experts > 0 && e->shared_output != SHARED_GATED) return "an MLP beside experts without a gate";
  if (c->rope.rotary_dim != STEP_ROTARY_DIM) return "a rope over a part of the head that is not 64";
  if (c->attn_gate != ATTN_GATE_IN_Q || c->qk_norm != QK_NORM_HEADS)
    return "heads of 256 without gates and norms";
  if (c->delta.n_key_heads > 0 &&
      (c->delta.key_dim != STEP_PACK || c->delta.value_dim != STEP_PACK || c->delta.conv != STEP_DELTA_TAPS))
    return "a delta rule of these sizes";
  return NULL;
}

Status step_supports_config(const ModelConfig *c, Error *err) {
  char words[FORM_WORDS];
  const char *unsupported = unsupported_sizes(c);
  if (!unsupported) {
    const ProgramForm form = c->head_dim == STEP_WIDE_HEAD ? FORM_HYBRID_STEP
                             : is_varied(c)                ? FORM_VARIED_STEP
                             : is_latent(c)                ? FORM_LATENT_STEP
                                                           : FORM_STEP;
    TRY(form_refusal(form, c, words, err));
    if (!*words) return STATUS_OK;
    unsupported = words;
  }
  return error_set(err, STATUS_MODEL, "one kernel a step: not for %s", unsupported);
}

Status step_supports(const Model *model, Error *err) {
  const ModelConfig *c = &model->config;
  const char *unsupported = NULL;
  TRY(step_supports_config(c, err));
  for (int i = 0; !unsupported && i < c->n_layers; i++) unsupported = unsupported_layer(model, i);
  if (!unsupported && (model->head.kind != LINEAR_DENSE || model->head.dtype == DTYPE_F32))
    unsupported = "a head that is not fp16 or bf16";
  if (!unsupported) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "one kernel a step: not for %s", unsupported);
}
