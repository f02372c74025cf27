/* hf_directory.c - a Hugging Face directory becomes a Model: which tensor is which, and whether it is what
 * the config says.
 *
 * Called by: model.c.   Calls: config.c, weight_files.c.
 * Names are those of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM in
 * transformers, which agree. A linear layer is quantised where its qweight is there and dense where its
 * weight is: the tensors decide, not modules_to_not_convert. No weight is read here but the norms. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/hf_tensors.h"

/* n numbers that must be there. */
static Status take_vector(Loader *loader, const char *base, const char *suffix, int64_t n, Vector *out) {
  StoredTensor *tensor = hf_find(loader, base, suffix);
  if (!tensor) return hf_missing(loader, base, suffix, "");
  TRY(hf_check_shape(loader, tensor, 1, &n, ""));
  TRY(hf_check_float(loader, tensor));
  *out = (Vector){hf_use(loader, tensor), tensor->dtype, (int)n};
  return STATUS_OK;
}

static Status take_norm(Loader *loader, const char *base, const char *suffix, int64_t n, Vector *out) {
  TRY(take_vector(loader, base, suffix, n, out));
  const StoredTensor *tensor = hf_find(loader, base, suffix);
  return check_norm(out, tensor->name, tensor->file, loader->err);
}

/* --- linear layers */

static Status take_dense(Loader *loader, StoredTensor *tensor, Linear *linear) {
  TRY(hf_check_float(loader, tensor));
  TRY(hf_check_shape(loader, tensor, 2, (int64_t[]){linear->n_out, linear->n_in}, ""));
  linear->kind = LINEAR_DENSE;
  linear->weight = hf_use(loader, tensor);
  linear->dtype = tensor->dtype;
  return STATUS_OK;
}

/* Tensors that give away another way to store a layer. */
static const struct {
  const char *suffix, *what;
} foreign[] = {
    {".g_idx", "GPTQ"},     {".weight_packed", "compressed-tensors"}, {".B", "Marlin"}, {".W_q", "HQQ"},
    {".codebooks", "AQLM"},
};

/* Tensors beside a dense-looking weight which say that it is not the weight itself. */
static const struct {
  const char *suffix, *what;
} scaled[] = {
    {".weight_scale_inv", "FP8 in blocks"},
    {".weight_scale", "FP8 or INT8 with a scale"},
    {".weight.absmax", "bitsandbytes in 4 bits"},
    {".SCB", "bitsandbytes in 8 bits"},
};

static Status refuse_foreign(const Loader *loader, const char *name) {
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    const StoredTensor *tensor = hf_find(loader, name, foreign[i].suffix);
    if (tensor)
      return error_set(
          loader->err, STATUS_MODEL,
          "%s: tensor %s: this layer looks like %s, expected AWQ (qweight, qzeros, scales) or a dense "
          "weight",
          tensor->file, tensor->name, foreign[i].what);
  }
  return hf_missing(loader, name, ".weight", " (and so is its qweight)");
}

static Status take_weight(Loader *loader, Linear *linear) {
  StoredTensor *qweight = hf_find(loader, linear->name, ".qweight"),
               *weight = hf_find(loader, linear->name, ".weight");
  if (qweight && weight)
    return error_set(loader->err, STATUS_MODEL, "%s: %s has a qweight and a weight, expected one of them",
                     qweight->file, linear->name);
  if (qweight) return hf_quantised_take(loader, qweight, linear);
  if (!weight) return refuse_foreign(loader, linear->name);
  for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
    const StoredTensor *tensor = hf_find(loader, linear->name, scaled[i].suffix);
    if (tensor)
      return error_set(loader->err, STATUS_MODEL,
                       "%s: tensor %s: this layer looks like %s, expected AWQ or dense", tensor->file,
                       tensor->name, scaled[i].what);
  }
  return take_dense(loader, weight, linear);
}

/* A bias that the architecture does not require (config.qkv_bias) is there or not, as the checkpoint was
 * made. */
static Status take_linear(Loader *loader, int which, bool bias_required, Linear *linear) {
  layer_linear_sizes(&loader->model->config, which, &linear->n_in, &linear->n_out);
  TRY(take_weight(loader, linear));
  if (!bias_required && !hf_find(loader, linear->name, ".bias")) return STATUS_OK;
  return take_vector(loader, linear->name, ".bias", linear->n_out, &linear->bias);
}

/* --- the model */

