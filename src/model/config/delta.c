/* delta.c - layers with the gated delta rule in config.json: their sizes, and which layers they are.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, models/qwen3_5/configuration_qwen3_5.py,
 * models/olmo_hybrid/configuration_olmo_hybrid.py, models/kimi_linear/configuration_kimi_linear.py. */
#include "model/config/architectures.h"

/* There are at most MAX_HEADS heads of keys or values, of at most MAX_DELTA_DIM numbers each: so the
 * convolution has fewer than 2^26 channels. Absent members change nothing. */
static Status parse_sizes(const ConfigReader *r, DeltaConfig *delta) {
  TRY(reader_int(r, "linear_num_key_heads", 1, MAX_HEADS, delta->n_key_heads, &delta->n_key_heads));
  TRY(reader_int(r, "linear_num_value_heads", 1, MAX_HEADS, delta->n_value_heads, &delta->n_value_heads));
  TRY(reader_int(r, "linear_key_head_dim", 1, MAX_DELTA_DIM, delta->key_dim, &delta->key_dim));
  TRY(reader_int(r, "linear_value_head_dim", 1, MAX_DELTA_DIM, delta->value_dim, &delta->value_dim));
  TRY(reader_int(r, "linear_conv_kernel_dim", 1, MAX_CONV_TAPS, 4, &delta->conv));
  if (delta->n_value_heads % delta->n_key_heads != 0)
    return reader_refuse(r, "linear_num_value_heads is %d, expected a multiple of its %d key heads",
                         delta->n_value_heads, delta->n_key_heads);
  return STATUS_OK;
}

/* Refuses activations other than silu. silu follows the rule's convolution; without gate_is_sigmoid it also
 * makes the gate of the rule's output. */
static Status check_activation(const ConfigReader *r, const ModelConfig *config) {
  if (config->activation == ACTIVATION_SILU) return STATUS_OK;
  return reader_refuse(r, "hidden_act %s is not supported with layers of the gated delta rule, expected silu",
                       activation_name(config->activation));
}

Status config_parse_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  LayerKinds kinds = {{"linear_attention", "full_attention"}, "df", NULL, 0, 0};
  if (arch->layers == config_parse_streams)
    kinds = (LayerKinds){{"linear_attention", "indexed_attention", "full_attention"}, "dff", NULL, 0, 0};
  TRY(parse_sizes(r, &config->delta));
  if (!reader_member(r, "layer_types"))
    TRY(reader_int(r, "full_attention_interval", 1, INT32_MAX, 4, &kinds.period));
  TRY(config_parse_kinds(r, &kinds, 0, config));
  return check_activation(r, config);
}

/* Layers with a window have a rope, other layers with attention have none. */
Status config_parse_delta_windows(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const LayerKinds kinds = {
      {"linear_attention", "sliding_attention", "full_attention"}, "dwf", "dwdfw", 0, 0};
  int window;
  TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, 512, &window));
  TRY(parse_sizes(r, &config->delta));
  TRY(config_parse_kinds(r, &kinds, window, config));
  for (int i = 0; i < config->n_layers; i++)
    if (config->layers[i].kind == LAYER_ATTENTION && !config->layers[i].window)
      config->layers[i].rope = ROPE_NONE;
  return check_activation(r, config);
}

/* --- Kimi Delta Attention: a decay for each number of a key */

/* Reads the two lists of linear_attn_config: the layers with Kimi Delta Attention and the layers with full
 * attention, both counted from 1. PRECOND both are there. */
