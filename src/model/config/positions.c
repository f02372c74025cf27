/* positions.c - rotary positions in config.json.
 *
 * Source: transformers 5.23, modeling_rope_utils.py and the config classes named in architectures.c. */
#include "model/config/architectures.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

/* --- one rope */

const char *rope_kind_name(RopeKind kind) {
  static const char *const names[] = {
      [ROPE_PLAIN] = "default", [ROPE_LINEAR] = "linear",     [ROPE_LLAMA3] = "llama3",
      [ROPE_YARN] = "yarn",     [ROPE_LONGROPE] = "longrope", [ROPE_PROPORTIONAL] = "proportional"};
  return names[kind];
}

/* rope_type, in older configs type; absent: "default". */
static Status read_kind(const ConfigReader *r, const char **name) {
  const char *old_name;
  TRY(reader_string(r, "rope_type", name));
  TRY(reader_string(r, "type", &old_name));
  if (!*name) *name = old_name ? old_name : rope_kind_name(ROPE_PLAIN);
  return STATUS_OK;
}

static Status rope_kind(const ConfigReader *r, const Architecture *arch, RopeKind *kind) {
  const char *name;
  TRY(read_kind(r, &name));
  const bool longs = arch->ropes == ROPES_LONG || arch->ropes == ROPES_LONG_MSCALES;
  if (arch->ropes == ROPES_LONG && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0))
    name = rope_kind_name(ROPE_LONGROPE);
  if (arch->ropes == ROPES_MROPE && strcmp(name, "mrope") == 0) name = rope_kind_name(ROPE_PLAIN);
  if (arch->ropes == ROPES_OTHER_YARN && strcmp(name, "deepseek_yarn") == 0) name = rope_kind_name(ROPE_YARN);
  if (arch->ropes == ROPES_XDROPE && strcmp(name, "xdrope") == 0) name = rope_kind_name(ROPE_PLAIN);
  /* Without alpha (parse_alpha()) "dynamic" changes only texts longer than max_position_embeddings, which the
   * session refuses. */
  if (!longs && strcmp(name, "dynamic") == 0) name = rope_kind_name(ROPE_PLAIN);
  const bool proportional = arch->ropes == ROPES_PROPORTIONAL;
  for (int i = ROPE_PLAIN; i <= (proportional ? ROPE_PROPORTIONAL : ROPE_LONGROPE); i++) {
    *kind = (RopeKind)i;
    if (proportional && *kind != ROPE_PLAIN && *kind != ROPE_PROPORTIONAL) continue;
    if (longs && *kind != ROPE_PLAIN && *kind != ROPE_LONGROPE) continue;
    if (strcmp(name, rope_kind_name(*kind)) == 0) return STATUS_OK;
  }
  return reader_refuse(r, "rope type %s is not supported, expected default%s", name,
                       proportional ? " or proportional"
                       : longs      ? " or longrope"
                                    : ", linear, dynamic, llama3, yarn or longrope");
}

static Status rope_required(const ConfigReader *r, const char *key, double low, double high, double *out) {
  if (!json_member(r->object, key)) return reader_refuse(r, "%s is missing", key);
  return reader_double(r, key, low, high, 0, out);
}

static Status parse_yarn(const ConfigReader *r, const ModelConfig *config, RopeConfig *rope) {
  TRY(reader_double(r, "factor", 1e-3, 1e6, config->max_position / rope->original_max_position,
                    &rope->factor));
  TRY(reader_double(r, "beta_fast", 0, 1e6, 32, &rope->beta_fast));
  TRY(reader_double(r, "beta_slow", 0, 1e6, 1, &rope->beta_slow));
  if (rope->beta_fast == 0) rope->beta_fast = 32; /* as in transformers */
  if (rope->beta_slow == 0) rope->beta_slow = 1;
  TRY(reader_double(r, "attention_factor", 1e-3, 1e3, 0, &rope->attention_factor));
  TRY(reader_double(r, "mscale", 0, 1e3, 0, &rope->mscale));
  TRY(reader_double(r, "mscale_all_dim", 0, 1e3, 0, &rope->mscale_all_dim));
  if (rope->beta_fast < 1e-3 || rope->beta_slow < 1e-3)
    return reader_refuse(r, "beta_fast is %g and beta_slow %g, expected at least 0.001", rope->beta_fast,
                         rope->beta_slow);
  if (rope->theta <= 1)
    return reader_refuse(r, "rope_theta is %g, expected more than 1 with yarn", rope->theta);
  return reader_bool(r, "truncate", true, &rope->truncate);
}

