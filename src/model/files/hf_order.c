/* hf_order.c - inputs that are permuted for quantisation: GPTQ's act-order (desc_act), actorder "group".
 *
 * Called by: hf_quantised.c, hf_directory.c.
 * A tensor (g_idx) names the group of each input. Inputs are sorted by their groups; Linear.order is the
 * result. repack.c puts the rows of weights into this order, and a device gathers x before the product. If
 * gate and up are repacked, down's inputs need no gathering: the outputs of gate and up are then put into
 * the order of down's inputs. */
#include <stdlib.h>
#include <string.h>

#include "model/files/hf_layer.h"

static int32_t group_of(const StoredTensor *groups, size_t input) {
  int32_t group;
  memcpy(&group, groups->data + input * sizeof group, sizeof group);
  return group;
}

/* order[0 .. n_in) = the inputs sorted by group, each group's inputs ascending; order[n_in + i] = the index
 * of input i in this list. next: [n_groups] zeros. */
static Status sort_inputs(const QuantLayer *layer, const StoredTensor *groups, int32_t *next,
                          int32_t *order) {
  const size_t n_in = (size_t)layer->n_in;
  int32_t begin = 0;
  for (size_t i = 0; i < n_in; i++) next[group_of(groups, i)]++;
  for (int64_t g = 0; g < layer->n_groups; g++, begin += layer->group) {
    if (next[g] != layer->group)
      return error_set(layer->loader->err, STATUS_MODEL,
                       "%s: tensor %s: group %lld has %d inputs, expected %d", groups->file, groups->name,
                       (long long)g, next[g], layer->group);
    next[g] = begin;
  }
  for (size_t i = 0; i < n_in; i++) {
    const int32_t place = next[group_of(groups, i)]++;
    order[place] = (int32_t)i;
    order[n_in + i] = place;
  }
  return STATUS_OK;
}

/* Returns a recent order that equals `order`, and frees `order`. If there is none, returns `order`. PRECOND
 * `order` is the model's last allocation */
static int32_t *keep_order(ModelFiles *files, int32_t *order, int n_in) {
  for (size_t i = 0; i < RECENT_ORDERS; i++) {
    const InputOrder *recent = &files->recent_orders[i];
    if (recent->n_in != n_in || memcmp(recent->order, order, (size_t)n_in * sizeof *order) != 0) continue;
    free(files->made[--files->n_made]);
    return recent->order;
  }
  files->recent_orders[files->n_orders++ % RECENT_ORDERS] = (InputOrder){order, n_in};
  return order;
}

static Status set_order(const QuantLayer *layer, const StoredTensor *groups, StoredWeights *stored) {
  Model *model = layer->loader->model;
  Linear *linear = layer->linear;
  const size_t n_in = (size_t)layer->n_in;
  OWNED(mem_release) int32_t *next = NULL;
  TRY(NEW(next, (size_t)layer->n_groups, "groups", layer->loader->err));
  int32_t *order = model_make_memory(model, 2 * n_in, sizeof *order, linear, layer->loader->err);
  if (!order) return STATUS_FAILED;
  TRY(sort_inputs(layer, groups, next, order));
  order = keep_order(model->files, order, linear->n_in);
  linear->order = order;
  stored->places = order + n_in;
  model->config.quant.ordered = true;
  return STATUS_OK;
}

Status hf_order_take(const QuantLayer *layer, const char *suffix, bool required, StoredWeights *stored) {
  HfLoader *loader = layer->loader;
  StoredTensor *groups = hf_find(loader, layer->linear->name, suffix);
  if (!groups && required)
    return hf_missing(loader, layer->linear->name, suffix, ", although config.json says desc_act");
  if (!groups) return STATUS_OK;
  TRY(hf_check_shape(loader, groups, 1, &layer->n_in, ""));
  if (groups->dtype != DTYPE_I32)
    return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected I32", groups->file,
                     groups->name, groups->dtype_name);
  hf_use(loader, groups);
  bool ordered = false;
  for (int64_t i = 0; i < layer->n_in; i++) {
    const int32_t group = group_of(groups, (size_t)i);
    if (group < 0 || group >= layer->n_groups)
      return error_set(loader->err, STATUS_MODEL, "%s: tensor %s: element %lld is %d, expected 0 to %lld",
                       groups->file, groups->name, (long long)i, group, (long long)layer->n_groups - 1);
    ordered = ordered || group != i / layer->group;
  }
  return ordered ? set_order(layer, groups, stored) : STATUS_OK;
}

/* --- an MLP */

/* The stored form of a matrix that repack.c transposes word by word, or NULL. */
static StoredWeights *find_repacked(const HfLoader *loader, const Linear *linear) {
  const ModelFiles *files = loader->model->files;
  for (size_t i = files->n_stored; i-- > 0;) {
    StoredWeights *stored = &files->stored[i];
    if (stored->linear == linear)
      return stored->method >= QUANT_GPTQ && stored->method <= QUANT_BYTES ? stored : NULL;
  }
  return NULL;
}

/* Makes repack.c put the outputs of a matrix into `order`, and sorts the bias. */
static Status order_outputs(HfLoader *loader, StoredWeights *stored, const int32_t *order) {
  Vector *bias = &stored->linear->bias;
  stored->out_order = order;
  if (!bias->data) return STATUS_OK;
  const size_t size = dtype_bytes(bias->dtype);
  char *sorted = model_make_memory(loader->model, (size_t)bias->n, size, stored->linear, loader->err);
  if (!sorted) return STATUS_FAILED;
  for (int o = 0; o < bias->n; o++)
    memcpy(sorted + (size_t)o * size, (const char *)bias->data + (size_t)order[o] * size, size);
  bias->data = sorted;
  return STATUS_OK;
}

Status hf_order_mlp(HfLoader *loader, Linear *gate, Linear *up, Linear *down) {
  const bool gated = gate->n_out > 0;
  if (gated && gate->order != up->order)
    return error_set(
        loader->err, STATUS_MODEL,
        "%s: the inputs of %s and %s are in different orders of activations, which is not supported",
        loader->config_path, gate->name, up->name);
  const int32_t *order = down->order;
  if (!order) return STATUS_OK;
  StoredWeights *of_up = find_repacked(loader, up), *of_gate = gated ? find_repacked(loader, gate) : of_up;
  if (!of_up || !of_gate) return STATUS_OK;
  TRY(order_outputs(loader, of_up, order));
  if (gated) TRY(order_outputs(loader, of_gate, order));
  down->order = NULL;
  return STATUS_OK;
}
