/* hf_directory.c - opens a Hugging Face directory: finds each tensor and checks it against the config.
 *
 * Tensor names are those of transformers (layers.c). Only these data are read here: vectors other than biases
 * of matrices, to check that they are finite or to join parts; lm_head's bias; and an lm_head that may be
 * tied, to compare it with the embedding. */

#include <stdlib.h>
#include <string.h>

#include "model/files/hf_tensors.h"
#include "model/names.h"

/* Takes the tensor `base` + `suffix`, of shape[rank], as a vector; refuses a checkpoint without it. */
static Status take_numbers(HfLoader *loader, const char *base, const char *suffix, int rank,
                           const int64_t *shape, Vector *out) {
  StoredTensor *tensor = hf_find(loader, base, suffix);
  if (!tensor) return hf_missing(loader, base, suffix, "");
  TRY(hf_check_shape(loader, tensor, rank, shape, ""));
  TRY(hf_check_float(loader, tensor));
  *out = (Vector){hf_use(loader, tensor), tensor->dtype, 1};
  for (int i = 0; i < rank; i++) out->n *= (int)shape[i];
  return STATUS_OK;
}

/* Makes ones as the weights of a norm without weights; all such norms share the same memory. */
static Status take_ones(HfLoader *loader, int n, Vector *out) {
  static const Linear norms = {.name = "norms without weights"};
  if (!loader->ones) {
    loader->ones = model_make_memory(loader->model, (size_t)n, sizeof *loader->ones, &norms, loader->err);
    if (!loader->ones) return STATUS_FAILED;
    for (int i = 0; i < n; i++) loader->ones[i] = 1;
  }
  loader->model->made_bytes += (size_t)n * sizeof *loader->ones; /* a GPU holds a copy for each norm */
  *out = (Vector){loader->ones, DTYPE_F32, n};
  return STATUS_OK;
}

/* take_numbers() that also refuses numbers that are not finite. */
Status hf_norm_take(HfLoader *loader, const char *base, const char *suffix, int64_t n, Vector *out) {
  TRY(take_numbers(loader, base, suffix, 1, &n, out));
  const StoredTensor *tensor = hf_find(loader, base, suffix);
  return check_finite(out->data, out->dtype, (size_t)n, 1, tensor->file, tensor->name, loader->err);
}

/* --- linear layers */

/* Takes the bias of some rows. It is copied if other rows lie between these rows. */
static Status take_bias(HfLoader *loader, StoredRows rows, bool required, Linear *linear) {
  Vector *bias = &linear->bias;
  if (!required && !hf_find(loader, linear->name, ".bias")) return STATUS_OK;
  TRY(take_numbers(loader, linear->name, ".bias", 1, (int64_t[]){rows.n_out}, bias));
  const size_t size = dtype_bytes(bias->dtype);
  const char *from = (const char *)bias->data + (size_t)rows.first * size;
  bias->data = from;
  bias->n = linear->n_out;
  if (rows.row_skip == 0) return STATUS_OK;
  char *copy = model_make_memory(loader->model, (size_t)bias->n, size, linear, loader->err);
  if (!copy) return STATUS_FAILED;
  for (size_t i = 0; i < (size_t)bias->n; i++)
    memcpy(copy + i * size, from + i * size * (size_t)(1 + rows.row_skip), size);
  bias->data = copy;
  return STATUS_OK;
}

Status hf_linear_take(HfLoader *loader, StoredRows rows, bool has_bias, Linear *linear) {
  StoredTensor *dense = rows.inputs_first ? hf_find(loader, linear->name, ".weight") : NULL;
  if (dense) {
    TRY(hf_transposed_take(loader, rows.n_out, rows.first, 1 + rows.row_skip, dense, linear));
  } else {
    TRY(hf_weights_take(loader, rows.n_out, rows.first, linear));
    linear->row_skip = rows.row_skip;
  }
  return take_bias(loader, rows, has_bias, linear);
}