static Status parse_llama3(const ConfigReader *r, RopeConfig *rope) {
  TRY(rope_required(r, "factor", 1e-3, 1e6, &rope->factor));
  TRY(rope_required(r, "low_freq_factor", 1e-3, 1e6, &rope->low_freq_factor));
  TRY(rope_required(r, "high_freq_factor", 1e-3, 1e6, &rope->high_freq_factor));
  if (rope->high_freq_factor < rope->low_freq_factor)
    return reader_refuse(r, "high_freq_factor is %g, expected at least low_freq_factor %g",
                         rope->high_freq_factor, rope->low_freq_factor);
  return STATUS_OK;
}

static Status parse_pair_factors(const ConfigReader *r, const char *key, int n, float *out) {
  const Json *list = json_member(r->object, key);
  if (!list) return reader_refuse(r, "%s is missing", key);
  TRY(reader_list(r, key, list, n, "numbers, one for each pair that is turned"));
  int i = 0;
  for (const Json *item = json_first(list); item; item = json_next(item), i++) {
    double factor;
    if (!json_double(item, &factor) || !(factor >= 1e-3 && factor <= 1e6))
      return reader_refuse_item(r, key, i, item, "a number from 0.001 to 1000000");
    out[i] = (float)factor;
  }
  return STATUS_OK;
}

static Status parse_longrope(const ConfigReader *r, const Architecture *arch, const ModelConfig *config,
                             RopeConfig *rope) {
  TRY(parse_pair_factors(r, "short_factor", rope->rotary_dim / 2, rope->short_factors));
  TRY(parse_pair_factors(r, "long_factor", rope->rotary_dim / 2, rope->long_factors));
  TRY(reader_double(r, "factor", 1e-3, 1e6, config->max_position / rope->original_max_position,
                    &rope->factor));
  if (arch->ropes == ROPES_LONG_MSCALES) {
    TRY(rope_required(r, "short_mscale", 1e-3, 1e3, &rope->attention_factor));
    TRY(rope_required(r, "long_mscale", 1e-3, 1e3, &rope->long_attention_factor));
  } else {
    TRY(reader_double(r, "attention_factor", 1e-3, 1e3, 0, &rope->attention_factor));
  }
  if (rope->original_max_position < 2)
    return reader_refuse(r, "original_max_position_embeddings is %g, expected at least 2 with longrope",
                         rope->original_max_position);
  return STATUS_OK;
}

/* Reads a rope from `r`, the object with the scaling (NULL in r->object: not scaled). beside: the config
 * around that object, or NULL. An original_max_position_embeddings in `beside` takes precedence. theta: the
 * default. */
static Status parse_scaling(const ConfigReader *r, const ConfigReader *beside, const Architecture *arch,
                            double theta, const ModelConfig *config, RopeConfig *rope) {
  TRY(rope_kind(r, arch, &rope->kind));
  TRY(reader_double(r, "rope_theta", 1, 1e18, theta, &rope->theta));
  if (rope->kind == ROPE_PLAIN) return STATUS_OK;
  if (rope->kind == ROPE_LINEAR) return rope_required(r, "factor", 1e-3, 1e6, &rope->factor);
  static const char original[] = "original_max_position_embeddings";
  double length;
  TRY(reader_double(r, original, 1, MAX_POSITION, config->max_position, &length));
  /* The architecture's own default takes precedence over the member in `r`, the scaling's object. */
  if (arch->original_max_position) length = arch->original_max_position;
  if (beside) TRY(reader_double(beside, original, 1, MAX_POSITION, length, &length));
  rope->original_max_position = length;
  switch (rope->kind) {
  case ROPE_LLAMA3: return parse_llama3(r, rope);
  case ROPE_YARN: return parse_yarn(r, config, rope);
  default: return parse_longrope(r, arch, config, rope);
  }
}

