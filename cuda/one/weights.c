/* weights.c - see weights.h.
 *
 * Always true: every pass visits the same vectors and matrices in the same order. The first passes measure
 * them. A further pass places them in one allocation. The last pass fills them, with random numbers or from
 * the mapped file, which is read once. */
#include "cuda/one/weights.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "cuda/kernels/linear/random_weights.h"
#include "cuda/kernels/ptx/device.h"
#include "cuda/one/layers/parts.h"
#include "cuda/one/ropes.h"
#include "cuda/one/stored.h"
#include "cuda/one/upload.h"
#include "model/layers.h"

/* --- passes */

typedef struct {
  BackendModel *loaded;
  DeviceArena arena;
  int host_experts, host_layers; /* layers on the host, as in DeviceMemory */
  int layer;                     /* of the visited matrices */
  bool stays;                    /* the visited matrices stay on the host */
  bool joined;                   /* the visited layer's shared expert is laid out after the other experts */
  size_t host_bytes;             /* of the matrices on the host, as the checkpoint has them */
  size_t staging_need;           /* bytes of the host's largest matrix, as laid out on the device */
  size_t slot_bytes;             /* least size of a loading buffer: the largest indivisible piece */
  Uploader uploader;
  const BackendOptions *options;
  size_t done, total; /* bytes of the checkpoint */
  size_t n_floats;    /* numbers of the longest vector or bias */
  float *floats;      /* [n_floats] on the host: a vector as fp32 */
  void *staging;      /* of random weights: [staging_bytes] on the device */
  size_t staging_bytes;
  uint64_t n_made; /* random matrices so far, each from a seed of its own */
  bool streaming;  /* loading is over: matrices left on the host come one by one (weights_stream()) */
} Loader;

/* How a vector's numbers are made: stored numbers of a layer by layer_vector_number(), others get `plus`
 * added; random numbers lie between low and high. All are then divided by `divisor`, if that is not 0. */
typedef struct {
  int which; /* of a layer's vectors; -1: it is another */
  float plus, low, high, divisor;
} VectorUse;

/* The linear layers of a device's matrix, stacked or interleaved. */
typedef struct {
  const Linear *const *linears; /* [n], or [n_experts][n] */
  int n;
  bool interleaved;
  int n_experts, part; /* n_experts: experts or heads, else 0; part: of linears[0] (expert_layer()) */
} Source;

/* The work of a pass on each vector, each matrix, and each table with a row for every token. */
typedef struct {
  Status (*vector)(Loader *loader, const float **to, const Vector *from, VectorUse use, Error *err);
  Status (*matrix)(Loader *loader, DeviceLinear *to, const Source *from, Error *err);
  Status (*table)(Loader *loader, const void **to, const Matrix *from, Error *err);
} Pass;

static Status visit_projections(Loader *loader, const Pass *pass, DeviceProjections *to,
                                const Linear *const *from, int n, bool interleaved, Error *err) {
  to->n_parts = 0;
  for (int i = 0, end, output = 0; i < n; i = end) {
    const int part = to->n_parts++;
    to->first[part] = output;
    for (end = i; end < n && (end == i || can_join(from[i], from[end])); end++) output += from[end]->n_out;
    const Source source = {.linears = &from[i], .n = end - i, .interleaved = interleaved && end - i > 1};
    TRY(pass->matrix(loader, &to->parts[part], &source, err));
  }
  return STATUS_OK;
}

static Status visit_vectors(Loader *loader, const Pass *pass, DeviceLayer *to, const ModelLayer *from,
                            Error *err) {
  const ModelConfig *config = &loader->loaded->model->config;
  for (int i = 0; i < N_LAYER_VECTORS; i++) {
    const VectorRange range = layer_vector_range(i);
    const bool halved = config->altup.n > 0 && i == LAYER_ATTN_POST_NORM;
    const VectorUse use = {i, 0, range.low, range.high, halved ? sqrtf(2) : 0};
    TRY(pass->vector(loader, &to->vector[i], &from->vector[i], use, err));
  }
  return STATUS_OK;
}

/* A linear layer that the model lacks is left out. */
static Status visit_matrix(Loader *loader, const Pass *pass, DeviceLinear *to, const Linear *from,
                           Error *err) {
  if (from->n_out == 0) return STATUS_OK;
  return pass->matrix(loader, to, &(Source){.linears = &from, .n = 1}, err);
}

/* Latent attention's matrices of a head: one for keys, one for values. A head is loaded like an expert, so
 * they are numbered after EXPERT_GATE and so on. */
enum { KEY_HEADS = N_EXPERT_LINEARS, VALUE_HEADS };

/* Linear layer `part` of an expert, or of a head if part is KEY_HEADS or VALUE_HEADS. Expert n_experts is the
 * shared expert. */
