/* hf_draft.c - opens a drafter: a directory of its own, or the multi-token prediction layer of a checkpoint.
 *
 * Layouts: models.md, "Drafters". Always true: every tensor of a drafter's directory is used or
 * is_of_no_use(): an unknown tensor could change what a drafter computes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/config/architectures.h"
#include "model/files/hf_tensors.h"

/* --- vocabulary */

/* Takes d2t: what is added to the drafter's ids to get the target's. Optional if both know all tokens. */
static Status take_ids(HfLoader *loader) {
  Model *model = loader->model;
  const int n = model->config.vocab_size, n_target = model->config.draft.target_vocab;
  StoredTensor *tensor = hf_find(loader, "d2t", "");
  if (!tensor && n == n_target) return STATUS_OK;
  if (!tensor) return hf_missing(loader, "d2t", "", ": it says which tokens the drafter knows");
  TRY(hf_check_shape(loader, tensor, 1, (int64_t[]){n}, ""));
  if (tensor->dtype != DTYPE_I64)
    return error_set(loader->err, STATUS_MODEL, "%s: tensor d2t is %s, expected I64", tensor->file,
                     tensor->dtype_name);
  const unsigned char *data = hf_use(loader, tensor);
  int32_t *ids = mem_alloc((size_t)n, sizeof *ids, "ids of the drafter", loader->err);
  if (!(model->draft.target_ids = ids)) return STATUS_FAILED;
  for (int i = 0; i < n; i++) {
    int64_t more;
    memcpy(&more, data + (size_t)i * sizeof more, sizeof more);
    if (more < -i || more >= n_target - i)
      return error_set(loader->err, STATUS_MODEL,
                       "%s: tensor d2t: element %d is %" PRId64 ", expected a token of the target, %d to %d",
                       tensor->file, i, more, -i, n_target - 1 - i);
    ids[i] = i + (int32_t)more;
  }
  return STATUS_OK;
}

/* Takes the embedding of EAGLE-3 or DFlash: the drafter's own, else the target's, which must be as wide. */
static Status take_embedding(HfLoader *loader, const Model *target) {
  Model *model = loader->model;
  const ModelConfig *config = &model->config;
  if (hf_find(loader, "embed_tokens.weight", ""))
    return hf_table_take(loader, (StoredTable){"embed_tokens", config->draft.target_vocab, config->hidden},
                         &model->embedding);
  if (config->hidden != target->embedding.n_columns)
    return hf_missing(loader, "embed_tokens", ".weight",
                      ", and the target's embedding has another width than the drafter");
  model->embedding = target->embedding;
  model->config.embedding_scale = target->config.embedding_scale;
  return STATUS_OK;
}

static Status take_head(HfLoader *loader, const Model *target) {
  Model *model = loader->model;
  ModelConfig *config = &model->config;
  if (hf_has_linear(loader, "lm_head")) {
    model->head.name = "lm_head";
    model->head.n_in = config->hidden, model->head.n_out = config->vocab_size;
    TRY(hf_weights_take(loader, config->vocab_size, 0, &model->head));
  } else if (config->vocab_size == target->head.n_out && config->hidden == target->head.n_in) {
    model->head = target->head;
    model->draft.target_head = true;
    config->logit_divisor = target->config.logit_divisor;
    config->logit_cap = target->config.logit_cap;
  } else {
    return hf_missing(loader, "lm_head", ".weight", ", and the target's has other sizes");
  }
  config->quant.head = model->head.kind != LINEAR_DENSE;
  return STATUS_OK;
}

/* --- the kinds */

static Status take_layers(HfLoader *loader) {
  TRY(hf_own_take(loader));
  for (int i = 0; i < loader->model->config.n_layers; i++) TRY(hf_layer_take(loader, i));
  return STATUS_OK;
}

/* EAGLE-3 and DFlash. */
static Status take_plain(HfLoader *loader, const Model *target) {
  TRY(take_layers(loader));
  TRY(take_embedding(loader, target));
  TRY(take_ids(loader));
  return take_head(loader, target);
}

static Status take_assistant(HfLoader *loader, const Model *target) {
  Model *model = loader->model;
  const ModelConfig *config = &model->config;
  Matrix tokens;
  TRY(take_layers(loader));
  TRY(hf_table_take(loader, (StoredTable){"embed_tokens", config->vocab_size, config->hidden}, &tokens));
  model->head = (Linear){.kind = LINEAR_DENSE,
                         .n_in = config->hidden,
                         .n_out = config->vocab_size,
                         .weight = tokens.data,
                         .dtype = tokens.dtype,
                         .name = "model.embed_tokens"};
  model->embedding = target->embedding;
  model->config.embedding_scale = target->config.embedding_scale;
  return STATUS_OK;
}

