/* delta.c - layers with the gated delta rule in config.json: their sizes, and which layers they are.
 *
 * Called by: positions.c.   Calls: reader.c. Source: transformers 5.23,
 * models/qwen3_5/configuration_qwen3_5.py, models/olmo_hybrid/configuration_olmo_hybrid.py. */
#include "model/config/architectures.h"

int delta_channels(const DeltaConfig *delta) {
  return 2 * delta->n_key_heads * delta->key_dim + delta->n_value_heads * delta->value_dim;
}

DeltaPlaces delta_places(const DeltaConfig *delta) {
  const int keys = delta->n_key_heads * delta->key_dim, values = delta->n_value_heads * delta->value_dim;
  if (delta->rule == RULE_MAMBA2) return (DeltaPlaces){.q = values + keys, .k = values, .v = 0};
  return (DeltaPlaces){.q = 0, .k = keys, .v = 2 * keys};
}

int delta_norm_width(const DeltaConfig *delta) {
  const int group = delta->n_key_heads ? delta->n_value_heads / delta->n_key_heads : 0;
  return delta->rule == RULE_MAMBA2 ? group * delta->value_dim : delta->value_dim;
}

/* Heads are at most as many as MAX_HEADS in all and of at most MAX_DELTA_DIM numbers, so that the channels of
 * the convolution are below 2^26. `usual`: the sizes of absent members. */
static Status parse_sizes(const ConfigReader *r, const DeltaConfig *usual, DeltaConfig *delta) {
  TRY(reader_int(r, "linear_num_key_heads", 1, MAX_HEADS, usual->n_key_heads, &delta->n_key_heads));
  TRY(reader_int(r, "linear_num_value_heads", 1, MAX_HEADS, usual->n_value_heads, &delta->n_value_heads));
  TRY(reader_int(r, "linear_key_head_dim", 1, MAX_DELTA_DIM, usual->key_dim, &delta->key_dim));
  TRY(reader_int(r, "linear_value_head_dim", 1, MAX_DELTA_DIM, usual->value_dim, &delta->value_dim));
  TRY(reader_int(r, "linear_conv_kernel_dim", 1, MAX_CONV_TAPS, 4, &delta->conv));
  if (delta->n_value_heads % delta->n_key_heads != 0)
    return reader_refuse(r, "linear_num_value_heads is %d, expected a multiple of its %d key heads",
                         delta->n_value_heads, delta->n_key_heads);
  return STATUS_OK;
}

/* Without layer_types every full_attention_interval-th layer has attention. */
static Status default_kinds(const ConfigReader *r, ModelConfig *config) {
  int interval;
  TRY(reader_int(r, "full_attention_interval", 1, INT32_MAX, 4, &interval));
  for (int layer = 0; layer < config->n_layers; layer++)
    config->layers[layer].kind = (layer + 1) % interval ? LAYER_DELTA : LAYER_ATTENTION;
  return STATUS_OK;
}

/* indexed: indexed_attention is another name of full_attention. */
static Status parse_kinds(const ConfigReader *r, const Json *types, bool indexed, ModelConfig *config) {
  char found[64];
  TRY(reader_names_of_layers(r, types, config->n_layers));
  int layer = 0;
  for (const Json *type = json_first(types); type; type = json_next(type), layer++) {
    const bool delta = json_string_is(type, "linear_attention");
    if (!delta && !json_string_is(type, "full_attention") &&
        !(indexed && json_string_is(type, "indexed_attention")))
      return reader_refuse(r, "layer_types[%d] is %s, expected linear_attention%s or full_attention", layer,
                           json_describe(type, found), indexed ? ", indexed_attention" : "");
    config->layers[layer].kind = delta ? LAYER_DELTA : LAYER_ATTENTION;
  }
  return STATUS_OK;
}

