/* step_launch.cuh - the host's side of both kernels of a decode step: a launch of clusters, the table of
 * layers, and what both take. */
#ifndef AUK_CUDA_STEP_LAUNCH_CUH
#define AUK_CUDA_STEP_LAUNCH_CUH

#include <stdlib.h>

#include "cuda/launch.cuh"
#include "cuda/step_block.cuh"

namespace step {

static inline cudaLaunchConfig_t launch_config(int n_clusters, size_t shared, cudaStream_t stream,
                                               cudaLaunchAttribute *cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim.x = STEP_BLOCKS;
  cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(n_clusters * STEP_BLOCKS));
  config.blockDim = dim3(STEP_ALL_THREADS);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = cluster;
  config.numAttrs = 1;
  return config;
}

static inline size_t layers_bytes(int n_layers) {
  return align_up((size_t)n_layers * sizeof(Layer));
}

static inline Matrix matrix_of(const DeviceLinear *w) {
  return {(const unsigned char *)w->tiles, (const unsigned char *)w->scales, (const unsigned char *)w->zeros};
}

static inline Layer layer_of(const DeviceLayer *from) {
  Layer l = {};
  l.matrices[QKV] = matrix_of(&from->qkv.parts[0]);
  l.matrices[O] = matrix_of(&from->o);
  l.matrices[GATE_UP] = matrix_of(&from->gate_up.parts[0]);
  l.matrices[DOWN] = matrix_of(&from->down);
  l.attn_norm = from->attn_norm;
  l.mlp_norm = from->mlp_norm;
  l.q_norm = from->q_norm;
  l.k_norm = from->k_norm;
  l.bias = from->qkv.parts[0].bias;
  return l;
}

/* Waits for the stream. */
static inline Status copy_layers(const DeviceLayer *from, int n, void *to, cudaStream_t stream, Error *err) {
  Layer *layers = (Layer *)mem_alloc((size_t)n, sizeof *layers, "layers", err);
  if (!layers) return STATUS_FAILED;
  for (int i = 0; i < n; i++) layers[i] = layer_of(&from[i]);
  cudaError_t failed =
      cudaMemcpyAsync(to, layers, (size_t)n * sizeof *layers, cudaMemcpyHostToDevice, stream);
  if (!failed) failed = cudaStreamSynchronize(stream);
  free(layers);
  return cuda_check(failed, "cannot copy the layers' places", err);
}

/* `memory`: layers, then `partial_bytes`, then the number of launches. piece_bytes: of weights. */
static inline void fill(Common *a, const StepModel *m, int n_layers, void *memory, size_t partial_bytes,
                        int n_slots, int piece_bytes) {
  a->layers = (const Layer *)memory;
  a->partials = (float *)((char *)memory + layers_bytes(n_layers));
  a->launches = (unsigned *)((char *)a->partials + align_up(partial_bytes));
  a->final_norm = m->final_norm;
  a->head = (const unsigned char *)m->head->dense;
  a->embedding = m->embedding;
  a->embedding_stride = m->embedding_stride;
  a->embedding_type = m->embedding_type;
  a->embedding_scale = m->embedding_scale;
  a->norm_eps = m->norm_eps;
  a->scale_log2 = m->attention_scale * 1.44269504f;
  const int bytes = m->in_flight ? m->in_flight : STEP_IN_FLIGHT, pieces = bytes / piece_bytes;
  /* Loads end in any order. A team waits for the piece four behind its last one, and a barrier tells its
   * present phase from the one before alone: so what was in that place must have been loaded by then. */
  static_assert((int)STEP_PAIRS <= (int)STEP_TEAMS, "pairs that attend are no further apart");
  const int most = n_slots - STEP_TEAMS;
  a->in_flight = pieces < 1 ? 1 : pieces > most ? most : pieces;
  a->most_in_flight = most;
}

} // namespace step

#endif
