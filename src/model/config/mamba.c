/* mamba.c - layers with Mamba-2 in config.json (Granite 4.0, Bamba, Falcon-H1, Nemotron-H): their sizes,
 * which layers they are, and whether attention has a rope.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, configuration_NAME.py and modeling_NAME.py of models/granitemoehybrid, bamba, falcon_h1
 * and nemotron_h. */
#include <math.h>
#include <string.h>

#include "model/config/architectures.h"

/* JSON has no infinity: transformers 5 writes {"__float__": "Infinity"}. */
static bool is_infinity(const Json *value) {
  return json_string_is(json_member(value, "__float__"), "Infinity");
}

/* The least and the largest step size; absent: 0 and infinity. */
static Status parse_step_limit(const ConfigReader *r, const char *key, DeltaConfig *delta) {
  const Json *limits = json_member(r->object, key);
  delta->least_step = 0, delta->largest_step = INFINITY;
  if (!limits) return STATUS_OK;
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

/* --- sizes */

/* Fills value_dim. If the architecture has a default, the config gives the size of a head. Else all heads
 * together have mamba_expand * hidden_size numbers (beside attention mamba_d_ssm, unless that is null), and
 * mamba_d_head must be absent, "auto" or a head's share. */
static Status parse_head(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const char key[] = "mamba_d_head";
  DeltaConfig *delta = &config->delta;
  const char *what = "mamba_expand * hidden_size";
  int factor, unit = config->hidden;
  if (delta->value_dim > 0)
    return reader_int(r, "mamba_head_dim", 1, MAX_DELTA_DIM, delta->value_dim, &delta->value_dim);
  if (arch->layers == config_parse_beside && !reader_is_null(r, "mamba_d_ssm")) {
    what = "mamba_d_ssm", unit = 1;
    TRY(reader_int(r, what, 1, MAX_HIDDEN, 1024, &factor));
  } else {
    TRY(reader_int(r, "mamba_expand", 1, MAX_HIDDEN, 2, &factor));
  }
  const int64_t width = (int64_t)factor * unit, own = width / delta->n_value_heads;
  if (width % delta->n_value_heads != 0)
    return reader_refuse(r, "mamba_n_heads is %d, expected a divisor of %s, %lld", delta->n_value_heads, what,
                         (long long)width);
  if (own > MAX_DELTA_DIM)
    return reader_refuse(r, "mamba_n_heads is %d: heads of %lld numbers, expected at most %d",
                         delta->n_value_heads, (long long)own, MAX_DELTA_DIM);
  delta->value_dim = (int)own;
  if (!json_string_is(json_member(r->object, key), "auto"))
    TRY(reader_int(r, key, 1, MAX_DELTA_DIM, (int)own, &delta->value_dim));
  if (delta->value_dim == own) return STATUS_OK;
  return reader_refuse(r, "%s is %d, expected %s / mamba_n_heads, %lld", key, delta->value_dim, what,
                       (long long)own);
}

/* Fills `delta` if a layer has Mamba-2. PRECOND the kinds of layers are filled */
static Status parse_sizes(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const char *const activations[] = {"silu", "swish", NULL};
  DeltaConfig *delta = &config->delta;
  int activation;
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) return STATUS_OK;
  TRY(reader_int(r, "mamba_n_heads", 1, MAX_HEADS, delta->n_value_heads, &delta->n_value_heads));
  TRY(reader_int(r, "mamba_n_groups", 1, MAX_HEADS, delta->n_key_heads, &delta->n_key_heads));
  TRY(reader_int(r, "mamba_d_state", 1, MAX_DELTA_DIM, delta->key_dim, &delta->key_dim));
  TRY(reader_int(r, "mamba_d_conv", 1, MAX_CONV_TAPS, 4, &delta->conv));
  TRY(reader_bool(r, "mamba_conv_bias", true, &delta->conv_bias));
  TRY(reader_bool(r, "mamba_proj_bias", false, &delta->biases));
  if (delta->n_value_heads % delta->n_key_heads != 0)
    return reader_refuse(r, "%s is %d, expected a multiple of its %d groups", reader_key(r, "mamba_n_heads"),
                         delta->n_value_heads, delta->n_key_heads);
  TRY(parse_step_limit(r, reader_key(r, "time_step_limit"), delta));
  if (arch->layers == config_parse_blocks)
    TRY(reader_choice(r, "mamba_hidden_act", activations, 0, &activation));
  else if (config->activation != ACTIVATION_SILU)
    return reader_refuse(r, "hidden_act %s is not supported with Mamba-2 layers, expected silu",
                         activation_name(config->activation));
  return parse_head(r, arch, config);
}

