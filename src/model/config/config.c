/* config.c - reads config.json, generation_config.json and configs of quantisation into a ModelConfig.
 *
 * Always true: meanings and defaults are those of transformers' config class of the architecture (5.23,
 *              models/NAME/configuration_NAME.py). Members that would change the result and are not
 *              implemented are refused by name. A tensor's count of numbers fits int64. */
#include "model/config/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config/architectures.h"
#include "model/layers.h"

/* --- architecture */

/* Reads the first of `architectures`, and model_type; one of them may be NULL. */
static Status read_names(const ConfigReader *r, const char **architecture, const char **model_type) {
  TRY(reader_string(r, "model_type", model_type));
  const Json *list = json_member(r->object, "architectures"), *first = json_first(list);
  if (list && !json_is_array(list)) return reader_expected(r, "architectures", list, "a list of names");
  if (first && !json_is_string(first)) return reader_expected(r, "architectures[0]", first, "a name");
  size_t size;
  *architecture = first ? json_string(first, &size) : NULL;
  if (!*architecture && !*model_type)
    return reader_refuse(r, "neither architectures nor model_type says what model it is");
  return STATUS_OK;
}

static Status refuse_architecture(const ConfigReader *r, const char *architecture, const char *model_type) {
  return reader_refuse(r, "%s %.60s is not supported; `auk inspect --architectures` lists those that are",
                       architecture ? "architecture" : "model_type",
                       architecture ? architecture : model_type);
}

/* Finds the text part's config, and sets *arch to its row. */
static Status enter_text(const ConfigReader *r, const Multimodal *whole, const Architecture **arch,
                         ConfigReader *text) {
  const char *key = whole->text_key ? whole->text_key : "text_config", *type = NULL;
  ConfigReader holder = *r;
  if (whole->is == THINKER_TEXT) TRY(reader_object(r, "thinker_config", &holder));
  if (whole->old_text_key && !json_member(holder.object, key)) key = whole->old_text_key;
  TRY(reader_object(&holder, key, text));
  const bool flat = whole->is == FLAT_TEXT && !text->object;
  if (flat) *text = *r;
  if (!text->object)
    return reader_refuse(&holder, "%s is missing, expected the config of %s's text part", key,
                         whole->architecture);
  if (!flat) TRY(reader_string(text, "model_type", &type));
  *arch = multimodal_text(whole, type);
  return *arch ? STATUS_OK
               : reader_refuse(text, "model_type %.60s is not supported in %s", type, whole->architecture);
}

/* *text: the reader of the text part's config, a copy of *r unless the model is multimodal. */
static Status choose_architecture(const ConfigReader *r, ConfigReader *text, const Architecture **out,
                                  ModelConfig *config) {
  const char *model_name = NULL, *model_type = NULL;
  TRY(read_names(r, &model_name, &model_type));
  const Multimodal *whole = multimodal_find(model_name, model_type);
  const Architecture *arch = *out = whole ? NULL : architecture_find(model_name, model_type);
  if (!whole && !arch) return refuse_architecture(r, model_name, model_type);
  const char *own_name = whole ? whole->architecture : arch->architecture;
  const char *own_type = whole ? whole->model_type : arch->model_type;
  const char *other = arch ? arch->other_type : NULL;
  const bool known = !model_type || !strcmp(model_type, own_type) || (other && !strcmp(model_type, other));
  if (!known)
    return reader_refuse(r, "model_type is %s, expected %s with architecture %s", model_type, own_type,
                         own_name);
  snprintf(config->architecture, sizeof config->architecture, "%s", own_name);
  config->text_part = whole != NULL;
  *text = *r;
  return whole ? enter_text(r, whole, out, text) : STATUS_OK;
}

/* --- sizes */