static const Linear *expert_layer(const Loader *loader, const ModelLayer *from, int expert, int part) {
  if (part == KEY_HEADS) return &from->key_heads[expert];
  if (part == VALUE_HEADS) return &from->value_heads[expert];
  if (expert == loader->loaded->model->config.experts.n_experts) return &from->linear[mlp_linear(part)];
  return layer_linear(from, expert_linear(expert, part));
}

/* True if the shared expert can be laid out as one more expert that every token chooses, which saves two
 * launches. False if the layer's experts are on the host, where the CPU multiplies them. */
static bool shared_joins(const Loader *loader, int i, const ModelLayer *from) {
  const ModelConfig *config = &loader->loaded->model->config;
  const ExpertConfig *e = &config->experts;
  const LayerConfig own = config_layer(config, i);
  if (own.intermediate == 0 || own.mlp_limit != own.expert_limit || e->norms == EXPERTS_OWN_NORMS ||
      e->scales_input || e->latent > 0 || i >= config->n_layers - loader->host_experts ||
      e->n_chosen >= LINEAR_MAX_CHOSEN || e->n_experts >= LINEAR_MAX_EXPERTS)
    return false;
  for (int part = 0; part < N_EXPERT_LINEARS; part++)
    if (!are_alike(expert_layer(loader, from, 0, part), expert_layer(loader, from, e->n_experts, part)))
      return false;
  return true;
}

/* Visits a matrix with n linear layers of each expert or head, from `part` on. If n is 2, they are
 * interleaved. */
static Status visit_parts(Loader *loader, const Pass *pass, DeviceLinear *to, const ModelLayer *from,
                          int part, int n, Error *err) {
  const ModelConfig *config = &loader->loaded->model->config;
  const int more = loader->joined ? 1 : 0,
            n_experts = part >= KEY_HEADS ? config->n_heads : config->experts.n_experts + more;
  OWNED(mem_release) const Linear **linears = NULL;
  TRY(NEW(linears, (size_t)(n_experts * n), "experts", err));
  for (int i = 0; i < n_experts * n; i++) linears[i] = expert_layer(loader, from, i / n, part + i % n);
  return pass->matrix(loader, to, &(Source){linears, n, n > 1, n_experts, part}, err);
}

/* Visits the matrices of latent attention's heads. */
static Status visit_heads(Loader *loader, const Pass *pass, DeviceLayer *to, const ModelLayer *from,
                          Error *err) {
  if (!from->key_heads) return STATUS_OK;
  TRY(visit_parts(loader, pass, &to->key_heads, from, KEY_HEADS, 1, err));
  return visit_parts(loader, pass, &to->value_heads, from, VALUE_HEADS, 1, err);
}

static Status visit_experts(Loader *loader, const Pass *pass, DeviceExperts *to, const ModelLayer *from,
                            Error *err) {
  const int first = is_ungated(loader->loaded->model->config.activation) ? EXPERT_UP : EXPERT_GATE;
  if (config_layer(&loader->loaded->model->config, loader->layer).n_experts == 0) return STATUS_OK;
  TRY(visit_parts(loader, pass, &to->gate_up, from, first, EXPERT_DOWN - first, err));
  return visit_parts(loader, pass, &to->down, from, EXPERT_DOWN, 1, err);
}

static Status visit_joined(Loader *loader, const Pass *pass, int which, DeviceLayer *to,
                           const ModelLayer *from, Error *err) {
  const ModelConfig *config = &loader->loaded->model->config;
  const Linear *inputs[MAX_PROJECTIONS];
  const int n = parts_joined(config, loader->layer, from, which, inputs);
  /* Gate and up are interleaved for the epilogue LINEAR_SWIGLU_F16, which computes every gated product but
   * those with sparsity, scales or factors. */
  const LayerConfig own = config_layer(config, loader->layer);
  const bool gated = which == JOINED_GATE_UP && own.sparsity == 0 && !is_ungated(config->activation) &&
                     config->gate_scale == 1 && config->mlp_scale == 1 && config->norm != NORM_SPHERE;
  return visit_projections(loader, pass, &to->joined[which], inputs,
                           which == JOINED_GATE_UP && loader->joined ? 0 : n, gated, err);
}

/* A small dense matrix, as a vector. PRECOND it is dense (supported.c) */
static Status visit_small(Loader *loader, const Pass *pass, const float **to, const Linear *from,
                          Error *err) {
  const Vector numbers = {from->weight, from->dtype, from->n_in * from->n_out};
  return pass->vector(loader, to, &numbers, (VectorUse){-1, 0, -0.1f, 0.1f, 0}, err);
}