static Status parse_listed_kinds(const ConfigReader *own, ModelConfig *config) {
  static const char *const keys[] = {"kda_layers", "full_attn_layers"};
  bool listed[2][MAX_LAYERS + 1];
  for (int i = 0; i < 2; i++)
    TRY(reader_numbers_of_layers(own, keys[i], 0, config->n_layers + 1, false, listed[i]));
  if (listed[0][0] || listed[1][0])
    return reader_refuse(own, "%s and %s count layers from 1, but one of them holds 0", keys[0], keys[1]);
  for (int layer = 1; layer <= config->n_layers; layer++) {
    if (listed[0][layer] == listed[1][layer])
      return reader_refuse(own, "%s and %s %s hold layer %d, expected one of them to hold it", keys[0],
                           keys[1], listed[0][layer] ? "both" : "do not", layer);
    config->layers[layer - 1].kind = listed[0][layer] ? LAYER_DELTA : LAYER_ATTENTION;
  }
  return STATUS_OK;
}

/* Without layer_types the two lists decide if both are given. */
static Status parse_nested_kinds(const ConfigReader *r, const ConfigReader *own, ModelConfig *config) {
  static const LayerKinds kinds = {{"linear_attention", "full_attention"}, "df", "ddddfddd", 4, 0};
  TRY(config_parse_kinds(r, &kinds, 0, config));
  const bool listed = json_member(own->object, "kda_layers") && json_member(own->object, "full_attn_layers");
  return listed && !reader_member(r, "layer_types") ? parse_listed_kinds(own, config) : STATUS_OK;
}

static Status parse_flat_kinds(const ConfigReader *r, ModelConfig *config) {
  LayerKinds kinds = {{"linear_attention", "full_attention"}, "df", NULL, 0, 0};
  TRY(reader_int(r, "layer_group_size", 1, INT32_MAX, 6, &kinds.period));
  return config_parse_kinds(r, &kinds, 0, config);
}

/* There are as many key heads as value heads, of the same size. Members of linear_attn_config, as published,
 * override the members beside it. */
static Status parse_nested_sizes(const ConfigReader *r, const ConfigReader *own, DeltaConfig *delta) {
  TRY(reader_int(r, "linear_head_dim", 1, MAX_DELTA_DIM, 128, &delta->key_dim));
  TRY(reader_int(own, "head_dim", 1, MAX_DELTA_DIM, delta->key_dim, &delta->key_dim));
  TRY(reader_int(r, "linear_num_heads", 1, MAX_HEADS, 32, &delta->n_key_heads));
  TRY(reader_int(own, "num_heads", 1, MAX_HEADS, delta->n_key_heads, &delta->n_key_heads));
  TRY(reader_int(r, "linear_conv_kernel_dim", 1, MAX_CONV_TAPS, 4, &delta->conv));
  TRY(reader_int(own, "short_conv_kernel_size", 1, MAX_CONV_TAPS, delta->conv, &delta->conv));
  delta->gate_rank = delta->key_dim;
  return STATUS_OK;
}

/* The members that transformers saves, linear_..., override the published ones. A saved config has
 * linear_head_dim; its head_dim is no size of the delta rule. */
static Status parse_flat_sizes(const ConfigReader *r, const ModelConfig *config, DeltaConfig *delta) {
  bool bounded;
  double bound;
  TRY(reader_int(r, "head_dim", 1, MAX_DELTA_DIM, 128, &delta->key_dim));
  TRY(reader_int(r, "linear_head_dim", 1, MAX_DELTA_DIM, delta->key_dim, &delta->key_dim));
  TRY(reader_int(r, "linear_num_heads", 1, MAX_HEADS, config->n_heads, &delta->n_key_heads));
  TRY(reader_int(r, "short_conv_kernel_size", 1, MAX_CONV_TAPS, 4, &delta->conv));
  TRY(reader_int(r, "linear_conv_kernel_dim", 1, MAX_CONV_TAPS, delta->conv, &delta->conv));
  TRY(reader_bool(r, "kda_safe_gate", true, &bounded));
  TRY(reader_double(r, "kda_lower_bound", -1e3, -1e-3, -5, &bound));
  delta->log_bound = bounded ? bound : 0;
  return STATUS_OK;
}

