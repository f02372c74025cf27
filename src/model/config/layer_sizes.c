/* layer_sizes.c - the sizes in which layers of one model differ (Gemma 3n and 4, Laguna).
 *
 * Source: transformers 5.23, gemma4/configuration_gemma4.py, laguna/modular_laguna.py and
 * integrations/heterogeneity/configuration_utils.py.
 * Always true afterwards: in every layer n_heads is a multiple of n_kv_heads; in Gemma 4 layers of one kind
 *                         (with or without a window) have equally many heads of the same size. */
#include <stdlib.h>
#include <string.h>

#include "model/config/architectures.h"

static Status check_heads(const ConfigReader *r, const char *key, const ModelConfig *config, int n_kv_heads) {
  if (config->n_heads % n_kv_heads == 0) return STATUS_OK;
  return reader_refuse(r, "%s is %d, expected a divisor of num_attention_heads %d", key, n_kv_heads,
                       config->n_heads);
}

static Status read_head_dim(const ConfigReader *r, const char *key, int fallback, int *out) {
  TRY(reader_int(r, key, 2, MAX_HEAD_DIM, fallback, out));
  if (*out % 2 == 0) return STATUS_OK;
  return reader_refuse(r, "%s is %d, expected an even number from 2 to %d", key, *out, MAX_HEAD_DIM);
}

/* Reads global_head_dim and, with k_as_v, num_global_key_value_heads, for all layers without a window. */
static Status parse_global_heads(const ConfigReader *r, const Architecture *arch, bool k_as_v,
                                 ModelConfig *config) {
  const char *kv_key = "num_global_key_value_heads";
  int head_dim, n_kv_heads = config->n_kv_heads;
  TRY(read_head_dim(r, "global_head_dim", arch->global_head_dim, &head_dim));
  if (k_as_v) TRY(reader_int(r, kv_key, 1, MAX_HEADS, n_kv_heads, &n_kv_heads));
  TRY(check_heads(r, kv_key, config, n_kv_heads));
  for (int i = 0; i < config->n_layers; i++) {
    if (config->layers[i].window > 0) continue;
    config->layers[i].head_dim = head_dim;
    config->layers[i].n_kv_heads = n_kv_heads;
  }
  return STATUS_OK;
}

/* One layer of per_layer_config. */
static Status parse_layer(const ConfigReader *r, const ModelConfig *config, LayerConfig *layer) {
  static const char heads[] = "num_key_value_heads", head_dim[] = "head_dim";
  for (const Json *member = json_first(r->object); member; member = json_next(member))
    if (strcmp(json_key(member), heads) != 0 && strcmp(json_key(member), head_dim) != 0)
      return reader_refuse(r, "%.60s is not supported, expected %s or %s", json_key(member), head_dim, heads);
  TRY(read_head_dim(r, head_dim, config->head_dim, &layer->head_dim));
  TRY(reader_int(r, heads, 1, MAX_HEADS, config->n_kv_heads, &layer->n_kv_heads));
  return check_heads(r, heads, config, layer->n_kv_heads);
}

Status config_parse_per_layer(const ConfigReader *r, ModelConfig *config, ParseLayer *parse) {
  for (const Json *item = json_first(r->object); item; item = json_next(item)) {
    char *end;
    const char *key = json_key(item);
    const long index = strtol(key, &end, 10);
    ConfigReader layer;
    if (*key < '0' || *key > '9' || *end || index >= config->n_layers)
      return reader_refuse(r, "%.60s is no number of a layer, expected 0 to %d", key, config->n_layers - 1);
    TRY(reader_object(r, key, &layer));
    TRY(parse(&layer, config, &config->layers[index]));
  }
  return STATUS_OK;
}

/* Layers of one kind (with or without a window) share a rope, so they must have the same heads: transformers
 * refuses other models, too. */
static Status check_kinds(const ConfigReader *r, const ModelConfig *config) {
  LayerConfig first[2] = {{0}};
  for (int i = 0; i < config->n_layers; i++) {
    const LayerConfig layer = config_layer(config, i);
    LayerConfig *kind = &first[layer.window > 0];
    if (!kind->head_dim) *kind = layer;
    if (kind->head_dim != layer.head_dim || kind->n_kv_heads != layer.n_kv_heads)
      return reader_refuse(
          r, "layer %d has %d kv heads of %d numbers, expected %d of %d, as others with the same attention",
          i, layer.n_kv_heads, layer.head_dim, kind->n_kv_heads, kind->head_dim);
  }
  return STATUS_OK;
}

/* The last num_kv_shared_layers layers use the keys and values of the last layer before them with the same
 * attention. With use_double_wide_mlp they also have an MLP of twice the width. */
