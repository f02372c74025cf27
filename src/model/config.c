/* config.c - reads config.json, generation_config.json and quant_config.json into a ModelConfig.
 *
 * Called by: the loaders of src/model.   Calls: base/json.c, quantization.c.
 * Always true: what a field means and what it is when absent is as in transformers' config class of the
 *              architecture (5.23, models/NAME/configuration_NAME.py); what would change the result and is
 *              not computed here is refused by name; sizes are so small that products of three fit int64. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config_reader.h"
#include "model/quantization.h"

/* Which layers have a sliding window. */
typedef enum {
  WINDOW_NONE,     /* no layer, whatever the config says of windows */
  WINDOW_ALL,      /* all, unless sliding_window is null */
  WINDOW_BY_LAYER, /* if use_sliding_window: by layer_types, else the layers from max_window_layers on */
} WindowRule;

typedef struct {
  const char *architecture, *model_type;
  int vocab_size, intermediate, max_position; /* where the config does not say */
  int n_kv_heads;                             /* likewise; 0: as many as n_heads */
  int head_dim;                               /* likewise; 0: hidden / n_heads */
  int bos, eos;                               /* likewise; -1: none */
  bool qk_norm, qkv_bias;
  WindowRule windows;
} Family;

/* clang-format off */
static const Family families[] = {
  /* architecture        model_type  vocab  interm. positions kv head bos eos qk_norm qkv_bias windows */
  {"LlamaForCausalLM",   "llama",    32000, 11008,   2048,  0,   0,  1,  2, false,  false,   WINDOW_NONE},
  {"MistralForCausalLM", "mistral",  32000, 14336, 131072,  8,   0,  1,  2, false,  false,   WINDOW_ALL},
  {"Qwen2ForCausalLM",   "qwen2",   151936, 22016,  32768, 32,   0, -1, -1, false,  true,    WINDOW_BY_LAYER},
  {"Qwen3ForCausalLM",   "qwen3",   151936, 22016,  32768, 32, 128, -1, -1, true,   false,   WINDOW_BY_LAYER},
};
/* clang-format on */
static const size_t n_families = sizeof families / sizeof *families;

/* --- architecture and sizes */

static Status choose_family(const Reader *r, const Family **family) {
  const char *model_type, *architecture = NULL;
  TRY(reader_string(r, "model_type", &model_type));
  const Json *list = json_member(r->object, "architectures"), *first = json_first(list);
  if (list && (!json_is_array(list) || (first && !json_is_string(first))))
    return reader_refuse(r, "architectures is no list of names");
  size_t size;
  if (first) architecture = json_string(first, &size);
  if (!architecture && !model_type)
    return reader_refuse(r, "neither architectures nor model_type says what model it is");
  for (size_t i = 0; i < n_families; i++) {
    *family = &families[i];
    if (architecture ? !json_string_is(first, (*family)->architecture)
                     : strcmp(model_type, (*family)->model_type) != 0)
      continue;
    if (model_type && strcmp(model_type, (*family)->model_type) != 0)
      return reader_refuse(r, "model_type is %s, expected %s with architecture %s", model_type,
                           (*family)->model_type, (*family)->architecture);
    return STATUS_OK;
  }
  return reader_refuse(r,
                       "%s %s is not supported, expected LlamaForCausalLM, MistralForCausalLM, "
                       "Qwen2ForCausalLM or Qwen3ForCausalLM",
                       architecture ? "architecture" : "model_type",
                       architecture ? architecture : model_type);
}

static Status parse_heads(const Reader *r, const Family *family, ModelConfig *config) {
  TRY(reader_int(r, "num_attention_heads", 1, MAX_HEADS, 32, &config->n_heads));
  bool all = family->n_kv_heads == 0 || reader_is_null(r, "num_key_value_heads");
  TRY(reader_int(r, "num_key_value_heads", 1, MAX_HEADS, all ? config->n_heads : family->n_kv_heads,
                 &config->n_kv_heads));
  if (config->n_heads % config->n_kv_heads != 0)
    return reader_refuse(r, "num_attention_heads is %d, expected a multiple of its %d kv heads",
                         config->n_heads, config->n_kv_heads);
  int head_dim = family->head_dim;
  if (!head_dim && !json_member(r->object, "head_dim")) {
    if (config->hidden % config->n_heads != 0)
      return reader_refuse(
          r, "hidden_size is %d, expected a multiple of num_attention_heads %d where head_dim is not given",
          config->hidden, config->n_heads);
    head_dim = config->hidden / config->n_heads;
  }
  TRY(reader_int(r, "head_dim", 1, INT32_MAX, head_dim, &config->head_dim));
  if (config->head_dim < 2 || config->head_dim > MAX_HEAD_DIM || config->head_dim % 2 != 0)
    return reader_refuse(r, "head_dim is %d, expected an even number from 2 to %d", config->head_dim,
                         MAX_HEAD_DIM);
  return STATUS_OK;
}