/* Takes a layer's linear layers, except those of its experts. Several may be parts of one stored matrix. */
static Status take_linears(HfLoader *loader, int index) {
  const ModelConfig *config = &loader->model->config;
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    if (!layer_linear_exists(config, index, which)) continue;
    const StoredLinear stored = layer_linear_stored(config, index, which);
    const bool of_two_kinds = which == LAYER_ROUTER && config->expert_names->two_kinds;
    const StoredRows rows = {stored.n_out, stored.first, 0, config->names.inputs_first || of_two_kinds};
    TRY(hf_linear_take(loader, rows, layer_linear_needs_bias(config, index, which),
                       &loader->model->layers[index].linear[which]));
  }
  return STATUS_OK;
}

/* --- the model */

/* Reads one stored part of a joined vector into `to` as fp32 numbers. */
static Status take_part(HfLoader *loader, const char *name, const char *suffix, int rank,
                        const int64_t *shape, float *to) {
  Vector own;
  TRY(take_numbers(loader, name, suffix, rank, shape, &own));
  const StoredTensor *tensor = hf_find(loader, name, suffix);
  TRY(check_finite(own.data, own.dtype, (size_t)own.n, 1, tensor->file, tensor->name, loader->err));
  floats_read(own.data, own.dtype, 0, (size_t)own.n, to);
  return STATUS_OK;
}

/* Allocates n fp32 numbers for a vector whose parts are stored apart; *out is this vector. */
static float *make_joined(HfLoader *loader, int index, size_t n, Vector *out) {
  Model *model = loader->model;
  float *all = model_make_memory(model, n, sizeof *all, &model->layers[index].linear[0], loader->err);
  if (all) model->made_bytes += n * sizeof *all;
  *out = (Vector){all, DTYPE_F32, (int)n};
  return all;
}

/* Joins the weights of the heads' norms, a tensor for each head (StableLM 2 12B), into one vector. */
static Status take_head_norms(HfLoader *loader, int index, const char *name, int n, Vector *out) {
  const int64_t dim = config_layer(&loader->model->config, index).head_dim;
  float *all = make_joined(loader, index, (size_t)n, out);
  if (!all) return STATUS_FAILED;
  for (int i = 0; i * dim < n; i++) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".norms.%d.weight", i);
    TRY(take_part(loader, name, suffix, 1, &dim, all + i * dim));
  }
  return STATUS_OK;
}

/* Joins the taps of q's, k's and v's convolutions, which are stored apart, into one vector. */
static Status take_convolutions(HfLoader *loader, int index, int taps, Vector *out) {
  static const char *const parts[] = {"linear_attn.q_conv1d.weight", "linear_attn.k_conv1d.weight",
                                      "linear_attn.v_conv1d.weight"};
  Model *model = loader->model;
  const DeltaConfig *delta = &model->config.delta;
  const int keys = delta->n_key_heads * delta->key_dim,
            channels[] = {keys, keys, delta->n_value_heads * delta->value_dim};
  const size_t n = (size_t)delta_channels(delta) * (size_t)taps;
  float *all = make_joined(loader, index, n, out);
  if (!all) return STATUS_FAILED;
  for (int i = 0; i < 3; i++) {
    const int64_t shape[] = {channels[i], 1, taps};
    char name[NAME_SIZE];
    layer_full_name(&model->config, loader->body, index, parts[i], name, sizeof name);
    TRY(take_part(loader, name, "", 3, shape, all));
    all += channels[i] * taps;
  }
  return STATUS_OK;
}