static Status parse_heads(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const char heads[] = "num_attention_heads", kv_heads[] = "num_key_value_heads", key[] = "head_dim";
  TRY(reader_int(r, heads, 1, MAX_HEADS, arch->n_heads, &config->n_heads));
  bool all = arch->n_kv_heads == 0 || reader_is_null(r, kv_heads);
  TRY(reader_int(r, kv_heads, 1, MAX_HEADS, all ? config->n_heads : arch->n_kv_heads, &config->n_kv_heads));
  if (config->n_heads % config->n_kv_heads != 0)
    return reader_refuse(r, "%s is %d, expected a multiple of its %d kv heads", reader_key(r, heads),
                         config->n_heads, config->n_kv_heads);
  int head_dim = arch->head_dim;
  if (!head_dim && !reader_member(r, key)) {
    if (config->hidden % config->n_heads != 0)
      return reader_refuse(r, "%s is %d, expected a multiple of %s %d where head_dim is not given",
                           reader_key(r, "hidden_size"), config->hidden, reader_key(r, heads),
                           config->n_heads);
    head_dim = config->hidden / config->n_heads;
  }
  TRY(reader_int(r, key, 1, INT32_MAX, head_dim, &config->head_dim));
  if (config->head_dim < 2 || config->head_dim > MAX_HEAD_DIM || config->head_dim % 2 != 0)
    return reader_refuse(r, "%s is %d, expected an even number from 2 to %d", reader_key(r, key),
                         config->head_dim, MAX_HEAD_DIM);
  return STATUS_OK;
}

static Status parse_sizes(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  TRY(reader_int(r, "hidden_size", 1, MAX_HIDDEN, arch->hidden, &config->hidden));
  static const char width[] = "intermediate_size";
  const int usual = config->intermediate = arch->intermediate ? arch->intermediate : 4 * config->hidden;
  if (arch->sizes != config_parse_altup ||
      !json_is_array(json_member(r->object, width))) /* config_parse_altup() reads the list */
    TRY(reader_int(r, width, 1, MAX_INTERMEDIATE, usual, &config->intermediate));
  if (arch->dense_key)
    TRY(reader_int(r, arch->dense_key, 1, MAX_INTERMEDIATE, config->intermediate, &config->intermediate));
  TRY(arch->layers == config_parse_blocks ? config_count_blocks(r, &config->n_layers)
      : arch->layers == config_parse_loops
          ? config_count_loops(r, &config->n_layers)
          : reader_int(r, "num_hidden_layers", 1, MAX_LAYERS, arch->n_layers, &config->n_layers));
  TRY(reader_int(r, "vocab_size", 1, MAX_VOCAB, arch->vocab_size, &config->vocab_size));
  if (has(arch, OUTPUT_VOCAB)) {
    const int rows = config->embedding_rows = config->vocab_size;
    TRY(reader_int(r, "output_vocab_size", 1, rows, rows, &config->vocab_size));
  }
  TRY(reader_int(r, "max_position_embeddings", 1, MAX_POSITION, arch->max_position, &config->max_position));
  if (has(arch, MAX_LENGTH))
    TRY(reader_int(r, "model_max_length", 1, MAX_POSITION, config->max_position, &config->max_position));
  return arch->latent.kv_rank ? config_parse_latent(r, arch, config) : parse_heads(r, arch, config);
}

/* --- arithmetic */

