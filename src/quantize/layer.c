/* layer.c - see layer.h.
 *
 * Scales of inputs are folded into what makes the inputs; the model's outputs stay the same:
 *   norm -> its readers     the norm's weights, if all its readers are quantised
 *   v -> o                  v's outputs; heads that share a v share its scales
 *   up -> down              up's outputs, where down's input is act(gate) * up
 * v and up are rounded before their reader's scales are known. So the scales of their groups are divided by
 * the reader's scales afterwards. */
#include "quantize/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "model/layers.h"
#include "quantize/layouts.h"
#include "quantize/matrix.h"
#include "quantize/scales.h"

/* --- the list of matrices */

static bool is_readable(const Linear *linear) {
  return linear->kind == LINEAR_DENSE || linear->kind == LINEAR_FP8;
}

/* The first output of a view in its stored matrix. PRECOND it is of no expert */
static int first_output(const LayerWork *work, const Linear *view) {
  const int which = (int)(view - work->model->layers[work->index].linear);
  return layer_linear_stored(&work->model->config, work->index, which).first;
}

static const char *why_kept(const LayerMatrix *m, const LatentConfig *latent, int group) {
  if (!layer_linear_is_rounded(m->which)) return "its kind";
  for (int i = 0; i < m->n_views; i++) {
    if (!is_readable(m->views[i])) return "how it is stored";
    if (m->views[i]->n_out % 8) return "a number of outputs that 8 does not divide";
  }
  if (m->which == LAYER_KV_B && (latent->nope_dim % 8 || latent->value_dim % 8))
    return "a head's number of outputs, which 8 does not divide";
  if (m->n_in % group) return "a number of inputs that the group does not divide";
  return NULL;
}

/* A linear layer's stage. Within an operation a matrix comes after those that make its input. */
static int stage_of(const ModelConfig *config, int layer, int which) {
  const DeviceMatrix matrix = layer_device_matrix(config, which);
  const Division division = layer_linear_division(which);
  int turn = 0;
  if (division == DIVIDE_UNITS) turn = 1;                                               /* after latent_in */
  if ((which == LAYER_Q && matrix == MATRIX_ALONE) || matrix == MATRIX_HEADS) turn = 1; /* after q_a, kv_a */
  if (division == DIVIDE_UNIT_INPUTS) turn = 2;
  if (which == LAYER_LATENT_OUT) turn = 3;
  return (int)layer_tensor_operation(config, layer, false, which) * STAGE_PARTS + turn;
}

static LayerMatrix *matrix_named(LayerWork *work, const char *name) {
  for (int i = work->n_matrices; i-- > 0;)
    if (strcmp(work->matrices[i].name, name) == 0) return &work->matrices[i];
  return NULL;
}

/* Adds a view to a matrix. Views are sorted as their outputs lie in the stored matrix, or as
 * key_heads_order() has ordered views that alternate by head there. */
static void add_view(const LayerWork *work, LayerMatrix *m, Linear *linear) {
  int at = m->n_views++;
  for (; at > 0 && first_output(work, m->views[at - 1]) > first_output(work, linear); at--)
    m->views[at] = m->views[at - 1];
  m->views[at] = linear;
  m->n_out += linear->n_out;
}

/* Sets m->order of a matrix whose views alternate by head (model_is_by_heads()). */
static Status set_order(const LayerWork *work, LayerMatrix *m, Error *err) {
  const ModelLayer *layer = &work->model->layers[work->index];
  if (m->which >= N_LAYER_LINEARS || !model_is_by_heads(work->model, work->index, m->which)) return STATUS_OK;
  TRY(NEW(m->order, (size_t)m->n_out, "the order of outputs", err));
  for (int v = 0, first = 0; v < m->n_views; first += m->views[v++]->n_out)
    for (int o = 0; o < m->views[v]->n_out; o++)
      m->order[model_stored_output(work->model, work->index, (int)(m->views[v] - layer->linear), o)] =
          first + o;
  return STATUS_OK;
}