/* The rule wants silu after its convolution and as its gate. */
static Status check_activation(const ConfigReader *r, const ModelConfig *config) {
  if (config->activation == ACTIVATION_SILU) return STATUS_OK;
  return reader_refuse(r, "hidden_act %s is not supported with layers of the gated delta rule, expected silu",
                       activation_name(config->activation));
}

Status config_parse_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const DeltaConfig usual = {.n_key_heads = 16, .n_value_heads = 32, .key_dim = 128, .value_dim = 128};
  const Json *types = json_member(r->object, "layer_types");
  bool gated;
  TRY(parse_sizes(r, &usual, &config->delta));
  TRY(types ? parse_kinds(r, types, arch->streams, config) : default_kinds(r, config));
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) config->delta = (DeltaConfig){0};
  TRY(reader_bool(r, "attn_output_gate", true, &gated));
  if (!gated) return reader_refuse(r, "attn_output_gate is false, expected true");
  return check_activation(r, config);
}

/* --- Olmo Hybrid */

/* *none: theta is null where it stands, in the rope's parameters or, where they have none, beside them. */
static Status has_no_rope(const ConfigReader *r, bool *none) {
  static const char theta[] = "rope_theta";
  ConfigReader own;
  TRY(reader_object(r, "rope_scaling", &own));
  if (json_count(own.object) == 0) TRY(reader_object(r, "rope_parameters", &own));
  const bool inside = json_member(own.object, theta), beside = json_member(r->object, theta);
  *none = !inside && ((own.object && reader_is_null(&own, theta)) || (!beside && reader_is_null(r, theta)));
  return STATUS_OK;
}

/* Absent members are made of others: as many heads as attention has, keys of 3/4 of hidden_size together, and
 * values of twice as many numbers. */
static Status parse_sizes_apart(const ConfigReader *r, ModelConfig *config) {
  DeltaConfig *delta = &config->delta;
  DeltaConfig usual = {.n_key_heads = config->n_heads, .n_value_heads = config->n_heads};
  TRY(reader_int(r, "linear_num_key_heads", 1, MAX_HEADS, usual.n_key_heads, &delta->n_key_heads));
  usual.key_dim = (int)(0.75 * config->hidden / delta->n_key_heads);
  TRY(reader_int(r, "linear_key_head_dim", 1, MAX_DELTA_DIM, usual.key_dim, &delta->key_dim));
  usual.value_dim = 2 * delta->key_dim;
  TRY(parse_sizes(r, &usual, delta));
  if (delta->key_dim > 0 && delta->key_dim <= MAX_DELTA_DIM && delta->value_dim <= MAX_DELTA_DIM)
    return STATUS_OK;
  return reader_refuse(
      r, "heads of %d and %d numbers (linear_key_head_dim, linear_value_head_dim), expected 1 to %d",
      delta->key_dim, delta->value_dim, MAX_DELTA_DIM);
}

Status config_parse_delta_apart(const ConfigReader *r, ModelConfig *config) {
  const Json *types = json_member(r->object, "layer_types");
  const int n = config->n_layers;
  bool no_rope;
  TRY(has_no_rope(r, &no_rope));
  TRY(parse_sizes_apart(r, config));
  config->delta.apart = true;
  config->delta.norm_eps = 1e-5; /* whatever rms_norm_eps is */
  TRY(reader_bool(r, "linear_allow_neg_eigval", true, &config->delta.doubles_beta));
  for (int i = 0; i < n; i++)
    config->layers[i].kind = i % 4 == 3 || (n < 4 && i == n - 1) ? LAYER_ATTENTION : LAYER_DELTA;
  if (types) TRY(parse_kinds(r, types, false, config));
  for (int i = 0; i < n; i++) {
    config->layers[i].norms_before = config->layers[i].kind == LAYER_DELTA;
    if (no_rope) config->layers[i].rope = ROPE_NONE;
  }
  if (config_count_layers(config, LAYER_DELTA, n) == 0) config->delta = (DeltaConfig){0};
  return check_activation(r, config);
}
