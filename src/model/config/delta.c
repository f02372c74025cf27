/* delta.c - layers with the gated delta rule in config.json: their sizes, and which layers they are.
 *
 * Called by: positions.c.   Calls: reader.c. Source: transformers 5.23,
 * models/qwen3_5/configuration_qwen3_5.py. */
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
 * the convolution are below 2^26. */
static Status parse_sizes(const ConfigReader *r, DeltaConfig *delta) {
  TRY(reader_int(r, "linear_num_key_heads", 1, MAX_HEADS, 16, &delta->n_key_heads));
  TRY(reader_int(r, "linear_num_value_heads", 1, MAX_HEADS, 32, &delta->n_value_heads));
  TRY(reader_int(r, "linear_key_head_dim", 1, MAX_DELTA_DIM, 128, &delta->key_dim));
  TRY(reader_int(r, "linear_value_head_dim", 1, MAX_DELTA_DIM, 128, &delta->value_dim));
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

Status config_parse_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const Json *types = json_member(r->object, "layer_types");
  bool gated;
  TRY(parse_sizes(r, &config->delta));
  TRY(types ? parse_kinds(r, types, arch->streams, config) : default_kinds(r, config));
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) config->delta = (DeltaConfig){0};
  TRY(reader_bool(r, "attn_output_gate", true, &gated));
  if (!gated) return reader_refuse(r, "attn_output_gate is false, expected true");
  if (config->activation != ACTIVATION_SILU)
    return reader_refuse(r,
                         "hidden_act %s is not supported with layers of the gated delta rule, expected silu",
                         activation_name(config->activation));
  return STATUS_OK;
}