Status layer_begin(Model *model, int index, int group, KeepMatrix *keeps, void *user, LayerWork *work,
                   Error *err) {
  const int n = layer_linear_count(&model->config, index);
  *work = (LayerWork){.model = model, .index = index, .group = group, .stage = -1, .err = err};
  TRY(NEW(work->matrices, (size_t)n, "matrices", err));
  TRY(NEW(work->inputs, (size_t)n, "inputs of matrices", err));
  for (int which = 0; which < n; which++) {
    if (!layer_linear_exists(&model->config, index, which)) continue;
    Linear *linear = layer_linear(&model->layers[index], which);
    LayerMatrix *m = which < N_LAYER_LINEARS ? matrix_named(work, linear->name) : NULL;
    if (!m) m = &work->matrices[work->n_matrices++];
    if (m->n_views == MAX_VIEWS) return error_set(err, STATUS_FAILED, "%s has too many parts", linear->name);
    if (m->n_views == 0) *m = (LayerMatrix){.name = linear->name, .n_in = linear->n_in, .input = -1};
    if (linear->n_out > m->widest) m->which = which, m->widest = linear->n_out;
    add_view(work, m, linear);
  }
  for (LayerMatrix *m = work->matrices; m < work->matrices + work->n_matrices; m++) {
    m->stage = stage_of(&model->config, index, m->which);
    TRY(set_order(work, m, err));
    m->kept = why_kept(m, &model->config.latent, group);
    if (!m->kept && keeps && keeps(user, m->name)) m->kept = "--keep";
  }
  return STATUS_OK;
}

/* Releases statistics, which only the rounding of the input's readers needs. */
static void free_statistics(const LayerWork *work, LayerInput *input) {
  work->quantizer->release(work->state, input->moments);
  work->quantizer->release(work->state, input->drifts);
  work->quantizer->release(work->state, input->changes);
  free(input->scales);
  free(input->squares);
  input->moments = input->drifts = input->changes = input->scales = input->squares = NULL;
}

void layer_release(LayerWork *work) {
  if (work->quantizer && work->quantizer->forget) work->quantizer->forget(work->state);
  for (int i = 0; i < work->n_matrices; i++) rounded_release(&work->matrices[i].rounded);
  for (int i = 0; i < work->n_matrices; i++) free(work->matrices[i].order);
  for (int i = 0; i < work->n_inputs; i++) free_statistics(work, &work->inputs[i]);
  tensors_release(&work->out);
  tensors_release(&work->made);
  free(work->matrices);
  free(work->inputs);
  free(work->scratch);
  *work = (LayerWork){0};
}

int layer_next_stage(const LayerWork *work, int stage) {
  int next = -1;
  for (const LayerMatrix *m = work->matrices; m < work->matrices + work->n_matrices; m++)
    if (!m->kept && m->stage > stage && (next < 0 || m->stage < next)) next = m->stage;
  return next;
}

/* The matrix that has this Linear as a view, or NULL. */
static LayerMatrix *matrix_of(const LayerWork *work, const Linear *linear) {
  for (int i = 0; i < work->n_matrices; i++)
    for (int v = 0; v < work->matrices[i].n_views; v++)
      if (work->matrices[i].views[v] == linear) return &work->matrices[i];
  return NULL;
}

/* --- statistics */

static Status make_sums(const LayerWork *work, int n_a, int n_b, float **sums, Error *err) {
  return work->quantizer->make(work->state, (size_t)n_a * (size_t)n_b, "moments of inputs", sums, err);
}

/* The index of the input that these Linears read; the first call for an input adds it to work->inputs. -1:
 * none of them is quantised, or memory ran out. */
static int find_input(LayerWork *work, const Linear *const *linears, int n) {
  int found = -1;
  bool others = false;
  for (int i = 0; i < n; i++) {
    const LayerMatrix *m = matrix_of(work, linears[i]);
    if (!m || m->kept) others = true;
    if (m && !m->kept && m->input >= 0) return m->input;
    if (m && !m->kept) found = 0;
  }
  if (found < 0) return -1;
  LayerInput *input = &work->inputs[work->n_inputs];
  *input = (LayerInput){.n_in = linears[0]->n_in, .others = others};
  work->status = make_sums(work, input->n_in, input->n_in, &input->moments, work->err);
  if (work->status != STATUS_OK) return -1;
  for (int i = 0; i < n; i++) {
    LayerMatrix *m = matrix_of(work, linears[i]);
    if (m) m->input = work->n_inputs;
  }
  return work->n_inputs++;
}

/* The matrix that reads an input and adds its product to the residual stream, if nothing else is done to the
 * product; else NULL. */
