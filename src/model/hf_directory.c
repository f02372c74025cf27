/* hf_directory.c - a Hugging Face directory becomes a Model: which tensor is which, and whether it is what
 * the config says.
 *
 * Called by: model.c.   Calls: config.c, layers.c, weight_files.c.
 * Names are those of transformers, which its models agree in (layers.c). A linear layer is quantised where its qweight is there and dense where its
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

/* A bias that the config does not ask for is there or not, as the checkpoint was made. */
static Status take_bias(Loader *loader, bool required, Linear *linear) {
  if (!required && !hf_find(loader, linear->name, ".bias")) return STATUS_OK;
  return take_vector(loader, linear->name, ".bias", linear->n_out, &linear->bias);
}

/* All linear layers: the matrices that are stored, and of those that hold several layers their parts. */
static Status take_linears(Loader *loader, ModelLayer *layer) {
  const ModelConfig *config = &loader->model->config;
  Linear whole[N_LAYER_LINEARS];
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    const StoredLinear stored = layer_linear_stored(config, which);
    Linear *linear = layer_linear(layer, which);
    int n_in, n_out;
    layer_linear_sizes(config, which, &n_in, &n_out);
    if (stored.first_part == which) {
      whole[which] = (Linear){.n_in = n_in, .n_out = stored.n_out, .name = linear->name};
      TRY(take_weight(loader, &whole[which]));
      TRY(take_bias(loader, layer_linear_needs_bias(config, which), &whole[which]));
    }
    *linear = whole[stored.first_part];
    if (n_out < stored.n_out) TRY(linear_cut(linear, stored.first, n_out, loader->files->path, loader->err));
  }
  return STATUS_OK;
}

/* --- the model */

static Status take_layer(Loader *loader, int index) {
  const ModelConfig *config = &loader->model->config;
  ModelLayer *layer = &loader->model->layers[index];
  TRY(take_linears(loader, layer));
  for (int which = 0; which < N_LAYER_NORMS; which++) {
    char base[NAME_SIZE];
    int width;
    const char *name = layer_norm_name(config, which, &width);
    if (!name) continue;
    snprintf(base, sizeof base, "%slayers.%d.%s", loader->body, index, name);
    TRY(take_norm(loader, base, ".weight", width, layer_norm_of(layer, which)));
  }
  return STATUS_OK;
}

static Status take_embedding(Loader *loader) {
  Model *model = loader->model;
  char name[NAME_SIZE];
  snprintf(name, sizeof name, "%sembed_tokens.weight", loader->body);
  const int64_t shape[] = {model->config.vocab_size, model->config.hidden};
  StoredTensor *tensor = hf_find(loader, name, "");
  if (!tensor) return hf_missing(loader, name, "", "");
  TRY(hf_check_shape(loader, tensor, 2, shape, ""));
  TRY(hf_check_float(loader, tensor));
  model->embedding =
      (Matrix){hf_use(loader, tensor), tensor->dtype, model->config.vocab_size, model->config.hidden};
  return STATUS_OK;
}

/* A tied head is the embedding, whatever else the file holds under its name: so transformers 4 has it. The text
 * part of several has a head of its own where there is one: configs of those say "tied" of themselves, or
 * nothing. */
static Status take_head(Loader *loader) {
  Model *model = loader->model;
  Linear *head = &model->head;
  *head = (Linear){.kind = LINEAR_DENSE, .n_in = model->config.hidden, .n_out = model->config.vocab_size};
  if (model->config.text_part && hf_find(loader, loader->head, ".weight"))
    model->config.tied_embeddings = false;
  if (model->config.tied_embeddings) {
    head->name = "model.embed_tokens";
    head->weight = model->embedding.data;
    head->dtype = model->embedding.dtype;
    return STATUS_OK;
  }
  head->name = loader->head;
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
  char name[NAME_SIZE];
  snprintf(name, sizeof name, "%snorm.weight", loader->body);
  TRY(take_norm(loader, name, "", model->config.hidden, &model->final_norm));
  return take_head(loader);
}

/* What the names of the text part begin with: by itself; beside other parts as transformers 4.51 saves it, and
 * as later ones do. */
static void find_names(Loader *loader) {
  static const struct {
    const char *body, *head;
  } names[] = {{"model.", "lm_head"},
               {"language_model.model.", "language_model.lm_head"},
               {"model.language_model.", "lm_head"}};
  size_t n = loader->model->config.text_part ? sizeof names / sizeof *names : 1;
  for (size_t i = n; i-- > 0;) {
    loader->body = names[i].body;
    loader->head = names[i].head;
    if (hf_find(loader, loader->body, "embed_tokens.weight")) return;
  }
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
  if (status == STATUS_OK) find_names(&loader);
  if (status == STATUS_OK) status = model_make_layers(model, loader.body, err);
  if (status == STATUS_OK) status = take_everything(&loader);
  if (status == STATUS_OK) status = find_tokenizer(model, path, overrides, err);
  if (status == STATUS_OK && !model->tokenizer_path) status = sentencepiece_refuse(path, err);
  free(config_path);
  return status;
}
