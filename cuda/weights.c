/* weights.c - see weights.h.
 *
 * Always true: lay_out() runs twice over the same model, first to measure and then to place, so that one
 * allocation holds everything; fill() then reads the mapped file once, in the same order. */
#include "cuda/weights.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/bench/random_weights.h"
#include "cuda/device.h"
#include "cuda/upload.h"

/* LINEAR_GROUPED of 4 bits, whose zero points or scales AutoAWQ's layout cannot hold, becomes 8 bits. */
static WeightType weight_type(const Linear *linear) {
  switch (linear->kind) {
  case LINEAR_AWQ: return WEIGHT_AWQ4;
  case LINEAR_GROUPED: return WEIGHT_AWQ8;
  case LINEAR_INT8: return WEIGHT_INT8;
  case LINEAR_DENSE: break;
  }
  return linear->dtype == DTYPE_F16 ? WEIGHT_F16 : linear->dtype == DTYPE_BF16 ? WEIGHT_BF16 : WEIGHT_F32;
}

static bool has_groups(const Linear *linear) {
  return linear->kind == LINEAR_AWQ || linear->kind == LINEAR_GROUPED;
}

static int linear_group(const Linear *linear) {
  return has_groups(linear) ? linear->group : 0;
}

/* Bytes of n zero points, and of n scales, in a Linear's layout. */
static size_t zero_bytes(const Linear *linear, size_t n) {
  return linear->kind == LINEAR_AWQ ? n / 2 : n;
}

static size_t scale_bytes(const Linear *linear, size_t n) {
  return linear->kind == LINEAR_AWQ ? n * 2 : n * 4;
}

/* Whether two layers can be stacked in one matrix: the same type and group, outputs in whole slabs of 8. */
static bool can_join(const Linear *a, const Linear *b) {
  return weight_type(a) == weight_type(b) && linear_group(a) == linear_group(b) && a->n_out % 8 == 0 &&
         b->n_out % 8 == 0;
}

/* --- layout */

typedef struct {
  Carver carver;
  size_t slot_bytes; /* least size of a loading buffer: the largest indivisible piece */
  cudaStream_t stream;
} Layout;

static void need_slot(Layout *layout, const Linear *l) {
  size_t in = (size_t)l->n_in, out = (size_t)l->n_out, piece;
  if (has_groups(l)) {
    size_t n = in / (size_t)l->group * out, rows = 64 * out * (size_t)l->bits / 8;
    size_t groups = zero_bytes(l, n) + scale_bytes(l, n) + 512;
    piece = groups > rows ? groups : rows;
  } else {
    piece = 8 * in * (l->kind == LINEAR_INT8 ? 1 : dtype_bytes(l->dtype));
  }
  if (piece < out * sizeof(float)) piece = out * sizeof(float); /* a bias, or int8 scales */
  if (layout->slot_bytes < piece) layout->slot_bytes = piece;
}

/* Lays out n layers as one matrix. */
static Status lay_out_linear(Layout *layout, DeviceLinear *to, const Linear *const *from, int n,
                             bool interleaved, Error *err) {
  int n_out = 0;
  bool bias = false;
  for (int i = 0; i < n; i++) {
    n_out += from[i]->n_out;
    bias = bias || from[i]->bias.data;
    need_slot(layout, from[i]);
  }
  size_t bytes;
  TRY(linear_lay_out(to, from[0]->name, weight_type(from[0]), from[0]->n_in, n_out, linear_group(from[0]),
                     interleaved, bias, &bytes, err));
  void *memory = carve(&layout->carver, bytes, 1);
  return layout->carver.base ? linear_place(to, memory, layout->stream, err) : STATUS_OK;
}

static Status lay_out_projections(Layout *layout, DeviceProjections *to, const Linear *const *from, int n,
                                  bool pair, Error *err) {
  bool join = true;
  for (int i = 1; i < n; i++) join = join && can_join(from[0], from[i]);
  to->n_parts = join ? 1 : n;
  to->first[0] = 0;
  if (join) return lay_out_linear(layout, &to->parts[0], from, n, pair, err);
  for (int i = 0, first = 0; i < n; first += from[i++]->n_out) {
    to->first[i] = first;
    TRY(lay_out_linear(layout, &to->parts[i], &from[i], 1, false, err));
  }
  return STATUS_OK;
}

static const float *lay_out_vector(Layout *layout, const Vector *vector) {
  return vector->data ? carve(&layout->carver, (size_t)vector->n, sizeof(float)) : NULL;
}

