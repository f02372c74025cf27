/* inspect_arithmetic.c - `auk inspect`: how a model's transformer differs from Llama's, and which devices
 * support it. Called by: inspect.c. Calls: cuda/supported.c. Lines without content are omitted; models like
 * Llama get only the last one. */
#include <math.h>

#include "commands/models/decimal.h"
#include "commands/models/inspect.h"
#include "cuda/backend.h"
#include "model/layers.h"

/* Appends an item to a line: "LABEL  item, item". */
static Status add_item(Buffer *out, const char *label, bool *begun, const char *words, double number,
                       Error *err) {
  if (*begun)
    TRY(buffer_append_string(out, ", ", err));
  else
    TRY(inspect_begin_line(out, label, err));
  *begun = true;
  TRY(buffer_append_string(out, words, err));
  return number != 0 ? buffer_printf(out, err, "%.6g", number) : STATUS_OK;
}

static Status print_differences(Buffer *out, const ModelConfig *c, Error *err) {
  const struct {
    bool there;
    const char *words;
    double number; /* printed after the words; 0: none */
  } items[] = {
      {c->norms == NORM_AROUND, "norms before and behind attention and the gated product", 0},
      {c->norms == NORM_AFTER, "norms behind attention and the gated product only", 0},
      {inspect_has_norms_before(c), "but before them in layers with the delta rule", 0},
      {norms_are_centred(c), "norms subtract the mean", 0},
      {c->norm == NORM_CENTRED_BIAS, "norms with a bias", 0},
      {c->norms_plain, "norms without weights", 0},
      {c->head_bias, "an output head with a bias", 0},
      {c->parallel, "the gated product beside attention, of the same norm", 0},
      {c->qk_norm_after_rope, "q and k norms after their rope", 0},
      {c->embedding_norm, "embeddings normalised", 0},
      {c->qk_norm_plain, "q and k norms without weights", 0},
      {c->post_norm_eps != 0, "norms of outputs with epsilon ", c->post_norm_eps},
      {c->norm == NORM_PLUS_ONE_INSIDE, "a last norm of weight", 0},
      {norms_plus_one(c), "norms of 1 + weight", 0},
      {c->v_norm, "a norm of v without weight", 0},
      {c->qkv_clip != 0, "q, k and v cut at ", c->qkv_clip},
      {c->rope.backwards, "ropes that turn backwards", 0},
      {c->value_dim > 0, "values of a head of size ", c->value_dim},
      {c->value_dim > 0 && c->value_scale != 1, "values times ", c->value_scale},
      {c->per_layer_width > 0, "an input of each layer's own of size ", c->per_layer_width},
      {c->layer_scalar, "what leaves a layer times a number of its own", 0},
      {c->activation != ACTIVATION_SILU, activation_name(c->activation), 0},
      {is_ungated(c->activation), "an MLP without a gate", 0},
      {c->embedding_scale != 1, "embedding times ", c->embedding_scale},
      {c->residual_scale != 1, "what layers add times ", c->residual_scale},
      {c->gate_scale != 1, "gates of MLPs times ", c->gate_scale},
      {c->mlp_scale != 1, "gated products times ", c->mlp_scale},
      {c->attention_scale != 1 / sqrt(c->head_dim), "scores times ", c->attention_scale},
      {c->query_scale_beta != 0, "queries scaled by position, every ", c->query_scale_step},
      {c->query_scale_beta != 0, "by a logarithm times ", c->query_scale_beta},
      {c->query_scale_beta != 0 && c->query_scale_nope, "in layers without a rope", 0},
      {c->attention_cap != 0, "scores capped at ", c->attention_cap},
      {c->logit_divisor != 1, "logits divided by ", c->logit_divisor},
      {c->logit_cap != 0, "logits capped at ", c->logit_cap},
      {c->attn_gate == ATTN_GATE_NUMBERS, "a gate for each number of attention's output", 0},
      {c->attn_gate == ATTN_GATE_IN_Q, "a gate for each number of attention's output, stored with q", 0},
      {c->attn_gate == ATTN_GATE_HEADS, "a gate for each head of attention", 0},
      {c->attn_gate_softplus, "gates of attention are softplus, not sigmoids", 0},
      {c->attn_sinks, "a sink for each head of attention", 0},
      {c->rope.neighbours, "neighbouring numbers turned together", 0},
      {c->fused == FUSES_GATE_UP, "gate and up stored as one matrix", 0},
      {c->fused == FUSES_QKV, "q, k and v stored as one matrix", 0},
      {c->fused == FUSES_DELTA, "matrices of the delta rule stored as one", 0},
      {c->fused == FUSES_ALL, "q, k and v stored as one matrix, gate and up too", 0},
  };
  bool begun = false;
  for (size_t i = 0; i < sizeof items / sizeof *items; i++)
    if (items[i].there) TRY(add_item(out, "arithmetic", &begun, items[i].words, items[i].number, err));
  return STATUS_OK;
}