static Status parse_activation(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const struct {
    const char *name;
    bool alone; /* without a gate */
    Activation activation;
  } known[] = {{"silu", false, ACTIVATION_SILU},
               {"swish", false, ACTIVATION_SILU},
               {"gelu_pytorch_tanh", false, ACTIVATION_GELU_TANH},
               {"gelu_new", false, ACTIVATION_GELU_TANH},
               {"gelu_pytorch_tanh", true, ACTIVATION_GELU_ALONE},
               {"gelu_new", true, ACTIVATION_GELU_ALONE},
               {"gelu_fast", true, ACTIVATION_GELU_ALONE},
               {"gelu", true, ACTIVATION_GELU_EXACT}};
  const char *name, *key = reader_key(r, "hidden_act");
  TRY(reader_string(r, "hidden_act", &name));
  config->activation = arch->activation;
  const bool ungated = is_ungated(arch->activation),
             alone = arch->activation == ACTIVATION_GELU_ALONE || arch->activation == ACTIVATION_GELU_EXACT;
  const char *usual = activation_name(arch->activation);
  if (!name || (ungated && strcmp(name, usual) == 0)) return STATUS_OK;
  if (ungated && !alone) return reader_refuse(r, "%s %s is not supported, expected %s", key, name, usual);
  if (has(arch, GELU_IS_TANH) && strcmp(name, "gelu") == 0) name = "gelu_pytorch_tanh";
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    config->activation = known[i].activation;
    if (known[i].alone == alone && strcmp(name, known[i].name) == 0) return STATUS_OK;
  }
  return reader_refuse(r, "%s %s is not supported, expected %s or gelu_pytorch_tanh", key, name,
                       alone ? "gelu" : "silu");
}

/* An absent member gives `fallback`, null gives no cap. */
static Status parse_cap(const ConfigReader *r, const char *key, double fallback, double *out) {
  return reader_double(r, key, 1e-6, MAX_FACTOR, reader_is_null(r, key) ? 0 : fallback, out);
}

/* MiniCPM: the embedding times scale_emb; what attention and MLP add, times scale_depth / sqrt(layers);
 * logits divided by hidden / dim_model_base. A null scale_depth or dim_model_base does nothing. */
static Status parse_depth_scale(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const double root = sqrt(config->n_layers);
  double depth, base;
  int n_experts;
  TRY(reader_int(r, "num_experts", 0, INT32_MAX, 0, &n_experts));
  if (n_experts > 0) return reader_refuse(r, "num_experts is %d, which is not supported here", n_experts);
  TRY(reader_double(r, "scale_emb", 1e-6, MAX_FACTOR, arch->multipliers.embedding, &config->embedding_scale));
  TRY(reader_double(r, "scale_depth", 1e-6, MAX_FACTOR,
                    reader_is_null(r, "scale_depth") ? root : arch->multipliers.residual, &depth));
  TRY(reader_double(r, "dim_model_base", 1e-6, MAX_FACTOR,
                    reader_is_null(r, "dim_model_base") ? config->hidden : arch->multipliers.logits, &base));
  config->residual_scale = depth / root;
  config->logit_divisor = config->hidden / base;
  return STATUS_OK;
}

