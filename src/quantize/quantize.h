/* quantize.h - writes a model with its large matrices in 4 bits, as a checkpoint in a published layout.
 *
 * Layers are done one at a time: the rows of all samples that enter the layer are in memory. Its matrices are
 * rounded in stages (layer.h). For each stage a pass over the rows collects statistics of the stage's inputs,
 * with the earlier stages already rounded; then the stage is rounded. A last pass with the weights as written
 * makes the rows that enter the next layer. The file of each layer appears complete or not at all;
 * config.json comes last. A later call with the same model and options makes only the missing files, with the
 * same results to the byte. */
#pragma once

#include "quantize/layouts.h"

typedef struct {
  const char *output; /* a directory, which need not exist */
  QuantLayout layout;
  int group;     /* 16, 32, 64 or 128 */
  int head_bits; /* of lm_head: 16 (not quantised) or 8 */
  Recipe recipe;
  const int32_t *ids; /* [n_samples][length] the samples' tokens, for the statistics */
  int n_samples, length;
  const Quantizer *quantizer;
  BackendOptions device; /* options of the quantizer; the forward pass uses n_threads, too */
  KeepMatrix *keeps;     /* true for matrices that must not be quantised; NULL: no such matrix */
  void *keeps_user;
  const char *keeps_text;          /* text that determines keeps(), hashed into Checkpoint.run; or NULL */
  const volatile int *interrupted; /* not NULL; nonzero: the run ends with STATUS_INTERRUPTED */
  /* NULL: none. seconds_left -1: not known yet. */
  void (*progress)(void *user, int layer, int n_layers, double seconds_left);
  void *progress_user;
} QuantizeOptions;

/* The outcome for a matrix. */
typedef struct {
  char name[TENSOR_NAME];
  size_t weights;
  bool kept;
  char why[48];         /* kept: why */
  double before, after; /* as in LayerMatrix */
  double seconds;       /* 0: the layer's file existed already */
} MatrixReport;

typedef struct {
  MatrixReport *items; /* [n] in the order of the layers */
  size_t n, capacity;
  /* Bytes of all tensors. bytes: of the written checkpoint; source_bytes: of the model. */
  size_t bytes, source_bytes;
  int resumed; /* layers whose files existed already */
} QuantizeReport;
void quantize_report_release(QuantizeReport *report);

/* Refuses a packed file, a model that is quantised already (but FP8 is accepted), samples longer than the
 * model's context, and head_bits 8 where the layout or the lm_head rules it out. */
Status quantize_check(const Model *model, const QuantizeOptions *options, Error *err);
/* Writes the checkpoint. Refuses options by which no matrix is quantised, and a `keeps` that is true for no
 * matrix. The model's weights are prepared here. *report starts zeroed; call quantize_report_release() also
 * after a failure. PRECOND quantize_check() */
Status quantize(const Backend *backend, Model *model, const QuantizeOptions *options, QuantizeReport *report,
                Error *err);
