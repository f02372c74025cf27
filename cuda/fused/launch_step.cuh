/* launch_step.cuh - the host's side of both kernels of a decode step: a launch of clusters, the table of
 * layers, and what both take. */
#ifndef AUK_CUDA_FUSED_LAUNCH_STEP_CUH
#define AUK_CUDA_FUSED_LAUNCH_STEP_CUH

#include <stdlib.h>

#include "cuda/fused/block.cuh"
#include "cuda/ptx/launch.cuh"

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

static inline int vectors_stride(const StepShape &s) {
  return 2 * s.hidden + (2 + s.n_heads + 2 * s.n_kv_heads) * STEP_HEAD_DIM;
}

/* Of the layers' places, then of their vectors. */
static inline size_t layers_bytes(const StepShape &s) {
  return align_up((size_t)s.n_layers * sizeof(Layer));
}
static inline size_t vectors_bytes(const StepShape &s) {
  return align_up((size_t)(s.n_layers + 1) * (size_t)vectors_stride(s) * sizeof(float));
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
  return cuda_status(failed, "cannot copy the layers' places", err);
}

static inline Status copy_vectors(const StepModel *m, const StepShape &s, float *to, cudaStream_t stream,
                                  Error *err) {
  cudaError_t failed = cudaSuccess;
  auto copy = [&](const float *from, int n) {
    if (from && !failed)
      failed = cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDeviceToDevice, stream);
    to += n;
  };
  for (int i = 0; i < s.n_layers; i++) {
    const DeviceLayer &l = m->layers[i];
    copy(l.attn_norm, s.hidden), copy(l.mlp_norm, s.hidden);
    copy(l.q_norm, STEP_HEAD_DIM), copy(l.k_norm, STEP_HEAD_DIM);
    copy(l.qkv.parts[0].bias, (s.n_heads + 2 * s.n_kv_heads) * STEP_HEAD_DIM);
  }
  copy(m->final_norm, s.hidden);
  return cuda_status(failed, "cannot copy the layers' norms", err);
}

/* `memory`: layers, vectors, then `more_bytes` of totals and what follows: state_bytes() of it all.
 * piece_bytes: of weights. */
static inline size_t state_bytes(const StepShape &s, size_t more_bytes) {
  return layers_bytes(s) + vectors_bytes(s) + align_up(more_bytes);
}

/* Waits for the stream. */
static inline Status fill(Common *a, const StepModel *m, const StepShape &s, void *memory, size_t more_bytes,
                          int n_slots, int piece_bytes, cudaStream_t stream, Error *err) {
  float *vectors = (float *)((char *)memory + layers_bytes(s));
  TRY(cuda_status(cudaMemsetAsync(memory, 0, state_bytes(s, more_bytes), stream), "cannot clear memory",
                  err));
  TRY(copy_vectors(m, s, vectors, stream, err));
  TRY(copy_layers(m->layers, s.n_layers, memory, stream, err));
  a->layers = (const Layer *)memory;
  a->vectors = vectors;
  a->vectors_stride = vectors_stride(s);
  a->head_norms = m->layers[0].q_norm != NULL;
  for (int i = 0; i < s.n_layers; i++) a->bias |= m->layers[i].qkv.parts[0].bias != NULL;
  a->totals = (uint64_t *)((char *)vectors + vectors_bytes(s));
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
  return STATUS_OK;
}

} // namespace step

#endif
