/* copies.c - see copies.h.
 *
 * Always true: copies_bytes() and copies_make() visit the same matrices, so that copies_make() allocates the
 *              bytes that copies_bytes() announced. */
#include "cuda/one/layers/copies.h"

#include "cuda/kernels/ptx/device.h"
#include "cuda/one/weights.h"

static const size_t staging_bytes = (size_t)64 << 20;

typedef struct {
  const char *kernel; /* BackendOptions.kernel */
  char *memory;       /* NULL: bytes are only counted */
  size_t used;
  void *staging;
  cudaStream_t stream;
} Copies;

static Status visit(Copies *c, DeviceLinear *w, Error *err) {
  const size_t bytes = w->n_out > 0 && !w->host ? linear_rotated_bytes(w, c->kernel) : 0;
  if (bytes > 0 && c->memory)
    TRY(linear_rotate(w, c->memory + c->used, c->staging, staging_bytes, c->stream, err));
  c->used += bytes;
  return STATUS_OK;
}

static Status visit_layer(Copies *c, DeviceLayer *layer, Error *err) {
  for (int i = 0; i < layer->qkv.n_parts; i++) TRY(visit(c, &layer->qkv.parts[i], err));
  TRY(visit(c, &layer->o, err));
  for (int i = 0; i < layer->gate_up.n_parts; i++) TRY(visit(c, &layer->gate_up.parts[i], err));
  return visit(c, &layer->down, err);
}

static Status visit_layers(Copies *c, const BackendModel *loaded, Error *err) {
  const ModelConfig *config = &loaded->model->config;
  for (DeviceLayer *l = loaded->layers; l < loaded->layers + config->n_layers; l++) {
    const int back = config_layer(config, (int)(l - loaded->layers)).back;
    if (back == 0) TRY(visit_layer(c, l, err));
    if (back > 0) *l = *(l - back); /* with its copies */
  }
  return STATUS_OK;
}

Status copies_bytes(const Model *model, const BackendOptions *options, size_t *bytes, Error *err) {
  bool multiplies;
  *bytes = 0;
  if (!options->int8_activations || options->weight_bytes > 0) return STATUS_OK;
  TRY(linear_multiplies_bytes(options->gpu, &multiplies, err));
  if (!multiplies) return STATUS_OK;
  OWNED(weights_release) BackendModel planned = {0};
  Copies copies = {.kernel = options->target ? NULL : options->kernel};
  TRY(weights_plan(model, &planned, err));
  TRY(visit_layers(&copies, &planned, err));
  *bytes = copies.used;
  return STATUS_OK;
}

Status copies_make(BackendModel *loaded, Error *err) {
  Copies copies = {.kernel = loaded->kernel, .stream = loaded->stream};
  TRY(visit_layers(&copies, loaded, err));
  if (copies.used == 0) return STATUS_OK;
  if (cudaMalloc(&loaded->copies, copies.used) || cudaMalloc(&copies.staging, staging_bytes)) {
    cudaGetLastError(); /* another process took the memory: the model runs without copies */
    copies_release(loaded);
    loaded->copies = NULL;
    return STATUS_OK;
  }
  copies.memory = loaded->copies, copies.used = 0;
  Status status = visit_layers(&copies, loaded, err);
  if (!status) status = cuda_status(cudaStreamSynchronize(loaded->stream), "loading failed", err);
  cudaFree(copies.staging);
  return status;
}

void copies_release(BackendModel *loaded) {
  cudaFree(loaded->copies);
}
