/* value_heads.c - heads whose values are shorter than their keys, in config.json (MiMo), and what differs
 * between layers with a window and without.
 *
 * Called by: config.c or positions.c through a row of architectures.c. Source:
 * transformers 5.23, models/mimo_v2_flash, which does not read some members of the published config.json.
 * These members must agree with what it computes. */
#include "model/config/architectures.h"

#include <string.h>

/* Refuses a number other than `expected`; the member may be absent. */
static Status expect_number(const ConfigReader *r, const char *key, int expected) {
  int found;
  TRY(reader_int(r, key, 0, INT32_MAX, expected, &found));
  if (found == expected) return STATUS_OK;
  return reader_refuse(r, "%s is %d, expected %d, which transformers takes", key, found, expected);
}

static Status expect_double(const ConfigReader *r, const char *key, double high, double expected) {
  double found;
  TRY(reader_double(r, key, 0, high, expected, &found));
  if (found == expected) return STATUS_OK;
  return reader_refuse(r, "%s is %.9g, expected %.9g, which transformers takes", key, found, expected);
}

static Status expect_name(const ConfigReader *r, const char *key, const char *expected) {
  const char *found;
  TRY(reader_string(r, key, &found));
  if (!found || strcmp(found, expected) == 0) return STATUS_OK;
  return reader_refuse(r, "%s is %s, expected %s, which transformers takes", key, found, expected);
}

static int has_window(const LayerConfig *own) {
  return own->window > 0;
}
static int has_experts(const LayerConfig *own) {
  return own->mlp != MLP_DENSE;
}

/* Refuses the list `key`, a 0 or 1 for each layer, if it contradicts the layers. names, for the
 * message: the key from which the layers were set. If the config lacks that key, its default set them. */
static Status expect_list(const ConfigReader *r, const char *key, int (*says)(const LayerConfig *),
                          const char *names, const ModelConfig *config) {
  const Json *list = json_member(r->object, key);
  if (!list) return STATUS_OK;
  TRY(reader_list(r, key, list, config->n_layers, "numbers (num_hidden_layers)"));
  int layer = 0;
  for (const Json *item = json_first(list); item; item = json_next(item), layer++) {
    const int expected = says(&config->layers[layer]);
    int64_t number;
    if (!json_int64(item, &number) || number != expected)
      return reader_refuse_item(r, key, layer, item, "%d: %s, or its default, says so", expected, names);
  }
  return STATUS_OK;
}

/* Layers with a window have sinks and twice as many KV heads. */
static Status fill_windowed(const ConfigReader *r, ModelConfig *config) {
  if (config->n_heads % (2 * config->n_kv_heads) != 0)
    return reader_refuse(r, "num_attention_heads is %d, expected a multiple of twice its %d kv heads",
                         config->n_heads, config->n_kv_heads);
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *own = &config->layers[i];
    own->no_sinks = !own->window;
    if (own->window) own->n_kv_heads = 2 * config->n_kv_heads;
  }
  return STATUS_OK;
}

Status config_parse_value_heads(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  TRY(reader_int(r, "v_head_dim", 1, config->head_dim, config->head_dim < 128 ? config->head_dim : 128,
                 &config->value_dim));
  if (config->value_dim % 2 != 0)
    return reader_refuse(r, "v_head_dim is %d, expected an even number", config->value_dim);
  const bool unscaled = reader_is_null(r, "attention_value_scale");
  TRY(reader_double(r, "attention_value_scale", 1e-3, 1e3, unscaled ? 1 : 0.707, &config->value_scale));
  return fill_windowed(r, config);
}

/* partial_rotary_factor beside the objects with ropes: it must turn as many numbers as the rope of layers
 * without a window. */
static Status check_part(const ConfigReader *r, const ModelConfig *config) {
  static const char key[] = "partial_rotary_factor";
  double part;
  if (!json_member(r->object, key)) return STATUS_OK;
  TRY(reader_double(r, key, 0, 1, 1, &part));
  if ((int)(config->head_dim * part) == config->rope.rotary_dim) return STATUS_OK;
  return reader_refuse(r, "%s %g turns %d numbers of a head, expected %d, as transformers does", key, part,
                       (int)(config->head_dim * part), config->rope.rotary_dim);
}

Status config_check_value_heads(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  TRY(expect_number(r, "swa_num_attention_heads", config->n_heads));
  TRY(expect_number(r, "swa_num_key_value_heads", 2 * config->n_kv_heads));
  TRY(expect_number(r, "swa_head_dim", config->head_dim));
  TRY(expect_number(r, "swa_v_head_dim", config->value_dim));
  TRY(expect_number(r, "n_shared_experts", 0));
  TRY(expect_double(r, "rope_theta", 1e18, config->rope.theta));
  TRY(expect_double(r, "swa_rope_theta", 1e18, config->local_rope.theta));
  TRY(expect_double(r, "layernorm_epsilon", 1, config->norm_eps));
  TRY(expect_name(r, "scoring_func", "sigmoid"));
  TRY(expect_name(r, "topk_method", "noaux_tc"));
  TRY(check_part(r, config));
  TRY(expect_list(r, "hybrid_layer_pattern", has_window, "layer_types", config));
  return expect_list(r, "moe_layer_freq", has_experts, "mlp_layer_types", config);
}