static Status parse_sizes(const Reader *r, const Family *family, ModelConfig *config) {
  snprintf(config->architecture, sizeof config->architecture, "%s", family->architecture);
  config->qk_norm = family->qk_norm ? QK_NORM_HEADS : QK_NORM_NONE;
  config->qkv_bias = family->qkv_bias;
  TRY(reader_int(r, "hidden_size", 1, MAX_HIDDEN, 4096, &config->hidden));
  TRY(reader_int(r, "intermediate_size", 1, MAX_INTERMEDIATE, family->intermediate, &config->intermediate));
  TRY(reader_int(r, "num_hidden_layers", 1, MAX_LAYERS, 32, &config->n_layers));
  TRY(reader_int(r, "vocab_size", 1, MAX_VOCAB, family->vocab_size, &config->vocab_size));
  TRY(reader_int(r, "max_position_embeddings", 1, MAX_POSITION, family->max_position, &config->max_position));
  TRY(reader_double(r, "rms_norm_eps", 0, 1, 1e-6, &config->norm_eps));
  TRY(reader_bool(r, "tie_word_embeddings", false, &config->tied_embeddings));
  const char *activation;
  TRY(reader_string(r, "hidden_act", &activation));
  if (activation && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
    return reader_refuse(r, "hidden_act %s is not supported, expected silu", activation);
  TRY(parse_heads(r, family, config));
  config->rotary_dim = config->head_dim;
  config->embedding_scale = config->residual_scale = config->logit_divisor = 1;
  config->attention_scale = 1 / sqrt(config->head_dim);
  return STATUS_OK;
}

/* --- rope */

const char *rope_kind_name(RopeKind kind) {
  static const char *const names[] = {[ROPE_PLAIN] = "default",
                                      [ROPE_LINEAR] = "linear",
                                      [ROPE_LLAMA3] = "llama3",
                                      [ROPE_YARN] = "yarn",
                                      [ROPE_LONG] = "longrope"};
  return names[kind];
}

static Status rope_kind(const Reader *r, RopeKind *kind) {
  const char *name, *old_name;
  TRY(reader_string(r, "rope_type", &name));
  TRY(reader_string(r, "type", &old_name));
  if (!name) name = old_name ? old_name : "default";
  for (int i = ROPE_PLAIN; i <= ROPE_YARN; i++) {
    *kind = (RopeKind)i;
    if (strcmp(name, rope_kind_name(*kind)) == 0) return STATUS_OK;
  }
  return reader_refuse(r, "rope type %s is not supported, expected default, linear, llama3 or yarn", name);
}

static Status rope_required(const Reader *r, const char *key, double low, double high, double *out) {
  if (!json_member(r->object, key)) return reader_refuse(r, "%s is missing", key);
  return reader_double(r, key, low, high, 0, out);
}

static Status rope_is_whole(const Reader *r) {
  double part;
  TRY(reader_double(r, "partial_rotary_factor", 0, 1, 1, &part));
  if (part != 1) return reader_refuse(r, "partial_rotary_factor %g is not supported, expected 1", part);
  return STATUS_OK;
}

static Status parse_yarn(const Reader *r, const ModelConfig *config, RopeConfig *rope) {
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

static Status parse_llama3(const Reader *r, RopeConfig *rope) {
  TRY(rope_required(r, "factor", 1e-3, 1e6, &rope->factor));
  TRY(rope_required(r, "low_freq_factor", 1e-3, 1e6, &rope->low_freq_factor));
  TRY(rope_required(r, "high_freq_factor", 1e-3, 1e6, &rope->high_freq_factor));
  if (rope->high_freq_factor <= rope->low_freq_factor)
    return reader_refuse(r, "high_freq_factor is %g, expected more than low_freq_factor %g",
                         rope->high_freq_factor, rope->low_freq_factor);
  return STATUS_OK;
}

/* transformers 4 has rope_theta beside rope_scaling, 5 inside rope_parameters. Where both are given,
 * RotaryEmbeddingConfigMixin.convert_rope_params_to_dict() decides; an original context length beside the
 * object counts more than one inside it. */
static Status parse_rope(const Reader *r, ModelConfig *config) {
  RopeConfig *rope = &config->rope;
  char name[1024];
  Reader scaling;
  TRY(reader_object(r, "rope_scaling", name, &scaling));
  if (json_count(scaling.object) == 0) TRY(reader_object(r, "rope_parameters", name, &scaling));
  for (const Json *item = json_first(scaling.object); item; item = json_next(item))
    if (json_is_object(item))
      return reader_refuse(&scaling, "parameters by kind of layer (%s) are not supported", json_key(item));
  TRY(rope_kind(&scaling, &rope->kind));
  TRY(rope_is_whole(r));
  TRY(rope_is_whole(&scaling));
  double theta;
  TRY(reader_double(r, "rope_theta", 1, 1e18, 10000, &theta));
  TRY(reader_double(&scaling, "rope_theta", 1, 1e18, theta, &rope->theta));
  if (rope->kind == ROPE_PLAIN) return STATUS_OK;
  if (rope->kind == ROPE_LINEAR) return rope_required(&scaling, "factor", 1e-3, 1e6, &rope->factor);
  const char *original = "original_max_position_embeddings";
  TRY(reader_double(&scaling, original, 1, MAX_POSITION, config->max_position, &rope->original_max_position));
  TRY(reader_double(r, original, 1, MAX_POSITION, rope->original_max_position, &rope->original_max_position));
  return rope->kind == ROPE_LLAMA3 ? parse_llama3(&scaling, rope) : parse_yarn(&scaling, config, rope);
}

/* --- sliding windows */

/* layer_types, where given, decides for models that can mix; others (not `mixed`) must do so without it. */
static Status apply_layer_types(const Reader *r, bool mixed, int window, ModelConfig *config) {
  const Json *types = json_member(r->object, "layer_types");
  if (!types) return STATUS_OK;
  if (!json_is_array(types) || json_count(types) != (size_t)config->n_layers)
    return reader_refuse(r, "layer_types is no list of num_hidden_layers %d names", config->n_layers);
  int layer = 0;
  for (const Json *type = json_first(types); type; type = json_next(type), layer++) {
    bool sliding = json_string_is(type, "sliding_attention");
    if (!sliding && !json_string_is(type, "full_attention"))
      return reader_refuse(
          r, "layer_types[%d] is not supported, expected full_attention or sliding_attention", layer);
    if (mixed ? sliding && !window : sliding != (config->windows[layer] > 0))
      return reader_refuse(
          r, "layer_types[%d] is %s, expected %s: %s %s", layer,
          sliding ? "sliding_attention" : "full_attention", sliding ? "full_attention" : "sliding_attention",
          mixed ? "there is no sliding window in this" : "all layers are alike in", config->architecture);
    config->windows[layer] = sliding ? window : 0;
  }
  return STATUS_OK;
}

static Status parse_windows(const Reader *r, const Family *family, ModelConfig *config) {
  config->windows = mem_alloc((size_t)config->n_layers, sizeof *config->windows, "sliding windows", r->err);
  if (!config->windows) return STATUS_FAILED;
  bool use = family->windows == WINDOW_ALL, mixed = family->windows == WINDOW_BY_LAYER;
  if (mixed) TRY(reader_bool(r, "use_sliding_window", false, &use));
  int window = 0, first = 0;
  if (use && !reader_is_null(r, "sliding_window"))
    TRY(reader_int(r, "sliding_window", 1, MAX_POSITION, 4096, &window));
  if (mixed) TRY(reader_int(r, "max_window_layers", 0, INT32_MAX, 28, &first));
  for (int layer = first; layer < config->n_layers; layer++) config->windows[layer] = window;
  return apply_layer_types(r, mixed, window, config);
}

/* --- special tokens */

/* eos_token_id: a number or a list of them. Leaves the config alone where it is absent. */
static Status parse_eos(const Reader *r, ModelConfig *config) {
  const Json *value = json_member(r->object, "eos_token_id");
  if (!value) return STATUS_OK;
  bool list = json_is_array(value);
  config->n_eos = 0;
  for (const Json *item = list ? json_first(value) : value; item; item = list ? json_next(item) : NULL) {
    int64_t id;
    if (!json_int64(item, &id) || id < 0 || id > INT32_MAX)
      return reader_refuse(r, "eos_token_id is no token id and no list of them");
    if (config->n_eos == MAX_EOS)
      return reader_refuse(r, "eos_token_id has %zu ids, expected at most %d", json_count(value), MAX_EOS);
    config->eos[config->n_eos++] = (int32_t)id;
  }
  return STATUS_OK;
}

static Status parse_special_tokens(const Reader *r, const Family *family, ModelConfig *config) {
  int bos;
  TRY(reader_int(r, "bos_token_id", -1, INT32_MAX, reader_is_null(r, "bos_token_id") ? -1 : family->bos,
                 &bos));
  config->bos = bos;
  if (family->eos >= 0 && !reader_is_null(r, "eos_token_id")) config->eos[config->n_eos++] = family->eos;
  return parse_eos(r, config);
}

/* --- generation_config.json */

static Status parse_generation(const Reader *r, ModelConfig *config) {
  GenerationDefaults *g = &config->generation;
  TRY(reader_bool(r, "do_sample", false, &g->do_sample));
  TRY(reader_double(r, "temperature", 0, 1e3, 1, &g->temperature));
  TRY(reader_int(r, "top_k", -1, INT32_MAX, 0, &g->top_k));
  if (g->top_k < 0) g->top_k = 0;
  TRY(reader_double(r, "top_p", 0, 1, 1, &g->top_p));
  TRY(reader_double(r, "min_p", 0, 1, 0, &g->min_p));
  TRY(reader_double(r, "repetition_penalty", 1e-3, 1e3, 1, &g->repetition_penalty));
  int bos;
  TRY(reader_int(r, "bos_token_id", -1, INT32_MAX, config->bos, &bos));
  config->bos = bos;
  return parse_eos(r, config);
}

/* --- files */

static Status parse_config(const Reader *r, ModelConfig *config) {
  const Family *family = NULL;
  config->generation =
      (GenerationDefaults){.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1};
  TRY(choose_family(r, &family));
  TRY(parse_sizes(r, family, config));
  TRY(parse_rope(r, config));
  TRY(parse_windows(r, family, config));
  TRY(parse_special_tokens(r, family, config));
  char name[1024];
  Reader quant;
  TRY(reader_object(r, "quantization_config", name, &quant));
  return quant.object ? quantization_parse(&quant, false, config) : STATUS_OK;
}

static Status parse_object(const char *name, const char *text, size_t size, Json **tree, Reader *r,
                           Error *err) {
  TRY(json_parse(name, STATUS_MODEL, text, size, NULL, 0, tree, err));
  *r = (Reader){{name, STATUS_MODEL}, *tree, err};
  return json_is_object(*tree) ? STATUS_OK : error_set(err, STATUS_MODEL, "%s: no JSON object", name);
}

Status config_parse(const char *name, const char *text, size_t size, ModelConfig *config, Error *err) {
  *config = (ModelConfig){0};
  Json *tree = NULL;
  Reader r;
  Status status = parse_object(name, text, size, &tree, &r, err);
  if (status == STATUS_OK) status = parse_config(&r, config);
  json_free(tree);
  return status;
}

typedef enum { CONFIG_FILE, QUANT_FILE, GENERATION_FILE } ConfigFile;

static Status load_file(const char *path, ConfigFile kind, ModelConfig *config, Error *err) {
  MappedFile file;
  Json *tree = NULL;
  Reader r;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  Status status = parse_object(path, (const char *)file.data, file.size, &tree, &r, err);
  if (status == STATUS_OK) {
    status = kind == CONFIG_FILE  ? parse_config(&r, config)
             : kind == QUANT_FILE ? quantization_parse(&r, true, config)
                                  : parse_generation(&r, config);
  }
  ContentHash content;
  if (status == STATUS_OK && kind != GENERATION_FILE &&
      (status = content_of_bytes(file.data, file.size, 1, NULL, &content, err)) == STATUS_OK)
    content_add(&config->content, content);
  json_free(tree);
  file_unmap(&file);
  return status;
}

Status config_load(const char *directory, ModelConfig *config, Error *err) {
  static const char *const names[] = {[CONFIG_FILE] = "config.json",
                                      [QUANT_FILE] = "quant_config.json",
                                      [GENERATION_FILE] = "generation_config.json"};
  *config = (ModelConfig){0};
  for (int kind = CONFIG_FILE; kind <= GENERATION_FILE; kind++) {
    if (kind == QUANT_FILE && config->quant != QUANT_NONE) continue; /* config.json has said it */
    char *path = path_join(directory, names[kind], err);
    if (!path) return STATUS_FAILED;
    Status status = STATUS_OK;
    if (kind == CONFIG_FILE || file_exists(path)) status = load_file(path, (ConfigFile)kind, config, err);
    free(path);
    TRY(status);
  }
  return STATUS_OK;
}

void config_release(ModelConfig *config) {
  quantization_release(config);
  free(config->windows);
  free(config->layer_ropes);
  *config = (ModelConfig){0};
}
