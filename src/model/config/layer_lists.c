/* layer_lists.c - what config.json lists by layer (Step 3.5): ropes, limits of the gated product, heads.
 *
 * Called by: positions.c through a row of architectures.c. Source: transformers 5.24,
 * step3p7/configuration_step3p7.py, and the published config.json. Members of the latter that transformers
 * does not read must say what it computes (check_members()).
 * Always true afterwards: layers with the same attention (with or without a window) have the same rope. */
#include "model/config/architectures.h"

/* Fills numbers[n_layers] from the member `key`: a list with a number for each layer, or one number for all.
 * A null in the list stands for `usual`; it is refused if `usual` is below `low`. PRECOND the member is
 * there */
static Status number_of_each_layer(const ConfigReader *r, const char *key, double low, double high,
                                   double usual, int n_layers, double *numbers) {
  const Json *list = json_member(r->object, key), *item = json_first(list);
  if (!json_is_array(list)) {
    TRY(reader_double(r, key, low, high, usual, &numbers[0]));
    for (int layer = 1; layer < n_layers; layer++) numbers[layer] = numbers[0];
    return STATUS_OK;
  }
  TRY(reader_list_of_layers(r, key, list, n_layers, "numbers (num_hidden_layers)"));
  for (int layer = 0; layer < n_layers; layer++, item = json_next(item)) {
    numbers[layer] = usual;
    if (!(json_is_null(item) && usual >= low) &&
        (!json_double(item, &numbers[layer]) || numbers[layer] < low || numbers[layer] > high))
      return reader_refuse_item(r, key, layer, item, "a number from %g to %g", low, high);
  }
  return STATUS_OK;
}

/* Reads `key`. All layers without a window must have the same value, which becomes *full. The same holds for
 * layers with a window and *sliding. A value stays as it is if `key` is absent or there is no such layer. */
static Status numbers_of_kinds(const ConfigReader *r, const char *key, double low, double high,
                               const ModelConfig *config, double *full, double *sliding) {
  double numbers[MAX_LAYERS];
  bool seen[2] = {false, false};
  if (!json_member(r->object, key)) return STATUS_OK;
  TRY(number_of_each_layer(r, key, low, high, low - 1, config->n_layers, numbers));
  for (int layer = 0; layer < config->n_layers; layer++) {
    const bool windowed = config->layers[layer].window > 0;
    double *to = windowed ? sliding : full;
    if (seen[windowed] && *to != numbers[layer])
      return reader_refuse(r, "%s[%d] is %.9g, expected %.9g, as in others with the same attention", key,
                           layer, numbers[layer], *to);
    *to = numbers[layer];
    seen[windowed] = true;
  }
  return STATUS_OK;
}

static Status turn_part(const ConfigReader *r, double part, const ModelConfig *config, RopeConfig *rope) {
  rope->rotary_dim = (int)(config->head_dim * part);
  if (rope->rotary_dim >= 2 && rope->rotary_dim % 2 == 0) return STATUS_OK;
  return reader_refuse(r,
                       "partial_rotary_factors has %.9g, which turns %d of head_dim %d numbers, expected an "
                       "even number from 2",
                       part, rope->rotary_dim, config->head_dim);
}

/* Reads rope_theta and partial_rotary_factors unless rope_parameters has members. */
static Status parse_ropes(const ConfigReader *r, ModelConfig *config) {
  RopeConfig *full = &config->rope, *sliding = &config->local_rope;
  double part = (double)full->rotary_dim / config->head_dim,
         sliding_part = (double)sliding->rotary_dim / config->head_dim;
  if (json_count(json_member(r->object, "rope_parameters")) > 0) return STATUS_OK;
  TRY(numbers_of_kinds(r, "rope_theta", 1, 1e18, config, &full->theta, &sliding->theta));
  TRY(numbers_of_kinds(r, "partial_rotary_factors", 0, 1, config, &part, &sliding_part));
  TRY(turn_part(r, part, config, full));
  return turn_part(r, sliding_part, config, sliding);
}

