/* weights.h - brings a model's weights to the device. */
#pragma once

#include "cuda/one/device_model.h"

/* Sets *memory to what weights_load() takes on the device, staging included, under a limit of `most` bytes
 * (0: none), and to what then stays on the host. free_bytes and copies become 0. The message of a failure
 * names the matrix that no kernel supports. */
Status weights_memory(const Model *model, size_t most, DeviceMemory *memory, Error *err);

/* Lays out the matrices as weights_load() does, without memory: every pointer is NULL. Call weights_release()
 * afterwards, also after a failure. */
Status weights_plan(const Model *model, BackendModel *planned, Error *err);

/* Loads the weights of loaded->model on loaded->stream; a model made from a config alone gets random weights.
 * Returns when the checkpoint has been read; later work on that stream sees all weights. */
Status weights_load(BackendModel *loaded, const BackendOptions *options, Error *err);
void weights_release(BackendModel *loaded);

/* The order of a matrix's permuted inputs (OrderedMatrix), or NULL. The x of such a matrix is gathered first,
 * so its matmul can neither compute a norm (LinearCall.norm) nor read planes. */
const int *weights_order(const BackendModel *loaded, const DeviceLinear *matrix);

/* Copies a matrix that is on the host to the staging memory and lays it out there, both on loaded->stream.
 * Waits for earlier copies, and must not be captured. */
Status weights_stream(const BackendModel *loaded, const HostMatrix *host, Error *err);