static const LayerMatrix *residual_reader(const LayerWork *work, const LayerInput *input) {
  const ModelLayer *layer = &work->model->layers[work->index];
  const LayerMatrix *o = matrix_of(work, &layer->o), *down = matrix_of(work, &layer->down);
  const LayerConfig own = config_layer(&work->model->config, work->index);
  if (o && o->input >= 0 && &work->inputs[o->input] == input)
    return layer->vector[LAYER_ATTN_POST_NORM].data || own.delta_beside ? NULL : o;
  if (down && down->input >= 0 && &work->inputs[down->input] == input)
    return layer->vector[LAYER_MLP_POST_NORM].data || own.n_experts > 0 ? NULL : down;
  return NULL;
}

/* True if an input has a row for each token of a step, in order; false for an expert's input. */
static bool has_all_rows(const LayerWork *work, int index) {
  for (int m = 0; m < work->n_matrices; m++)
    if (work->matrices[m].input == index) return work->matrices[m].which < N_LAYER_LINEARS;
  return false;
}

/* to[n_rows][n] = a - b, each token's row times the root of its weight: so the product of two such rows of a
 * token has the token's weight. b.at NULL: b is 0; weights NULL: all weights are 1. Returns `to`, or `a` if
 * the numbers are the same. */
static Rows weigh(const LayerWork *work, const float *weights, int n_rows, int n, Rows a, Rows b, float *to) {
  const size_t size = (size_t)n;
  if (!weights && !b.at) return a;
#pragma omp parallel for num_threads(work->n_threads)
  for (size_t r = 0; r < (size_t)n_rows; r++) {
    const float root = weights ? sqrtf(weights[r]) : 1, *from = a.at + r * a.stride;
    for (size_t i = 0; i < size; i++)
      to[r * size + i] = root * (b.at ? from[i] - b.at[r * b.stride + i] : from[i]);
  }
  return (Rows){to, size};
}

/* The rows of an input in the original model, for the current sample; Rows.at is NULL if they were not
 * kept. */
static Rows original_rows(const LayerWork *work, const char *reader, int n_in) {
  const size_t at = (size_t)work->tokens.sample * (size_t)work->tokens.n * (size_t)n_in;
  const OriginalInputs *all = work->originals;
  for (int i = 0; i < all->n; i++)
    if (strcmp(all->items[i].reader, reader) == 0) return (Rows){all->items[i].rows + at, (size_t)n_in};
  return (Rows){0};
}

/* Adds rows of an input to its statistics; `reader` names the first quantised matrix that reads it. */
static Status add_rows(LayerWork *work, int index, const char *reader, Rows x, int n_rows) {
  LayerInput *input = &work->inputs[index];
  const SampleTokens *tokens = &work->tokens;
  const int n = input->n_in, hidden = work->model->config.hidden;
  const size_t rows = (size_t)n_rows, widest = (size_t)(n > hidden ? n : hidden);
  const bool all = has_all_rows(work, index) && n_rows == tokens->n,
             corrects = all && work->recipe->drift > 0;
  const float *weights = all ? tokens->weights : NULL;
  const Rows original = corrects ? original_rows(work, reader, n) : (Rows){0};
  TRY(mem_grow(&work->scratch, &work->scratch_floats, rows * ((size_t)n + widest), sizeof *work->scratch,
               "inputs", work->err));
  float *other = work->scratch + rows * (size_t)n;
  for (size_t r = 0; r < rows; r++) input->weight += weights ? (double)weights[r] : 1;
  const Rows weighted = weigh(work, weights, n_rows, n, x, (Rows){0}, work->scratch);
  if (corrects && tokens->original && residual_reader(work, input)) {
    const Rows before = {(float *)(uintptr_t)tokens->original, (size_t)hidden},
               own = {(float *)(uintptr_t)tokens->own, (size_t)hidden};
    const Rows drift = weigh(work, weights, n_rows, hidden, before, own, other);
    if (!input->drifts) TRY(make_sums(work, hidden, n, &input->drifts, work->err));
    TRY(work->quantizer->add(work->state, hidden, drift, n, weighted, n_rows, input->drifts, work->err));
  }
  if (original.at) {
    const Rows change = weigh(work, weights, n_rows, n, original, x, other);
    if (!input->changes) TRY(make_sums(work, n, n, &input->changes, work->err));
    TRY(work->quantizer->add(work->state, n, weighted, n, change, n_rows, input->changes, work->err));
  }
  return work->quantizer->add(work->state, n, weighted, n, weighted, n_rows, input->moments, work->err);
}

/* True if the Linear, of either model, has the sizes of one of the matrix's views. The name does not suffice:
 * each head's part of kv_b is named kv_b, too. */
static bool is_view(const LayerMatrix *m, const Linear *linear) {
  for (int v = 0; v < m->n_views; v++)
    if (m->views[v]->n_in == linear->n_in && m->views[v]->n_out == linear->n_out) return true;
  return false;
}

