/* layer_kinds.c - what each layer is by config.json: its token mixer, the positions that it attends to, and
 * whether it has a rope.
 *
 * Called by: positions.c, also through rows of architectures.c; delta.c, mamba.c, short_conv.c. Source:
 * transformers 5.23, the config classes named in architectures.c. */
#include "model/config/architectures.h"

#include <string.h>

/* --- token mixers */

/* The letter of a layer where layer_types is absent. */
static char usual_letter(const LayerKinds *kinds, int layer) {
  if (kinds->period > 0) return (layer + 1) % kinds->period == 0 ? 'f' : kinds->letters[0];
  const int n = (int)strlen(kinds->usual), once = kinds->n_once;
  return kinds->usual[layer < n ? layer : once + (layer - once) % (n - once)];
}

Status config_parse_kinds(const ConfigReader *r, const LayerKinds *kinds, int size, ModelConfig *config) {
  int8_t which[MAX_LAYERS];
  TRY(reader_names_of_layers(r, "layer_types", kinds->names, config->n_layers, which));
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *own = &config->layers[i];
    const char letter = which[i] < 0 ? usual_letter(kinds, i) : kinds->letters[which[i]];
    own->kind = letter == 'd' ? LAYER_DELTA : letter == 'c' ? LAYER_CONV : LAYER_ATTENTION;
    own->window = letter == 'w' ? size : 0;
    own->chunk = letter == 'k' ? size : 0;
  }
  return STATUS_OK;
}

Status config_parse_attention_list(const ConfigReader *r, const char *key, bool bounded, LayerKind other,
                                   ModelConfig *config) {
  bool listed[MAX_LAYERS];
  TRY(reader_numbers_of_layers(r, key, 0, config->n_layers, bounded, listed));
  for (int i = 0; i < config->n_layers; i++) config->layers[i].kind = listed[i] ? LAYER_ATTENTION : other;
  return STATUS_OK;
}

/* --- layers without a rope, and sliding windows */

/* NoPE layers: those with 0 in no_rope_layers; without it, every no_rope_layer_interval-th. With
 * `may_be_empty` an empty list counts as absent. */
static Status parse_nope_layers(const ConfigReader *r, bool may_be_empty, ModelConfig *config) {
  static const char key[] = "no_rope_layers";
  const Json *list = json_member(r->object, key), *item = json_first(list);
  int interval;
  if (may_be_empty && json_is_array(list) && !item) list = NULL;
  TRY(reader_int(r, "no_rope_layer_interval", 1, INT32_MAX, 4, &interval));
  if (list && (!json_is_array(list) || json_count(list) < (size_t)config->n_layers))
    return reader_list(r, key, list, config->n_layers, "numbers (num_hidden_layers)");
  for (int layer = 0; layer < config->n_layers; layer++) {
    int64_t rotated = (layer + 1) % interval != 0;
    if (list && (!json_int64(item, &rotated) || rotated < 0 || rotated > 1))
      return reader_refuse_item(r, key, layer, item, "0 or 1");
    item = json_next(item);
    config->layers[layer].rope = rotated ? ROPE_GLOBAL : ROPE_NONE;
  }
  return STATUS_OK;
}

/* True if, without layer_types, windows differ by layer in a fixed order. */
static bool is_periodic(WindowRule rule) {
  return rule >= WINDOW_PERIODIC && rule <= WINDOW_SOME_FULL_NOPE;
}

static bool is_full_layer(const Architecture *arch, const ModelConfig *config, int layer, int period) {
  if (arch->windows.rule == WINDOW_NOPE) return config->layers[layer].rope != ROPE_NONE;
  if (arch->windows.rule == WINDOW_AFTER_FULL) return layer % period == 0;
  if (arch->windows.rule == WINDOW_FIRST_FULL) return layer == 0 || (layer + 1) % period == 0;
  if (arch->windows.rule == WINDOW_BEFORE_LAST) return (config->n_layers - 1 - layer) % period == 0;
  if (arch->windows.rule == WINDOW_SOME_FULL_NOPE)
    return layer == 0 || layer % period == 1 || layer == config->n_layers - 1;
  return is_periodic(arch->windows.rule) && (layer + 1) % period == 0;
}

/* Sets the windows that the architecture has without layer_types. */
static Status default_windows(const ConfigReader *r, const Architecture *arch, int window,
                              ModelConfig *config) {
  int first = 0, period = arch->windows.n;
  if (arch->windows.rule == WINDOW_BY_LAYER || arch->windows.rule == WINDOW_FROM_LAYER)
    TRY(reader_int(r, "max_window_layers", 0, INT32_MAX, arch->windows.n, &first));
  if (arch->windows.period_key && !json_member(r->object, "layer_types"))
    TRY(reader_int(r, arch->windows.period_key, 1, INT32_MAX, period, &period));
  for (int layer = first; layer < config->n_layers; layer++) {
    const bool full = is_full_layer(arch, config, layer, period);
    config->layers[layer].window = full ? 0 : window;
  }
  return STATUS_OK;
}