/* With a linear rope, and with YaRN if the original length is given, the scaled rope decides the context
 * (vLLM's rule, _get_and_verify_max_len()). max_position_embeddings may be the original length, as the model
 * cards of Qwen advise, and is raised to the scaled length, but never lowered. With llama3 and longrope
 * max_position_embeddings is the scaled context already. `beside` (or NULL): as for parse_scaling(). */
static Status extend_context(const ConfigReader *r, const ConfigReader *beside, const RopeConfig *rope,
                             ModelConfig *config) {
  static const char key[] = "original_max_position_embeddings";
  const bool says_original = json_member(r->object, key) || (beside && json_member(beside->object, key));
  double original = config->max_position;
  if (rope->kind != ROPE_LINEAR && (rope->kind != ROPE_YARN || !says_original)) return STATUS_OK;
  TRY(reader_double(r, key, 1, MAX_POSITION, original, &original));
  if (beside) TRY(reader_double(beside, key, 1, MAX_POSITION, original, &original));
  const double length = fmin(original * rope->factor, MAX_POSITION);
  if (length > config->max_position) config->max_position = (int)length;
  return STATUS_OK;
}

/* --- the ropes of a model */

/* transformers 4 has partial_rotary_factor beside rope_scaling, 5 inside rope_parameters; the inner one takes
 * precedence. */
static Status parse_rotary_dim(const ConfigReader *r, const ConfigReader *scaling, const Architecture *arch,
                               double usual, const ModelConfig *config, RopeConfig *rope) {
  double part;
  static const char key[] = "partial_rotary_factor";
  rope->rotary_dim = config->latent.rope_dim;
  if (arch->latent.kv_rank) return STATUS_OK;
  if (has(arch, ROTARY_DIM) && json_member(r->object, "rotary_dim")) {
    int turned;
    TRY(reader_int(r, "rotary_dim", 1, config->head_dim, config->head_dim, &turned));
    usual = (double)turned / config->head_dim;
  }
  TRY(reader_double(r, key, 0, 1, usual, &part));
  TRY(reader_double(scaling, key, 0, 1, part, &part));
  rope->rotary_dim = (int)(config->head_dim * part);
  if (part != 1 && !has(arch, PARTIAL_ROTARY) && !has(arch, ROTARY_DIM))
    return reader_refuse(r, "partial_rotary_factor %g is not supported, expected 1", part);
  if (rope->rotary_dim < 2 || rope->rotary_dim % 2 != 0)
    return reader_refuse(r, "%s %g turns %d of head_dim %d numbers, expected an even number from 2",
                         reader_key(r, key), part, rope->rotary_dim, config->head_dim);
  return STATUS_OK;
}

static bool holds_objects(const Json *object, const char **key) {
  for (const Json *item = json_first(object); item; item = json_next(item)) {
    *key = json_key(item);
    if (json_is_object(item)) return true;
  }
  return false;
}

/* The rope types "dynamic" and "xdrope" with alpha: theta is scaled once, whatever a text's length. */
static Status parse_alpha(const ConfigReader *scaling, const Architecture *arch, const ModelConfig *config,
                          RopeConfig *rope) {
  const char *name;
  TRY(read_kind(scaling, &name));
  if (strcmp(name, "dynamic") != 0 && !(arch->ropes == ROPES_XDROPE && strcmp(name, "xdrope") == 0))
    return STATUS_OK;
  double alpha;
  TRY(reader_double(scaling, "alpha", 0, 1e6, 0, &alpha));
  if (alpha == 0) return STATUS_OK;
  if (alpha < 1) return reader_refuse(scaling, "alpha is %g, expected 0 or a number from 1", alpha);
  if (config->head_dim < 4)
    return reader_refuse(scaling, "alpha is not supported with head_dim %d, expected at least 4",
                         config->head_dim);
  rope->theta *= pow(alpha, (double)config->head_dim / (config->head_dim - 2));
  return STATUS_OK;
}

