/* draft.c - config.json of drafters as they are published: EAGLE-3, DFlash, Gemma 4's assistants.
 *
 * Sources: SafeAILab/EAGLE eagle/model/cnets.py and configs of EAGLE-3 checkpoints; vllm-project/speculators
 * models/eagle3 and models/dflash/config.py; z-lab/dflash dflash/model.py; transformers 5.23
 * gemma4_assistant/configuration_gemma4_assistant.py.
 * Always true: after config_fit_draft() each of DraftConfig.states is 1 .. the target's number of layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/config/architectures.h"

const char *draft_kind_name(DraftKind kind) {
  static const char *const names[] = {[DRAFT_NONE] = "no drafter",
                                      [DRAFT_EAGLE3] = "EAGLE-3",
                                      [DRAFT_DFLASH] = "DFlash",
                                      [DRAFT_MTP] = "multi-token prediction",
                                      [DRAFT_ASSISTANT] = "Gemma 4 assistant"};
  return names[kind];
}

/* --- which kind it is */

/* Checkpoints of vllm-project/speculators name the kind; others have a member or model_type of their own. */
static Status find_kind(const ConfigReader *r, DraftKind *kind) {
  static const char *const names[] = {"eagle3", "dflash", NULL};
  static const DraftKind kinds[] = {DRAFT_EAGLE3, DRAFT_DFLASH, DRAFT_NONE};
  const char *type;
  int which;
  TRY(reader_choice(r, "speculators_model_type", names, 2, &which));
  TRY(reader_string(r, "model_type", &type));
  *kind = kinds[which];
  if (*kind) return STATUS_OK;
  if (json_member(r->object, "draft_vocab_size")) *kind = DRAFT_EAGLE3;
  if (json_member(r->object, "dflash_config")) *kind = DRAFT_DFLASH;
  if (type && (strcmp(type, "gemma4_assistant") == 0 || strcmp(type, "gemma4_unified_assistant") == 0))
    *kind = DRAFT_ASSISTANT;
  return STATUS_OK;
}

Status config_refuse_draft(const ConfigReader *r) {
  DraftKind kind;
  TRY(find_kind(r, &kind));
  if (kind == DRAFT_NONE) return STATUS_OK;
  return reader_refuse(
      r, "this is a drafter (%s): name the model that it drafts for with -m, and it with --draft",
      draft_kind_name(kind));
}

/* --- members */

/* Reads a list of the target's layers whose outputs are the states. plus: 1 if the list counts layers from 0,
 * 0 if it counts them from 1. */
static Status parse_states(const ConfigReader *r, const char *key, int plus, DraftConfig *draft) {
  const Json *list = json_member(r->object, key);
  if (!list) return STATUS_OK;
  if (!json_is_array(list) || json_count(list) < 1 || json_count(list) > MAX_DRAFT_STATES)
    return reader_expected(r, key, list, "a list of 1 to 8 numbers of layers");
  draft->n_states = 0;
  for (const Json *item = json_first(list); item; item = json_next(item)) {
    int64_t id;
    if (!json_int64(item, &id) || id < 0 || id > MAX_LAYERS || id + plus < 1)
      return reader_expected(r, key, item, "numbers of the target's layers");
    draft->states[draft->n_states++] = (int)id + plus;
  }
  return STATUS_OK;
}

/* Reads the target's name, if speculators has written one. */
static Status parse_target_name(const ConfigReader *r, DraftConfig *draft) {
  ConfigReader speculators, verifier;
  const char *name;
  TRY(reader_object(r, "speculators_config", &speculators));
  TRY(reader_object(&speculators, "verifier", &verifier));
  TRY(reader_string(&verifier, "name_or_path", &name));
  if (name) snprintf(draft->target, sizeof draft->target, "%.100s", name);
  return STATUS_OK;
}

/* Finds the object with the sizes of the layers: the member `key`, or the whole config if that member is
 * absent. *arch: the layers' architecture; NULL: not known. */
static Status enter_layers(const ConfigReader *r, const char *key, ConfigReader *layers,
                           const Architecture **arch) {
  const char *type;
  TRY(reader_object(r, key, layers));
  if (!layers->object) *layers = *r;
  TRY(reader_string(layers, "model_type", &type));
  *arch = type ? architecture_of_type(type) : NULL;
  return STATUS_OK;
}

