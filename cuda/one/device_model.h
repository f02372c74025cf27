/* device_model.h - a model on the device: every matrix in the kernels' layout, norms and biases in fp32.
 *
 * Filled by: weights.c. Read by: the files of cuda/one and its layers/. Neighbouring projections of
 * the same input are one matrix if their types allow: q, k, v stacked; gate and up interleaved, or stacked if
 * no matmul epilogue computes the gated product. */
#pragma once

#include "cpu/products.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/ops/norm_rope.h"
#include "cuda/one/reduce.h"
#include "engine/backend.h"
#include "model/model.h"

enum { MAX_PROJECTIONS = 6 };

typedef struct {
  DeviceLinear parts[MAX_PROJECTIONS]; /* each: neighbouring projections as one matrix (can_join()) */
  int n_parts;
  int first[MAX_PROJECTIONS]; /* number of each part's first output among the outputs of all parts */
} DeviceProjections;

/* All experts of a layer: gate and up interleaved, or only up if ungated; down has DeviceLinear.summed set.
 * Zeros in layers without experts. */
typedef struct {
  DeviceLinear gate_up, down;
} DeviceExperts;

/* Lists of matrices that multiply the same input, joined to as few matmuls as their types allow
 * (layers/parts.c; tensors.def says which matrices). */
enum { JOINED_INPUTS, JOINED_GATE_UP, JOINED_ATTN_MIX, JOINED_MLP_MIX, N_JOINED };

typedef struct {
  /* By LAYER_ATTN_NORM .. (model/tensors.def), in fp32; NULL: the model has no such vector. A norm's vector
   * holds its factors (1 + weight if norms_plus_one()). With AltUp attn_post_norm is divided by sqrt(2),
   * because ops_add_laurel() has divided x by sqrt(2). */
  union {
    const float *vector[N_LAYER_VECTORS];
    struct {
#define VECTOR(SLOT, member, ...) const float *member;
#include "model/tensors.def"
    };
  };
  /* By LAYER_Q ..: matrices that are joined with no other. Zeros: the layer has no such matrix, or it is in
   * `joined`, `experts`, `small` or the heads' matrices (DeviceMatrix, model/layers.h). */
  union {
    DeviceLinear linear[N_LAYER_LINEARS];
    struct {
#define LINEAR(SLOT, member, ...) DeviceLinear member;
#include "model/tensors.def"
    };
  };
  union {
    DeviceProjections joined[N_JOINED];
    struct {
      /* All matrices that multiply the layer's input, with outputs in the order of DeviceMatrix
       * (model/layers.h): b, a, qkv, z, q, k, v in a layer with delta_beside. */
      DeviceProjections qkv;
      /* One part: gate and up interleaved, gate and up stacked, or only up. Two parts: gate, up. None: no
       * MLP, or a shared expert that is one of `experts`. */
      DeviceProjections gate_up;
      DeviceProjections attn_mix, mlp_mix; /* the matrices mix_down and inject (buffers.def, stream_sums) */
    };
  };
  /* Only with latent attention: the heads' parts of kv_b (ModelLayer), laid out like `summed` experts, each
   * head as an expert. key_halves, value_halves: the same weights in fp16, as LinearHeads.w. */
  DeviceLinear key_heads, value_heads;
  const void *key_halves, *value_halves;
  DeviceExperts experts;
  /* AltUp's small matrices in fp32, by SMALL_ROUTER ..: [n][hidden], [n * n][n], [n][n], n being altup.n */
  const float *small[3];
  unsigned forms; /* bit f: form f (model/forms.def) supports all operations of the layer */
} DeviceLayer;
enum { SMALL_ROUTER, SMALL_PREDICT, SMALL_CORRECT }; /* in the order of LAYER_ALTUP_ROUTER .. */

typedef struct {
  const float *frequencies; /* [n_pairs] rope_frequencies() */
  int n_pairs;              /* rotary_dim / 2 */
  float attention_factor;
} DeviceRope;