static Status parse_factors(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  config->embedding_scale = config->residual_scale = config->logit_divisor = 1;
  config->gate_scale = config->mlp_scale = 1;
  config->attention_scale = arch->attention_scale != 0 ? arch->attention_scale : 1 / sqrt(config->head_dim);
  /* transformers rounds sqrt(hidden_size) to the dtype of its tensors; here it stays exact. */
  bool scaled = has(arch, SCALED_EMBEDDING);
  if (has(arch, MUP)) TRY(reader_bool(r, "mup_enabled", false, &scaled));
  if (scaled) config->embedding_scale = sqrt(config->hidden);
  if (has(arch, QUERY_SCALAR)) {
    double scalar;
    TRY(reader_double(r, "query_pre_attn_scalar", 1e-6, MAX_FACTOR,
                      arch->query_scalar != 0 ? arch->query_scalar : config->head_dim, &scalar));
    config->attention_scale = 1 / sqrt(scalar);
  }
  if (has(arch, QK_FACTOR)) {
    double factor, multiplier;
    TRY(reader_double(r, "qk_scale_factor", 1e-3, 1e3, 3.87, &factor));
    TRY(reader_double(r, "output_multiplier", 1e-3, 1e3, 0.19611613513818404, &multiplier));
    TRY(reader_double(r, "post_norm_eps", 1e-30, 1, 1e-8, &config->post_norm_eps));
    config->attention_scale *= factor;
    config->logit_divisor = 1 / multiplier;
  }
  if (has(arch, MULTIPLIERS)) {
    const struct {
      const char *key;
      double usual;
      double *out;
    } factors[] = {{"embedding_multiplier", arch->multipliers.embedding, &config->embedding_scale},
                   {"attention_multiplier", arch->multipliers.attention, &config->attention_scale},
                   {"residual_multiplier", arch->multipliers.residual, &config->residual_scale},
                   {"logits_scaling", arch->multipliers.logits, &config->logit_divisor}};
    if (!has(arch, POST_NORM)) config->attention_scale = 1;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
      const double usual = factors[i].usual != 0 ? factors[i].usual : *factors[i].out;
      TRY(reader_double(r, factors[i].key, 1e-6, MAX_FACTOR, usual, factors[i].out));
    }
  }
  if (has(arch, POST_NORM)) config->logit_divisor = 1 / config->logit_divisor;
  if (arch->logit_scale != 0) {
    double scale;
    TRY(reader_double(r, "logit_scale", 1e-6, MAX_FACTOR, arch->logit_scale, &scale));
    config->logit_divisor = 1 / scale;
  }
  if (has(arch, DEPTH_SCALE)) TRY(parse_depth_scale(r, arch, config));
  if (has(arch, ATTENTION_CAP))
    TRY(parse_cap(r, "attn_logit_softcapping", arch->attention_cap, &config->attention_cap));
  else if (has(arch, LOGIT_CAP) && json_member(r->object, "attn_logit_softcapping"))
    return reader_refuse(r, "attn_logit_softcapping is not supported in %s, expected null",
                         config->architecture);
  return has(arch, LOGIT_CAP) ? parse_cap(r, "final_logit_softcapping", arch->logit_cap, &config->logit_cap)
                              : STATUS_OK;
}

static Status parse_biases(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  const bool biased = has(arch, BIASED);
  if (has(arch, ATTENTION_BIAS)) TRY(reader_bool(r, "attention_bias", biased, &config->o_bias));
  if (has(arch, OUT_BIAS)) TRY(reader_bool(r, "attention_out_bias", false, &config->o_bias));
  config->qkv_bias = has(arch, QKV_BIAS) || (config->o_bias && !has(arch, OUT_BIAS));
  if (has(arch, QKV_BIAS_KEY)) TRY(reader_bool(r, "attention_bias", has(arch, QKV_BIAS), &config->qkv_bias));
  if (has(arch, USE_QKV_BIAS)) TRY(reader_bool(r, "use_qkv_bias", config->qkv_bias, &config->qkv_bias));
  if (has(arch, USE_BIAS)) {
    TRY(reader_bool(r, "use_bias", biased, &config->o_bias));
    config->qkv_bias = config->mlp_bias = config->o_bias;
  }
  if (has(arch, HEAD_BIAS)) TRY(reader_bool(r, "lm_head_bias", biased, &config->head_bias));
  return has(arch, MLP_BIAS) ? reader_bool(r, "mlp_bias", biased, &config->mlp_bias) : STATUS_OK;
}

static Status check_fixed(const ConfigReader *r, const Architecture *arch) {
  for (int i = 0; i < MAX_FIXED && arch->fixed[i].key; i++) {
    const char *const values[] = {arch->fixed[i].value, NULL};
    const bool yes = strcmp(*values, "true") == 0;
    int which;
    TRY(yes || strcmp(*values, "false") == 0 ? reader_expect_bool(r, arch->fixed[i].key, yes)
                                             : reader_choice(r, arch->fixed[i].key, values, 0, &which));
  }
  return STATUS_OK;
}

/* multi_query: keys and values have one head. */
static Status parse_multi_query(const ConfigReader *r, ModelConfig *config) {
  bool one;
  TRY(reader_bool(r, "multi_query", true, &one));
  config->n_kv_heads = one ? 1 : config->n_heads;
  if (config->n_kv_heads == 1) config->fused = FUSES_QKV; /* the order by KV head is then q, k, v */
  return STATUS_OK;
}

