/* delta.c - layers with the gated delta rule in config.json: their sizes, and which layers they are.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, models/qwen3_5/configuration_qwen3_5.py,
 * models/olmo_hybrid/configuration_olmo_hybrid.py, models/kimi_linear/configuration_kimi_linear.py. */
#include "model/config/architectures.h"

/* There are at most MAX_HEADS heads of keys or values, of at most MAX_DELTA_DIM numbers each: so the
 * convolution has fewer than 2^26 channels. `usual`: the sizes of absent members. */
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

/* Fills `which` as reader_names_of_layers() does (0: the delta rule), and sets the kinds of layers if
 * layer_types is given. other: another name of layers with attention, or NULL. */
static Status parse_kinds(const ConfigReader *r, const char *other, int8_t *which, ModelConfig *config) {
  static const char delta[] = "linear_attention", full[] = "full_attention";
  const char *const two[] = {delta, full, NULL}, *const three[] = {delta, other, full, NULL};
  TRY(reader_names_of_layers(r, "layer_types", other ? three : two, config->n_layers, which));
  for (int layer = 0; layer < config->n_layers; layer++)
    if (which[layer] >= 0) config->layers[layer].kind = which[layer] == 0 ? LAYER_DELTA : LAYER_ATTENTION;
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
  static const DeltaConfig usual = {.n_key_heads = 16, .n_value_heads = 32, .key_dim = 128, .value_dim = 128};
  int8_t which[MAX_LAYERS];
  TRY(parse_sizes(r, &usual, &config->delta));
  const char *other = arch->layers == config_parse_streams ? "indexed_attention" : NULL;
  TRY(parse_kinds(r, other, which, config));
  if (which[0] < 0) TRY(default_kinds(r, config));
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) config->delta = (DeltaConfig){0};
  TRY(reader_expect_bool(r, "attn_output_gate", true));
  if (config->delta.n_key_heads > 0 && has(arch, INTERLEAVED_DELTA)) config->delta.form = DELTA_INTERLEAVED;
  return check_activation(r, config);
}

/* Layers with a window have a rope, layers without a window have none. Without layer_types, the kinds follow
 * a pattern. */
Status config_parse_delta_windows(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const DeltaConfig usual = {.n_key_heads = 8, .n_value_heads = 16, .key_dim = 128, .value_dim = 128};
  static const char letters[] = "-wf", pattern[] = "-w-fw"; /* delta rule, window, full */
  int8_t which[MAX_LAYERS];
  int window;
  TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, 512, &window));
  TRY(parse_sizes(r, &usual, &config->delta));
  TRY(parse_kinds(r, "sliding_attention", which, config));
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *own = &config->layers[i];
    const char letter = which[i] < 0 ? pattern[(size_t)i % (sizeof pattern - 1)] : letters[which[i]];
    own->kind = letter == '-' ? LAYER_DELTA : LAYER_ATTENTION;
    if (own->kind == LAYER_DELTA) continue;
    own->window = letter == 'w' ? window : 0;
    own->rope = own->window ? ROPE_GLOBAL : ROPE_NONE;
  }
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) config->delta = (DeltaConfig){0};
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

/* Kinds by layer_types, else by the two lists if both are given. Else layers 5, 9, ... (counted from 1) have
 * attention. */
static Status parse_kimi_kinds(const ConfigReader *r, const ConfigReader *own, ModelConfig *config) {
  int8_t which[MAX_LAYERS];
  TRY(parse_kinds(r, NULL, which, config));
  if (which[0] >= 0) return STATUS_OK;
  if (json_member(own->object, "kda_layers") && json_member(own->object, "full_attn_layers"))
    return parse_listed_kinds(own, config);
  for (int i = 0; i < config->n_layers; i++)
    config->layers[i].kind = i > 0 && i % 4 == 0 ? LAYER_ATTENTION : LAYER_DELTA;
  return STATUS_OK;
}

/* Without layer_types every layer_group_size-th layer has attention. */
static Status parse_ling_kinds(const ConfigReader *r, ModelConfig *config) {
  int8_t which[MAX_LAYERS];
  int size;
  TRY(reader_int(r, "layer_group_size", 1, INT32_MAX, 6, &size));
  for (int i = 0; i < config->n_layers; i++)
    config->layers[i].kind = (i + 1) % size == 0 ? LAYER_ATTENTION : LAYER_DELTA;
  return parse_kinds(r, NULL, which, config);
}

/* There are as many key heads as value heads, of the same size. Members of linear_attn_config, as published,
 * override the members beside it. */
static Status parse_kimi_sizes(const ConfigReader *r, const ConfigReader *own, DeltaConfig *delta) {
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
static Status parse_ling_sizes(const ConfigReader *r, const ModelConfig *config, DeltaConfig *delta) {
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

/* Refuses members that contradict what is computed. transformers 5.23 ignores them for these models, and
 * never ties lm_head. */
static Status check_unread(const ConfigReader *r, const Architecture *arch, const ModelConfig *config) {
  static const char *const functions[] = {"sigmoid", NULL};
  int step, function;
  if (!has(arch, NO_ROPE) && !config->rope.neighbours)
    return reader_refuse(r, "rope_interleave is false, expected true");
  if (!has(arch, NO_ROPE) && config->latent.q_rank)
    return reader_refuse(r, "q_lora_rank is %d, expected null", config->latent.q_rank);
  TRY(reader_expect_bool(r, "mla_use_nope", has(arch, NO_ROPE)));
  TRY(reader_expect_bool(r, "tie_word_embeddings", false));
  TRY(reader_int(r, "moe_layer_freq", 1, INT32_MAX, 1, &step));
  if (step != 1) return reader_refuse(r, "moe_layer_freq is %d, expected 1", step);
  return reader_choice(r, "moe_router_activation_func", functions, 0, &function);
}

Status config_parse_channel_delta(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  DeltaConfig *delta = &config->delta;
  ConfigReader own;
  TRY(reader_object(r, "linear_attn_config", &own));
  const bool kimi = has(arch, NO_ROPE);
  TRY(kimi ? parse_kimi_sizes(r, &own, delta) : parse_ling_sizes(r, config, delta));
  TRY(kimi ? parse_kimi_kinds(r, &own, config) : parse_ling_kinds(r, config));
  TRY(check_unread(r, arch, config));
  delta->n_value_heads = delta->n_key_heads;
  delta->value_dim = delta->key_dim;
  delta->form = DELTA_APART;
  delta->rule = RULE_KIMI;
  delta->gate_is_sigmoid = true;
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) config->delta = (DeltaConfig){0};
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

Status config_parse_delta_apart(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  int8_t which[MAX_LAYERS];
  const int n = config->n_layers;
  bool no_rope;
  TRY(has_no_rope(r, &no_rope));
  TRY(parse_sizes_apart(r, config));
  config->delta.form = DELTA_APART;
  config->delta.norm_eps = 1e-5; /* whatever rms_norm_eps is */
  TRY(reader_bool(r, "linear_allow_neg_eigval", true, &config->delta.doubles_beta));
  for (int i = 0; i < n; i++)
    config->layers[i].kind = i % 4 == 3 || (n < 4 && i == n - 1) ? LAYER_ATTENTION : LAYER_DELTA;
  TRY(parse_kinds(r, NULL, which, config));
  for (int i = 0; i < n; i++) {
    config->layers[i].norms_before = config->layers[i].kind == LAYER_DELTA;
    if (no_rope) config->layers[i].rope = ROPE_NONE;
  }
  if (config_count_layers(config, LAYER_DELTA, n) == 0) config->delta = (DeltaConfig){0};
  return check_activation(r, config);
}
