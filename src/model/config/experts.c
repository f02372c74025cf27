/* experts.c - mixtures of experts in config.json: how many, how they are chosen, and which layers have them.
 *
 * Source: transformers 5.23, models/NAME/configuration_NAME.py and the routers in
 * modeling_NAME.py, of the families in architectures.c.
 * Always true afterwards: n_experts is 0; or n_chosen is at least 1 and at most the number of experts in the
 *                         chosen groups, and the sizes are within the ranges of config.h. */
#include <stdlib.h>
#include <string.h>

#include "model/config/architectures.h"

/* Reads a number. With `lists` it may be a list with a number for each layer. These must be equal: layers
 * with different numbers of experts are not supported. */
static Status read_number(const ConfigReader *r, const char *key, bool lists, int64_t low, int64_t high,
                          int *out) {
  const Json *list = json_member(r->object, key);
  char found[64];
  if (!lists || !json_is_array(list)) return reader_int(r, key, low, high, 0, out);
  int64_t first = low - 1, other;
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    if (!json_int64(item, &other) || other < low || other > high)
      return reader_refuse(r, "%s holds %s, expected integers from %lld to %lld", key,
                           json_describe(item, found), (long long)low, (long long)high);
    if (first >= low && other != first)
      return reader_refuse(r, "%s has %lld and %lld, expected the same number for each layer", key,
                           (long long)first, (long long)other);
    first = other;
  }
  if (first < low) return reader_refuse(r, "%s is empty, expected a number for each layer", key);
  *out = (int)first;
  return STATUS_OK;
}

/* Reads a size under any of `keys`, as transformers does. Several may be given if they agree. A family's own
 * name for a key ends the search. *used: the first that is given, else keys[0]. */
static Status read_any(const ConfigReader *r, const char *const *keys, bool lists, int64_t low, int64_t high,
                       int fallback, int *out, const char **used) {
  const char *first = NULL;
  for (*used = keys[0]; *keys; keys++) {
    int value;
    const char *key = reader_key(r, *keys);
    if (!json_member(r->object, key)) continue;
    TRY(read_number(r, key, lists, low, high, &value));
    if (first && value != *out)
      return reader_refuse(r, "%s is %d and %s is %d, expected the same", first, *out, key, value);
    if (!first) *used = first = key;
    *out = value;
    if (key != *keys) break;
  }
  if (!first) *out = fallback;
  return STATUS_OK;
}