/* The name of the first of the Linears whose matrix is quantised; NULL: none is. */
static const char *first_reader(LayerWork *work, const Linear *const *linears, int n) {
  for (int i = 0; i < n; i++) {
    const LayerMatrix *m = matrix_named(work, linears[i]->name);
    if (m && !m->kept && is_view(m, linears[i])) return m->name;
  }
  return NULL;
}

/* Keeps the rows that the original model's matrices read, for Recipe.drift. It keeps only rows of all tokens,
 * in their order (no expert's), and only those of the first MAX_ORIGINALS inputs. */
static Status keep_rows(LayerWork *work, const char *reader, Rows x, int n_rows) {
  const SampleTokens *tokens = &work->tokens;
  const LayerMatrix *m = reader ? matrix_named(work, reader) : NULL;
  if (!m || m->which >= N_LAYER_LINEARS || n_rows != tokens->n || work->recipe->drift <= 0) return STATUS_OK;
  Rows to = original_rows(work, reader, m->n_in);
  if (!to.at) {
    if (work->originals->n == MAX_ORIGINALS) return STATUS_OK;
    OriginalInput *input = &work->originals->items[work->originals->n];
    TRY(mem_grow(&input->rows, &input->capacity,
                 (size_t)tokens->n_samples * (size_t)tokens->n * (size_t)m->n_in, sizeof *input->rows,
                 "the original model's inputs", work->err));
    input->reader = reader;
    work->originals->n++;
    to = original_rows(work, reader, m->n_in);
  }
#pragma omp parallel for num_threads(work->n_threads)
  for (size_t r = 0; r < (size_t)n_rows; r++)
    memcpy(to.at + r * to.stride, x.at + r * x.stride, to.stride * sizeof *to.at);
  return STATUS_OK;
}

bool layer_take(void *user, const Linear *const *linears, int n, const float *x, size_t stride, int n_rows) {
  LayerWork *work = user;
  const Rows rows = {(float *)(uintptr_t)x, stride};
  if (work->tokens.keeps && work->status == STATUS_OK)
    work->status = keep_rows(work, first_reader(work, linears, n), rows, n_rows);
  const LayerMatrix *m = work->stage < 0 ? NULL : matrix_of(work, linears[0]);
  if (!m || m->stage < work->stage) return true;
  if (m->stage > work->stage || work->status != STATUS_OK) return false;
  const int found = find_input(work, linears, n);
  if (found < 0) return true; /* not quantised, but its product may be the input of a matrix of this stage */
  work->status = add_rows(work, found, first_reader(work, linears, n), rows, n_rows);
  return false;
}

bool layer_multiply(void *user, OtherProduct *products, int n) {
  LayerWork *work = user;
  bool done = false;
  if (!work->quantizer || !work->quantizer->multiply || work->status != STATUS_OK) return false;
  work->status = work->quantizer->multiply(work->state, products, n, &done, work->err);
  return done;
}

/* Divides the moments of the stage's inputs by the weight of all rows. Refuses inputs that are not finite. */
static Status finish_moments(const LayerWork *work, Error *err) {
  for (int index = work->first_input; index < work->n_inputs; index++) {
    LayerInput *input = &work->inputs[index];
    const char *reader = "";
    for (int m = work->n_matrices; m-- > 0;)
      if (work->matrices[m].input == index) reader = work->matrices[m].name;
    TRY(NEW(input->squares, (size_t)input->n_in, "moments of inputs", err));
    TRY(work->quantizer->finish(work->state, (float)(1 / input->weight), input->n_in, input->moments, err));
    TRY(work->quantizer->diagonal(work->state, input->n_in, input->moments, input->squares, err));
    for (int i = 0; i < input->n_in; i++)
      if (!isfinite(input->squares[i]))
        return error_set(err, STATUS_MODEL, "%s: the inputs of %s are not finite: input %d",
                         model_path(work->model), reader, i);
  }
  return STATUS_OK;
}

/* --- weights */

/* A matrix, perhaps with the scales of its inputs. */
typedef struct {
  const LayerMatrix *m;
  const float *scales; /* [n_in] or NULL */
} MatrixRows;

void matrix_read_row(const LayerMatrix *m, int o, float *row) {
  int view = 0;
  while (o >= m->views[view]->n_out) o -= m->views[view++]->n_out;
  linear_read(m->views[view], o, 0, m->n_in, row);
}