static Status lay_out(BackendModel *loaded, const Model *model, Layout *layout, Error *err) {
  const bool pair = model->config.activation == ACTIVATION_SILU; /* LINEAR_SWIGLU_F16 */
  for (int i = 0; i < model->config.n_layers; i++) {
    const ModelLayer *from = &model->layers[i];
    DeviceLayer *to = &loaded->layers[i];
    to->attn_norm = lay_out_vector(layout, &from->attn_norm);
    to->attn_post_norm = lay_out_vector(layout, &from->attn_post_norm);
    to->mlp_norm = lay_out_vector(layout, &from->mlp_norm);
    to->mlp_post_norm = lay_out_vector(layout, &from->mlp_post_norm);
    to->q_norm = lay_out_vector(layout, &from->q_norm);
    to->k_norm = lay_out_vector(layout, &from->k_norm);
    TRY(lay_out_projections(layout, &to->qkv, (const Linear *[]){&from->q, &from->k, &from->v}, 3, false,
                            err));
    TRY(lay_out_linear(layout, &to->o, (const Linear *[]){&from->o}, 1, false, err));
    TRY(lay_out_projections(layout, &to->gate_up, (const Linear *[]){&from->gate, &from->up}, 2, pair, err));
    TRY(lay_out_linear(layout, &to->down, (const Linear *[]){&from->down}, 1, false, err));
  }
  loaded->final_norm = lay_out_vector(layout, &model->final_norm);
  for (int i = 0; i < N_ROPES; i++)
    loaded->ropes[i].frequencies =
        carve(&layout->carver, (size_t)model->config.rotary_dim / 2, sizeof(float));
  TRY(lay_out_linear(layout, &loaded->head, (const Linear *[]){&model->head}, 1, false, err));
  if (model->head.kind == LINEAR_DENSE && model->head.weight == model->embedding.data) {
    loaded->embedding = loaded->head.dense;
    loaded->embedding_stride = loaded->head.stride;
  } else {
    loaded->embedding_stride = (size_t)model->embedding.n_columns;
    loaded->embedding = carve(&layout->carver, (size_t)model->embedding.n_rows * loaded->embedding_stride,
                              dtype_bytes(model->embedding.dtype));
  }
  return STATUS_OK;
}

static const size_t usual_slot_bytes = (size_t)8 << 20;

static Status measure(BackendModel *loaded, const Model *model, Layout *layout, Error *err) {
  loaded->layers = mem_alloc((size_t)model->config.n_layers, sizeof *loaded->layers, "layers", err);
  if (!loaded->layers) return STATUS_FAILED;
  layout->slot_bytes = usual_slot_bytes;
  TRY(lay_out(loaded, model, layout, err));
  if (layout->carver.used == SIZE_MAX)
    return error_set(err, STATUS_MODEL, "the model is too large for any memory");
  return STATUS_OK;
}

Status weights_bytes(const Model *model, size_t *bytes, Error *err) {
  BackendModel measured = {0};
  Layout layout = {0};
  Status status = measure(&measured, model, &layout, err);
  free(measured.layers);
  *bytes = layout.carver.used + UPLOAD_SLOTS * layout.slot_bytes;
  return status;
}

Status weights_plan(const Model *model, BackendModel *planned, Error *err) {
  *planned = (BackendModel){.model = model};
  Layout layout = {0};
  return measure(planned, model, &layout, err);
}

/* --- loading a checkpoint */

typedef struct {
  Uploader uploader;
  const BackendOptions *options;
  size_t done, total; /* bytes of the checkpoint */
  float *floats;      /* host memory for the longest vector, as fp32 */
  bool plus_one;      /* config.norm_plus_one */
} Filler;

static void advance(Filler *f, size_t bytes) {
  f->done += bytes;
  if (f->options->progress) f->options->progress(f->options->progress_user, f->done, f->total);
}

/* Uploads the factors of a norm as fp32. */
static Status fill_norm(Filler *f, const Vector *from, const float *to, Error *err) {
  if (!from->data) return STATUS_OK;
  floats_read(from->data, from->dtype, 0, (size_t)from->n, f->floats);
  for (int i = 0; f->plus_one && i < from->n; i++) f->floats[i] += 1;
  TRY(upload_array(&f->uploader, f->floats, (size_t)from->n * sizeof(float), (void *)to, err));
  advance(f, (size_t)from->n * dtype_bytes(from->dtype));
  return STATUS_OK;
}

