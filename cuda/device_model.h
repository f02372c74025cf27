/* device_model.h - a model on the device: every matrix in the kernels' layout, norms and biases in fp32.
 *
 * Filled by: weights.c. Read by: backend.c, fused/, bench/kernel_bench.c. Neighbouring projections of the
 * same input are one matrix if their types allow: q, k, v stacked; gate and up interleaved, or stacked if no
 * matmul epilogue has their activation. */
#pragma once

#include "cpu/products.h"
#include "cuda/linear/linear.h"
#include "cuda/ops/norm_rope.h"
#include "cuda/ranks/nccl.h"
#include "engine/backend.h"
#include "model/model.h"

enum { MAX_PROJECTIONS = 6 };

typedef struct {
  DeviceLinear parts[MAX_PROJECTIONS]; /* all in one matrix, or one matrix for each run of equal types */
  int n_parts;
  int first[MAX_PROJECTIONS]; /* each part's first output among all */
} DeviceProjections;

/* The matrices of a layer's experts; zeros in layers without experts. */
typedef struct {
  DeviceLinear router, shared_gate; /* dense */
  /* All experts (linear.h): gate and up interleaved, or up alone with config.ungated; down summed. */
  DeviceLinear gate_up, down;
  DeviceLinear latent_in, latent_out; /* only with ExpertConfig.latent */
} DeviceExperts;

/* The matrices of a mix of streams: down and inject are one product. */
typedef struct {
  DeviceProjections in; /* outputs: streams.rank, then streams.n; no inject before the logits */
  DeviceLinear up;
} DeviceMix;

typedef struct {
  /* By LAYER_ATTN_NORM .. (model/tensors.def), in fp32; NULL: the model has no such vector. A norm's are its
   * factors (1 + weight if config.norm_plus_one). With AltUp attn_post_norm is divided by sqrt(2), as x is by
   * then. */
  union {
    const float *vector[N_LAYER_VECTORS];
    struct {
#define VECTOR(SLOT, member, ...) const float *member;
#include "model/tensors.def"
    };
  };
  /* q, k, v and, where it is a layer, attn_gate; or b (not Mamba-2's), a, qkv, z of LAYER_DELTA (with
   * by_channel b, qkv, z, a, or with a gate_rank b, qkv, z_in, a_in), with delta_beside before q, k, v; or
   * in of LAYER_CONV; or q_a, or q without a q_rank, kv_a, and attn_gate of latent attention. Index queries
   * and the index key come last (config.indexer). */
  DeviceProjections qkv;
  /* Only with latent attention: q with a q_rank; the heads' parts of kv_b (ModelLayer), laid out as summed
   * experts, one of them for each head. */
  DeviceLinear q, key_heads, value_heads;
  const void *key_halves, *value_halves; /* the latter two in fp16, as LinearHeads.w */
  DeviceLinear delta_o;                  /* zeros unless delta_beside */
  DeviceLinear delta_z, delta_a; /* with DeltaConfig.gate_rank: of what z_in and a_in make; else zeros */
  DeviceExperts experts;
  DeviceLinear o, down; /* o: zeros of LAYER_MLP_ALONE; down, gate_up: zeros without an MLP beside experts */
  DeviceProjections gate_up; /* one part: interleaved, gate before up, or up alone; two parts: gate, up */
  DeviceLinear input_gate, input_projection; /* only with config.per_layer_width */
  /* Only with config.streams.n, attn_norm and mlp_norm being [streams.n * hidden] then: */
  DeviceMix attn_mix, mlp_mix;
  DeviceLinear ngram_key, ngram_value;
  DeviceLinear laurel_left, laurel_right; /* only with config.altup.n; so are these, small ones in fp32: */
  const float *altup_router, *altup_predict, *altup_correct; /* [n][hidden], [n * n][n], [n][n] */
  float gate_deviations; /* gaussian_quantile() of LayerConfig.sparsity; 0 without it */
} DeviceLayer;