/* Reads llama_4_scaling_beta. A config without any rope parameters gets fixed YaRN and query scaling. */
static Status parse_query_scale(const ConfigReader *scaling, ModelConfig *config) {
  RopeConfig *rope = &config->rope;
  if (json_count(scaling->object) == 0) {
    rope->kind = ROPE_YARN;
    rope->theta = 1e6, rope->factor = 16, rope->beta_fast = 32;
    rope->beta_slow = rope->mscale = rope->mscale_all_dim = 1;
    rope->truncate = true;
    rope->original_max_position = config->query_scale_step = 16384;
    config->query_scale_beta = 0.1;
    return STATUS_OK;
  }
  TRY(rope_required(scaling, "llama_4_scaling_beta", 0, 1e3, &config->query_scale_beta));
  return rope_required(scaling, "original_max_position_embeddings", 1, MAX_POSITION,
                       &config->query_scale_step);
}

/* Takes max_position from length_key if that is larger and the rope is not scaled: a scaled rope may depend
 * on max_position_embeddings. */
static Status parse_length(const ConfigReader *r, const ConfigReader *scaling, const Architecture *arch,
                           ModelConfig *config) {
  const char *kind;
  int length;
  TRY(reader_int(r, arch->length_key, 1, MAX_POSITION, config->max_position, &length));
  TRY(read_kind(scaling, &kind));
  if (length > config->max_position && strcmp(kind, rope_kind_name(ROPE_PLAIN)) == 0)
    config->max_position = length;
  return STATUS_OK;
}

/* True if a rope's object says nothing but that it is not scaled. */
static bool is_unscaled(const Json *object) {
  for (const Json *item = json_first(object); item; item = json_next(item))
    if ((strcmp(json_key(item), "rope_type") != 0 && strcmp(json_key(item), "type") != 0) ||
        !json_string_is(item, rope_kind_name(ROPE_PLAIN)))
      return false;
  return true;
}

/* transformers 4 has rope_theta beside rope_scaling, 5 inside rope_parameters. Precedence is that of
 * RotaryEmbeddingConfigMixin.convert_rope_params_to_dict(): an original context length beside the object
 * takes precedence over one inside. */
static Status parse_one_rope(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const char *key;
  ConfigReader scaling;
  TRY(reader_object(r, "rope_scaling", &scaling));
  if (has(arch, NO_ROPE_SCALING) && !is_unscaled(scaling.object)) /* transformers ignores rope_scaling */
    return reader_refuse(r, "rope_scaling is not supported, expected rope_parameters");
  if (has(arch, NO_ROPE_SCALING) || json_count(scaling.object) == 0)
    TRY(reader_object(r, "rope_parameters", &scaling));
  if (holds_objects(scaling.object, &key))
    return reader_refuse(&scaling, "parameters by kind of layer (%s) are not supported", key);
  if (has(arch, OWN_ROPE) && json_count(scaling.object) == 0)
    return reader_refuse(r, "rope_scaling and rope_parameters are missing, expected one of them");
  double theta;
  TRY(reader_double(r, "rope_theta", 1, 1e18, arch->rope_theta, &theta));
  const double usual = arch->rotary_part != 0 ? arch->rotary_part : 1;
  TRY(parse_rotary_dim(r, &scaling, arch, usual, config, &config->rope));
  TRY(parse_scaling(&scaling, r, arch, theta, config, &config->rope));
  TRY(extend_context(&scaling, r, &config->rope, config));
  if (has(arch, SOME_SCALED) && config->rope.kind != ROPE_PLAIN)
    TRY(reader_refuse_given(r, "rope_scaling_layers"));
  if (has(arch, ALPHA)) TRY(parse_alpha(&scaling, arch, config, &config->rope));
  if (arch->length_key) TRY(parse_length(r, &scaling, arch, config));
  return has(arch, QUERY_SCALE) ? parse_query_scale(&scaling, config) : STATUS_OK;
}

