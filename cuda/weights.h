/* weights.h - brings a model's weights to the device. Called by: backend.c, kernel_bench.c. */
#pragma once

#include "cuda/device_model.h"

/* Bytes of device memory that weights_load() allocates, staging included. Fails, with its name, at a layer
 * that no kernel supports. */
Status weights_bytes(const Model *model, size_t *bytes, Error *err);

/* Lays out the matrices as weights_load() does, without memory: every pointer is NULL. Call weights_release()
 * afterwards, also after a failure. */
Status weights_plan(const Model *model, BackendModel *planned, Error *err);

/* Loads the weights of loaded->model, or makes random ones for a model made from a config alone, on
 * loaded->stream. Returns after everything is on the device. */
Status weights_load(BackendModel *loaded, const BackendOptions *options, Error *err);
void weights_release(BackendModel *loaded);