static Status visit_linear(Loader *loader, const Pass *pass, int which, DeviceLayer *to,
                           const ModelLayer *from, Error *err) {
  const DeviceMatrix matrix = layer_device_matrix(&loader->loaded->model->config, which);
  const bool joined = matrix >= MATRIX_DELTA_B_A && matrix < MATRIX_ON_DEVICE;
  if (joined || matrix == MATRIX_HEADS) return STATUS_OK;
  if (matrix == MATRIX_SMALL)
    return visit_small(loader, pass, &to->small[which - LAYER_ALTUP_ROUTER], &from->linear[which], err);
  if (which == LAYER_DOWN && loader->joined) return STATUS_OK;
  return visit_matrix(loader, pass, &to->linear[which], &from->linear[which], err);
}

static Status visit_layer(Loader *loader, const Pass *pass, int i, Error *err) {
  const LayerConfig own = config_layer(&loader->loaded->model->config, i);
  const ModelLayer *from = &loader->loaded->model->layers[i];
  DeviceLayer *to = &loader->loaded->layers[i];
  if (own.back > 0) { /* it shares all matrices and vectors */
    *to = *(to - own.back);
    return STATUS_OK;
  }
  loader->layer = i;
  loader->joined = own.n_experts > 0 && shared_joins(loader, i, from);
  TRY(visit_vectors(loader, pass, to, from, err));
  const bool on_host = i >= loader->loaded->model->config.n_layers - loader->host_layers;
  loader->stays = on_host;
  for (int group = 0; group < N_JOINED; group++) TRY(visit_joined(loader, pass, group, to, from, err));
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    loader->stays = on_host && layer_device_matrix(&loader->loaded->model->config, which) < MATRIX_ON_DEVICE;
    TRY(visit_linear(loader, pass, which, to, from, err));
  }
  loader->stays = false;
  TRY(visit_heads(loader, pass, to, from, err));
  loader->stays = i >= loader->loaded->model->config.n_layers - loader->host_experts;
  return visit_experts(loader, pass, &to->experts, from, err);
}

/* A drafter's lm_head can be its target's (draft.target_head). */
static Status visit_head(Loader *loader, const Pass *pass, Error *err) {
  BackendModel *loaded = loader->loaded;
  if (!loaded->target || !loaded->model->draft.target_head)
    return visit_matrix(loader, pass, &loaded->head, &loaded->model->head, err);
  loaded->head = loaded->target->head;
  return STATUS_OK;
}

static Status visit_embedding(Loader *loader, const Pass *pass, Error *err) {
  BackendModel *loaded = loader->loaded;
  const Model *model = loaded->model;
  if (loaded->target && model->embedding.data == loaded->target->model->embedding.data) {
    loaded->embedding = loaded->target->embedding;
    loaded->embedding_stride = loaded->target->embedding_stride;
    loaded->embedding_type = loaded->target->embedding_type;
    return STATUS_OK;
  }
  loaded->embedding_stride = (size_t)model->embedding.n_columns;
  loaded->embedding_type = model->embedding.dtype;
  if (model->head.kind != LINEAR_DENSE || model->head.weight != model->embedding.data ||
      model->head.n_out != model->embedding.n_rows)
    return pass->table(loader, &loaded->embedding, &model->embedding, err);
  loaded->embedding = loaded->head.dense;
  loaded->embedding_stride = loaded->head.stride;
  return STATUS_OK;
}

static Status visit(Loader *loader, const Pass *pass, Error *err) {
  BackendModel *loaded = loader->loaded;
  const Model *model = loaded->model;
  for (int i = 0; i < model->config.n_layers; i++) TRY(visit_layer(loader, pass, i, err));
  loader->stays = loader->joined = false;
  for (int i = 0; i < N_MODEL_VECTORS; i++) {
    const VectorRange range = model_vector_range(i);
    const VectorUse use = {-1, model_vector_plus(&model->config, i), range.low, range.high, 0};
    TRY(pass->vector(loader, &loaded->vector[i], &model->vector[i], use, err));
  }
  TRY(visit_head(loader, pass, err));
  TRY(visit_embedding(loader, pass, err));
  for (int i = MODEL_HEAD + 1; i < N_MODEL_LINEARS; i++)
    TRY(visit_matrix(loader, pass, &loaded->model_linear[i], &model->linear[i], err));
  return model->input_table.n_rows > 0 ? pass->table(loader, &loaded->input_table, &model->input_table, err)
                                       : STATUS_OK;
}

/* --- layout */

static void need_floats(Loader *loader, int n) {
  if (loader->n_floats < (size_t)n) loader->n_floats = (size_t)n;
}

