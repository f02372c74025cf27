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
static Status keep_shared(Calibration *c, Error *err) {
  const ModelConfig *config = &c->model->config;
  c->kv = mem_alloc((size_t)config->n_layers, sizeof *c->kv, "calibration", err);
  if (!c->kv) return STATUS_FAILED;
  for (int i = 0; i < config->n_layers; i++) {
    const LayerConfig own = config_layer(config, i);
    if (!own.shares_kv || c->kv[own.kv_layer]) continue;
    c->kv[own.kv_layer] = mem_alloc((size_t)c->options->n_samples, kv_bytes(c, own.kv_layer),
                                    "keys and values of samples", err);
    if (!c->kv[own.kv_layer]) return STATUS_FAILED;
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
  return c->copy ? keep_shared(c, err) : STATUS_FAILED;
}

void calibration_close(Calibration *c) {
  for (int i = 0; c->kv && i < c->model->config.n_layers; i++) free(c->kv[i]);
  free(c->kv);
  if (c->backend) unload(c);
  program_release(&c->program);
  free(c->rows);
  free(c->copy);
  *c = (Calibration){0};
}

Status calibration_pass(Calibration *c, int layer, bool keeps, Error *err) {
  const int length = c->options->length;
  const size_t floats = (size_t)length * c->carried;
  const LayerConfig own = config_layer(&c->model->config, layer);
  for (int i = 0; i < c->options->n_samples; i++) {
    if (*c->options->interrupted) return error_set(err, STATUS_INTERRUPTED, "interrupted");
    const TokenRange range = {.n_tokens = length,
                              .ids = c->options->ids + (size_t)i * (size_t)length,
                              .long_rope = length > rope_original_context(&c->model->config)};
    float *rows = c->rows + (size_t)i * floats;
    memcpy(c->copy, rows, floats * sizeof *rows);
    if (own.shares_kv)
      TRY(c->backend->kv_write(c->state, range, own.kv_layer, length,
                               c->kv[own.kv_layer] + (size_t)i * kv_bytes(c, own.kv_layer), err));
    TRY(forward_layer(c->backend, c->state, &c->program, range, layer, c->copy, err));
    if (!keeps) continue;
    memcpy(rows, c->copy, floats * sizeof *rows);
    if (c->kv[layer])
      TRY(c->backend->kv_read(c->state, range, layer, c->kv[layer] + (size_t)i * kv_bytes(c, layer), err));
  }
  return STATUS_OK;
}