/* Refuses members that contradict what is computed. transformers 5.23 ignores them for these models. */
static Status check_unread(const ConfigReader *r, const Architecture *arch, const ModelConfig *config) {
  int step;
  if (!has(arch, NO_ROPE) && !config->rope.neighbours)
    return reader_refuse(r, "rope_interleave is false, expected true");
  if (!has(arch, NO_ROPE) && config->latent.q_rank)
    return reader_refuse(r, "q_lora_rank is %d, expected null", config->latent.q_rank);
  TRY(reader_int(r, "moe_layer_freq", 1, INT32_MAX, 1, &step));
  return step == 1 ? STATUS_OK : reader_refuse(r, "moe_layer_freq is %d, expected 1", step);
}

Status config_parse_channel_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  DeltaConfig *delta = &config->delta;
  ConfigReader own;
  TRY(reader_object(r, "linear_attn_config", &own));
  const bool nested = has(arch, NO_ROPE);
  TRY(nested ? parse_nested_sizes(r, &own, delta) : parse_flat_sizes(r, config, delta));
  TRY(nested ? parse_nested_kinds(r, &own, config) : parse_flat_kinds(r, config));
  TRY(check_unread(r, arch, config));
  delta->n_value_heads = delta->n_key_heads;
  delta->value_dim = delta->key_dim;
  return check_activation(r, config);
}

/* --- Olmo Hybrid */

/* *none: rope_theta is null in the rope's object or, if absent there, in the config around it. */
static Status has_no_rope(const ConfigReader *r, bool *none) {
  static const char theta[] = "rope_theta";
  ConfigReader own;
  TRY(reader_object(r, "rope_scaling", &own));
  if (json_count(own.object) == 0) TRY(reader_object(r, "rope_parameters", &own));
  const bool inside = json_member(own.object, theta), beside = json_member(r->object, theta);
  *none = !inside && ((own.object && reader_is_null(&own, theta)) || (!beside && reader_is_null(r, theta)));
  return STATUS_OK;
}

/* Defaults: as many heads as attention has; the keys of all heads have 3/4 of hidden_size numbers together; a
 * value has twice as many numbers as a key. */
static Status parse_sizes_apart(const ConfigReader *r, ModelConfig *config) {
  DeltaConfig *delta = &config->delta;
  delta->n_value_heads = config->n_heads;
  TRY(reader_int(r, "linear_num_key_heads", 1, MAX_HEADS, config->n_heads, &delta->n_key_heads));
  const int key_dim = (int)(0.75 * config->hidden / delta->n_key_heads);
  TRY(reader_int(r, "linear_key_head_dim", 1, MAX_DELTA_DIM, key_dim, &delta->key_dim));
  delta->value_dim = 2 * delta->key_dim;
  TRY(parse_sizes(r, delta));
  if (delta->key_dim > 0 && delta->key_dim <= MAX_DELTA_DIM && delta->value_dim <= MAX_DELTA_DIM)
    return STATUS_OK;
  return reader_refuse(
      r, "heads of %d and %d numbers (linear_key_head_dim, linear_value_head_dim), expected 1 to %d",
      delta->key_dim, delta->value_dim, MAX_DELTA_DIM);
}

Status config_parse_delta_apart(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const LayerKinds kinds = {{"linear_attention", "full_attention"}, "df", "dddf", 0, 0};
  const int n = config->n_layers;
  bool no_rope;
  TRY(has_no_rope(r, &no_rope));
  TRY(parse_sizes_apart(r, config));
  TRY(reader_bool(r, "linear_allow_neg_eigval", true, &config->delta.doubles_beta));
  TRY(config_parse_kinds(r, &kinds, 0, config));
  if (n < 4 && !reader_member(r, "layer_types")) config->layers[n - 1].kind = LAYER_ATTENTION;
  for (int i = 0; i < n; i++) {
    config->layers[i].norms_before = config->layers[i].kind == LAYER_DELTA;
    if (no_rope) config->layers[i].rope = ROPE_NONE;
  }
  return check_activation(r, config);
}