static void need_slot(Loader *loader, const Linear *l) {
  const size_t zeros = linear_array_bytes(l, LINEAR_ZEROS), scales = linear_array_bytes(l, LINEAR_SCALES),
               rows = linear_array(l, LINEAR_WEIGHTS).row * (zeros > 0 ? 64 : 8),
               floats = (size_t)l->n_out * sizeof(float); /* of a bias */
  /* zeros and scales are sent together; FP4's scales are sent in pieces */
  const size_t whole = l->kind == LINEAR_FP4 ? 0 : zeros + scales + (zeros > 0 ? 512 : 0);
  size_t piece = whole > rows ? whole : rows;
  if (piece < floats) piece = floats;
  if (loader->slot_bytes < piece) loader->slot_bytes = piece;
}

static Status reserve_vector(Loader *loader, const float **to, const Vector *from, VectorUse use,
                             Error *err) {
  if (from->data) need_floats(loader, from->n);
  *to = from->data ? arena_reserve(&loader->arena, (size_t)from->n, sizeof(float)) : NULL;
  return STATUS_OK;
}

/* Which linear layer (LAYER_Q ..) of the visited layer `linear` points at; N_LAYER_LINEARS: none. */
static int which_linear(const Loader *loader, const Linear *linear) {
  const Linear *all = loader->loaded->model->layers[loader->layer].linear;
  return linear >= all && linear < all + N_LAYER_LINEARS ? (int)(linear - all) : N_LAYER_LINEARS;
}

const int *weights_order(const BackendModel *loaded, const DeviceLinear *matrix) {
  for (int i = 0; i < loaded->n_ordered; i++)
    if (loaded->ordered[i].matrix == matrix) return loaded->ordered[i].order;
  return NULL;
}

/* Takes memory for the order of a matrix's inputs (Linear.order) if they are permuted. */
static void reserve_order(Loader *loader, const DeviceLinear *to, const Linear *from) {
  if (!from->order) return;
  const int *order = arena_reserve(&loader->arena, (size_t)from->n_in, sizeof *order);
  loader->loaded->ordered[loader->loaded->n_ordered++] = (OrderedMatrix){to, order};
}

/* Refuses an expert's linear layer that is int8, or cannot lie in one matrix with the first expert's. */
static Status check_alike(const Linear *first, const Linear *l, Error *err) {
  if (!are_alike(first, l))
    return error_set(
        err, STATUS_MODEL,
        "%s has %s weights in groups of %d, %s has %s in groups of %d: GPUs need all experts alike",
        first->name, weight_type_name(weight_type(first)), first->group, l->name,
        weight_type_name(weight_type(l)), l->group);
  if (weight_type(l) == WEIGHT_INT8)
    return error_set(err, STATUS_MODEL, "%s: GPUs do not compute experts with int8 activations yet", l->name);
  return STATUS_OK;
}

/* Lays out a matrix of experts or heads. EXPERT_DOWN and matrices of heads are DeviceLinear.summed: each
 * expert or head has an x of its own. */
static Status lay_out_experts(const Loader *loader, DeviceLinear *to, const Source *from, Error *err) {
  const int n_chosen = loader->loaded->model->config.experts.n_chosen + (loader->joined ? 1 : 0);
  return linear_lay_out_experts(to, from->n_experts, from->part >= KEY_HEADS ? 1 : n_chosen,
                                from->part >= EXPERT_DOWN, err);
}

/* Notes a matrix that stays on the host. On the device it has only the staging memory. */
static void keep_on_host(Loader *loader, DeviceLinear *to, const Source *from, size_t bytes) {
  BackendModel *loaded = loader->loaded;
  HostMatrix *host = &loaded->host[loaded->n_host++];
  *host = (HostMatrix){.to = to, .layer = loader->layer, .n = from->n};
  for (int i = 0; i < from->n; i++)
    host->which[i] = from->n_experts > 0 ? from->part + i : which_linear(loader, from->linears[i]);
  to->host = host;
  if (loader->staging_need < bytes) loader->staging_need = bytes;
}

static Status reserve_matrix(Loader *loader, DeviceLinear *to, const Source *from, Error *err) {
  const Linear *first = from->linears[0];
  const bool experts = from->n_experts > 0;
  int n_out = 0;
  bool bias = false;
  for (int i = 0; i < from->n * (experts ? from->n_experts : 1); i++) {
    const Linear *l = from->linears[i];
    if (experts) TRY(check_alike(first, l, err));
    n_out += l->n_out;
    bias = bias || l->bias.data;
    need_slot(loader, l);
    if (l->bias.data) need_floats(loader, l->n_out);
    if (loader->stays) loader->host_bytes += linear_bytes(l);
  }
  size_t bytes;
  TRY(linear_lay_out(to, first->name, weight_type(first), first->n_in, n_out, linear_group(first),
                     from->interleaved, bias, &bytes, err));
  if (experts)
    TRY(lay_out_experts(loader, to, from, err));
  else
    reserve_order(loader, to, first);
  void *memory = loader->stays ? loader->loaded->staging : arena_reserve(&loader->arena, bytes, 1);
  if (loader->arena.base) TRY(linear_place(to, memory, loader->loaded->stream, err));
  if (loader->stays) keep_on_host(loader, to, from, bytes);
  return STATUS_OK;
}

