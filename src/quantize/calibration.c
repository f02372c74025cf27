/* calibration.c - see calibration.h. Called by: quantize.c.
 *
 * A layer is cut into parts. A part ends where the layer's later operations read no result of it except x and
 * the residual streams: usually after OUT_PROJ and after DOWN. The samples' rows are stored between parts;
 * within a part they are computed again for each of its stages (layer.h). */
#include "quantize/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void unload(const Calibration *c, CalibrationModel *m) {
  if (m->state) c->backend->close(m->state);
  if (m->loaded) c->backend->unload(m->loaded);
  m->state = NULL;
  m->loaded = NULL;
}

static Status load(Calibration *c, CalibrationModel *m, Error *err) {
  const BackendOptions options = {.n_threads = c->options->device.n_threads};
  const StateOptions sizes = {.n_ctx = c->options->length,
                              .max_chunk = c->options->length,
                              .max_logit_rows = 1,
                              .kv = KV_F32,
                              .inputs = &c->sink};
  unload(c, m);
  TRY(c->backend->load(m->model, &options, &m->loaded, err));
  return c->backend->open(m->loaded, &sizes, &m->state, err);
}

Status calibration_reload(Calibration *c, Error *err) {
  return load(c, &c->quantised, err);
}

/* --- memory */

static size_t kv_bytes(const Calibration *c, int layer) {
  return kv_token_bytes(&c->original.model->config, layer, KV_F32) * (size_t)c->options->length;
}

/* Allocates memory for the keys and values of layers whose KV cache later layers share. */
static Status keep_shared(const Calibration *c, unsigned char ***kept, Error *err) {
  const ModelConfig *config = &c->original.model->config;
  unsigned char **kv;
  TRY(NEW(*kept, (size_t)config->n_layers, "calibration", err));
  kv = *kept;
  for (int i = 0; i < config->n_layers; i++) {
    const LayerConfig own = config_layer(config, i);
    if (!own.shares_kv || kv[own.kv_layer]) continue;
    kv[own.kv_layer] = mem_alloc((size_t)c->options->n_samples, kv_bytes(c, own.kv_layer),
                                 "keys and values of samples", err);
    if (!kv[own.kv_layer]) return STATUS_FAILED;
  }
  return STATUS_OK;
}

void calibration_restore(const Calibration *c, int layer) {
  const ModelLayer *from = &c->original.model->layers[layer];
  ModelLayer *to = &c->quantised.model->layers[layer];
  Expert *experts = to->experts;
  const int n = config_layer(&c->original.model->config, layer).n_experts;
  *to = *from;
  if (!n) return;
  to->experts = experts;
  memcpy(experts, from->experts, (size_t)n * sizeof *experts);
}

/* Makes c->quantised.model: a copy of the model that has the same tensors, but layers of its own. */
static Status copy_model(Calibration *c, Error *err) {
  const Model *from = c->original.model;
  Model *to = c->quantised.model = mem_alloc(1, sizeof *to, "a model", err);
  if (!to) return STATUS_FAILED;
  *to = *from;
  TRY(NEW(to->layers, (size_t)from->config.n_layers, "a model", err));
  for (int i = 0; i < from->config.n_layers; i++) {
    const int n = config_layer(&from->config, i).n_experts;
    if (n) TRY(NEW(to->layers[i].experts, (size_t)n, "a model", err));
    calibration_restore(c, i);
  }
  return STATUS_OK;
}

static void free_copy(const Calibration *c) {
  Model *copy = c->quantised.model;
  for (int i = 0; copy && copy->layers && i < copy->config.n_layers; i++)
    if (config_layer(&copy->config, i).n_experts) free(copy->layers[i].experts);
  if (copy) free(copy->layers);
  free(copy);
}

static void close_model(const Calibration *c, CalibrationModel *m) {
  unload(c, m);
  for (int i = 0; m->kv && i < c->original.model->config.n_layers; i++) free(m->kv[i]);
  free(m->kv);
  free(m->rows);
}

void calibration_close(Calibration *c) {
  if (!c->backend) return;
  close_model(c, &c->original);
  close_model(c, &c->quantised);
  free_copy(c);
  program_release(&c->program);
  for (int i = 0; i < MAX_ORIGINALS; i++) free(c->originals.items[i].rows);
  free(c->before);
  free(c->weights);
  *c = (Calibration){0};
}

/* --- passes */

