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

/* Finds the layers' config, the member `key` or the whole config if that member is absent, and their
 * architecture. Layers of EAGLE-3 and DFlash are Llama's or Qwen3's; parse_dflash() then refuses Llama's. */
static Status enter_layers(const ConfigReader *r, DraftKind kind, ConfigReader *layers,
                           const Architecture **arch) {
  const bool assists = kind == DRAFT_ASSISTANT;
  const char *type;
  TRY(reader_object(r, assists ? "text_config" : "transformer_layer_config", layers));
  if (!layers->object && assists)
    return reader_refuse(r, "text_config is missing, expected the config of its layers");
  if (!layers->object) *layers = *r;
  TRY(reader_string(layers, "model_type", &type));
  *arch = type ? architecture_of_type(type) : NULL;
  if (*arch &&
      (assists ? strncmp(type, "gemma4", 6) == 0 : strcmp(type, "llama") == 0 || strcmp(type, "qwen3") == 0))
    return STATUS_OK;
  return reader_expected(layers, "model_type", json_member(layers->object, "model_type"),
                         assists ? "gemma4_text or gemma4_unified_text"
                                 : "llama or qwen3: layers of other drafters are not supported");
}

/* Sizes of the target; absent members: the drafter's own. */
static Status parse_target_sizes(const ConfigReader *r, ModelConfig *config) {
  const int n = config->draft.target_vocab = config->vocab_size;
  TRY(reader_int(r, "draft_vocab_size", 1, n, n, &config->vocab_size));
  return reader_int(r, "target_hidden_size", 1, MAX_HIDDEN, config->hidden, &config->draft.target_hidden);
}

static Status parse_eagle3(const ConfigReader *r, ModelConfig *config) {
  static const char states[] = "eagle_aux_hidden_state_layer_ids";
  DraftConfig *draft = &config->draft;
  ConfigReader inner;
  bool whole, each;
  TRY(parse_target_sizes(r, config));
  TRY(reader_object(r, "eagle_config", &inner));
  TRY(parse_states(&inner, states, 0, draft));
  TRY(parse_states(r, states, 0, draft));
  TRY(reader_bool(r, "norm_before_residual", false, &draft->norm_before_residual));
  TRY(reader_bool(r, "norm_output", false, &draft->norm_output));
  TRY(reader_bool(r, "norm_before_fc", false, &whole));
  TRY(reader_bool(r, "fc_norm", false, &each));
  draft->states_norm = whole ? STATES_NORM_WHOLE : each ? STATES_NORM_EACH : STATES_AS_THEY_ARE;
  if (!whole || !each) return STATUS_OK;
  return reader_refuse(r, "norm_before_fc and fc_norm are both true, expected at most one of them");
}

static Status parse_block(const ConfigReader *r, const ConfigReader *inner, DraftConfig *draft) {
  const ConfigReader *with_block = json_member(r->object, "block_size") ? r : inner,
                     *with_mask = json_member(inner->object, "mask_token_id") ? inner : r;
  TRY(reader_int(with_block, "block_size", 2, MAX_DRAFT_BLOCK, 0, &draft->block));
  if (draft->block == 0) return reader_refuse(r, "block_size is missing, expected 2 to %d", MAX_DRAFT_BLOCK);
  TRY(reader_int(with_mask, "mask_token_id", 0, INT32_MAX, -1, &draft->mask_id));
  return draft->mask_id >= 0 ? STATUS_OK : reader_refuse(r, "mask_token_id is missing, expected a token id");
}

static Status parse_dflash(const ConfigReader *r, const ConfigReader *layers, ModelConfig *config) {
  DraftConfig *draft = &config->draft;
  ConfigReader inner;
  bool from_anchor;
  if (config->qk_norm != QK_NORM_HEADS)
    return reader_expected(layers, "model_type", json_member(layers->object, "model_type"), "qwen3");
  for (int i = 0; i < config->n_layers; i++)
    if (config_layer(config, i).window > 0)
      return reader_refuse(layers, "layer %d has a sliding window, which is not supported in DFlash", i);
  TRY(parse_target_sizes(r, config));
  TRY(reader_object(r, "dflash_config", &inner));
  TRY(reader_bool(r, "sample_from_anchor", false, &from_anchor));
  if (from_anchor) return reader_refuse(r, "sample_from_anchor is not supported");
  TRY(parse_block(r, &inner, draft));
  TRY(parse_states(&inner, "target_layer_ids", 1, draft));
  TRY(parse_states(r, "aux_hidden_state_layer_ids", 0, draft));
  if (draft->n_states == 0)
    return reader_refuse(r, "target_layer_ids of dflash_config are missing, expected numbers of layers");
  return reader_int(r, "num_target_layers", 1, MAX_LAYERS, 0, &draft->target_layers);
}

static Status parse_assistant(const ConfigReader *r, const ConfigReader *text, ModelConfig *config) {
  DraftConfig *draft = &config->draft;
  bool ordered;
  TRY(reader_bool(r, "use_ordered_embeddings", false, &ordered));
  if (ordered)
    return reader_refuse(r, "use_ordered_embeddings is not supported: its logits are those of some clusters "
                            "of tokens alone");
  if (config->experts.n_experts > 0) return reader_refuse(text, "experts are not supported in an assistant");
  draft->target_vocab = config->vocab_size;
  draft->n_states = 1;
  return reader_int(r, "backbone_hidden_size", 1, MAX_HIDDEN, 1536, &draft->target_hidden);
}