/* Reads the rope of one kind of layers, with heads of head_dim numbers. `r`: its object in rope_parameters;
 * without an object, kind and theta are those of `otherwise`. "proportional" turns the first pairs of the
 * whole head. */
static Status parse_kind_rope(const ConfigReader *r, const Architecture *arch, int head_dim,
                              const RopeConfig *otherwise, RopeConfig *rope) {
  *rope = *otherwise;
  rope->rotary_dim = head_dim;
  double part = r->object ? 1 : arch->rotary_part;
  if (r->object) TRY(rope_kind(r, arch, &rope->kind));
  TRY(reader_double(r, "rope_theta", 1, 1e18, otherwise->theta, &rope->theta));
  if (rope->kind == ROPE_PLAIN) return STATUS_OK;
  TRY(reader_double(r, "partial_rotary_factor", 0, 1, part, &part));
  rope->n_turned = (int)(part * head_dim / 2);
  return reader_double(r, "factor", 1e-3, 1e6, 1, &rope->factor);
}

/* head_dim of layers with a window, or without; the model's if there is no such layer. */
static int head_dim_of(const ModelConfig *config, bool windowed) {
  for (int layer = 0; layer < config->n_layers; layer++)
    if ((config->layers[layer].window > 0) == windowed) return config_layer(config, layer).head_dim;
  return config->head_dim;
}

/* Gemma 4 and LFM3: an object for each kind of layer in rope_parameters, and nothing elsewhere. PRECOND the
 * windows and sizes of layers are filled. */
static Status parse_kind_ropes(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const RopeConfig full = {.kind = ROPE_PROPORTIONAL, .theta = arch->rope_theta},
                   sliding = {.kind = ROPE_PLAIN, .theta = arch->local_rope_theta};
  ConfigReader parameters, object;
  TRY(reader_object(r, "rope_parameters", &parameters));
  TRY(reader_object(&parameters, "full_attention", &object));
  TRY(parse_kind_rope(&object, arch, head_dim_of(config, false), &full, &config->rope));
  TRY(reader_object(&parameters, "sliding_attention", &object));
  return parse_kind_rope(&object, arch, head_dim_of(config, true), &sliding, &config->local_rope);
}

/* A partial_rotary_factor beside the two ropes' objects is permitted if it is 1 or the default, or if each
 * object has one of its own. Other values are refused: whether transformers copies them into the objects
 * depends on the kind of rope. */
static Status check_common_part(const ConfigReader *r, const Architecture *arch, const ConfigReader *full,
                                const ConfigReader *local) {
  static const char key[] = "partial_rotary_factor";
  double part;
  TRY(reader_double(r, key, 0, 1, 1, &part));
  const double usual = has(arch, BOTH_ROTARY) ? arch->rotary_part : 1;
  if (part == usual || part == 1 || (json_member(full->object, key) && json_member(local->object, key)))
    return STATUS_OK;
  return reader_refuse(r, "%s %g is not supported, expected %s", key, part,
                       has(arch, PARTIAL_ROTARY) ? "one in full_attention and one in sliding_attention"
                                                 : "1");
}

/* Reads one rope for layers with full attention and one for layers with a window. transformers 4 has the
 * first rope's scaling in rope_scaling. The second rope's theta is in rope_local_base_freq (Gemma 3) or a
 * default (Olmo 3). transformers 5 has an object for each rope in rope_parameters. */