static TokenRange tokens_of(const Calibration *c, int i) {
  const int length = c->options->length;
  return (TokenRange){.n_tokens = length,
                      .ids = c->options->ids + (size_t)i * (size_t)length,
                      .long_rope = length > rope_original_context(&c->original.model->config)};
}

static float *rows_of(const Calibration *c, const CalibrationModel *m, int i) {
  return m->rows + (size_t)i * (size_t)c->options->length * c->carried;
}

/* Sets the rows of sample i to the embedding. */
static Status embed(const Calibration *c, CalibrationModel *m, int i, Error *err) {
  const TokenRange range = tokens_of(c, i);
  TRY(forward_part(c->backend, m->state, &c->program, range, 0, 0, NULL, err));
  return c->backend->carry(m->state, range, false, rows_of(c, m, i), err);
}

static Status open_model(Calibration *c, CalibrationModel *m, Error *err) {
  TRY(load(c, m, err));
  c->carried = c->backend->carried_floats(m->state);
  m->at = 1;
  m->rows = mem_alloc((size_t)c->options->n_samples * (size_t)c->options->length,
                      c->carried * sizeof *m->rows, "the samples' rows", err);
  if (!m->rows) return STATUS_FAILED;
  for (int i = 0; i < c->options->n_samples; i++) TRY(embed(c, m, i, err));
  return keep_shared(c, &m->kv, err);
}

Status calibration_open(const Backend *backend, Model *model, const QuantizeOptions *options, LayerWork *work,
                        Calibration *c, Error *err) {
  const size_t n_tokens = (size_t)options->n_samples * (size_t)options->length;
  *c = (Calibration){.backend = backend,
                     .options = options,
                     .original.model = model,
                     .sink = {work, layer_take, layer_multiply}};
  TRY(forward_prepare(backend, &model->config, &c->program, err));
  TRY(copy_model(c, err));
  TRY(open_model(c, &c->original, err));
  TRY(open_model(c, &c->quantised, err));
  c->before = mem_alloc(n_tokens, (size_t)model->config.hidden * sizeof *c->before, "the samples' rows", err);
  if (!c->before) return STATUS_FAILED;
  return NEW(c->weights, n_tokens, "weights of tokens", err);
}

/* True if a layer's operations from `at` on read no register (program.h) that its earlier operations have
 * written, except x and the streams. A recurrent state belongs to one operation and begins at 0. */
static bool parts_meet(const Program *program, int at) {
  unsigned there = REGISTER_IDS | REGISTER_INPUTS | REGISTER_X | REGISTER_STREAMS | REGISTER_STATE;
  for (const Op *op = program->ops + at; op->layer == program->ops[at].layer; op++) {
    if (op->reads & ~there) return false;
    there |= op->writes;
  }
  return true;
}

/* The index of the operation after the part that begins with operation `begin`. */
static int part_end(const Program *program, int begin) {
  int end = begin + 1;
  while (program->ops[end].layer == program->ops[begin].layer && !parts_meet(program, end)) end++;
  return end;
}