/* A FillRow (quantizer.h); `user` is a MatrixRows. */
static void fill_row(const void *user, int row, float *to) {
  const MatrixRows *rows = user;
  matrix_read_row(rows->m, row, to);
  for (int i = 0; rows->scales && i < rows->m->n_in; i++) to[i] *= rows->scales[i];
}

/* Loads a matrix's weights, times the scales of its inputs (NULL: unscaled). PRECOND the weights passed
 * finite_check_layer() */
static Status load(const LayerWork *work, const LayerMatrix *m, const float *scales, Weights *weights,
                   Error *err) {
  const MatrixRows rows = {m, scales};
  *weights = (Weights){m->n_out, m->n_in, work->group, NULL};
  return work->quantizer->load(work->state, fill_row, &rows, m->name, weights, err);
}

/* --- scales */

/* Searches the scales of an input. */
static Status search(LayerWork *work, int index, SharedScales shared, Error *err) {
  LayerInput *input = &work->inputs[index];
  OWNED(mem_release) Weights *weights = NULL;
  OWNED(mem_release) float *scales = NULL;
  TRY(NEW(weights, (size_t)work->n_matrices, "weights", err));
  TRY(NEW(scales, (size_t)input->n_in, "scales", err));
  Status status = STATUS_OK;
  int n = 0;
  for (int m = 0; status == STATUS_OK && m < work->n_matrices; m++)
    if (work->matrices[m].input == index) status = load(work, &work->matrices[m], NULL, &weights[n++], err);
  if (status == STATUS_OK)
    status = scales_search(work->quantizer, work->state, &work->recipe->trial, weights, n, input->moments,
                           shared, scales, err);
  for (int i = 0; i < n; i++) work->quantizer->release(work->state, weights[i].w);
  if (status == STATUS_OK) input->scales = TAKE(scales);
  return status;
}

/* Divides a norm's factors (weight, or 1 + weight) by the scales of its readers. New weights are rounded to
 * the old ones' type; each scale is then replaced by old factor / new factor, so that this rounding costs no
 * precision. If that quotient is no finite number above 0, the old weight stays, with scale 1. */
static Status fold_norm(LayerWork *work, int which, int index, Error *err) {
  LayerInput *input = &work->inputs[index];
  Vector *norm = &work->model->layers[work->index].vector[which];
  const StoredTensor *stored = tensor_at(work->model, norm->data);
  const float plus = layer_vector_plus(&work->model->config, which);
  void *to = tensors_make(&work->out, stored->name, "", norm->dtype, norm->n, 0, err);
  if (!to) return STATUS_FAILED;
  for (size_t i = 0; i < (size_t)norm->n; i++) {
    float own, made;
    floats_read(norm->data, norm->dtype, i, 1, &own);
    number_write(to, norm->dtype, i, (own + plus) / input->scales[i] - plus);
    floats_read(to, norm->dtype, i, 1, &made);
    const float scale = (own + plus) / (made + plus);
    const bool fits = isfinite(scale) && scale > 0 && isfinite(made);
    if (!fits)
      memcpy((char *)to + i * dtype_bytes(norm->dtype),
             (const char *)norm->data + i * dtype_bytes(norm->dtype), dtype_bytes(norm->dtype));
    input->scales[i] = fits ? scale : 1;
  }
  norm->data = to;
  return STATUS_OK;
}

/* The index of the input that the matrix of this Linear reads, if the matrix is quantised in this stage; else
 * -1. */
static int input_of(const LayerWork *work, const Linear *linear) {
  const LayerMatrix *m = linear->n_out ? matrix_of(work, linear) : NULL;
  return m && !m->kept && m->input >= work->first_input ? m->input : -1;
}

/* The index of the input that the layer's matrices of DeviceMatrix first to last share, if the first one that
 * the layer has is quantised in this stage; else -1. */
static int input_of_matrices(const LayerWork *work, DeviceMatrix first, DeviceMatrix last) {
  const Linear *linears = work->model->layers[work->index].linear;
  for (int which = 0; which < N_LAYER_LINEARS; which++) {
    const DeviceMatrix matrix = layer_device_matrix(&work->model->config, which);
    if (linears[which].n_out > 0 && matrix >= first && matrix <= last) return input_of(work, &linears[which]);
  }
  return -1;
}

/* Scales a norm's outputs, the input `index` of matrices, if all matrices that read them are quantised. Does
 * nothing with config.parallel, or if the norm has a bias or no stored weights. */