static Status fill_groups(Filler *f, const DeviceLinear *to, LinearPart part, const Linear *from,
                          Error *err) {
  Uploader *u = &f->uploader;
  const size_t n_out = (size_t)from->n_out, width = n_out + (size_t)from->skip;
  const size_t n = (size_t)(from->n_in / from->group);
  void *zeros, *scales;
  TRY(upload_begin(u, err));
  TRY(upload_add_rows(u, from->qzeros, n, zero_bytes(from, n_out), zero_bytes(from, width), &zeros, err));
  TRY(upload_add_rows(u, from->scales, n, scale_bytes(from, n_out), scale_bytes(from, width), &scales, err));
  TRY(linear_fill_groups(to, part, zeros, scales, from->kind != LINEAR_AWQ, u->stream, err));
  TRY(upload_end(u, err));
  advance(f, zero_bytes(from, n * n_out) + scale_bytes(from, n * n_out));
  return STATUS_OK;
}

static Status fill_quantised(Filler *f, const DeviceLinear *to, LinearPart part, const Linear *from,
                             Error *err) {
  Uploader *u = &f->uploader;
  const size_t bits = (size_t)from->bits, row_bytes = (size_t)from->n_out * bits / 8,
               step = row_bytes + (size_t)from->skip * bits / 8;
  int rows = (int)(u->slot_bytes / row_bytes / 64 * 64);
  for (int first = 0; first < from->n_in; first += rows) {
    int n = from->n_in - first < rows ? from->n_in - first : rows;
    void *staged;
    TRY(upload_begin(u, err));
    TRY(upload_add_rows(u, (const char *)from->qweight + (size_t)first * step, (size_t)n, row_bytes, step,
                        &staged, err));
    TRY(linear_fill_weights(to, part, first, n, from->bits, staged, u->stream, err));
    TRY(upload_end(u, err));
    advance(f, (size_t)n * row_bytes);
  }
  return fill_groups(f, to, part, from, err);
}

/* Uploads a dense or int8 matrix row by row, in whole slabs of 8. */
static Status fill_rows(Filler *f, const DeviceLinear *to, LinearPart part, const Linear *from, Error *err) {
  Uploader *u = &f->uploader;
  const bool int8 = from->kind == LINEAR_INT8;
  size_t row_bytes = (size_t)from->n_in * (int8 ? 1 : dtype_bytes(from->dtype)),
         rows_fit = u->slot_bytes / row_bytes / 8 * 8;
  int rows = rows_fit < (size_t)from->n_out ? (int)rows_fit : from->n_out;
  for (int first = 0; first < from->n_out; first += rows) {
    int n = from->n_out - first < rows ? from->n_out - first : rows;
    void *staged;
    TRY(upload_begin(u, err));
    TRY(upload_add(u, (const char *)from->weight + (size_t)first * row_bytes, (size_t)n * row_bytes, &staged,
                   err));
    TRY((int8 ? linear_fill_int8 : linear_fill_dense)(to, part, first, n, staged, u->stream, err));
    TRY(upload_end(u, err));
    advance(f, (size_t)n * row_bytes);
  }
  return STATUS_OK;
}

static Status fill_int8_scales(Filler *f, const DeviceLinear *to, LinearPart part, const Linear *from,
                               Error *err) {
  const size_t bytes = (size_t)from->n_out * sizeof(float);
  void *staged;
  TRY(upload_begin(&f->uploader, err));
  TRY(upload_add(&f->uploader, from->scales, bytes, &staged, err));
  TRY(linear_fill_floats(to, part, to->scales, staged, f->uploader.stream, err));
  TRY(upload_end(&f->uploader, err));
  advance(f, bytes);
  return STATUS_OK;
}

static Status fill_linear(Filler *f, const DeviceLinear *to, LinearPart part, const Linear *from,
                          Error *err) {
  TRY(has_groups(from) ? fill_quantised(f, to, part, from, err) : fill_rows(f, to, part, from, err));
  if (from->kind == LINEAR_INT8) TRY(fill_int8_scales(f, to, part, from, err));
  if (!from->bias.data) return STATUS_OK;
  Uploader *u = &f->uploader;
  void *staged;
  floats_read(from->bias.data, from->bias.dtype, 0, (size_t)from->n_out, f->floats);
  TRY(upload_begin(u, err));
  TRY(upload_add(u, f->floats, (size_t)from->n_out * sizeof(float), &staged, err));
  TRY(linear_fill_floats(to, part, to->bias, staged, u->stream, err));
  TRY(upload_end(u, err));
  advance(f, (size_t)from->n_out * dtype_bytes(from->bias.dtype));
  return STATUS_OK;
}

static Status fill_single(Filler *f, const DeviceLinear *to, const Linear *from, Error *err) {
  return fill_linear(f, to, (LinearPart){.n_out = from->n_out, .slab_step = 1}, from, err);
}

