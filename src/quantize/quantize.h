/* quantize.h - writes a model with its large matrices in 4 bits, as a checkpoint in a published layout.
 *
 * One layer at a time: the samples' rows before the layer are in memory; a first pass over them with the
 * layer's own weights collects statistics of each matrix's inputs, the matrices are rounded and written, and
 * a second pass with the weights as written makes the rows before the next layer. Each layer is a file, which
 * appears complete or not at all; config.json comes last. A later call with the same model and options goes
 * on after the files that are there, with the same results to the byte. */
#pragma once

#include "quantize/layouts.h"

typedef struct {
  const char *output; /* a directory, which need not exist */
  QuantLayout layout;
  int group;     /* 16, 32, 64 or 128 */
  int head_bits; /* of lm_head: 16, as it is, or 8 */
  Recipe recipe;
  const int32_t *ids; /* [n_samples][length] texts for the statistics */
  int n_samples, length;
  const Quantizer *quantizer;
  BackendOptions device; /* of the quantizer; the CPU's threads are also those of the forward pass */
  KeepMatrix *keeps;     /* names matrices that stay as they are; NULL: none */
  void *keeps_user;
  const char *keeps_text; /* what decides keeps(), for telling runs apart; or NULL */
  const volatile int *interrupted;
  void (*progress)(void *user, int layer, int n_layers, double seconds_left); /* or NULL */
  void *progress_user;
} QuantizeOptions;

/* The outcome for a matrix. */
typedef struct {
  char name[TENSOR_NAME];
  size_t weights;
  bool kept;
  char why[48];         /* kept: why */
  double before, after; /* LayerMatrix */
  double seconds;       /* 0: it was there already */
} MatrixReport;

typedef struct {
  MatrixReport *items; /* [n] in the order of the layers */
  size_t n, capacity;
  size_t bytes, source_bytes; /* of all tensors */
  int resumed;                /* layers that were there already */
} QuantizeReport;
void quantize_report_release(QuantizeReport *report);

/* Refuses what cannot be quantised: a model that is quantised already, sizes that no group divides, a packed
 * file, fewer positions than a sample has. */
Status quantize_check(const Model *model, const QuantizeOptions *options, Error *err);
/* PRECOND quantize_check(). The model's weights are prepared here. */
Status quantize(const Backend *backend, Model *model, const QuantizeOptions *options, QuantizeReport *report,
                Error *err);