static Status scale_norm(LayerWork *work, int norm, int bias, int index, Error *err) {
  const ModelConfig *config = &work->model->config;
  const ModelLayer *layer = &work->model->layers[work->index];
  const Vector *vector = &layer->vector[norm];
  if (index < 0 || !vector->data || layer->vector[bias].data || layer_vector_is_made(config, norm))
    return STATUS_OK;
  if (work->inputs[index].others || work->inputs[index].n_in != vector->n) return STATUS_OK;
  if (!tensor_at(work->model, vector->data) || config->parallel) return STATUS_OK;
  TRY(search(work, index, (SharedScales){0}, err));
  return fold_norm(work, norm, index, err);
}

/* Multiplies a matrix's bias by the factors of its outputs. */
static Status scale_bias(LayerWork *work, const LayerMatrix *m, const float *factors, Error *err) {
  const Linear *first = m->views[0];
  const StoredTensor *stored = tensor_at(work->model, first->bias.data);
  const size_t size = dtype_bytes(first->bias.dtype);
  unsigned char *to = tensors_make(&work->out, stored->name, "", first->bias.dtype, m->n_out, 0, err);
  if (!to) return STATUS_FAILED;
  for (size_t o = 0; o < (size_t)m->n_out; o++) {
    float own;
    floats_read(stored->data, first->bias.dtype, o, 1, &own);
    number_write(to, first->bias.dtype, o, own * factors[o]);
  }
  for (int v = 0; v < m->n_views; v++, to += (size_t)m->views[v - 1]->n_out * size)
    m->views[v]->bias.data = to;
  return STATUS_OK;
}

/* Multiplies a rounded matrix's outputs by factors. */
static Status scale_outputs(LayerWork *work, LayerMatrix *m, const float *factors, Error *err) {
  const size_t row = rounded_row(m->n_out), groups = (size_t)(m->n_in / work->group);
  for (size_t g = 0; g < groups; g++)
    for (size_t o = 0; o < (size_t)m->n_out; o++) {
      float *scale = &m->rounded.scales[g * row + o];
      *scale = f16_to_float(float_to_f16(fminf(fmaxf(*scale * factors[o], 0x1p-24f), 65504)));
    }
  if (m->views[0]->bias.data) TRY(scale_bias(work, m, factors, err));
  return layout_install(m, work->group, &work->made, err);
}

/* True if the matrix has no bias, or its bias is the whole of a stored tensor. */
static bool bias_is_plain(const LayerWork *work, const LayerMatrix *m) {
  if (!m->views[0]->bias.data) return true;
  const StoredTensor *stored = tensor_at(work->model, m->views[0]->bias.data);
  return stored && stored->rank == 1 && stored->shape[0] == m->n_out;
}

/* Scales the inputs of `reader`, which are made of the outputs of `maker`. Input i is made of output
 * sources[i]; sources NULL: of output i. Does nothing unless `maker` is rounded, `reader` is quantised in
 * this stage, no unquantised matrix reads these inputs, and maker's bias_is_plain(). */
static Status scale_pair(LayerWork *work, const Linear *maker, const Linear *reader, const int *sources,
                         Error *err) {
  const int index = input_of(work, reader);
  LayerMatrix *from = maker->n_out ? matrix_of(work, maker) : NULL;
  if (index < 0 || !from || !from->rounded.codes || work->inputs[index].others || !bias_is_plain(work, from))
    return STATUS_OK;
  TRY(search(work, index, (SharedScales){sources, maker->n_out}, err));
  const LayerInput *input = &work->inputs[index];
  int first = 0;
  for (int v = 0; from->views[v] != maker; v++) first += from->views[v]->n_out;
  OWNED(mem_release) float *factors = NULL;
  TRY(NEW(factors, (size_t)from->n_out, "scales", err));
  for (int o = 0; o < from->n_out; o++) factors[o] = 1;
  for (int i = 0; i < input->n_in; i++) factors[first + (sources ? sources[i] : i)] = 1 / input->scales[i];
  return scale_outputs(work, from, factors, err);
}