static Status fill_projections(Filler *f, const DeviceProjections *to, const Linear *const *from, int n,
                               Error *err) {
  if (to->n_parts > 1) {
    for (int i = 0; i < n; i++) TRY(fill_single(f, &to->parts[i], from[i], err));
    return STATUS_OK;
  }
  bool interleaved = to->parts[0].interleaved;
  for (int i = 0, slab = 0; i < n; slab += interleaved ? 1 : from[i]->n_out / 8, i++) {
    LinearPart part = {.n_out = from[i]->n_out, .first_slab = slab, .slab_step = interleaved ? 2 : 1};
    TRY(fill_linear(f, &to->parts[0], part, from[i], err));
  }
  return STATUS_OK;
}

static Status fill(BackendModel *loaded, Filler *f, Error *err) {
  const Model *model = loaded->model;
  for (int i = 0; i < model->config.n_layers; i++) {
    const ModelLayer *from = &model->layers[i];
    const DeviceLayer *to = &loaded->layers[i];
    TRY(fill_norm(f, &from->attn_norm, to->attn_norm, err));
    TRY(fill_norm(f, &from->attn_post_norm, to->attn_post_norm, err));
    TRY(fill_norm(f, &from->mlp_norm, to->mlp_norm, err));
    TRY(fill_norm(f, &from->mlp_post_norm, to->mlp_post_norm, err));
    TRY(fill_norm(f, &from->q_norm, to->q_norm, err));
    TRY(fill_norm(f, &from->k_norm, to->k_norm, err));
    TRY(fill_projections(f, &to->qkv, (const Linear *[]){&from->q, &from->k, &from->v}, 3, err));
    TRY(fill_single(f, &to->o, &from->o, err));
    TRY(fill_projections(f, &to->gate_up, (const Linear *[]){&from->gate, &from->up}, 2, err));
    TRY(fill_single(f, &to->down, &from->down, err));
  }
  TRY(fill_norm(f, &model->final_norm, loaded->final_norm, err));
  TRY(fill_single(f, &loaded->head, &model->head, err));
  if (loaded->embedding == loaded->head.dense) return STATUS_OK;
  const Matrix *table = &model->embedding;
  size_t bytes = (size_t)table->n_rows * (size_t)table->n_columns * dtype_bytes(table->dtype);
  TRY(upload_array(&f->uploader, table->data, bytes, (void *)loaded->embedding, err));
  advance(f, bytes);
  return STATUS_OK;
}

/* The longest vector that goes through host memory as fp32: a norm or a bias. */
static size_t longest_vector(const ModelConfig *c) {
  size_t longest = (size_t)c->hidden, heads = (size_t)c->n_heads * (size_t)c->head_dim;
  if (longest < heads) longest = heads;
  if (longest < (size_t)c->intermediate) longest = (size_t)c->intermediate;
  return longest < (size_t)c->vocab_size ? (size_t)c->vocab_size : longest;
}

static Status fill_from_checkpoint(BackendModel *loaded, const BackendOptions *options, size_t slot_bytes,
                                   Error *err) {
  const Model *model = loaded->model;
  Filler filler = {.options = options,
                   .plus_one = model->config.norm_plus_one,
                   .total = model->weight_bytes + model->made_bytes - model->replaced_bytes};
  filler.floats = mem_alloc(longest_vector(&model->config), sizeof *filler.floats, "vectors", err);
  Status status = filler.floats ? STATUS_OK : STATUS_FAILED;
  if (!status) status = upload_open(&filler.uploader, loaded->stream, options->n_threads, slot_bytes, err);
  if (!status) status = fill(loaded, &filler, err);
  if (!status) status = cuda_status(cudaStreamSynchronize(loaded->stream), "loading failed", err);
  upload_close(&filler.uploader);
  free(filler.floats);
  return status;
}

/* --- random weights, for a model made from a config alone */

static Status fill_ones(BackendModel *loaded, const float *to, int n, Error *err) {
  return to ? random_numbers((void *)to, WEIGHT_F32, (size_t)n, 1, 1, 0, loaded->stream, err) : STATUS_OK;
}

/* Makes one matrix after another in `staging`, each from a seed of its own. */
typedef struct {
  BackendModel *loaded;
  void *staging; /* [bytes] */
  size_t bytes;
  uint64_t n_made;
} Maker;

static Status make(Maker *m, const DeviceLinear *to, Error *err) {
  return random_linear(to, m->staging, m->bytes, ++m->n_made, m->loaded->stream, err);
}