static Status parse_counts(const ConfigReader *r, const Architecture *arch, ExpertConfig *experts) {
  static const char *const
      counts[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", NULL},
      *const choices[] = {"num_experts_per_tok", "top_k_experts", "moe_k", "moe_topk", "moe_top_k", NULL};
  const char *count, *choice;
  TRY(read_any(r, counts, has(arch, LISTS), 1, MAX_EXPERTS, arch->experts.n_experts, &experts->n_experts,
               &count));
  if (experts->n_experts == 0) return reader_refuse(r, "%s is missing, expected a number of experts", count);
  TRY(read_any(r, choices, has(arch, LISTS), 1, INT32_MAX, arch->experts.n_chosen, &experts->n_chosen,
               &choice));
  if (experts->n_chosen == 0)
    return reader_refuse(r, "%s is missing, expected a number of experts",
                         has(arch, OWN_NORMS) ? "top_k_experts" : choice);
  if (experts->n_chosen > experts->n_experts)
    return reader_refuse(r, "%s is %d, expected at most %s, %d", choice, experts->n_chosen, count,
                         experts->n_experts);
  if (arch->experts.score == SCORE_CHOSEN_NEAR && experts->n_chosen != 2) /* transformers ignores n_chosen */
    return reader_refuse(r, "%s is %d, expected 2, the number that its router chooses", choice,
                         experts->n_chosen);
  if (experts->n_chosen > MAX_CHOSEN)
    return reader_refuse(r, "%s is %d, expected at most %d", choice, experts->n_chosen, MAX_CHOSEN);
  return STATUS_OK;
}

/* Reads the width of experts. With two kinds of experts it may be a list, whose first number is the width of
 * text's experts. */
static Status parse_width(const ConfigReader *r, const Architecture *arch, int *width) {
  static const char key[] = "moe_intermediate_size";
  const Json *list = reader_member(r, key);
  int64_t first;
  if (!arch->experts.names->two_kinds || !json_is_array(list))
    return reader_int(r, key, 1, MAX_INTERMEDIATE, arch->experts.width, width);
  if (!json_int64(json_first(list), &first) || first < 1 || first > MAX_INTERMEDIATE)
    return reader_refuse(r, "%s begins with no width, expected 1 to %d", reader_key(r, key),
                         MAX_INTERMEDIATE);
  *width = (int)first;
  return STATUS_OK;
}

/* Reads the widths of an expert, of the shared expert and of the latent. The shared expert's width has a key
 * of its own, or is a multiple of an expert's width, or with OWN_NORMS is the MLP's width. */
static Status parse_widths(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  ExpertConfig *experts = &config->experts;
  experts->width = config->intermediate;
  if (arch->experts.width > 0) TRY(parse_width(r, arch, &experts->width));
  if (has(arch, OWN_NORMS)) {
    TRY(reader_int(r, "moe_intermediate_size", 0, MAX_INTERMEDIATE, 0, &experts->width));
    if (experts->width == 0) return reader_refuse(r, "moe_intermediate_size is missing, expected a width");
    experts->shared_width = config->intermediate;
  }
  if (arch->experts.shared_width.key)
    TRY(reader_int(r, arch->experts.shared_width.key, arch->experts.shared_width.usual > 0, MAX_INTERMEDIATE,
                   arch->experts.shared_width.usual, &experts->shared_width));
  static const char latent[] = "moe_latent_size";
  if (has(arch, LATENT_EXPERTS)) TRY(reader_int(r, latent, 1, MAX_HIDDEN, 0, &experts->latent));
  if (!arch->experts.shared_count.key) return STATUS_OK;
  int n;
  const char *key = arch->experts.shared_count.key;
  TRY(reader_int(r, key, 0, MAX_EXPERTS, arch->experts.shared_count.usual, &n));
  if ((int64_t)n * experts->width > MAX_INTERMEDIATE)
    return reader_refuse(r, "%s is %d, expected at most %d of %d", reader_key(r, key), n,
                         MAX_INTERMEDIATE / experts->width, experts->width);
  experts->shared_width = n * experts->width;
  return STATUS_OK;
}

static Status parse_groups(const ConfigReader *r, const Architecture *arch, ExpertConfig *experts) {
  const int usual = arch->experts.groups.n ? arch->experts.groups.n : 1,
            usually = arch->experts.groups.n_chosen ? arch->experts.groups.n_chosen : 1;
  TRY(reader_int(r, "n_group", 1, MAX_EXPERTS, usual, &experts->n_groups));
  TRY(reader_int(r, "topk_group", 1, MAX_EXPERTS, usually, &experts->n_chosen_groups));
  const int n = experts->n_groups, chosen = experts->n_chosen_groups;
  if (experts->n_experts % n != 0 || (n > 1 && experts->n_experts / n < 2))
    return reader_refuse(r, "%s is %d, expected a divisor of the %d experts, in groups of two or more",
                         reader_key(r, "n_group"), n, experts->n_experts);
  if (chosen > n || experts->n_chosen > experts->n_experts / n * chosen)
    return reader_refuse(r, "topk_group is %d, expected groups with at least %d experts, of %d groups of %d",
                         chosen, experts->n_chosen, n, experts->n_experts / n);
  return STATUS_OK;
}

/* DeepSeek-V2: with topk_method group_limited_greedy, n_group and topk_group must be given. With greedy, the
 * default, transformers 5.23 chooses from all experts, whatever n_group and topk_group say. */
static Status parse_method(const ConfigReader *r, const Architecture *arch, ExpertConfig *experts) {
  static const char *const keys[] = {"n_group", "topk_group"}, *const methods[] = {
                                                                   "greedy", "group_limited_greedy", NULL};
  int method;
  TRY(reader_choice(r, "topk_method", methods, 0, &method));
  if (method == 0) return STATUS_OK;
  for (int i = 0; i < 2; i++)
    if (!json_member(r->object, keys[i]))
      return reader_refuse(r, "%s is missing, expected a number of groups for topk_method %s", keys[i],
                           methods[method]);
  experts->group_is_best = true;
  return parse_groups(r, arch, experts);
}

/* Command A+: scores are a softmax over the chosen experts, or a sigmoid of each. Sigmoids are divided by
 * their sum unless norm_topk_prob is false. The outputs of the experts and of the shared expert are added or
 * averaged. */
static Status parse_choices(const ConfigReader *r, ExpertConfig *experts) {
  static const char *const scores[] = {"softmax", "sigmoid", NULL}, *const sums[] = {"average", "sum", NULL};
  int sigmoid, sum;
  TRY(reader_choice(r, "expert_selection_fn", scores, 0, &sigmoid));
  if (sigmoid) {
    experts->score = SCORE_CHOSEN_SIGMOID;
    TRY(reader_bool(r, "norm_topk_prob", true, &experts->renormalise));
  }
  TRY(reader_choice(r, "shared_expert_combination_strategy", sums, 0, &sum));
  if (!sum && experts->shared_width > 0) experts->scale = 0.5, experts->shared_output = SHARED_HALVED;
  return STATUS_OK;
}

static Status parse_router(const ConfigReader *r, const Architecture *arch, ExpertConfig *experts) {
  experts->score = arch->experts.score;
  experts->biases = has(arch, EXPERT_BIASES);
  experts->scales_input = has(arch, SCALES_INPUT);
  experts->shared_output = has(arch, SHARED_GATE) ? SHARED_GATED : SHARED_WHOLE;
  experts->norms = has(arch, OWN_NORMS)          ? EXPERTS_OWN_NORMS
                   : has(arch, POST_NORM_OF_SUM) ? EXPERTS_POST_NORM
                                                 : EXPERTS_NO_NORMS;
  experts->choice_bias = arch->experts.names->choice_bias != NULL;
  experts->renormalise = arch->experts.renormalise == RENORMALISE_ALWAYS;
  experts->sum_plus = arch->experts.sum_plus;
  experts->scale = 1;
  experts->n_groups = experts->n_chosen_groups = 1;
  if (arch->experts.renormalise == RENORMALISE_BY_KEY || arch->experts.renormalise == RENORMALISE_UNLESS_KEY)
    TRY(reader_bool(r, "norm_topk_prob", arch->experts.renormalise == RENORMALISE_UNLESS_KEY,
                    &experts->renormalise));
  if (arch->experts.scale.key)
    TRY(reader_double(r, arch->experts.scale.key, 1e-6, 1e6, arch->experts.scale.usual, &experts->scale));
  if (arch->experts.jitter.key) {
    TRY(reader_double(r, arch->experts.jitter.key, 0, 1e6, arch->experts.jitter.usual, &experts->near));
    experts->near *= 2;
  }
  if (arch->experts.bias_key) TRY(reader_bool(r, arch->experts.bias_key, true, &experts->choice_bias));
  if (arch->experts.layers == EXPERTS_IN_INTERVAL || arch->experts.names->two_kinds) {
    double least;
    TRY(reader_double(r, "moe_norm_min", 0, 1e-6, arch->experts.sum_plus, &least));
    experts->sum_plus = least;
  }
  if (has(arch, CHOICES)) TRY(parse_choices(r, experts));
  if (has(arch, METHOD_KEY)) return parse_method(r, arch, experts);
  return has(arch, GROUPED) ? parse_groups(r, arch, experts) : STATUS_OK;
}

/* --- layers without experts */

static void set_dense(ModelConfig *config, int layer, bool dense) {
  config->layers[layer].mlp = dense ? MLP_DENSE : MLP_OF_MODEL;
}

/* mlp_layer_types: "dense" or "sparse" for each layer. */
static Status parse_types(const ConfigReader *r, ModelConfig *config) {
  static const char *const names[] = {"dense", "sparse", NULL};
  int8_t which[MAX_LAYERS];
  TRY(reader_names_of_layers(r, "mlp_layer_types", names, config->n_layers, which));
  for (int layer = 0; layer < config->n_layers; layer++) set_dense(config, layer, which[layer] == 0);
  return STATUS_OK;
}

/* moe_layers_enum: the numbers of the layers with experts, with commas between them. */
static Status parse_text(const ConfigReader *r, ModelConfig *config) {
  static const char key[] = "moe_layers_enum";
  const char *at;
  TRY(reader_string(r, key, &at));
  for (int layer = 0; layer < config->n_layers; layer++) set_dense(config, layer, true);
  while (*at) {
    char *end;
    const long layer = strtol(at, &end, 10);
    if (end == at || layer < 0 || (*end && *end != ','))
      return reader_refuse(r, "%s holds %.60s, expected numbers of layers with commas between them", key, at);
    if (layer < config->n_layers) set_dense(config, (int)layer, false);
    at = *end ? end + 1 : end;
  }
  return STATUS_OK;
}

/* The members by which a rule finds the layers with experts. step: every step-th layer has experts, up to a
 * step of `longest`. list: numbers of layers, with (EXPERTS_IN_LIST) or without experts. */
static const struct {
  const char *step, *list;
  int longest;
} rules[] = {
    /* clang-format off */
    [EXPERTS_BY_STEP]     = {"decoder_sparse_step",       "mlp_only_layers", INT32_MAX},
    [EXPERTS_IN_LIST]     = {"interleave_moe_layer_step", "moe_layers",      INT32_MAX},
    [EXPERTS_IN_INTERVAL] = {"moe_layer_interval",        NULL,              MAX_LAYERS},
    /* clang-format on */
};

/* Layer i, from 0 on, has experts if first <= i <= last, i + 1 is a multiple of the step (with moe_layer_freq
 * i is), and no list says otherwise. */
static Status parse_layers(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const ExpertLayers rule = arch->experts.layers;
  const bool by_type = rule == EXPERTS_BY_TYPE || rule == EXPERTS_IN_TEXT;
  if (rule == EXPERTS_EVERYWHERE) return STATUS_OK;
  if (by_type && json_member(r->object, "mlp_layer_types")) return parse_types(r, config);
  if (rule == EXPERTS_IN_TEXT && json_member(r->object, "moe_layers_enum")) return parse_text(r, config);
  const bool listing = rule == EXPERTS_BY_STEP || rule == EXPERTS_IN_LIST;
  const bool given = listing && json_member(r->object, rules[rule].list);
  int first = arch->experts.dense.usual, last = -1, step = 1;
  bool listed[MAX_LAYERS] = {false};
  if (arch->experts.dense.key) TRY(reader_int(r, arch->experts.dense.key, 0, MAX_LAYERS, first, &first));
  if (rule == EXPERTS_IN_INTERVAL) TRY(reader_int(r, "moe_layer_end_index", -1, MAX_LAYERS, -1, &last));
  if (has(arch, FREQUENCY_KEY)) TRY(reader_int(r, "moe_layer_freq", 1, MAX_LAYERS, 1, &step));
  if (listing || rule == EXPERTS_IN_INTERVAL)
    TRY(reader_int(r, rules[rule].step, 1, rules[rule].longest, 1, &step));
  if (listing) TRY(reader_numbers_of_layers(r, rules[rule].list, 0, config->n_layers, false, listed));
  if (last == -1) last = config->n_layers - 1;
  for (int i = 0; i < config->n_layers; i++) {
    const bool at_step = (has(arch, FREQUENCY_KEY) ? i : i + 1) % step == 0;
    bool dense = (!given && i < first) || i > last || !at_step || listed[i];
    if (given && rule == EXPERTS_IN_LIST) dense = !listed[i];
    set_dense(config, i, dense);
  }
  return STATUS_OK;
}

/* --- what is not implemented */

static Status refuse_members(const ConfigReader *r, const Architecture *arch, const ModelConfig *config) {
  bool windows;
  TRY(reader_bool(r, "use_sliding_window", false, &windows));
  if (arch->experts.layers == EXPERTS_BY_STEP && windows && !config->delta.n_key_heads)
    return reader_refuse(r, "use_sliding_window is true, which is not supported in %s, expected false",
                         config->architecture);
  TRY(reader_refuse_given(r, "clip_qkv"));
  if (!has(arch, CLAMPED)) return STATUS_OK;
  double limit, alpha;
  TRY(reader_double(r, "swiglu_limit", 0, 1e6, 7, &limit));
  TRY(reader_double(r, "swiglu_alpha", 0, 1e6, 1.702, &alpha));
  if (limit != 7 || alpha != 1.702 || config->activation != ACTIVATION_SILU)
    return reader_refuse(
        r, "hidden_act %s with swiglu_limit %g and swiglu_alpha %g is not supported, expected silu, 7, 1.702",
        activation_name(config->activation), limit, alpha);
  return STATUS_OK;
}

Status config_parse_experts(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  bool enabled = true;
  if (!arch->experts.names) return STATUS_OK;
  if (arch->experts.enable_key) TRY(reader_bool(r, arch->experts.enable_key, false, &enabled));
  if (has(arch, MAY_LACK_EXPERTS)) {
    int n;
    TRY(reader_int(r, "num_local_experts", 0, MAX_EXPERTS, arch->experts.n_experts, &n));
    enabled = n > 0;
  }
  if (!enabled) return STATUS_OK;
  TRY(refuse_members(r, arch, config));
  TRY(parse_counts(r, arch, &config->experts));
  TRY(parse_widths(r, arch, config));
  TRY(parse_router(r, arch, &config->experts));
  TRY(parse_layers(r, arch, config));
  config->expert_names = arch->experts.names;
  if (has(arch, CLAMPED)) config->activation = ACTIVATION_CLAMPED;
  int n_layers = 0;
  for (int layer = 0; layer < config->n_layers; layer++)
    n_layers += config_layer(config, layer).n_experts > 0;
  if (n_layers == 0) config->experts = (ExpertConfig){0};
  if ((int64_t)n_layers * config->experts.n_experts <= MAX_ALL_EXPERTS) return STATUS_OK;
  return reader_refuse(r, "%d layers of %d experts are too many, expected at most %d experts in all",
                       n_layers, config->experts.n_experts, MAX_ALL_EXPERTS);
}