/* Applies layer_types to architectures whose layers may differ (`mixed`); for others it must not contradict
 * their rule. */
static Status apply_layer_types(const ConfigReader *r, bool mixed, int window, ModelConfig *config) {
  static const char *const names[] = {"full_attention", "sliding_attention", NULL};
  int8_t which[MAX_LAYERS];
  TRY(reader_names_of_layers(r, "layer_types", names, config->n_layers, which));
  for (int layer = 0; layer < config->n_layers && which[layer] >= 0; layer++) {
    const bool sliding = which[layer];
    if (mixed ? sliding && !window : sliding != (config->layers[layer].window > 0))
      return reader_refuse(
          r, "layer_types[%d] is %s, expected %s: %s %s", layer, names[sliding], names[!sliding],
          mixed ? "there is no sliding window in this" : "all layers are alike in", config->architecture);
    config->layers[layer].window = sliding ? window : 0;
  }
  return STATUS_OK;
}

/* Gemma 4 names the tokens that attend in both directions: "all", or "vision", which text does not have. */
static Status sees_both_ways(const ConfigReader *r, const Architecture *arch, bool *both_ways) {
  const char *key = "use_bidirectional_attention", *what;
  if (arch->sizes != config_parse_layer_sizes) return reader_bool(r, key, false, both_ways);
  TRY(reader_string(r, key, &what));
  *both_ways = what && strcmp(what, "vision") != 0;
  return STATUS_OK;
}

Status config_parse_windows(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  WindowRule rule = arch->windows.rule;
  if (rule == WINDOW_NOPE) TRY(parse_nope_layers(r, false, config));
  bool use = rule == WINDOW_ALL || rule == WINDOW_FROM_LAYER || is_periodic(rule),
       mixed = rule >= WINDOW_BY_LAYER, both_ways = false;
  if (mixed && !use) TRY(reader_bool(r, "use_sliding_window", false, &use));
  int window = 0;
  if (use && !reader_is_null(r, "sliding_window") &&
      (arch->windows.window || json_member(r->object, "sliding_window")))
    TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, arch->windows.window, &window));
  if (arch->before_key) {
    int before;
    TRY(reader_int(r, arch->before_key, 1, MAX_POSITION - 1, 0, &before));
    if (before > 0) window = before + 1;
  }
  if (rule == WINDOW_PERIODIC || has(arch, MAY_BE_ENCODER)) {
    TRY(sees_both_ways(r, arch, &both_ways));
    if (both_ways)
      return reader_refuse(r, "use_bidirectional_attention is not supported: this is an encoder");
  }
  if (is_periodic(rule) && rule != WINDOW_OR_NOPE && arch->windows.n > 1 && !window)
    return reader_refuse(r, "sliding_window is null, expected a number of positions");
  TRY(default_windows(r, arch, window, config));
  TRY(apply_layer_types(r, mixed, window, config));
  const bool nope = rule >= WINDOW_OR_NOPE && rule <= WINDOW_SOME_FULL_NOPE && window;
  for (int layer = 0; nope && layer < config->n_layers; layer++)
    if (!config->layers[layer].window) config->layers[layer].rope = ROPE_NONE;
  if (has(arch, LAST_FULL)) config->layers[config->n_layers - 1].window = 0;
  return STATUS_OK;
}

/* Reads layer_rope_theta: for each layer 0, or a theta from which frequencies can be made. If the member is
 * absent, thetas[n_layers] stays as it is. */
static Status parse_thetas(const ConfigReader *r, int n_layers, double *thetas) {
  static const char key[] = "layer_rope_theta";
  const Json *list = json_member(r->object, key);
  int layer = 0;
  if (list) TRY(reader_list(r, key, list, n_layers, "numbers (num_hidden_layers)"));
  for (const Json *item = json_first(list); item; item = json_next(item), layer++)
    if (!json_double(item, &thetas[layer]) ||
        (thetas[layer] != 0 && !(thetas[layer] > 1 && thetas[layer] <= 1e18)))
      return reader_refuse_item(r, key, layer, item, "0 or a number above 1, up to 1e18");
  return STATUS_OK;
}

/* Gives each layer a rope or none. The model has at most two ropes, which differ in theta alone. Without
 * layer_rope_theta nothing changes. */