/* A matrix whose weights stay in the host's memory. The CPU multiplies few rows by it. For many rows the
 * weights are streamed: laid out before each matmul in the staging memory, which all such matrices share. */
typedef struct HostMatrix {
  DeviceLinear *to; /* placed in the staging memory */
  int layer, n;
  int which
      [MAX_PROJECTIONS]; /* [n] linear layers (model/layers.h), or parts of each expert (EXPERT_GATE ..) */
} HostMatrix;

/* A matrix with permuted inputs, as from GPTQ's act-order (Linear.order). */
typedef struct {
  const DeviceLinear *matrix;
  const int *order; /* device: [n_in] input i of the matrix multiplies x[order[i]] */
} OrderedMatrix;

/* BackendModel.ropes: those of ROPE_GLOBAL and ROPE_LOCAL, then LongRoPE's global rope for long texts. */
enum { N_ROPES = 3, ROPE_OF_LONG_TEXTS = 2 };

/* A model on one GPU, or one GPU's part of a model that several GPUs share. */
struct BackendModel {
  const Model *model;
  Program program; /* the operations of a step of `model` */
  /* A drafter's target, or NULL. The drafter uses the target's CUDA stream, perhaps lm_head, too. */
  const struct BackendModel *target;
  int gpu;
  int rank;       /* this GPU's number among the GPUs that share the model; else 0 */
  Reduce *reduce; /* sums over GPUs that do not reach each other's memory; else NULL */
  ActType act;
  const char *kernel; /* the dispatch table's kernel that is forced, or NULL */
  int n_threads;      /* of the host */
  bool graphs;
  DecodeStep decode_step; /* DECODE_AUTO: steps of up to 8 tokens can be fused (fused.h), none with KV_F32 */
  size_t shared_bytes;    /* most dynamic shared memory that a block can opt in to */
  int attention_sms;      /* attention_wgmma_sms() */
  cudaStream_t stream;
  LinearContext *linear;
  void *memory; /* all weights that lie on the device */
  void *copies; /* rotated copies of some weights (layers/copies.h), or NULL */
  /* From here to `cpu`: NULL and 0 if all weights fit the device. */
  HostMatrix *host; /* [n_host] in the order of a step */
  int n_host;
  int n_host_experts,
      n_host_layers; /* how many of the last layers have experts, and how many other matrices, on the host */
  void *staging;     /* device memory for the largest matrix on the host */
  struct WeightStream *weight_stream; /* of weights.c */
  CpuProducts *cpu;                   /* multiplies by the matrices on the host */
  DeviceLayer *layers;                /* [n_layers] */
  OrderedMatrix *ordered;             /* [n_ordered] */
  int n_ordered;
  /* Outside the layers (model/tensors.def); zeros and NULL: the model has no such matrix or vector. */
  union {
    DeviceLinear model_linear[N_MODEL_LINEARS];
    struct {
#define MODEL_LINEAR(SLOT, member, count, ...) DeviceLinear member count;
#include "model/tensors.def"
    };
  };
  union {
    const float *vector[N_MODEL_VECTORS];
    struct {
#define MODEL_VECTOR(SLOT, member, count, ...) const float *member count;
#include "model/tensors.def"
    };
  };
  DeviceProjections mix; /* like attn_mix, for the logits: only mix_down, without inject */
  void *rounded_head;    /* the memory of a drafter's lm_head that was rounded from the target's, or NULL */
  void *screen;          /* lm_head in 8 bits (fused/screen/screen.h), or NULL */
  const void *embedding; /* [vocab_size][embedding_stride] */
  Dtype embedding_type;
  size_t embedding_stride; /* in elements; if tied, the embedding is the LM head's memory */
  const void *input_table; /* Model.input_table, in the checkpoint's type */
  DeviceRope ropes[N_ROPES];
};