/* Fills all that the file says. PRECOND draft.kind is filled */
static Status parse_draft(const ConfigReader *r, ModelConfig *config) {
  const DraftKind kind = config->draft.kind;
  const Architecture *arch = NULL;
  ConfigReader layers;
  snprintf(config->architecture, sizeof config->architecture, "%s", draft_kind_name(kind));
  TRY(parse_target_name(r, &config->draft));
  TRY(enter_layers(r, kind, &layers, &arch));
  TRY(config_parse_text(&layers, arch, config));
  TRY(kind == DRAFT_EAGLE3   ? parse_eagle3(r, config)
      : kind == DRAFT_DFLASH ? parse_dflash(r, &layers, config)
                             : parse_assistant(r, &layers, config));
  return config_parse_quantization(r, &layers, config);
}

/* --- whether it fits a target */

#define OTHER_MODEL "it drafts for another model: "

static Status fit_number(const ConfigReader *r, const char *what, int found, int expected) {
  if (found == expected) return STATUS_OK;
  return reader_refuse(r, OTHER_MODEL "one with %s %d, while this one has %d", what, found, expected);
}

/* Sets kv_layer of each layer of an assistant: the target's last layer of the same kind (with a window or
 * without) that has keys and values of its own. Sets n_kv_heads to that layer's. Refuses a target whose layer
 * does not fit. */
static Status fit_layers(const ConfigReader *r, const ModelConfig *target, ModelConfig *config) {
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
      return reader_refuse(r,
                           OTHER_MODEL
                           "its layer %d attends with heads of %d numbers and a window of %d to keys of the "
                           "target, which has no such layer",
                           i, own.head_dim, own.window);
    layer->kv_layer = from;
    layer->n_kv_heads = other.n_kv_heads;
  }
  return STATUS_OK;
}

Status config_fit_draft(const char *file, const ModelConfig *target, ModelConfig *config, Error *err) {
  DraftConfig *draft = &config->draft;
  ConfigReader r = {.err = err};
  snprintf(r.name, sizeof r.name, "%s", file);
  if (norms_are_centred(target))
    return reader_refuse(&r, "it takes states of %s, whose norms subtract the mean, which is not supported",
                         target->architecture);
  if (target->altup.n > 0)
    return reader_refuse(&r, "drafters that read a model's states are not supported with AltUp, which %s has",
                         target->architecture);
  TRY(fit_number(&r, "a hidden_size of", draft->target_hidden, target->hidden));
  TRY(fit_number(&r, "a vocab_size of", draft->target_vocab, target->vocab_size));
  if (draft->target_layers) TRY(fit_number(&r, "layers:", draft->target_layers, target->n_layers));
  const int n = target->n_layers;
  if (draft->n_states == 0 && n < 7) /* 2, n / 2 and n - 3 would not be three different layers */
    return reader_refuse(&r,
                         OTHER_MODEL
                         "it takes the states after 2, L / 2 and L - 3 layers, while this one has %d layers "
                         "in all",
                         n);
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
      return reader_refuse(
          &r, OTHER_MODEL "it takes the state after %d layers, while this one has %d layers in all",
          draft->states[i], n);
  if (draft_joins(draft)) draft->states[0] = n;
  if (draft->kind == DRAFT_DFLASH && draft->mask_id >= target->vocab_size)
    return reader_refuse(&r, "mask_token_id is %d, expected at most %d", draft->mask_id,
                         target->vocab_size - 1);
  return draft->kind == DRAFT_ASSISTANT ? fit_layers(&r, target, config) : STATUS_OK;
}

/* --- files */

/* config NULL: fills *is_draft alone. Else refuses a file that is not a drafter's. */
static Status load(const char *directory, const ModelConfig *target, ModelConfig *config, bool *is_draft,
                   Error *err) {
  OWNED(mem_release) char *path = path_join(directory, "config.json", err);
  OWNED(file_unmap) MappedFile file = {0};
  OWNED(json_release) Json *tree = NULL;
  ConfigReader r;
  DraftKind kind;
  if (!path) return STATUS_FAILED;
  TRY(file_map(path, STATUS_MODEL, &file, err));
  TRY(reader_open(path, (const char *)file.data, file.size, &tree, &r, err));
  TRY(find_kind(&r, &kind));
  *is_draft = kind != DRAFT_NONE;
  if (!config) return STATUS_OK;
  if (!*is_draft)
    return error_set(err, STATUS_MODEL,
                     "%s: config.json is not that of an EAGLE-3, DFlash or Gemma 4 drafter", directory);
  config->draft.kind = kind;
  TRY(parse_draft(&r, config));
  TRY(config_limit_rules(path, config, err));
  return target ? config_fit_draft(path, target, config, err) : STATUS_OK;
}

Status config_load_draft(const char *directory, const ModelConfig *target, ModelConfig *config, Error *err) {
  bool is_draft;
  *config = (ModelConfig){0};
  return load(directory, target, config, &is_draft, err);
}

Status config_is_draft(const char *directory, bool *is_draft, Error *err) {
  *is_draft = false;
  return load(directory, NULL, NULL, is_draft, err);
}