/* Computes operations first .. end - 1, all of one layer, for sample i. */
static Status run_sample(const Calibration *c, const CalibrationModel *m, int i, int first, int end,
                         Error *err) {
  const TokenRange range = tokens_of(c, i);
  const LayerConfig own = config_layer(&c->original.model->config, c->program.ops[first].layer);
  if (*c->options->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (own.shares_kv)
    TRY(c->backend->kv_copy(m->state, FROM_HOST, range, own.kv_layer, range.n_tokens,
                            m->kv[own.kv_layer] + (size_t)i * kv_bytes(c, own.kv_layer), err));
  return forward_part(c->backend, m->state, &c->program, range, first, end, rows_of(c, m, i), err);
}

/* Computes operations first .. end - 1 for sample i. Its rows become those before operation `end`. Stores the
 * keys and values that later layers share. */
static Status advance(const Calibration *c, const CalibrationModel *m, int i, int first, int end,
                      Error *err) {
  const TokenRange range = tokens_of(c, i);
  const int layer = c->program.ops[first].layer;
  bool appends = false;
  if (end <= first) return STATUS_OK;
  TRY(run_sample(c, m, i, first, end, err));
  TRY(c->backend->carry(m->state, range, false, rows_of(c, m, i), err));
  for (int op = first; op < end; op++) appends |= c->program.ops[op].writes & REGISTER_CACHE;
  if (!appends || !m->kv[layer]) return STATUS_OK;
  return c->backend->kv_copy(m->state, TO_HOST, range, layer, range.n_tokens,
                             m->kv[layer] + (size_t)i * kv_bytes(c, layer), err);
}

/* Computes the part begin .. end - 1 of the original model for sample i, unless an earlier stage of the part
 * has done so. Stores x before the part (c->before), the inputs of its matrices (c->originals), and each
 * token's weight in the statistics: 1 / mean square of x after the part. */
static Status pass_original(const Calibration *c, LayerWork *work, int i, int begin, int end, Error *err) {
  const size_t hidden = (size_t)c->original.model->config.hidden, length = (size_t)c->options->length;
  const float *rows = rows_of(c, &c->original, i);
  float *before = c->before + (size_t)i * length * hidden, *weights = c->weights + (size_t)i * length;
  if (c->original.at == end) return STATUS_OK;
  work->tokens = (SampleTokens){.sample = i, .n_samples = c->options->n_samples, .n = (int)length};
  TRY(advance(c, &c->original, i, c->original.at, begin, err));
#pragma omp parallel for num_threads(c->options->device.n_threads)
  for (size_t r = 0; r < length; r++)
    memcpy(before + r * hidden, rows + r * c->carried, hidden * sizeof *rows);
  work->tokens.keeps = true;
  TRY(advance(c, &c->original, i, begin, end, err));
  work->tokens.keeps = false;
  bool finite = true;
#pragma omp parallel for reduction(&& : finite) num_threads(c->options->device.n_threads)
  for (size_t r = 0; r < length; r++) {
    const float *x = rows + r * c->carried;
    double sum = 0;
    for (size_t k = 0; k < hidden; k++) sum += (double)x[k] * (double)x[k];
    weights[r] = sum > 0 ? (float)((double)hidden / sum) : 1;
    finite = finite && isfinite(sum);
  }
  if (finite) return STATUS_OK;
  return error_set(err, STATUS_MODEL, "%s: after %s of layer %d the hidden state is not finite: sample %d",
                   model_path(c->original.model), operation_name(c->program.ops[end - 1].kind),
                   c->program.ops[begin].layer, i);
}

/* True if only operation `at` of the part begin .. end - 1 changes x, and x is the whole residual stream. */
static bool adds_alone(const Calibration *c, int begin, int end, int at) {
  const ModelConfig *config = &c->original.model->config;
  if (config->streams.n > 0 || config->altup.n > 0) return false;
  for (int op = begin; op < end; op++)
    if (op != at && c->program.ops[op].writes & REGISTER_X) return false;
  return true;
}

Status calibration_collect(Calibration *c, LayerWork *work, int stage, Error *err) {
  const size_t hidden = (size_t)c->original.model->config.hidden, length = (size_t)c->options->length;
  int at = c->quantised.at, begin = at;
  while ((int)c->program.ops[at].kind != stage / STAGE_PARTS) at++;
  while (part_end(&c->program, begin) <= at) begin = part_end(&c->program, begin);
  const int end = part_end(&c->program, begin);
  const bool alone = adds_alone(c, begin, end, at);
  if (c->original.at != end) c->originals.n = 0;
  for (int i = 0; i < c->options->n_samples; i++) {
    work->stage = -1;
    TRY(pass_original(c, work, i, begin, end, err));
    TRY(advance(c, &c->quantised, i, c->quantised.at, begin, err));
    work->stage = stage;
    work->tokens = (SampleTokens){.sample = i,
                                  .weights = c->weights + (size_t)i * length,
                                  .original = alone ? c->before + (size_t)i * length * hidden : NULL,
                                  .own = rows_of(c, &c->quantised, i),
                                  .n = (int)length};
    TRY(run_sample(c, &c->quantised, i, begin, at + 1, err));
    TRY(work->status);
  }
  c->original.at = end;
  c->quantised.at = begin;
  return STATUS_OK;
}

Status calibration_finish_layer(Calibration *c, int layer, Error *err) {
  int end = c->quantised.at;
  while (c->program.ops[end].layer == layer) end++;
  for (int i = 0; i < c->options->n_samples; i++) {
    TRY(advance(c, &c->original, i, c->original.at, end, err));
    TRY(advance(c, &c->quantised, i, c->quantised.at, end, err));
  }
  c->original.at = c->quantised.at = end;
  return STATUS_OK;
}