static Status parse_arithmetic(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  static const struct {
    Trait trait;
    size_t member; /* a bool of ModelConfig */
  } copied[] = {
      /* clang-format off */
      {EMBEDDING_NORM,     offsetof(ModelConfig, embedding_norm)},
      {LEARNED_POSITIONS,  offsetof(ModelConfig, learned_positions)},
      {NORMS_PLAIN,        offsetof(ModelConfig, norms_plain)},
      {QK_NORM_AFTER_ROPE, offsetof(ModelConfig, qk_norm_after_rope)},
      {V_NORM,             offsetof(ModelConfig, v_norm)},
      {SCALED_LAYERS,      offsetof(ModelConfig, layer_scalar)},
      {ATTN_SINKS,         offsetof(ModelConfig, attn_sinks)},
      /* clang-format on */
  };
  for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
    *(bool *)((char *)config + copied[i].member) = has(arch, copied[i].trait);
  bool post_norm = true, qk_norm = true, parallel = has(arch, PARALLEL);
  if (has(arch, POST_NORM)) TRY(reader_bool(r, "use_post_norm", true, &post_norm));
  TRY(check_fixed(r, arch));
  if (has(arch, NO_CLIP)) TRY(reader_refuse_given(r, "clip_qkv"));
  if (has(arch, CLIP)) TRY(parse_cap(r, "clip_qkv", 0, &config->qkv_clip));
  if (has(arch, PARALLEL_KEY)) TRY(reader_bool(r, "use_parallel_residual", parallel, &parallel));
  if (parallel) config->parallel = has(arch, PARALLEL_NORMS) ? PARALLEL_TWO_NORMS : PARALLEL_ONE_NORM;
  if (has(arch, QK_LAYERNORM)) TRY(reader_bool(r, "qk_layernorm", false, &qk_norm));
  if (has(arch, USE_QK_NORM)) TRY(reader_bool(r, "use_qk_norm", has(arch, QK_NORM_USUAL), &qk_norm));
  if (has(arch, USE_QK_NORM) && qk_norm && arch->qk_norm == QK_NORM_NONE)
    return reader_refuse(r, "use_qk_norm is true, which is not supported in %s, expected false",
                         config->architecture);
  config->norm = arch->norm;
  config->norms = post_norm ? arch->norms : NORM_BEFORE;
  config->qk_norm = qk_norm ? arch->qk_norm : QK_NORM_NONE;
  config->names = arch->names;
  config->attn_gate = arch->attn_gate;
  config->fused = arch->fused;
  if (has(arch, MULTI_QUERY)) TRY(parse_multi_query(r, config));
  TRY(reader_double(r, "rms_norm_eps", 0, 1, arch->norm_eps, &config->norm_eps));
  if (has(arch, MAY_BE_RMS) && json_member(r->object, "rms_norm_eps")) {
    ConfigReader unnamed = *r;
    unnamed.names = NULL;
    config->norm = NORM_RMS;
    TRY(reader_double(&unnamed, "rms_norm_eps", 0, 1, 0, &config->norm_eps));
  }
  TRY(parse_activation(r, arch, config));
  TRY(parse_biases(r, arch, config));
  return parse_factors(r, arch, config);
}

/* --- special tokens */

/* Reads bos_token_id, and eos_token_id, a number or a list of them; absent members change nothing. */
static Status parse_tokens(const ConfigReader *r, ModelConfig *config) {
  const Json *value = json_member(r->object, "eos_token_id");
  TRY(reader_int(r, "bos_token_id", -1, INT32_MAX, config->bos, &config->bos));
  if (!value) return STATUS_OK;
  bool list = json_is_array(value);
  config->n_eos = 0;
  for (const Json *item = list ? json_first(value) : value; item; item = list ? json_next(item) : NULL) {
    int64_t id;
    if (!json_int64(item, &id) || id < 0 || id > INT32_MAX)
      return reader_expected(r, list ? "an id of eos_token_id" : "eos_token_id", item,
                             list ? "a token id" : "a token id or a list of them");
    if (config->n_eos == MAX_EOS)
      return reader_refuse(r, "eos_token_id has %zu ids, expected at most %d", json_count(value), MAX_EOS);
    config->eos[config->n_eos++] = (int32_t)id;
  }
  return STATUS_OK;
}