/* Finds the layers of EAGLE-3 or DFlash: Llama's or Qwen3's. parse_dflash() then refuses Llama's. */
static Status enter_plain_layers(const ConfigReader *r, ConfigReader *layers, const Architecture **arch) {
  TRY(enter_layers(r, "transformer_layer_config", layers, arch));
  if (*arch && (strcmp((*arch)->model_type, "llama") == 0 || strcmp((*arch)->model_type, "qwen3") == 0))
    return STATUS_OK;
  return reader_expected(layers, "model_type", json_member(layers->object, "model_type"),
                         "llama or qwen3: layers of other drafters are not supported");
}

static Status parse_eagle3(const ConfigReader *r, ModelConfig *config) {
  static const char states[] = "eagle_aux_hidden_state_layer_ids";
  DraftConfig *draft = &config->draft;
  const Architecture *arch;
  ConfigReader layers, inner;
  bool whole, each;
  TRY(enter_plain_layers(r, &layers, &arch));
  TRY(config_parse_text(&layers, arch, config));
  draft->target_vocab = config->vocab_size;
  TRY(reader_int(r, "draft_vocab_size", 1, config->vocab_size, config->vocab_size, &config->vocab_size));
  TRY(reader_int(r, "target_hidden_size", 1, MAX_HIDDEN, config->hidden, &draft->target_hidden));
  TRY(reader_object(r, "eagle_config", &inner));
  TRY(parse_states(&inner, states, 0, draft));
  TRY(parse_states(r, states, 0, draft));
  TRY(reader_bool(r, "norm_before_residual", false, &draft->norm_before_residual));
  TRY(reader_bool(r, "norm_output", false, &draft->norm_output));
  TRY(reader_bool(r, "norm_before_fc", false, &whole));
  TRY(reader_bool(r, "fc_norm", false, &each));
  if (whole && each)
    return reader_refuse(r, "norm_before_fc and fc_norm are both true, expected at most one of them");
  draft->states_norm = whole ? STATES_NORM_WHOLE : each ? STATES_NORM_EACH : STATES_AS_THEY_ARE;
  return config_parse_quantization(r, &layers, config);
}

static Status parse_block(const ConfigReader *r, const ConfigReader *inner, DraftConfig *draft) {
  const ConfigReader *with_block = json_member(r->object, "block_size") ? r : inner,
                     *with_mask = json_member(inner->object, "mask_token_id") ? inner : r;
  TRY(reader_int(with_block, "block_size", 2, MAX_DRAFT_BLOCK, 0, &draft->block));
  if (draft->block == 0) return reader_refuse(r, "block_size is missing, expected 2 to %d", MAX_DRAFT_BLOCK);
  TRY(reader_int(with_mask, "mask_token_id", 0, INT32_MAX, -1, &draft->mask_id));
  return draft->mask_id >= 0 ? STATUS_OK : reader_refuse(r, "mask_token_id is missing, expected a token id");
}

static Status parse_dflash(const ConfigReader *r, ModelConfig *config) {
  DraftConfig *draft = &config->draft;
  const Architecture *arch;
  ConfigReader layers, inner;
  bool from_anchor;
  TRY(enter_plain_layers(r, &layers, &arch));
  TRY(config_parse_text(&layers, arch, config));
  if (config->qk_norm != QK_NORM_HEADS)
    return reader_expected(&layers, "model_type", json_member(layers.object, "model_type"), "qwen3");
  for (int i = 0; i < config->n_layers; i++)
    if (config_layer(config, i).window > 0)
      return reader_refuse(&layers, "layer %d has a sliding window, which is not supported in DFlash", i);
  draft->target_hidden = config->hidden;
  draft->target_vocab = config->vocab_size;
  TRY(reader_int(r, "draft_vocab_size", 1, config->vocab_size, config->vocab_size, &config->vocab_size));
  TRY(reader_int(r, "target_hidden_size", 1, MAX_HIDDEN, config->hidden, &draft->target_hidden));
  TRY(reader_object(r, "dflash_config", &inner));
  TRY(reader_bool(r, "sample_from_anchor", false, &from_anchor));
  if (from_anchor) return reader_refuse(r, "sample_from_anchor is not supported");
  TRY(parse_block(r, &inner, draft));
  TRY(parse_states(&inner, "target_layer_ids", 1, draft));
  TRY(parse_states(r, "aux_hidden_state_layer_ids", 0, draft));
  if (draft->n_states == 0)
    return reader_refuse(r, "target_layer_ids of dflash_config are missing, expected numbers of layers");
  TRY(reader_int(r, "num_target_layers", 1, MAX_LAYERS, 0, &draft->target_layers));
  return config_parse_quantization(r, &layers, config);
}