static size_t numbers_of(const Matrix *matrix) {
  return (size_t)matrix->n_rows * (size_t)matrix->n_columns;
}

static Status reserve_table(Loader *loader, const void **to, const Matrix *from, Error *err) {
  *to = arena_reserve(&loader->arena, numbers_of(from), dtype_bytes(from->dtype));
  return STATUS_OK;
}

/* Lays out everything from the arena's beginning: measures, or places if the arena has memory. */
static Status lay_out(Loader *loader, Error *err) {
  static const Pass pass = {reserve_vector, reserve_matrix, reserve_table};
  BackendModel *loaded = loader->loaded;
  loaded->staging = arena_reserve(&loader->arena, loader->staging_need, 1);
  loaded->n_host = loaded->n_ordered = 0;
  loader->host_bytes = 0;
  ropes_reserve(loaded, &loader->arena);
  TRY(visit(loader, &pass, err));
  parts_reserve_halves(loaded, &loader->arena);
  return STATUS_OK;
}

/* The largest number of matrices of a layer on the host: linear layers, ModelLayer.more, the experts' two. */
enum { LAYER_MATRICES = N_LAYER_LINEARS + 2 + 2 };

/* *bytes: the device memory that weights_load() takes. n says what stays on the host. n <= n_layers: experts
 * of the last n layers. n == n_layers + k: all experts, and the other matrices of the last k layers, except
 * those that are always on the device (DeviceMatrix, model/layers.h). */
static Status measure_with(Loader *loader, int n, size_t *bytes, Error *err) {
  const int n_layers = loader->loaded->model->config.n_layers;
  loader->host_experts = n < n_layers ? n : n_layers;
  loader->host_layers = n - loader->host_experts;
  loader->arena = (DeviceArena){0};
  loader->staging_need = 0;
  loader->slot_bytes = (size_t)8 << 20; /* at least; lay_out() raises it for larger pieces */
  TRY(lay_out(loader, err));
  /* lay_out() above took no staging, since staging_need was still 0 */
  arena_reserve(&loader->arena, loader->staging_need, 1);
  if (loader->arena.used > SIZE_MAX - UPLOAD_SLOTS * loader->slot_bytes)
    return error_set(err, STATUS_MODEL, "the model is too large for any memory");
  *bytes = loader->arena.used + UPLOAD_SLOTS * loader->slot_bytes;
  return STATUS_OK;
}

/* Chooses what stays on the host: just enough for the device to need at most `most` bytes, or all that can
 * stay there. most 0: nothing stays. *bytes: the bytes that the device needs. */
static Status measure(Loader *loader, size_t most, size_t *bytes, Error *err) {
  BackendModel *loaded = loader->loaded;
  const int n_layers = loaded->model->config.n_layers;
  TRY(NEW(loaded->layers, (size_t)n_layers, "layers", err));
  TRY(NEW(loaded->host, (size_t)n_layers * LAYER_MATRICES, "layers", err));
  TRY(NEW(loaded->ordered, (size_t)n_layers * LAYER_MATRICES, "layers", err));
  TRY(measure_with(loader, 0, bytes, err));
  if (most == 0 || *bytes <= most) return STATUS_OK;
  int low = 1, high = 2 * n_layers;
  while (low < high) {
    const int middle = (low + high) / 2;
    TRY(measure_with(loader, middle, bytes, err));
    if (*bytes <= most)
      high = middle;
    else
      low = middle + 1;
  }
  return measure_with(loader, low, bytes, err);
}

static void forget_layers(BackendModel *loaded) {
  free(loaded->layers);
  free(loaded->host);
  free(loaded->ordered);
}

Status weights_memory(const Model *model, size_t most, DeviceMemory *memory, Error *err) {
  BackendModel measured = {.model = model};
  Loader loader = {.loaded = &measured};
  *memory = (DeviceMemory){0};
  Status status = measure(&loader, most, &memory->weights, err);
  const bool some = measured.n_host > 0;
  memory->on_host = loader.host_bytes;
  memory->host_experts = some && model->config.experts.n_experts > 0 ? loader.host_experts : 0;
  memory->host_layers = some ? loader.host_layers : 0;
  forget_layers(&measured);
  return status;
}

Status weights_plan(const Model *model, BackendModel *planned, Error *err) {
  size_t bytes;
  *planned = (BackendModel){.model = model};
  return measure(&(Loader){.loaded = planned}, 0, &bytes, err);
}