static Status take_vectors(HfLoader *loader, int index) {
  const ModelConfig *config = &loader->model->config;
  for (int which = 0; which < N_LAYER_VECTORS; which++) {
    const StoredVector stored = layer_vector_stored(config, index, which);
    if (!stored.name) continue;
    int64_t shape[4] = {stored.n, 1, stored.taps};
    int rank = stored.taps ? 3 : 1;
    Vector *out = &loader->model->layers[index].vector[which];
    char name[NAME_SIZE];
    if (layer_vector_is_made(config, which)) {
      TRY(take_ones(loader, stored.n, out));
      continue;
    }
    layer_full_name(config, loader->body, index, stored.name, name, sizeof name);
    const StoredTensor *tensor = hf_find(loader, name, stored.suffix);
    if (!tensor && (which == LAYER_XIELU_BETA || which == LAYER_XIELU_EPS)) continue;
    if (tensor && which >= LAYER_XIELU_ALPHA_P && tensor->rank == 0) rank = 0;
    const bool centred =
        config->qk_norm == QK_NORM_CENTRED && (which == LAYER_Q_NORM || which == LAYER_K_NORM);
    if (centred && hf_find(loader, name, ".norms.0.weight")) {
      TRY(take_head_norms(loader, index, name, stored.n, out));
      continue;
    }
    if (centred) { /* Command R+ */
      const int dim = config_layer(config, index).head_dim;
      rank = 2;
      memcpy(shape, (int64_t[]){stored.n / dim, dim}, 2 * sizeof *shape);
    }
    if (which == LAYER_CHOICE_BIAS && tensor && tensor->rank == 2) { /* ERNIE 4.5 */
      rank = 2;
      shape[0] = config->expert_names->two_kinds ? 2 : 1;
      shape[1] = stored.n;
    }
    if (which == LAYER_DELTA_A_LOG && tensor && tensor->rank == 4) { /* Kimi Linear */
      rank = 4;
      memcpy(shape, (int64_t[]){1, 1, stored.n, 1}, sizeof shape);
    }
    if (which == LAYER_DELTA_CONV && config->delta.form == DELTA_APART && !tensor) {
      TRY(take_convolutions(loader, index, stored.taps, out));
      continue;
    }
    TRY(take_numbers(loader, name, stored.suffix, rank, shape, out));
    if (which == LAYER_CHOICE_BIAS) out->n = stored.n; /* only the first row: the experts for text */
    TRY(check_finite(out->data, out->dtype, (size_t)out->n, 1, tensor->file, tensor->name, loader->err));
  }
  return STATUS_OK;
}

Status hf_layer_take(HfLoader *loader, int index) {
  TRY(take_linears(loader, index));
  TRY(hf_experts_take(loader, index));
  ModelLayer *layer = &loader->model->layers[index];
  TRY(hf_order_mlp(loader, &layer->gate, &layer->up, &layer->down));
  for (int i = 0; i < config_layer(&loader->model->config, index).n_experts; i++)
    TRY(hf_order_mlp(loader, &layer->experts[i].gate, &layer->experts[i].up, &layer->experts[i].down));
  return take_vectors(loader, index);
}

Status hf_table_take(HfLoader *loader, StoredTable stored, Matrix *table) {
  char name[NAME_SIZE];
  snprintf(name, sizeof name, "%s%s", loader->body, stored.name);
  const int64_t shape[] = {stored.n_rows, stored.n_columns};
  StoredTensor *tensor = hf_find(loader, name, ".weight");
  if (!tensor && (hf_find(loader, name, ".qweight") || hf_find(loader, name, ".weight_packed")))
    return hf_missing(loader, name, ".weight", ": a quantised embedding is not supported");
  if (!tensor) tensor = hf_find(loader, name, ""); /* Molmo 2: "wte.embedding" */
  if (!tensor) return hf_missing(loader, name, ".weight", "");
  TRY(hf_check_shape(loader, tensor, 2, shape, ""));
  TRY(hf_check_float(loader, tensor));
  *table = (Matrix){hf_use(loader, tensor), tensor->dtype, stored.n_rows, stored.n_columns};
  return STATUS_OK;
}

Status hf_own_take(HfLoader *loader) {
  Model *model = loader->model;
  for (int which = MODEL_HEAD + 1; which < N_MODEL_LINEARS; which++) {
    Linear *linear = &model->linear[which];
    if (linear->n_out > 0) TRY(hf_weights_take(loader, linear->n_out, 0, linear));
  }
  for (int which = 0; which < N_MODEL_VECTORS; which++) {
    char name[LINEAR_NAME_SIZE];
    model_vector_name(&model->config, loader->body, which, name);
    const int n = model_vector_size(&model->config, which);
    if (model_vector_is_made(&model->config, which))
      TRY(take_ones(loader, n, &model->vector[which]));
    else if (n > 0)
      TRY(hf_norm_take(loader, name, "", n, &model->vector[which]));
  }
  return STATUS_OK;
}