static Status make_layer(Maker *m, const DeviceLayer *to, Error *err) {
  const ModelConfig *c = &m->loaded->model->config;
  const int heads = c->qk_norm == QK_NORM_WHOLE ? c->n_heads : 1,
            kv_heads = c->qk_norm == QK_NORM_WHOLE ? c->n_kv_heads : 1;
  TRY(fill_ones(m->loaded, to->attn_norm, c->hidden, err));
  TRY(fill_ones(m->loaded, to->attn_post_norm, c->hidden, err));
  TRY(fill_ones(m->loaded, to->mlp_norm, c->hidden, err));
  TRY(fill_ones(m->loaded, to->mlp_post_norm, c->hidden, err));
  TRY(fill_ones(m->loaded, to->q_norm, heads * c->head_dim, err));
  TRY(fill_ones(m->loaded, to->k_norm, kv_heads * c->head_dim, err));
  for (int i = 0; i < to->qkv.n_parts; i++) TRY(make(m, &to->qkv.parts[i], err));
  for (int i = 0; i < to->gate_up.n_parts; i++) TRY(make(m, &to->gate_up.parts[i], err));
  TRY(make(m, &to->o, err));
  return make(m, &to->down, err);
}

static Status make_all(Maker *m, Error *err) {
  BackendModel *loaded = m->loaded;
  const ModelConfig *c = &loaded->model->config;
  const Matrix *table = &loaded->model->embedding;
  for (int i = 0; i < c->n_layers; i++) TRY(make_layer(m, &loaded->layers[i], err));
  TRY(fill_ones(loaded, loaded->final_norm, c->hidden, err));
  TRY(make(m, &loaded->head, err));
  if (loaded->embedding == loaded->head.dense) return STATUS_OK;
  return random_numbers((void *)loaded->embedding, WEIGHT_F16,
                        (size_t)table->n_rows * (size_t)table->n_columns, -1, 1, 0, loaded->stream, err);
}

/* At most three layers are stacked in one matrix, so the size of the loader's slots together is enough. */
static Status fill_at_random(BackendModel *loaded, size_t slot_bytes, Error *err) {
  Maker maker = {.loaded = loaded, .bytes = UPLOAD_SLOTS * (slot_bytes / 256 * 256)};
  TRY(cuda_status(cudaMalloc(&maker.staging, maker.bytes), "no memory for loading", err));
  Status status = make_all(&maker, err);
  cudaFree(maker.staging);
  return status;
}

/* --- rope frequencies */

static Status copy_rope(const BackendModel *loaded, const RopeConfig *rope, bool long_text, float *host,
                        DeviceRope *to, Error *err) {
  const int rotary_dim = loaded->model->config.rotary_dim;
  rope_frequencies(rope, rotary_dim, long_text, host, &to->attention_factor);
  TRY(cuda_status(cudaMemcpyAsync((void *)to->frequencies, host, (size_t)rotary_dim / 2 * sizeof *host,
                                  cudaMemcpyHostToDevice, loaded->stream),
                  "cannot copy rotary frequencies", err));
  return cuda_status(cudaStreamSynchronize(loaded->stream), "cannot copy rotary frequencies", err);
}

/* Copies all three, although most models use one. */
static Status copy_ropes(BackendModel *loaded, Error *err) {
  const ModelConfig *c = &loaded->model->config;
  float *host = mem_alloc((size_t)c->rotary_dim / 2, sizeof *host, "rotary frequencies", err);
  if (!host) return STATUS_FAILED;
  DeviceRope *ropes = loaded->ropes;
  Status status = copy_rope(loaded, &c->rope, false, host, &ropes[ROPE_GLOBAL], err);
  if (!status) status = copy_rope(loaded, &c->local_rope, false, host, &ropes[ROPE_LOCAL], err);
  if (!status) status = copy_rope(loaded, &c->rope, true, host, &ropes[ROPE_OF_LONG_TEXTS], err);
  free(host);
  return status;
}

Status weights_load(BackendModel *loaded, const BackendOptions *options, Error *err) {
  const Model *model = loaded->model;
  Layout layout = {.stream = loaded->stream};
  TRY(measure(loaded, model, &layout, err));
  size_t bytes = layout.carver.used;
  layout.carver = (Carver){0};
  TRY(cuda_status(cudaMalloc(&loaded->memory, bytes), "no memory for the weights", err));
  layout.carver.base = loaded->memory;
  TRY(lay_out(loaded, model, &layout, err));
  TRY(copy_ropes(loaded, err));
  return model->dummy ? fill_at_random(loaded, layout.slot_bytes, err)
                      : fill_from_checkpoint(loaded, options, layout.slot_bytes, err);
}

void weights_release(BackendModel *loaded) {
  cudaFree(loaded->memory);
  free(loaded->layers);
}