/* v -> o: attention's output is a mean of values, head by head. */
static Status scale_values(LayerWork *work, Error *err) {
  const ModelConfig *config = &work->model->config;
  const ModelLayer *layer = &work->model->layers[work->index];
  const LayerConfig own = config_layer(config, work->index);
  if (own.kind != LAYER_ATTENTION || own.k_as_v || own.shares_kv || config->v_norm || config->qkv_clip != 0 ||
      own.latent)
    return STATUS_OK;
  for (int i = 0; i < config->n_layers; i++)
    if (config_layer(config, i).shares_kv && config_layer(config, i).kv_layer == work->index)
      return STATUS_OK;
  const int dim = own.value_dim, share = own.n_heads / own.n_kv_heads;
  if (layer->o.n_in != own.n_heads * dim || layer->v.n_out != own.n_kv_heads * dim) return STATUS_OK;
  OWNED(mem_release) int *sources = NULL;
  TRY(NEW(sources, (size_t)layer->o.n_in, "scales", err));
  for (int i = 0; i < layer->o.n_in; i++) sources[i] = i / dim / share * dim + i % dim;
  return scale_pair(work, &layer->v, &layer->o, sources, err);
}

static Status choose_scales(LayerWork *work, Error *err) {
  const ModelConfig *config = &work->model->config;
  const ModelLayer *layer = &work->model->layers[work->index];
  const LayerConfig own = config_layer(config, work->index);
  const bool single = config->streams.n == 0 && config->altup.n == 0 && !config->indexer.block;
  if (single && !own.delta_beside)
    TRY(scale_norm(work, LAYER_ATTN_NORM, LAYER_ATTN_NORM_BIAS,
                   input_of_matrices(work, MATRIX_DELTA_B_A, MATRIX_QKV_END), err));
  if (single && own.n_experts == 0)
    TRY(scale_norm(work, LAYER_MLP_NORM, LAYER_MLP_NORM_BIAS,
                   input_of_matrices(work, MATRIX_GATE_UP, MATRIX_GATE_UP), err));
  TRY(scale_values(work, err));
  if (is_ungated(config->activation) || config->activation == ACTIVATION_CLAMPED) return STATUS_OK;
  if (own.mlp_limit == 0) TRY(scale_pair(work, &layer->up, &layer->down, NULL, err));
  for (int e = 0; e < own.n_experts && own.expert_limit == 0; e++)
    TRY(scale_pair(work, &layer->experts[e].up, &layer->experts[e].down, NULL, err));
  return STATUS_OK;
}

/* --- rounding */

/* Adds Recipe.damp times the diagonal's mean to the moments' diagonal; adds 1 if the mean is 0. */
static Status damp_moments(const LayerWork *work, LayerInput *input, Error *err) {
  const int n = input->n_in;
  double mean = 0;
  for (int i = 0; i < n; i++) mean += (double)input->squares[i] / (double)n;
  const float more = mean > 0 ? (float)(work->recipe->damp * mean) : 1;
  return work->quantizer->dampen(work->state, more, n, input->moments, err);
}

/* Dampens an input's moments and factors them into *lower, which stays NULL without Recipe.compensates.
 * Converts moments, changes and factor to those of the inputs divided by input->scales. */
static Status make_factor(const LayerWork *work, LayerInput *input, float **lower, Error *err) {
  const Quantizer *quantizer = work->quantizer;
  const int n = input->n_in;
  TRY(damp_moments(work, input, err));
  if (work->recipe->compensates) {
    TRY(quantizer->make(work->state, (size_t)n * (size_t)n, "a factor of inputs", lower, err));
    TRY(quantizer->factor(work->state, input->moments, n, *lower, err));
  }
  if (!input->scales) return STATUS_OK;
  if (input->changes) TRY(quantizer->rescale(work->state, input->scales, n, input->changes, NULL, err));
  return quantizer->rescale(work->state, input->scales, n, input->moments, *lower, err);
}

/* Rounds a matrix towards its weights, corrected for what earlier rounding changed. */
static Status round_towards(const LayerWork *work, LayerMatrix *m, const Weights *weights, const float *lower,
                            Error *err) {
  const LayerInput *input = &work->inputs[m->input];
  const Quantizer *quantizer = work->quantizer;
  const float *h = input->moments;
  double whole, lost;
  const Target target = {.share = work->recipe->drift / input->weight,
                         .residual = 1 / work->model->config.residual_scale,
                         .drifts = input->drifts,
                         .changes = input->changes,
                         .scales = input->scales,
                         .lower = lower};
  if (lower && (target.drifts || target.changes)) TRY(quantizer->correct(work->state, &target, weights, err));
  TRY(rounded_make(m->n_out, m->n_in, work->group, &m->rounded, err));
  TRY(quantizer->round(work->state, work->recipe, weights, h, lower, &m->rounded, err));
  TRY(quantizer->loss(work->state, weights, h, NULL, &whole, err));
  TRY(quantizer->loss(work->state, weights, h, &m->rounded, &lost, err));
  m->after = whole > 0 ? lost / whole : 0;
  return STATUS_OK;
}