static Status parse_special_tokens(const ConfigReader *r, const Architecture *arch, ModelConfig *config) {
  config->bos = reader_is_null(r, "bos_token_id") ? -1 : arch->bos;
  config->n_eos = 0;
  if (arch->eos >= 0 && (arch->more_eos[0] || !reader_is_null(r, "eos_token_id")))
    config->eos[config->n_eos++] = arch->eos;
  for (int i = 0; i < 2 && arch->more_eos[i]; i++) config->eos[config->n_eos++] = arch->more_eos[i];
  return parse_tokens(r, config);
}

/* --- generation_config.json */

static Status parse_generation(const ConfigReader *r, ModelConfig *config) {
  GenerationDefaults *g = &config->generation;
  TRY(reader_bool(r, "do_sample", false, &g->do_sample));
  TRY(reader_double(r, "temperature", 0, 1e3, 1, &g->temperature));
  TRY(reader_int(r, "top_k", -1, INT32_MAX, 0, &g->top_k));
  if (g->top_k < 0) g->top_k = 0;
  TRY(reader_double(r, "top_p", 0, 1, 1, &g->top_p));
  TRY(reader_double(r, "min_p", 0, 1, 0, &g->min_p));
  TRY(reader_double(r, "repetition_penalty", 1e-3, 1e3, 1, &g->repetition_penalty));
  return parse_tokens(r, config);
}

/* --- files */

/* Finds quantization_config in the config or in its text_config; else compression_config in the config (the
 * old name in compressed-tensors). If all are absent, MLX's `quantization` with bits is refused. */
static Status find_quantization(const ConfigReader *r, const ConfigReader *text, ConfigReader *quant) {
  TRY(reader_object(r, "quantization_config", quant));
  if (!quant->object) TRY(reader_object(text, "quantization_config", quant));
  if (!quant->object) TRY(reader_object(r, "compression_config", quant));
  const Json *other = json_member(r->object, "quantization");
  if (quant->object || !json_is_object(other) || !json_member(other, "bits")) return STATUS_OK;
  TRY(reader_object(r, "quantization", quant));
  return quantization_refuse_nameless(quant);
}

Status config_parse_text(const ConfigReader *text, const Architecture *arch, ModelConfig *config) {
  ConfigReader r = *text;
  r.names = arch->keys;
  TRY(parse_sizes(&r, arch, config));
  TRY(parse_arithmetic(&r, arch, config));
  TRY(config_parse_positions(&r, arch, config));
  TRY(config_parse_experts(&r, arch, config));
  return arch->last ? arch->last(&r, arch, config) : STATUS_OK;
}

Status config_parse_quantization(const ConfigReader *r, const ConfigReader *text, ModelConfig *config) {
  ConfigReader quant;
  TRY(find_quantization(r, text, &quant));
  return quant.object ? quantization_parse(&quant, NULL, &config->quant) : STATUS_OK;
}

