/* hf_experts.c - finds the weights of a layer's experts in a Hugging Face directory.
 *
 * Experts are stored one by one, as ordinary linear layers, or all experts of a layer together in tensors
 * with one more dimension. Such tensors are taken expert by expert, too, so that the same code reads every
 * layout. A view is one expert's part of such a tensor, under the name of a tensor for that expert alone. */
#include <string.h>

#include "model/files/hf_tensors.h"

enum { MAX_SHAPE = 4 };

/* How the names of tensors with all experts of a layer end, and which part of an expert's linear layer such a
 * tensor holds. */
static const struct {
  const char *end, *part;
} view_kinds[] = {
    {"", ".weight"},
    {"_bias", ".bias"},
    {"_blocks", ".weight_packed"},
    {"_scales", ".weight_scale"},
    {"_scale_inv", ".weight_scale_inv"},
    {".weight", ".weight"},
    {".weight_packed", ".weight_packed"},
    {".weight_scale", ".weight_scale"},
    {".weight_scale_2", ".weight_scale_2"},
    {".weight_scale_inv", ".weight_scale_inv"},
    {".weight_global_scale", ".weight_global_scale"},
};
enum { N_VIEW_KINDS = sizeof view_kinds / sizeof *view_kinds };
enum { KIND_DENSE, KIND_BIAS, KIND_BLOCKS, KIND_SCALES };

StoredTensor *hf_view(const HfLoader *loader, const char *suffix) {
  for (int kind = 0; kind < N_VIEW_KINDS; kind++)
    if (loader->views[kind].data && strcmp(view_kinds[kind].part, suffix) == 0) return &loader->views[kind];
  return NULL;
}

/* One matrix of each expert, in tensors of all experts of a layer. It holds the expert's linear layers
 * `first` (EXPERT_GATE ..) to `last`, those that experts have. */
typedef struct {
  char base[NAME_SIZE]; /* "model.layers.0.mlp.experts.gate_up_proj" */
  int first, last;
  int n_experts;
  int64_t n_out, n_in;
  bool inputs_first; /* dense tensors are [experts][inputs][outputs] */
  StoredTensor *tensors[N_VIEW_KINDS];
} AllExperts;

/* Sets the shape that the tensor must have, and returns its rank; 0: the layout's reader checks the shape. */
static int expected_shape(const AllExperts *all, int kind, int64_t *shape) {
  const int64_t wide = all->n_in / 32;
  const int64_t shapes[][MAX_SHAPE] = {
      [KIND_DENSE] = {all->n_experts, all->inputs_first ? all->n_in : all->n_out,
                      all->inputs_first ? all->n_out : all->n_in},
      [KIND_BIAS] = {all->n_experts, all->n_out},
      [KIND_BLOCKS] = {all->n_experts, all->n_out, wide, 16},
      [KIND_SCALES] = {all->n_experts, all->n_out, wide},
  };
  static const int ranks[] = {[KIND_DENSE] = 3, [KIND_BIAS] = 2, [KIND_BLOCKS] = 4, [KIND_SCALES] = 3};
  if (kind > KIND_SCALES) return 0;
  memcpy(shape, shapes[kind], sizeof shapes[kind]);
  return ranks[kind];
}

/* Sets inputs_first of a tensor whose inputs may be first: true unless the tensor is
 * [experts][outputs][inputs]. */
static void look_at_order(AllExperts *all, const StoredTensor *tensor) {
  all->inputs_first = !(tensor->rank == 3 && tensor->shape[1] == all->n_out && tensor->shape[2] == all->n_in);
}

/* Finds the tensors of all experts; *there: whether one of them holds other numbers than biases. */
static Status find_all(HfLoader *loader, AllExperts *all, bool *there) {
  const InputsFirst order = loader->model->config.expert_names->inputs_first;
  *there = false;
  for (int kind = 0; kind < N_VIEW_KINDS; kind++) {
    StoredTensor *tensor = all->tensors[kind] = hf_find(loader, all->base, view_kinds[kind].end);
    if (!tensor) continue;
    int64_t shape[MAX_SHAPE];
    if (kind == KIND_DENSE && order == INPUTS_MAY_BE_FIRST) look_at_order(all, tensor);
    const int rank = expected_shape(all, kind, shape);
    if (rank) TRY(hf_check_shape(loader, tensor, rank, shape, ""));
    if (tensor->rank < 1 || tensor->shape[0] != all->n_experts)
      return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is %s, expected %d experts first",
                       tensor->file, tensor->name, shape_text(tensor->rank, tensor->shape).text,
                       all->n_experts);
    *there = *there || kind != KIND_BIAS;
    hf_use(loader, tensor);
  }
  if (all->tensors[KIND_BLOCKS] && !all->tensors[KIND_SCALES])
    return hf_missing(loader, all->base, "_scales", ", although its _blocks are there");
  return STATUS_OK;
}

/* Makes the views of one expert, [N_VIEW_KINDS]. */
static void make_views(const AllExperts *all, int expert, StoredTensor *views) {
  for (int kind = 0; kind < N_VIEW_KINDS; kind++) {
    const StoredTensor *tensor = all->tensors[kind];
    views[kind] = (StoredTensor){0};
    if (!tensor) continue;
    StoredTensor *view = &views[kind];
    *view = *tensor;
    view->rank = tensor->rank - 1;
    memmove(view->shape, tensor->shape + 1, (size_t)view->rank * sizeof *view->shape);
    if (kind == KIND_BLOCKS) { /* [n_out][groups][16 bytes] becomes [n_out][bytes] */
      view->rank = 2;
      view->shape[1] = all->n_in / 2;
    }
    view->bytes = tensor->bytes / (size_t)all->n_experts;
    view->data = tensor->data + (size_t)expert * view->bytes;
    view->used = true; /* the whole tensor was counted */
  }
}