/* "in layers 0 to 4, 6 to 10" */
static Status print_layers(Buffer *out, const ModelConfig *config, LayerRope rope, Error *err) {
  const char *before = "in layers ";
  for (int from = 0, to; from < config->n_layers; from = to + 1) {
    if (config_layer(config, to = from).rope != rope) continue;
    while (to + 1 < config->n_layers && config_layer(config, to + 1).rope == rope) to++;
    TRY(buffer_printf(out, err, from < to ? "%s%d to %d" : "%s%d", before, from, to));
    before = ", ";
  }
  return STATUS_OK;
}

static bool has_layers(const ModelConfig *config, LayerRope rope) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config_layer(config, layer).rope == rope) return true;
  return false;
}

static Status print_other_ropes(Buffer *out, const ModelConfig *config, Error *err) {
  const RopeConfig *local = &config->local_rope;
  if (config->rope.rotary_dim < config->head_dim && has_layers(config, ROPE_GLOBAL)) {
    TRY(inspect_begin_line(out, "turned", err));
    TRY(buffer_printf(out, err, "the first %d of %d numbers of each head", config->rope.rotary_dim,
                      config->head_dim));
  }
  if (config->rope.kind == ROPE_PROPORTIONAL) {
    TRY(inspect_begin_line(out, "turned", err));
    TRY(buffer_printf(out, err, "the first %d of %d pairs of each head in layers without a window",
                      config->rope.n_turned, config->rope.rotary_dim / 2));
  }
  if (has_layers(config, ROPE_LOCAL)) {
    TRY(inspect_begin_line(out, "local rope", err));
    TRY(buffer_printf(out, err, "theta %s", decimal(local->theta).text));
    if (local->kind != ROPE_PLAIN)
      TRY(buffer_printf(out, err, ", scaling %s, factor %s", rope_kind_name(local->kind),
                        decimal(local->factor).text));
    TRY(buffer_append_string(out, ", ", err));
    TRY(print_layers(out, config, ROPE_LOCAL, err));
  }
  if (!has_layers(config, ROPE_NONE)) return STATUS_OK;
  TRY(inspect_begin_line(out, "no rope", err));
  return print_layers(out, config, ROPE_NONE, err);
}

Status inspect_print_arithmetic(Buffer *out, const ModelConfig *config, Error *err) {
  TRY(print_differences(out, config, err));
  return print_other_ropes(out, config, err);
}

/* True if a 4-bit matrix has fp32 scales, whose values decide when loading if it is AWQ. */
static bool has_wide_scales(const Model *model) {
  const Linear *head = &model->head;
  bool wide = head->kind == LINEAR_GROUPED && head->bits == 4;
  for (int i = 0; i < model->config.n_layers; i++)
    for (int which = 0; which < layer_linear_count(&model->config, i); which++) {
      const Linear *linear = layer_linear(&model->layers[i], which);
      wide = wide || (linear->kind == LINEAR_GROUPED && linear->bits == 4);
    }
  return wide;
}

Status inspect_print_devices(Buffer *out, const Model *model, Error *err) {
  Error reason = {{0}};
  TRY(inspect_begin_line(out, "runs on", err));
  if (model_check_known(model, &reason) != STATUS_OK)
    return buffer_printf(out, err, "nothing yet: %s", reason.text);
  if (cuda_check_model(model, &reason) == STATUS_OK)
    return buffer_printf(out, err, "CPU and GPU%s",
                         has_wide_scales(model) ? ", there as 8 bits where scales are no F16 numbers" : "");
  return buffer_printf(out, err, "CPU; %s", reason.text);
}