/* --- layers */

Status config_parse_listed_mamba(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  double part;
  /* transformers replaces partial_rotary_factor by 0.5, unless it is inside rope_parameters. */
  TRY(reader_double(r, "partial_rotary_factor", 0, 1, 0.5, &part));
  if (part != 0.5) return reader_refuse(r, "partial_rotary_factor is %g, expected 0.5", part);
  TRY(config_parse_attention_list(r, "attn_layer_indices", false, LAYER_DELTA, config));
  return parse_sizes(r, arch, config);
}

Status config_parse_mamba(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const LayerKinds kinds = {
      {"mamba", "attention", "linear_attention", "full_attention"}, "dfdf", "d", 0, 0};
  const char *positions;
  TRY(config_parse_kinds(r, &kinds, 0, config));
  TRY(parse_sizes(r, arch, config));
  TRY(reader_string(r, "position_embedding_type", &positions));
  for (int layer = 0; (!positions || strcmp(positions, "rope") != 0) && layer < config->n_layers; layer++)
    config->layers[layer].rope = ROPE_NONE;
  return STATUS_OK;
}

/* --- Falcon-H1 */

enum { MAX_LISTED = 5 };

/* A factor; absent or null: 1. */
static Status parse_factor(const ConfigReader *r, const char *key, double *out) {
  return reader_double(r, key, 1e-6, MAX_FACTOR, 1, out);
}

/* A list of n factors, n <= MAX_LISTED; absent or null: all are 1. */
static Status parse_factor_list(const ConfigReader *r, const char *key, int n, double *out) {
  const Json *list = json_member(r->object, key);
  char found[64];
  for (int i = 0; i < n; i++) out[i] = 1;
  if (!list) return STATUS_OK;
  TRY(reader_list(r, key, list, n, "numbers"));
  for (const Json *item = json_first(list); item; item = json_next(item), out++)
    if (!json_double(item, out) || *out < 1e-6 || *out > MAX_FACTOR)
      return reader_refuse(r, "%s holds %s, expected numbers from 1e-06 to %d", key,
                           json_describe(item, found), MAX_FACTOR);
  return STATUS_OK;
}

/* Reads Mamba-2's factors. Five are for z, x, B, C and dt (here z, v, k, q and a). One is for the input and
 * multiplies all five. One is for the output. */
static Status parse_state_factors(const ConfigReader *r, DeltaConfig *delta) {
  double in, parts[MAX_LISTED];
  TRY(parse_factor(r, "ssm_in_multiplier", &in));
  TRY(parse_factor_list(r, "ssm_multipliers", 5, parts));
  delta->z_scale = in * parts[0], delta->v_scale = in * parts[1], delta->k_scale = in * parts[2];
  delta->q_scale = in * parts[3], delta->a_scale = in * parts[4];
  return parse_factor(r, "ssm_out_multiplier", &delta->out_scale);
}

/* Scores are linear in queries and in keys, attention's output in values. So a factor f of attention's input
 * multiplies scores by f^2, and the output by f. residual_scale is f times the output's own factor. It
 * multiplies all outputs, so the MLP's and Mamba-2's factors are divided by it. */
static Status parse_beside_factors(const ConfigReader *r, ModelConfig *config) {
  double head, in, out, key, mlp[MAX_LISTED];
  TRY(parse_factor(r, "embedding_multiplier", &config->embedding_scale));
  TRY(parse_factor(r, "lm_head_multiplier", &head));
  TRY(parse_factor(r, "attention_in_multiplier", &in));
  TRY(parse_factor(r, "attention_out_multiplier", &out));
  TRY(parse_factor(r, "key_multiplier", &key));
  TRY(parse_factor_list(r, "mlp_multipliers", 2, mlp));
  TRY(parse_state_factors(r, &config->delta));
  config->logit_divisor = 1 / head;
  config->attention_scale *= in * in * key;
  config->residual_scale = in * out;
  config->gate_scale = mlp[0];
  config->mlp_scale = mlp[1] / config->residual_scale;
  config->delta.out_scale /= config->residual_scale;
  return STATUS_OK;
}