static Status set_heads(const ConfigReader *r, const char *key, int n, const ModelConfig *config,
                        LayerConfig *layer) {
  if (n % config->n_kv_heads != 0)
    return reader_refuse(r, "%s is %d, expected a multiple of the %d kv heads", key, n, config->n_kv_heads);
  layer->n_heads = n;
  return STATUS_OK;
}

static const char heads[] = "num_attention_heads";

/* One layer of per_layer_config. */
static Status parse_own_heads(const ConfigReader *r, const ModelConfig *config, LayerConfig *layer) {
  int n;
  TRY(reader_int(r, heads, 1, MAX_HEADS, config->n_heads, &n));
  if (json_count(r->object) > (json_member(r->object, heads) != NULL))
    return reader_refuse(r, "only %s is supported", heads);
  return set_heads(r, heads, n, config, layer);
}

/* Reads the number of query heads of layers with a window: num_sliding_attention_heads, else that of
 * attention_other_setting. If per_layer_config is given, it replaces both, for layers of either kind. */
static Status parse_heads(const ConfigReader *r, ModelConfig *config) {
  ConfigReader other, by_layer;
  int n = config->n_heads, n_kv, head_dim;
  TRY(reader_object(r, "attention_other_setting", &other));
  TRY(reader_int(&other, heads, 1, MAX_HEADS, n, &n));
  TRY(reader_int(&other, "num_attention_groups", 1, MAX_HEADS, config->n_kv_heads, &n_kv));
  TRY(reader_int(&other, "head_dim", 1, MAX_HEAD_DIM, config->head_dim, &head_dim));
  if (n_kv != config->n_kv_heads || head_dim != config->head_dim)
    return reader_refuse(&other,
                         "%d kv heads of %d numbers are not supported, expected %d of %d as elsewhere", n_kv,
                         head_dim, config->n_kv_heads, config->head_dim);
  TRY(reader_int(r, "num_sliding_attention_heads", 1, MAX_HEADS, n, &n));
  TRY(reader_object(r, "per_layer_config", &by_layer));
  if (by_layer.object) return config_parse_per_layer(&by_layer, config, parse_own_heads);
  for (int layer = 0; layer < config->n_layers; layer++)
    if (config->layers[layer].window > 0)
      TRY(set_heads(r, "num_attention_heads of layers with a window", n, config, &config->layers[layer]));
  return STATUS_OK;
}

/* swiglu_limits has the limits of the experts, swiglu_limits_shared the limits of the MLP or shared expert. 0
 * or null: no limit. */
static Status parse_limits(const ConfigReader *r, ModelConfig *config) {
  static const char *const keys[] = {"swiglu_limits", "swiglu_limits_shared"};
  double limits[MAX_LAYERS];
  for (int i = 0; i < 2; i++) {
    if (!json_member(r->object, keys[i])) continue;
    TRY(number_of_each_layer(r, keys[i], 0, MAX_FACTOR, 0, config->n_layers, limits));
    for (int layer = 0; layer < config->n_layers; layer++)
      *(i == 0 ? &config->layers[layer].expert_limit : &config->layers[layer].mlp_limit) = limits[layer];
  }
  return STATUS_OK;
}

/* Refuses members of the published config that contradict what transformers computes. */
static Status check_members(const ConfigReader *r) {
  static const char full[] = "full_attention";
  const Json *types = json_member(r->object, "yarn_only_types");
  if (types && (json_count(types) != 1 || !json_string_is(json_first(types), full)))
    return reader_refuse(r, "yarn_only_types is not supported, expected %s alone", full);
  if (json_count(json_member(r->object, "use_rope_layers")) > 0)
    return reader_refuse(r, "use_rope_layers is not supported, expected an empty list");
  return STATUS_OK;
}

Status config_parse_layer_lists(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  TRY(check_members(r));
  TRY(parse_ropes(r, config));
  TRY(parse_heads(r, config));
  return parse_limits(r, config);
}