static Status take_layer(Loader *loader, int index) {
  const ModelConfig *config = &loader->model->config;
  ModelLayer *layer = &loader->model->layers[index];
  char base[NAME_SIZE];
  snprintf(base, sizeof base, "model.layers.%d", index);
  TRY(take_norm(loader, base, ".input_layernorm.weight", config->hidden, &layer->attn_norm));
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    bool qkv = which == LAYER_Q || which == LAYER_K || which == LAYER_V;
    TRY(take_linear(loader, which, config->qkv_bias && qkv, layer_linear(layer, which)));
  }
  if (config->qk_norm) {
    TRY(take_norm(loader, base, ".self_attn.q_norm.weight", config->head_dim, &layer->q_norm));
    TRY(take_norm(loader, base, ".self_attn.k_norm.weight", config->head_dim, &layer->k_norm));
  }
  return take_norm(loader, base, ".post_attention_layernorm.weight", config->hidden, &layer->mlp_norm);
}

static Status take_embedding(Loader *loader) {
  static const char name[] = "model.embed_tokens.weight";
  Model *model = loader->model;
  const int64_t shape[] = {model->config.vocab_size, model->config.hidden};
  StoredTensor *tensor = hf_find(loader, name, "");
  if (!tensor) return hf_missing(loader, name, "", "");
  TRY(hf_check_shape(loader, tensor, 2, shape, ""));
  TRY(hf_check_float(loader, tensor));
  model->embedding =
      (Matrix){hf_use(loader, tensor), tensor->dtype, model->config.vocab_size, model->config.hidden};
  return STATUS_OK;
}

/* A tied head is the embedding, whatever else the file holds under its name: so transformers has it. */
static Status take_head(Loader *loader) {
  Model *model = loader->model;
  Linear *head = &model->head;
  *head = (Linear){.kind = LINEAR_DENSE, .n_in = model->config.hidden, .n_out = model->config.vocab_size};
  if (model->config.tied_embeddings) {
    head->name = "model.embed_tokens";
    head->weight = model->embedding.data;
    head->dtype = model->embedding.dtype;
    return STATUS_OK;
  }
  head->name = "lm_head";
  StoredTensor *tensor = hf_find(loader, head->name, ".weight");
  const StoredTensor *qweight = hf_find(loader, head->name, ".qweight"),
                     *bias = hf_find(loader, head->name, ".bias");
  if (qweight)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: tensor %s: a quantised output head is not known, expected a dense "
                     "lm_head.weight",
                     qweight->file, qweight->name);
  if (bias)
    return error_set(loader->err, STATUS_MODEL, "%s: tensor %s: an output head with a bias is not known",
                     bias->file, bias->name);
  if (!tensor) {
    char why[512];
    snprintf(why, sizeof why, ", and %.400s does not say tie_word_embeddings: true", loader->config_path);
    return hf_missing(loader, head->name, ".weight", why);
  }
  return take_dense(loader, tensor, head);
}

static Status take_everything(Loader *loader) {
  Model *model = loader->model;
  TRY(take_embedding(loader));
  for (int i = 0; i < model->config.n_layers; i++) TRY(take_layer(loader, i));
  TRY(take_norm(loader, "model.norm.weight", "", model->config.hidden, &model->final_norm));
  return take_head(loader);
}

Status hf_directory_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err) {
  if (overrides->rope_theta != 0 || overrides->norm_eps != 0)
    return error_set(err, STATUS_USAGE, "%s: %s is only for packed files: a directory's config.json says it",
                     path, overrides->rope_theta != 0 ? "--rope-theta" : "--norm-eps");
  model->layout = LAYOUT_HF_DIRECTORY;
  model->theta_source = model->eps_source = "config.json";
  TRY(config_load(path, &model->config, err));
  char *config_path = path_join(path, "config.json", err);
  if (!config_path) return STATUS_FAILED;
  Loader loader = {.model = model, .files = &model->files->weights, .config_path = config_path, .err = err};
  Status status = weight_files_open(path, &model->files->weights, err);
  model->unused_tensors = model_tensor_count(model);
  if (status == STATUS_OK) status = model_make_layers(model, err);
  if (status == STATUS_OK) status = take_everything(&loader);
  if (status == STATUS_OK) status = find_tokenizer(model, path, overrides, err);
  if (status == STATUS_OK && !model->tokenizer_path) status = sentencepiece_refuse(path, err);
  free(config_path);
  return status;
}
