/* calibration.h - the samples' rows between two layers, and passes of one layer over them. */
#pragma once

#include "engine/forward.h"
#include "quantize/quantize.h"

typedef struct {
  const Backend *backend;
  Model *model;
  const QuantizeOptions *options;
  InputSink sink;
  BackendModel *loaded;
  BackendState *state;
  Program program;
  size_t carried;              /* floats of a row */
  float *rows;                 /* [n_samples][length][carried] before the next layer */
  float *originals;            /* the same in the original model; NULL: not needed */
  float *copy;                 /* [length][carried] */
  unsigned char **original_kv; /* as kv, in the original model */
  unsigned char **kv;          /* [n_layers] what later layers share: [n_samples][kv_bytes]; NULL: nothing */
} Calibration;

/* work: gets the inputs of matrices, as its `takes` says. */
Status calibration_open(const Backend *backend, Model *model, const QuantizeOptions *options, LayerWork *work,
                        Calibration *c, Error *err);
void calibration_close(Calibration *c);
/* Loads the model again, whose norms and matrices have changed. */
Status calibration_reload(Calibration *c, Error *err);
/* Computes a layer for all samples by its own weights: `work` gets inputs of the original model, which goes
 * on to the next layer, and with `counts` those of the quantised one, which stays. */
Status calibration_collect(Calibration *c, LayerWork *work, bool counts, Error *err);
/* Computes a layer for all samples by the weights that the model has now: the rows after it become the rows
 * before the next layer. */
Status calibration_step(Calibration *c, int layer, Error *err);