Status layer_adopt(LayerWork *work, const LayerMatrix *m, Error *err) {
  const int64_t n = 2 * (int64_t)work->model->config.n_heads * (int64_t)sizeof(Linear),
                n_keys = (int64_t)latent_heads_bytes(work->model, work->index);
  if (m->which != LAYER_KV_B) return STATUS_OK;
  Linear *heads = tensors_make(&work->made, m->name, ".heads", DTYPE_U8, n, 0, err);
  void *keys = tensors_make(&work->made, m->name, ".keys", DTYPE_U8, n_keys, 0, err);
  if (!heads || !keys) return STATUS_FAILED;
  return latent_heads_renew(work->model, work->index, heads, keys, work->n_threads, err);
}

static Status round_one(LayerWork *work, LayerMatrix *m, const float *lower, Error *err) {
  const double start = clock_ms();
  Weights weights;
  Status status = load(work, m, work->inputs[m->input].scales, &weights, err);
  if (status == STATUS_OK) status = round_towards(work, m, &weights, lower, err);
  if (status == STATUS_OK) status = layout_install(m, work->group, &work->made, err);
  if (status == STATUS_OK) status = layer_adopt(work, m, err);
  work->quantizer->release(work->state, weights.w);
  m->seconds += (clock_ms() - start) / 1000;
  return status;
}

/* Sets m->before: the relative loss of plain rounding, without scales. PRECOND the input's moments are
 * neither damped nor rescaled yet */
static Status judge_plain(const LayerWork *work, LayerMatrix *m, Error *err) {
  const float *h = work->inputs[m->input].moments;
  OWNED(mem_release) float *ones = NULL;
  TRY(NEW(ones, (size_t)m->n_in, "rounding", err));
  for (int i = 0; i < m->n_in; i++) ones[i] = 1;
  double whole = 0, lost = 0;
  Weights weights;
  Status status = load(work, m, NULL, &weights, err);
  if (status == STATUS_OK) status = work->quantizer->loss(work->state, &weights, h, NULL, &whole, err);
  if (status == STATUS_OK)
    status = work->quantizer->trial(work->state, &plain_rounding, &weights, h, ones, &lost, err);
  m->before = whole > 0 ? lost / whole : 0;
  work->quantizer->release(work->state, weights.w);
  return status;
}

/* Rounds all matrices that read one input, then releases the input's statistics. */
static Status round_readers(LayerWork *work, int index, Error *err) {
  LayerInput *input = &work->inputs[index];
  float *lower = NULL;
  Status status = make_factor(work, input, &lower, err);
  for (int i = 0; status == STATUS_OK && i < work->n_matrices; i++)
    if (work->matrices[i].input == index && !work->matrices[i].kept)
      status = round_one(work, &work->matrices[i], lower, err);
  work->quantizer->release(work->state, lower);
  free_statistics(work, input);
  return status;
}

/* Gives matrices that had no input rows (experts that were never chosen) an input whose moments are the
 * identity. */
static Status give_inputs(LayerWork *work, Error *err) {
  for (int m = 0; m < work->n_matrices; m++) {
    LayerMatrix *matrix = &work->matrices[m];
    if (matrix->kept || matrix->input >= 0 || matrix->stage != work->stage) continue;
    LayerInput *input = &work->inputs[work->n_inputs];
    *input = (LayerInput){.n_in = matrix->n_in, .weight = 1, .others = true};
    matrix->input = work->n_inputs++;
    TRY(make_sums(work, input->n_in, input->n_in, &input->moments, err));
    TRY(work->quantizer->dampen(work->state, 1, input->n_in, input->moments, err));
  }
  return STATUS_OK;
}

Status layer_round(LayerWork *work, Error *err) {
  TRY(work->status);
  if (work->quantizer->forget) work->quantizer->forget(work->state);
  TRY(give_inputs(work, err));
  TRY(finish_moments(work, err));
  for (LayerMatrix *m = work->matrices; m < work->matrices + work->n_matrices; m++)
    if (!m->kept && m->stage == work->stage) TRY(judge_plain(work, m, err));
  if (work->recipe->scales) TRY(choose_scales(work, err));
  for (int i = work->first_input; i < work->n_inputs; i++) TRY(round_readers(work, i, err));
  work->first_input = work->n_inputs;
  work->stage = -1;
  return STATUS_OK;
}
