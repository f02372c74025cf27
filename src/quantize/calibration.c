/* calibration.c - see calibration.h. Called by: quantize.c. Calls: engine/forward.c, the backend. */
#include "quantize/calibration.h"

#include <stdlib.h>
#include <string.h>

static void unload(Calibration *c) {
  if (c->state) c->backend->close(c->state);
  if (c->loaded) c->backend->unload(c->loaded);
  c->state = NULL;
  c->loaded = NULL;
}

Status calibration_reload(Calibration *c, Error *err) {
  const BackendOptions options = {.n_threads = c->options->n_threads};
  const StateOptions sizes = {.n_ctx = c->options->length,
                              .max_chunk = c->options->length,
                              .max_logit_rows = 1,
                              .kv = KV_F32,
                              .inputs = &c->sink};
  unload(c);
  TRY(c->backend->load(c->model, &options, &c->loaded, err));
  return c->backend->open(c->loaded, &sizes, &c->state, err);
}

static size_t kv_bytes(const Calibration *c, int layer) {
  return kv_token_bytes(&c->model->config, layer, KV_F32) * (size_t)c->options->length;
}

/* Memory for the keys and values of layers that later layers share. */
static Status keep_shared(const Calibration *c, unsigned char ***kept, Error *err) {
  const ModelConfig *config = &c->model->config;
  unsigned char **kv = *kept = mem_alloc((size_t)config->n_layers, sizeof *kv, "calibration", err);
  if (!kv) return STATUS_FAILED;
  for (int i = 0; i < config->n_layers; i++) {
    const LayerConfig own = config_layer(config, i);
    if (!own.shares_kv || kv[own.kv_layer]) continue;
    kv[own.kv_layer] = mem_alloc((size_t)c->options->n_samples, kv_bytes(c, own.kv_layer),
                                 "keys and values of samples", err);
    if (!kv[own.kv_layer]) return STATUS_FAILED;
  }
  return STATUS_OK;
}

Status calibration_open(const Backend *backend, Model *model, const QuantizeOptions *options, LayerWork *work,
                        Calibration *c, Error *err) {
  *c = (Calibration){
      .backend = backend, .model = model, .options = options, .sink = {.user = work, .take = layer_take}};
  TRY(forward_prepare(backend, &model->config, &c->program, err));
  TRY(calibration_reload(c, err));
  c->carried = backend->carried_floats(c->state);
  const size_t row = c->carried, rows = (size_t)options->n_samples * (size_t)options->length;
  c->rows = mem_alloc(rows, row * sizeof *c->rows, "the samples' rows", err);
  c->copy =
      c->rows ? mem_alloc((size_t)options->length, row * sizeof *c->copy, "a sample's rows", err) : NULL;
  if (!c->copy) return STATUS_FAILED;
  TRY(keep_shared(c, &c->kv, err));
  if (options->recipe.corrects == 0) return STATUS_OK;
  c->originals = mem_alloc(rows, row * sizeof *c->originals, "the samples' rows in the original model", err);
  return c->originals ? keep_shared(c, &c->original_kv, err) : STATUS_FAILED;
}

void calibration_close(Calibration *c) {
  for (int i = 0; c->kv && i < c->model->config.n_layers; i++) free(c->kv[i]);
  free(c->kv);
  for (int i = 0; c->original_kv && i < c->model->config.n_layers; i++) free(c->original_kv[i]);
  free(c->original_kv);
  free(c->originals);
  if (c->backend) unload(c);
  program_release(&c->program);
  free(c->rows);
  free(c->copy);
  *c = (Calibration){0};
}

/* Computes a layer for sample i of `rows`, with the keys and values `kv`; keeps: they become those after the
 * layer. */
static Status run_sample(Calibration *c, int layer, int i, float *rows, unsigned char **kv, bool keeps,
                         Error *err) {
  const int length = c->options->length;
  const size_t floats = (size_t)length * c->carried;
  const LayerConfig own = config_layer(&c->model->config, layer);
  const TokenRange range = {.n_tokens = length,
                            .ids = c->options->ids + (size_t)i * (size_t)length,
                            .long_rope = length > rope_original_context(&c->model->config)};
  if (*c->options->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
  rows += (size_t)i * floats;
  memcpy(c->copy, rows, floats * sizeof *rows);
  if (own.shares_kv)
    TRY(c->backend->kv_write(c->state, range, own.kv_layer, length,
                             kv[own.kv_layer] + (size_t)i * kv_bytes(c, own.kv_layer), err));
  TRY(forward_layer(c->backend, c->state, &c->program, range, layer, c->copy, err));
  if (!keeps) return STATUS_OK;
  memcpy(rows, c->copy, floats * sizeof *rows);
  if (!kv[layer]) return STATUS_OK;
  return c->backend->kv_read(c->state, range, layer, kv[layer] + (size_t)i * kv_bytes(c, layer), err);
}

Status calibration_collect(Calibration *c, LayerWork *work, bool counts, Error *err) {
  Status status = STATUS_OK;
  for (int i = 0; status == STATUS_OK && i < c->options->n_samples; i++) {
    work->takes = counts ? TAKE_ORIGINALS : TAKE_NOTHING;
    if (c->originals) status = run_sample(c, work->index, i, c->originals, c->original_kv, true, err);
    work->takes = TAKE_MOMENTS;
    if (counts && status == STATUS_OK) status = run_sample(c, work->index, i, c->rows, c->kv, false, err);
  }
  work->takes = TAKE_NOTHING;
  return status;
}

Status calibration_step(Calibration *c, int layer, Error *err) {
  for (int i = 0; i < c->options->n_samples; i++) TRY(run_sample(c, layer, i, c->rows, c->kv, true, err));
  return STATUS_OK;
}
