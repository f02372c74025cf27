/* hf_unknown.c - refuses tensors that belong to a decoder layer and that no part of the model has taken.
 *
 * Called by: hf_directory.c.
 * A norm or a scale that stays unread changes every answer silently. Tensors outside the decoder
 * (towers for images, layers for multi-token prediction) are left alone. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/files/hf_tensors.h"
#include "model/layers.h"

/* True for a layer's tensor that has no effect on answers: tables and masks that are computed anew; scales
 * and zero points of activations and of the KV cache; orders, shapes and zero points of weights if they say
 * nothing new. */
static bool is_idle(const char *name) {
  static const char *const parts[] = {".inv_freq",         ".cos_cached",
                                      ".sin_cached",       ".masked_bias",
                                      ".attention.bias", /* the mask of GPT-NeoX */
                                      ".attn.bias",      /* the mask of GPT-2 */
                                      ".input_scale",      ".input_global_scale",
                                      ".input_zero_point", ".q_scale",
                                      ".k_scale",          ".v_scale",
                                      ".kv_scale",         ".k_zero_point",
                                      ".v_zero_point",     "activation_scale",
                                      ".output_scale",     ".g_idx",
                                      ".qzeros",           ".weight_g_idx",
                                      ".weight_shape"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (name_ends_with(name, parts[i])) return true;
  return false;
}

/* True for tensors of keys and values in a layer that uses the keys and values of another layer. */
static bool is_shared(const ModelConfig *config, int layer, const char *name) {
  return config_layer(config, layer).shares_kv && (strstr(name, ".k_") || strstr(name, ".v_"));
}

/* True for a layer for multi-token prediction, as in GLM 4.5: only such a layer has tensors that join an
 * embedding to a state. */
static bool predicts(const HfLoader *loader, long layer) {
  static const char *const parts[] = {"enorm", "hnorm", "eh_proj", "shared_head.norm"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%slayers.%ld.%s", loader->body, layer, parts[i]);
    if (hf_has_linear(loader, name)) return true;
  }
  return false;
}

/* True for the experts' norm in a layer without experts: A.X-K1 has it there, too. */
static bool is_of_no_experts(const ModelConfig *config, int layer, const char *name) {
  return config->experts.norms == EXPERTS_POST_NORM && config_layer(config, layer).n_experts == 0 &&
         strstr(name, config->names.mlp_post_norm);
}

/* True for the router of images' experts, and for these experts. */
static bool is_of_images(const ModelConfig *config, const char *name) {
  if (!config->expert_names || !config->expert_names->two_kinds) return false;
  const char *expert = strstr(name, ".experts.");
  return expert ? strtol(expert + strlen(".experts."), NULL, 10) >= config->experts.n_experts
                : name_ends_with(name, ".gate.weight_1");
}

bool hf_is_no_bias(const StoredTensor *tensor) {
  if (!name_ends_with(tensor->name, ".bias")) return false;
  for (size_t i = 0; i < tensor->bytes; i++)
    if (tensor->data[i] != 0) return false;
  return true;
}

/* PRECOND the tensor is not used. */
static Status check_tensor(const HfLoader *loader, const StoredTensor *tensor) {
  const ModelConfig *config = &loader->model->config;
  const size_t n_body = strlen(loader->body);
  if (strncmp(tensor->name, loader->body, n_body) != 0) return STATUS_OK;
  const char *name = tensor->name + n_body;
  const char *layers = layers_name(config);
  const size_t n_layers = strlen(layers);
  if (strncmp(name, layers, n_layers) != 0 || name[n_layers] != '.') return STATUS_OK;
  char *end;
  const long layer = strtol(name + n_layers + 1, &end, 10);
  if (*end != '.' || layer < 0 || is_idle(name) || is_of_images(config, name)) return STATUS_OK;
  if (layer < config->n_layers && (is_shared(config, (int)layer, name) ||
                                   is_of_no_experts(config, (int)layer, name) || hf_is_no_bias(tensor)))
    return STATUS_OK;
  if (layer >= config->n_layers && predicts(loader, layer)) return STATUS_OK;
  if (layer >= config->n_layers)
    return error_set(loader->err, STATUS_MODEL,
                     "%s: tensor %s is of a layer that %s does not count: it has %d layers", tensor->file,
                     tensor->name, loader->config_path, config->n_layers);
  return error_set(loader->err, STATUS_MODEL,
                   "%s: tensor %s is not known in a layer of %s, so it computes something that auk does not",
                   tensor->file, tensor->name, config->architecture);
}

Status hf_refuse_unknown(const HfLoader *loader) {
  for (size_t i = 0; i < model_tensor_count(loader->model); i++) {
    const StoredTensor *tensor = model_tensor(loader->model, i);
    if (!tensor->used) TRY(check_tensor(loader, tensor));
  }
  return STATUS_OK;
}