bool hf_has_linear(const HfLoader *loader, const char *name) {
  static const char *const parts[] = {".weight", ".qweight", ".weight_packed"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (hf_find(loader, name, parts[i])) return true;
  return false;
}

/* True if the checkpoint has an lm_head that is no copy of the embedding. Such a head is used even if the
 * config ties it, as in transformers 5 (modeling_utils.py, tie_weights()). A copy is not loaded a second
 * time. */
static bool has_own_head(const HfLoader *loader) {
  const Matrix *embedding = &loader->model->embedding;
  const StoredTensor *weight = hf_find(loader, loader->head, ".weight");
  if (!weight) return hf_has_linear(loader, loader->head);
  return weight->dtype != embedding->dtype ||
         weight->bytes !=
             (size_t)embedding->n_rows * (size_t)embedding->n_columns * dtype_bytes(embedding->dtype) ||
         memcmp(weight->data, embedding->data, weight->bytes) != 0;
}

/* The checkpoint decides whether a multimodal model's head is tied: some published configs say untied
 * although there is no lm_head. */
static Status take_head(HfLoader *loader) {
  Model *model = loader->model;
  Linear *head = &model->head;
  if (model->config.tied_embeddings || model->config.text_part)
    model->config.tied_embeddings = !has_own_head(loader);
  model_set_head(model, loader->head, NULL, DTYPE_F32);
  const StoredTensor *bias = hf_find(loader, loader->head, ".bias");
  if (bias && !model->config.head_bias && !hf_is_no_bias(bias))
    return error_set(loader->err, STATUS_MODEL,
                     "%s: tensor %s: an output head with a bias, other than one of zeros, is not known",
                     bias->file, bias->name);
  if (!model->config.tied_embeddings) {
    TRY(hf_weights_take(loader, head->n_out, 0, head));
    model->config.quant.head = head->kind != LINEAR_DENSE;
  }
  return model->config.head_bias ? hf_norm_take(loader, loader->head, ".bias", head->n_out, &head->bias)
                                 : STATUS_OK;
}

static Status take_everything(HfLoader *loader) {
  Model *model = loader->model;
  for (int which = 0; which < N_MODEL_TABLES; which++) {
    const StoredTable table = model_table_stored(&model->config, which);
    if (table.n_columns > 0) TRY(hf_table_take(loader, table, &model->table[which]));
  }
  model->embedding.n_rows = model->config.vocab_size;
  model->replaced_bytes += (size_t)(config_embedding_rows(&model->config) - model->config.vocab_size) *
                           (size_t)model->config.hidden *
                           dtype_bytes(model->embedding.dtype); /* rows that are never read */
  for (int i = 0; i < model->config.n_layers; i++) TRY(hf_layer_take(loader, i));
  TRY(hf_own_take(loader));
  TRY(hf_ngrams_take(loader));
  return take_head(loader);
}

/* Finds the prefixes of tensor names. Without text_part, only the first row of names[] is tried. If no row
 * fits, the body's prefix is config.names.body or, if that is NULL, the first row's. (Nemotron-H has
 * "backbone." as published, "model." as transformers 5 saves it.) */
static void find_names(HfLoader *loader) {
  static const struct {
    const char *body, *head;
  } names[] = {
      {"model.", "lm_head"},                                /* texts; Qwen2-VL, Qwen2.5-VL */
      {"language_model.model.", "language_model.lm_head"},  /* as transformers 4.51 saves */
      {"model.language_model.", "lm_head"},                 /* as later versions do */
      {"thinker.model.", "thinker.lm_head"},                /* Qwen's Omni models */
      {"thinker.model.language_model.", "thinker.lm_head"}, /* the same */
      {"model.text_model.", "lm_head"},                     /* Idefics 3, SmolVLM, Granite Docling */
      {"model.language_model.model.", "model.language_model.lm_head"}, /* HyperCLOVA X Think */
      {"language_model.backbone.", "language_model.lm_head"},          /* Nemotron 3 Nano Omni */
  };
  const ModelConfig *config = &loader->model->config;
  const char *head = config->names.head;
  size_t n = config->text_part ? sizeof names / sizeof *names : 1;
  char embedding[NAME_SIZE];
  snprintf(embedding, sizeof embedding, "%s.weight", model_table_stored(config, MODEL_EMBEDDING).name);
  for (size_t i = n; i-- > 0;) {
    loader->body = names[i].body;
    loader->head = names[i].head;
    if (hf_find(loader, loader->body, embedding)) return;
  }
  if (config->names.body) loader->body = hf_find(loader, "", embedding) ? "" : config->names.body;
  if (head && hf_has_linear(loader, head)) loader->head = head;
}

/* True if a layer has the vector (is_vector) or the matrix `part`; part NULL: false. */
static bool has_part(const HfLoader *loader, const char *part, bool is_vector) {
  const ModelConfig *config = &loader->model->config;
  char name[NAME_SIZE];
  for (int i = 0; part && i < config->n_layers; i++) {
    layer_full_name(config, loader->body, i, part, name, sizeof name);
    if (is_vector ? hf_find(loader, name, "") != NULL : hf_has_linear(loader, name)) return true;
  }
  return false;
}

/* Forgets the family's own names that this checkpoint does not have (TensorNames.optional). Also forgets the
 * name of attention's gate if that is missing: LFM3 and Laguna have gate_proj in some checkpoints, and g_proj
 * in those with the names of transformers' modules (transformers, conversion_mapping.py). */
static void find_some_names(HfLoader *loader) {
  TensorNames *names = &loader->model->config.names;
  const char **own;
  for (size_t i = 0; (own = linear_own_name(names, i)); i++)
    if ((names->optional || own == &names->attn_gate) && !has_part(loader, *own, false)) *own = NULL;
}

/* A.X-K1 is published without the biases that choose experts. */
static void find_choice_bias(HfLoader *loader) {
  ModelConfig *config = &loader->model->config;
  if (config->experts.choice_bias && config->expert_names->bias_may_miss)
    config->experts.choice_bias = has_part(loader, config->expert_names->choice_bias, true);
}

/* In files with the names of transformers' modules, norms before the delta rule have Llama's names. */
static void find_norm_names(HfLoader *loader) {
  ModelConfig *config = &loader->model->config;
  char name[NAME_SIZE];
  for (int i = 0; config->delta.form == DELTA_APART && i < config->n_layers; i++) {
    if (!config->layers[i].norms_before) continue;
    snprintf(name, sizeof name, "%slayers.%d.input_layernorm", loader->body, i);
    if (hf_find(loader, name, ".weight")) config->names.attn_norm = config->names.mlp_norm = NULL;
    return;
  }
}

Status hf_directory_open(const char *path, const ModelOverrides *overrides, Model *model, Error *err) {
  if (overrides->rope_theta != 0 || overrides->norm_eps != 0)
    return error_set(err, STATUS_USAGE, "%s: %s is only for packed files: a directory's config.json says it",
                     path, overrides->rope_theta != 0 ? "--rope-theta" : "--norm-eps");
  model->layout = LAYOUT_HF_DIRECTORY;
  model->theta_source = model->eps_source = "config.json";
  OWNED(mem_release) char *config_path = path_join(path, "config.json", err);
  if (!config_path) return STATUS_FAILED;
  if (!file_is_named(config_path)) TRY(weight_files_refuse(path, true, err));
  TRY(config_load(path, &model->config, err));
  HfLoader loader = {.model = model, .files = &model->files->weights, .config_path = config_path, .err = err};
  TRY(weight_files_open(path, &model->files->weights, err));
  model->unused_tensors = model_tensor_count(model);
  find_names(&loader);
  find_norm_names(&loader);
  find_choice_bias(&loader);
  find_some_names(&loader);
  TRY(model_make_layers(model, loader.body, err));
  TRY(latent_heads_open(model, err));
  TRY(take_everything(&loader));
  model->config.quant.ordered = model->files->n_orders > 0;
  TRY(latent_heads_shape(model, err));
  TRY(hf_refuse_unknown(&loader));
  key_heads_count(model);
  taps_count(model);
  TRY(find_tokenizer(model, path, overrides, err));
  return model->tokenizer_path ? STATUS_OK : other_tokenizer_refuse(path, err);
}