/* --- loading a checkpoint */

static void advance(Loader *l, size_t bytes) {
  l->done += bytes;
  if (l->options->progress) l->options->progress(l->options->progress_user, l->done, l->total);
}

/* Uploads the numbers as fp32. */
static Status fill_vector(Loader *l, const float **to, const Vector *from, VectorUse use, Error *err) {
  if (!from->data) return STATUS_OK;
  floats_read(from->data, from->dtype, 0, (size_t)from->n, l->floats);
  for (int i = 0; i < from->n; i++)
    l->floats[i] = use.which < 0 ? l->floats[i] + use.plus
                                 : layer_vector_number(&l->loaded->model->config, use.which, l->floats[i]);
  for (int i = 0; use.divisor != 0 && i < from->n; i++) l->floats[i] /= use.divisor;
  TRY(upload_array(&l->uploader, l->floats, (size_t)from->n * sizeof(float), (void *)*to, err));
  advance(l, (size_t)from->n * dtype_bytes(from->dtype));
  return STATUS_OK;
}

/* Lays out rows [first, first + n) of what fill_rows() uploads. */
typedef Status (*FillRows)(const DeviceLinear *to, LinearPart part, const Linear *from, int first, int n,
                           const void *staged, cudaStream_t stream, Error *err);

static Status fill_group_rows(const DeviceLinear *to, LinearPart part, const Linear *from, int first, int n,
                              const void *staged, cudaStream_t stream, Error *err) {
  return linear_fill_weights(to, part, first, n, from->bits, staged, stream, err);
}

static Status fill_byte_rows(const DeviceLinear *to, LinearPart part, const Linear *from, int first, int n,
                             const void *staged, cudaStream_t stream, Error *err) {
  return linear_fill_bytes(to, part, first, n, staged, stream, err);
}

static Status fill_dense_rows(const DeviceLinear *to, LinearPart part, const Linear *from, int first, int n,
                              const void *staged, cudaStream_t stream, Error *err) {
  return linear_fill_dense(to, part, first, n, staged, stream, err);
}

/* Lays out FP4's scales. scale_values[] has each code's value times the matrix's factor (NVFP4). Code 0x38 is
 * 1 in E4M3, so its entry is the factor. */
static Status fill_scale_rows(const DeviceLinear *to, LinearPart part, const Linear *from, int first, int n,
                              const void *staged, cudaStream_t stream, Error *err) {
  return linear_fill_fp4_scales(to, part, first, n, staged, from->group, from->scale_values[0x38], stream,
                                err);
}

static Status add_array(Uploader *u, LinearArray a, void **staged, Error *err) {
  return upload_add_rows(u, *a.data, a.n_rows, a.row, a.step, staged, err);
}

/* Uploads an array in pieces of a multiple of `unit` rows. */
static Status fill_rows(Loader *l, const DeviceLinear *to, LinearPart part, const Linear *layer,
                        FillRows fill, LinearArray from, size_t unit, Error *err) {
  Uploader *u = &l->uploader;
  const size_t fit = u->slot_bytes / from.row / unit * unit;
  const size_t rows = fit < from.n_rows ? fit : from.n_rows;
  for (size_t first = 0; first < from.n_rows; first += rows) {
    const size_t n = from.n_rows - first < rows ? from.n_rows - first : rows;
    void *staged;
    TRY(upload_add_rows(u, (const char *)*from.data + first * from.step, n, from.row, from.step, &staged,
                        err));
    TRY(upload_send(u, err));
    TRY(fill(to, part, layer, (int)first, (int)n, staged, u->stream, err));
    advance(l, n * from.row);
  }
  return STATUS_OK;
}

/* Fills a matrix whose weights have scales in groups along the input. Weights, zeros and scales of a small
 * matrix, such as an expert's, are sent together. */
static Status fill_grouped(Loader *l, const DeviceLinear *to, LinearPart part, const Linear *from,
                           Error *err) {
  Uploader *u = &l->uploader;
  const LinearArray stored = linear_array(from, LINEAR_WEIGHTS);
  const size_t bytes = linear_array_bytes(from, LINEAR_WEIGHTS);
  const bool small = bytes <= u->slot_bytes / 4;
  void *weights, *zeros, *scales;
  if (small)
    TRY(add_array(u, stored, &weights, err));
  else
    TRY(fill_rows(l, to, part, from, fill_group_rows, stored, 64, err));
  TRY(add_array(u, linear_array(from, LINEAR_ZEROS), &zeros, err));
  TRY(add_array(u, linear_array(from, LINEAR_SCALES), &scales, err));
  TRY(upload_send(u, err));
  if (small) TRY(fill_group_rows(to, part, from, 0, from->n_in, weights, u->stream, err));
  TRY(linear_fill_groups(to, part, zeros, scales, from->kind != LINEAR_AWQ, u->stream, err));
  advance(l, linear_bytes(from) - (small ? 0 : bytes));
  return STATUS_OK;
}