static Status take_multi_token(HfLoader *loader, const Model *target) {
  Model *model = loader->model;
  static const char *const others[] = {"mtp.embed_tokens.weight", "mtp.lm_head.weight",
                                       "mtp.layers.1.input_layernorm.weight"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (hf_find(loader, others[i], ""))
      return error_set(loader->err, STATUS_MODEL,
                       "%s: tensor %s is not supported: expected one layer for several tokens, with the "
                       "model's own embedding and head",
                       loader->files->path, others[i]);
  TRY(take_layers(loader));
  model->embedding = target->embedding;
  return take_head(loader, target);
}

/* Makes the config of a model's multi-token prediction layer from the model's config: one layer with
 * attention. */
static Status load_multi_token(const char *path, const ModelConfig *target, ModelConfig *config, Error *err) {
  TRY(config_load(path, config, err));
  config->n_layers = 1;
  config->layers[0] = (LayerConfig){.kind = LAYER_ATTENTION};
  config->delta = (DeltaConfig){0};
  config->draft = (DraftConfig){
      .kind = DRAFT_MTP, .target_hidden = config->hidden, .target_vocab = config->vocab_size, .n_states = 1};
  return config_fit_draft(path, target, config, err);
}

/* --- opening */

/* t2d repeats what d2t says. verifier_... are the target's own tensors, for training. The other tensors are a
 * tied lm_head, tables that are computed anew, scales of activations, and shapes. */
static bool is_of_no_use(const StoredTensor *tensor) {
  return strcmp(tensor->name, "t2d") == 0 || strncmp(tensor->name, "verifier_", 9) == 0 ||
         strcmp(tensor->name, "lm_head.weight") == 0 || name_ends_with(tensor->name, "rotary_emb.inv_freq") ||
         name_ends_with(tensor->name, "_scale") || name_ends_with(tensor->name, ".weight_shape");
}

static Status refuse_unknown(const Model *model, Error *err) {
  for (size_t i = 0; i < model_tensor_count(model); i++) {
    const StoredTensor *tensor = model_tensor(model, i);
    if (!tensor->used && !is_of_no_use(tensor))
      return error_set(
          err, STATUS_MODEL,
          "%s: tensor %s is not known in a drafter of the kind %s, so it computes something that "
          "auk does not",
          tensor->file, tensor->name, draft_kind_name(model->config.draft.kind));
  }
  return STATUS_OK;
}

static Status take_all(HfLoader *loader, const Model *target) {
  Model *model = loader->model;
  switch (model->config.draft.kind) {
  case DRAFT_MTP: return take_multi_token(loader, target);
  case DRAFT_ASSISTANT: TRY(take_assistant(loader, target)); break;
  default: TRY(take_plain(loader, target));
  }
  return refuse_unknown(model, loader->err);
}

bool model_predicts_several(const Model *model) {
  return model->layout == LAYOUT_HF_DIRECTORY && !model->dummy &&
         weight_files_find(&model->files->weights, "mtp.layers.0.input_layernorm.weight");
}

Status hf_draft_open(const char *path, const Model *target, Model *model, Error *err) {
  const bool own = strcmp(path, model_path(target)) == 0;
  model->layout = LAYOUT_HF_DIRECTORY;
  model->theta_source = model->eps_source = "config.json";
  if (own && !target->dummy && !model_predicts_several(target)) /* a dummy has opened no tensors */
    return error_set(err, STATUS_MODEL, "%s has no layer that predicts several tokens (mtp.layers.0)", path);
  TRY(own ? load_multi_token(path, &target->config, &model->config, err)
          : config_load_draft(path, &target->config, &model->config, err));
  OWNED(mem_release) char *config_path = path_join(path, "config.json", err);
  if (!config_path) return STATUS_FAILED;
  const DraftKind kind = model->config.draft.kind;
  HfLoader loader = {.model = model,
                     .files = &model->files->weights,
                     .config_path = config_path,
                     .body = kind == DRAFT_MTP         ? "mtp."
                             : kind == DRAFT_ASSISTANT ? "model."
                                                       : "",
                     .head = "lm_head",
                     .err = err};
  TRY(weight_files_open(path, &model->files->weights, err));
  model->unused_tensors = model_tensor_count(model);
  loader.midlayer = hf_find(&loader, "midlayer.input_layernorm.weight", "");
  TRY(model_make_layers(model, loader.body, err));
  return take_all(&loader, target);
}