static Status parse_assistant(const ConfigReader *r, ModelConfig *config) {
  DraftConfig *draft = &config->draft;
  const Architecture *arch;
  ConfigReader text;
  bool ordered;
  TRY(reader_object(r, "text_config", &text));
  if (!text.object) return reader_refuse(r, "text_config is missing, expected the config of its layers");
  TRY(enter_layers(r, "text_config", &text, &arch));
  if (!arch || strncmp(arch->model_type, "gemma4", 6) != 0)
    return reader_expected(&text, "model_type", json_member(text.object, "model_type"),
                           "gemma4_text or gemma4_unified_text");
  TRY(reader_bool(r, "use_ordered_embeddings", false, &ordered));
  if (ordered)
    return reader_refuse(r, "use_ordered_embeddings is not supported: its logits are those of some clusters "
                            "of tokens alone");
  TRY(config_parse_text(&text, arch, config));
  if (config->experts.n_experts > 0) return reader_refuse(&text, "experts are not supported in an assistant");
  draft->target_vocab = config->vocab_size;
  TRY(reader_int(r, "backbone_hidden_size", 1, MAX_HIDDEN, 1536, &draft->target_hidden));
  draft->n_states = 1;
  return config_parse_quantization(r, &text, config);
}

/* Fills all that the file says. *is_draft false: the file is not a drafter's, and nothing is filled. */
static Status parse_draft(const ConfigReader *r, ModelConfig *config, bool *is_draft) {
  DraftConfig *draft = &config->draft;
  TRY(find_kind(r, &draft->kind));
  *is_draft = draft->kind != DRAFT_NONE;
  if (!*is_draft) return STATUS_OK;
  snprintf(config->architecture, sizeof config->architecture, "%s", draft_kind_name(draft->kind));
  TRY(parse_target_name(r, draft));
  if (draft->kind == DRAFT_EAGLE3) return parse_eagle3(r, config);
  return draft->kind == DRAFT_DFLASH ? parse_dflash(r, config) : parse_assistant(r, config);
}

/* --- whether it fits a target */

static Status fit_number(const char *file, const char *what, int found, int expected, Error *err) {
  if (found == expected) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s: it drafts for another model: one with %s %d, while this one has %d", file, what,
                   found, expected);
}

/* Sets kv_layer of each layer of an assistant: the target's last layer of the same kind (with a window or
 * without) that has keys and values of its own. Sets n_kv_heads to that layer's. Refuses a target whose layer
 * does not fit. */
static Status fit_layers(const char *file, const ModelConfig *target, ModelConfig *config, Error *err) {
  for (int i = 0; i < config->n_layers; i++) {
    LayerConfig *layer = &config->layers[i];
    const LayerConfig own = config_layer(config, i);
    int from = target->n_layers - 1;
    LayerConfig other = {0};
    for (; from >= 0; from--) {
      other = config_layer(target, from);
      if (!other.shares_kv && other.kind == LAYER_ATTENTION && (other.window > 0) == (own.window > 0)) break;
    }
    if (from < 0 || other.head_dim != own.head_dim || config->n_heads % other.n_kv_heads != 0 ||
        other.window != own.window)
      return error_set(err, STATUS_MODEL,
                       "%s: it drafts for another model: its layer %d attends with heads of %d numbers and a "
                       "window of %d to keys of the target, which has no such layer",
                       file, i, own.head_dim, own.window);
    layer->kv_layer = from;
    layer->n_kv_heads = other.n_kv_heads;
  }
  return STATUS_OK;
}