Status config_parse_layer_thetas(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  double of_layers[MAX_LAYERS], thetas[2] = {0, 0};
  if (!json_member(r->object, "layer_rope_theta")) return STATUS_OK;
  TRY(parse_thetas(r, config->n_layers, of_layers));
  for (int layer = 0; layer < config->n_layers; layer++) {
    const double theta = of_layers[layer];
    int which = ROPE_GLOBAL;
    while (theta != 0 && which < ROPE_NONE && thetas[which] != 0 && thetas[which] != theta) which++;
    if (which == ROPE_NONE)
      return reader_refuse(r, "layer_rope_theta has a third number other than 0, %g: two are supported",
                           theta);
    if (theta != 0) thetas[which] = theta;
    config->layers[layer].rope = theta != 0 ? (LayerRope)which : ROPE_NONE;
  }
  if (thetas[ROPE_GLOBAL] != 0) config->rope.theta = thetas[ROPE_GLOBAL];
  if (thetas[ROPE_LOCAL] == 0) return STATUS_OK;
  if (config->rope.kind == ROPE_LONGROPE)
    return reader_refuse(r, "longrope is not supported where ropes differ by layer");
  config->local_rope = config->rope;
  config->local_rope.theta = thetas[ROPE_LOCAL];
  return STATUS_OK;
}

/* Reads layer_rope_theta: layers with 0 have no rope; other thetas are ignored, as in transformers. Without
 * that list, a layer has no rope if the architecture's own rule gives it no window, whatever layer_types
 * says. */
Status config_parse_layer_ropes(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  double thetas[MAX_LAYERS];
  for (int i = 0; i < config->n_layers; i++) thetas[i] = !is_full_layer(arch, config, i, arch->windows.n);
  TRY(parse_thetas(r, config->n_layers, thetas));
  for (int i = 0; i < config->n_layers; i++)
    config->layers[i].rope = thetas[i] != 0 ? ROPE_GLOBAL : ROPE_NONE;
  return STATUS_OK;
}

/* --- chunks (Llama 4): without layer_types layers with a rope have chunks */

/* attn_temperature_tuning: true or false; the first published configs have a number, 0 for false. */
static Status parse_tuning(const ConfigReader *r, bool *tuned) {
  static const char key[] = "attn_temperature_tuning";
  int64_t number;
  if (!json_int64(json_member(r->object, key), &number)) return reader_bool(r, key, true, tuned);
  *tuned = number != 0;
  return STATUS_OK;
}

/* q and k are normalised, if at all, only in layers with a rope. */
Status config_parse_chunks(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const LayerKinds kinds = {{"chunked_attention", "full_attention"}, "kf", "f", 0, 0};
  bool normed, tuned;
  int chunk;
  TRY(parse_nope_layers(r, true, config));
  if (reader_is_null(r, "attention_chunk_size"))
    return reader_refuse(r, "attention_chunk_size is null, expected a number of positions");
  TRY(reader_int(r, "attention_chunk_size", 1, MAX_POSITION, 8192, &chunk));
  TRY(config_parse_kinds(r, &kinds, chunk, config));
  TRY(reader_bool(r, "use_qk_norm", true, &normed));
  if (!normed) {
    config->qk_norm = QK_NORM_NONE;
    config->qk_norm_after_rope = false;
  }
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *own = &config->layers[i];
    own->no_qk_norm = own->rope == ROPE_NONE;
    if (!reader_member(r, "layer_types") && own->rope != ROPE_NONE) own->chunk = chunk;
  }
  TRY(parse_tuning(r, &tuned));
  config->query_scale_nope = true;
  TRY(reader_double(r, "attn_scale", 0, 1e3, 0.1, &config->query_scale_beta));
  if (!tuned) config->query_scale_beta = 0;
  return reader_double(r, "floor_scale", 1, MAX_POSITION, 8192, &config->query_scale_step);
}

/* --- first layers without experts, which have a rule of their own for windows (Command A+) */

/* Layers with a window have a rope. A layer without a window has a rope only if it has no experts and
 * prefix_dense_sliding_window_pattern is 1. */
Status config_parse_dense_prefix(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  int n_prefix, prefix_period, period, window;
  TRY(reader_int(r, "first_k_dense_replace", 0, MAX_LAYERS, 0, &n_prefix));
  TRY(reader_int(r, "prefix_dense_sliding_window_pattern", 1, INT32_MAX, 1, &prefix_period));
  TRY(reader_int(r, arch->windows.period_key, 1, INT32_MAX, arch->windows.n, &period));
  TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, arch->windows.window, &window));
  const bool listed = json_member(r->object, "layer_types");
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *layer = &config->layers[i];
    const bool full = i < n_prefix ? (i + 1) % prefix_period == 0 : (i - n_prefix + 1) % period == 0;
    if (!listed) layer->window = full ? 0 : window;
    const bool turned = layer->window > 0 || (layer->mlp == MLP_DENSE && prefix_period == 1);
    layer->rope = turned ? ROPE_GLOBAL : ROPE_NONE;
  }
  return STATUS_OK;
}
