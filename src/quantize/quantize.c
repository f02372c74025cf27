/* quantize.c - see quantize.h. Called by: commands/models/quantize.c. */
#include "quantize/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/identity.h"
#include "model/layers.h"
#include "quantize/calibration.h"
#include "quantize/checkpoint.h"
#include "quantize/finite.h"

void quantize_report_release(QuantizeReport *report) {
  free(report->items);
  *report = (QuantizeReport){0};
}

/* --- what can be quantised */

static Status check_dense(const Model *model, const Linear *linear, Error *err) {
  if (linear->n_out == 0 || linear->kind == LINEAR_DENSE || linear->kind == LINEAR_FP8) return STATUS_OK;
  return error_set(err, STATUS_MODEL,
                   "%s is quantised already: %s has %d bits; take the checkpoint that it was made from",
                   model_path(model), linear->name, linear->bits);
}

static Status check_head(const Model *model, const QuantizeOptions *options, Error *err) {
  const Linear *head = &model->head;
  if (options->head_bits == 16) return STATUS_OK;
  if (options->layout == LAYOUT_AWQ)
    return error_set(err, STATUS_USAGE,
                     "--head 8: AutoAWQ's layout has 4 bits alone: give --format compressed-tensors, too");
  if (model->config.tied_embeddings)
    return error_set(err, STATUS_USAGE,
                     "--head 8: the lm_head of %s is its embedding, which stays as it is: a copy in 8 bits "
                     "would make the checkpoint larger",
                     model_path(model));
  if (head->n_in % options->group || head->n_out % 8)
    return error_set(err, STATUS_USAGE,
                     "--head 8: --group %d does not divide the %d inputs of %s, or 8 its %d outputs",
                     options->group, head->n_in, head->name, head->n_out);
  return STATUS_OK;
}

Status quantize_check(const Model *model, const QuantizeOptions *options, Error *err) {
  const ModelConfig *config = &model->config;
  const char *path = model_path(model);
  if (model->layout != LAYOUT_HF_DIRECTORY)
    return error_set(err, STATUS_MODEL, "%s is a packed file, whose weights have 4 bits already", path);
  if (config->norm == NORM_SPHERE)
    return error_set(err, STATUS_MODEL, "%s: auk cannot quantise %s, whose layers may run several times",
                     path, config->architecture);
  for (int layer = 0; layer < config->n_layers; layer++)
    for (int which = 0; which < layer_linear_count(config, layer); which++) {
      if (!layer_linear_exists(config, layer, which)) continue;
      TRY(check_dense(model, layer_linear(&model->layers[layer], which), err));
    }
  for (int which = 0; which < N_MODEL_LINEARS; which++) TRY(check_dense(model, &model->linear[which], err));
  TRY(check_head(model, options, err));
  if (options->length > config->max_position)
    return error_set(err, STATUS_USAGE, "--length %d is more than the %d positions of %s", options->length,
                     config->max_position, path);
  return STATUS_OK;
}

/* --- the run */

typedef struct {
  const QuantizeOptions *options;
  Model *model;
  QuantizerState *state;
  Checkpoint checkpoint;
  Calibration calibration;
  LayerWork work;
  QuantizeReport *report;
  int last_missing; /* the last layer without a file, -1: none */
  double start;
  int done; /* layers that were made in this call */
} Run;

static Status report_layer(Run *run, bool was_there, Error *err) {
  QuantizeReport *report = run->report;
  for (int i = 0; i < run->work.n_matrices; i++) {
    const LayerMatrix *m = &run->work.matrices[i];
    TRY(mem_grow(&report->items, &report->capacity, report->n + 1, sizeof *report->items, "a report", err));
    MatrixReport *item = &report->items[report->n++];
    *item = (MatrixReport){.weights = (size_t)m->n_in * (size_t)m->n_out,
                           .kept = m->kept != NULL,
                           .before = m->before,
                           .after = m->after,
                           .seconds = was_there ? 0 : m->seconds};
    snprintf(item->name, sizeof item->name, "%s", m->name);
    snprintf(item->why, sizeof item->why, "%s", m->kept ? m->kept : "");
  }
  report->resumed += was_there;
  return STATUS_OK;
}

static void report_progress(const Run *run, int layer) {
  const int n_layers = run->model->config.n_layers;
  if (!run->options->progress) return;
  const double seconds = (clock_ms() - run->start) / 1000;
  run->options->progress(run->options->progress_user, layer, n_layers,
                         run->done ? seconds / run->done * (n_layers - layer) : -1);
}

/* Makes the model's layer use the matrices, norms and biases of its file. */
static Status use_layer(Run *run, const Safetensors *file, Tensors *made, Error *err) {
  ModelLayer *layer = &run->work.model->layers[run->work.index];
  for (int i = 0; i < run->work.n_matrices; i++) {
    const LayerMatrix *m = &run->work.matrices[i];
    for (int v = 0; v < m->n_views; v++) {
      Vector *bias = &m->views[v]->bias;
      const StoredTensor *own = bias->data ? tensor_at(run->model, bias->data) : NULL,
                         *other = own ? safetensors_find(file, own->name) : NULL;
      if (other) bias->data = other->data + ((const unsigned char *)bias->data - own->data);
    }
    if (m->kept) continue;
    TRY(layout_use(run->options->layout, m, run->work.group, file, made, err));
    TRY(layer_adopt(&run->work, m, err));
  }
  for (int which = 0; which < N_LAYER_VECTORS; which++) {
    Vector *vector = &layer->vector[which];
    const StoredTensor *own = vector->data ? tensor_at(run->model, vector->data) : NULL,
                       *other = own ? safetensors_find(file, own->name) : NULL;
    if (other) vector->data = other->data;
  }
  return STATUS_OK;
}

