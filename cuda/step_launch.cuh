/* step_launch.cuh - the host's side of both kernels of a decode step: a launch of clusters, and the table of
 * layers. */
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

} // namespace step

#endif