/* The parts of a drafter beside its layers (model.h, DraftParts); zeros in other models. */
typedef struct {
  void *head; /* the memory of a head that was rounded from the target's; or NULL */
  DeviceLinear states, join, out;
  const float *embedding_norm, *state_norm, *states_norm[MAX_DRAFT_STATES];
} DeviceDraft;

typedef struct {
  const float *frequencies; /* [n_pairs] rope_frequencies() */
  int n_pairs;              /* rotary_dim / 2 */
  float attention_factor;
} DeviceRope;

/* A matrix whose weights stay in the host's memory. The CPU multiplies few rows by it; for many rows the
 * weights are streamed: laid out in the staging memory, which all such matrices share, before each matmul. */
typedef struct HostMatrix {
  DeviceLinear *to; /* placed in the staging memory */
  int layer, n;
  int which
      [MAX_PROJECTIONS]; /* [n] linear layers (model/layers.h), or parts of each expert (EXPERT_GATE ..) */
} HostMatrix;

enum { N_ROPES = 3, ROPE_OF_LONG_TEXTS = 2 }; /* by LayerRope, then LongRoPE's global one for long texts */

struct BackendModel {
  /* Several GPUs share the model (split.h): the model of each GPU, whose `model` is a part of this one's.
   * Nothing else here counts then but model. n_parts 0: a model on one GPU. */
  BackendModel **parts; /* [n_parts] */
  int n_parts;
  /* One of several GPUs: NCCL adds up what they compute, and brings all logits to the first GPU, which alone
   * picks tokens. NULL: they reach each other's memory. */
  NcclRank *nccl;
  /* Several processes share the model: `parts` has one, the part number first_part, and rank 0 has
   * `ranks`. */
  struct Ranks *ranks;
  int first_part;
  const Model *model;
  const struct BackendModel
      *target; /* of a drafter: its stream is this one's, its head and embedding may be */
  int gpu;
  ActType act;
  const char *kernel; /* the dispatch table's kernel that is forced, or NULL */
  int n_threads;      /* of the host */
  bool graphs;
  DecodeStep decode_step; /* AUTO: fused.h runs steps of up to 8 tokens if the cache is fp16 */
  size_t shared_bytes;    /* most dynamic shared memory that a block may opt in to */
  int attention_sms;      /* attention_wgmma_sms() */
  cudaStream_t stream;
  LinearContext *linear;
  void *memory; /* all weights that lie on the device */
  void *copies; /* rotated copies of some (layers/copies.h), or NULL */
  /* Only where weights do not fit (NULL, 0): */
  HostMatrix *host; /* [n_host] in the order of a step */
  int n_host;
  int n_host_experts,
      n_host_layers; /* last layers: their experts, or all of their matrices, are on the host */
  void *staging;     /* device memory for the largest of them */
  struct WeightStream *weight_stream; /* weights.c's */
  CpuProducts *cpu;                   /* multiplies them */
  DeviceLayer *layers;                /* [n_layers] */
  DeviceDraft draft;
  DeviceLinear head;
  void *screen;          /* lm_head in 8 bits (fused/screen/screen.h), or NULL */
  const void *embedding; /* [vocab_size][embedding_stride] */
  Dtype embedding_type;
  size_t embedding_stride;      /* in elements; if tied, the embedding is the LM head's memory */
  const float *final_norm;      /* [hidden], or [streams.n * hidden] */
  const float *final_norm_bias; /* [hidden] or NULL */
  DeviceMix mix;                /* of the logits' input; only with config.streams.n */
  DeviceLinear streams_in[MAX_STREAMS - 1], streams_out[MAX_STREAMS - 1]; /* Model's */
  /* Only with config.per_layer_width: Model's. */
  const void *input_table; /* [per_layer_vocab][n_layers * per_layer_width] of the checkpoint's type */
  DeviceLinear input_projection;
  const float *input_norm; /* [per_layer_width] */
  DeviceRope ropes[N_ROPES];
};