Status config_fit_draft(const char *file, const ModelConfig *target, ModelConfig *config, Error *err) {
  DraftConfig *draft = &config->draft;
  if (norms_are_centred(target))
    return error_set(err, STATUS_MODEL,
                     "%s: it takes states of %s, whose norms subtract the mean, which is not supported", file,
                     target->architecture);
  if (target->altup.n > 0)
    return error_set(err, STATUS_MODEL,
                     "%s: drafters that read a model's states are not supported with AltUp, which %s has",
                     file, target->architecture);
  TRY(fit_number(file, "a hidden_size of", draft->target_hidden, target->hidden, err));
  TRY(fit_number(file, "a vocab_size of", draft->target_vocab, target->vocab_size, err));
  if (draft->target_layers) TRY(fit_number(file, "layers:", draft->target_layers, target->n_layers, err));
  const int n = target->n_layers;
  if (draft->n_states == 0 && n < 7) /* 2, n / 2 and n - 3 would not be three different layers */
    return error_set(
        err, STATUS_MODEL,
        "%s: it drafts for another model: it takes the states after 2, L / 2 and L - 3 layers, while "
        "this one has %d layers in all",
        file, n);
  if (draft->n_states == 0) {
    draft->n_states = 3;
    draft->states[0] = 2;
    draft->states[1] = n / 2;
    draft->states[2] = n - 3;
  }
  /* The state after the last layer is refused, too: some programs take it before the final norm, others after
   * it. */
  for (int i = 0; i < draft->n_states && !draft_joins(draft); i++)
    if (draft->states[i] < 1 || draft->states[i] >= n)
      return error_set(err, STATUS_MODEL,
                       "%s: it drafts for another model: it takes the state after %d layers, while this one "
                       "has %d layers in all",
                       file, draft->states[i], n);
  if (draft_joins(draft)) draft->states[0] = n;
  if (draft->kind == DRAFT_DFLASH && draft->mask_id >= target->vocab_size)
    return error_set(err, STATUS_MODEL, "%s: mask_token_id is %d, expected at most %d", file, draft->mask_id,
                     target->vocab_size - 1);
  return draft->kind == DRAFT_ASSISTANT ? fit_layers(file, target, config, err) : STATUS_OK;
}

/* --- files */

typedef struct {
  MappedFile file;
  Json *tree;
  ConfigReader reader;
} OpenConfig; /* starts zeroed; close it also after a failure */

static Status open_config(const char *directory, OpenConfig *c, Error *err) {
  OWNED(mem_release) char *path = path_join(directory, "config.json", err);
  if (!path) return STATUS_FAILED;
  TRY(file_map(path, STATUS_MODEL, &c->file, err));
  return reader_open(c->file.path, (const char *)c->file.data, c->file.size, &c->tree, &c->reader, err);
}

static void close_config(OpenConfig *c) {
  json_free(c->tree);
  file_unmap(&c->file);
}

static Status load(const OpenConfig *c, const char *directory, const ModelConfig *target, ModelConfig *config,
                   Error *err) {
  bool is_draft;
  TRY(parse_draft(&c->reader, config, &is_draft));
  if (!is_draft)
    return error_set(err, STATUS_MODEL,
                     "%s: config.json is not that of an EAGLE-3, DFlash or Gemma 4 drafter", directory);
  TRY(config_limit_rules(c->file.path, config, err));
  return target ? config_fit_draft(c->file.path, target, config, err) : STATUS_OK;
}

Status config_load_draft(const char *directory, const ModelConfig *target, ModelConfig *config, Error *err) {
  OWNED(close_config) OpenConfig c = {.tree = NULL};
  *config = (ModelConfig){0};
  TRY(open_config(directory, &c, err));
  return load(&c, directory, target, config, err);
}

Status config_is_draft(const char *directory, bool *is_draft, Error *err) {
  OWNED(close_config) OpenConfig c = {.tree = NULL};
  DraftKind kind = DRAFT_NONE;
  *is_draft = false;
  TRY(open_config(directory, &c, err));
  TRY(find_kind(&c.reader, &kind));
  *is_draft = kind != DRAFT_NONE;
  return STATUS_OK;
}