Status config_parse_beside(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  bool norm, norm_first;
  for (int layer = 0; layer < config->n_layers; layer++) config->layers[layer].delta_beside = true;
  TRY(parse_sizes(r, arch, config));
  TRY(reader_bool(r, "mamba_rms_norm", false, &norm));
  TRY(reader_bool(r, "mamba_norm_before_gate", true, &norm_first));
  if (norm && norm_first)
    return reader_refuse(r, "mamba_norm_before_gate is true, expected false with mamba_rms_norm");
  config->delta.no_norm = !norm;
  return parse_beside_factors(r, config);
}

/* --- layers of one block */

/* The kinds of layer: their names in a list, their names in a list of transformers 4, and their letters in a
 * pattern. */
static const struct {
  const char *name, *old_name;
  char letter;
  LayerConfig layer;
} blocks[] = {
    {"linear_attention", "mamba", 'M', {.kind = LAYER_DELTA, .mlp = MLP_NONE}},
    {"full_attention", "attention", '*', {.kind = LAYER_ATTENTION, .mlp = MLP_NONE}},
    {"mlp", "mlp", '-', {.kind = LAYER_MLP_ALONE, .mlp = MLP_DENSE}},
    {"moe", "moe", 'E', {.kind = LAYER_MLP_ALONE}},
};
enum { N_BLOCKS = sizeof blocks / sizeof *blocks };

/* Finds the list of the layers' kinds; if there is none, the pattern. Refuses a config with neither. */
static Status find_blocks(const ConfigReader *r, const char **key, const Json **list, const char **pattern) {
  static const char *const keys[] = {"layers_block_type", "layer_types", NULL};
  *key = reader_first_key(r->object, keys);
  *list = *key ? json_member(r->object, *key) : NULL;
  *pattern = NULL;
  if (*list && !json_is_array(*list)) return reader_expected(r, *key, *list, "a list of names");
  if (*list) return STATUS_OK;
  *key = "hybrid_override_pattern";
  TRY(reader_string(r, *key, pattern));
  return *pattern ? STATUS_OK
                  : reader_refuse(r, "%s is missing, expected a list of names, or %s", keys[0], *key);
}

/* num_hidden_layers is ignored, as in transformers. */
Status config_count_blocks(const ConfigReader *r, int *n_layers) {
  const char *key, *pattern;
  const Json *list;
  TRY(find_blocks(r, &key, &list, &pattern));
  const size_t n = list ? json_count(list) : strlen(pattern);
  if (n < 1 || n > MAX_LAYERS)
    return reader_refuse(r, "%s has %zu layers, expected 1 to %d", key, n, MAX_LAYERS);
  *n_layers = (int)n;
  return STATUS_OK;
}

Status config_parse_blocks(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const char *key, *pattern;
  const Json *list;
  TRY(find_blocks(r, &key, &list, &pattern));
  const Json *item = json_first(list);
  for (int layer = 0; layer < config->n_layers; layer++, item = json_next(item)) {
    int block = 0;
    while (block < N_BLOCKS &&
           !(list ? json_string_is(item, blocks[block].name) || json_string_is(item, blocks[block].old_name)
                  : pattern[layer] == blocks[block].letter))
      block++;
    if (block == N_BLOCKS && list)
      return reader_refuse_item(r, key, layer, item, "linear_attention, full_attention, mlp or moe");
    if (block == N_BLOCKS)
      return reader_refuse(r, "%s has \"%c\" at %d, expected M, *, - or E", key, pattern[layer], layer);
    config->layers[layer] = blocks[block].layer;
    config->layers[layer].rope = ROPE_NONE;
  }
  return parse_sizes(r, arch, config);
}