/* Computes a layer in both models; the quantised model has the weights of the layer's file. */
static Status step_over(Run *run, const Safetensors *file, Error *err) {
  TRY(use_layer(run, file, &run->work.made, err));
  TRY(calibration_reload(&run->calibration, err));
  return calibration_finish_layer(&run->calibration, run->work.index, err);
}

/* Rounds a layer, stage by stage, and writes its file. */
static Status make_layer(Run *run, Error *err) {
  LayerWork *work = &run->work;
  const char *first = work->n_matrices ? work->matrices[0].name : "";
  TRY(finite_check_layer(run->model, first, tensor_layer_prefix(first), work->n_threads, err));
  for (int stage = -1; (stage = layer_next_stage(work, stage)) >= 0;) {
    TRY(calibration_collect(&run->calibration, work, stage, err));
    TRY(layer_round(work, err));
    TRY(calibration_reload(&run->calibration, err));
  }
  TRY(model_check_weights(run->model, err));
  TRY(checkpoint_layer_write(&run->checkpoint, work, err));
  run->done++;
  return STATUS_OK;
}

static Status run_layer(Run *run, int layer, Error *err) {
  Safetensors file = {0};
  bool was_there;
  TRY(layer_begin(run->calibration.quantised.model, layer, run->options->group, run->options->keeps,
                  run->options->keeps_user, &run->work, err));
  run->work.quantizer = run->options->quantizer;
  run->work.state = run->state;
  run->work.recipe = &run->options->recipe;
  run->work.originals = &run->calibration.originals;
  run->work.n_threads = run->options->device.n_threads;
  report_progress(run, layer);
  Status status = checkpoint_shard_open(&run->checkpoint, layer, &file, &was_there, err);
  if (status == STATUS_OK && was_there) status = checkpoint_losses(&file, &run->work, err);
  if (status == STATUS_OK && !was_there) status = make_layer(run, err);
  if (status == STATUS_OK) status = report_layer(run, was_there, err);
  if (status == STATUS_OK && layer < run->last_missing)
    status = was_there ? step_over(run, &file, err) : calibration_finish_layer(&run->calibration, layer, err);
  calibration_restore(&run->calibration, layer);
  safetensors_close(&file);
  return status;
}

/* Finds the last layer that has no file yet. The layers before it must be computed to get its input rows. */
static Status find_missing(Run *run, Error *err) {
  run->last_missing = -1;
  for (int layer = 0; layer < run->model->config.n_layers; layer++) {
    OWNED(safetensors_close) Safetensors file = {0};
    bool there;
    TRY(checkpoint_shard_open(&run->checkpoint, layer, &file, &there, err));
    if (!there) run->last_missing = layer;
  }
  return STATUS_OK;
}

/* Checks the numbers of the tensors outside the layers (finite.h). */
static Status check_rest(const Run *run, Error *err) {
  const char *name = run->model->layers[0].q.name; /* "model.layers.0. ..." */
  return finite_check_rest(run->model, name, tensor_layer_prefix(name) - strlen("0."),
                           run->options->device.n_threads, err);
}

/* Refuses options by which no matrix is quantised, and a QuantizeOptions.keeps that is true for no matrix. */
static Status check_matrices(const Run *run, Error *err) {
  const QuantizeOptions *o = run->options;
  const char *path = model_path(run->model), *example = NULL;
  bool keeps = false;
  for (int layer = 0; layer < run->model->config.n_layers; layer++) {
    OWNED(layer_release) LayerWork work = {0};
    TRY(layer_begin(run->model, layer, o->group, o->keeps, o->keeps_user, &work, err));
    for (int i = 0; i < work.n_matrices; i++) {
      const LayerMatrix *m = &work.matrices[i];
      if (!m->kept && !example) example = m->name;
      keeps |= m->kept && strcmp(m->kept, "--keep") == 0;
    }
  }
  if (!example && !keeps)
    return error_set(err, STATUS_USAGE, "--group %d divides the inputs of no matrix of %s", o->group, path);
  if (!example) return error_set(err, STATUS_USAGE, "--keep leaves no matrix of %s to quantise", path);
  if (keeps || !o->keeps) return STATUS_OK;
  return error_set(err, STATUS_USAGE, "--keep matches no matrix of %s that would be quantised, such as %s",
                   path, example);
}

static Status run_all(Run *run, const Backend *backend, Error *err) {
  TRY(model_prepare(run->model, run->options->device.n_threads, err));
  TRY(check_matrices(run, err));
  TRY(checkpoint_begin(run->model, run->options, &run->checkpoint, err));
  TRY(find_missing(run, err));
  TRY(check_rest(run, err));
  TRY(run->options->quantizer->open(&run->options->device, &run->state, err));
  TRY(calibration_open(backend, run->model, run->options, &run->work, &run->calibration, err));
  for (int layer = 0; layer < run->model->config.n_layers; layer++) {
    model_drop_pages(run->model);
    Status status = run_layer(run, layer, err);
    layer_release(&run->work);
    TRY(status);
  }
  report_progress(run, run->model->config.n_layers);
  return checkpoint_finish(&run->checkpoint, run->report, err);
}

Status quantize(const Backend *backend, Model *model, const QuantizeOptions *options, QuantizeReport *report,
                Error *err) {
  Run run = {.options = options, .model = model, .report = report, .start = clock_ms()};
  Status status = run_all(&run, backend, err);
  calibration_close(&run.calibration);
  checkpoint_end(&run.checkpoint);
  options->quantizer->close(run.state);
  return status;
}