static Status parse_config(const ConfigReader *r, ModelConfig *config) {
  const Architecture *arch = NULL;
  ConfigReader text;
  config->generation =
      (GenerationDefaults){.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repetition_penalty = 1};
  TRY(config_refuse_draft(r));
  TRY(choose_architecture(r, &text, &arch, config));
  TRY(config_parse_text(&text, arch, config));
  TRY(reader_bool(&text, "tie_word_embeddings", has(arch, TIED), &config->tied_embeddings));
  if (arch->layers == config_parse_short_conv && !has(arch, SANDWICH)) /* takes precedence */
    TRY(reader_bool(&text, "tie_embedding", config->tied_embeddings, &config->tied_embeddings));
  TRY(parse_special_tokens(&text, arch, config));
  /* As in transformers, the lm_heads of Command A Vision and Aya Vision do not scale logits. */
  if (config->text_part && arch->logit_scale != 0) config->logit_divisor = 1;
  if (config->text_part) { /* these members of a multimodal model's config override its text_config */
    TRY(reader_bool(r, "tie_word_embeddings", config->tied_embeddings, &config->tied_embeddings));
    TRY(parse_tokens(r, config));
  }
  return config_parse_quantization(r, &text, config);
}

Status config_limit_rules(const char *file, ModelConfig *config, Error *err) {
  size_t n = 0;
  int n_in, n_out;
  for (int layer = 0; layer < config->n_layers; layer++) {
    n += N_EXPERT_LINEARS * (size_t)config_layer(config, layer).n_experts;
    for (int which = 0; which < N_LAYER_LINEARS; which++) n += layer_linear_exists(config, layer, which);
  }
  for (int which = 0; which < N_MODEL_LINEARS; which++) {
    model_linear_sizes(config, which, &n_in, &n_out);
    n += n_out > 0;
  }
  return quantization_limit(&config->quant, n, file, err);
}

Status config_parse(const char *name, const char *text, size_t size, ModelConfig *config, Error *err) {
  *config = (ModelConfig){0};
  OWNED(json_release) Json *tree = NULL;
  ConfigReader r;
  TRY(reader_open(name, text, size, &tree, &r, err));
  TRY(parse_config(&r, config));
  return config_limit_rules(name, config, err);
}

typedef enum { CONFIG_FILE, AWQ_FILE, GPTQ_FILE, MODELOPT_FILE, GENERATION_FILE } ConfigFile;

/* In the order of reading. A file with a `method` says how weights are quantised. It is read only if no
 * earlier file says this; `method` is the default of its quant_method. */
static const struct {
  const char *name, *method;
} files[] = {[CONFIG_FILE] = {"config.json", NULL},
             [AWQ_FILE] = {"quant_config.json", "awq"},
             [GPTQ_FILE] = {"quantize_config.json", "gptq"},
             [MODELOPT_FILE] = {"hf_quant_config.json", "modelopt"},
             [GENERATION_FILE] = {"generation_config.json", NULL}};

static Status load_file(const char *path, ConfigFile kind, ModelConfig *config, Error *err) {
  OWNED(file_unmap) MappedFile file = {0};
  OWNED(json_release) Json *tree = NULL;
  ConfigReader r;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  TRY(reader_open(path, (const char *)file.data, file.size, &tree, &r, err));
  if (kind == GENERATION_FILE) return parse_generation(&r, config);
  TRY(kind == CONFIG_FILE ? parse_config(&r, config)
                          : quantization_parse(&r, files[kind].method, &config->quant));
  ContentHash content;
  TRY(content_of_bytes(file.data, file.size, 1, NULL, &content, err));
  content_add(&config->content, content);
  return STATUS_OK;
}

Status config_load(const char *directory, ModelConfig *config, Error *err) {
  *config = (ModelConfig){0};
  for (int kind = CONFIG_FILE; kind <= GENERATION_FILE; kind++) {
    if (files[kind].method && config->quant.given) continue;
    OWNED(mem_release) char *path = path_join(directory, files[kind].name, err);
    if (!path) return STATUS_FAILED;
    if (kind == CONFIG_FILE || file_is_named(path)) TRY(load_file(path, (ConfigFile)kind, config, err));
  }
  return config_limit_rules(directory, config, err);
}

void config_release(ModelConfig *config) {
  quantization_release(&config->quant);
  free(config->layers);
  *config = (ModelConfig){0};
}
