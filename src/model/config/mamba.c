/* mamba.c - layers with Mamba-2 beside attention in config.json (Granite 4.0): their sizes, which layers they
 * are, and whether attention has a rope.
 *
 * Called by: positions.c.   Calls: reader.c. Source: transformers 5.23,
 * models/granitemoehybrid/configuration_granitemoehybrid.py and modeling_granitemoehybrid.py. */
#include <math.h>
#include <string.h>

#include "model/config/architectures.h"

/* JSON has no infinity: transformers 5 writes {"__float__": "Infinity"}. */
static bool is_infinity(const Json *value) {
  return json_string_is(json_member(value, "__float__"), "Infinity");
}

/* time_step_limit: the least and the largest step size; absent: 0 and infinity. */
static Status parse_step_limit(const ConfigReader *r, DeltaConfig *delta) {
  static const char key[] = "time_step_limit";
  const Json *limits = json_member(r->object, key);
  delta->least_step = 0, delta->largest_step = INFINITY;
  if (!limits || reader_is_null(r, key)) return STATUS_OK;
  if (!json_is_array(limits) || json_count(limits) != 2)
    return reader_expected(r, key, limits, "a list of two numbers");
  double *const ends[] = {&delta->least_step, &delta->largest_step};
  int i = 0;
  for (const Json *limit = json_first(limits); limit; limit = json_next(limit), i++)
    if (!(i == 1 && is_infinity(limit)) && !json_double(limit, ends[i]))
      return reader_expected(r, key, limit, "a number");
  if (delta->least_step < 0 || delta->largest_step <= delta->least_step)
    return reader_refuse(r, "%s is %g to %g, expected two ascending numbers from 0 on", key,
                         delta->least_step, delta->largest_step);
  return STATUS_OK;
}

/* A head has mamba_expand * hidden_size / mamba_n_heads numbers: mamba_d_head is "auto" or exactly this. */
static Status parse_head_size(const ConfigReader *r, const ModelConfig *config, DeltaConfig *delta) {
  static const char key[] = "mamba_d_head";
  int expand;
  TRY(reader_int(r, "mamba_expand", 1, MAX_HIDDEN, 2, &expand));
  const int64_t width = (int64_t)expand * config->hidden;
  if (width % delta->n_value_heads != 0)
    return reader_refuse(r, "mamba_n_heads is %d, expected a divisor of mamba_expand * hidden_size, %lld",
                         delta->n_value_heads, (long long)width);
  const int64_t own = width / delta->n_value_heads;
  if (own > MAX_DELTA_DIM)
    return reader_refuse(r, "mamba_n_heads is %d: heads of %lld numbers, expected at most %d",
                         delta->n_value_heads, (long long)own, MAX_DELTA_DIM);
  const Json *given = json_member(r->object, key);
  delta->value_dim = (int)own;
  if (given && !json_string_is(given, "auto"))
    TRY(reader_int(r, key, 1, MAX_DELTA_DIM, (int)own, &delta->value_dim));
  if (delta->value_dim == own) return STATUS_OK;
  return reader_refuse(r, "%s is %d, expected mamba_expand * hidden_size / mamba_n_heads, %lld", key,
                       delta->value_dim, (long long)own);
}

static Status parse_sizes(const ConfigReader *r, ModelConfig *config) {
  DeltaConfig *delta = &config->delta;
  delta->rule = RULE_MAMBA2;
  TRY(reader_int(r, "mamba_n_heads", 1, MAX_HEADS, 128, &delta->n_value_heads));
  TRY(reader_int(r, "mamba_n_groups", 1, MAX_HEADS, 1, &delta->n_key_heads));
  TRY(reader_int(r, "mamba_d_state", 1, MAX_DELTA_DIM, 256, &delta->key_dim));
  TRY(reader_int(r, "mamba_d_conv", 1, MAX_CONV_TAPS, 4, &delta->conv));
  TRY(reader_bool(r, "mamba_conv_bias", true, &delta->conv_bias));
  TRY(reader_bool(r, "mamba_proj_bias", false, &delta->biases));
  if (delta->n_value_heads % delta->n_key_heads != 0)
    return reader_refuse(r, "mamba_n_heads is %d, expected a multiple of its %d groups", delta->n_value_heads,
                         delta->n_key_heads);
  if (config->activation != ACTIVATION_SILU)
    return reader_refuse(r, "hidden_act %s is not supported with Mamba-2 layers, expected silu",
                         activation_name(config->activation));
  TRY(parse_step_limit(r, delta));
  return parse_head_size(r, config, delta);
}

/* layer_types, in older configs layers_block_type; absent: all layers are Mamba-2's. */
static Status parse_kinds(const ConfigReader *r, ModelConfig *config) {
  static const char *const keys[] = {"layer_types", "layers_block_type", NULL};
  const char *key = reader_first_key(r->object, keys);
  const Json *types = key ? json_member(r->object, key) : NULL;
  char found[64];
  int layer = 0;
  if (types && (!json_is_array(types) || json_count(types) != (size_t)config->n_layers))
    return reader_refuse(r, "%s is %s, expected a list of %d names (num_hidden_layers)", key,
                         json_is_array(types) ? "of another length" : json_describe(types, found),
                         config->n_layers);
  for (layer = 0; !types && layer < config->n_layers; layer++) config->layers[layer].kind = LAYER_DELTA;
  layer = 0;
  for (const Json *type = json_first(types); type; type = json_next(type), layer++) {
    const bool mamba = json_string_is(type, "mamba") || json_string_is(type, "linear_attention");
    if (!mamba && !json_string_is(type, "attention") && !json_string_is(type, "full_attention"))
      return reader_refuse(r, "%s[%d] is %s, expected mamba or attention", key, layer,
                           json_describe(type, found));
    config->layers[layer].kind = mamba ? LAYER_DELTA : LAYER_ATTENTION;
  }
  return STATUS_OK;
}

Status config_parse_mamba(const ConfigReader *r, ModelConfig *config) {
  const char *positions;
  TRY(parse_kinds(r, config));
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) > 0) TRY(parse_sizes(r, config));
  TRY(reader_string(r, "position_embedding_type", &positions));
  for (int layer = 0; (!positions || strcmp(positions, "rope") != 0) && layer < config->n_layers; layer++)
    config->layers[layer].rope = ROPE_NONE;
  return STATUS_OK;
}