/* Uploads scales or a bias, a float per output, to `at`; `stored` is their bytes in the checkpoint. */
static Status fill_floats(Loader *l, const DeviceLinear *to, LinearPart part, const void *at,
                          const void *from, size_t stored, Error *err) {
  void *staged;
  TRY(upload_add(&l->uploader, from, (size_t)part.n_out * sizeof(float), &staged, err));
  TRY(upload_send(&l->uploader, err));
  TRY(linear_fill_floats(to, part, at, staged, l->uploader.stream, err));
  advance(l, stored);
  return STATUS_OK;
}

static Status fill_fp8_scales(Loader *l, const DeviceLinear *to, LinearPart part, const Linear *from,
                              Error *err) {
  Uploader *u = &l->uploader;
  void *staged;
  TRY(add_array(u, linear_array(from, LINEAR_SCALES), &staged, err));
  TRY(upload_send(u, err));
  TRY(linear_fill_fp8_scales(to, part, staged, from->block, from->block_first, u->stream, err));
  advance(l, linear_array_bytes(from, LINEAR_SCALES));
  return STATUS_OK;
}

static Status fill_part(Loader *l, const DeviceLinear *to, LinearPart part, const Linear *from, Error *err) {
  const size_t n_out = (size_t)from->n_out;
  if (linear_is_by_inputs(from)) {
    TRY(fill_grouped(l, to, part, from, err));
  } else { /* whole slabs of 8 rows */
    const FillRows fill = from->kind == LINEAR_DENSE ? fill_dense_rows : fill_byte_rows;
    TRY(fill_rows(l, to, part, from, fill, linear_array(from, LINEAR_WEIGHTS), 8, err));
  }
  if (from->kind == LINEAR_INT8)
    TRY(fill_floats(l, to, part, to->scales, from->scales, n_out * sizeof(float), err));
  if (from->kind == LINEAR_FP8) TRY(fill_fp8_scales(l, to, part, from, err));
  if (from->kind == LINEAR_FP4) {
    TRY(fill_rows(l, to, part, from, fill_scale_rows, linear_array(from, LINEAR_SCALES), 8, err));
    advance(l, 256 * sizeof *from->scale_values);
  }
  if (!from->bias.data) return STATUS_OK;
  floats_read(from->bias.data, from->bias.dtype, 0, n_out, l->floats);
  return fill_floats(l, to, part, to->bias, l->floats, n_out * dtype_bytes(from->bias.dtype), err);
}

/* A matrix on the host is left there while loading. */
static Status fill_matrix(Loader *l, DeviceLinear *to, const Source *from, Error *err) {
  const int *order = weights_order(l->loaded, to);
  const Linear *const *next = from->linears;
  if (order && !l->streaming)
    TRY(upload_array(&l->uploader, next[0]->order, (size_t)to->n_in * sizeof *order, (void *)order, err));
  if (to->host && !l->streaming) return STATUS_OK;
  for (int e = 0; e == 0 || e < from->n_experts; e++) {
    const DeviceLinear own = from->n_experts > 0 ? linear_expert(to, e) : *to;
    for (int i = 0, slab = 0; i < from->n; i++) {
      const Linear *linear = *next++;
      const LinearPart part = {linear->n_out, slab, from->interleaved ? 2 : 1};
      TRY(fill_part(l, &own, part, linear, err));
      slab += from->interleaved ? 1 : linear->n_out / 8;
    }
  }
  return STATUS_OK;
}

static Status fill_table(Loader *l, const void **to, const Matrix *from, Error *err) {
  const size_t bytes = numbers_of(from) * dtype_bytes(from->dtype);
  TRY(upload_array(&l->uploader, from->data, bytes, (void *)*to, err));
  advance(l, bytes);
  return STATUS_OK;
}

static const Pass filling = {fill_vector, fill_matrix, fill_table};

static void close_upload(Loader *l) {
  upload_close(&l->uploader);
  free(l->floats);
  l->floats = NULL;
}

RELEASE_BY(upload_release, Loader, close_upload)

/* Call close_upload() also after a failure. */
static Status open_upload(Loader *l, Error *err) {
  TRY(NEW(l->floats, l->n_floats, "vectors", err));
  return upload_open(&l->uploader, l->loaded->stream, l->options->n_threads, l->slot_bytes, err);
}

static Status fill_from_checkpoint(Loader *l, Error *err) {
  const Model *model = l->loaded->model;
  l->total =
      model->weight_bytes - model->table_bytes + model->made_bytes - model->replaced_bytes - l->host_bytes;
  OWNED(upload_release) Loader *open = l;
  TRY(open_upload(open, err));
  TRY(visit(l, &filling, err));
  return cuda_status(cudaStreamSynchronize(l->loaded->stream), "loading failed", err);
}