/* Allocates the views of n matrices of experts: [n][N_VIEW_KINDS], which the model frees. NULL: no memory. */
static StoredTensor *views_memory(HfLoader *loader, int n) {
  ModelFiles *files = loader->model->files;
  if (mem_grow(&files->views, &files->views_capacity, files->n_views + 1, sizeof *files->views,
               "tensors of experts", loader->err) != STATUS_OK)
    return NULL;
  StoredTensor *memory =
      mem_alloc((size_t)n * N_VIEW_KINDS, sizeof *memory, "tensors of experts", loader->err);
  if (memory) files->views[files->n_views++] = memory;
  return memory;
}

static Status take_of_all(HfLoader *loader, const AllExperts *all, ModelLayer *layer, StoredTensor *views) {
  const int first = all->first;
  const bool alternate = first < all->last && loader->model->config.expert_names->alternate;
  const bool has_bias = loader->model->config.experts.biases;
  const int n_out = (int)all->n_out;
  Status status = STATUS_OK;
  for (int e = 0; e < all->n_experts && status == STATUS_OK; e++, views += N_VIEW_KINDS) {
    make_views(all, e, views);
    loader->views = views;
    for (int part = first; part <= all->last && status == STATUS_OK; part++) {
      const int begin = part == first ? 0 : alternate ? 1 : n_out / 2;
      status = hf_linear_take(loader, (StoredRows){n_out, begin, alternate, all->inputs_first}, has_bias,
                              layer_linear(layer, expert_linear(e, part)));
    }
  }
  loader->views = NULL;
  return status;
}

/* Refuses a checkpoint with more experts than the config says; first_name: the name of a matrix of the
 * first expert that is too many. */
static Status refuse_more(HfLoader *loader, const char *first_name, int n_experts) {
  static const char *const parts[] = {".weight", ".qweight", ".weight_packed"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const StoredTensor *tensor = hf_find(loader, first_name, parts[i]);
    if (tensor)
      return error_set(loader->err, STATUS_MODEL, "%s: tensor %s is one too many: %s says %d experts",
                       tensor->file, tensor->name, loader->config_path, n_experts);
  }
  return STATUS_OK;
}

static Status take_each(HfLoader *loader, int index, int n_experts) {
  const ModelConfig *config = &loader->model->config;
  for (int which = N_LAYER_LINEARS; which < layer_linear_count(config, index); which++) {
    if (!layer_linear_exists(config, index, which)) continue;
    Linear *linear = layer_linear(&loader->model->layers[index], which);
    TRY(hf_linear_take(loader, (StoredRows){linear->n_out, 0, 0, false}, config->experts.biases, linear));
  }
  if (config->expert_names->two_kinds) return STATUS_OK; /* the next experts are those of images */
  char name[NAME_SIZE], part[LINEAR_NAME_SIZE];
  layer_linear_part(config, index,
                    expert_linear(n_experts, is_ungated(config->activation) ? EXPERT_UP : EXPERT_GATE), part);
  layer_full_name(config, loader->body, index, part, name, sizeof name);
  return refuse_more(loader, name, n_experts);
}

/* Lists the matrices of each expert that tensors of all experts can hold; returns their number. */
static int list_all(const HfLoader *loader, int index, AllExperts all[N_EXPERT_LINEARS]) {
  const ModelConfig *config = &loader->model->config;
  const ExpertNames *names = config->expert_names;
  int n = 0;
  for (int part = 0; part < N_EXPERT_LINEARS; part++) {
    AllExperts *own = names->all[part] ? &all[n++] : &all[n - 1]; /* the first part has a name */
    if (names->all[part]) {
      *own = (AllExperts){.n_experts = config->experts.n_experts,
                          .inputs_first = names->inputs_first == INPUTS_ARE_FIRST};
      layer_full_name(config, loader->body, index, names->all[part], own->base, sizeof own->base);
    }
    const Linear *linear = layer_linear(&loader->model->layers[index], expert_linear(0, part));
    if (linear->n_out == 0) continue;
    if (own->n_out == 0) own->first = part;
    own->last = part, own->n_in = linear->n_in, own->n_out += linear->n_out;
  }
  return n;
}

Status hf_experts_take(HfLoader *loader, int index) {
  const ModelConfig *config = &loader->model->config;
  const int n_experts = config_layer(config, index).n_experts;
  ModelLayer *layer = &loader->model->layers[index];
  if (n_experts == 0) return STATUS_OK;
  AllExperts all[N_EXPERT_LINEARS];
  bool there[N_EXPERT_LINEARS], any = false;
  const int n = list_all(loader, index, all);
  for (int i = 0; i < n; i++) {
    TRY(find_all(loader, &all[i], &there[i]));
    any = any || there[i];
  }
  if (!any) return take_each(loader, index, n_experts);
  for (int i = 0; i < n; i++)
    if (!there[i]) return hf_missing(loader, all[i].base, "", ", although others of all experts are there");
  StoredTensor *views = views_memory(loader, n * n_experts);
  if (!views) return STATUS_FAILED;
  for (int i = 0; i < n; i++, views += (size_t)n_experts * N_VIEW_KINDS)
    TRY(take_of_all(loader, &all[i], layer, views));
  return STATUS_OK;
}