Status config_parse_shared(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  int n_shared;
  bool wide = false;
  if (config->draft.kind) { /* all layers share; config_fit_draft() finds the target's layers */
    for (int i = 0; i < config->n_layers; i++) config->layers[i].shares_kv = true;
    return STATUS_OK;
  }
  TRY(reader_int(r, "num_kv_shared_layers", 0, config->n_layers - 1, arch->n_kv_shared, &n_shared));
  if (n_shared >= config->n_layers) /* the default, which reader_int() does not check */
    return reader_refuse(r, "num_kv_shared_layers is %d, expected an integer from 0 to %d", n_shared,
                         config->n_layers - 1);
  if (arch->sizes != config_parse_altup) TRY(reader_bool(r, "use_double_wide_mlp", false, &wide));
  for (int i = config->n_layers - n_shared; i < config->n_layers; i++) {
    LayerConfig *layer = &config->layers[i];
    int from = config->n_layers - n_shared - 1;
    while (from >= 0 && (config->layers[from].window > 0) != (layer->window > 0)) from--;
    if (from < 0)
      return reader_refuse(r, "num_kv_shared_layers is %d: layer %d has no layer before them to share with",
                           n_shared, i);
    layer->shares_kv = true;
    layer->kv_layer = from;
    if (wide) layer->intermediate = 2 * config->intermediate;
  }
  return STATUS_OK;
}

Status config_parse_layer_inputs(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const char width[] = "hidden_size_per_layer_input", vocab[] = "vocab_size_per_layer_input";
  const bool may_lack = arch->sizes != config_parse_altup;
  const int usual = may_lack && reader_is_null(r, width) ? 0 : arch->per_layer_width;
  TRY(reader_int(r, width, may_lack ? 0 : 1, MAX_LAYER_INPUT, usual, &config->per_layer_width));
  TRY(reader_int(r, vocab, 1, MAX_VOCAB, arch->per_layer_vocab ? arch->per_layer_vocab : arch->vocab_size,
                 &config->per_layer_vocab));
  if (arch->sizes != config_parse_altup && config->per_layer_width > 0 &&
      config->per_layer_vocab < config->vocab_size)
    return reader_refuse(r, "%s is %d, expected at least vocab_size %d", vocab, config->per_layer_vocab,
                         config->vocab_size);
  return STATUS_OK;
}

Status config_parse_layer_sizes(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  bool experts, k_as_v;
  ConfigReader by_layer;
  TRY(reader_bool(r, "enable_moe_block", false, &experts));
  if (experts && !arch->experts.names)
    return reader_refuse(r, "enable_moe_block is true, which is not supported in %s, expected false",
                         arch->architecture);
  TRY(reader_bool(r, "attention_k_eq_v", false, &k_as_v));
  for (int i = 0; i < config->n_layers; i++) config->layers[i].k_as_v = k_as_v && !config->layers[i].window;
  TRY(reader_object(r, "per_layer_config", &by_layer));
  TRY(by_layer.object ? config_parse_per_layer(&by_layer, config, parse_layer)
                      : parse_global_heads(r, arch, k_as_v, config));
  TRY(check_kinds(r, config));
  TRY(config_parse_shared(r, arch, config));
  if (config->draft.kind) return STATUS_OK;
  return arch->per_layer_width > 0 ? config_parse_layer_inputs(r, arch, config) : STATUS_OK;
}

/* --- Laguna */

/* num_attention_heads_per_layer: the number of query heads of each layer; KV heads are the same in all. */
static Status parse_heads_per_layer(const ConfigReader *r, ModelConfig *config) {
  static const char key[] = "num_attention_heads_per_layer";
  const Json *list = json_member(r->object, key);
  if (!list) return STATUS_OK;
  TRY(reader_list(r, key, list, config->n_layers, "numbers (num_hidden_layers)"));
  int layer = 0;
  for (const Json *item = json_first(list); item; item = json_next(item), layer++) {
    int64_t heads;
    if (!json_int64(item, &heads) || heads < 1 || heads > MAX_HEADS || heads % config->n_kv_heads != 0)
      return reader_refuse_item(r, key, layer, item, "a multiple of num_key_value_heads %d, at most %d",
                                config->n_kv_heads, MAX_HEADS);
    config->layers[layer].n_heads = (int)heads;
  }
  return STATUS_OK;
}

/* gating: "per-head" (also if true or absent) or "per-element". false is refused: transformers reads it as
 * "per-element", other programs as no gate. */
static Status parse_gating(const ConfigReader *r, ModelConfig *config) {
  const Json *gating = json_member(r->object, "gating");
  char found[64];
  bool by_head;
  config->attn_gate_softplus = true;
  if (!gating || (json_bool(gating, &by_head) && by_head) || json_string_is(gating, "per-head"))
    return STATUS_OK;
  config->attn_gate = ATTN_GATE_NUMBERS;
  if (json_string_is(gating, "per-element")) return STATUS_OK;
  return reader_refuse(r, "gating is %s, expected true, per-head or per-element",
                       json_describe(gating, found));
}

Status config_parse_layer_heads(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  double cap;
  TRY(reader_double(r, "moe_router_logit_softcapping", 0, 1e6, 0, &cap));
  if (cap != 0) return reader_refuse(r, "moe_router_logit_softcapping is %g, expected 0", cap);
  TRY(parse_gating(r, config));
  return parse_heads_per_layer(r, config);
}
