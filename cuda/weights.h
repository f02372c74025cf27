/* weights.h - a model on the device: every matrix in the kernels' layout, norms and biases in fp32.
 *
 * Called by: backend.c. Projections that read the same input are one matrix where their kinds allow (q, k, v
 * stacked; gate and up interleaved, or stacked where the epilogue has not their activation), else one
 * matrix each. */
#ifndef AUK_CUDA_WEIGHTS_H
#define AUK_CUDA_WEIGHTS_H

#include "cuda/linear/linear.h"
#include "engine/backend.h"
#include "model/model.h"

typedef struct {
  DeviceLinear parts[3]; /* one stacked, or q, k, v */
  int n_parts;
  int first[3]; /* where each part's outputs begin among all */
} DeviceProjections;

typedef struct {
  /* What norms multiply by, NULL where there is no such norm. */
  const float *attn_norm, *attn_post_norm, *mlp_norm, *mlp_post_norm; /* [hidden] */
  const float *q_norm, *k_norm; /* [head_dim], or of all heads together */
  DeviceProjections qkv;
  DeviceLinear o, down;
  DeviceProjections gate_up; /* one part: interleaved, or gate over up; two: gate, up */
} DeviceLayer;

typedef struct {
  const float *frequencies; /* [rotary_dim / 2] rope_frequencies() */
  float attention_factor;
} DeviceRope;

enum { N_ROPES = 3, ROPE_OF_LONG_TEXTS = 2 }; /* by LayerRope; behind them the global one of long texts */

struct BackendModel {
  const Model *model;
  int gpu;
  ActType act;
  const char *kernel; /* a row of the table that is forced, or NULL */
  bool graphs;
  DecodeStep decode_step; /* auto: up to 8 tokens are fused.h's, where the cache is fp16 */
  size_t shared_bytes;    /* most shared memory that one block may take */
  cudaStream_t stream;
  LinearContext *linear;
  void *memory;        /* all weights, one piece */
  DeviceLayer *layers; /* [n_layers] */
  DeviceLinear head;
  const void *embedding;   /* [vocab_size][embedding_stride] of the checkpoint's type */
  size_t embedding_stride; /* in elements; the head's own rows when tied */
  const float *final_norm; /* [hidden] */
  DeviceRope ropes[N_ROPES];
};

/* Bytes of device memory that weights_load() takes, staging included; refuses layers that no kernel takes, by
 * name. */
Status weights_bytes(const Model *model, size_t *bytes, Error *err);

/* The matrices as weights_load() lays them out, without memory: every pointer is NULL. weights_release() it,
 * also after a failure. */
Status weights_plan(const Model *model, BackendModel *planned, Error *err);

/* Fills loaded's weights, with random ones for a model made from a config alone; its stream and linear
 * context are there. Returns when all is on the device. */
Status weights_load(BackendModel *loaded, const BackendOptions *options, Error *err);
void weights_release(BackendModel *loaded);

#endif