/* --- random weights, for a model made from a config alone */

static Status make_vector(Loader *l, const float **to, const Vector *from, VectorUse use, Error *err) {
  if (!from->data) return STATUS_OK;
  const float divisor = use.divisor != 0 ? use.divisor : 1;
  return random_numbers((void *)*to, WEIGHT_F32, (size_t)from->n, use.low / divisor, use.high / divisor, 0,
                        l->loaded->stream, err);
}

static Status make_matrix(Loader *l, DeviceLinear *to, const Source *from, Error *err) {
  if (to->host) return STATUS_OK; /* its random numbers are on the host (model_fill_dummy()) */
  for (int e = 0; e == 0 || e < from->n_experts; e++) {
    const DeviceLinear own = from->n_experts > 0 ? linear_expert(to, e) : *to;
    TRY(random_linear(&own, l->staging, l->staging_bytes, ++l->n_made, l->loaded->stream, err));
  }
  return STATUS_OK;
}

static Status make_table(Loader *l, const void **to, const Matrix *from, Error *err) {
  return random_numbers((void *)*to, WEIGHT_F16, numbers_of(from), -1, 1, 0, l->loaded->stream, err);
}

/* Fills all weights with random numbers. Matrices are made in a staging buffer as large as all slots of an
 * upload; random_linear() refuses a matrix that does not fit there. */
static Status fill_at_random(Loader *l, Error *err) {
  static const Pass pass = {make_vector, make_matrix, make_table};
  l->staging_bytes = UPLOAD_SLOTS * (l->slot_bytes / 256 * 256);
  TRY(cuda_status(cudaMalloc(&l->staging, l->staging_bytes), "no memory for loading", err));
  Status status = visit(l, &pass, err);
  cudaFree(l->staging);
  return status;
}

/* --- matrices on the host */

struct WeightStream {
  Loader loader;
};

/* Keeps what loading needed, for the matrices on the host. */
static Status open_stream(BackendModel *loaded, const Loader *loader, const BackendOptions *options,
                          Error *err) {
  static const BackendOptions silent; /* loading reports no progress from now on */
  loaded->n_host_experts = loaded->model->config.experts.n_experts > 0 ? loader->host_experts : 0;
  loaded->n_host_layers = loader->host_layers;
  TRY(NEW(loaded->weight_stream, 1, "matrices on the host", err));
  Loader *kept = &loaded->weight_stream->loader;
  *kept = (Loader){.loaded = loaded,
                   .slot_bytes = loader->slot_bytes,
                   .n_floats = loader->n_floats,
                   .options = options,
                   .streaming = true};
  TRY(open_upload(kept, err));
  kept->options = &silent;
  return STATUS_OK;
}

Status weights_stream(const BackendModel *loaded, const HostMatrix *host, Error *err) {
  Loader *l = &loaded->weight_stream->loader;
  const ModelLayer *from = &loaded->model->layers[host->layer];
  DeviceLinear *to = host->to;
  TRY(linear_place(to, loaded->staging, loaded->stream, err)); /* zeroes it, too */
  if (to->n_experts > 0) return visit_parts(l, &filling, to, from, host->which[0], host->n, err);
  const Linear *linears[MAX_PROJECTIONS];
  for (int i = 0; i < host->n; i++) linears[i] = layer_linear(from, host->which[i]);
  return fill_matrix(l, to, &(Source){linears, host->n, to->interleaved, 0, 0}, err);
}

Status weights_load(BackendModel *loaded, const BackendOptions *options, Error *err) {
  Loader loader = {.loaded = loaded, .options = options};
  size_t bytes;
  TRY(measure(&loader, options->weight_bytes, &bytes, err));
  TRY(cuda_status(cudaMalloc(&loaded->memory, loader.arena.used), "no memory for the weights", err));
  loader.arena = (DeviceArena){.base = loaded->memory};
  TRY(lay_out(&loader, err));
  loaded->mix = (DeviceProjections){.parts = {loaded->mix_down}, .n_parts = 1};
  TRY(ropes_copy(loaded, err));
  TRY(loaded->model->dummy ? fill_at_random(&loader, err) : fill_from_checkpoint(&loader, err));
  TRY(parts_fill_halves(loaded, err));
  return loaded->n_host > 0 ? open_stream(loaded, &loader, options, err) : STATUS_OK;
}

void weights_release(BackendModel *loaded) {
  if (loaded->weight_stream) close_upload(&loaded->weight_stream->loader);
  free(loaded->weight_stream);
  cudaFree(loaded->memory);
  forget_layers(loaded);
}