static Status parse_two_ropes(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const char *key = NULL;
  ConfigReader scaling, parameters, full, local;
  TRY(reader_object(r, "rope_scaling", &scaling));
  TRY(reader_object(r, "rope_parameters", &parameters));
  if (has(arch, ROPES_IN_OBJECTS) && is_unscaled(scaling.object)) scaling.object = NULL;
  if (json_count(parameters.object) > 0 && !holds_objects(parameters.object, &key))
    return reader_refuse(&parameters,
                         "%s is in no object for a kind of layer, expected full_attention and "
                         "sliding_attention",
                         key);
  TRY(reader_object(&parameters, "full_attention", &full));
  TRY(reader_object(&parameters, "sliding_attention", &local));
  if (json_count(scaling.object) > 0 && full.object)
    return reader_refuse(r, "rope_scaling and rope_parameters are both given, expected one of them");
  if (json_count(scaling.object) > 0 && has(arch, ROPES_IN_OBJECTS))
    return reader_refuse(r, "rope_scaling is not supported, expected rope_parameters");
  if (json_count(scaling.object) > 0) full = scaling;
  double theta, local_theta = arch->local_rope_theta;
  if (has(arch, ROPES_IN_OBJECTS) || arch->sizes == config_parse_layer_lists)
    theta = arch->rope_theta; /* config_parse_layer_lists() reads a list */
  else
    TRY(reader_double(r, "rope_theta", 1, 1e18, arch->rope_theta, &theta));
  if (has(arch, LOCAL_THETA))
    TRY(reader_double(r, "rope_local_base_freq", 1, 1e18, local_theta, &local_theta));
  TRY(check_common_part(r, arch, &full, &local));
  /* partial_rotary_factor defaults to rotary_part, if that is not 0, for both ropes with BOTH_ROTARY and for
   * the rope of full attention if full.object is NULL. In all other cases it defaults to 1. */
  const bool both = has(arch, BOTH_ROTARY);
  const double part = arch->rotary_part != 0 && (both || !full.object) ? arch->rotary_part : 1;
  TRY(parse_rotary_dim(&full, &full, arch, part, config, &config->rope));
  TRY(parse_rotary_dim(&local, &local, arch, both ? arch->rotary_part : 1, config, &config->local_rope));
  TRY(parse_scaling(&full, NULL, arch, theta, config, &config->rope));
  TRY(parse_scaling(&local, NULL, arch, local_theta, config, &config->local_rope));
  if (config->rope.kind == ROPE_YARN) TRY(extend_context(&full, NULL, &config->rope, config));
  if (config->rope.kind == ROPE_LONGROPE || config->local_rope.kind == ROPE_LONGROPE)
    return reader_refuse(r, "longrope is not supported where ropes differ by kind of layer");
  return STATUS_OK;
}

/* --- all */

Status config_parse_positions(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  size_t n = (size_t)config->n_layers;
  TRY(NEW(config->layers, n, "sizes of layers", r->err));
  const bool two_ropes = has(arch, LOCAL_ROPE);
  if (has(arch, NO_ROPE)) /* sizes of the rope that no layer uses */
    config->rope =
        (RopeConfig){.rotary_dim = arch->latent.kv_rank ? config->latent.rope_dim : config->head_dim,
                     .theta = arch->rope_theta};
  else if (arch->ropes != ROPES_PROPORTIONAL)
    TRY(two_ropes ? parse_two_ropes(r, arch, config) : parse_one_rope(r, arch, config));
  config->rope.neighbours = config->local_rope.neighbours = has(arch, NEIGHBOURS);
  config->rope.backwards = has(arch, BACKWARDS);
  if (arch->latent.kv_rank) {
    if (has(arch, NEIGHBOURS)) TRY(reader_bool(r, "rope_interleave", true, &config->rope.neighbours));
    config_scale_latent(config);
  }
  config->delta = arch->delta;
  TRY(arch->layers ? arch->layers(r, arch, config) : config_parse_windows(r, arch, config));
  if (config_count_layers(config, LAYER_DELTA, config->n_layers) == 0) config->delta = (DeltaConfig){0};
  if (config_count_layers(config, LAYER_CONV, config->n_layers) == 0) config->conv = (ConvConfig){0};
  for (int i = 0; has(arch, NO_ROPE) && i < config->n_layers; i++) config->layers[i].rope = ROPE_NONE;
  if (arch->sizes) TRY(arch->sizes(r, arch, config));
  if (arch->ropes == ROPES_PROPORTIONAL) TRY(parse_kind_ropes(r, arch, config));
  for (int layer = 0; two_ropes && layer < config->n_layers; layer++)
    config->layers[layer].rope = config->layers[layer].window ? ROPE_LOCAL : ROPE_GLOBAL;
  return STATUS_OK;
}
