/* value_heads.c - heads whose values are shorter than their keys, in config.json (MiMo), and what differs
 * between layers with a window and without.
 *
 * Called by: positions.c.   Calls: reader.c. Source: transformers 5.23, models/mimo_v2_flash. It passes over
 * members of the published config.json that say the same as its own: here they must. */
#include "model/config/architectures.h"

/* A number that must be `expected` where it is there. */
static Status expect_number(const ConfigReader *r, const char *key, int expected) {
  int found;
  TRY(reader_int(r, key, 0, INT32_MAX, expected, &found));
  return found == expected
             ? STATUS_OK
             : reader_refuse(r, "%s is %d, expected %d, which transformers takes", key, found, expected);
}

static Status expect_bool(const ConfigReader *r, const char *key, bool expected) {
  bool found;
  TRY(reader_bool(r, key, expected, &found));
  return found == expected ? STATUS_OK
                           : reader_refuse(r, "%s is %s, expected %s", key, found ? "true" : "false",
                                           expected ? "true" : "false");
}

/* hybrid_layer_pattern: 1 for a layer with a window, 0 for one without; as layer_types has it. */
static Status check_pattern(const ConfigReader *r, const ModelConfig *config) {
  static const char key[] = "hybrid_layer_pattern";
  const Json *list = json_member(r->object, key);
  char found[64];
  if (!list || reader_is_null(r, key)) return STATUS_OK;
  if (!json_is_array(list) || json_count(list) != (size_t)config->n_layers)
    return reader_refuse(r, "%s is %s, expected a list of %d numbers (num_hidden_layers)", key,
                         json_is_array(list) ? "of another length" : json_describe(list, found),
                         config->n_layers);
  int layer = 0;
  for (const Json *item = json_first(list); item; item = json_next(item), layer++) {
    const int expected = config->layers[layer].window > 0;
    int64_t windowed;
    if (!json_int64(item, &windowed) || windowed != expected)
      return reader_refuse(r, "%s[%d] is %s, expected %d: %s", key, layer, json_describe(item, found),
                           expected, "layer_types, or its default, says so");
  }
  return STATUS_OK;
}

/* Layers with a window have sinks and twice as many KV heads; sliding_window_size does not count the position
 * itself. */
static Status parse_windowed(const ConfigReader *r, ModelConfig *config) {
  int before;
  if (config->n_heads % (2 * config->n_kv_heads) != 0)
    return reader_refuse(r, "num_attention_heads is %d, expected a multiple of twice its %d kv heads",
                         config->n_heads, config->n_kv_heads);
  TRY(reader_int(r, "sliding_window_size", 1, MAX_POSITION - 1, 0, &before));
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *own = &config->layers[i];
    own->no_sinks = !own->window;
    if (!own->window) continue;
    own->n_kv_heads = 2 * config->n_kv_heads;
    if (before > 0) own->window = before + 1;
  }
  return STATUS_OK;
}

Status config_parse_value_heads(const ConfigReader *r, ModelConfig *config) {
  TRY(reader_int(r, "v_head_dim", 1, config->head_dim, config->head_dim < 128 ? config->head_dim : 128,
                 &config->value_dim));
  if (config->value_dim % 2 != 0)
    return reader_refuse(r, "v_head_dim is %d, expected an even number", config->value_dim);
  const bool unscaled = reader_is_null(r, "attention_value_scale");
  TRY(reader_double(r, "attention_value_scale", 1e-3, 1e3, unscaled ? 1 : 0.707, &config->value_scale));
  TRY(expect_number(r, "swa_num_attention_heads", config->n_heads));
  TRY(expect_number(r, "swa_num_key_value_heads", 2 * config->n_kv_heads));
  TRY(expect_number(r, "swa_head_dim", config->head_dim));
  TRY(expect_number(r, "swa_v_head_dim", config->value_dim));
  TRY(expect_bool(r, "add_full_attention_sink_bias", false));
  TRY(expect_bool(r, "add_swa_attention_sink_bias", true));
  TRY(check_pattern(r, config));
  return parse_windowed(r, config);
}
