/* checkpoint.h - the directory that `auk quantize` writes: a file for each layer, one for all other tensors,
 * an index, config.json, and the files beside the model's weights (tokenizer). */
#pragma once

#include "quantize/quantize.h"

typedef struct {
  const Model *model;
  const QuantizeOptions *options;
  char run[33]; /* identifies the model and everything that decides the weights */
  int lock;     /* a descriptor of the directory, locked so that no other call writes there; -1: none */
} Checkpoint;

/* Makes the directory unless it exists, and locks it. Refuses a directory with a config.json, with weights
 * that are no shards of this checkpoint, or with other files but not a single shard of this checkpoint. Call
 * checkpoint_end(), also after a failure. */
Status checkpoint_begin(const Model *model, const QuantizeOptions *options, Checkpoint *checkpoint,
                        Error *err);
void checkpoint_end(Checkpoint *checkpoint);
/* Opens shard `index`: the file of this layer or, for n_layers, of all other tensors. *there false: it does
 * not exist yet. Refuses (STATUS_USAGE) a shard of another run. Call safetensors_close(), also after a
 * failure. */
Status checkpoint_shard_open(const Checkpoint *checkpoint, int index, Safetensors *file, bool *there,
                             Error *err);
/* Writes the file of a layer whose matrices are rounded. */
Status checkpoint_layer_write(const Checkpoint *checkpoint, LayerWork *work, Error *err);
/* Sets `before` and `after` of a layer's matrices from its file. */
Status checkpoint_losses(const Safetensors *file, LayerWork *work, Error *err);
/* Writes the rest: other tensors, the index, the tokenizer and config.json. Adds to the report's
 * bytes and source_bytes. */
Status checkpoint_finish(const Checkpoint *checkpoint, QuantizeReport *report, Error *err);
